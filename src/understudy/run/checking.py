"""What ``run`` and ``release`` do first: read the whole private table as it is declared. ``check`` does only that."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from understudy.base.errors import ConfigError, CorpusError
from understudy.base.files import PRIVATE_MODE, atomic_file
from understudy.corpus import Corpus
from understudy.corpus.bad_rows import ROWS_FILE, fault_of
from understudy.corpus.verified import Contents, contents
from understudy.ledger.store import is_in_use
from understudy.privacy.measurement import Engine
from understudy.run.job import Job, Table
from understudy.run.outputs import OutputFolder
from understudy.run.session import SILENT, Listener, remove_leftovers
from understudy.run.settings import EngineParameters, RunConfig
from understudy.run.working import open_engine

CHECK_FILE = "check.json"
_EXAMPLES = 5


def read_whole_table(corpus: Corpus, key: bytes, engine: Engine | None, *, begun: bool = False) -> Contents:
    """What the table holds, under a key.

    Args:
        begun: a run that was charged resumes, whatever share of the rows is bad.

    Raises CorpusError if it cannot be read, or more of its rows are bad than was declared.
    """
    found = contents(corpus, key, engine)
    if not begun:
        corpus.require_usable(found.bad_share)
    return found


@dataclass(frozen=True)
class Checked:
    """What is wrong with a table, without counts.

    Args:
        faults: each kind that a row has, and its cure.
        refused: what a run would end with, before its charge.
        file: private: counts of each kind, and where the first of them are.
    """

    faults: Sequence[CorpusError]
    refused: CorpusError | None
    file: Path


def check(config: RunConfig, *, listener: Listener = SILENT) -> Checked:
    """Read a private table as ``run`` would, to its end, and charge nothing.

    Raises:
        ConfigError: the configuration cannot be run.
        CorpusError: the table cannot be read as declared, whatever its rows hold.
    """
    if config.epsilon or config.secret_prior:
        Job(config, charges=True)  # whatever public facts can tell
    table = Table.of(config)
    table.require_header()
    if config.output is None:
        raise ConfigError("No output folder given.", "Name it with --output FOLDER.")
    with ExitStack() as stack:
        private = OutputFolder(Path(config.output)).make_private()
        if not is_in_use(private):
            remove_leftovers(private)
        listener.say("Reading the private table; nothing is charged.")
        corpus = stack.enter_context(table.part(Table, max_bad_rows=1.0).open(private))
        engine = stack.enter_context(open_engine(config.part(EngineParameters), private / "scratch"))
        bad_share = read_whole_table(corpus, secrets.token_bytes(32), engine).bad_share
    counts, examples = Counter[str](), dict[str, list[object]]()
    if (rows := private / ROWS_FILE).exists():
        with rows.open("rb") as stream:
            for line in map(json.loads, stream):
                counts[kind := line.pop("kind")] += 1
                if counts[kind] <= _EXAMPLES:
                    examples.setdefault(kind, []).append(line)
    some = "More of the rows than --max-bad-rows allows" if table.skips_bad_rows else "Some of the rows"
    refused = CorpusError(
        f"{some} cannot be used as the table is declared: a run would be refused, before its charge.",
        "Follow the advice above, and check again: a check is free.",
    )
    faults = [fault_of(kind, corpus.schema) for kind in sorted(counts)]
    with atomic_file(private / CHECK_FILE, mode=PRIVATE_MODE) as stream:
        found = {"share of bad rows": bad_share, "kinds": counts, "first rows": examples}
        stream.write(json.dumps(found, indent=1).encode("ascii"))
    return Checked(faults, refused if bad_share > table.max_bad_rows else None, private / CHECK_FILE)
