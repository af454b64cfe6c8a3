"""Store the durable state of one run, so that a resumed run does not spend, sample or pay anything twice.

The stored data are public (configuration, plan), noised and paid for (values), or made from these by a
language model (answers). Two things are exact, and stay in ``private/``: the keyed fingerprint of the data, by which a
resumed run recognises them and which reveals nothing without the ledger's key; and which units are in a Poisson sample
that several noisy values are computed from.

A noisy value is stored with its seal, which alone says whether it is private (``docs/decisions/034``). Public data, and
data made from such values, have no seal. Runs without noise or with a seed have a separate file, so that no run
with a guarantee can use their values (``docs/decisions/034``).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import sqlite3
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from understudy.base.errors import PrivacyError, ResumeError
from understudy.base.files import private_folder, storage_error
from understudy.base.sqlite import connect
from understudy.ledger import locking
from understudy.ledger.locking import FolderLock, is_in_use
from understudy.ledger.store.database import (
    RESTORE,
    AnswerStore,
    Database,
    JobStore,
    discard,
    remove_orphans,
    set_aside,
    take_place,
)
from understudy.privacy.sealed import SYSTEM, NoiseOrigin, Seal, SealedValue, moved_store

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["AnswerStore", "RunStore", "is_in_use"]

_log = logging.getLogger(__name__)

FILE = "run.sqlite"
INSECURE_FILE = "insecure.sqlite"
_NEW = "new.sqlite"
"""The store of a new run in a used folder, until it begins."""
_RUN = "run"  # the setting that every run starts with
_SETTING = "SELECT value FROM setting WHERE name = ?"
_Settings = Mapping[str, Any]


def begun_settings(folder: Path, noise: NoiseOrigin) -> dict[str, Any]:
    """Return the settings that a run began with in an output's private folder; empty if no run began.

    Empty, after the same wait as for the folder's lock, if another process is using it.
    """
    path = folder / _file(noise)
    if not path.is_file():
        return {}
    try:
        with closing(connect(path, wait=locking.LOCK_SECONDS)) as connection:
            found = connection.execute(_SETTING, (_RUN,)).fetchone()
            return {} if found is None else dict(_beginning(found[0])["config"])
    except (sqlite3.Error, ResumeError):  # opening it for writing says what is wrong
        return {}


class RunStore:
    """The store of one run, made by :meth:`open`.

    Every method that writes is one transaction, on disk when it returns. Every method raises ResumeError if
    the file is damaged, and StorageError if it cannot be read or written now.
    """

    run_id: str
    """32 hexadecimal digits, made with the store: the name of the run in the ledger."""

    answers: AnswerStore

    jobs: JobStore

    noise: NoiseOrigin
    """The origin of the noise of every value in this store."""

    def __init__(self, database: Database, lock: FolderLock, noise: NoiseOrigin, folder: Path, fresh: bool) -> None:
        self._database = database
        self._lock = lock
        self._folder = folder
        self._fresh = fresh  # and not begun
        self._forgotten = False
        self.noise = noise
        self.answers = AnswerStore(database)
        self.jobs = JobStore(database)
        for (origin,) in database.rows("SELECT DISTINCT noise FROM value"):
            if (origin == SYSTEM) != (noise == SYSTEM):
                raise self._foreign(origin)
        self.run_id = self._setting_once("run_id", uuid.uuid4().hex)

    @classmethod
    def open(cls, folder: Path, *, noise: NoiseOrigin, fresh: bool = False) -> RunStore:
        """Open, or make, the store of an output's private folder (mode 0700), and lock it.

        Args:
            noise: the origin of this run's noise. Runs without noise or with a seed have a different file.
            fresh: begin a new run. The old stores do not change until :meth:`begin`, which keeps them under other
                names; data stored earlier are lost if the process ends before it.

        Raises:
            ResumeError: if another process uses the folder, its store is damaged, another program's or another
                version's, or the run has no noise (or a seed) but one with a guarantee began (the last four only
                without ``fresh``).
            StorageError: if it cannot be written.
            PrivacyError: if it contains values without a guarantee and the run has one, or the other way round.
        """
        try:
            private_folder(folder).chmod(0o700)
            lock = FolderLock(folder)
        except OSError as error:
            raise storage_error(folder, error) from None
        with ExitStack() as stack:  # which undoes the steps if it cannot be opened
            stack.callback(lock.release)
            path = folder / (_NEW if fresh else _file(noise))
            discard(folder / _NEW)
            if noise != SYSTEM and not fresh and (folder / FILE).exists():
                with closing(Database(folder / FILE)) as promised:
                    if promised.rows(_SETTING, _RUN):
                        raise ResumeError(
                            "The output folder contains a run with a guarantee, and results that are NOT PRIVATE must "
                            "not replace its own.",
                            "Use another --output for a run without noise or with a seed.",
                        )
            remove_orphans(path)
            database = Database(path)
            stack.callback(database.close)
            store = cls(database, lock, noise, folder, fresh)
            stack.pop_all()
        return store

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()
        try:
            if self._fresh:
                discard(self._folder / _NEW)
            if self._forgotten and not self._fresh:
                discard(self._folder / _file(self.noise))
        finally:
            self._lock.release(remove=self._forgotten)

    def forget(self) -> None:
        """Delete the store and the folder's lock when they are closed, unless a run began in them.

        For a folder that this process made.
        """
        self._forgotten = self._began is None

    @property
    def charged(self) -> bool:
        """Return whether the run that began here was charged."""
        return self.noise == SYSTEM and bool(self.charges)

    @property
    def charges(self) -> list[dict[str, Any]]:
        """Return the charges of the plan that the run began with; empty before."""
        return [] if self._began is None else list(self._began["plan"].get("charges", ()))

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings that the run began with; empty before."""
        return {} if self._began is None else dict(self._began["config"])

    @property
    def _began(self) -> dict[str, Any] | None:
        found = self._database.rows(_SETTING, _RUN)
        return _beginning(found[0][0]) if found else None

    def begin(
        self,
        *,
        config_digest: str,
        config: _Settings,
        plan: _Settings,
        changeable: Collection[str] = (),
    ) -> str:
        """Store the run's settings, or check that they are those it began with. Returns the changes; empty if none.

        A fresh run's store now replaces the old ones. A crash leaves the old run or the new one.

        Args:
            config_digest: of everything that a resumed run must share with the first, and of ``changeable`` settings.

        Raises:
            ResumeError: if the digest differs; it names the settings that changed.
            StorageError: if an old store cannot be kept under a new name; it is not moved then.
        """
        kept = json.dumps({"digest": config_digest, "config": config, "plan": plan}, sort_keys=True)
        before = _beginning(self._setting_once(_RUN, kept))
        found = before["config"], json.loads(kept)["config"]
        fixed = [_without(each, changeable) for each in found]
        if before["digest"] != config_digest and (fixed[0] != fixed[1] or found[0] == found[1]):
            changed = _changes(*fixed)
            again = " (both charge the budget a second time)" if self.charged else ""
            free = f"`understudy generate {self._folder.parent.name} --output ELSEWHERE` writes more texts of its "
            free = f"{free}Release, in other numbers and ways, free. " if self.charged else ""
            raise ResumeError(
                f"The output folder contains a run with other settings ({changed}).",
                f"{free}Use the settings it began with, or another --output or --fresh to start over{again}.",
            )
        if self._fresh:
            self._database.move(self._folder / _file(self.noise), take_place)
            self._fresh = False
            set_aside(self._folder / (INSECURE_FILE if self.noise == SYSTEM else FILE))
        return "" if found[0] == found[1] else _changes(*found)

    @property
    def private(self) -> bool:
        """Return whether the run has noisy values and all are private: a property of the values, not of the process
        that reads them."""
        seals = self.seals()
        return bool(seals) and all(seal.private for seal in seals)

    def seals(self) -> list[Seal]:
        found = self._database.rows("SELECT seal FROM value WHERE seal IS NOT NULL ORDER BY name")
        return [_seal(text) for (text,) in found]

    def value(self, name: str) -> dict[str, NDArray[Any]] | None:
        """Return the arrays stored under a name; None if there are none.

        Raises PrivacyError if their noise has a different origin than this run's.
        """
        found = self._row(name)
        return None if found is None else _decode(found[0])

    def names(self) -> list[str]:
        return [name for (name,) in self._database.rows("SELECT name FROM value ORDER BY name")]

    def digest(self, name: str, *, key: bytes) -> str | None:
        """Return a keyed SHA-256 (64 hexadecimal digits) of a noisy value and its seal; None if there is no value."""
        encoded, seal = self._row(name) or (b"", None)
        if seal is None:
            return None
        return hmac.new(key, hashlib.sha256(encoded).digest() + seal.encode(), hashlib.sha256).hexdigest()

    def sealed(self, name: str) -> SealedValue | None:
        """Return the noisy value stored under a name, with its seal; None if there is none.

        Raises PrivacyError as :meth:`value`, or if the stored arrays have no seal or another value's seal.
        """
        found = self._row(name)
        if found is None:
            return None
        encoded, text = found
        seal = None if text is None else _seal(text)
        if seal is None or seal.name != name:
            raise moved_store(
                f"The stored value {name!r} of this run was changed: its seal is missing or belongs to another value."
            )
        return SealedValue(_decode(encoded), seal)

    def keep(self, name: str, arrays: Mapping[str, NDArray[Any]], *, seal: Seal | None = None) -> None:
        """Store ``arrays`` under ``name`` before they are used.

        Args:
            seal: the proof that a noisy value is paid for; None for public data, or data made from noisy values.

        Raises PrivacyError if the name is taken (a release is made once), or if the value's noise comes from another
        source than that of this run.
        """
        if seal is not None and seal.noise != self.noise:
            raise self._foreign(seal.noise)
        encoded = _encode(arrays)
        text = None if seal is None else json.dumps(seal.to_json(), sort_keys=True)
        with self._database.transaction() as connection:
            if connection.execute("SELECT 1 FROM value WHERE name = ?", (name,)).fetchone():
                raise PrivacyError(
                    f"The noisy value {name!r} of this run is stored already.",
                    "Use the stored value: each is sampled only once.",
                )
            connection.execute("INSERT INTO value VALUES (?, ?, ?, ?)", (name, encoded, self.noise, text))

    def keep_once(self, name: str, make: Callable[[], Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        """Return the arrays stored under a name; if there are none, call ``make`` and store its result. They must
        depend on released or public values only: they are stored without a seal."""
        found = self.value(name)
        if found is None:
            self.keep(name, make())
            found = self.value(name)
        assert found is not None
        return found

    def mark(self, stage: str) -> None:
        """Record that a stage of the run is done; recording it again changes nothing."""
        with self._database.transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO stage (name) VALUES (?)", (stage,))
        _log.debug("Stage reached: %s.", stage)

    def stages(self) -> list[str]:
        return [name for (name,) in self._database.rows("SELECT name FROM stage ORDER BY number")]

    def _row(self, name: str) -> tuple[bytes, str | None] | None:
        found = self._database.rows("SELECT arrays, noise, seal FROM value WHERE name = ?", name)
        if not found:
            return None
        ((encoded, noise, seal),) = found
        if noise != self.noise:
            raise self._foreign(noise)
        return bytes(encoded), seal

    def _foreign(self, noise: str) -> PrivacyError:
        return moved_store(
            f"The run store contains values whose noise is of another origin ({noise}) than this run's ({self.noise})."
        )

    def _setting_once(self, name: str, value: str) -> str:
        """Return the stored setting; ``value`` is stored first if there is none."""
        with self._database.transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO setting VALUES (?, ?)", (name, value))
            (stored,) = connection.execute(_SETTING, (name,)).fetchone()
        return str(stored)


def _file(noise: NoiseOrigin) -> str:
    return FILE if noise == SYSTEM else INSECURE_FILE


def _encode(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    import numpy as np
    from safetensors.numpy import save

    # safetensors copies an array's memory as it is: a view with strides would be read back wrong.
    return bytes(save({name: np.asarray(array, order="C") for name, array in arrays.items()}))


@contextmanager
def _undamaged(*errors: type[Exception]) -> Iterator[None]:
    expected: tuple[type[Exception], ...] = (ValueError, TypeError, KeyError, *errors)
    try:
        yield
    except expected:
        raise ResumeError("The saved state of this run is damaged.", RESTORE) from None


def _seal(text: str) -> Seal:
    with _undamaged():
        return Seal.from_json(json.loads(text))


def _beginning(text: str) -> dict[str, Any]:
    with _undamaged():
        found = json.loads(text)
        return {"digest": found["digest"], "config": dict(found["config"]), "plan": dict(found["plan"])}


def _decode(encoded: bytes) -> dict[str, NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    with _undamaged(SafetensorError):
        return dict(load(encoded))


def _without(settings: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    kept = {key: value for key, value in settings.items() if key not in names}
    return {key: _without(value, names) if isinstance(value, dict) else value for key, value in kept.items()}


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the settings that differ, with their values if these are short; for those in a group, their names."""
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return (
        "; ".join(_change(key, before.get(key), after.get(key)) for key in changed)
        or "its inputs or its version changed, its options did not"
    )


def _change(key: str, before: object, after: object) -> str:
    if isinstance(before, dict) and isinstance(after, dict):
        names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        return f"{key}: {', '.join(names)}"
    if _are_named(before) and _are_named(after):
        found = [{each["name"]: each for each in entries} for entries in (before, after)]
        return _change(key, *found) if found[0] != found[1] else f"{key}: their order"
    return f"{key}: {_short(before)} became {_short(after)}"


def _are_named(entries: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(entries, list) and all(isinstance(each, dict) and "name" in each for each in entries)


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else "(long)"
