"""The synthetic table: the private table's columns in their order, and a separate table with the provenance of its
rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from understudy.base.errors import ConfigError
from understudy.base.lazy import pa
from understudy.base.untrusted import writable
from understudy.corpus.sources import Reading
from understudy.corpus.write import arrow_table, write_arrow, write_table
from understudy.release import PublicSchema
from understudy.schema.columns import Column
from understudy.schema.formats import formats_of
from understudy.schema.labels import canonical
from understudy.schema.layout import LIKE, TEXT_FORMATS, Layout, options_of, plain_layout
from understudy.text.records import SyntheticRecord

TEXT, LABEL, PROVENANCE, TEXT_SHA256 = "text", "label", "provenance", "text_sha256"
TRANSCRIPT = "transcript"
"""Name of the whole text if its parts are columns of the table."""
Like = str | Mapping[str, Any] | None
Cells = dict[str, list[object]]


@dataclass(frozen=True, repr=False)
class SyntheticTable:
    """The synthetic table, with the additional values of each row.

    Args:
        columns: by name, as in the private table.
        own: additional values for each row: the label if it is not a column, values computed from a dialogue, the whole
            of a text that has parts, the provenance, and the text's hash.
    """

    schema: PublicSchema
    columns: Cells
    own: Cells

    @classmethod
    def of(cls, records: Sequence[SyntheticRecord], schema: PublicSchema) -> SyntheticTable:
        """Return the table of these records. Labels are null if the label set was read from data without any, and
        strings if they have several types or more than 64 bits, which a column cannot contain."""
        names: Sequence[object] = schema.labels
        if len({type(name) for name in names}) > 1 or any(isinstance(name, int) and abs(name) >> 63 for name in names):
            names = [canonical(name) for name in schema.labels]
        labels = [names[record.label] if names else None for record in records]
        cells: Cells = {
            column.name: [None if record.columns is None else record.columns[place] for record in records]
            for place, column in enumerate(schema.columns)
        }
        texts = [record.text for record in records]
        generator = np.random.default_rng(list(hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).digest()))
        for column in schema.columns:
            if column.made_up:
                cells[column.name] = list(column.identifiers(len(records), generator))
        if schema.owner is not None:
            cells[schema.owner.name] = _owners(schema.owner, len(records), schema.records_per_owner, generator)
        origins = [json.dumps(dict(record.provenance), ensure_ascii=False) for record in records]
        return cls.arranged(schema, texts, labels, origins, cells)

    @classmethod
    def arranged(
        cls,
        schema: PublicSchema,
        texts: Sequence[str],
        labels: Sequence[object],
        origins: Sequence[object],
        cells: Mapping[str, Sequence[object]],
    ) -> SyntheticTable:
        """Return the table that has these texts, labels, provenances and other cells."""
        columns: Cells = {}
        own: Cells = {TEXT_SHA256: [text_sha256(text) for text in texts]}
        if schema.form:
            parts = [schema.form.cells(schema.text, writable(text)) for text in texts]
            columns = {name: [row[name] for row in parts] for name in schema.form.columns(schema.text)}
            if schema.form.fields:
                own[TEXT_SHA256] = [text_sha256(*row.values()) for row in parts]
            own[TRANSCRIPT] = list(texts)
        else:
            columns[text_name(schema)] = list(texts)
        if schema.label is not None:
            (own if schema.own_label is None else columns)[label_name(schema)] = list(labels)
        told = {column.name for column in schema.told}
        for name, values in cells.items():
            (own if name in told else columns)[name] = list(values)
        own[PROVENANCE] = list(origins)
        names = schema.layout.in_order(columns)
        if schema.record_columns:
            names.sort(key=TEXT.__ne__)  # the private table has the text's parts
        return cls(schema, {name: columns[name] for name in names}, own)

    def with_own(self) -> SyntheticTable:
        """Return the table with the additional values (such as the provenance) as further columns."""
        own = {f"understudy_{name}" if name in self.columns else name: values for name, values in self.own.items()}
        own.pop(TEXT_SHA256)
        return replace(self, columns=self.columns | own)

    def to_arrow(self) -> Any:
        """Return it as a ``pyarrow.Table`` with the private table's types, and those of pandas for pandas."""
        layout = self.schema.layout
        domains = {column.name: column for column in self.schema.columns}
        columns = _in_words(self.columns, {name: each for name, each in domains.items() if layout.is_text(name)})
        types = {name: kind for name, kind in types_of(self.schema).items() if not layout.is_text(name)}
        table = arrow_table(columns, types)
        for place, name in enumerate(columns):
            kind = layout.arrow_type(name)
            values = self.schema.labels if name == self.schema.own_label else ()
            cells = _as_type(table.column(place), kind, domains[name].values if name in domains else values)
            table = table.set_column(place, name, cells)
        return table.replace_schema_metadata({"pandas": json.dumps(_for_pandas(table, layout))})

    def write(
        self,
        path: str | PathLike[str],
        *,
        keep_formulas: bool = False,
        like: Like = None,
        provenance: bool = False,
        stamped: bool = False,
    ) -> None:
        """Write it to a file that ends in ``.parquet``, ``.csv``, ``.tsv`` or ``.jsonl``.

        Args:
            like: how text files are written: ``source``, like the private table; ``plain``, in UTF-8 with commas, ISO
                dates and decimal points; or the options that read such a file. None: like the private table if that
                is a file of the same kind, else plain.
            provenance: add the provenance of each row as further columns.
            stamped: whether the texts are NOT PRIVATE: the file says so in its name or, by the provenance, in each row.
        """
        if provenance or (stamped and "not-private" not in Path(path).name.lower()):
            self.with_own().write(path, keep_formulas=keep_formulas, like=like)
            return
        kind = Path(path).suffix.lower().lstrip(".").replace("ndjson", "jsonl")
        if kind != "parquet":
            layout, domains = self._notation(kind, like)
            columns = _in_words(self.columns, domains)
            plain = [name for name, each in domains.items() if each.kind not in ("category", "identifier")]
            write_table(path, columns, keep_formulas=keep_formulas, layout=layout, no_formulas=plain)
        else:
            write_arrow(path, self.to_arrow())

    @property
    def shown(self) -> list[list[str]]:
        """Return the names of the columns, and the rows as the private table would write them."""
        like = "source" if self.schema.layout.format in TEXT_FORMATS else "plain"
        columns = _in_words(self.columns, self._notation(self.schema.layout.format, like)[1])
        cells = [["" if value is None else words(value) for value in values] for values in columns.values()]
        return [list(columns), *map(list, zip(*cells, strict=True))]

    def _notation(self, kind: str, like: Like) -> tuple[Layout, dict[str, Column]]:
        """Return how a text file of this kind is written, and the columns with the format of their values."""
        source, columns = self.schema.layout, self.schema.columns
        if like is None:
            csv = ("csv", "tsv")
            same = kind == source.format or (kind in csv and source.format in csv)
            like = "source" if same else "plain"
        options: dict[str, Any] = {}
        if like == "source":
            options = source.reading if source.format in TEXT_FORMATS else {}
        elif like == "plain":
            columns = tuple(column.plain for column in columns)
        else:
            options = options_of(like)
            formats = formats_of(options.pop("formats", None))
            columns = tuple(Column.from_json(each.to_json() | formats.get(each.kind, {})) for each in columns)
        options = {name: value for name, value in options.items() if name != "format" and value is not None}
        Reading(**options)  # a ConfigError if nobody could read it
        try:
            return replace(plain_layout(kind), **options), {column.name: column for column in columns}
        except ValueError:
            raise ConfigError("The value of `like` is invalid.", LIKE) from None


