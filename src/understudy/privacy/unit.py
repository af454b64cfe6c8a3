"""What one protected unit is, and how much of the data one unit may touch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from understudy.errors import ConfigError

UnitKind = Literal["record", "owner", "secret"]


@dataclass(frozen=True)
class Unit:
    """The privacy unit: neighbours differ by adding or removing one of these.

    Args:
        kind: ``record`` (one row), ``owner`` (all rows of one owner) or ``secret`` (all rows that hold it).
        max_records: contribution bound: at most this many records of one unit are used (k). 1 for records.
    """

    kind: UnitKind = "record"
    max_records: int = 1

    def __post_init__(self) -> None:
        if self.max_records < 1:
            raise ConfigError(
                f"Expected max_records >= 1, got {self.max_records}.",
                "Let a unit contribute one record or more.",
            )
        if self.kind == "record" and self.max_records != 1:
            raise ConfigError("A record unit is one record.", "Name an owner column to bound records per owner.")

    def describe(self) -> str:
        """In words, for the statement."""
        if self.kind == "record":
            return "one record (one row of the table)"
        return f"one {self.kind}: all of its records, of which at most {self.max_records} are used"

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "max_records": self.max_records}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Unit:
        return cls(kind=fields["kind"], max_records=int(fields["max_records"]))
