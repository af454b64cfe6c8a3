"""Define the protected unit, and how many records one unit may have."""

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
        kind: ``record`` (one row), ``owner`` (all rows of one owner) or ``secret`` (all rows that contain it).
        max_records: contribution bound. At most this many records of one owner are used (k); at most this many records
            contain one secret (m), which is declared and checked, never enforced by dropping records. 1 for records.
        column: identifies owners, as the public schema names it; None for records and secrets.
        recognised_by: how secrets are found, in the words of :func:`recognised_by`; None for records and owners.

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
            raise ConfigError(
                "The privacy unit is a secret, and a column is named.",
                "Leave the column out: secrets are protected in all.",
            )
        if self.kind != "secret" and self.recognised_by is not None:
            raise ConfigError("Only the unit secret has recognised_by.", "Leave it out, or use the unit secret.")

    @property
    def vectors(self) -> int:
        """Return the most vectors that one unit adds to a query: all records of a secret, else one (an owner's records
        are merged into one)."""
        return self.max_records if self.kind == "secret" else 1

    @property
    def name(self) -> str:
        """Return the name that all runs on a dataset share: the kind of unit and how units are identified, without the
        bound on records per unit."""
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
        """Read what :meth:`to_json` made; ValueError or ConfigError if it is something else.

        The kind and the bound have no defaults.
        """
        known = cls.__dataclass_fields__.keys()
        if not (isinstance(fields, dict) and {"kind", "max_records"} <= fields.keys() <= known):
            raise ValueError("a unit has no kind or no bound, or an unknown field")
        return read_form(cls, fields)


def recognised_by(columns: Sequence[str], file: str | None, detectors: Sequence[str]) -> str | None:
    """Return how secrets are found, in a fixed order of words: runs that protect the same secrets have the same text.

    A file is represented by its name: its content is private.

    >>> recognised_by(["who"], None, ["phone", "email"])
    'column who; detectors email, phone'
    """
    parts = [
        f"column{'s' * (len(set(columns)) > 1)} {', '.join(sorted(set(columns)))}" if columns else "",
        f"file {PurePath(file).name}" if file else "",
        f"detector{'s' * (len(set(detectors)) > 1)} {', '.join(sorted(set(detectors)))}" if detectors else "",
    ]
    return "; ".join(part for part in parts if part) or None
