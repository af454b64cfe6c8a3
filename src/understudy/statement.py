"""The privacy statement: what is protected, how strongly, at what charge, and what is not covered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from typing import Any

from understudy.privacy.guarantee import Budget, as_typed
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.unit import Unit

FALSE_ALARMS = 0.01
DELTAS = (1e-4, 1e-5, 1e-6, 1e-8, 1e-10)

NOT_PRIVATE = "NOT PRIVATE"
_NO_PROMISE = (
    f"> **{NOT_PRIVATE}.** The noise of this run was switched off or seeded. No promise holds; nothing was booked. The "
    "figures below are those of a run with noise."
)
_LARGEST_EXPONENT = 700.0

NOT_COVERED = (
    "Facts about the population that hold with or without any one unit: the synthetic texts are meant to show them.",
    "Other runs on the same data: their budgets add up (see the ledger).",
    "Choosing parameters, a run or a method by looking at results on the private data, unless that was charged too.",
    "Groups: k units together are protected k times more weakly in epsilon, and delta grows faster.",
    "That a run ended in an error, and how long it took.",
    "What a language model learned from its own training data.",
)


@dataclass(frozen=True)
class Statement:
    """The promise that travels with a Release and with every synthetic table made from it.

    Args:
        method: the method's name.
        unit: the privacy unit; neighbours add or remove one.
        budget: what was booked in the ledger.
        charges: every release made, with its event.
        public_inputs: name -> {"source": ..., "sha256": ...} of everything fixed before private data was read.
        labels_declared: False if the label set was read from the data.
        dataset: the dataset's declared name.
        private: False if noise was off or seeded.
        epsilon_at: epsilon at the booked delta and at several others; infinite ones are left out.
        power: largest true-positive rate of a test for one unit's presence that is wrong about 1 absent unit in 100.
        notes: further remarks of the method, one sentence each.
    """

    method: str
    unit: Unit
    budget: Budget
    charges: tuple[Charge, ...]
    public_inputs: Mapping[str, Mapping[str, str]]
    labels_declared: bool
    dataset: str
    private: bool
    epsilon_at: Mapping[float, float]
    power: float
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        plan: Plan,
        *,
        public_inputs: Mapping[str, Mapping[str, str]],
        labels_declared: bool,
        dataset: str,
        private: bool,
        notes: tuple[str, ...] = (),
    ) -> Statement:
        return cls(
            plan.method,
            plan.unit,
            plan.budget,
            plan.charges,
            public_inputs,
            labels_declared,
            dataset,
            private,
            _epsilon_at(plan),
            plan.composition.power(FALSE_ALARMS),
            notes,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "private": self.private,
            "stamp": "" if self.private else NOT_PRIVATE,
            "method": self.method,
            "dataset": self.dataset,
            "unit": self.unit.to_json(),
            "protects": self.unit.describe(),
            "neighbours": "add or remove one unit",
            "budget": self.budget.to_json(),
            "epsilon_at_delta": [{"delta": d, "epsilon": e} for d, e in self.epsilon_at.items()],
            "power_at_1_percent_false_alarms": self.power,
            "charges": [charge.to_json() for charge in self.charges],
            "public_inputs": {name: dict(entry) for name, entry in self.public_inputs.items()},
            "label_set": "declared, public" if self.labels_declared else "read from the data, not protected",
            "labels_declared": self.labels_declared,
            "notes": list(self.notes),
            "not_covered": list(NOT_COVERED),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Statement:
        return cls(
            method=fields["method"],
            unit=Unit.from_json(fields["unit"]),
            budget=Budget.from_json(fields["budget"]),
            charges=tuple(Charge.from_json(charge) for charge in fields["charges"]),
            public_inputs=fields["public_inputs"],
            labels_declared=bool(fields["labels_declared"]),
            dataset=fields["dataset"],
            private=bool(fields["private"]),
            epsilon_at={float(entry["delta"]): float(entry["epsilon"]) for entry in fields["epsilon_at_delta"]},
            power=float(fields["power_at_1_percent_false_alarms"]),
            notes=tuple(fields["notes"]),
        )

    def to_markdown(self) -> str:
        """The statement for people."""
        protected = "Protected" if self.private else "Not protected"
        booked = f"Booked in the ledger of dataset `{self.dataset}`: {self.budget}. " if self.private else ""
        lines = [
            "# Privacy statement",
            "",
            f"Method **{self.method}**. {protected}: **{self.unit.describe()}**.",
            "",
            self._promise() if self.private else _NO_PROMISE,
            "",
            "| at delta | epsilon |",
            "|---|---|",
            *(f"| {delta:g} | {_round_up(epsilon)} |" for delta, epsilon in self.epsilon_at.items()),
            "",
            "## What was released, and what it cost",
            "",
            *(f"- **{charge.name}**: {charge.why} ({charge.event})." for charge in self.charges),
            "",
            f"{booked}The language model that writes the texts sees only what is listed here; what it adds costs "
            "nothing more.",
            "",
            "## Public inputs, fixed before any private record was read",
            "",
            *(
                f"- {name}: {entry['source']}" + (f" (SHA-256 `{entry['sha256']}`)" if entry.get("sha256") else "")
                for name, entry in self.public_inputs.items()
            ),
            f"- label set: {'declared' if self.labels_declared else '**read from the data: not protected**'}",
            "",
            *(["## Notes", "", *(f"- {note}" for note in self.notes), ""] if self.notes else []),
            "## What is not covered",
            "",
            *(f"- {item}" for item in NOT_COVERED),
            "",
        ]
        return "\n".join(lines)

    def _promise(self) -> str:
        epsilon, delta = as_typed(self.budget.epsilon), as_typed(self.budget.delta)
        exponent = float(self.budget.epsilon)
        odds = _round_up(math.exp(exponent)) if exponent < _LARGEST_EXPONENT else f"e^{epsilon}"
        failure = f", except with probability {delta}" if self.budget.delta else ""
        labels = "" if self.labels_declared else " **The label set is not covered: it was read from the data.**"
        hits = _round_up(min(100 * self.power, 100.0))
        return (
            f"With or without any one unit, the probability of everything in the Release, and of every text made from "
            f"it, changes by a factor of at most {odds}{failure}: ({epsilon}, {delta})-differential privacy; "
            f"neighbours add or remove one unit.\n\n"
            f"In other words: whoever guesses from it whether one given unit was in the data, and is wrong about 1 in "
            f"100 units that were not, is right about at most {hits} in 100 that were, whatever else they know.{labels}"
        )


def _epsilon_at(plan: Plan) -> dict[float, float]:
    deltas = {float(plan.budget.delta), *DELTAS}
    values = {delta: plan.composition.epsilon(delta) for delta in sorted(deltas, reverse=True)}
    return {delta: epsilon for delta, epsilon in values.items() if math.isfinite(epsilon)}


def _round_up(value: float) -> str:
    """Four digits, never less than the value."""
    return f"{float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(value))):g}"
