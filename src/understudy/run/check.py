"""Read a private table as a run would, charge nothing, and report what is wrong with the table."""

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
from understudy.base.files import PRIVATE_MODE, write_file
from understudy.corpus import TableSource
from understudy.corpus.bad_rows import ROWS_FILE, fault_of
from understudy.corpus.verified import contents
from understudy.ledger.store import is_in_use
from understudy.run.defaults import with_folder
from understudy.run.job import Job
from understudy.run.outputs import OutputFolder
from understudy.run.parts import Table
from understudy.run.session import SILENT, Listener, remove_leftovers
from understudy.run.settings import EngineParameters, RunConfig
from understudy.run.working import open_engine
from understudy.schema.columns import Column

CHECK_FILE = "check.json"
_EXAMPLES = 5


@dataclass(frozen=True, repr=False)
class Checked:
    """The result of checking a table: the kinds of faults, without counts.

    Args:
        faults: each kind of fault in the rows, and its cure.
        clamped: columns with values outside their range, which count as its nearest end.
        refused: the error that would end a run before its charge; None if the table can be used.
        file: a private file with the number of each fault and the first places; None without an output folder.
    """

    faults: Sequence[CorpusError]
    refused: CorpusError | None
    file: Path | None
    clamped: Sequence[Column] = ()

    @property
    def usable(self) -> bool:
        return self.refused is None

    @property
    def words(self) -> str:
        """Return the result in words, with the names of flags."""
        lines = [f"{each.problem}\n  {each.cure}" for each in self.faults]
        lines += [
            f"Some values of the column {each.name!r} are outside its range, {each.least} to {each.most}, and count as "
            "its nearest end.\n  Declare a wider range (--columns), unless this is what you want."
            for each in self.clamped
        ]
        if (self.faults or self.clamped) and self.file is not None:
            lines.append(f"The counts, and where the first bad rows are: {self.file}")
        if self.refused is None:
            left_out = " Rows that cannot be used are left out, within --max-bad-rows." if self.faults else ""
            lines.append(f"The table matches its declaration.{left_out} Nothing was charged.")
        return "\n".join(lines)

    def __repr__(self) -> str:
        refused = "" if self.refused is None else f"\n{self.refused.problem}\n{self.refused.cure}"
        return in_keywords(self.words + refused)


def check(config: RunConfig, *, source: TableSource | None = None, listener: Listener = SILENT) -> Checked:
    """Read a private table as ``run`` would, to its end, and charge nothing.

    Args:
        source: the table, in place of the files that the configuration names.
    """
    config, on_folder = with_folder(config)
    table = Table.of(config, look=True)  # a wrong name or delimiter is reported before anything else
    if on_folder:
        listener.say(on_folder)
    budget = config.epsilon or config.secret_prior
    for warning in Job(config, charges=source is None).warnings if budget else config.ledger_warnings:  # public facts
        listener.say(f"Warning: {warning}")
    with ExitStack() as stack:
        if config.output is None:
            private = Path(stack.enter_context(TemporaryDirectory()))
        else:
            private = OutputFolder(Path(config.output)).make_private()
        if not is_in_use(private):
            remove_leftovers(private)
        listener.say("Reading the private table; this charges nothing.")
        corpus = stack.enter_context(table.part(Table, max_bad_rows=1.0).open(private, source))
        engine = stack.enter_context(open_engine(config.part(EngineParameters), private / "scratch"))
        read = contents(corpus, secrets.token_bytes(32), engine)
        bad_share = read.bad_share
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
            found |= {"values beyond their range": read.clamped}
            write_file(file, json.dumps(found, indent=1), mode=PRIVATE_MODE)
    if not (read.texts or counts):
        raise CorpusError(
            "The table has no rows.",
            "Check that it is the right file: a run would charge the budget and release only noise.",
        )
    some = "More of the rows than --max-bad-rows allows" if table.skips_bad_rows else "Some of the rows"
    refused = CorpusError(
        f"{some} do not match the declaration of the table: a run would be refused, before its charge.",
        "Follow the advice above and check again; a check is free.",
    )
    faults = [fault_of(kind, corpus.schema) for kind in sorted(counts)]
    columns = (*corpus.schema.crossed, *corpus.schema.typed)
    clamped = [column for column in columns if column.name in read.clamped]
    return Checked(faults, refused if bad_share > table.max_bad_rows else None, file, clamped)
