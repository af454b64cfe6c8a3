"""Arrays, terms and lists of strings as members of a Release file, and back. What is read is not trusted."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.lazy import pa, pc
from understudy.base.parquet import count_values

STRING_BYTES = 64
"""What a string takes in memory beyond its characters; it counts toward the bound on what a Release unpacks to."""
_HEADER_BYTES = 1 << 20


def arrays_to_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    from safetensors.numpy import save

    return bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def arrays_from_bytes(data: bytearray) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file; ValueError if it is damaged or holds types that NumPy lacks."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if not 8 <= 8 + int.from_bytes(data[:8], "little") <= min(len(data), _HEADER_BYTES):
        raise ValueError("the arrays' header is too long")
    try:
        return dict(load(bytes(data)))
    except SafetensorError as error:
        raise ValueError(str(error)) from None


def terms_to_bytes(terms: Sequence[str]) -> bytes:
    return _table_to_bytes({"term": pa.array(list(terms), pa.string())})


def terms_from_bytes(data: bytearray, *, most: int) -> list[str]:
    """The terms of a table, of at most ``most`` bytes, STRING_BYTES each included; else a ValueError."""
    table = _read_table(data, {"term": pa.string()}, ["term"], most=most)
    terms: list[str] = _checked(table.column("term"), most).to_pylist()
    return terms


def strings_to_bytes(strings: Mapping[str, Sequence[str]]) -> bytes:
    """A row per list, of any length."""
    values = [list(values) for values in strings.values()]
    return _table_to_bytes(
        {"name": pa.array(list(strings), pa.string()), "values": pa.array(values, pa.list_(pa.string()))}
    )


def strings_from_bytes(data: bytearray, *, most: int) -> dict[str, list[str]]:
    columns = {"name": pa.string(), "values": pa.list_(pa.string())}
    table = _read_table(data, columns, ["name", "values.list.element"], most=most)
    names: list[str] = _checked(table.column("name"), most).to_pylist()
    values = table.column("values")
    if values.null_count or len(set(names)) != len(names):
        raise ValueError("the lists of strings have no names of their own")
    _checked(
        pa.chunked_array([chunk.flatten() for chunk in values.chunks], pa.dictionary(pa.int32(), pa.string())), most
    )
    return dict(zip(names, values.to_pylist(), strict=True))


def _table_to_bytes(columns: Mapping[str, Any]) -> bytes:
    import pyarrow.parquet

    sink = io.BytesIO()
    pyarrow.parquet.write_table(pa.table(dict(columns)), sink)
    return sink.getvalue()


def _read_table(data: bytearray, columns: Mapping[str, Any], leaves: Sequence[str], *, most: int) -> Any:
    """The table with its strings as indices into dictionaries: a string that stands there often is there once."""
    import pyarrow.parquet

    plain = pyarrow.parquet.ParquetFile(pa.BufferReader(data))
    if not plain.schema_arrow.equals(pa.schema(list(columns.items()))):
        raise ValueError("the table has other columns")
    if count_values(data, plain.metadata, most=most) * STRING_BYTES > most:
        raise ValueError("the table holds too many strings")
    # From a buffer and without Arrow's threads: a process as short as `inspect` could end before they did, and abort.
    file = pyarrow.parquet.ParquetFile(pa.BufferReader(data), read_dictionary=list(leaves))
    return file.read(use_threads=False)


def _checked(column: Any, most: int) -> Any:
    """``column`` of dictionary-encoded strings, none missing, that take no more than ``most`` bytes once decoded."""
    size = 0
    for chunk in column.chunks:
        if chunk.null_count or chunk.dictionary.null_count:
            raise ValueError("a string is missing")
        lengths = pc.binary_length(chunk.dictionary).to_numpy(zero_copy_only=False).astype(np.int64)
        size += int(lengths[chunk.indices.to_numpy(zero_copy_only=False)].sum()) + STRING_BYTES * len(chunk)
    if size > most:
        raise ValueError("the strings are too long")
    return column
