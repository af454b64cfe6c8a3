"""The one door between private records and released values: pays, sums, samples noise, stores, has the ledger seal.

A value that is stored is read, never made again. One that the ledger will not seal is never handed on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from understudy.errors import PrivacyError
from understudy.privacy.measurement import Batches, Query, Rates, measure
from understudy.privacy.mechanisms import NoisySum
from understudy.privacy.noise import NoiseSource
from understudy.privacy.plan import Plan, Receipt
from understudy.privacy.sealed import Arrays, SealedValue, charge_of

if TYPE_CHECKING:
    from understudy.ledger import Ledger
    from understudy.store import RunStore


@dataclass(frozen=True, repr=False)
class Measurements:
    """Implements :class:`~understudy.methods.base.Door` for one run.

    Args:
        plan: what was charged.
        receipt: that it was.
        noise: where noise comes from; of the store's own origin.
        store: of the run.
        ledger: that confirms seals; None where nothing is charged, and nothing private.
        rows: keyed hash of the rows that are read.
        note: takes times, for the private side.
    """

    plan: Plan
    receipt: Receipt
    noise: NoiseSource
    store: RunStore
    ledger: Ledger | None
    rows: str
    note: Callable[[Mapping[str, Any]], None] = lambda _entry: None

    def measure(self, name: str, query: Query[Any], data: Batches[Any], *, rates: Rates | None = None) -> SealedValue:
        """The noisy sum of ``query`` over ``data``, under the charge ``name``: ``Float64[query.shape]`` as ``value``.

        Raises:
            PrivacyError: if no unused charge of this name is recorded, or the query is not the one that was planned.
        """

        def value() -> Arrays:
            mechanism, start = self.receipt.pay(name), time.perf_counter()
            secret = self.plan.unit.kind == "secret" and isinstance(mechanism, NoisySum)
            records = self.plan.unit.max_records if secret else 1
            noisy = measure(mechanism, query, data, source=self.noise, records_per_unit=records, rates=rates)
            self.note({"charge": name, "seconds": time.perf_counter() - start})
            return {"value": noisy}

        return self.seal(name, value)

    def open(self, name: str) -> Any:
        """What the charge's mechanism gives to those who take their values in parts.

        Raises:
            PrivacyError: if no unused charge of this name is recorded.
        """
        return self.receipt.pay(name).open(self.noise)

    def seal(self, name: str, make: Callable[[], Arrays]) -> SealedValue:
        """The value ``name``, stored and sealed before anything is done with it.

        Raises:
            PrivacyError: if no charge pays for it, or what is stored is sealed otherwise.
            LedgerError: if another value of this name was used before, by a copy of the run's folder.
        """
        seal = self.receipt.seal(name, noise=self.noise.origin, rows=self.rows)
        found = self.store.sealed(name)
        if found is None:
            self.store.keep(name, make(), seal=seal)
            found = self.store.sealed(name)
        assert found is not None, "it is kept"
        if found.seal != seal:
            raise PrivacyError(
                f"The stored value {name!r} is sealed for another run, charge or table.",
                "Put back the private folder as the run left it: stores are not moved between runs.",
            )
        if self.ledger is not None:
            digest = self.store.digest(name, key=self.ledger.fingerprint_key)
            assert digest is not None, "it is kept"
            self.ledger.confirm(found.seal, digest)
        return found

    def keep(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """Something public, or made from sealed values, that a resumed run must find as it was.

        Raises:
            PrivacyError: if a charge pays for values of this name: they are sealed.
        """
        if charge_of(name) in {charge.name for charge in self.plan.charges}:
            raise PrivacyError(
                f"{name!r} is a value that a charge pays for.", "This is a fault of the method: such values are sealed."
            )
        return self.store.keep_once(name, make)
