"""The output folder: one layout for every verb, split by who may see it.

out/
  release/    the synthetic table, provenance.parquet (what is known of each of its rows), schema.json (what its
              columns are), METHOD.release, statement.json, statement.md, metrics.json (those that were charged),
              report.html; manifest.json and manifest.sig where these are signed    (shareable)
  private/    run.sqlite, progress.json, embeddings/, bad_rows.jsonl, diary.jsonl, evaluation.json,
              report.html (mode 0700)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from understudy.base.errors import ConfigError, ResumeError, UnderstudyError
from understudy.base.files import (
    PRIVATE_MODE,
    only_owner_writes,
    private_folder,
    require_inside,
    require_local,
    require_path,
    shared_folder,
    storage_error,
    write_file,
)
from understudy.base.untrusted import read_json
from understudy.corpus.write import write_table
from understudy.methods.registry import load_release, method_names
from understudy.release import PublicSchema, Release
from understudy.release.signature import MANIFEST, SIGNATURE
from understudy.release.statement import Statement, load_statement
from understudy.run.table import SyntheticTable
from understudy.schema.layout import TEXT_FORMATS
from understudy.text.records import SyntheticRecord

FORMATS = ("parquet", *TEXT_FORMATS)
"""Formats that a synthetic table in an output folder may have; runs write Parquet and the private table's format."""
REPORT, TOPICS, SCHEMA = "report.html", "topics.html", "schema.json"
PROGRESS, PROVENANCE = "progress.json", "provenance.parquet"
_SHAREABLE = "release"


@dataclass(frozen=True)
class _File:
    """The path of a file in the shareable or the private folder."""

    name: str
    private: bool = False

    def __get__(self, folder: OutputFolder, _class: type[OutputFolder]) -> Path:
        return (folder.private if self.private else folder.shareable) / self.name


