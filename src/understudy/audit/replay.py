"""Replay a run on a neighbour of its table: with the released values given, nothing else may differ.

A run is made twice, and nothing is charged. The first records every value that passes the door between the private
records and the released values. The second reads a neighbour of the table: one unit less, more, or replaced. At the
door it gets the values of the first run. Everything else it does must be the same, and each exact sum may differ only
by its sensitivity.

The idea is that of dp-recorder (arXiv:2602.17454), for functions; this is for whole runs.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from understudy.audit.canaries import CORPUS, RUN, on_the_copy
from understudy.audit.neighbours import Neighbour, Rows, neighbours_of
from understudy.audit.running import job_of
from understudy.audit.tape import Finding, Tape, watch
from understudy.base.files import PRIVATE_MODE, write_file
from understudy.corpus.write import write_table
from understudy.ledger.store import RunStore
from understudy.run.outputs import OutputFolder
from understudy.run.session import SILENT, Listener
from understudy.run.settings import RunConfig

REPLAY = "replay.json"
_SEED = 1


@dataclass(frozen=True)
class Replayed:
    """One neighbour, and the findings on it."""

    name: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class ReplayAudit:
    """The result of replaying a run on neighbours of its table. Private.

    Args:
        unsteady: what differs between two runs on the *same* table; if anything does, the replay is inconclusive.
        measurements: how many noisy values a run requests.
        unchecked: charges whose sensitivity is not known here, so that their exact values were not compared.
    """

    method: str
    unit: str
    measurements: int
    unsteady: tuple[Finding, ...]
    neighbours: tuple[Replayed, ...]
    unchecked: tuple[str, ...]
    seconds: float

    @property
    def verdict(self) -> str:
        if self.unsteady:
            return "NOT REPEATABLE"
        return "VIOLATION" if any(each.findings for each in self.neighbours) else "same"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


def audit_replay(config: RunConfig, *, most: int | None = None, listener: Listener = SILENT) -> ReplayAudit:
    """Replay the run that ``config`` describes on neighbours of its table. Nothing is charged or released.

    Args:
        config: of the run. With an ``output`` the result is kept there, in ``private/replay.json``, and nothing else.
        most: largest number of neighbours to try; None: all.
    """
    started = time.monotonic()
    job = job_of(config)
    unit = job.promise.unit
    private = None if config.output is None else OutputFolder(Path(config.output)).make_private()
    with TemporaryDirectory(prefix="replay-", dir=private) as place:
        folder = Path(place)
        with job.table.open(folder) as corpus:
            finder = job.table.finder(corpus) if unit.kind == "secret" else None
            neighbours = neighbours_of(corpus, unit, finder, skips=job.table.skips_bad_rows)
            names, schema = corpus.schema.columns, corpus.schema
        changes: dict[str, Any] = {"insecure_noise_seed": _SEED, "insecure_no_noise": False}
        changes |= {"max_bad_rows": config.max_bad_rows, "secrets_file": config.secrets_file}
        if not schema.labels_declared:  # the user treats the label set as public
            changes |= {"labels": schema.labels, "labels_from_data": False}
        settings = on_the_copy(config, folder).model_copy(update=changes)
        with RunStore.open(folder / "store", noise="seeded"):
            pass  # one run's name for all of them

        def ran(rows: Rows, tape: Tape) -> Tape:
            write_table(folder / CORPUS, {name: [row.get(name) for row in rows] for name in names})
            shutil.rmtree(folder / RUN, ignore_errors=True)
            shutil.copytree(folder / "store", OutputFolder(folder / RUN).make_private(), dirs_exist_ok=True)
            watch(settings, OutputFolder(folder / RUN), tape)
            return tape

        def kept(each: Neighbour) -> Tape:
            if each.last not in firsts:
                firsts.clear()
                firsts[each.last] = ran(each.before, Tape())
            if isinstance(problem := firsts[each.last].failed, Exception):
                raise problem
            return firsts[each.last]

        listener.say("Running the method once, to keep its values.")
        firsts: dict[Any, Tape] = {}
        first = kept(neighbours[0])
        unsteady = ran(neighbours[0].before, Tape(first, units=0)).findings()
        tried, done = [] if unsteady else neighbours[:most], []
        for number, each in enumerate(tried, 1):
            listener.progress("neighbours", number, len(tried))
            done.append(Replayed(each.name, ran(each.after, Tape(kept(each), units=each.units)).findings()))
            listener.say(f"{each.name}: {', '.join(sorted({one.kind for one in done[-1].findings})) or 'same'}")
    audit = ReplayAudit(
        method=job.method.name,
        unit=unit.describe(),
        measurements=len(first.drawn),
        unsteady=unsteady,
        neighbours=tuple(done),
        unchecked=tuple(sorted(first.unchecked)),
        seconds=time.monotonic() - started,
    )
    if private is not None:
        write_file(private / REPLAY, json.dumps(audit.to_json(), indent=1), mode=PRIVATE_MODE)
    return audit
