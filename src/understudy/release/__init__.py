"""Define the Release: everything from a run that may be shared, as one file.

A zip of ``release.json`` (method, parameters, schema, statement, SHA-256 of the other
members), ``arrays.safetensors``, ``terms.json`` and, if there are any, ``strings.json``. No pickle, no
private byte. :mod:`understudy.release.reading` reads it, within bounds.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
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
from understudy.base.untrusted import read_form
from understudy.privacy.facts import Facts
from understudy.release.statement import Statement
from understudy.schema.columns import Column, cross_labels, crossed_columns, require_own_names
from understudy.schema.labels import LabelSet
from understudy.schema.layout import Layout
from understudy.schema.transcript import PLAIN, TextForm

FORMAT = "understudy-release"
FORMAT_VERSION = 1
MANIFEST = "release.json"
ARRAYS, TERMS, STRINGS = "arrays.safetensors", "terms.json", "strings.json"


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
    owner: Annotated[
        Column | None, PlainValidator(lambda fields: None if fields is None else Column.from_json(fields))
    ] = None
    """The owner column, an identifier: the synthetic table has invented owners."""
    records_per_owner: Annotated[int, Field(ge=1)] = 1
    """Most records of an invented owner: the contribution bound."""
    layout: Layout = field(default_factory=Layout)
    """How the private table is laid out."""

    @property
    def own_label(self) -> str | None:
        """Return the label column of the private table; None if it has none: the label is a topic, or is made of typed
        columns."""
        return None if self.topics or self.crossed else self.label

    @property
    def told(self) -> tuple[Column, ...]:
        """Return the typed columns that are computed from dialogues and are in no table."""
        return tuple(column for column in self.columns if column.name in self.form.told)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Return the names of the text columns for reading such a table, without record columns."""
        return self.form.columns(self.text)

    @property
    def texts(self) -> dict[str, Any]:
        """Return the settings that name the columns of the texts."""
        if self.record_columns:
            return {"record_columns": list(self.record_columns)}
        if self.form.fields:
            return {"text": list(self.form.fields)}
        return {"text": list(self.text_columns), **self.form.settings}

    @property
    def crossed(self) -> tuple[Column, ...]:
        """Return the columns that the label is made of."""
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
            **({"owner": self.owner.to_json(), "records_per_owner": self.records_per_owner} if self.owner else {}),
            **({"layout": found} if (found := self.layout.to_json()) else {}),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> PublicSchema:
        """Read what :meth:`to_json` made. The fields are not trusted.

        Raises ValueError or ConfigError if a field is missing or has the wrong type, or fields contradict each other.
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
    """The result of a release: noisy values, paid for, and public inputs. It is the only input of ``generate``.

    Args:
        arrays: noisy values and public arrays.
        terms: the privatised vocabulary, or empty.
        strings: further lists of strings by name, such as the texts of populations.
        noise_check: figures on how much of the values is above the noise (post-processing).
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
        """Return the noise check in lines, with label names if it is per label."""
        return self.noise_check.lines(self.schema.label_set.names)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the file atomically; ConfigError if ``path`` is an address."""
        require_local(path)
        path = Path(path)
        members = {ARRAYS: arrays_to_bytes(self.arrays), TERMS: strings_to_bytes({"term": self.terms})}
        if self.strings:
            members[STRINGS] = strings_to_bytes(self.strings)
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
        shared_folder(path.parent)
        with atomic_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in {MANIFEST: self.manifest(hashes), **members}.items():
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)  # no timestamps

    def manifest(self, sha256: Mapping[str, str]) -> bytes:
        """Return the bytes of ``release.json``: method, parameters, schema and statement, with the hashes of the other
        members."""
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
        """Return the SHA-256 over arrays, terms, parameters and schema, which identifies this Release in later runs."""
        whole = hashlib.sha256(json.dumps([self.method, dict(self.parameters), self.schema.to_json()]).encode())
        whole.update(arrays_to_bytes(self.arrays))
        whole.update("\n".join(self.terms).encode())
        if self.strings:
            whole.update(json.dumps({name: list(self.strings[name]) for name in sorted(self.strings)}).encode())
        return whole.hexdigest()

    @property
    def origin(self) -> str:
        """Return the start of :attr:`digest`, by which a text's provenance names its Release."""
        return self.digest[:12]


STRING_BYTES = 64
"""Memory of a string beyond its characters; it counts toward the bound on a Release's unpacked size."""
_HEADER_BYTES = 1 << 20


def arrays_to_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    from safetensors.numpy import save

    return bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def arrays_from_bytes(data: bytearray) -> dict[str, NDArray[Any]]:
    """Return the arrays of a safetensors file; ValueError if it is damaged or contains types that NumPy lacks."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if not 8 <= 8 + int.from_bytes(data[:8], "little") <= min(len(data), _HEADER_BYTES):
        raise ValueError("the arrays' header is too long")
    try:
        return dict(load(bytes(data)))
    except SafetensorError as error:
        raise ValueError(str(error)) from None


_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # one without an end reaches to the file's end: linear time
_WITHOUT_STRINGS = re.compile(rb"\{(?::\[,*+\](?:,:\[,*+\])*+)?\}")


def strings_to_bytes(lists: Mapping[str, Sequence[str]]) -> bytes:
    """Return lists of strings, by name, as compact JSON."""
    written = {name: list(each) for name, each in lists.items()}
    return json.dumps(written, ensure_ascii=False, separators=(",", ":")).encode()


def strings_from_bytes(data: bytearray, *, most: int) -> dict[str, list[str]]:
    """Return the lists that :func:`strings_to_bytes` wrote, in a file that may come from a stranger.

    Raises ValueError, before anything is decoded, if the strings take more than ``most`` bytes, STRING_BYTES each
    included, or if the JSON has a different form: a value of two bytes could take a hundred in memory.
    """
    if not _WITHOUT_STRINGS.fullmatch(_STRING.sub(b"", data)):
        raise ValueError("the strings are not in the expected form")
    if data.count(b'"') // 2 * STRING_BYTES + len(data) > most:
        raise ValueError("the strings are too long")
    found: dict[str, list[str]] = json.loads(data, object_pairs_hook=_each_named_once)
    for each in (*found, *itertools.chain.from_iterable(found.values())):
        each.encode()  # a ValueError for half of a character
    return found


def _each_named_once(pairs: list[tuple[str, list[str]]]) -> dict[str, list[str]]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("two lists have one name")
    return found
