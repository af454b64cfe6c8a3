"""The one door between private records and released values: pays, sums, samples noise, stores, has the ledger seal.

A value that is stored is read, never made again. One that the ledger will not seal is never handed on.
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
from understudy.corpus.verified import Contents
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

_FINGERPRINT = "fingerprint"
_OF_THE_RUN = {_FINGERPRINT, "embedder", "private model"}
_MARK = "understudy:mark"


@dataclass(frozen=True, repr=False)
class Measurements:
    """The one door between the private records of a run and its released values.

    Args:
        noise: where noise comes from; of the store's own origin.
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
    opened: set[str] = field(default_factory=set)

    def measure(
        self, name: str, query: Query[Any] | OpenQuery, data: Batches[Any], *, rates: Rates | None = None
    ) -> SealedValue:
        """The noisy sum of ``query`` over ``data``, under the charge ``name``: ``Float64[query.shape]`` as ``value``.

        Of an :class:`~understudy.privacy.measurement.OpenQuery` the noisy sums that are above the threshold, with
        their names.

        Raises PrivacyError if no unused charge of this name is recorded, or the query is not the one that was planned.
        """

        def value() -> Arrays:
            mechanism, start = self.receipt.pay(name), time.perf_counter()
            if isinstance(query, OpenQuery) != isinstance(mechanism, NoisySelection):
                raise bug("A query is not the one that was planned.", "names that nobody listed are selected")
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
        """What the charge's mechanism gives to those who take their values in parts. Raises PrivacyError if no unused
        charge of this name is recorded."""
        given = self.receipt.pay(name).open(self.noise)
        self.opened.add(name)
        return given

    def seal(self, name: str, make: Callable[[], Arrays]) -> SealedValue:
        """The part ``CHARGE/PART`` of an opened charge, stored and sealed before anything is done with it.

        Raises:
            PrivacyError: if it is no part of a charge that was opened in this process (a sum is sealed by
                :meth:`measure` alone), or what is stored is sealed otherwise.
            LedgerError: if another value of this name was used before, by a copy of the run's folder.
        """
        if charge_of(name) == name or charge_of(name) not in self.opened:
            raise bug(
                f"{name!r} is no part of a charge that was opened.",
                "sums are measured, and parts are sealed after their charge is opened",
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
        """Something public, or made from sealed values, that a resumed run must find as it was.

        Raises PrivacyError if a charge pays for values of this name: they are sealed.
        """
        if charge_of(name) in {charge.name for charge in self.plan.charges} | _OF_THE_RUN:
            raise bug(
                f"{name!r} is a value that a charge pays for, or one of the run's own.",
                "what is paid for is sealed, and the run's own names are not taken",
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
                f"What the run kept as {name!r} is not what it stored.",
                "Put back the private folder as the run left it: stores are not moved between runs.",
            )
        return found

    def _mark(self, name: str, arrays: Arrays, key: bytes) -> NDArray[np.uint8]:
        """A keyed hash of what is kept, of this run and name."""
        whole = hmac.new(key, f"{self.store.run_id} {name}".encode(), hashlib.sha256)
        for each in sorted(arrays):
            whole.update(f" {each} {arrays[each].dtype} {arrays[each].shape} ".encode())
            whole.update(np.ascontiguousarray(arrays[each]).tobytes())
        return np.frombuffer(whole.digest(), dtype=np.uint8)


def open_ledger(named: LedgerParameters, store: RunStore) -> Ledger:
    """The ledger that is named."""
    from understudy.ledger import Ledger

    ledger = Ledger(named.ledger, ledger_id=named.ledger_id)
    if ledger_of(store) not in (None, ledger.id):
        ledger.close()
        raise ResumeError(
            f"The run in this folder was charged in another ledger than {ledger.location}.",
            "Name that one (--ledger), or use --fresh to start over (which charges the budget again).",
        )
    return ledger


def ledger_of(store: RunStore) -> str | None:
    """Return the id of the ledger in which the run was charged; None if it was not charged."""
    began = store.value(_FINGERPRINT) or {}
    return bytes(began["ledger"]).decode() if "ledger" in began else None


@dataclass(frozen=True, repr=False)
class Paid:
    """What a charge gives: the door to the private records, and the dataset's key."""

    door: Measurements
    hash_key: bytes


def pay(
    ledger: Ledger | None,
    dataset: str,
    plan: Plan,
    corpus: Corpus,
    found: Contents | None,
    session: Session,
    listener: Listener,
    *,
    known_only: bool = False,
) -> Paid:
    """Identify the data, then check and charge in one transaction; without a ledger nothing is charged nor promised.
    Where it raises, an UnderstudyError of the kind that says what is wrong, nothing is charged.

    Args:
        ledger: None where noise is off or seeded.
        found: what the corpus holds, by which a resumed run knows it again; None without a ledger.
        known_only: refuse data that the ledger does not know: neither their texts nor each of their files.
    """
    if ledger is None:
        session.begin(plan)
        listener.say("NOT PRIVATE: noise is off or seeded; nothing is charged and no promise holds.")
        receipt = Receipt(session.store.run_id, plan)
        return Paid(session.witness.door(_door(plan, receipt, session, None, "")), b"insecure")
    assert found is not None
    known = corpus.identity(ledger.fingerprint_key, texts=found.texts)
    kept = session.store.value(_FINGERPRINT)
    if kept is not None and bytes(kept["sha"]).decode() != found.digest:
        raise ResumeError(
            "The private data, or the ledger, are not those that this run began with.",
            "Use those it began with, or --fresh to start over (which charges the budget again).",
        )
    if known_only and ledger.known_as(*known.texts) is None:
        files = set(known.contents) - set(known.texts)
        if not files or any(ledger.known_as(each) is None for each in files):  # one does not let another one in
            raise ConfigError(
                f"The real table is not the one that the ledger knows as {dataset!r}, whose stand-in is evaluated.",
                f"Give that one; or, if these are more data of it, say so with --dataset {dataset}.",
            )
    if ledger.dataset(dataset) is None and ledger.known_as(*known.contents) is None:
        from understudy.ledger.admission import first_cap

        listener.say(first_cap(dataset, plan.budget))
        ledger.open_dataset(dataset, cap=plan.budget, unit=plan.unit, by_hand=False)
        listener.say(f"Dataset {dataset!r} is new: opened with this run's budget {plan.budget} as its cap.")
    if known.contents:
        for other in ledger.identify(dataset, *known.contents, sketch=Sketch(found.cells)):
            warnings.warn(
                f"Much of this table is known as the dataset {other!r}, and this run counts for {dataset!r}. "
                "If they are the same data, use one of the two names (--dataset) for all runs: what is spent under "
                "two is never added up.",
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
    receipt = ledger.charge(dataset, plan, run_id=session.store.run_id, kept=digests, begin=begin)  # or leave all be
    listener.say(f"The ledger holds this run's charge of {plan.budget} to dataset {dataset!r} ({ledger.location}).")
    opened = ledger.dataset(dataset)
    assert opened is not None
    return Paid(_door(plan, receipt, session, ledger, found.digest), opened.hash_key)


def _door(plan: Plan, receipt: Receipt, session: Session, ledger: Ledger | None, rows: str) -> Measurements:
    return Measurements(plan, receipt, session.noise, session.store, ledger, rows, note=session.folder.note_privately)
