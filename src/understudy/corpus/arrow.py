"""Read Parquet files and Arrow tables row by row, with the conventions of :mod:`understudy.corpus.readers`."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

from understudy.base.errors import ConfigError, CorpusError
from understudy.base.lazy import arrow_types as t
from understudy.base.lazy import pa, pc, pq
from understudy.base.parquet import dictionary_bytes
from understudy.corpus.bad_rows import BadRow
from understudy.corpus.readers import Row, damaged, header_error
from understudy.corpus.schema import Schema
from understudy.corpus.sources import REMOTE_BUFFER_BYTES, DataFile
from understudy.schema.labels import LabelType, spelled_type
from understudy.schema.layout import Layout, typed_layout
from understudy.schema.transcript import CONTENT, ROLE

BATCH_ROWS = 256
_INFERRED = b"understudy: types that values tell"
"""Marks a table of lists, whose types nobody declared."""
BATCH_BYTES = 1 << 28
"""Bytes of a column in a batch, about."""
READ_BUFFER_BYTES = 1 << 20
_HEADER_BYTES = 256


def parquet_cells(
    file: DataFile, columns: Sequence[str], *, rows: range | None = None
) -> Iterator[tuple[int, Sequence[object]]]:
    """Yield the rows of a Parquet file from row 1, one batch in memory at a time; a BadRow for an unreadable cell.

    ``rows``: only these, counted from 0; in steps of 1.
    """
    buffer = READ_BUFFER_BYTES if file.store is None else REMOTE_BUFFER_BYTES
    # pre_buffer would keep all columns that are read, of the whole file, in memory
    with pq.ParquetFile(file.path, filesystem=file.file_system, buffer_size=buffer, pre_buffer=False) as parquet:
        at_once, first, groups = _rows_at_once(file, parquet.metadata, columns), 0, None
        if rows is not None:
            first, groups = _groups_of(parquet.metadata, rows)
        batches = parquet.iter_batches(at_once, row_groups=groups, columns=list(columns))
        yield from _cells(batches, columns, first=first, rows=rows)


def _groups_of(metadata: Any, rows: range) -> tuple[int, list[int]]:
    """Return the row groups that contain ``rows``, and the number of their first row."""
    groups: list[int] = []
    begin = first = 0
    for group in range(metadata.num_row_groups):
        end = begin + metadata.row_group(group).num_rows
        if begin < rows.stop and rows.start < end:
            first = begin if not groups else first
            groups.append(group)
        begin = end
    return first, groups


def count_rows(file: DataFile) -> int:
    """Return how many rows the footer of a Parquet file declares. Private."""
    return int(pq.read_metadata(file.path, filesystem=file.file_system).num_rows)


def _rows_at_once(file: DataFile, metadata: Any, columns: Sequence[str]) -> int:
    """Return how many rows to decode together: a value that is once in a dictionary may occur in each of them."""
    largest = 1
    within = tuple(f"{column}." for column in columns)
    with file.open_stored() as stream:
        for place in range(metadata.num_row_groups):
            group = metadata.row_group(place)
            for column in range(metadata.num_columns):
                chunk = group.column(column)
                if not f"{chunk.path_in_schema}.".startswith(within):
                    continue
                if chunk.physical_type.endswith("BYTE_ARRAY") and group.num_rows:
                    average = chunk.total_uncompressed_size // group.num_rows
                    values = max(1, chunk.num_values // group.num_rows)  # in a row: more than one in lists
                    largest = max(largest, average, _longest_value(stream, chunk) * values)
    return max(1, min(BATCH_ROWS, BATCH_BYTES // largest))


def _longest_value(stream: IO[bytes], chunk: Any) -> int:
    """Return an upper bound on the bytes of a value that may be decoded more often than it is stored."""
    if "DELTA_BYTE_ARRAY" in chunk.encodings:  # the beginning of the value before
        return int(chunk.total_uncompressed_size)
    stream.seek(chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset)
    size = dictionary_bytes(stream.read(_HEADER_BYTES))
    return size if size is not None else int(chunk.total_uncompressed_size) if chunk.has_dictionary_page else 0


def table_cells(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[int, Sequence[object]]]:
    """Yield the rows of a table in memory, as :func:`parquet_cells` does for a file."""
    yield from _cells(table.select(list(columns)).to_batches(BATCH_ROWS), columns)


def whole(rows: Iterator[tuple[int, Sequence[object]]]) -> Iterator[Row]:
    """Yield the rows; a row that contains a bad cell is replaced by its BadRow."""
    for number, cells in rows:
        yield number, next((cell for cell in cells if isinstance(cell, BadRow)), cells)


def parquet_schema(file: DataFile) -> pa.Schema:
    """Return the Arrow schema of a Parquet file; CorpusError if it cannot be read."""
    try:
        schema = pq.read_schema(file.path, filesystem=file.file_system)
        if schema.names is not None:  # reading a name that is not UTF-8 fails here
            return schema
    except (OSError, UnicodeError, pa.ArrowException):
        pass
    raise damaged(file.shown)


def with_strings(types: pa.Schema, columns: Iterable[str]) -> pa.Schema:
    """Return the schema with ``columns`` as strings, whatever types the file has under these names."""
    columns = list(columns)
    kept = [field for field in types if field.name not in columns]
    return pa.schema([*kept, *(pa.field(name, pa.string()) for name in columns)])


class ColumnTypes(NamedTuple):
    """The Arrow types of the label and owner columns; None if there is no such column, or each cell has its own type.

    Decimals of owners keep their width: one number may be two different ones in single and double precision.
    """

    label: LabelType | None
    owner: str | None


def check_types(types: pa.Schema, schema: Schema, shown: str, dtypes: Mapping[str, str]) -> ColumnTypes:
    """Check the columns' names and types against ``schema``; return those of the label and the owner column.

    Args:
        dtypes: those of pandas. Where it chose the label's by the values, the declared labels tell its type.
    """
    error = header_error(types.names, schema.columns, shown)
    if error is not None:
        raise error
    kinds = {column: _kind(types.field(column).type) for column in schema.columns}
    dialogues = schema.text if schema.form.roles and kinds.get(schema.text or "") != "string" else None
    if dialogues is not None and not is_dialogue(types.field(dialogues).type):
        raise CorpusError(
            f"The column {dialogues!r} does not contain dialogues.",
            "Write it as lists of objects with a role and a content, both strings, or as their JSON.",
        )
    texts = () if schema.form.roles or schema.record_columns else schema.text_columns
    for column in texts:
        if kinds[column] != "string":
            turns = is_dialogue(types.field(column).type) and not schema.form
            raise CorpusError(
                f"The text column {column!r} is not of a string type.",
                "Declare who speaks in its dialogues with --roles A,B." if turns else "Name the column of the texts.",
            )
    label = None if schema.crossed else schema.label
    for name in (label, schema.owner):
        if name is not None and kinds[name] is None:
            raise CorpusError(
                f"The type of the column {name!r} cannot be used for labels or owners.",
                "Convert it to strings, whole numbers, decimals or booleans.",
            )
    owner: str | None = None if schema.owner is None else kinds[schema.owner]
    if schema.owner is not None and owner == "float":
        owner = str(_plain(types.field(schema.owner).type))
    if label is None:
        return ColumnTypes("string" if schema.crossed else None, owner)
    chosen = schema.labels and _BY_VALUES.fullmatch(dtypes.get(label, "").replace("category", "object"))
    return ColumnTypes(spelled_type(schema.labels) if chosen else kinds[label], owner)


def is_dialogue(arrow_type: Any) -> bool:
    """Return whether a type is that of lists of objects that have a role and a content."""
    if not (t.is_list(arrow_type) or t.is_large_list(arrow_type)):
        return False
    turn = arrow_type.value_type
    if t.is_null(turn):  # an empty table's
        return True
    return t.is_struct(turn) and all(
        turn.get_field_index(name) >= 0 and _kind(turn.field(name).type) == "string" for name in (ROLE, CONTENT)
    )


def _plain(arrow_type: Any) -> Any:
    return arrow_type.value_type if t.is_dictionary(arrow_type) else arrow_type


def _kind(arrow_type: Any) -> LabelType | None:
    arrow_type = _plain(arrow_type)
    is_string = (t.is_string, t.is_large_string, t.is_string_view, t.is_null)  # null: an empty table's strings
    if any(test(arrow_type) for test in is_string):
        return "string"
    if t.is_boolean(arrow_type):
        return "bool"
    if t.is_integer(arrow_type):
        return "int"
    return "float" if t.is_floating(arrow_type) or t.is_decimal(arrow_type) else None


def _cells(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str], *, first: int = 0, rows: range | None = None
) -> Iterator[tuple[int, Sequence[object]]]:
    """Yield the cells of ``rows``, or of all, in batches; the first row of the first one has the number ``first``."""
    for batch in batches:
        end = first + batch.num_rows
        if rows is not None:
            if first >= rows.stop:
                return
            begin = min(max(first, rows.start), end)
            batch = batch.slice(begin - first, min(end, rows.stop) - begin)
            first = begin
        lists = [_values(batch.column(column)) for column in columns]
        yield from enumerate(zip(*lists, strict=True), first + 1)
        first = end


def _values(column: Any) -> list[object]:
    """Return a column as Python values, with a BadRow in place of those that Python cannot represent."""
    if hasattr(column, "dictionary_decode"):
        column = column.dictionary_decode()
    try:
        values: list[object] = column.to_pylist()
    except MemoryError:  # Arrow's own is one of its exceptions, too
        raise
    except _unfit():
        values = [_value(scalar) for scalar in column]
    return values


def _value(scalar: Any) -> object:
    try:
        return scalar.as_py()
    except MemoryError:
        raise
    except UnicodeDecodeError:
        return BadRow.ENCODING
    except _unfit():
        return BadRow.VALUE_TYPE


def _unfit() -> tuple[type[Exception], ...]:
    """Return Arrow's exceptions for strings that are not UTF-8, dates beyond the year 9999, nanoseconds without pandas,
    and time zones that this machine does not know.
    """
    return ValueError, OverflowError, LookupError, OSError, pa.ArrowException


@runtime_checkable
class ArrowStream(Protocol):
    """An object that can be read as an Arrow stream: ``pandas.DataFrame``, ``polars.DataFrame``, a DuckDB relation,
    ``pyarrow.Table``, ``pyarrow.RecordBatchReader`` and others.
    """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class Dataset(Protocol):
    """A ``datasets.Dataset``: one split, with its features."""

    @property
    def features(self) -> Any: ...

    def __len__(self) -> int: ...

    def with_format(self, type: str | None = None) -> Any: ...  # noqa: A002


Frame = ArrowStream | Dataset


def is_frame(source: object) -> TypeGuard[Frame]:
    """Return whether ``source`` is a table of one of these libraries."""
    return _is_dataset(source) or (isinstance(source, ArrowStream) and not isinstance(source, type))


def frame_layout(source: Frame, table: pa.Table, dates: Collection[str] = ()) -> Layout:
    """Return the layout of a frame, by its declared types: types that depend on its values are left out.

    Args:
        dates: the columns that are declared as dates or times.
    """
    frame: Any = source
    names, known = column_names(table.schema), table.schema
    if _INFERRED in (getattr(getattr(source, "schema", None), "metadata", None) or {}):
        known = pa.schema([])
    if _is_dataset(source):
        known = pa.schema([each for each in known if class_names(source, each.name) is None])
    if _is_pandas(source):
        names = [str(name) for name in (*frame.columns, *frame.index.names) if name is not None]  # mixed ones too
    dtypes, known = stated(frame_dtypes(source), known, dates)
    return replace(typed_layout(known, dtypes, format=""), columns=tuple(dict.fromkeys(names)))


def _is_pandas(source: object) -> bool:
    return hasattr(source, "dtypes") and hasattr(source, "iloc")


def frame_dtypes(source: Any) -> dict[str, str]:
    """Return the dtypes of a frame of pandas, or of the frame that a table of Arrow was made of; empty for others."""
    if _is_pandas(source):
        return {str(name): str(kind) for name, kind in source.dtypes.items()}
    return pandas_dtypes(getattr(source, "schema", None))


def column_names(types: pa.Schema) -> list[str]:
    """Return the names of columns, without that of an unnamed pandas index, which exists only if rows were removed."""
    return [name for name in types.names if not re.fullmatch("__index_level_[0-9]+__", name)]


_BY_VALUES = re.compile(r"u?int64|float64|bool|object|str|datetime64\[.*")
"""Dtypes that pandas chooses by the values: one missing value makes floats of integers and objects of booleans, one
that is not a date makes strings of dates, and one that is larger or finer than the others another width or unit."""


def stated(dtypes: Mapping[str, str], types: pa.Schema, dates: Collection[str]) -> tuple[dict[str, str], pa.Schema]:
    """Return the dtypes and Arrow types of a pandas frame that do not depend on its values: no category names, and one
    type for all ``dates``."""
    chosen = {name for name, kind in dtypes.items() if _BY_VALUES.fullmatch(kind)}
    kept = {name: kind for name, kind in dtypes.items() if name not in chosen}
    known = {each.name: each.type for each in types if each.name in column_names(types)}
    for name in known.keys() & dtypes.keys():
        if dtypes[name] == "category":
            known[name] = pa.dictionary(pa.int32(), pa.null(), ordered=getattr(known[name], "ordered", False))
        elif name in chosen and name in dates:
            known[name] = pa.timestamp("us")
        elif name in chosen:
            del known[name]
    return kept, pa.schema(list(known.items()))


def pandas_dtypes(types: Any) -> dict[str, str]:
    """Return pandas' types of the columns of a Parquet file that it wrote."""
    try:
        columns = json.loads((types.metadata or {}).get(b"pandas", b"{}")).get("columns", ())
        return {each["name"]: _dtype_of(each) for each in columns if isinstance(each["name"], str)}
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}


