"""Reading synthetic tables, which may come from anybody."""

from __future__ import annotations

import csv
import datetime
import hashlib
import json
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from understudy.base.errors import ConfigError
from understudy.base.lazy import arrow_types as t
from understudy.base.lazy import pa, pc, pq
from understudy.base.parquet import count_values
from understudy.base.untrusted import parse_json, writable
from understudy.corpus.readers import lift_cell_limit, unescaped
from understudy.evaluate.metrics.results import Evaluation, ReleasedMetrics, load_evaluation, load_released
from understudy.release import PublicSchema
from understudy.run.outputs import PROVENANCE as PROVENANCE_FILE
from understudy.run.outputs import find_table, schema_of_table
from understudy.run.table import (
    LABEL,
    PROVENANCE,
    TEXT_SHA256,
    TRANSCRIPT,
    SyntheticTable,
    label_name,
    text_name,
    text_sha256,
)
from understudy.schema.columns import Column
from understudy.schema.labels import canonical
from understudy.schema.layout import Layout, plain_layout

MOST_ROWS = 2_000_000
"""Largest number of rows of a synthetic table in a report."""
MOST_BYTES = 1024**3
"""Largest number of bytes of its texts, labels and provenance, uncompressed."""
_AT_ONCE = 4096
_LONGEST = 64 * 1024**2
T = TypeVar("T", Evaluation, ReleasedMetrics)
_NO_SCHEMA = PublicSchema(label=LABEL)
"""The schema of a table without a file that describes its columns."""


class Row(NamedTuple):
    """A row: its text, its label, its provenance as JSON, and its other cells by column."""

    text: str
    label: Any
    provenance: Any
    cells: Mapping[str, Any]


class TooLarge(ValueError):
    """The table has too many rows or bytes."""


_MAKE = "Make it again with `understudy generate`."


