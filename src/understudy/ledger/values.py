"""Represent the ledger's records as immutable values, with one error for a stored field that is invalid."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

from understudy.base.errors import ConfigError, LedgerError, UnderstudyError
from understudy.privacy.accountant import CrossRunRule, Spending
from understudy.privacy.events import EVENT_KINDS, event_from_json
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.unit import Unit


def damaged() -> LedgerError:
    return LedgerError(
        "The ledger is damaged: it contains a value that cannot be read.",
        "Restore it from a backup: its records must not be lost.",
    )


@contextmanager
def reading_fields() -> Iterator[None]:
    """Convert every error while stored fields are read to one LedgerError for a damaged ledger.

    The usual validator would blame an option that the user never gave, and quote the field.
    """
    try:
        yield
    except LedgerError:
        raise
    except (UnderstudyError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError):
        raise damaged() from None


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Dataset:
    """A dataset as the ledger knows it.

    Args:
        cap: the most that all of its runs together may spend.
        unit: that it was opened with. Every run protects the same kind of unit, identified by the same column; how many
            records of one unit a run uses at most is the run's choice.
        rule: how charges compose over runs; always ``rdp`` if secrets are protected.
        hash_key: 32 bytes for keyed hashes that sort its records into batches and shards; it never changes.
    """

    name: str
    cap: Budget | SecretBudget
    unit: Unit
    rule: CrossRunRule
    hash_key: bytes = field(repr=False)
    opened_at: datetime

    def to_json(self) -> dict[str, Any]:
        """Return JSON fields; the cap stays exact, the key is left out."""
        return {
            "dataset": self.name,
            "unit": self.unit.to_json(),
            "rule": self.rule,
            "cap": self.cap.to_json(),
            "opened_at": self.opened_at.isoformat(),
        }


@dataclass(frozen=True)
class Entry:
    """One entry in a dataset's history: a run that was charged, or a cap that was raised.

    Args:
        cost: the spending of the run; None for a raised cap, as are the run's id, method and unit.
        cap: the new cap; None for a run.
        charges: as JSON fields (:meth:`understudy.privacy.plan.Charge.to_json`).
    """

    at: datetime
    cost: Budget | SecretBudget | None
    cap: Budget | SecretBudget | None
    run_id: str | None
    method: str | None
    unit: Unit | None
    charges: tuple[Mapping[str, Any], ...]
    note: str

    def spending(self, rule: CrossRunRule) -> Spending | None:
        """Return the accountant's input, with the events if the rule needs them; None for a raised cap. LedgerError if
        this version does not know an event's kind."""
        if self.cost is None:
            return None
        if rule == "basic":
            return Spending(self.cost, ())
        if not all(charge["event"]["kind"] in EVENT_KINDS for charge in self.charges):
            raise LedgerError(
                "The ledger contains a charge of a kind that this version of understudy does not know.",
                "Upgrade understudy: a newer version wrote this ledger.",
            )
        with reading_fields():
            return Spending(self.cost, tuple(event_from_json(charge["event"]) for charge in self.charges))

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the cells for people: time, method, cost, releases, run and note."""
        return (
            f"{self.at:%Y-%m-%d %H:%M:%S}",
            self.method or "cap raised",
            both(self.cost or self.cap),
            ", ".join(str(charge["name"]) for charge in self.charges),
            self.run_id or "",
            self.note,
        )

    def to_json(self) -> dict[str, Any]:
        """Return JSON fields; budgets stay exact."""
        return {
            "at": self.at.isoformat(),
            "run_id": self.run_id,
            "method": self.method,
            "unit": self.unit and self.unit.to_json(),
            "cost": self.cost and self.cost.to_json(),
            "cap": self.cap and self.cap.to_json(),
            "charges": [dict(charge) for charge in self.charges],
            "note": self.note,
        }


@dataclass(frozen=True)
class Balance:
    """A dataset's spending and cap after one entry of its history.

    Args:
        spent: by all runs up to it, composed by the dataset's rule at its present cap; None if nothing is spent.
        cap: at that time; None before the first raise of a cap, which does not record the earlier cap.
    """

    entry: Entry
    spent: Budget | SecretBudget | None
    cap: Budget | SecretBudget | None


def require_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            "A dataset's name is 1 to 64 letters, digits, dots, underscores and hyphens, "
            "and starts with a letter or digit.",
            "Choose such a name (--dataset NAME).",
        )


def now() -> str:
    """Return the present time as the ledger writes it: ISO 8601, UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def canonical_json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


