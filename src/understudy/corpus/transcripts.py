"""Turn a row's cells into one transcript, judged by that row only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from understudy.corpus.bad_rows import BadRow
from understudy.corpus.readers import MOST_NESTED, decode_json, nests_within
from understudy.schema.labels import is_missing
from understudy.schema.transcript import (
    ACT,
    ARGUMENTS,
    CONTENT,
    FUNCTION,
    ID,
    NAME,
    ROLE,
    TOOL,
    TOOL_CALL_ID,
    TOOL_CALLS,
    TYPE,
    Part,
    TextForm,
    json_line,
)


def transcript(form: TextForm, cells: Sequence[object]) -> str | BadRow:
    """Build the transcript (the text) of a row from its cells; return a BadRow if they are invalid.

    A missing field is empty. A dialogue's turns have a role and a content, an act and calls of tools if these are
    declared, and no other key with a value.
    """
    found = next((cell for cell in cells if isinstance(cell, BadRow)), None) or (
        _fields(form, cells) if form.fields else _turns(form, cells[0])
    )
    return found if isinstance(found, BadRow) else form.render(found)


def _fields(form: TextForm, cells: Sequence[object]) -> list[Part] | BadRow:
    contents = ["" if is_missing(cell) else cell for cell in cells]
    if not all(isinstance(content, str) for content in contents):
        return BadRow.TEXT_TYPE
    return list(map(Part, form.fields, map(str, contents))) if any(contents) else BadRow.EMPTY_TEXT


def _turns(form: TextForm, cell: object) -> list[Part] | BadRow:
    if isinstance(cell, str):
        cell = _from_json(cell)
    if isinstance(cell, BadRow):
        return cell
    if cell is None or (isinstance(cell, list) and not cell):
        return BadRow.EMPTY_TEXT
    if not isinstance(cell, list):
        return BadRow.DIALOGUE
    parts: list[Part] = []
    asked: list[tuple[object, Part]] = []
    answers: dict[int, Part] = {}
    for turn in cell:
        if not isinstance(turn, Mapping):
            return BadRow.DIALOGUE
        if form.tools and turn.get(ROLE) == TOOL:
            answer = _answer(turn, asked, answers)
            if isinstance(answer, BadRow):
                return answer
            answers |= answer
            continue
        said = _turn(form, turn)
        if isinstance(said, BadRow):
            return said
        parts += [*_in_order(answers), *said]
        ids = [call.get(ID) for call in turn.get(TOOL_CALLS) or ()]
        asked, answers = list(zip(ids, (part for part in said if part.calls), strict=True)), {}
    parts += _in_order(answers)
    return parts if form.whole(parts) else BadRow.TOOL_CALL


def _turn(form: TextForm, turn: Mapping[object, object]) -> list[Part] | BadRow:
    role, content, act = turn.get(ROLE), turn.get(CONTENT), turn.get(ACT)
    if _says_more(turn, (ROLE, CONTENT, *((ACT,) if form.acts else ()), *((TOOL_CALLS,) if form.tools else ()))):
        return BadRow.DIALOGUE
    if not isinstance(role, str) or not isinstance(content, str | None) or not isinstance(act, str | None):
        return BadRow.DIALOGUE
    if role not in form.roles:
        return BadRow.UNKNOWN_ROLE
    if act and act not in form.acts:
        return BadRow.UNKNOWN_ACT
    calls = _calls(form, role, turn.get(TOOL_CALLS))
    if isinstance(calls, BadRow):
        return calls
    if content is not None and content.strip():
        return [Part(role, content, act or ""), *calls]
    return calls if calls and not act else BadRow.EMPTY_TURN


def _calls(form: TextForm, role: str, cell: object) -> list[Part] | BadRow:
    if not isinstance(cell, list | None):
        return BadRow.TOOL_CALL
    calls: list[Part] = []
    for call in cell or ():
        function = call.get(FUNCTION) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or _says_more(function, (NAME, ARGUMENTS)):
            return BadRow.TOOL_CALL
        if _says_more(call, (ID, TYPE, FUNCTION)) or call.get(TYPE) not in (None, FUNCTION):
            return BadRow.TOOL_CALL
        name, arguments = function.get(NAME), arguments_line(function.get(ARGUMENTS))
        if not isinstance(name, str) or not isinstance(call.get(ID), str | None) or arguments is None:
            return BadRow.TOOL_CALL
        if name not in form.tools:
            return BadRow.UNKNOWN_TOOL
        calls.append(Part(role, arguments, tool=name))
    return calls


def arguments_line(cell: object) -> str | None:
    """Return the arguments of a call, given as JSON or as an object, in one canonical line; None if they are
    neither."""
    if isinstance(cell, Mapping):
        try:
            cell = json.dumps(_with_values(cell), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            return None
    if isinstance(cell, str | None):
        return json_line(cell) if cell and cell.strip() else "{}"
    return None


def _with_values(value: object, depth: int = 0) -> object:
    if depth > MOST_NESTED:
        raise ValueError("it is nested too deep")
    if isinstance(value, Mapping):
        return {key: _with_values(each, depth + 1) for key, each in value.items() if each is not None}
    return [_with_values(each, depth + 1) for each in value] if isinstance(value, list) else value


def _answer(
    turn: Mapping[object, object], asked: Sequence[tuple[object, Part]], answers: Mapping[int, Part]
) -> dict[int, Part] | BadRow:
    """Return a tool's answer, keyed by the position of its call in ``asked``, the calls of the turn before with their
    ids. The answer belongs to the first unanswered call with its id and tool, as far as the turn names these.
    """
    content, own, name = turn.get(CONTENT), turn.get(TOOL_CALL_ID), turn.get(NAME)
    if _says_more(turn, (ROLE, CONTENT, TOOL_CALL_ID, NAME)) or not isinstance(content, str | None):
        return BadRow.DIALOGUE
    for place, (known, call) in enumerate(asked):
        if place not in answers and own in (None, known) and name in (None, call.tool):
            return {place: Part(TOOL, content or "", tool=call.tool)}
    return BadRow.TOOL_CALL


def _in_order(answers: Mapping[int, Part]) -> list[Part]:
    return [answers[place] for place in sorted(answers)]


def _says_more(item: Mapping[object, object], known: Sequence[str]) -> bool:
    """Return whether an item has a value under a key that is not among ``known``."""
    others = (value for key, value in item.items() if key not in known)
    return any(not (value is None or (isinstance(value, list) and not value)) for value in others)


def _from_json(cell: str) -> object:
    if not cell.strip():
        return None
    if not nests_within(cell, MOST_NESTED):
        return BadRow.DIALOGUE
    try:
        value = decode_json(cell.strip())
    except (ValueError, RecursionError):
        return BadRow.DIALOGUE
    return value if isinstance(value, list) else BadRow.DIALOGUE