@dataclass(frozen=True)
class SyntheticFile:
    """The file of a synthetic table, in Parquet, CSV or JSON lines.

    Args:
        told: the schema in the file next to it; None if there is no such file.
        path: of a table in memory, that of the Parquet file that it would be.
    """

    told: PublicSchema | None
    path: Path = Path("synthetic.parquet")

    @classmethod
    def at(cls, path: Path) -> SyntheticFile:
        return cls(schema_of_table(path.parent), path)

    @classmethod
    def within(cls, shareable: Path) -> SyntheticFile | None:
        """Return the one in a shareable folder; None if no text was made yet."""
        path = find_table(shareable)
        return None if path is None else cls(schema_of_table(shareable), path)

    @property
    def schema(self) -> PublicSchema:
        return self.told or _NO_SCHEMA

    @contextmanager
    def readable(self, too_large: str = "cannot be read.", instead: str = _MAKE) -> Iterator[None]:
        """Convert errors while a damaged table is read, or one that is too large, to a ConfigError that says which it
        is."""
        try:
            yield
        except TooLarge:
            raise ConfigError(f"The synthetic table {self.path.name} {too_large}", instead) from None
        except Exception:  # a damaged table fails in many ways
            raise ConfigError(f"The synthetic table {self.path.name} cannot be read.", _MAKE) from None

    def rows(self, *, at_once: int = _AT_ONCE, typed: Sequence[str] | None = ()) -> Iterator[Row]:
        """Yield the rows, with their details from the file next to it.

        Args:
            at_once: rows of Parquet that are decoded together.
            typed: columns of Parquet that are read besides text, label and provenance. None: all columns of the table,
                and those computed from dialogues.

        Raises:
            TooLarge: beyond :data:`MOST_ROWS` or :data:`MOST_BYTES`.
            Exception: the table is damaged.
        """
        schema, beside = self.schema, self.path.parent / PROVENANCE_FILE
        text, label = TRANSCRIPT if schema.form else text_name(schema), label_name(schema)
        told = [column.name for column in schema.told]
        if typed is None:
            typed = list(dict.fromkeys((*self._other_columns(), *told)))
        read = partial(_read_file, names=(text, label, PROVENANCE), at_once=at_once)
        rows = read(self.path, typed=(*typed, *schema.form.fields), layout=schema.layout)
        own = read(beside, typed=(*told, TEXT_SHA256), layout=schema.layout) if beside.exists() else iter(())
        known_of = _Beside(own)
        for row in rows:
            parts = [row[name] for name in schema.form.fields or (text,)] if not schema.form.roles else None
            known = next(own, {}) if parts is None else known_of(text_sha256(*parts))
            found = known if text in known and schema.form else row
            labels = row if schema.own_label is not None or label not in known else known
            merged = {**row, **{name: known[name] for name in told if name in known}}
            cells = {name: merged[name] for name in typed if name in merged}
            yield Row(str(found[text] or ""), labels.get(label), known.get(PROVENANCE, row.get(PROVENANCE)), cells)

    def table(self, rows: Sequence[Row]) -> SyntheticTable:
        """Return some of the rows, read with all their columns, as a table."""
        names = [name for name in (rows[0].cells if rows else ()) if name not in self.schema.form.fields]
        cells = {name: [row.cells.get(name) for row in rows] for name in names}
        texts, labels, origins = zip(*(row[:3] for row in rows), strict=True) if rows else ((), (), ())
        return SyntheticTable.arranged(self.schema, texts, labels, origins, cells)

    @property
    def _as_source(self) -> bool:
        """Return whether it is a text file of the private table's format."""
        return self.path.suffix[1:] == self.schema.layout.format != "parquet"

    @property
    def reading(self) -> dict[str, Any]:
        """Return the options with which it is read: those of the private table if both have one format."""
        return self.schema.layout.reading if self._as_source else {}

    def as_written(self, columns: Sequence[Column]) -> list[Column]:
        """Return typed columns that read the file: in a text file, values are written as in the private table."""
        is_text = self.schema.layout.is_text
        return [each if self._as_source or is_text(each.name) else each.plain for each in columns]

    def origins(self) -> set[tuple[str, bool]]:
        """Return the digests of the Releases that the rows name, each with whether it promises privacy."""
        found = [provenance_of(row) for row in self.rows()]
        return {(str(known.get("release", "")), "stamp" not in known) for known in found}

    def sha256(self) -> str:
        """Return the SHA-256, in hex, of texts, labels and other cells in order, in any file format."""
        digest = hashlib.sha256()
        for row in self.rows(typed=self._other_columns()):
            cells: list[object] = [row.text, _in_words(row.label)]
            others = {name: cell for name, cell in sorted(row.cells.items()) if not _are_turns(cell)}
            if own := {name: _as_csv(cell) for name, cell in others.items() if _in_words(cell) is not None}:
                cells.append(own)
            digest.update(json.dumps(cells, default=str).encode() + b"\n")
        return digest.hexdigest()

    def _other_columns(self) -> list[str]:
        """Return the columns without text, label, understudy's additions, and dialogues."""
        path, schema = self.path, self.schema
        _require_end(path)
        if path.suffix == ".parquet":
            types = {each.name: each.type for each in pq.read_schema(path)}
            flat = {name: kind.value_type if t.is_dictionary(kind) else kind for name, kind in types.items()}
            names = [name for name, kind in flat.items() if _is_flat(kind)]
        else:
            names = list(next(iter(_read_file(path, names=(), typed=(), at_once=1, layout=schema.layout)), ()))
        own = {text_name(schema), label_name(schema), TRANSCRIPT, PROVENANCE}
        return [name for name in names if name not in own]


class _Beside:
    """The details of a table's rows, from the file next to it; the table may since have lost or reordered rows."""

    def __init__(self, rows: Iterator[Mapping[str, Any]]) -> None:
        self._rows = rows
        self._passed: dict[str, deque[Mapping[str, Any]]] = {}

    def __call__(self, sha256: str) -> Mapping[str, Any]:
        """Return the details of a row whose text has this hash; empty if there is no such row."""
        if waiting := self._passed.get(sha256):
            return waiting.popleft()
        for row in self._rows:
            if row.get(TEXT_SHA256) == sha256:
                return row
            self._passed.setdefault(str(row.get(TEXT_SHA256)), deque()).append(row)
        return {}


def _read_file(
    path: Path, *, names: Sequence[str], typed: Sequence[str], at_once: int, layout: Layout
) -> Iterator[Mapping[str, Any]]:
    _require_end(path)
    if path.suffix == ".parquet":
        rows = _parquet_rows(path, at_once=at_once, names=names, typed=typed)
    elif path.suffix == ".jsonl":
        rows = _json_rows(path)
    else:
        rows = _csv_rows(path, layout if layout.format == path.suffix[1:] else plain_layout(path.suffix[1:]))
    for count, row in enumerate(rows):
        if count >= MOST_ROWS:
            raise TooLarge
        yield row


