"""Keep the ledger: open datasets, check and book the spending of runs, and never delete an entry."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

import sqlalchemy as sa

from understudy.base.errors import LedgerError, PrivacyError
from understudy.ledger import admission, rows
from understudy.ledger.database import Database
from understudy.ledger.location import (
    begins_by_itself,
    default_location,
    describe,
    file_of,
    keep_to_owner,
    make_folder,
    parse_location,
    require_one_name,
)
from understudy.ledger.rows import datasets, draws, entries
from understudy.ledger.values import Balance, Dataset, Entry, Sketch, canonical_json, now, require_name
from understudy.privacy.accountant import CrossRunRule
from understudy.privacy.events import event_from_json
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.plan import Plan, Receipt
from understudy.privacy.sealed import Seal, charge_of
from understudy.privacy.unit import Unit

BEGINNING_SECONDS = 3  # more than creating a ledger takes
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Ledger:
    """The spending of every dataset, over all runs.

    Any number of processes may use one ledger at once. Every method is one transaction, and its writes are
    on disk when it returns.

    Args:
        location: a path (SQLite, on a local drive) or ``postgresql://USER:PASSWORD@HOST/DATABASE``. Default:
            :func:`default_location`. A missing ledger is only created in the user's state folder, which is used if
            neither ``location`` nor ``UNDERSTUDY_LEDGER`` names one. Elsewhere use :meth:`create`.
        ledger_id: the :attr:`id` that it must have.

    Raises LedgerError here and in every method, if the ledger is missing, damaged or empty, cannot be reached, read or
    written, has several names, has a different id than ``ledger_id``, belongs to another program, or has a different
    format version.
    """

    id: str
    """32 hexadecimal digits, made with the ledger."""

    fingerprint_key: bytes
    """32 random bytes that key the content fingerprints of this ledger; made with it and never changed."""

    def __init__(self, location: str | Path | None = None, *, ledger_id: str | None = None) -> None:
        self._database = Database(parse_location(location or default_location()))
        settings = self._settings()
        file = self._database.file
        if settings is None and file is not None and begins_by_itself(location):
            if file.exists():  # another process may be about to make a ledger of it
                deadline = time.monotonic() + BEGINNING_SECONDS
                while file.exists() and not file.stat().st_size and time.monotonic() < deadline:
                    time.sleep(0.05)
            else:
                _begin(self._database, strict=False)
            settings = self._settings()
        if settings is None:
            raise _no_ledger(self.location, ", but an empty file" if file and file.exists() else "")
        if ledger_id is not None and ledger_id != settings.id:
            raise LedgerError(
                f"The ledger at {self.location} has a different id ({settings.id}) than --ledger-id.",
                "Name the ledger that has this id (--ledger), or correct --ledger-id.",
            )
        if file is not None:
            keep_to_owner(file)
        self.id = settings.id
        self.fingerprint_key = settings.fingerprint_key

    @classmethod
    def create(cls, location: str | Path | None = None, *, strict: bool | None = None) -> Ledger:
        """Create a ledger, or open it if it exists. Another program's file is not changed (LedgerError).

        ``strict``: whether every dataset must be opened by hand before a run; a change is recorded. None does not
        change an existing ledger, and makes a new one strict if it is in PostgreSQL.
        """
        database = Database(parse_location(location or default_location()))
        _begin(database, strict=database.file is None if strict is None else strict)
        database.close()
        ledger = cls(location)
        if strict is not None and strict != ledger.strict:
            with ledger._opened(to_write=True) as connection:
                rows.set_strict(connection, strict=strict)
        return ledger

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    @property
    def location(self) -> str:
        """Return the location without user and password, which may be shown."""
        return self._database.place

    @property
    def strict(self) -> bool:
        """Return whether the ledger refuses runs on datasets that are not open (a run cannot open one itself)."""
        with self._opened() as connection:
            return rows.is_strict(connection)

    @property
    def strict_changes(self) -> tuple[tuple[datetime, bool], ...]:
        """Return when the ledger was made strict (True) or not strict (False), in order."""
        with self._opened() as connection:
            settings = rows.read_meta(connection)
        return () if settings is None else settings.strict_changes

    def open_dataset(
        self,
        name: str,
        *,
        cap: Budget | SecretBudget,
        unit: Unit,
        rule: CrossRunRule | None = None,
        by_hand: bool = True,
    ) -> Dataset:
        """Open a dataset. Opening it again with the same values changes nothing; other values are a LedgerError.

        Args:
            name: 1 to 64 letters, digits, dots, underscores and hyphens.
            cap: the most that all runs together may spend; a ``SecretBudget`` if the unit is a secret.
            unit: the privacy unit.
            rule: ``basic`` (the default) adds the stated (epsilon, delta) of the runs; ``rdp`` composes all of their
                events in one Renyi accountant at the cap's delta. Posteriors never add: for secrets it is ``rdp``.
            by_hand: False if a run opens it with its own budget, which a strict ledger refuses.

        Raises ConfigError if the name or the rule is invalid, or the unit does not allow this kind of cap.
        """
        require_name(name)
        rule = admission.rule_for(cap, unit, rule)
        epsilon, delta = rows.stored(cap)
        with self._opened(to_write=True) as connection:
            known = rows.find(connection, name)
            if known is not None:
                if (known.cap, known.unit.name, known.rule) != (cap, unit.name, rule):
                    raise LedgerError(
                        f"Dataset {name!r} is already open with cap {known.cap}, unit {known.unit.name} "
                        f"and rule {known.rule}.",
                        f"Keep these values; a cap can be raised with: {admission.raising(name, known.cap)}",
                    )
                return known
            if not by_hand and rows.is_strict(connection):
                raise admission.not_opened(name, unit)
            connection.execute(
                sa.insert(datasets).values(
                    name=name,
                    cap_epsilon=epsilon,
                    cap_delta=delta,
                    unit=canonical_json(unit.to_json()),
                    rule=rule,
                    hash_key=secrets.token_hex(32),
                    opened_at=now(),
                )
            )
            return rows.require(connection, name)

    def raise_cap(self, name: str, *, cap: Budget | SecretBudget, note: str = "") -> Dataset:
        """Raise a dataset's cap and record it in the history. The same cap changes nothing; LedgerError if lower."""
        with self._opened(to_write=True) as connection:
            known = rows.require(connection, name)
            admission.require_no_lower(known, cap)
            if cap == known.cap:
                return known
            epsilon, delta = rows.stored(cap)
            connection.execute(
                sa.update(datasets).where(datasets.c.name == name).values(cap_epsilon=epsilon, cap_delta=delta)
            )
            connection.execute(
                sa.insert(entries).values(
                    dataset=name, kind="cap", at=now(), epsilon=epsilon, delta=delta, charges="[]", note=note
                )
            )
            return rows.require(connection, name)

    def dataset(self, name: str) -> Dataset | None:
        with self._opened() as connection:
            return rows.find(connection, name)

    def datasets(self) -> list[Dataset]:
        with self._opened() as connection:
            return rows.every_dataset(connection)

    def history(self, name: str) -> list[Entry]:
        """Return every run that was charged and every raise of the cap, in order."""
        with self._opened() as connection:
            rows.require(connection, name)
            return rows.history(connection, name)

    def account(self, name: str) -> list[Balance]:
        """Return the spending and the cap after each entry of the history, in order."""
        with self._opened() as connection:
            return admission.account(connection, rows.require(connection, name))

    def spent(self, name: str) -> Budget | SecretBudget | None:
        """Return the spending of all runs so far (for secrets: the posterior at the cap's prior); None without runs."""
        with self._opened() as connection:
            return admission.spent(connection, rows.require(connection, name))

    def remaining(self, name: str) -> Budget | SecretBudget | None:
        """Return the cap less :meth:`spent`; None if no epsilon is left, or once anything is spent on secrets.

        Posteriors neither add nor subtract: after a first run only :meth:`check` shows whether a run still fits. With
        rule ``basic`` this is the budget of the largest run that fits; with ``rdp`` it is at the cap's delta, and a
        larger run may fit.
        """
        with self._opened() as connection:
            dataset = rows.require(connection, name)
            return admission.remaining(dataset, admission.spent(connection, dataset))

    def check(self, name: str, plan: Plan, *, run_id: str | None = None) -> None:
        """Check that the plan could be charged to the dataset now, or was charged as run ``run_id``; for a dataset that
        is not open, that a run may open it. Writes nothing.

        Raises:
            BudgetExceeded: if it does not fit into the remaining budget.
            LedgerError: if the dataset has a different unit, or is not open in a strict ledger, or the run was charged
                differently.
        """
        if self.dataset(name) is not None:
            with self._opened() as connection:
                admission.admit(connection, name, plan, run_id)
            return
        require_name(name)
        if self.strict:
            raise admission.not_opened(name, plan.unit)

    def charge(
        self,
        name: str,
        plan: Plan,
        *,
        run_id: str,
        note: str = "",
        kept: Mapping[str, str] = _NOTHING,
        begin: Callable[[], object] = lambda: None,
    ) -> Receipt:
        """Check the plan and book it, as one serialised transaction that is on disk when this returns.

        Charging the same run with the same charges again books nothing and returns a new receipt.

        Args:
            kept: digests of the noisy values that the run sampled before and still has, by charge (or part of it).
            begin: called last before the commit, and never if the charge is refused. It makes the run durable, so that
                no crash leaves a charge whose run is unknown. If it raises an error, nothing is booked.

        Raises:
            BudgetExceeded, LedgerError: as :meth:`check`; nothing is booked then.
            LedgerError: if a confirmed value of this run is not among ``kept``.
        """
        epsilon, delta = rows.stored(plan.budget)
        with self._opened(to_write=True) as connection:
            if admission.admit(connection, name, plan, run_id):
                connection.execute(
                    sa.insert(entries).values(
                        dataset=name,
                        kind="run",
                        at=now(),
                        epsilon=epsilon,
                        delta=delta,
                        run_id=run_id,
                        method=plan.method,
                        unit=canonical_json(plan.unit.to_json()),
                        charges=canonical_json([charge.to_json() for charge in plan.charges]),
                        note=note,
                    )
                )
            admission.require_same_draws(rows.drawn(connection, run_id), kept)
            number = rows.entry_number(connection, run_id)
            begin()
        return Receipt(run_id, plan, ledger_id=self.id, charge_number=number)

    def confirm(self, seal: Seal, digest: str) -> None:
        """Record, before a noisy value is used, that it is the one value of its charge; repeating it changes nothing.

        A run that is resumed from a copy of its folder would sample a different value, which is refused.

        Args:
            seal: from the receipt of :meth:`charge`; its ``name`` is that of the charge that paid for the value, or of
                a part of it: ``CHARGE/PART``.
            digest: a hash of the value with its seal, keyed with :attr:`fingerprint_key`; never leaves the ledger.

        Raises:
            LedgerError: if a different value is confirmed under this name.
            PrivacyError: if the ledger has no such charge of this run, or the noise is not from the system's entropy.
        """
        with self._opened(to_write=True) as connection:
            booked = rows.booked(connection, seal.run_id)
            entry = None if booked is None else booked[1]
            known = {} if entry is None else {each["name"]: event_from_json(each["event"]) for each in entry.charges}
            if (
                not seal.private
                or seal.ledger_id != self.id
                or entry is None
                or seal.charge_number != rows.entry_number(connection, seal.run_id)
                or seal.unit != entry.unit
                or known.get(charge_of(seal.name)) != seal.event
            ):
                raise PrivacyError(
                    f"The ledger has no charge for the noisy value {seal.name!r} of this run.",
                    "Charge the plan first, and do not change the run's private folder.",
                )
            if used := rows.drawn(connection, seal.run_id, seal.name):
                admission.require_same_draws(used, {seal.name: digest})
            else:
                connection.execute(sa.insert(draws).values(run_id=seal.run_id, name=seal.name, digest=digest, at=now()))

    def known_as(self, *contents: str) -> str | None:
        """Return the name of the dataset that one of these contents belongs to; None if they are new."""
        with self._opened() as connection:
            return next(iter(rows.known_as(connection, contents)), None)

    def identify(self, name: str, *contents: str, sketch: Sketch | None = None) -> list[str]:
        """Record that the data with these content hashes belong to the dataset; data that grow add new hashes.

        Args:
            contents: hashes of its content, keyed with :attr:`fingerprint_key`; they never leave the ledger.
            sketch: a sample of the hashes of its cells (:class:`~understudy.ledger.values.Sketch`), with the same key.

        Returns:
            The other datasets that share much of their content with this one, sorted.

        Raises LedgerError if one of the contents belongs to another dataset, or the dataset is not open.
        """
        with self._opened(to_write=True) as connection:
            others = [known for known in rows.known_as(connection, contents) if known != name]
            if others:
                raise LedgerError(
                    f"The ledger knows these data as the dataset {others[0]!r}.",
                    f"Use --dataset {others[0]}: its spending counts, whatever the file is called.",
                )
            rows.require(connection, name)
            rows.add_prints(connection, name, contents)
            if sketch is None:
                return []
            rows.add_sketch(connection, name, sketch)
            return rows.similar(connection, name, sketch)

    def _settings(self) -> rows.Meta | None:
        file = self._database.file
        if file is not None:
            if not file.exists():
                return None
            require_one_name(file)
        with self._database.read() as connection:
            return rows.read_meta(connection)

    @contextmanager
    def _opened(self, *, to_write: bool = False) -> Iterator[sa.Connection]:
        if to_write and self._database.file is not None:
            require_one_name(self._database.file)  # it may have got a second name since
        with self._database.write() if to_write else self._database.read() as connection:
            found = sa.select(rows.meta.c.value).where(rows.meta.c.key == "id")
            if connection.execute(found).scalar_one_or_none() != self.id:
                raise LedgerError(
                    f"The ledger at {self.location} was replaced by a different one.",
                    f"Restore the ledger with the id {self.id} (is its drive mounted?), then repeat the command.",
                )
            yield connection


def require_named(location: str | Path | None) -> None:
    """Raise LedgerError if a ledger that was named is a file that does not exist. Opens and creates nothing."""
    url = parse_location(location or default_location())
    file = file_of(url)
    if not (file is None or file.exists() or begins_by_itself(location)):
        raise _no_ledger(describe(url))


def _no_ledger(place: str, found: str = "") -> LedgerError:
    return LedgerError(
        f"There is no ledger at {place}{found}.",
        "If there was one, check that its drive is mounted, or restore it from a backup; else create it with: "
        f"understudy ledger create --ledger {shlex.quote(place)}",
    )


def _begin(database: Database, *, strict: bool) -> None:
    """Make the ledger, unless it exists."""
    if database.file is not None:
        if not database.file.exists():
            make_folder(database.file)
        require_one_name(database.file)
        if database.file.exists():
            with database.read() as connection:
                if rows.read_meta(connection) is not None:  # else the file is empty; another program's raises an error
                    return
    with database.write(create=True) as connection:
        if rows.read_meta(connection) is None:
            rows.create(connection, strict=strict)
