"""What a run made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from understudy.outputs import OutputFolder, synthetic_columns
from understudy.release import Release
from understudy.statement import Statement
from understudy.writing.records import SyntheticRecord


@dataclass(frozen=True, repr=False)
class Result:
    """What a run made.

    Args:
        release: the Release.
        records: the synthetic records; none for a release alone.
        missing: records asked for that the language model did not write.
        folder: where it stands, or None for a run without an output folder.
    """

    release: Release
    records: Sequence[SyntheticRecord] = ()
    missing: int = 0
    folder: OutputFolder | None = None

    def __repr__(self) -> str:
        where = "" if self.folder is None else f", in {self.folder.root}"
        return (
            f"<Result of {self.release.method}: {len(self.records)} synthetic records, {self.statement.budget}{where}>"
        )

    @property
    def statement(self) -> Statement:
        return self.release.statement

    @cached_property
    def columns(self) -> dict[str, list[object]]:
        """The synthetic table by column: ``text``, the label columns, ``provenance``."""
        return synthetic_columns(self.records, self.release.schema)

    def to_json(self) -> dict[str, Any]:
        """What it is, without the texts."""
        return {
            "method": self.release.method,
            "dataset": self.statement.dataset,
            "unit": self.statement.unit.to_json(),
            "budget": self.statement.budget.to_json(),
            "private": self.statement.private,
            "records": len(self.records),
            "missing": self.missing,
        }

    def to_arrow(self) -> Any:
        """The synthetic table as a ``pyarrow.Table``."""
        import pyarrow as pa

        return pa.table(self.columns)