def _dtype_of(column: Mapping[str, Any]) -> str:
    return "category" if column["pandas_type"] == "categorical" else str(column["numpy_type"])


def read_frame(source: Frame, columns: Sequence[str]) -> pa.Table:
    """Return the table in Arrow's memory; integers of a ``ClassLabel`` become their names, -1 becomes null.

    ``columns`` are required: others that Arrow cannot represent are left out.
    """
    if _is_dataset(source):
        held: pa.Table = source.with_format("arrow")[:]
        for place, name in enumerate(held.schema.names):
            names = class_names(source, name)
            if names is not None and pa.types.is_integer(held.schema.field(place).type):
                held = held.set_column(place, name, _named(held.column(place), names))
        return _with_plain_strings(held)
    assert isinstance(source, ArrowStream)
    table = _converted(source)
    if table is None:
        table = _column_by_column(source, columns)
    if table is None:
        raise CorpusError(
            f"The object of the type {type(source).__name__} cannot be read as an Arrow table.",
            "Give a whole table, whose columns have different names and values of one type each.",
        )
    if hasattr(source, "read_next_batch") and not table.num_rows:
        raise CorpusError(
            "The reader has no rows, or was read before: a reader can be read only once.",
            "Open the corpus once and keep it, or read the batches into a pyarrow.Table.",
        )
    return _with_plain_strings(_unshared(table))


