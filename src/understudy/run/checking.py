"""What ``run`` and ``release`` do first: read the whole private table as it is declared. ``check`` does only that."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from understudy.base.errors import CorpusError, in_keywords
from understudy.base.files import PRIVATE_MODE, atomic_file
from understudy.corpus import Corpus, TableSource
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


@dataclass(frozen=True, repr=False)
class Checked:
    """What is wrong with a table, without counts.

    Args:
        faults: each kind that a row has, and its cure.
        refused: what a run would end with, before its charge; None where the table can be used.
        file: private: counts of each kind, and where the first of them are; None without an output folder.
    """

    faults: Sequence[CorpusError]
    refused: CorpusError | None
    file: Path | None

    @property
    def usable(self) -> bool:
        return self.refused is None

    @property
    def words(self) -> str:
        """For people, of flags."""
        lines = [f"{each.problem}\n  {each.cure}" for each in self.faults]
        if self.faults and self.file is not None:
            lines.append(f"How many rows, and where the first are: {self.file}")
        if self.refused is None:
            left_out = " Rows that cannot be used are within --max-bad-rows, and are left out." if self.faults else ""
            lines.append(f"The table can be read as it is declared.{left_out} Nothing was charged.")
        return "\n".join(lines)

    def __repr__(self) -> str:
        refused = "" if self.refused is None else f"\n{self.refused.problem}\n{self.refused.cure}"
        return in_keywords(self.words + refused)


def check(config: RunConfig, *, source: TableSource | None = None, listener: Listener = SILENT) -> Checked:
    """Read a private table as ``run`` would, to its end, and charge nothing.

    Args:
        source: the table, in place of the files that the configuration names.

    Raises:
        ConfigError: the configuration cannot be run.
        CorpusError: the table cannot be read as declared, whatever its rows hold.
    """
    if config.epsilon or config.secret_prior:
        Job(config, charges=source is None)  # whatever public facts can tell
    table = Table.of(config)
    table.require_header()
    with ExitStack() as stack:
        if config.output is None:
            private = Path(stack.enter_context(TemporaryDirectory()))
        else:
            private = OutputFolder(Path(config.output)).make_private()
        if not is_in_use(private):
            remove_leftovers(private)
        listener.say("Reading the private table; nothing is charged.")
        corpus = stack.enter_context(table.part(Table, max_bad_rows=1.0).open(private, source))
        engine = stack.enter_context(open_engine(config.part(EngineParameters), private / "scratch"))
        bad_share = read_whole_table(corpus, secrets.token_bytes(32), engine).bad_share
        counts, examples = Counter[str](), dict[str, list[object]]()
        if (rows := private / ROWS_FILE).exists():
            with rows.open("rb") as stream:
                for line in map(json.loads, stream):
                    counts[kind := line.pop("kind")] += 1
                    if counts[kind] <= _EXAMPLES:
                        examples.setdefault(kind, []).append(line)
        file = None if config.output is None else private / CHECK_FILE
        if file is not None:
            found = {"share of bad rows": bad_share, "kinds": counts, "first rows": examples}
            with atomic_file(file, mode=PRIVATE_MODE) as stream:
                stream.write(json.dumps(found, indent=1).encode("ascii"))
    some = "More of the rows than --max-bad-rows allows" if table.skips_bad_rows else "Some of the rows"
    refused = CorpusError(
        f"{some} cannot be used as the table is declared: a run would be refused, before its charge.",
        "Follow the advice above, and check again: a check is free.",
    )
    faults = [fault_of(kind, corpus.schema) for kind in sorted(counts)]
    return Checked(faults, refused if bad_share > table.max_bad_rows else None, file)