def _require_end(path: Path) -> None:
    """Raise ValueError if ``path`` is not a regular file (reading a pipe might never end), or TooLarge if it is too
    large."""
    if not path.is_file():  # reading a pipe would block
        raise ValueError("no file")
    if path.stat().st_size > MOST_BYTES:
        raise TooLarge


def _csv_rows(path: Path, layout: Layout) -> Iterator[Mapping[str, Any]]:
    lift_cell_limit()
    encoding = "utf-8-sig" if layout.encoding == "utf-8" else layout.encoding
    quoted: Any = {"quoting": csv.QUOTE_NONE, "quotechar": None} if layout.quotes == "none" else {}
    with path.open(encoding=encoding, newline="") as lines:
        cells = filter(None, csv.reader(lines, delimiter=layout.delimiter, **quoted))
        names = [unescaped(name) for name in next(cells)]
        for row in cells:
            yield dict(zip(names, map(unescaped, row), strict=True))


def _json_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8-sig", newline="\n") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def _parquet_rows(
    path: Path, *, at_once: int, names: Sequence[str], typed: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    with pq.ParquetFile(path) as plain:
        # The size, by the footer and the headers of all pages, before one is decoded.
        groups = [plain.metadata.row_group(place) for place in range(plain.metadata.num_row_groups)]
        if plain.metadata.num_rows > MOST_ROWS or sum(group.total_byte_size for group in groups) > MOST_BYTES:
            raise TooLarge
        with path.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as data:
            values = count_values(data, plain.metadata, most=MOST_BYTES)
        if values > MOST_ROWS * max(1, plain.metadata.num_columns):
            raise TooLarge
        names, strings = _flat_columns(plain, names, typed)
    size = 0
    with pq.ParquetFile(path, read_dictionary=strings) as file:  # a frequent string is stored once
        for batch in file.iter_batches(at_once, columns=names, use_threads=False):
            size += sum(map(_decoded_size, batch.columns))
            if size > MOST_BYTES:
                raise TooLarge
            columns = {name: batch.column(name) for name in names}
            for row in range(batch.num_rows):  # one by one: a shared string would be copied for each
                yield {name: column[row].as_py() for name, column in columns.items()}


