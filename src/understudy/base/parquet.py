"""Read the page headers of a Parquet file, to find a column's unpacked size before any page is decoded.

A page of a few bytes may declare two thousand million equal values, and the footer need not say so. In
an untrusted file (:func:`count_values`) only the features of understudy's writer are accepted: plain and dictionary
encodings, uncompressed or Snappy (which compresses at most 20 to 1).
"""

from __future__ import annotations

from mmap import mmap
from typing import Any

_DATA, _DICTIONARY = 0, 2
_ENCODINGS = (0, 2, 8)  # plain, and the two names of dictionary indices
_CODECS = ("SNAPPY", "UNCOMPRESSED")
_WRITER = "parquet-cpp-arrow"
_DEEPEST = 8


def count_values(data: bytearray | mmap, metadata: Any, *, most: int) -> int:
    """Return the number of values in all columns of the whole file ``data`` with its ``pyarrow.parquet.FileMetaData``.

    Raises ValueError for more than ``most`` values or bytes of unpacked pages, and for pages that understudy does not
    write or that contradict the footer.
    """
    if not str(metadata.created_by).startswith(_WRITER):
        raise ValueError("the table was not written by understudy")
    values = unpacked = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            if rows == chunk.num_values == 0:
                continue  # it has no pages to read
            if chunk.compression not in _CODECS:
                raise ValueError("a column has an unsupported compression")
            here, size = _count_chunk(data, chunk)
            values, unpacked = values + here, unpacked + size
            if here != chunk.num_values or not 0 <= rows <= here or max(values, unpacked) > most:
                raise ValueError("the table declares more values than are allowed")
    return values


def dictionary_bytes(start: bytes) -> int | None:
    """Return the unpacked size in bytes of a column's dictionary, from the first hundred bytes of the column; None if
    it does not begin with a dictionary page.
    """
    try:
        header, _ = _read_struct(start, 0, _DEEPEST)
        return int(header[2]) if header[1] == _DICTIONARY else None
    except (ValueError, LookupError):
        return None


def _count_chunk(data: bytearray | mmap, chunk: Any) -> tuple[int, int]:
    at = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < at:
        at = chunk.dictionary_page_offset
    end, values, unpacked = at + chunk.total_compressed_size, 0, 0
    if not 0 < at <= end <= len(data):
        raise ValueError("a column is not where the footer says")
    while at < end:
        header, at = _read_struct(data, at, _DEEPEST)
        kind, page = header[1], header[5 if header[1] == _DATA else 7]
        if kind not in (_DATA, _DICTIONARY) or page[2] not in _ENCODINGS or min(page[1], header[2], header[3]) < 0:
            raise ValueError("a page is not in the form that understudy writes")
        values += page[1] if kind == _DATA else 0
        unpacked += header[2]
        at += header[3]
    if at != end:
        raise ValueError("a page is longer than its column")
    return values, unpacked


def _read_struct(data: bytes | bytearray | mmap, at: int, deepest: int) -> tuple[dict[int, Any], int]:
    """Return a struct in Thrift's compact protocol, by field number, and where it ends. Lists and maps are refused."""
    if deepest == 0:
        raise ValueError("a page header is nested too deep")
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        kind, step = head & 15, head >> 4
        if step:
            number += step
        else:
            number, at = _read_integer(data, at)
        if kind in (1, 2):
            fields[number] = kind == 1
        elif kind == 3:
            at += 1
        elif kind in (4, 5, 6):
            fields[number], at = _read_integer(data, at)
        elif kind == 7:
            at += 8
        elif kind == 8:
            length, at = _read_varint(data, at)
            at += length
        elif kind == 12:
            fields[number], at = _read_struct(data, at, deepest - 1)
        else:
            raise ValueError("a page header has an unexpected field")
    return fields, at + 1


def _read_varint(data: bytes | bytearray | mmap, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number in a page header does not end")


def _read_integer(data: bytes | bytearray | mmap, at: int) -> tuple[int, int]:
    value, at = _read_varint(data, at)
    return (value >> 1) ^ -(value & 1), at