def class_names(source: object, column: str) -> Sequence[str] | None:
    """Return the names of a Dataset's ``ClassLabel`` column; None for any other column or source."""
    names = getattr(source.features.get(column), "names", None) if _is_dataset(source) else None
    return names if isinstance(names, Sequence) else None


def not_a_table_error(source: object) -> ConfigError:
    """Return the error for an object that cannot be read as a table."""
    kind = type(source).__name__
    if isinstance(source, Iterator):
        cure = "Give list(...) of it, since it can be read only once."
    elif isinstance(source, Mapping):
        cure = "Give one of the tables in it, such as dataset['train'] of a DatasetDict; or a list with a dict per row."
    elif hasattr(source, "collect"):
        cure = "Give the result of its collect()."
    elif hasattr(source, "features"):
        cure = "Load it without streaming, or write it to a Parquet file, and give the file's path."
    else:
        cure = "Give a file, a frame of pandas, Polars, DuckDB or Arrow, a Dataset, or a list of texts or of dicts."
    return ConfigError(f"No table can be read from an object of the type {kind}.", cure)


def columns_as_table(columns: Mapping[str, object]) -> pa.Table:
    """Return a table from columns by name; CorpusError if they are not columns."""
    found = _converted(dict(columns))
    if found is None:
        raise CorpusError(
            "The mapping does not give a list of values for each column.",
            "Give lists of one length, each with values of one type; or a list with a dict per row.",
        )
    return found.replace_schema_metadata({_INFERRED: b""})