def words(value: object) -> str:
    """Return a cell as CSV would write it."""
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return canonical(value) if isinstance(value, (str, int, float)) else str(value)


def text_sha256(*parts: Any) -> str:
    """Return the start of the hash of a text, or of the columns that make it, which its provenance refers to."""
    return hashlib.sha256("\0".join(writable(str(part or "")) for part in parts).encode()).hexdigest()[:16]


def text_name(schema: PublicSchema) -> str:
    """Return the name of the text column; ``text`` if the texts are made of several columns."""
    return TEXT if schema.record_columns else schema.text


def label_name(schema: PublicSchema) -> str:
    """Return the name of the label column: that of the private table, or ``label``."""
    return LABEL if schema.label is None or schema.crossed else schema.label


def types_of(schema: PublicSchema) -> dict[str, Any]:
    """Return Arrow's types of the typed columns, and of the columns that a text with parts is made of."""
    return {
        **dict.fromkeys(schema.form.fields, pa.string()),
        **({schema.text: schema.form.arrow_type()} if schema.form.roles else {}),
        **{column.name: column.arrow_type() for column in schema.columns},
    }


def _in_words(columns: Mapping[str, list[object]], domains: Mapping[str, Column]) -> Cells:
    """Return the columns with the values of ``domains`` as their table writes them."""
    return {
        name: [domains[name].written(value) for value in values] if name in domains else values
        for name, values in columns.items()
    }


