"""The ordered charges of a run, known before a private record is read, and their receipt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from understudy.errors import ConfigError, PrivacyError
from understudy.privacy.accountant import Composition, Spending
from understudy.privacy.events import Event, event_from_json, event_to_json
from understudy.privacy.guarantee import Budget
from understudy.privacy.secrets.budget import SecretBudget
from understudy.privacy.unit import Unit


@dataclass(frozen=True)
class Charge:
    """One release that a run will make: what it is called, what it costs and why it is made."""

    name: str
    event: Event
    parameters: Mapping[str, Any]
    why: str

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "event": event_to_json(self.event),
            "parameters": dict(self.parameters),
            "why": self.why,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Charge:
        return cls(fields["name"], event_from_json(fields["event"]), fields["parameters"], fields["why"])


def charge_of(name: str) -> str:
    """The charge that pays for the noisy value ``name``: its own name, or what stands before a slash.

    >>> charge_of("tokens/0/3/17")
    'tokens'
    """
    return name.partition("/")[0]


def require_budget_of(unit: Unit, budget: Budget | SecretBudget) -> None:
    """See that the budget is of the kind that the unit needs: a prior and a posterior for secrets, and for no other.

    Raises:
        ConfigError: if it is not.
    """
    if (unit.kind == "secret") != isinstance(budget, SecretBudget):
        raise ConfigError(
            f"The budget {budget} is no budget for one {unit.name}.",
            "Secrets take a prior and a posterior (--secret-prior, --secret-posterior); "
            "records and owners take an epsilon and a delta.",
        )


@dataclass(frozen=True)
class Plan:
    """What a run will release and spend. A function of public parameters only.

    Args:
        method: the method's name.
        unit: the privacy unit.
        budget: what the run may spend; what is booked in the ledger. A ``SecretBudget`` where the unit is a secret.
        charges: the releases, in order.
        forecast: what the budget buys, by name (noise against expected signal, calls, tokens, money).

    Raises:
        PrivacyError: if the charges compose to more than the budget, or two share a name.
        ConfigError: if the budget is of a kind that the unit does not have.
    """

    method: str
    unit: Unit
    budget: Budget | SecretBudget
    charges: tuple[Charge, ...]
    forecast: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if len({charge.name for charge in self.charges}) != len(self.charges):
            raise PrivacyError("Two charges of a plan share a name.", "Name every release of a method differently.")
        if any(charge.name != charge_of(charge.name) for charge in self.charges):
            raise PrivacyError("A charge has a slash in its name.", "A slash begins the name of a part of a charge.")
        require_budget_of(self.unit, self.budget)
        limit = self.budget.posterior if isinstance(self.budget, SecretBudget) else self.budget.epsilon
        if self.total > float(limit):
            raise PrivacyError(
                f"The plan's charges compose to more than its budget {self.budget}.",
                "This is a fault of the method: its calibration and its events disagree.",
            )

    @property
    def composition(self) -> Composition:
        return Composition(tuple(charge.event for charge in self.charges))

    @property
    def total(self) -> float:
        """What the charges compose to: epsilon at the budget's delta, or the highest posterior at its prior."""
        if isinstance(self.budget, SecretBudget):
            return self.posterior(float(self.budget.prior))
        return self.composition.epsilon(float(self.budget.delta))

    def posterior(self, prior: float) -> float:
        """The most that a test for one secret is right if it is wrong with probability ``prior``; never understated."""
        from understudy.privacy.secrets.composition import posterior

        return posterior(self.composition.events, prior)

    @property
    def spending(self) -> Spending:
        """What the ledger books for the whole run."""
        return Spending(self.budget, self.composition.events)


class Receipt:
    """Proof that the ledger has recorded a run's charges; each pays for one draw in this process.

    Only a ledger makes one, after its entry is written and synced. A run that was killed between its charge
    and the storing of the noisy value gets a new receipt for the same entry: it pays for the redraw, since
    nobody saw the first draw.
    """

    def __init__(self, run_id: str, charges: tuple[Charge, ...]) -> None:
        self.run_id = run_id
        self._unused = {charge.name: charge.event for charge in charges}

    def pay(self, name: str, event: Event) -> None:
        """Use the charge ``name`` up.

        Raises:
            PrivacyError: if no such charge is recorded, its event is another, or it was used before.
        """
        if self._unused.get(name) != event:
            raise PrivacyError(
                f"The release {name!r} has no unused charge in the ledger for this event.",
                "Charge the plan first; draw each of its releases once.",
            )
        del self._unused[name]
