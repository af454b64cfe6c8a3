"""The ordered charges of a run, known before a private record is read, and their receipt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from understudy.errors import PrivacyError
from understudy.privacy.accountant import Composition, Spending
from understudy.privacy.events import Event, event_from_json, event_to_json
from understudy.privacy.guarantee import Budget
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


@dataclass(frozen=True)
class Plan:
    """What a run will release and spend. A function of public parameters only.

    Args:
        method: the method's name.
        unit: the privacy unit.
        budget: what the run may spend; what is booked in the ledger.
        charges: the releases, in order.
        forecast: what the budget buys, by name (noise against expected signal, calls, tokens, money).

    Raises:
        PrivacyError: if the charges compose to more than the budget, or two share a name.
    """

    method: str
    unit: Unit
    budget: Budget
    charges: tuple[Charge, ...]
    forecast: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if len({charge.name for charge in self.charges}) != len(self.charges):
            raise PrivacyError("Two charges of a plan share a name.", "Name every release of a method differently.")
        if self.composition.epsilon(float(self.budget.delta)) > float(self.budget.epsilon):
            raise PrivacyError(
                f"The plan's charges compose to more than its budget {self.budget}.",
                "This is a fault of the method: its calibration and its events disagree.",
            )

    @property
    def composition(self) -> Composition:
        return Composition(tuple(charge.event for charge in self.charges))

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
