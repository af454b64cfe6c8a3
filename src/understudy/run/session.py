"""One run's output folder in use: its store, its lock, and the settings it began with."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from understudy.base.errors import ResumeError, UnderstudyError, UnderstudyWarning, bug
from understudy.base.files import disk_faults, private_folder
from understudy.corpus.sources import SPOOL, SPOOLS_IN_USE
from understudy.ledger.store import RunStore
from understudy.models.types import ChatModel
from understudy.privacy.mechanisms import Declared
from understudy.privacy.noise import NoiseSource
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.sample import SubsampledSums
from understudy.privacy.sealed import SYSTEM
from understudy.run.outputs import PROGRESS, OutputFolder
from understudy.run.settings import OutputParameters


@dataclass(frozen=True)
class Listener:
    """Receives the messages and the progress of a run. They contain public facts only.

    Args:
        say: receives a line that a user can act on.
        progress: receives the name of a stage, how many parts are done, and of how many.
        detail: receives a line of figures, which the command line shows with ``--verbose``.
    """

    say: Callable[[str], None] = lambda _line: None
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None
    nobody: bool = False
    """Whether nobody may be reading: important messages are then Python warnings, too."""
    detail: Callable[[str], None] = lambda _line: None

    def warn(self, problem: str, line: str | None = None) -> None:
        """Show a line about a problem; also as a Python warning if nobody may be reading."""
        self.say(line or f"Warning: {problem}")
        if self.nobody:
            warnings.warn(problem, UnderstudyWarning, stacklevel=3)


SILENT = Listener(nobody=True)


_SCRATCH = "scratch"
BEGUN, RELEASED, GENERATED = "begun", "released", "generated"


@dataclass(frozen=True)
class Lasting:
    """The settings that a resumed run must share with the first.

    Args:
        settings: the content of the run store; all but the changeable ones must be equal.
        changeable: names of settings on which no stored value depends.
    """

    settings: Mapping[str, Any]
    changeable: Collection[str] = ()

    def free(self, more: Mapping[str, Any]) -> Lasting:
        """Return the settings of a folder with free results: these and ``more``. None may change."""
        return replace(self, settings={**self.settings, **more}, changeable=())


class Witness:
    """Observes a run in an audit, and may replace the objects that it is given; the run is not charged. This base class
    replaces nothing."""

    def door(self, door: Any) -> Any:
        """Return the door between the private records and the released values."""
        return door

    def chat(self, chat: ChatModel) -> ChatModel:
        """Return the language model that is asked for texts."""
        return chat


@dataclass(frozen=True)
class Session:
    """The output folder of a run in use: its lock, its store, and the source of its noise.

    All settings may change until it has begun (by a charge or an answer of a language model), then the changeable ones.
    """

    folder: OutputFolder
    store: RunStore
    lasting: Lasting
    visible_folder: OutputFolder | None
    noise: NoiseSource
    witness: Witness = field(default_factory=Witness)
    named_scratch: str | None = None
    """The scratch folder that the user named, which other runs may use, too."""

    @property
    def begun(self) -> bool:
        return BEGUN in self.store.stages()

    @property
    def scratch(self) -> Path:
        """Return the folder of private files that are deleted once the Release is made."""
        return Path(self.named_scratch or self.folder.private / _SCRATCH).expanduser().resolve()

    def scratch_of(self, rows: str) -> Path:
        """Return the part of the scratch folder for this run and these rows. Other runs use other parts."""
        private_folder(self.scratch)
        return private_folder(private_folder(self._scratch_of_run) / hashlib.sha256(rows.encode()).hexdigest()[:32])

    def clear_scratch(self) -> None:
        """Remove the scratch files, including those of a killed run; in a folder that the user named, this run's."""
        for each in (own := self.folder.private / _SCRATCH, self._scratch_of_run):
            shutil.rmtree(each, ignore_errors=True)
        if own.is_file():
            own.unlink()

    @property
    def _scratch_of_run(self) -> Path:
        return self.scratch / hashlib.sha256(self.store.run_id.encode()).hexdigest()[:32]

    def as_begun(self, plan: Plan) -> Plan:
        """Return the plan with the charges that the folder's run began with, which the ledger booked: another version
        or processor may compute different last digits of their noise."""
        known = plan.queries
        began = [
            replace(each, query=known if isinstance(each.mechanism, SubsampledSums) else known.get(each.name))
            for each in map(Charge.from_json, self.store.charges if self.begun else ())
        ]
        if [each.name for each in began] != [each.name for each in plan.charges]:
            sampled = any(isinstance(each.mechanism, SubsampledSums) for each in (*began, *plan.charges))
            return replace(plan, charges=tuple(began)) if began and sampled else plan  # with another declared number
        pairs = tuple(zip(plan.charges, began, strict=True))
        if any(_shape(own) != _shape(other) for own, other in pairs if not isinstance(other.mechanism, Declared)):
            raise ResumeError(
                "The run here began with another version of understudy, which measures other values.",
                "Finish it with that version, or start over with --fresh, which charges again.",
            )
        # a third party's own sampling has no other form
        charges = tuple(own if isinstance(other.mechanism, Declared) else other for own, other in pairs)
        return replace(plan, charges=charges)

    def begin(self, plan: Plan | None = None) -> str:
        """Store the settings, or check that the folder's run has the same. Return the changed settings in words. A
        fresh run does not touch the old one before this call, after which nothing can fail for public reasons.
        """
        lasting = self.lasting
        changed = self.store.begin(
            config_digest=hashlib.sha256(json.dumps(lasting.settings, sort_keys=True).encode()).hexdigest(),
            config=lasting.settings,
            plan={"charges": [] if plan is None else [charge.to_json() for charge in plan.charges]},
            changeable=lasting.changeable,
        )
        self.store.mark(BEGUN)
        return changed


