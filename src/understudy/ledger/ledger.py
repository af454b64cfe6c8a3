"""The ledger: opens datasets, checks and books what runs spend, and forgets nothing."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType

import sqlalchemy as sa

from understudy.errors import LedgerError, PrivacyError
from understudy.ledger import admission, caps, rows, schema
from understudy.ledger.database import Database
from understudy.ledger.location import default_location, parse_location
from understudy.ledger.schema import datasets, draws, entries, fingerprints
from understudy.ledger.values import Dataset, Entry, canonical, now, require_name
from understudy.privacy.accountant import CrossRunRule
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan, Receipt, charge_of
from understudy.privacy.secrets.budget import SecretBudget
from understudy.privacy.unit import Unit

_NOTHING: Mapping[str, str] = MappingProxyType({})


class Ledger:
    """What every dataset has spent, over all runs; made on first use.

    Any number of processes may use one ledger at once. Every method is one transaction, and what it wrote is
    on disk when it returns.

    Args:
        location: a path (SQLite, never on a network drive) or ``postgresql://USER:PASSWORD@HOST/DATABASE``.
            Without it, :func:`default_location`.

    Raises:
        LedgerError: here and in every method, if the ledger cannot be reached, read or written, is another
            program's file, or is from a newer version.
    """

    fingerprint_key: bytes
    """32 random bytes that key the content fingerprints of this ledger; made with it, the same for ever."""

    def __init__(self, location: str | Path | None = None) -> None:
        self._database = Database(parse_location(location or default_location()))
        with self._database.read() as connection:
            settings = schema.read_meta(connection)
        if settings is None:
            with self._database.write() as connection:  # another process may have been quicker
                settings = schema.read_meta(connection) or schema.create(connection)
        self.fingerprint_key = bytes.fromhex(settings["fingerprint_key"])

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    @property
    def location(self) -> str:
        """Where it is, fit to be shown (no user, no password)."""
        return self._database.place

    def open_dataset(
        self, name: str, *, cap: Budget | SecretBudget, unit: Unit, rule: CrossRunRule | None = None
    ) -> Dataset:
        """Open a dataset; opening it again with the same values changes nothing.

        Args:
            name: 1 to 64 letters, digits, dots, underscores and hyphens.
            cap: what all runs together may spend; a ``SecretBudget`` where the unit is a secret.
            unit: the privacy unit.
            rule: ``basic`` (the default) adds the stated (epsilon, delta) of the runs; ``rdp`` composes all of their
                events in one Renyi accountant at the cap's delta. Posteriors never add: for secrets it is ``rdp``.

        Raises:
            ConfigError: if the name or the rule is impossible, or the cap is of a kind that the unit does not have.
            LedgerError: if the dataset is open with another cap, kind of unit, owner column or rule.
        """
        require_name(name)
        rule = caps.rule_for(cap, unit, rule)
        epsilon, delta = rows.stored(cap)
        with self._database.write() as connection:
            known = rows.find(connection, name)
            if known is not None:
                if (known.cap, known.unit.name, known.rule) != (cap, unit.name, rule):
                    raise LedgerError(
                        f"Dataset {name!r} is already open with cap {known.cap}, unit {known.unit.name} "
                        f"and rule {known.rule}.",
                        f"Keep these values; a cap can be raised with: {caps.raising(known)}",
                    )
                return known
            connection.execute(
                sa.insert(datasets).values(
                    name=name,
                    cap_epsilon=epsilon,
                    cap_delta=delta,
                    unit=canonical(unit.to_json()),
                    rule=rule,
                    hash_key=secrets.token_hex(32),
                    opened_at=now(),
                )
            )
            return rows.require(connection, name)

    def raise_cap(self, name: str, *, cap: Budget | SecretBudget, note: str = "") -> Dataset:
        """Raise a dataset's cap, and record it in the history; the same cap changes nothing.

        Raises:
            LedgerError: if the dataset is not open, or the new cap is lower in epsilon or delta, or (for secrets) in
                the posterior, or has another prior.
        """
        with self._database.write() as connection:
            known = rows.require(connection, name)
            caps.require_no_lower(known, cap)
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
        """The dataset of this name, None if it is not open."""
        with self._database.read() as connection:
            return rows.find(connection, name)

    def datasets(self) -> list[Dataset]:
        """Every dataset, by name."""
        with self._database.read() as connection:
            return rows.every_dataset(connection)

    def history(self, name: str) -> list[Entry]:
        """Every run that was charged and every raise of the cap, in order."""
        with self._database.read() as connection:
            rows.require(connection, name)
            return rows.history(connection, name)

    def spent(self, name: str) -> Budget | SecretBudget | None:
        """What the runs so far spend together (for secrets: the posterior at the cap's prior); None if nothing is."""
        with self._database.read() as connection:
            return admission.spent(connection, rows.require(connection, name))

    def remaining(self, name: str) -> Budget | SecretBudget | None:
        """The cap less :meth:`spent`; None if no epsilon is left, or once anything is spent on secrets.

        Posteriors neither add nor subtract: after a first run, what still fits depends on the events of the next, and
        only :meth:`check` can tell.

        With rule ``basic`` a run of this budget is the largest that fits. With rule ``rdp`` spending is at the
        cap's delta, and so is what remains: a larger run may fit.
        """
        with self._database.read() as connection:
            dataset = rows.require(connection, name)
            return admission.remaining(dataset, admission.spent(connection, dataset))

    def check(self, name: str, plan: Plan, *, run_id: str | None = None) -> None:
        """See that the plan could be charged now. Writes nothing.

        Args:
            name: the dataset.
            plan: what the run would spend.
            run_id: the run, if it may have been charged before: then it is paid for already.

        Raises:
            BudgetExceeded: if it does not fit into what remains.
            LedgerError: if the dataset is not open or has another unit, or the run was charged otherwise.
        """
        with self._database.read() as connection:
            admission.admit(connection, name, plan, run_id)

    def charge(
        self, name: str, plan: Plan, *, run_id: str, note: str = "", kept: Mapping[str, str] = _NOTHING
    ) -> Receipt:
        """Check the plan and book it, as one serialised transaction that is on disk when this returns.

        Charging the same run and charges again books nothing and returns a new receipt.

        Args:
            kept: digests of the noisy values that the run has drawn before and keeps, by charge (or part of it).

        Raises:
            BudgetExceeded, LedgerError: as :meth:`check`; nothing is booked then.
            LedgerError: if a value of this run is confirmed that is not among ``kept``.
        """
        epsilon, delta = rows.stored(plan.budget)
        with self._database.write() as connection:
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
                        unit=canonical(plan.unit.to_json()),
                        charges=canonical([charge.to_json() for charge in plan.charges]),
                        note=note,
                    )
                )
            admission.require_same_draws(rows.drawn(connection, run_id), kept)
        return Receipt(run_id, plan.charges)

    def confirm(self, run_id: str, name: str, digest: str) -> None:
        """Record that a noisy value is about to be used; confirming the same value again changes nothing.

        Whoever resumes the same run from a copy of its folder would draw another one: that is refused here.

        Args:
            run_id: the run, charged.
            name: of the charge that paid for the value, or of a part of what it paid for: ``CHARGE/PART``.
            digest: a hash of the value, keyed with :attr:`fingerprint_key`; never leaves the ledger.

        Raises:
            LedgerError: if another value is confirmed under this name.
            PrivacyError: if there is no such charge.
        """
        with self._database.write() as connection:
            booked = rows.booked(connection, run_id)
            if booked is None or charge_of(name) not in [charge["name"] for charge in booked[1].charges]:
                raise PrivacyError(f"The ledger has no charge {name!r} of this run.", "Charge the plan first.")
            if used := rows.drawn(connection, run_id, name):
                admission.require_same_draws(used, {name: digest})
            else:
                connection.execute(sa.insert(draws).values(run_id=run_id, name=name, digest=digest, at=now()))

    def known_as(self, fingerprint: str) -> str | None:
        """The name of the dataset that this content belongs to, None if it is new. Writes nothing."""
        with self._database.read() as connection:
            return rows.known_as(connection, fingerprint)

    def identify(self, name: str, fingerprint: str) -> None:
        """Record that the dataset has this content (again, or newly: data grow).

        Args:
            name: the dataset, open.
            fingerprint: a hash of the content, keyed with :attr:`fingerprint_key`; never leaves the ledger.

        Raises:
            LedgerError: if the content is known as another dataset's, or the dataset is not open.
        """
        with self._database.write() as connection:
            known = rows.known_as(connection, fingerprint)
            if known is None:
                rows.require(connection, name)
                connection.execute(sa.insert(fingerprints).values(fingerprint=fingerprint, dataset=name, at=now()))
            elif known != name:
                raise LedgerError(
                    f"This content is known as {known!r}.",
                    f"Use --dataset {known}: what was spent on it counts, whatever the file is called.",
                )
