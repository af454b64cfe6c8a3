"""A row's cells as one transcript, judged by that row alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from understudy.corpus.bad_rows import BadRow
from understudy.corpus.readers import MOST_NESTED, decode_json, nests_within
from understudy.labels import is_missing
from understudy.transcript import CONTENT, ROLE, Part, TextForm


def transcript(form: TextForm, cells: Sequence[object]) -> str | BadRow:
    """The text of a row.

    A field that is missing says nothing; a dialogue's turns have a role and a content, and no other key with a value.

    Args:
        cells: those of the fields, or that of the dialogue.
    """
    found = next((cell for cell in cells if isinstance(cell, BadRow)), None) or (
        _fields(form, cells) if form.fields else _turns(form, cells[0])
    )
    return found if isinstance(found, BadRow) else form.render(found)


def _fields(form: TextForm, cells: Sequence[object]) -> list[Part] | BadRow:
    contents = ["" if is_missing(cell) else cell for cell in cells]
    if not all(isinstance(content, str) for content in contents):
        return BadRow.TEXT_TYPE
    return list(zip(form.fields, map(str, contents), strict=True)) if any(contents) else BadRow.EMPTY_TEXT


def _turns(form: TextForm, cell: object) -> list[Part] | BadRow:
    if isinstance(cell, str):
        cell = _from_json(cell)
    if isinstance(cell, BadRow):
        return cell
    if cell is None or (isinstance(cell, list) and not cell):
        return BadRow.EMPTY_TEXT
    if not isinstance(cell, list):
        return BadRow.DIALOGUE
    turns: list[Part] = []
    for turn in cell:
        if not isinstance(turn, Mapping) or any(turn[key] is not None for key in turn if key not in (ROLE, CONTENT)):
            return BadRow.DIALOGUE
        role, content = turn.get(ROLE), turn.get(CONTENT)
        if not isinstance(role, str) or not isinstance(content, str | None):
            return BadRow.DIALOGUE
        if role not in form.roles:
            return BadRow.UNKNOWN_ROLE
        if content is None or not content.strip():
            return BadRow.EMPTY_TURN
        turns.append((role, content))
    return turns


def _from_json(cell: str) -> object:
    """A cell that holds JSON; None for nothing."""
    if not cell.strip():
        return None
    if not nests_within(cell, MOST_NESTED):
        return BadRow.DIALOGUE
    try:
        value = decode_json(cell.strip())
    except (ValueError, RecursionError):
        return BadRow.DIALOGUE
    return value if isinstance(value, list) else BadRow.DIALOGUE