_BYTES = 8
_LEAST_SHARED = 3
"""Fewer common cells prove nothing: two tables may both contain "n/a"."""


@dataclass(frozen=True)
class Sketch:
    """The lowest keyed hashes of the distinct cells of a table's texts: enough to detect that another table is much the
    same, even with an additional column, read as JSON records, or with different punctuation.

    The *bottom-k sketch* of a set (Broder 1997; Cohen and Kaplan 2007) is the k smallest of its elements' hashes: a
    uniform sample, taken in the same way from every set. For two sets A and B, the hashes up to the end of the shorter
    sketch are a sample of the union that shows for each element whether it is in A, in B or in both. The share of A's
    part that is in B estimates |A and B| / |A|. For the smaller set this is the containment, which is never below the
    Jaccard similarity: it stays 1 when a table has grown to ten times its size, or was cut to a tenth.

    Args:
        hashes: at most :attr:`SIZE` increasing 64-bit numbers; fewer only if the table has no more.
    """

    SIZE = 512

    hashes: tuple[int, ...] = field(repr=False)

    def is_near(self, other: Sketch) -> bool:
        """Return whether the smaller table shares more than half of its cells with the other, as estimated.

        With 512 hashes the standard error is at most 0.03 for tables of the same size, and 0.1 if one is twenty times
        the other. If one is more than some hundred times the other, too few hashes are left for an estimate.
        """
        reach = min(self._reach, other._reach)
        mine, theirs = ({each for each in sketch.hashes if each <= reach} for sketch in (self, other))
        shared = len(mine & theirs)
        return shared >= _LEAST_SHARED and 2 * shared > min(len(mine), len(theirs))

    @property
    def _reach(self) -> int:
        """Return the largest number up to which the sketch contains every hash of the table."""
        return self.hashes[-1] if len(self.hashes) == self.SIZE else (1 << (8 * _BYTES)) - 1

    def merged(self, other: Sketch) -> Sketch:
        """Return the sketch of both tables together."""
        return Sketch(tuple(sorted({*self.hashes, *other.hashes})[: self.SIZE]))

    def to_text(self) -> str:
        return base64.b64encode(b"".join(each.to_bytes(_BYTES) for each in self.hashes)).decode()

    @classmethod
    def from_text(cls, text: str) -> Sketch:
        """Read the text of :meth:`to_text`; LedgerError, ValueError or TypeError for any other text."""
        packed = base64.b64decode(text, validate=True)
        hashes = tuple(int.from_bytes(packed[at : at + _BYTES]) for at in range(0, len(packed), _BYTES))
        if len(packed) % _BYTES or len(hashes) > cls.SIZE or list(hashes) != sorted(set(hashes)):
            raise damaged()
        return cls(hashes)


def numbers(budget: Budget | SecretBudget | None, *, left: bool = False) -> tuple[str, str] | None:
    """Return epsilon and delta (or prior and posterior) in six digits for display; None for no budget.

    Args:
        left: whether it is a remaining budget, which is rounded down; spending is rounded up. (The prior of a secret is
            rounded the other way.)
    """
    if budget is None:
        return None
    rounding, other = (ROUND_FLOOR, ROUND_CEILING) if left else (ROUND_CEILING, ROUND_FLOOR)
    if isinstance(budget, Budget):
        return _digits(budget.epsilon, rounding), _digits(budget.delta, rounding)
    return _digits(budget.prior, other), _digits(budget.posterior, rounding)


def both(budget: Budget | SecretBudget | None, *, left: bool = False) -> str:
    return ", ".join(numbers(budget, left=left) or "-")


def what_remains(dataset: Dataset, remaining: Budget | SecretBudget | None) -> str:
    if remaining is None:  # posteriors cannot be subtracted
        return "depends on the run" if dataset.unit.kind == "secret" else "0"
    return both(remaining, left=True)


def unit_words(dataset: Dataset) -> str:
    unit = dataset.unit
    return unit.kind if unit.kind == "record" else f"{unit.name}, at most {unit.max_records} records"


def _digits(number: Fraction, rounding: str) -> str:
    context = Context(prec=6, rounding=rounding)
    return f"{float(context.divide(Decimal(number.numerator), Decimal(number.denominator))):g}"
