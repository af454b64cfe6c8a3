"""The privacy statement: what is protected, how strongly, at what charge, and what is not covered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from understudy.base.errors import PrivacyError
from understudy.base.notebook import from_markdown
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.sealed import SYSTEM, NoiseOrigin, Seal, charge_of
from understudy.privacy.secrets.budget import SecretBudget
from understudy.privacy.unit import Unit
from understudy.release.statement.epsilon import EpsilonPromise, epsilon_at
from understudy.release.statement.secrets import SecretPromise, posterior_at, public_incidence

FALSE_ALARMS = 0.01

NOT_PRIVATE = "NOT PRIVATE"
_NO_PROMISE = (
    f"> **{NOT_PRIVATE}.** The noise of this run was switched off or seeded. No promise holds; nothing was booked. The "
    "figures below are those of a run with noise."
)


@dataclass(frozen=True)
class Sealed:
    """What the seals of all values of a run have in common, and may be shown.

    Args:
        noise, run_id, ledger_id, charge_number: as in :class:`~understudy.privacy.sealed.Seal`.
    """

    noise: NoiseOrigin
    run_id: str
    ledger_id: str
    charge_number: int

    @classmethod
    def of(cls, seal: Seal) -> Sealed:
        return cls(seal.noise, seal.run_id, seal.ledger_id, seal.charge_number)

    @property
    def private(self) -> bool:
        """As :attr:`Seal.private`."""
        return self.noise == SYSTEM and bool(self.ledger_id) and self.charge_number > 0


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
        sealed: what the values that this stands on have in common; None before there are any.
        epsilon_at: epsilon at the booked delta and at several others; infinite ones are left out. Empty for secrets.
        power: largest true-positive rate of a test for one unit's presence that is wrong about 1 absent unit in 100.
        notes: further remarks of the method, one sentence each.
        posterior_at: the highest posterior at the booked prior and at several others. Empty but for secrets.
        trusted: who else got to read private texts by the user's word, one sentence each.
    """

    method: str
    unit: Unit
    budget: Budget | SecretBudget
    charges: tuple[Charge, ...]
    public_inputs: Mapping[str, Mapping[str, str]]
    labels_declared: bool
    dataset: str
    sealed: Sealed | None
    epsilon_at: Mapping[float, float]
    power: float
    notes: tuple[str, ...] = ()
    posterior_at: Mapping[float, float] = field(default_factory=lambda: MappingProxyType({}))
    trusted: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        plan: Plan,
        *,
        public_inputs: Mapping[str, Mapping[str, str]],
        labels_declared: bool,
        dataset: str,
        notes: tuple[str, ...] = (),
        trusted: tuple[str, ...] = (),
    ) -> Statement:
        secret = isinstance(plan.budget, SecretBudget)
        return cls(
            plan.method,
            plan.unit,
            plan.budget,
            plan.charges,
            public_inputs,
            labels_declared,
            dataset,
            None,
            {} if secret else epsilon_at(plan),
            plan.posterior(FALSE_ALARMS) if secret else plan.composition.power(FALSE_ALARMS),
            (*plan.notes, *notes),
            posterior_at(plan) if secret else {},
            trusted,
        )

    def with_seals(self, seals: Sequence[Seal]) -> Statement:
        """The same of values that there are.

        Raises:
            PrivacyError: if a charge has no value, or a value is of another run, unit or charge.
        """
        events = {charge.name: charge.event for charge in self.charges}
        shared = {Sealed.of(seal) for seal in seals}
        if (
            len(shared) != 1
            or {charge_of(seal.name) for seal in seals} != set(events)
            or any(seal.unit != self.unit or seal.event != events[charge_of(seal.name)] for seal in seals)
        ):
            raise PrivacyError(
                "The stored values are not those that the plan's charges pay for.",
                "Put back the private folder as the run left it: stores are not moved between runs.",
            )
        return replace(self, sealed=shared.pop())

    @property
    def private(self) -> bool:
        """Whether the promise holds: of the values, whoever reads them. An unsealed statement promises nothing."""
        return self.sealed is not None and self.sealed.private

    @property
    def promise(self) -> EpsilonPromise | SecretPromise:
        """What is promised, in its own words."""
        if isinstance(self.budget, SecretBudget):
            return SecretPromise(
                self.budget, self.unit.max_records, self.posterior_at, self.power, public_incidence(self.charges)
            )
        return EpsilonPromise(self.budget, self.epsilon_at, self.power)

    def to_json(self) -> dict[str, Any]:
        return {
            "private": self.private,
            "sealed": None if self.sealed is None else asdict(self.sealed),
            "stamp": "" if self.private else NOT_PRIVATE,
            "method": self.method,
            "dataset": self.dataset,
            "unit": self.unit.to_json(),
            "protects": self.unit.describe(),
            "neighbours": self.promise.neighbours,
            "budget": self.budget.to_json(),
            "epsilon_at_delta": [{"delta": d, "epsilon": e} for d, e in self.epsilon_at.items()],
            "posterior_at": [{"prior": p, "posterior": r} for p, r in self.posterior_at.items()],
            "power_at_1_percent_false_alarms": self.power,
            "charges": [charge.to_json() for charge in self.charges],
            "public_inputs": {name: dict(entry) for name, entry in self.public_inputs.items()},
            "label_set": "declared, public" if self.labels_declared else "read from the data, not protected",
            "labels_declared": self.labels_declared,
            "notes": list(self.notes),
            "trusted": list(self.trusted),
            "not_covered": list(self.promise.not_covered),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Statement:
        unit = Unit.from_json(fields["unit"])
        budget: type[Budget | SecretBudget] = SecretBudget if unit.kind == "secret" else Budget
        return cls(
            method=fields["method"],
            unit=unit,
            budget=budget.from_json(fields["budget"]),
            charges=tuple(Charge.from_json(charge) for charge in fields["charges"]),
            public_inputs=fields["public_inputs"],
            labels_declared=bool(fields["labels_declared"]),
            dataset=fields["dataset"],
            sealed=None if fields["sealed"] is None else Sealed(**fields["sealed"]),
            epsilon_at={float(entry["delta"]): float(entry["epsilon"]) for entry in fields["epsilon_at_delta"]},
            power=float(fields["power_at_1_percent_false_alarms"]),
            notes=tuple(fields["notes"]),
            posterior_at={float(entry["prior"]): float(entry["posterior"]) for entry in fields["posterior_at"]},
            trusted=tuple(fields["trusted"]),
        )

    def to_markdown(self) -> str:
        """The statement for people."""
        protected = "Protected" if self.private else "Not protected"
        booked = f"Booked in the ledger of dataset `{self.dataset}`: {self.budget}. " if self.private else ""
        labels = "" if self.labels_declared else " **The label set is not covered: it was read from the data.**"
        lines = [
            "# Privacy statement",
            "",
            f"Method **{self.method}**. {protected}: **{self.unit.describe()}**.",
            "",
            self.promise.words() + labels if self.private else _NO_PROMISE,
            "",
            *self.promise.table(),
            "",
            "## What was released, and what it cost",
            "",
            *(f"- **{charge.name}**: {_line(charge.why)} ({charge.event})." for charge in self.charges),
            "",
            f"{booked}Whatever is made of what is listed here, by a language model or otherwise, costs nothing more.",
            "",
            "## Public inputs, fixed before any private record was read",
            "",
            *(
                f"- {_line(name)}: {_line(entry['source'])}"
                + (f" (SHA-256 `{entry['sha256']}`)" if entry.get("sha256") else "")
                for name, entry in self.public_inputs.items()
            ),
            f"- label set: {'declared' if self.labels_declared else '**read from the data: not protected**'}",
            "",
            *(["## Notes", "", *(f"- {_line(note)}" for note in self.notes), ""] if self.notes else []),
            *(["## Who is trusted", "", *(f"- {_line(each)}" for each in self.trusted), ""] if self.trusted else []),
            "## What is not covered",
            "",
            *(f"- {item}" for item in self.promise.not_covered),
            "",
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return from_markdown(self.to_markdown())


def _line(text: str) -> str:
    """In one line: what a Release says of itself makes no headings."""
    return " ".join(text.split())
