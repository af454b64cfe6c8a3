"""The Release: everything of a run that may leave the building, as one file.

A zip of ``release.json`` (method, parameters, schema, statement, SHA-256 of the other
members), ``arrays.safetensors``, ``terms.parquet`` and, where there are such, ``strings.parquet``. No pickle, no
private byte.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ReleaseError
from understudy.files import atomic_file
from understudy.statement import Statement

FORMAT = "understudy-release"
FORMAT_VERSION = 1
_MANIFEST = "release.json"
_ARRAYS, _TERMS, _STRINGS = "arrays.safetensors", "terms.parquet", "strings.parquet"


@dataclass(frozen=True)
class PublicSchema:
    """The names and the label set of the synthetic table: public facts about the private one."""

    text: str = "text"
    label: str | None = None
    labels: tuple[Any, ...] = ()
    record_columns: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "label": self.label,
            "labels": list(self.labels),
            "record_columns": list(self.record_columns),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> PublicSchema:
        return cls(fields["text"], fields["label"], tuple(fields["labels"]), tuple(fields["record_columns"]))


@dataclass(frozen=True, repr=False)
class Release:
    """Noised and paid for: what a method hands on.

    Args:
        method: the method's name; its ``generate`` reads the rest.
        parameters: the method's parameters, as JSON.
        schema: names and labels of the synthetic table.
        statement: the promise.
        arrays: noisy values and public arrays.
        terms: the privatised vocabulary, or empty.
        strings: further lists of strings by name, such as the texts of populations.
        noise_check: how much stands above the noise, as short sentences (post-processing).
    """

    method: str
    parameters: Mapping[str, Any]
    schema: PublicSchema
    statement: Statement
    arrays: Mapping[str, NDArray[Any]]
    terms: Sequence[str] = ()
    noise_check: Mapping[str, Any] = field(default_factory=dict)
    strings: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Release of {self.method}: dataset {self.statement.dataset!r}, {self.statement.budget}>"

    @property
    def noise_lines(self) -> list[str]:
        """The noise check in lines, its lists by label name."""
        labels = [str(label) for label in self.schema.labels]
        return [
            f"{name}: " + ", ".join(f"{label} {number}" for label, number in zip(labels, value, strict=True))
            if isinstance(value, list) and len(value) == len(labels)
            else f"{name}: {value[0] if isinstance(value, list) and len(value) == 1 else value}"
            for name, value in self.noise_check.items()
        ]

    def save(self, path: Path) -> None:
        """Write the file, atomically."""
        members = {_ARRAYS: _arrays_to_bytes(self.arrays), _TERMS: _terms_to_bytes(self.terms)}
        if self.strings:
            members[_STRINGS] = _strings_to_bytes(self.strings)
        manifest = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "method": self.method,
            "parameters": dict(self.parameters),
            "schema": self.schema.to_json(),
            "statement": self.statement.to_json(),
            "noise_check": dict(self.noise_check),
            "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in {_MANIFEST: json.dumps(manifest, indent=1).encode(), **members}.items():
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)  # no timestamps

    @property
    def digest(self) -> str:
        """SHA-256 over the arrays, terms, parameters and schema: names this Release in a run that continues it."""
        whole = hashlib.sha256(json.dumps([self.method, dict(self.parameters), self.schema.to_json()]).encode())
        whole.update(_arrays_to_bytes(self.arrays))
        whole.update("\n".join(self.terms).encode())
        if self.strings:
            whole.update(json.dumps({name: list(self.strings[name]) for name in sorted(self.strings)}).encode())
        return whole.hexdigest()


def load_release(path: str | Path) -> Release:
    """Read and check a Release file.

    Raises:
        ReleaseError: if the file is missing, is no Release, is damaged, or comes from a newer version.
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(archive.read(_MANIFEST))
            _check_version(path, manifest)
            data = {name: archive.read(name) for name in manifest["sha256"]}
        for name in data:
            if hashlib.sha256(data[name]).hexdigest() != manifest["sha256"][name]:
                raise _corrupt(path, f"{name} does not match its hash")
        return Release(
            method=manifest["method"],
            parameters=manifest["parameters"],
            schema=PublicSchema.from_json(manifest["schema"]),
            statement=Statement.from_json(manifest["statement"]),
            arrays=_arrays_from_bytes(data[_ARRAYS]),
            terms=_terms_from_bytes(data[_TERMS]),
            noise_check=manifest["noise_check"],
            strings=_strings_from_bytes(data[_STRINGS]) if _STRINGS in data else {},
        )
    except FileNotFoundError:
        raise ReleaseError(f"There is no Release file {path.name}.", "Check the path.") from None
    except IsADirectoryError:
        raise ReleaseError(
            f"{path.name} is a folder, not a Release file.", "Name the file in it: FOLDER/release/METHOD.release."
        ) from None
    except ReleaseError:
        raise
    except Exception:  # a damaged zip fails in many ways
        raise _corrupt(path, "it cannot be read as one") from None


def _check_version(path: Path, manifest: Mapping[str, Any]) -> None:
    if manifest["format"] != FORMAT:
        raise _corrupt(path, "another format")
    version = manifest["format_version"]
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ReleaseError(
            f"The Release {path.name} has format version {version}; this understudy reads up to {FORMAT_VERSION}.",
            "Install a newer understudy.",
        )


def _corrupt(path: Path, what: str) -> ReleaseError:
    return ReleaseError(
        f"{path.name} is damaged or is no Release ({what}).",
        "Get the file again from its maker; its maker deletes it and repeats the release (which is not charged again).",
    )


def _arrays_to_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    from safetensors.numpy import save

    return bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def _arrays_from_bytes(data: bytes) -> dict[str, NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return dict(load(data))
    except SafetensorError as error:
        raise ValueError(str(error)) from None


def _terms_to_bytes(terms: Sequence[str]) -> bytes:
    import pyarrow as pa

    return _table_to_bytes({"term": pa.array(list(terms), pa.string())})


def _terms_from_bytes(data: bytes) -> list[str]:
    terms: list[str] = _table_from_bytes(data)["term"]
    return terms


def _strings_to_bytes(strings: Mapping[str, Sequence[str]]) -> bytes:
    """A row a list, of any length."""
    import pyarrow as pa

    values = [list(values) for values in strings.values()]
    return _table_to_bytes(
        {"name": pa.array(list(strings), pa.string()), "values": pa.array(values, pa.list_(pa.string()))}
    )


def _strings_from_bytes(data: bytes) -> dict[str, list[str]]:
    columns = _table_from_bytes(data)
    return dict(zip(columns["name"], columns["values"], strict=True))


def _table_to_bytes(columns: Mapping[str, Any]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet

    sink = io.BytesIO()
    pyarrow.parquet.write_table(pa.table(dict(columns)), sink)
    return sink.getvalue()


def _table_from_bytes(data: bytes) -> dict[str, list[Any]]:
    import pyarrow as pa
    import pyarrow.parquet

    # From a buffer and without Arrow's threads: a process as short as `inspect` could end before they did, and abort.
    table = pyarrow.parquet.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
    return {name: table.column(name).to_pylist() for name in table.column_names}
