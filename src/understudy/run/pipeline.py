"""The verbs: release, run, generate, baseline and check. Their Python faces are in :mod:`understudy.api`."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from understudy.base.errors import ConfigError, CorpusError, in_keywords
from understudy.base.files import PRIVATE_MODE, atomic_file
from understudy.base.parameters import Parameters, public_file
from understudy.corpus import Corpus, TableSource
from understudy.corpus.bad_rows import ROWS_FILE, fault_of
from understudy.corpus.verified import contents
from understudy.ledger.store import begun_settings, is_in_use
from understudy.methods.additions.registry import additions_in
from understudy.methods.registry import load_release, method_of
from understudy.methods.shared.evolution.parameters import EvolutionParameters
from understudy.methods.shared.evolution.variation import TextAPI, keywords_of_labels, require_text
from understudy.methods.shared.vocabulary import TermListParameters
from understudy.privacy.noise import InsecureNoNoise, SystemNoise
from understudy.release import PublicSchema, Release
from understudy.run.generating import Result, prepare_writing, write_texts
from understudy.run.job import FreeJob, Job
from understudy.run.outputs import OutputFolder
from understudy.run.parts import Table, is_in_english
from understudy.run.progress import recorded
from understudy.run.releasing import check_cap, make_release, require_continuable
from understudy.run.session import GENERATED, SILENT, Listener, Session, in_texts, open_session, remove_leftovers
from understudy.run.settings import EngineParameters, RunConfig, run_config
from understudy.run.working import open_engine
from understudy.schema.columns import Column
from understudy.schema.labels import canonical, declared_labels
from understudy.text.writing import SyntheticRecord, public_name


def release(
    config: RunConfig, *, corpus: Corpus | None = None, listener: Listener = SILENT, resume: bool = False
) -> Result:
    """Make a Release of private data: the only step that reads them.

    Args:
        resume: continue a release that stopped before its charges were used up; nothing more is charged.
    """
    job = Job(config, charges=True, generates=False)
    job.require_language()
    if resume:
        require_continuable(job.method, fresh=job.place.fresh)
    with (
        open_session(job.place, job.lasting, job.promise.noise_source) as session,
        _recorded(session, job, listener, "release") as listener,
    ):
        writing = None
        if job.method.needs.candidates or job.method.needs.private_model:
            check_cap(session, job)
            writing = prepare_writing(session, job.method, job.texts, job.chat, listener)
        made = make_release(session, job, corpus, writing, listener, resume=resume)
        return Result(made, folder=session.visible_folder)


def run(config: RunConfig, *, corpus: Corpus | None = None, listener: Listener = SILENT) -> Result:
    """Release and generate in one go. The same configuration and output folder resume where a killed run was."""
    job = Job(config, charges=True, generates=True)
    job.require_language()
    with (
        open_session(job.place, job.lasting, job.promise.noise_source) as session,
        _recorded(session, job, listener, "run") as listener,
    ):
        for line in job.decided:
            listener.say(line)
        _say_free(session, job, config, listener)
        check_cap(session, job)
        writing = prepare_writing(session, job.method, job.texts, job.chat, listener)  # before any charge
        made = make_release(session, job, corpus, writing, listener)
        return write_texts(session, made, job, writing, listener, capped=True)


def generate(made: Release | str | PathLike[str], *, listener: Listener = SILENT, **options: Any) -> Result:
    """Turn a Release into synthetic records: post-processing, free, any number of times.

    Args:
        made: a Release, or its file.
        options: by their flag names: how many records, the language model, the writing, the output, and those
            parameters of the method that are free (``length``, ``contrast``, ...).
    """
    made = made if isinstance(made, Release) else load_release(made)
    method = method_of(made)
    free = set(method.generation_parameters.model_fields)
    fixed = {name: value for name, value in made.parameters.items() if name != "seed"}
    changed = sorted(name for name in set(options) & set(fixed) - free if options[name] != fixed[name])
    if changed:
        raise ConfigError(
            f"{changed[0]!r} was fixed when the Release was made.", "Leave it out, or make another Release."
        )
    config = run_config({**fixed, **options, "method": made.method})
    job = FreeJob(
        config,
        form=made.schema.form,
        additions=[each.name for each in additions_in(made)],
        labels=made.schema.label_set.size,
        foreign=isinstance(method, TermListParameters) and method.not_english,
    )
    noise = SystemNoise() if made.statement.private else InsecureNoNoise()  # none is added: whose folder it may be
    if job.place.output is not None:
        OutputFolder(Path(job.place.output)).require_no_other_release(made)
    with (
        open_session(job.place, job.lasting.free({"release": made.digest}), noise, free=True) as session,
        _recorded(session, job, listener, "generate") as listener,
    ):
        for line in job.decided:
            listener.say(line)
        writing = prepare_writing(session, job.method, job.texts, job.chat, listener)
        return write_texts(session, made, job, writing, listener, clear=True)


def _say_free(session: Session, job: Job, config: RunConfig, listener: Listener) -> None:
    """Where a run ended already, that others of its texts are free, and what would be charged."""
    if job.place.fresh and begun_settings(session.folder.private, session.noise.origin):
        listener.say("Starting over (--fresh): the budget is charged a second time.")
    elif GENERATED in session.store.stages() and session.begin():
        wanted = f" --records {config.records}" if config.records else ""
        listener.say(
            f"The run here ended: `understudy generate {session.folder.root}{wanted} --output ELSEWHERE` writes other "
            "texts beside its own, free. This command writes them in place of its own, free too; --fresh would charge "
            "the budget a second time."
        )


def _recorded(session: Session, job: FreeJob, listener: Listener, verb: str) -> AbstractContextManager[Listener]:
    """The listener, and what it is told kept in the run's folder."""
    return recorded(listener, session.visible_folder, verb=verb, method=job.method.name, dataset=job.dataset)