@contextmanager
def open_session(
    place: OutputParameters,
    lasting: Lasting,
    noise: NoiseSource,
    *,
    free: bool = False,
    witness: Witness | None = None,
    scratch: str | None = None,
) -> Iterator[Session]:
    """Open and lock the run's folder; raise an error if a run began there with other settings.

    A command that is refused before it begins leaves no new folder behind.

    Args:
        noise: the source of noise for everything that is kept in the folder.
        free: nothing will be charged; raises an error if the folder contains a charged run.
        witness: the observer of an audit.
        scratch: the folder for intermediate files that the user named.

    Raises PrivacyError if a run with a promise has a witness.
    """
    if witness is not None and noise.origin == SYSTEM:
        raise bug(
            "A run with a privacy guarantee has a witness, which could replace its values.",
            "only an audit's own run, which is NOT PRIVATE, has one",
        )
    with ExitStack() as stack:
        if place.output is None:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="understudy-")))
        else:
            root = Path(place.output)
        folder = OutputFolder(root)
        made = [path for path in (folder.private, folder.shareable, root) if not path.exists()]
        stack.push(lambda kind, *_: _remove_empty(made) if kind and issubclass(kind, UnderstudyError) else None)
        stack.enter_context(disk_faults(root))
        store = stack.enter_context(RunStore.open(folder.private, noise=noise.origin, fresh=place.fresh))
        remove_leftovers(folder.private)
        folder.make()
        visible = None if place.output is None else folder
        session = Session(folder, store, lasting, visible, noise, witness or Witness(), scratch)
        if free and store.charged:
            raise ResumeError(
                "The output folder contains a run that was charged, which this command cannot resume.",
                "Name another folder with --output.",
            )
        if session.begun:
            session.begin()
        elif not place.fresh:
            session.clear_scratch()
        try:
            yield session
        except UnderstudyError:
            if folder.private in made and not session.begun:
                session.clear_scratch()
                (folder.private / PROGRESS).unlink(missing_ok=True)
                store.forget()
            raise


def _shape(charge: Charge) -> Any:
    """Return how many numbers a charge measures; None if it has no shape."""
    return getattr(charge.mechanism, "shape", None)


def remove_leftovers(private: Path) -> None:
    """Remove the leftovers of killed commands in ``private``: a copy of standard input, and partial private files.

    Only a process that has locked the folder may call this. Files that a corpus of this process reads stay.
    """
    for path in {private.resolve() / SPOOL, *private.glob(".*.????????.tmp")} - SPOOLS_IN_USE:
        path.unlink(missing_ok=True)


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove empty folders, up to the first that is in use or contains something."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
