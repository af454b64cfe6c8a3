"""Reading a Release file that a stranger may have made: within bounds, verified while it is read, in the form it has.

What each method's Release holds is checked after this, by :func:`understudy.methods.registry.load_release`, which
is what everybody calls.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from understudy.errors import ConfigError, ReleaseError
from understudy.privacy.facts import Facts
from understudy.release import ARRAYS, MANIFEST, STRINGS, TERMS, PublicSchema, Release
from understudy.release.archive import Archive, open_archive
from understudy.release.manifest import FORMAT, FORMAT_VERSION, check_manifest
from understudy.release.members import arrays_from_bytes, strings_from_bytes, terms_from_bytes
from understudy.statement import Statement
from understudy.statement.form import require_consistent
from understudy.untrusted import MOST_BYTES, parse_json


def read_release(path: Path, *, max_bytes: int | None = None) -> Release:
    """The Release in a file, its bytes verified; what its method makes of the content is not looked at.

    Args:
        max_bytes: bytes that it may unpack to, its strings' memory included; None for the bounds of
            :mod:`understudy.release.archive`.

    Raises:
        ReleaseError: the file is missing, is no Release, is damaged, unpacks to more, or comes from a newer version.
    """
    with _opened(path, max_bytes) as (archive, manifest):
        check_manifest(manifest)
        statement = Statement.from_json(manifest["statement"])
        try:
            require_consistent(statement)
        except ValueError:
            raise corrupt(path, "its statement promises more than its charges keep") from None
        hashes = manifest["sha256"]
        if archive.names - {MANIFEST} != set(hashes) or not {ARRAYS, TERMS} <= archive.names:
            raise ValueError("its members are not those that it lists")
        data = {}
        for name, expected in hashes.items():
            data[name], digest = archive.read(name)
            if digest != expected:
                raise corrupt(path, f"{name} does not match its hash")
        return Release(
            method=manifest["method"],
            parameters=manifest["parameters"],
            schema=PublicSchema.from_json(manifest["schema"]),
            statement=statement,
            arrays=arrays_from_bytes(data[ARRAYS]),
            terms=terms_from_bytes(data[TERMS], most=archive.bound),
            noise_check=Facts.from_json(manifest["noise_check"]),
            strings=strings_from_bytes(data[STRINGS], most=archive.bound) if STRINGS in data else {},
        )


def require_readable(planned: Release) -> None:
    """That what a Release says of itself, known before anything is released, can be read again: by the same forms.

    Raises:
        ConfigError: it cannot.
    """
    try:
        written = planned.manifest({})
        if len(written) > MOST_BYTES:
            raise ValueError("its manifest is too long")
        manifest = parse_json(written)
        check_manifest(manifest)
        PublicSchema.from_json(manifest["schema"])
        require_consistent(Statement.from_json(manifest["statement"]))
    except Exception:  # whatever reading would fail with
        raise ConfigError(
            "No Release of these settings could be read again: its label set or a number of its plan is out of range.",
            "Choose fewer or shorter labels, or an epsilon nearer to 1 (`understudy plan` shows the charges).",
        ) from None


def read_method(path: Path) -> str:
    """The name of the method of the Release in a file; nothing else of it is read.

    Raises:
        ReleaseError: as :func:`read_release`.
    """
    with _opened(path, sys.maxsize) as (_, manifest):
        return str(manifest["method"])


@contextmanager
def _opened(path: Path, max_bytes: int | None) -> Iterator[tuple[Archive, dict[str, Any]]]:
    try:
        with open_archive(path, names=(MANIFEST, ARRAYS, TERMS, STRINGS), max_bytes=max_bytes) as archive:
            if archive.size(MANIFEST) > MOST_BYTES:
                raise ValueError("its manifest is too long")
            manifest = parse_json(archive.read(MANIFEST)[0])
            _check_version(path, manifest)
            yield archive, manifest
    except FileNotFoundError:
        raise ReleaseError(f"There is no Release file {path.name}.", "Check the path.") from None
    except IsADirectoryError:
        raise ReleaseError(
            f"{path.name} is a folder, not a Release file.", "Name the file in it: FOLDER/release/METHOD.release."
        ) from None
    except ReleaseError:
        raise
    except Exception:  # a damaged zip fails in many ways
        raise corrupt(path, "it cannot be read as one") from None


def _check_version(path: Path, manifest: Mapping[str, Any]) -> None:
    if manifest["format"] != FORMAT:
        raise corrupt(path, "another format")
    version = manifest["format_version"]
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ReleaseError(
            f"The Release {path.name} has format version {version}; this understudy reads up to {FORMAT_VERSION}.",
            "Install a newer understudy.",
        )
    if version < FORMAT_VERSION:
        raise ReleaseError(
            f"The Release {path.name} was made by an earlier version of understudy (format {version}).",
            "Generate with that version, or make the release again with this one.",
        )


def corrupt(path: Path, what: str) -> ReleaseError:
    return ReleaseError(
        f"{path.name} is damaged or is no Release ({what}).",
        "Get the file again from its maker; its maker deletes it and repeats the release (which is not charged again).",
    )
