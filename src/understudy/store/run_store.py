"""The durable state of one run: what makes a resumed run spend, draw and pay nothing twice.

What is stored here is public (configuration, plan), noised and paid for (values), or made from such by a
language model (answers). One thing is exact: the keyed fingerprint of the data, by which a resumed run knows
them again. It says nothing to whoever lacks the ledger's key, and stays in ``private/``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from understudy.errors import PrivacyError, ResumeError
from understudy.store.answers import AnswerStore
from understudy.store.aside import remove_orphans, set_aside
from understudy.store.database import Database
from understudy.store.lock import FolderLock

if TYPE_CHECKING:
    from numpy.typing import NDArray

FILE = "run.sqlite"


class RunStore:
    """Use :meth:`open`.

    Every method that writes is one transaction, on disk when it returns. Every method raises ResumeError if
    the file is corrupt or cannot be read or written.
    """

    run_id: str
    """32 hexadecimal digits, made with the store: the name of the run in the ledger."""

    answers: AnswerStore

    def __init__(self, database: Database, lock: FolderLock) -> None:
        self._database = database
        self._lock = lock
        self.answers = AnswerStore(database)
        self.run_id = self._setting_once("run_id", uuid.uuid4().hex)

    @classmethod
    def open(cls, folder: Path, *, fresh: bool = False) -> RunStore:
        """Open, or make, the store of an output's private folder, and keep others out of it.

        Args:
            folder: made, with its parents, if it is not there; its mode is set to 0700.
            fresh: begin a new run. The old store is kept under another name.

        Raises:
            ResumeError: if another process uses the folder, it cannot be written, or its store is corrupt,
                another program's or from a newer version (these three only without ``fresh``).
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            lock = FolderLock(folder)
        except OSError as error:
            raise ResumeError(f"{folder} cannot be written ({error.strerror}).", "Use another --output.") from None
        try:
            if fresh:
                set_aside(folder / FILE)
            remove_orphans(folder / FILE)
            database = Database(folder / FILE)
        except BaseException:
            lock.release()
            raise
        try:
            return cls(database, lock)
        except BaseException:
            database.close()
            lock.release()
            raise

    def __enter__(self) -> RunStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let others use the folder."""
        self._database.close()
        self._lock.release()

    def begin(self, *, config_digest: str, config: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
        """Store the run's settings, or see that they are those it began with.

        Args:
            config_digest: of everything that a resumed run must share with the first.
            config: the settings, public, as JSON fields.
            plan: the plan, as JSON fields.

        Raises:
            ResumeError: if the digest is another; it names the settings that changed.
        """
        kept = json.dumps({"digest": config_digest, "config": config, "plan": plan}, sort_keys=True)
        before = json.loads(self._setting_once("run", kept))
        if before["digest"] != config_digest:
            changed = _changes(before["config"], json.loads(kept)["config"])
            again = " (which charges the budget again)" if before["plan"].get("charges") else ""
            raise ResumeError(
                f"The output folder holds a run with other settings ({changed}).",
                f"Use the settings it began with, another --output, or --fresh to start anew{again}.",
            )

    def value(self, name: str) -> dict[str, NDArray[Any]] | None:
        """The arrays kept under a name, None if there are none."""
        found = self._encoded(name)
        return None if found is None else _decode(found)

    def names(self) -> list[str]:
        """What values are kept."""
        with self._database.reading() as connection:
            return [name for (name,) in connection.execute("SELECT name FROM value ORDER BY name")]

    def digest(self, name: str, *, key: bytes) -> str | None:
        """A keyed SHA-256 (64 hexadecimal digits) of what is kept under a name, None if nothing is."""
        found = self._encoded(name)
        return None if found is None else hmac.new(key, found, hashlib.sha256).hexdigest()

    def keep(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Store noisy values that are paid for, before anything is done with them.

        Args:
            name: of the release they belong to.
            arrays: booleans, integers or floats, of any shape.

        Raises:
            PrivacyError: if the name is taken: a release is drawn once.
        """
        encoded = _encode(arrays)
        with self._database.transaction() as connection:
            if connection.execute("SELECT 1 FROM value WHERE name = ?", (name,)).fetchone():
                raise PrivacyError(
                    f"The values {name!r} of this run are stored already.",
                    "Use the stored ones: a release is drawn once.",
                )
            connection.execute("INSERT INTO value VALUES (?, ?)", (name, encoded))

    def keep_once(self, name: str, draw: Callable[[], Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        """The arrays kept under a name; if there are none, draw them and keep them first."""
        found = self.value(name)
        if found is None:
            self.keep(name, draw())
            found = self.value(name)
        assert found is not None
        return found

    def mark(self, stage: str) -> None:
        """Note that a stage is done; marking it again changes nothing."""
        with self._database.transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO stage (name) VALUES (?)", (stage,))

    def stages(self) -> list[str]:
        """The stages that are done, in order."""
        with self._database.reading() as connection:
            return [name for (name,) in connection.execute("SELECT name FROM stage ORDER BY number")]

    def _encoded(self, name: str) -> bytes | None:
        with self._database.reading() as connection:
            row = connection.execute("SELECT arrays FROM value WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def _setting_once(self, name: str, value: str) -> str:
        """The stored setting; ``value`` is stored if there is none."""
        with self._database.transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO setting VALUES (?, ?)", (name, value))
            (stored,) = connection.execute("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
        return str(stored)


def _encode(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    import numpy as np
    from safetensors.numpy import save

    # safetensors takes an array's memory as it lies: a view with strides would come back wrong.
    return bytes(save({name: np.asarray(array, order="C") for name, array in arrays.items()}))


def _decode(encoded: bytes) -> dict[str, NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return dict(load(encoded))
    except SafetensorError:
        raise ResumeError("The run store is damaged.", "Restore it from a backup, or use --fresh.") from None


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The settings that differ, with their values where these are short; of those in a group, their names."""
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return (
        "; ".join(_change(key, before.get(key), after.get(key)) for key in changed)
        or "its inputs or its version changed, its options did not"
    )


def _change(key: str, before: object, after: object) -> str:
    if isinstance(before, dict) and isinstance(after, dict):
        names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        return f"{key}: {', '.join(names)}"
    return f"{key}: {_short(before)} became {_short(after)}"


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else "(long)"
