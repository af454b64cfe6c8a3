"""One run's output folder in use: its store, its lock, and the settings it began with."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy.config import RunConfig
from understudy.outputs import OutputFolder
from understudy.privacy.plan import Plan

if TYPE_CHECKING:
    from understudy.store import RunStore

_SCRATCH = "scratch"
BEGUN, RELEASED, GENERATED = "begun", "released", "generated"


@dataclass(frozen=True)
class Session:
    """An output folder in use, and its store.

    Until it has begun (a charge, or an answer of a language model), its settings may still change.
    """

    folder: OutputFolder
    store: RunStore
    lasting: Mapping[str, Any]
    visible_folder: OutputFolder | None

    @property
    def begun(self) -> bool:
        return BEGUN in self.store.stages()

    @property
    def scratch(self) -> Path:
        """Private files that live no longer than the release's making."""
        return self.folder.private / _SCRATCH

    def clear_scratch(self) -> None:
        """Remove them, those of a run that was killed among them."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def begin(self, plan: Plan | None = None) -> None:
        """Store the settings, or see that the folder's run has the same."""
        digest = hashlib.sha256(json.dumps(self.lasting, sort_keys=True).encode()).hexdigest()
        charges = [] if plan is None else [charge.to_json() for charge in plan.charges]
        self.store.begin(config_digest=digest, config=dict(self.lasting), plan={"charges": charges})
        self.store.mark(BEGUN)


@contextmanager
def open_session(config: RunConfig, lasting: Mapping[str, Any]) -> Iterator[Session]:
    """The run's folder, locked; a run that began there with other settings is an error."""
    from understudy.store import RunStore

    with ExitStack() as stack:
        if config.output is None:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="understudy-")))
        else:
            root = Path(config.output)
        folder = OutputFolder(root)
        store = stack.enter_context(RunStore.open(folder.private, fresh=config.fresh))
        folder.make()
        session = Session(folder, store, lasting, None if config.output is None else folder)
        if session.begun:
            session.begin()
        else:
            session.clear_scratch()
        yield session
