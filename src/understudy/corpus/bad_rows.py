"""Define what can be wrong with a row, how it is reported, and where its number is stored.

A message names the kind of the problem and the requested column; it never quotes a cell, a row number or a
count. Those go to the private folder: ``bad_rows.jsonl`` (one line per bad row) and ``skipped_rows.json`` (the counts,
and by column how many values beyond its range count as its ends).
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from understudy.base.errors import CorpusError
from understudy.base.files import PRIVATE_MODE, atomic_file, private_folder, write_file
from understudy.corpus.schema import Schema
from understudy.schema.columns import Column

ROWS_FILE = "bad_rows.jsonl"
COUNTS_FILE = "skipped_rows.json"
UNREADABLE = "unreadable file"


class BadRow(Enum):
    """Reasons why a row is bad (left out, or the end of the run). Each is decided from that row alone."""

    EMPTY_TEXT = "empty text"
    TEXT_TYPE = "text is not a string"
    DIALOGUE = "malformed dialogue"
    UNKNOWN_ROLE = "unknown role"
    UNKNOWN_ACT = "unknown act"
    UNKNOWN_TOOL = "unknown tool"
    TOOL_CALL = "malformed tool call"
    EMPTY_TURN = "empty turn"
    VALUE_TYPE = "value that cannot be represented"
    ENCODING = "bad encoding"
    LONG_CELL = "cell too long"
    NULL_LABEL = "no label"
    UNKNOWN_LABEL = "unknown label"
    NULL_OWNER = "no owner"
    INEXACT_OWNER = "inexact owner"
    SECRETS_TYPE = "secrets are not strings"
    CELL = "value outside a column's domain"
    QUOTES = "quotes do not pair up"
    BARE_RETURN = "carriage return outside quotes"
    FIELD_COUNT = "wrong number of fields"
    INVALID_JSON = "invalid JSON"
    NOT_AN_OBJECT = "JSON is not an object"


@dataclass(frozen=True)
class BadCell:
    """A bad row of the kind CELL: names the column whose domain does not contain the value."""

    column: Column

    @property
    def value(self) -> str:
        """Return its kind as in the stored notes."""
        return f"{BadRow.CELL.value}: {self.column.name}"


@cache
def _in_words() -> dict[str, dict[str, Any]]:
    """Return what is wrong with a row, and what may help, by the kind of its fault."""
    return tomllib.loads(resources.files(__package__).joinpath("bad_rows.toml").read_text("utf-8"))


def bad_row_error(found: BadRow | BadCell, schema: Schema, *, kept: Path | None) -> CorpusError:
    """Return the error for a bad row; ``kept`` is the private folder that stores its number."""
    where = f" (its number is in {kept / ROWS_FILE})" if kept else ""
    of_format = True  # skipping rows does not help
    if isinstance(found, BadCell):
        problem = f"A row has a value that the typed column {found.column.name!r} does not declare."
        hint = f", or how the column is written or declared (--columns): {found.column.form}"
    else:
        words, texts = _in_words()[found.value], ", ".join(map(repr, schema.text_columns))
        problem = words["problem"].format(text=texts, label=schema.label, owner=schema.owner)
        hint, of_format = words.get("hint", ""), words.get("of_format", False)
    skip = "" if of_format else " or skip such rows with --max-bad-rows"
    return CorpusError(problem, f"Fix the row{where}{skip}{hint}.")


def fault_of(kind: str, schema: Schema) -> CorpusError:
    """Return what is wrong with rows of a stored kind, and the cure."""
    cells = {cell.value: cell for cell in map(BadCell, (*schema.crossed, *schema.typed))}
    return bad_row_error(cells[kind] if kind in cells else BadRow(kind), schema, kept=None)


def too_many_bad_rows(*, kept: Path | None) -> CorpusError:
    """Return the error for a table in which more than the declared share of the rows would be skipped; ``kept`` is the
    private folder that stores their numbers."""
    where = f" ({kept / COUNTS_FILE} counts what is wrong)" if kept else ""
    return CorpusError(
        "More rows are unusable than --max-bad-rows allows.",
        f"Fix the table, or declare its format, columns and labels as they are{where}; `understudy check` says how, "
        "and charges nothing. Only if so many are meant to be left out, raise --max-bad-rows.",
    )


Noted = tuple[str, int | None, str]
"""File, row and kind of a bad row."""


class BadRowLog:
    """Collects the bad rows of one pass over the table and stores them in ``private_dir`` (None: nowhere). For a part
    of a table they are added to the list ``noted`` instead.

    A context manager: the files appear when the block ends, replacing those of an earlier pass, which stay if a pass is
    interrupted.
    """

    def __init__(self, private_dir: Path | None, *, noted: list[Noted] | None = None) -> None:
        self._private_dir = private_dir
        self._noted = noted
        self._counts: Counter[str] = Counter()
        self._stack = ExitStack()
        self._stream: BinaryIO | None = None

    def __enter__(self) -> BadRowLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)
        if kind is None and self._private_dir is not None and self._stream is None:
            (self._private_dir / ROWS_FILE).unlink(missing_ok=True)

    def note(self, file: str, row: int | None, kind: str) -> None:
        """Record a bad row (or with ``row`` None a file that cannot be read further)."""
        self._counts[kind] += 1
        if self._noted is not None:
            self._noted.append((file, row, kind))
        if self._private_dir is None:
            return
        if self._stream is None:
            path = private_folder(self._private_dir) / ROWS_FILE
            self._stream = self._stack.enter_context(atomic_file(path, mode=PRIVATE_MODE))
        line = json.dumps({"file": file, "row": row, "kind": kind})
        self._stream.write(line.encode("ascii") + b"\n")

    def write_counts(self, clamped: Mapping[str, int]) -> int:
        """Store how many rows this whole pass skipped, in total and by kind, and how many values were ``clamped``, by
        column; return the total."""
        if self._private_dir is not None:
            counts = {"skipped": self._counts.total(), "kinds": dict(sorted(self._counts.items()))}
            counts |= {"clamped": dict(sorted(clamped.items()))} if clamped else {}
            write_file(private_folder(self._private_dir) / COUNTS_FILE, json.dumps(counts, indent=1), mode=PRIVATE_MODE)
        return self._counts.total()
