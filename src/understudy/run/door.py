"""The only way from private records to released values: pay, sum, sample noise, store, and have the ledger seal.

A stored value is read, never sampled again. A value that the ledger does not seal is never returned.
"""

from __future__ import annotations

import hashlib
import hmac
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, PrivacyError, ResumeError, UnderstudyWarning, bug
from understudy.corpus import Corpus
from understudy.corpus.verified import VerifiedCorpus
from understudy.ledger.store import RunStore
from understudy.ledger.values import Sketch
from understudy.privacy.measurement import Batches, OpenQuery, Query, Rates, measure, select
from understudy.privacy.mechanisms import NoisySum, SubsampledSum
from understudy.privacy.noise import NoiseSource
from understudy.privacy.plan import Plan, Receipt
from understudy.privacy.sealed import Arrays, SealedValue, charge_of
from understudy.privacy.selection import NoisySelection
from understudy.run.session import Listener, Session
from understudy.run.settings import LedgerParameters

if TYPE_CHECKING:
    from understudy.ledger import Ledger

_FINGERPRINT, SOURCE = "fingerprint", "source"
_OF_THE_RUN = {_FINGERPRINT, SOURCE, "embedder", "private model"}
_MARK = "understudy:mark"


@dataclass(frozen=True, repr=False)
class Measurements:
    """The only way from the private records of a run to its released values.

    Args:
        noise: the source of noise; it must be the store's.
        ledger: confirms the seals; None if nothing is charged, so that nothing is private.
        rows: keyed hash of the rows that are read.
        note: receives durations, for the private side.
    """

    plan: Plan
    receipt: Receipt
    noise: NoiseSource
    store: RunStore
    ledger: Ledger | None
    rows: str
    note: Callable[[Mapping[str, Any]], None] = lambda _entry: None
    opened: set[str] = field(default_factory=set)

    def measure(
        self, name: str, query: Query[Any] | OpenQuery, data: Batches[Any], *, rates: Rates | None = None
    ) -> SealedValue:
        """Return the noisy sum of ``query`` over ``data``, under the charge ``name``, as a ``Float64[query.shape]``.

        For an :class:`~understudy.privacy.measurement.OpenQuery`, return the noisy sums that are above the threshold,
        with their names.

        Raises PrivacyError if no unused charge of this name is recorded, or the query is not the one that was planned.
        """

        def value() -> Arrays:
            mechanism, start = self.receipt.pay(name), time.perf_counter()
            if isinstance(query, OpenQuery) != isinstance(mechanism, NoisySelection):
                raise bug(
                    "A query differs from the planned one.",
                    "measure an OpenQuery, and nothing else, under a charge with a NoisySelection",
                )
            if self.plan.unit.kind == "secret" and isinstance(mechanism, SubsampledSum):
                raise bug("The records of a secret would be sampled one by one.", "sampled units are records or owners")
            records = self.plan.unit.vectors if isinstance(mechanism, NoisySum) else 1
            if isinstance(query, OpenQuery):
                found = select(mechanism, query, data, source=self.noise)
            else:
                noisy = measure(mechanism, query, data, source=self.noise, records_per_unit=records, rates=rates)
                found = {"value": noisy}
            self.note({"charge": name, "seconds": time.perf_counter() - start})
            return found

        return self._sealed(name, value)

    def open(self, name: str) -> Any:
        """Open a charge whose values are made in parts. Return the object that makes them; its type depends on the
        charge's mechanism. Raises PrivacyError if no unused charge of this name is recorded."""
        given = self.receipt.pay(name).open(self.noise)
        self.opened.add(name)
        return given

    def seal(self, name: str, make: Callable[[], Arrays]) -> SealedValue:
        """Return the part ``CHARGE/PART`` of an opened charge, stored and sealed before it is used.

        Raises:
            PrivacyError: if the part does not belong to a charge that was opened in this process (only
                :meth:`measure` seals sums), or the stored value has a different seal.
            LedgerError: if another value of this name was used before, by a copy of the run's folder.
        """
        if charge_of(name) == name or charge_of(name) not in self.opened:
            raise bug(
                f"{name!r} does not belong to an opened charge.",
                "it must open the charge before it seals a part, and measure sums",
            )
        return self._sealed(name, make)

    def _sealed(self, name: str, make: Callable[[], Arrays]) -> SealedValue:
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
        """Return the value ``name``, which a resumed run must find unchanged: the stored one, else the result of
        ``make``.

        It is public, or made from sealed values.

        Raises PrivacyError if a charge pays for values of this name, because those are sealed.
        """
        if charge_of(name) in {charge.name for charge in self.plan.charges} | _OF_THE_RUN:
            raise bug(
                f"{name!r} is the name of a value that a charge pays for, or that the run reserves.",
                "it must seal values that are paid for, and use other names for the rest",
            )
        if self.ledger is None:
            return self.store.keep_once(name, make)
        key = self.ledger.fingerprint_key

        def marked() -> Arrays:
            arrays = {each: np.asarray(array) for each, array in make().items()}
            return {**arrays, _MARK: self._mark(name, arrays, key)}

        found = dict(self.store.keep_once(name, marked))
        mark = found.pop(_MARK, None)
        if mark is None or not hmac.compare_digest(mark.tobytes(), self._mark(name, found, key).tobytes()):
            raise PrivacyError(
                f"The stored value {name!r} is not the one that the run kept.",
                "Put back the private folder as the run left it: stores are not moved between runs.",
            )
        return found

    def _mark(self, name: str, arrays: Arrays, key: bytes) -> NDArray[np.uint8]:
        """Return a keyed hash of a kept value, which shows later that the value belongs to this run and name."""
        whole = hmac.new(key, f"{self.store.run_id} {name}".encode(), hashlib.sha256)
        for each in sorted(arrays):
            whole.update(f" {each} {arrays[each].dtype} {arrays[each].shape} ".encode())
            whole.update(np.ascontiguousarray(arrays[each]).tobytes())
        return np.frombuffer(whole.digest(), dtype=np.uint8)