@dataclass(frozen=True)
class OutputFolder:
    """The paths of one run's results. Raises ConfigError if ``root`` is an address, or if a symbolic link in it leads
    elsewhere."""

    root: Path

    @classmethod
    def of(cls, path: str | PathLike[str]) -> OutputFolder:
        """Return the output folder at ``path``, or the one whose shareable folder contains the file at ``path``."""
        path = Path(require_path(path))
        inside = path.is_file() and path.absolute().parent.name == _SHAREABLE
        return cls(path.absolute().parent.parent if inside else path)

    def __post_init__(self) -> None:
        require_local(self.root)
        for part in (self.shareable, self.private):
            require_inside(self.root, part)

    @property
    def private(self) -> Path:
        return self.root / "private"

    @property
    def shareable(self) -> Path:
        return self.root / _SHAREABLE

    def make(self) -> None:
        """Make the shareable folder, which only its owner may write to. Raises StorageError if that fails."""
        try:
            only_owner_writes(shared_folder(self.shareable))
        except OSError as error:
            raise storage_error(self.shareable, error) from None

    def make_private(self) -> Path:
        """Make the private folder, or restrict an existing one to its owner (mode 0700)."""
        return private_folder(self.private, tighten=True)

    def require_writable(self) -> None:
        """Check that the results can be written, before anything is charged."""
        for folder in (self.private, self.shareable):
            try:
                with TemporaryFile(dir=folder):
                    pass
            except OSError as error:
                raise storage_error(folder, error) from None
        for path in (*self._written, self.diary):
            if path.is_dir():
                raise ConfigError(
                    f"The output folder contains a folder {path.name}, but a result needs that name.",
                    "Move it away, or use another --output.",
                )

    def release_file(self, method: str) -> Path:
        return self.shareable / f"{method}.release"

    def synthetic_file(self, table_format: str = "parquet") -> Path:
        return self.shareable / f"synthetic.{table_format}"

    provenance_file = _File(PROVENANCE)
    """The provenance of the synthetic table's rows, in their order."""
    schema_file = _File(SCHEMA)
    """The description of the synthetic table's columns: names and declared domains."""
    metrics_file = _File("metrics.json")
    """Metrics on private data that were released with a charge."""
    evaluation_file = _File("evaluation.json", private=True)
    """Metrics on private data that no epsilon covers."""
    audit_file = _File("audit.json", private=True)
    """The result of an audit."""
    report_file = _File(REPORT)
    """The shareable report."""
    topics_file = _File(TOPICS)
    """The page of topics."""
    internal_report_file = _File(REPORT, private=True)
    diary = _File("diary.jsonl", private=True)
    """Internal notes, which must not be handed out."""

    def require_no_other_release(self, made: Release) -> None:
        """Raise ResumeError if generating from ``made`` here would remove a Release that was paid for."""
        for path in filter(Path.exists, self._releases):
            found = _read(path)
            if found is None or (found.digest != made.digest and found.statement.private):
                raise ResumeError(
                    f"The output folder contains another Release, {path.name}, which was paid for.",
                    "Name another folder with --output.",
                )

    def clear(self, *, keep: Release | None = None) -> None:
        """Remove the files of an earlier run, including partial ones: a new statement must not cover them.

        The old statement is removed last, so that at every moment the files have their statement or none. The file of
        the Release ``keep`` stays, if it is here.
        """
        releases = self._releases
        for path in self._written:
            for half in path.parent.glob(f".{path.name}.*.tmp"):
                half.unlink(missing_ok=True)
            held = _read(path) if keep is not None and path in releases else None
            if keep is None or held is None or held.digest != keep.digest:
                path.unlink(missing_ok=True)

    @property
    def _releases(self) -> list[Path]:
        return [self.release_file(method) for method in method_names()]

    @property
    def _written(self) -> list[Path]:
        """Yield the shareable files of runs, evaluations and audits: the signature first, the statement last."""
        return [
            *(self.shareable / name for name in (SIGNATURE, MANIFEST)),
            *map(self.synthetic_file, FORMATS),
            self.provenance_file,
            self.schema_file,
            self.metrics_file,
            self.report_file,
            self.topics_file,
            self.evaluation_file,
            self.audit_file,
            self.internal_report_file,
            *self._releases,
            self.shareable / "statement.md",
            self.shareable / "statement.json",
        ]

    def write_release(self, release: Release) -> Path:
        """Write METHOD.release and its statement, and remove all files of an earlier run."""
        self.clear()
        path = self.release_file(release.method)
        release.save(path)
        self.write_statement(release.statement, labelled=release.schema.label is not None)
        return path

    def write_statement(self, statement: Statement, *, labelled: bool) -> None:
        fields, text = json.dumps(statement.to_json(), indent=1), statement.to_markdown(labelled=labelled)
        write_file(self.shareable / "statement.json", fields)
        write_file(self.shareable / "statement.md", text)

    def note_privately(self, entry: Mapping[str, Any]) -> None:
        """Add a line to ``private/diary.jsonl``: internal facts, such as how long something took."""
        self.diary.touch(mode=PRIVATE_MODE)
        with self.diary.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dict(entry)) + "\n")

    def write_records(
        self, records: Sequence[SyntheticRecord], schema: PublicSchema, *, provenance: bool = False
    ) -> list[Path]:
        """Write the synthetic table, the provenance of its rows, and the description of its columns.

        Args:
            provenance: whether to add the provenance as further columns of the table, too.

        Returns:
            The table's path in Parquet and, if the private table is a text file, in that file's format.
        """
        write_file(self.schema_file, json.dumps(schema.to_json(), indent=1, ensure_ascii=False))
        table = SyntheticTable.of(records, schema)
        write_table(self.provenance_file, table.own)
        kinds = ("parquet", *(each for each in TEXT_FORMATS if each == schema.layout.format))
        paths = [self.synthetic_file(kind) for kind in kinds]
        for path in paths:
            table.write(path, provenance=provenance)
        return paths


def find_table(shareable: Path) -> Path | None:
    """Return the synthetic table in a shareable folder, in any format; None if it has no table."""
    return next((path for name in FORMATS if (path := shareable / f"synthetic.{name}").exists()), None)


def read_statement(release: Path) -> Statement:
    """Return the statement in a shareable folder. Raises ConfigError if there is no readable one."""
    path = release / "statement.json"
    if not path.is_file():
        raise ConfigError(
            f"{release.parent.name or release} is not the folder of a run: it has no release/{path.name}.",
            "Name the folder that was the --output of `understudy run`, `release` or `generate`.",
        )
    return load_statement(path)


def schema_of_table(shareable: Path) -> PublicSchema | None:
    """Return the schema of the synthetic table in a shareable folder; None if the folder has none. Raises ConfigError
    if it cannot be read."""
    path = shareable / SCHEMA
    try:
        return PublicSchema.from_json(read_json(path)) if path.exists() else None
    except Exception:  # a damaged file fails in many ways
        raise ConfigError(
            f"The file {path.name!r}, which describes the columns of the synthetic table, cannot be read.",
            "Make the table again with `understudy generate`.",
        ) from None


def _read(path: Path) -> Release | None:
    """Return the Release in a file; None if it does not exist or cannot be read."""
    try:
        return load_release(path, max_bytes=sys.maxsize)
    except UnderstudyError:
        return None
