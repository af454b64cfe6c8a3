"""What one protected unit is, and how much of the data one unit may touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from understudy.base.errors import ConfigError
from understudy.base.untrusted import read_form

UnitKind = Literal["record", "owner", "secret"]


@dataclass(frozen=True)
class Unit:
    """The privacy unit: neighbours differ by adding or removing one of these.

    Args:
        kind: ``record`` (one row), ``owner`` (all rows of one owner) or ``secret`` (all rows that hold it).
        max_records: contribution bound. At most this many records of one owner are used (k); at most this many records
            hold one secret (m), which is declared and checked, never enforced by dropping records. 1 for records.
        column: whose values tell owners apart, as the public schema names it; none for records and secrets.
        recognised_by: what tells secrets, in words that :func:`recognised_by` writes; none for records and owners.

    >>> print(Unit("owner", 5, "customer").describe())
    each owner (column 'customer') as a whole: all records together, of which at most 5 are used
    """

    kind: UnitKind = "record"
    max_records: int = 1
    column: str | None = None
    recognised_by: str | None = None

    def __post_init__(self) -> None:
        if self.max_records < 1:
            raise ConfigError(
                f"Expected max_records >= 1, got {self.max_records}.", "Let a unit contribute one record or more."
            )
        if self.kind == "record" and (self.max_records, self.column) != (1, None):
            raise ConfigError("A record unit is one record.", "Name an owner column to bound records per owner.")
        if self.kind == "secret" and self.column is not None:
            raise ConfigError("A secret unit has no column.", "A secret is protected wherever it stands.")
        if self.kind != "secret" and self.recognised_by is not None:
            raise ConfigError("Only secrets are recognised by something.", "Use the unit secret.")

    @property
    def vectors(self) -> int:
        """How many vectors of a query one unit adds at most: all records of a secret, else one (an owner's records are
        brought to one)."""
        return self.max_records if self.kind == "secret" else 1

    @property
    def name(self) -> str:
        """What all runs on a dataset must protect alike: the kind, and what tells units apart; not the bound."""
        if self.recognised_by is not None:
            return f"{self.kind} (recognised by {self.recognised_by})"
        return self.kind if self.column is None else f"{self.kind} (column {self.column!r})"

    def describe(self) -> str:
        """Return what is protected, in words: the object of "protects"."""
        if self.kind == "record":
            return "each record (one row of the table)"
        if self.kind == "secret":
            records = "at most one" if self.max_records == 1 else f"at most {self.max_records} of them"
            return f"each {self.name}: all records that contain it, {records}"
        return f"each {self.name} as a whole: all records together, of which at most {self.max_records} are used"

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_json(cls, fields: Any) -> Unit:
        """What :meth:`to_json` made; ValueError or ConfigError if it is something else.

        Neither kind nor bound may be left to a default.
        """
        known = cls.__dataclass_fields__.keys()
        if not (isinstance(fields, dict) and {"kind", "max_records"} <= fields.keys() <= known):
            raise ValueError("a unit has no kind or no bound, or a field that is none")
        return read_form(cls, fields)


def recognised_by(columns: Sequence[str], file: str | None, detectors: Sequence[str]) -> str | None:
    """What tells secrets, in one order of words: two runs that protect the same secrets say the same.

    A file counts by its name: its content is private.

    >>> recognised_by(["who"], None, ["phone", "email"])
    'column who; detectors email, phone'
    """
    parts = [
        f"column{'s' * (len(set(columns)) > 1)} {', '.join(sorted(set(columns)))}" if columns else "",
        f"file {PurePath(file).name}" if file else "",
        f"detector{'s' * (len(set(detectors)) > 1)} {', '.join(sorted(set(detectors)))}" if detectors else "",
    ]
    return "; ".join(part for part in parts if part) or None