def open_ledger(named: LedgerParameters, store: RunStore) -> Ledger:
    """Open the ledger that the user named; raise an error if the run was charged in a different one."""
    from understudy.ledger import Ledger

    ledger = Ledger(named.ledger, ledger_id=named.ledger_id)
    if ledger_of(store) not in (None, ledger.id):
        ledger.close()
        raise ResumeError(
            f"The run in this folder was charged in a different ledger, not in {ledger.location}.",
            "Name that ledger (--ledger), or use --fresh to start over (which charges the budget again).",
        )
    return ledger


def ledger_of(store: RunStore) -> str | None:
    """Return the id of the ledger in which the run was charged; None if it was not charged."""
    began = store.value(_FINGERPRINT) or {}
    return bytes(began["ledger"]).decode() if "ledger" in began else None


@dataclass(frozen=True, repr=False)
class Paid:
    """A run that the ledger has charged: it may read the private records, and it knows the hash key of the dataset."""

    door: Measurements
    hash_key: bytes


def pay(
    ledger: Ledger | None,
    dataset: str,
    plan: Plan,
    corpus: Corpus,
    session: Session,
    listener: Listener,
    *,
    known_only: bool = False,
) -> Paid:
    """Identify the data, then check and charge in one transaction; without a ledger nothing is charged or promised.
    If it raises (an UnderstudyError), nothing was charged.

    Args:
        ledger: None if the noise is off or seeded.
        corpus: with a ledger a :class:`VerifiedCorpus`, by whose contents a resumed run recognises it.
        known_only: refuse data that the ledger does not know: neither their texts nor each of their files.
    """
    if ledger is None:
        session.begin(plan)
        listener.say("NOT PRIVATE: noise is off or seeded; nothing is charged and no promise holds.")
        receipt = Receipt(session.store.run_id, plan)
        return Paid(session.witness.door(_door(plan, receipt, session, None, "")), b"insecure")
    assert isinstance(corpus, VerifiedCorpus), "the rows that are paid for are known"
    found = corpus.contents
    known = corpus.identity(ledger.fingerprint_key, texts=found.texts)
    kept = session.store.value(_FINGERPRINT)
    if kept is not None and bytes(kept["sha"]).decode() != found.digest:
        raise ResumeError(
            "The private data or the ledger are not those that this run began with.",
            "Use those it began with, or --fresh to start over (which charges the budget again).",
        )
    if known_only and ledger.known_as(*known.texts) is None:
        files = set(known.contents) - set(known.texts)
        if not files or any(ledger.known_as(each) is None for each in files):  # one does not let another one in
            raise ConfigError(
                f"The synthetic table was made from another real table, which the ledger knows as {dataset!r}.",
                f"Give that table; or, if this one is more of the same data, say so with --dataset {dataset}.",
            )
    if ledger.dataset(dataset) is None and ledger.known_as(*known.contents) is None:
        from understudy.ledger.admission import first_cap

        ledger.open_dataset(dataset, cap=plan.budget, unit=plan.unit, by_hand=False)
        listener.say(first_cap(dataset, plan.budget))
    if known.contents:
        for other in ledger.identify(dataset, *known.contents, sketch=Sketch(found.cells)):
            warnings.warn(
                f"Much of this table is known as the dataset {other!r}, but this run is charged to {dataset!r}. "
                "If they are the same data, use one of the two names (--dataset) for all runs: budgets spent under "
                "two names are never added up.",
                UnderstudyWarning,
                stacklevel=2,
            )
    began = {"sha": found.digest, "ledger": ledger.id}

    def begin() -> None:
        session.begin(plan)
        if kept is None:
            session.store.keep(
                _FINGERPRINT, {name: np.frombuffer(text.encode(), dtype=np.uint8) for name, text in began.items()}
            )

    digests = {
        seal.name: session.store.digest(seal.name, key=ledger.fingerprint_key) or "" for seal in session.store.seals()
    }
    receipt = ledger.charge(dataset, plan, run_id=session.store.run_id, kept=digests, begin=begin)  # or change nothing
    listener.say(f"The ledger charged {plan.budget} to dataset {dataset!r} for this run ({ledger.location}).")
    opened = ledger.dataset(dataset)
    assert opened is not None
    return Paid(_door(plan, receipt, session, ledger, found.digest), opened.hash_key)


def _door(plan: Plan, receipt: Receipt, session: Session, ledger: Ledger | None, rows: str) -> Measurements:
    return Measurements(plan, receipt, session.noise, session.store, ledger, rows, note=session.folder.note_privately)
