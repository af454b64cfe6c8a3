"""Is this row fit to be used? Decided from the row alone."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence

from understudy.corpus.bad_rows import BadRow
from understudy.corpus.labels import Label, as_type, canonical, is_missing, whole
from understudy.corpus.readers import MOST_NESTED
from understudy.corpus.schema import Schema

Record = tuple[str, Label | None, str | None, list[str] | None]
"""Text, label, owner and secrets of a good row."""


class RowCheck:
    """Turns the cells of ``schema.columns`` into a Record, or says why not.

    Args:
        schema: what the columns mean.
        max_cell_bytes: the most bytes that a text, label, owner or secret may have in UTF-8.
        known: the labels' canonical strings; None accepts every label.
    """

    def __init__(self, schema: Schema, *, max_cell_bytes: int, known: Mapping[str, int] | None) -> None:
        self._schema = schema
        self._max_cell_bytes = max_cell_bytes
        self._known = known
        position = schema.columns.index
        self._text = position(schema.text) if schema.text is not None else None
        self._record = [(name, position(name)) for name in schema.record_columns]
        self._label = position(schema.label) if schema.label is not None else None
        self._owner = position(schema.owner) if schema.owner is not None else None
        self._secrets = [position(name) for name in schema.secrets]

    def __call__(self, cells: Sequence[object]) -> Record | BadRow:
        text = cells[self._text] if self._text is not None else _record_text(cells, self._record)
        if isinstance(text, BadRow):
            return text
        if is_missing(text):
            return BadRow.EMPTY_TEXT
        if not isinstance(text, str):
            return BadRow.TEXT_TYPE
        problem = self._string_problem(text)
        if problem is not None:
            return problem
        label = None if self._label is None else self._read_label(cells[self._label])
        if isinstance(label, BadRow):
            return label
        owner = None if self._owner is None else self._read_owner(cells[self._owner])
        if isinstance(owner, BadRow):
            return owner
        secrets = None if not self._secrets else self._read_secrets([cells[i] for i in self._secrets])
        if isinstance(secrets, BadRow):
            return secrets
        return text, label, owner, secrets

    def _string_problem(self, text: str) -> BadRow | None:
        size = len(text)
        if not text.isascii():
            try:
                size = len(text.encode("utf-8"))
            except UnicodeEncodeError:  # a lone surrogate: of a byte that could not be decoded, or a JSON escape
                return BadRow.ENCODING
        return BadRow.LONG_CELL if size > self._max_cell_bytes else None

    def _read_label(self, cell: object) -> Label | BadRow:
        if is_missing(cell):
            return BadRow.NULL_LABEL
        label = as_type(cell, self._schema.label_type)
        if label is None or (self._known is not None and canonical(label) not in self._known):
            return BadRow.UNKNOWN_LABEL
        return (isinstance(label, str) and self._string_problem(label)) or label

    def _read_owner(self, cell: object) -> str | BadRow:
        owner = None if is_missing(cell) else as_type(cell, "string")
        if not isinstance(owner, str):
            return BadRow.NULL_OWNER
        return self._string_problem(owner) or _owner_key(owner)

    def _read_secrets(self, cells: Sequence[object]) -> list[str] | BadRow:
        secrets: list[str] = []
        for cell in cells:
            listed = cell.split(";") if isinstance(cell, str) else [] if cell is None else cell
            if not isinstance(listed, list):
                return BadRow.SECRETS_TYPE
            for secret in listed:
                if not isinstance(secret, str):
                    return BadRow.SECRETS_TYPE
                problem = self._string_problem(secret)
                if problem is not None:
                    return problem
                if secret.strip():
                    secrets.append(secret.strip())
        return secrets


def _owner_key(owner: str) -> str:
    """One string for one owner, however a file spells it: without white space around it, in NFC, and 7 for 7.0.

    ``7.0`` is how 7 comes out of a column in which another row has no owner. Case and leading zeros make a difference.
    """
    return re.sub(r"^(-?[0-9]+)\.0$", r"\1", unicodedata.normalize("NFC", owner.strip()))


def _record_text(cells: Sequence[object], positions: Sequence[tuple[str, int]]) -> str | BadRow:
    """Several cells as one JSON object; a missing number is null. All cells missing: an empty text."""
    try:
        record = {name: _plain(cells[i]) for name, i in positions}
        if all(is_missing(value) for value in record.values()):
            return BadRow.EMPTY_TEXT
        return json.dumps(record, ensure_ascii=False, allow_nan=False, default=_spell)
    except (TypeError, ValueError):
        return BadRow.VALUE_TYPE


def _plain(value: object, depth: int = 0) -> object:
    """NaN is null, and 3.0 is 3: a null in another row makes decimals of a column's integers.

    Raises:
        ValueError: ``value`` is nested deeper than ``MOST_NESTED``. Python's own limit depends on who calls.
    """
    if isinstance(value, (dict, list, tuple)):
        if depth == MOST_NESTED:
            raise ValueError
        if isinstance(value, dict):
            return {key: _plain(each, depth + 1) for key, each in value.items()}
        return [_plain(each, depth + 1) for each in value]
    if isinstance(value, float):
        return None if math.isnan(value) else whole(value)
    return value


def _spell(value: object) -> str:
    if isinstance(value, (datetime.date, datetime.time, decimal.Decimal)):
        return str(value)
    raise TypeError