class BaselineParameters(Parameters):
    """The labels and their prompts."""

    labels: str | tuple[str | int | float | bool, ...] | None = None
    """The label set: a list, ``A,B,C``, or ``@FILE``."""
    min_words: int = 25
    """Fewest words that a prompt asks for."""
    max_words: int = 100
    """Most words that a prompt asks for."""
    keywords: str | None = public_file(None)
    """A file of keywords, one per line, or YAML with a list for each label. Default: none, the label alone."""
    keywords_are_public: bool = False
    """Your word that the keywords do not come from the private data."""


def write_baseline(options: Mapping[str, Any], *, listener: Listener = SILENT) -> list[SyntheticRecord]:
    """What :func:`understudy.baseline` says: texts of each label, by the prompts that private evolution starts with."""
    labels = options.get("labels")
    settings = {**options, "method": "aug-pe"}
    if labels is not None:
        settings |= {"label": "label", "labels": labels if isinstance(labels, str) else tuple(labels)}
    config = run_config(settings)
    names = () if labels is None else declared_labels(labels)
    foreign = labels is not None and not is_in_english((), (), config.label_set)
    job, size = FreeJob(config, foreign=foreign), config.label_set.size
    counts, place = job.wanted.counts(size), job.place
    if job.chat.llm == "none":
        raise ConfigError(
            "A baseline is what a language model writes by itself, and there is none.", "Name one (--llm)."
        )
    if place.output and (OutputFolder(Path(place.output)).shareable / "statement.json").exists():
        raise ConfigError(
            "The output folder holds texts with a privacy statement, which does not hold for these.",
            "Use another --output.",
        )
    with open_session(place, job.lasting.free({"zero-shot": True}), SystemNoise(), free=True) as session:
        writing = prepare_writing(session, job.method, job.texts, job.chat, listener)
        assert isinstance(job.method, EvolutionParameters), "aug-pe evolves"
        evolution = job.method.part(EvolutionParameters)
        template = writing.prompts.template
        keywords: Sequence[Sequence[str]] = [()] * size  # the template's would outweigh the label
        if evolution.keywords is not None:
            keywords = keywords_of_labels(evolution, template.evolution, [canonical(name) for name in names])
        writer = writing.writer(names, listener)
        assert writer.chat is not None
        listener.say(f"Making {in_texts(sum(counts))} with {writer.chat.model_id}; no private text is read.")
        session.begin()
        session.clear_scratch()
        answers = TextAPI(writer, evolution, keywords).random(counts, stage=0)
        require_text(answers)
        origin = {"zero-shot": public_name(writer.chat.model_id), "prompts": template.sha256[:12]}
        records = [
            SyntheticRecord(text, int(label), {**origin, "prompt": prompt})
            for text, label, prompt in zip(answers.texts, answers.labels, answers.prompts, strict=True)
        ]
        if session.visible_folder is not None:
            schema = PublicSchema("text", None if labels is None else "label", tuple(names))
            (path,) = session.visible_folder.write_records(records, schema, provenance=config.provenance)
            listener.say(f"Wrote {in_texts(len(records))} to {path}.")
        if missing := sum(counts) - len(records):
            listener.say(f"The language model did not write {missing} of the texts.")
        session.store.mark(GENERATED)
    return records


CHECK_FILE = "check.json"
_EXAMPLES = 5


@dataclass(frozen=True, repr=False)
class Checked:
    """What is wrong with a table, without counts.

    Args:
        faults: each kind that a row has, and its cure.
        clamped: columns with values beyond their range, which count as its ends.
        refused: what a run would end with, before its charge; None where the table can be used.
        file: private: counts of each kind, and where the first of them are; None without an output folder.
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
        """For people, of flags."""
        lines = [f"{each.problem}\n  {each.cure}" for each in self.faults]
        lines += [
            f"Some values of the column {each.name!r} are beyond its range, {each.least} to {each.most}, and count as "
            "its nearest end.\n  Declare a wider range (--columns), unless this is what you want."
            for each in self.clamped
        ]
        if (self.faults or self.clamped) and self.file is not None:
            lines.append(f"How many these are, and where the first bad rows are: {self.file}")
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
    """
    config.part(Table).require_header()  # a wrong name or delimiter comes before what else is wrong
    if config.epsilon or config.secret_prior:
        for warning in Job(config, charges=source is None).warnings:  # whatever public facts can tell
            listener.say(f"Warning: {warning}")
    table = Table.of(config)
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
            with atomic_file(file, mode=PRIVATE_MODE) as stream:
                stream.write(json.dumps(found, indent=1).encode("ascii"))
    if not (read.texts or counts):
        raise CorpusError("The table has no rows.", "Look at the file: a run would be charged, and release noise.")
    some = "More of the rows than --max-bad-rows allows" if table.skips_bad_rows else "Some of the rows"
    refused = CorpusError(
        f"{some} cannot be used as the table is declared: a run would be refused, before its charge.",
        "Follow the advice above, and check again: a check is free.",
    )
    faults = [fault_of(kind, corpus.schema) for kind in sorted(counts)]
    columns = (*corpus.schema.crossed, *corpus.schema.typed)
    clamped = [column for column in columns if column.name in read.clamped]
    return Checked(faults, refused if bad_share > table.max_bad_rows else None, file, clamped)
