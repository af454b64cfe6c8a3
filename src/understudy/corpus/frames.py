"""Tables of other libraries, by the protocols they share: none of them is imported here.

pandas, Polars, DuckDB and pyarrow hand a table over as an Arrow stream; a Dataset of Hugging Face holds Arrow. Each is
read once, when the corpus is opened: what becomes of it later does not matter, and a stream that can be read only once
is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

from understudy.base.errors import ConfigError, CorpusError

if TYPE_CHECKING:
    import pyarrow as pa


@runtime_checkable
class ArrowStream(Protocol):
    """What can be read as an Arrow stream: ``pandas.DataFrame``, ``polars.DataFrame``, a DuckDB relation,
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
    """Whether ``source`` is a table of one of these libraries."""
    return _is_dataset(source) or (isinstance(source, ArrowStream) and not isinstance(source, type))


def read_frame(source: Frame, columns: Sequence[str]) -> pa.Table:
    """The table in Arrow's memory; integers of a ``ClassLabel`` are the names that they stand for, -1 is null.

    Args:
        columns: those that are needed. Others that Arrow cannot hold are left out.

    Raises:
        CorpusError: a column that is needed holds what no Arrow column can, or a reader has nothing left.
    """
    if _is_dataset(source):
        return _with_class_names(source)
    assert isinstance(source, ArrowStream)
    table = _converted(source)
    if table is None:
        table = _column_by_column(source, columns)
    if table is None:
        raise CorpusError(
            f"The object of the type {type(source).__name__} cannot be read as an Arrow table.",
            "Give a whole table, each of whose columns has a name of its own and values of one type.",
        )
    if hasattr(source, "read_next_batch") and not table.num_rows:
        raise CorpusError(
            "The reader has no row, or none left: a reader can be read only once.",
            "Open the corpus once and keep it, or read the batches into a pyarrow.Table.",
        )
    return _with_plain_strings(_unshared(table))


def class_names(source: object, column: str) -> Sequence[str] | None:
    """The names of a Dataset's ``ClassLabel`` column; None for any other column or source."""
    names = getattr(source.features.get(column), "names", None) if _is_dataset(source) else None
    return names if isinstance(names, Sequence) else None


def no_frame(source: object) -> ConfigError:
    """The error for what is no table that can be read."""
    kind = type(source).__name__
    if isinstance(source, Mapping):
        cure = "Give one of the tables in it, such as dataset['train'] of a DatasetDict; or a list with a dict per row."
    elif hasattr(source, "collect"):
        cure = "Give what its collect() returns."
    elif hasattr(source, "features"):
        cure = "Load it without streaming, or write it to a Parquet file, and give the file's path."
    else:
        cure = "Give a file, a frame of pandas, Polars, DuckDB or Arrow, a Dataset, or a list with a dict per row."
    return ConfigError(f"No table can be read from an object of the type {kind}.", cure)


def _is_dataset(source: object) -> TypeGuard[Dataset]:
    wanted = ("features", "with_format", "__len__", "__getitem__")
    return not isinstance(source, Mapping | type) and all(hasattr(source, name) for name in wanted)


def _with_class_names(dataset: Dataset) -> pa.Table:
    import pyarrow as pa

    table: pa.Table = dataset.with_format("arrow")[:]
    for place, name in enumerate(table.schema.names):
        names = class_names(dataset, name)
        if names is not None and pa.types.is_integer(table.schema.field(place).type):
            table = table.set_column(place, name, _named(table.column(place), names))
    return _with_plain_strings(table)


def _named(numbers: pa.ChunkedArray, names: Sequence[str]) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = numbers.combine_chunks()
    known = pc.and_(pc.greater_equal(whole, 0), pc.less(whole, len(names)))
    return pa.DictionaryArray.from_arrays(pc.if_else(known, whole, None), pa.array(names, pa.string()))


def _converted(source: ArrowStream) -> pa.Table | None:
    """The table; None where it cannot be converted. What Arrow raises holds cells, and is not passed on."""
    import pyarrow as pa

    try:
        return pa.table(source)
    except MemoryError:
        raise
    except Exception:  # of the library that the table is of, too
        return None


def _column_by_column(source: ArrowStream, columns: Sequence[str]) -> pa.Table | None:
    """The columns of a data frame that Arrow can hold; None where it is no data frame.

    Raises CorpusError if one of ``columns`` is none of them.
    """
    import pyarrow as pa

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
    """With numbers, times and codes of categories in memory of its own: pandas hands out that which it writes to."""
    import pyarrow as pa
    import pyarrow.types as t

    for place, field in enumerate(table.schema):
        if t.is_primitive(field.type) or t.is_dictionary(field.type):
            copies = [pa.concat_arrays([chunk, chunk.slice(0, 0)]) for chunk in table.column(place).chunks]
            table = table.set_column(place, field, pa.chunked_array(copies, field.type))
    return table


def _with_plain_strings(table: pa.Table) -> pa.Table:
    """Polars' categories, whose strings are views, as those that Arrow can decode."""
    import pyarrow as pa

    types = [
        pa.dictionary(field.type.index_type, pa.large_string())
        if pa.types.is_dictionary(field.type) and pa.types.is_string_view(field.type.value_type)
        else field.type
        for field in table.schema
    ]
    return table.cast(pa.schema(list(zip(table.schema.names, types, strict=True))))
