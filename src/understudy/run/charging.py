"""Identify and charge: what stands between a plan and its first value, for whoever makes a release."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from understudy.config import LedgerParameters
from understudy.corpus import Corpus
from understudy.corpus.read import proposed_name
from understudy.errors import ConfigError, ResumeError, UnderstudyWarning
from understudy.privacy.plan import Plan, Receipt
from understudy.run.listener import Listener
from understudy.run.measuring import Measurements
from understudy.run.session import Session

if TYPE_CHECKING:
    from understudy.ledger import Ledger
    from understudy.store import RunStore

_FINGERPRINT = "fingerprint"


def dataset_name(declared: str | None, files: Sequence[str]) -> str:
    """The dataset's name in the ledger: the declared one, else the stem of its one file.

    Raises:
        ConfigError: if there is neither.
    """
    name = declared or (proposed_name(files[0]) if len(files) == 1 else None)
    if name is None:
        raise ConfigError(
            "This dataset has no name for the ledger, as one file's stem would be.", "Name it with --dataset NAME."
        )
    return name


def open_ledger(config: LedgerParameters, store: RunStore) -> Ledger:
    """The ledger that the configuration names.

    Raises:
        LedgerError: if it is not there, or not the one that the configuration pins.
        ResumeError: if the run in the folder was charged in another.
    """
    from understudy.ledger import Ledger

    ledger = Ledger(config.ledger, ledger_id=config.ledger_id)
    if ledger_of(store) not in (None, ledger.id):
        ledger.close()
        raise ResumeError(
            f"The run in this folder was charged in another ledger than {ledger.location}.",
            "Name that one (--ledger), or use --fresh to start anew (which charges the budget again).",
        )
    return ledger


def ledger_of(store: RunStore) -> str | None:
    """The id of the ledger in which the run was charged; None if it was not, or an older version did not say."""
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
    rows: str,
    session: Session,
    listener: Listener,
    *,
    known_only: bool = False,
) -> Paid:
    """Identify the data, then check and charge in one transaction; without a ledger nothing is charged nor promised.

    Args:
        ledger: None where noise is off or seeded.
        rows: keyed hash of all that the rows hold, by which a resumed run knows them again.
        known_only: refuse data that the ledger does not know: neither their texts nor each of their files.

    Raises:
        UnderstudyError: of the kind that says what is wrong; nothing is charged then.
    """
    if ledger is None:
        session.begin(plan)
        listener.say("NOT PRIVATE: noise is off or seeded; nothing is charged and no promise holds.")
        receipt = Receipt(session.store.run_id, plan)
        return Paid(_door(plan, receipt, session, None, rows), b"insecure")
    from understudy.ledger.values import Sketch

    known = corpus.identity(ledger.fingerprint_key, lines=Sketch.SIZE)
    kept = session.store.value(_FINGERPRINT)
    if kept is not None and bytes(kept["sha"]).decode() != rows:
        raise ResumeError(
            "The private data, or the ledger, are not those that this run began with.",
            "Use those it began with, or --fresh to start anew (which charges the budget again).",
        )
    if known_only and not _is_known(ledger, *known.contents):
        raise ConfigError(
            f"The real table is not the one that the ledger knows as {dataset!r}, whose stand-in is evaluated.",
            f"Give that one; or, if these are more data of it, say so with --dataset {dataset}.",
        )
    if ledger.dataset(dataset) is None and ledger.known_as(*known.contents) is None:
        ledger.open_dataset(dataset, cap=plan.budget, unit=plan.unit, by_hand=False)
        listener.say(f"Dataset {dataset!r} is new: opened with this run's budget {plan.budget} as its cap.")
    if known.contents:
        for other in ledger.identify(dataset, *known.contents, sketch=Sketch(known.lines)):
            warnings.warn(
                f"Much of this table is known as the dataset {other!r}, and this run counts for {dataset!r}. "
                "If they are the same data, use one of the two names (--dataset) for all runs: what is spent under "
                "two is never added up.",
                UnderstudyWarning,
                stacklevel=2,
            )
    if not session.begun:
        ledger.check(dataset, plan, run_id=session.store.run_id)  # a fresh run that is refused leaves the old one be
    session.begin(plan)
    if kept is None:
        began = {"sha": rows, "ledger": ledger.id}
        session.store.keep(
            _FINGERPRINT, {name: np.frombuffer(text.encode(), dtype=np.uint8) for name, text in began.items()}
        )
    digests = {
        seal.name: session.store.digest(seal.name, key=ledger.fingerprint_key) or "" for seal in session.store.seals()
    }
    receipt = ledger.charge(dataset, plan, run_id=session.store.run_id, kept=digests)
    listener.say(f"The ledger holds this run's charge of {plan.budget} to dataset {dataset!r} ({ledger.location}).")
    opened = ledger.dataset(dataset)
    assert opened is not None
    return Paid(_door(plan, receipt, session, ledger, rows), opened.hash_key)


def _door(plan: Plan, receipt: Receipt, session: Session, ledger: Ledger | None, rows: str) -> Measurements:
    return Measurements(plan, receipt, session.noise, session.store, ledger, rows, note=session.folder.note_privately)


def _is_known(ledger: Ledger, texts: str = "", *files: str) -> bool:
    """Whether all of a table is known: one known file does not let another one in."""
    digests = files if files and ledger.known_as(texts) is None else (texts,)
    return all(ledger.known_as(each) is not None for each in digests)