def _is_dataset(source: object) -> TypeGuard[Dataset]:
    wanted = ("features", "with_format", "__len__", "__getitem__")
    return not isinstance(source, Mapping | type) and all(hasattr(source, name) for name in wanted)


def _named(numbers: pa.ChunkedArray, names: Sequence[str]) -> pa.Array:
    whole = numbers.combine_chunks()
    known = pc.and_(pc.greater_equal(whole, 0), pc.less(whole, len(names)))
    return pa.DictionaryArray.from_arrays(pc.if_else(known, whole, None), pa.array(names, pa.string()))


def _converted(source: ArrowStream | dict[str, object]) -> pa.Table | None:
    """Convert it; return None if that fails, as Arrow's exceptions quote cells."""
    try:
        return pa.table(source)
    except MemoryError:
        raise
    except Exception:  # of the library that the table is of, too
        return None


def _column_by_column(source: ArrowStream, columns: Sequence[str]) -> pa.Table | None:
    """Return the columns of a data frame that Arrow can represent, including ``columns`` (else CorpusError); None if it
    is not a data frame.
    """
    names = list(getattr(source, "columns", ()))
    if not names or len(set(names)) < len(names) or not hasattr(source, "__getitem__"):
        return None
    found = {name: _converted(source[[name]]) for name in names}
    unfit = next((name for name in columns if name in found and found[name] is None), None)
    if unfit is not None:
        raise CorpusError(
            f"The column {unfit!r} holds values of several types, or of one that Arrow does not have.",
            "Convert it to one type, such as strings.",
        )
    return pa.table({str(name): table.column(str(name)) for name, table in found.items() if table is not None})


def _unshared(table: pa.Table) -> pa.Table:
    """Copy numeric, datetime and categorical buffers, because pandas exports memory that it may still write to."""
    for place, field in enumerate(table.schema):
        if t.is_primitive(field.type) or t.is_dictionary(field.type):
            copies = [pa.concat_arrays([chunk, chunk.slice(0, 0)]) for chunk in table.column(place).chunks]
            table = table.set_column(place, field, pa.chunked_array(copies, field.type))
    return table


def _with_plain_strings(table: pa.Table) -> pa.Table:
    """Convert Polars' categories, whose strings are views, to ones that Arrow can decode."""
    types = [
        pa.dictionary(field.type.index_type, pa.large_string())
        if pa.types.is_dictionary(field.type) and pa.types.is_string_view(field.type.value_type)
        else field.type
        for field in table.schema
    ]
    return table.cast(pa.schema(list(zip(table.schema.names, types, strict=True))))
