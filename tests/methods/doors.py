"""The door of a run, over a store in memory: what a release pays, keeps and seals, without a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from understudy.base.errors import PrivacyError
from understudy.privacy.noise import NoiseSource
from understudy.privacy.plan import Plan, Receipt
from understudy.privacy.sealed import Arrays, Seal, SealedValue
from understudy.run.door import Measurements


class MemoryStore:
    """As a :class:`~understudy.ledger.store.RunStore`: a value is stored once, under its name."""

    def __init__(self) -> None:
        self.arrays: dict[str, Arrays] = {}
        self.seals: dict[str, Seal] = {}

    def sealed(self, name: str) -> SealedValue | None:
        return SealedValue(self.arrays[name], self.seals[name]) if name in self.arrays else None

    def keep(self, name: str, arrays: Arrays, *, seal: Seal | None = None) -> None:
        if name in self.arrays:
            raise PrivacyError("A value is stored twice.", "A release is made once.")
        self.arrays[name] = arrays
        if seal is not None:
            self.seals[name] = seal

    def keep_once(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        if name not in self.arrays:
            self.keep(name, make())
        return self.arrays[name]


def door_of(
    plan: Plan, noise: NoiseSource, *, store: Any = None, receipt: Receipt | None = None, **more: Any
) -> Measurements:
    """The run's own door, of a run that no ledger books.

    Args:
        store: what was stored before; a new one without.
        receipt: by default every charge of the plan is paid, and unused.
    """
    kept = MemoryStore() if store is None else store
    return Measurements(plan, receipt or Receipt("run", plan), noise, kept, None, "", **more)