def _owners(owner: Column, count: int, most: int, generator: np.random.Generator) -> list[object]:
    """Return an invented owner for each row. The number of records per owner is uniform from 1 to the contribution
    bound, a public distribution; the private one is not read."""
    sizes: list[int] = []
    while sum(sizes) < count:
        sizes.append(int(generator.integers(1, most + 1)))
    names = owner.identifiers(len(sizes), generator) if owner.format else [str(n + 1) for n in range(len(sizes))]
    each = [name for name, size in zip(names, sizes, strict=True) for _ in range(size)][:count]
    return [each[place] for place in generator.permutation(count)]


def _as_type(cells: Any, kind: Any, values: Sequence[object]) -> Any:
    """Return a column in the private table's type; unchanged if there is none, or it cannot represent the values.

    Args:
        values: of a category; all are in its dictionary.
    """
    if kind is None or cells.type == kind:
        return cells
    try:
        if pa.types.is_dictionary(kind):
            of = cells.type if pa.types.is_null(kind.value_type) else kind.value_type
            index = pa.array(values or sorted({each for each in cells.to_pylist() if each is not None}), of)
            places = pa.compute.index_in(cells.cast(of), index).combine_chunks()
            return pa.DictionaryArray.from_arrays(places.cast(kind.index_type), index, ordered=kind.ordered)
        if pa.types.is_decimal(kind) and pa.types.is_floating(cells.type):
            cells = pa.compute.round(cells, kind.scale).cast(pa.string())
        return cells.cast(kind)
    except (pa.ArrowException, TypeError, OverflowError):
        return cells


def _for_pandas(table: Any, layout: Layout) -> dict[str, Any]:
    """Return the metadata of a table for pandas: the dtypes of the private one; for integers or booleans that cannot be
    missing in these, the dtypes in which they can."""
    columns = []
    for field, cells in zip(table.schema, table.columns, strict=True):
        dtype = layout.dtypes.get(field.name, "")
        if cells.null_count and (pa.types.is_integer(field.type) or pa.types.is_boolean(field.type)):
            number = str(field.type).replace("u", "U").replace("int", "Int")
            if dtype in ("", str(field.type)):
                dtype = "boolean" if pa.types.is_boolean(field.type) else number
        if dtype:
            columns.append({"name": field.name, "field_name": field.name, "pandas_type": "", "numpy_type": dtype})
    known = [{**each, "metadata": None} for each in columns]
    return {"index_columns": [], "column_indexes": [], "columns": known, "pandas_version": "2.0.0"}