def _flat_columns(file: Any, wanted: Sequence[str], typed: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns to read, and which of them contain strings, before anything in them is decoded.

    Raises:
        ValueError: one is of a type that understudy does not write: in a list or a struct a page of a few bytes is
            gigabytes.
    """
    names = [name for name in dict.fromkeys((*wanted, *typed)) if name in file.schema_arrow.names]
    types = {name: file.schema_arrow.field(name).type for name in names}
    types = {name: kind.value_type if t.is_dictionary(kind) else kind for name, kind in types.items()}
    strings = [name for name, kind in types.items() if t.is_string(kind) or t.is_large_string(kind)]
    others = {*strings, wanted[1], *typed}
    if not all(_is_flat(kind) for kind in types.values()) or set(names) - others:
        raise ValueError("a column has the wrong type")
    paths = [file.metadata.schema.column(place).path for place in range(file.metadata.num_columns)]
    if sum(path.split(".")[0] in names for path in paths) > len(names):  # read together with a column of that name
        raise ValueError("a column occurs twice")
    return names, strings


def _is_flat(kind: Any) -> bool:
    plain = (t.is_string, t.is_large_string, t.is_boolean, t.is_integer, t.is_floating, t.is_decimal)
    return any(test(kind) for test in (*plain, t.is_date, t.is_timestamp))


def _decoded_size(column: Any) -> int:
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary).cast(pa.int64())
    if (pc.max(lengths).as_py() or 0) > _LONGEST:
        raise ValueError("a cell is too long")
    return int(pc.sum(lengths.take(column.indices)).as_py() or 0)


_MOST_SHOWN = 300
MOST_CHARACTERS = 20_000
"""Most characters of one text; an ellipsis replaces the rest, which is not in any chart."""
_MOST_PROVENANCE = 1 << 20


@dataclass(frozen=True)
class SyntheticText:
    """A row: its text, its label in words (None without labels), the phrases that it was written from, its writer, the
    cells of its typed columns (None unless it has all of them), and the condition that it was sampled under."""

    text: str
    label: str | None = None
    phrases: tuple[str, ...] = ()
    model: str = ""
    cells: tuple[int, ...] | None = None
    where: str = ""

    @property
    def bare(self) -> bool:
        """Return whether the text is only its phrases, as written without a language model."""
        return bool(self.phrases) and self.text == ", ".join(self.phrases)


def read_synthetic(shareable: Path, columns: Sequence[Column] = ()) -> tuple[SyntheticText, ...]:
    """Return the rows of the synthetic table in a shareable folder; empty if no text was made yet."""
    found = SyntheticFile.within(shareable)
    if found is None:
        return ()
    most = f"it has more than {MOST_ROWS:,} rows or {MOST_BYTES // 1024**3} GiB of text"
    with found.readable(f"is too large for a report: {most}.", "Make the report of a run with fewer texts."):
        columns = found.as_written(columns)
        return tuple(_text(row, columns) for row in found.rows(typed=[column.name for column in columns]))


def first_rows(shareable: Path, count: int = 5) -> list[list[str]]:
    """Return the column names of the synthetic table in a shareable folder, and its first rows, as written."""
    found = SyntheticFile.within(shareable)
    if found is None:
        return []
    with found.readable():
        rows = list(islice(found.rows(typed=None), count))
        cut = [[writable(cell[:_MOST_SHOWN]) for cell in row] for row in found.table(rows).shown]
    return cut if rows else []


def provenances(shareable: Path, places: Collection[int]) -> dict[int, dict[str, Any]]:
    """Return the provenance of some rows of the synthetic table in a shareable folder, by row index from 0."""
    found = SyntheticFile.within(shareable)
    if found is None or not places:
        return {}
    with found.readable():
        rows = islice(found.rows(), max(places) + 1)
        return {place: provenance_of(row) for place, row in enumerate(rows) if place in places}


def _are_turns(cell: object) -> bool:
    """Return whether a cell is a dialogue, which repeats the transcript and is not read from Parquet."""
    return isinstance(cell, list) or (isinstance(cell, str) and cell.startswith('[{"role": '))


def _in_words(label: Any) -> str | None:
    return None if label in (None, "") else canonical(label)


def _as_csv(cell: object) -> str:
    if isinstance(cell, datetime.date):
        return cell.isoformat()
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def read_evaluation(release: Path, path: Path) -> Evaluation | None:
    """Return the evaluation of the table in ``release``, a run's shareable folder; None if ``path`` is not a file."""
    return _measured(release, path, load_evaluation, "`understudy evaluate` makes it again, free of charge")


def read_released(release: Path) -> ReleasedMetrics | None:
    """Return the metrics in ``release/metrics.json``; None if there is no such file."""
    again = "`understudy evaluate --charge-metrics EPSILON --fresh` makes it again, and charges again"
    return _measured(release, release / "metrics.json", load_released, again)


def _measured(release: Path, path: Path, load: Callable[[Path], T], again: str) -> T | None:
    """Return the content of ``path``, which must be about the table in ``release``."""
    if not path.exists():
        return None
    measured, table = load(path), find_table(release)
    if measured.table_sha256 is None or table is None:
        return measured
    try:
        if measured.table_sha256 == SyntheticFile.at(table).sha256():
            return measured
    except Exception:  # a damaged table fails in many ways
        raise ConfigError(f"The synthetic table {table.name} cannot be read.", "Check its permissions.") from None
    name = "/".join(path.parts[-3:])
    raise ConfigError(
        f"{name} was measured on a synthetic table that is no longer in the folder.",
        f"Put that table back, or remove {name}; {again}.",
    )


def _text(row: Row, columns: Sequence[Column]) -> SyntheticText:
    text, label, known = row.text, row.label, provenance_of(row)
    return SyntheticText(
        writable(text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "\N{HORIZONTAL ELLIPSIS}"),
        None if label in (None, "") else writable(canonical(label)[:MOST_CHARACTERS]),
        tuple(writable(str(phrase)) for phrase in known.get("phrases", ())),
        writable(str(known.get("model") or "")),
        _cells(row.cells, columns),
        writable(str(known.get("where") or "")),
    )


def _cells(row: Mapping[str, Any], columns: Sequence[Column]) -> tuple[int, ...] | None:
    cells = [column.cell(row[column.name]) if column.name in row else None for column in columns]
    return tuple(cell for cell in cells if cell is not None) if cells and None not in cells else None


def provenance_of(row: Row) -> dict[str, Any]:
    """Parse the JSON object in the provenance column of a row ({} if it is empty): how its text was written. Raises
    ValueError if it is not JSON or too long."""
    written = row.provenance
    if not written:
        return {}
    if len(written) > _MOST_PROVENANCE:
        raise ValueError("the provenance of a text is too long")
    return parse_json(written.encode("utf-8"))
