"""One run's output folder in use: its store, its lock, and the settings it began with."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from understudy.base.errors import ResumeError, UnderstudyError, bug
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
    """Receive what happens in a run: lines, and (what, done, of how many). Public facts only.

    Args:
        say: receives a line that a user can act on.
        progress: receives the name of a stage, how many parts are done, and of how many.
        detail: receives a line of figures, which the command line shows with ``--verbose``.
    """

    say: Callable[[str], None] = lambda _line: None
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None
    nobody: bool = False
    """Whether nobody may be looking: what must not be missed is then a Python warning, too."""
    detail: Callable[[str], None] = lambda _line: None


SILENT = Listener(nobody=True)


_SCRATCH = "scratch"
BEGUN, RELEASED, GENERATED = "begun", "released", "generated"


@dataclass(frozen=True)
class Lasting:
    """What a resumed run must share with the first.

    Args:
        settings: what the run store holds; they are the same, but for the changeable.
        changeable: names of settings on which no stored value rests.
    """

    settings: Mapping[str, Any]
    changeable: Collection[str] = ()

    def free(self, more: Mapping[str, Any]) -> Lasting:
        """For a folder of what costs nothing: with ``more`` settings, and none that may change."""
        return replace(self, settings={**self.settings, **more}, changeable=())


class Witness:
    """What watches a run of which nothing is charged, for an audit: it may replace what it is given. This one does
    not."""

    def door(self, door: Any) -> Any:
        """Return the door between the private records and the released values."""
        return door

    def chat(self, chat: ChatModel) -> ChatModel:
        """Return the language model that is asked for texts."""
        return chat


@dataclass(frozen=True)
class Session:
    """An output folder in use, its store, and where the noise of what is kept there comes from.

    Until it has begun (a charge, or an answer of a language model), its settings may change; later the changeable.
    """

    folder: OutputFolder
    store: RunStore
    lasting: Lasting
    visible_folder: OutputFolder | None
    noise: NoiseSource
    witness: Witness = field(default_factory=Witness)

    @property
    def begun(self) -> bool:
        return BEGUN in self.store.stages()

    @property
    def scratch(self) -> Path:
        """Private files that live no longer than the release's making."""
        return self.folder.private / _SCRATCH

    def scratch_of(self, rows: str, scratch: Path | None = None) -> Path:
        """The part of it, or of the folder named ``scratch``, that is this run's on these rows: what lies beside it is
        another's.
        """
        run = private_folder(self._of_this_run(private_folder(scratch or self.scratch)))
        return private_folder(run / hashlib.sha256(rows.encode()).hexdigest()[:32])

    def clear_scratch(self, named: Path | None = None) -> None:
        """Remove them, those of a run that was killed among them; and what is this run's in the folder ``named``."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        if self.scratch.is_file():
            self.scratch.unlink()
        if named is not None:
            shutil.rmtree(self._of_this_run(named), ignore_errors=True)

    def _of_this_run(self, scratch: Path) -> Path:
        return scratch / hashlib.sha256(self.store.run_id.encode()).hexdigest()[:32]

    def as_begun(self, plan: Plan) -> Plan:
        """The plan with the charges that the folder's run began with, which are those that the ledger booked: another
        version or processor may compute the last digits of their noise otherwise."""
        known = plan.queries
        began = [
            replace(each, query=known if isinstance(each.mechanism, SubsampledSums) else known.get(each.name))
            for each in map(Charge.from_json, self.store.charges if self.begun else ())
        ]
        if [each.name for each in began] != [each.name for each in plan.charges]:
            sampled = any(isinstance(each.mechanism, SubsampledSums) for each in (*began, *plan.charges))
            return replace(plan, charges=tuple(began)) if began and sampled else plan  # by another declared number
        pairs = tuple(zip(plan.charges, began, strict=True))
        if any(_shape(own) != _shape(other) for own, other in pairs if not isinstance(other.mechanism, Declared)):
            raise ResumeError(
                "The run here began with another version of understudy, which measures something else.",
                "Finish it with that version, or start over with --fresh, which charges again.",
            )
        # what a third party samples by itself has no other form
        charges = tuple(own if isinstance(other.mechanism, Declared) else other for own, other in pairs)
        return replace(plan, charges=charges)

    def as_booked(self, plan: Plan) -> Plan:
        """As :meth:`as_begun` where labels are not known yet, on which the names of charges may rest."""
        began = [Charge.from_json(each) for each in self.store.charges] if self.begun else []
        named = [each.name for each in began] == [each.name for each in plan.charges]
        return self.as_begun(plan) if named or not began else replace(plan, charges=tuple(began))

    def begin(self, plan: Plan | None = None) -> str:
        """Store the settings, or see that the folder's run has the same. Until then a fresh run leaves an old one be:
        nothing that can fail for public reasons comes later. Returns which changeable ones are others, in words.
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


def in_texts(count: int) -> str:
    """``1 text``, ``12 texts``."""
    return "1 text" if count == 1 else f"{count} texts"


@contextmanager
def open_session(
    place: OutputParameters,
    lasting: Lasting,
    noise: NoiseSource,
    *,
    free: bool = False,
    witness: Witness | None = None,
) -> Iterator[Session]:
    """The run's folder, locked; a run that began there with other settings is an error.

    A command that is refused before it begins leaves no folder behind that was not there before.

    Args:
        noise: of all that is kept in the folder.
        free: nothing will be charged, so that no run that was charged can be resumed.
        witness: of an audit.

    Raises PrivacyError if a run with a promise would have a witness.
    """
    if witness is not None and noise.origin == SYSTEM:
        raise bug("A run with a promise has a witness.", "only an audit's own run, which is NOT PRIVATE, has one")
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
        session = Session(folder, store, lasting, visible, noise, witness or Witness())
        if free and store.charged:
            raise ResumeError("The output folder holds a run that was charged.", "Name another folder with --output.")
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
    """Remove what killed commands left in ``private``: a copy of standard input, and halves of private files.

    For whoever has the folder to itself. What a corpus of this process reads stays.
    """
    for path in {private.resolve() / SPOOL, *private.glob(".*.????????.tmp")} - SPOOLS_IN_USE:
        path.unlink(missing_ok=True)


def _remove_empty(folders: Sequence[Path]) -> None:
    """Up to the first that is in use or holds something."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
