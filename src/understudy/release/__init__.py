"""The Release: everything of a run that may leave the building, as one file.

A zip of ``release.json`` (method, parameters, schema, statement, SHA-256 of the other
members), ``arrays.safetensors``, ``terms.parquet`` and, where there are such, ``strings.parquet``. No pickle, no
private byte. How it is read, within bounds, is in :mod:`understudy.release.reading`.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PlainValidator

from understudy.base.files import atomic_file, require_local, shared_folder
from understudy.base.lazy import pa, pc
from understudy.base.parquet import count_values
from understudy.base.untrusted import read_form
from understudy.privacy.facts import Facts
from understudy.release.statement import Statement
from understudy.schema.columns import Column, cross_labels, crossed_columns, require_own_names
from understudy.schema.labels import LabelSet
from understudy.schema.transcript import PLAIN, TextForm

FORMAT = "understudy-release"
FORMAT_VERSION = 1
MANIFEST = "release.json"
ARRAYS, TERMS, STRINGS = "arrays.safetensors", "terms.parquet", "strings.parquet"


def _read_text_form(form: Any) -> TextForm:
    if form is None:
        return PLAIN
    if not (isinstance(form, dict) and {"fields", "roles"} <= form.keys()):
        raise ValueError("a form of texts has no fields or no roles")
    return read_form(TextForm, form)


@dataclass(frozen=True)
class PublicSchema:
    """The names and the label set of the synthetic table: public facts about the private one."""

    text: str = "text"
    """The text column, or that of the dialogues."""
    label: str | None = None
    labels: tuple[str | bool | int | float, ...] = ()
    record_columns: tuple[str, ...] = ()
    columns: Annotated[tuple[Annotated[Column, PlainValidator(Column.from_json)], ...], Field(max_length=64)] = ()
    form: Annotated[TextForm, PlainValidator(_read_text_form)] = PLAIN
    """The parts that a text has, if any: several columns, or a dialogue's turns."""
    topics: bool = False
    """Whether the labels are topics that the run found: the private table has no such column."""

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The text columns as they are named to read such a table, without record columns."""
        return self.form.columns(self.text)

    @property
    def texts(self) -> dict[str, Any]:
        """The settings that name the columns of the texts."""
        if self.record_columns:
            return {"record_columns": list(self.record_columns)}
        if self.form.fields:
            return {"text": list(self.form.fields)}
        return {"text": list(self.text_columns), **self.form.settings}

    @property
    def crossed(self) -> tuple[Column, ...]:
        """The columns that the label is made of."""
        return crossed_columns(self.label, self.columns)

    @property
    def label_set(self) -> LabelSet:
        return LabelSet(tuple(str(label) for label in self.labels))

    def to_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "label": self.label,
            "labels": list(self.labels),
            "record_columns": list(self.record_columns),
            **({"columns": [column.to_json() for column in self.columns]} if self.columns else {}),
            **({"form": self.form.to_json()} if self.form else {}),
            **({"topics": True} if self.topics else {}),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> PublicSchema:
        """What :meth:`to_json` made, which may come from anybody.

        Raises ValueError or ConfigError if a field is missing or of another type, or they contradict each other.
        """
        if not {"text", "label", "labels", "record_columns"} <= fields.keys():
            raise ValueError("a field is missing")
        found = read_form(cls, fields)
        distinct = {(isinstance(label, bool), label) for label in found.labels}
        named = found.label is not None and bool(found.labels)
        if len(distinct) != len(found.labels) or (found.labels and not found.label) or (found.topics and not named):
            raise ValueError("the labels are not a label set")
        if len({column.name for column in found.columns}) != len(found.columns):
            raise ValueError("two columns have one name")
        require_own_names(
            found.columns, (None if found.crossed else found.label, *(found.form.fields or (found.text,)))
        )
        if found.crossed and found.labels != cross_labels(found.crossed):
            raise ValueError("the labels are not those of the columns that they are made of")
        return found


@dataclass(frozen=True, repr=False)
class Release:
    """Noised and paid for: what a method hands on to its ``generate``.

    Args:
        arrays: noisy values and public arrays.
        terms: the privatised vocabulary, or empty.
        strings: further lists of strings by name, such as the texts of populations.
        noise_check: how much stands above the noise (post-processing).
    """

    method: str
    parameters: Mapping[str, Any]
    schema: PublicSchema
    statement: Statement
    arrays: Mapping[str, NDArray[Any]]
    terms: Sequence[str] = ()
    noise_check: Facts = field(default_factory=Facts)
    strings: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Release of {self.method}: dataset {self.statement.dataset!r}, {self.statement.budget}>"

    @property
    def noise_lines(self) -> list[str]:
        """The noise check in lines, by label name where it is by label."""
        return self.noise_check.lines(self.schema.label_set.names)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the file, atomically; ConfigError where ``path`` is an address."""
        require_local(path)
        path = Path(path)
        terms = _table_to_bytes({"term": pa.array(list(self.terms), pa.string())})
        members = {ARRAYS: arrays_to_bytes(self.arrays), TERMS: terms}
        if self.strings:  # a row per list, of any length
            names, lists = pa.array(list(self.strings), pa.string()), [list(each) for each in self.strings.values()]
            members[STRINGS] = _table_to_bytes({"name": names, "values": pa.array(lists, pa.list_(pa.string()))})
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
        shared_folder(path.parent)
        with atomic_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in {MANIFEST: self.manifest(hashes), **members}.items():
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)  # no timestamps

    def manifest(self, sha256: Mapping[str, str]) -> bytes:
        """``release.json``: what the Release says of itself, with the hashes of the other members."""
        fields = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "method": self.method,
            "parameters": dict(self.parameters),
            "schema": self.schema.to_json(),
            "statement": self.statement.to_json(),
            "noise_check": self.noise_check.to_json(),
            "sha256": dict(sha256),
        }
        return json.dumps(fields, indent=1).encode()

    @property
    def digest(self) -> str:
        """SHA-256 over the arrays, terms, parameters and schema: names this Release in a run that continues it."""
        whole = hashlib.sha256(json.dumps([self.method, dict(self.parameters), self.schema.to_json()]).encode())
        whole.update(arrays_to_bytes(self.arrays))
        whole.update("\n".join(self.terms).encode())
        if self.strings:
            whole.update(json.dumps({name: list(self.strings[name]) for name in sorted(self.strings)}).encode())
        return whole.hexdigest()

    @property
    def origin(self) -> str:
        """The start of :attr:`digest`: how a text's provenance names the Release that it was made from."""
        return self.digest[:12]


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


def terms_from_bytes(data: bytearray, *, most: int) -> list[str]:
    """The terms of a table, of at most ``most`` bytes, STRING_BYTES each included; else a ValueError."""
    table = _read_table(data, {"term": pa.string()}, ["term"], most=most)
    terms: list[str] = _checked(table.column("term"), most).to_pylist()
    return terms


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
    """The table with its strings as indices into dictionaries: a string that occurs often is held once."""
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
