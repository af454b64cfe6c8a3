"""The private half of a run: check, charge, sample, store, confirm, and only then use the values."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from understudy.base.display import printable
from understudy.base.errors import ConfigError, ModelError, PrivacyError, ResumeError, UnderstudyError
from understudy.base.lazy import quiet_libraries
from understudy.corpus import Corpus
from understudy.corpus.bounding import BoundedCorpus
from understudy.corpus.secrets import check_records_per_secret
from understudy.corpus.verified import VerifiedCorpus
from understudy.methods.additions.base import Addition, Releasing
from understudy.methods.additions.topics.plan import NAME as TOPICS
from understudy.methods.base import Method, Preparation, ReleaseTools
from understudy.methods.registry import load_release
from understudy.models.embedder_checks import (
    require_embeds_all,
    require_encodes_all,
    require_same_vectors,
    require_trusted,
    trusted_with_texts,
)
from understudy.models.machine import is_out_of_memory
from understudy.privacy.measurement import Engine
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import SYSTEM
from understudy.privacy.verdict import Verdict
from understudy.release import PublicSchema, Release
from understudy.release.reading import require_readable
from understudy.release.statement import Sealed, Statement
from understudy.run.door import SOURCE, Paid, open_ledger, pay
from understudy.run.generating import Writing, require_room
from understudy.run.job import Job
from understudy.run.parts import Table
from understudy.run.rehearsal import is_rehearsed, rehearse
from understudy.run.session import RELEASED, Listener, Session
from understudy.run.working import embedder_of_workers, open_engine, statement_of
from understudy.schema.columns import Column
from understudy.schema.labels import LabelSet, canonical
from understudy.schema.layout import Layout
from understudy.text.writing import Writer

if TYPE_CHECKING:
    from understudy.ledger import Ledger


def check_cap(session: Session, job: Job) -> None:
    """Check that the ledger has room for the whole plan before anything is loaded or read, so that a refusal is quick.
    A run that has begun is charged already."""
    if session.noise.origin == SYSTEM and not session.begun:
        with open_ledger(job.promise, session.store) as ledger:
            ledger.check(job.promise.dataset, job.plan(), run_id=session.store.run_id)  # a copy may have begun


@dataclass(frozen=True)
class _Ready:
    """The inputs of the charge, after every check of public facts.

    Args:
        corpus: verified not to change, if there is a ledger.
        records: the bounded corpus, without the key that comes with the charge.
        prepared: the result of the method's ``prepare``.
        planned: the Release without content.
    """

    corpus: Corpus
    records: BoundedCorpus
    plan: Plan
    preparation: Preparation
    additions: tuple[Addition, ...]
    prepared: Any
    planned: Release
    writing: Writing | None
    ledger: Ledger | None


@quiet_libraries()
def make_release(
    session: Session,
    job: Job,
    corpus: Corpus | None,
    writing: Writing | None,
    listener: Listener,
    *,
    resume: bool = False,
) -> Release:
    """Return the Release of the private data; the existing one if the run has already made it.

    Args:
        writing: prompts and the writer of candidates, for methods that need them.
        resume: use the charges that are not used up, although the Release exists already.
    """
    if (there := _release_there(session, job, listener, resume=resume)) is not None:
        return there
    with ExitStack() as stack:
        # 1. Check, load, plan and probe everything that could fail; nothing is charged yet.
        ready = _prepare(stack, session, job, corpus, writing, listener)

        # 2. Charge the whole plan, synced before any noise is drawn. A table without rows is charged like any other:
        #    whether it has one is private, as an empty table and one with a single record are neighbours.
        paid = pay(ready.ledger, job.promise.dataset, ready.plan, ready.corpus, session, listener)
        places = np.frombuffer(job.table.places(session.folder.root), np.uint8)
        session.store.keep_once(SOURCE, lambda: {"places": places})
        at = _opened(session, job, ready, paid, listener)

        # 3. Measure, part by part; the result of a part is released, and the next parts see it.
        first = [each for each in ready.additions if each.is_first(job.method)]
        for addition in first:
            at = addition.release(at, ready.plan)
        at = _release_method(job.method, at, ready, listener)
        for addition in reversed([each for each in ready.additions if each not in first]):
            at = addition.release(at, ready.plan)

    # 4. Everything below is post-processing of sealed values.
    verdict = None
    if session.noise.origin != "none":
        expected = ready.plan.forecast.verdict
        verdict = at.released.noise_check.verdict or (expected and expected.coarse)
    made = at.released.sealed(at.planned, session.store.seals(), verdict)
    session.folder.write_release(made)
    session.store.mark(RELEASED)
    session.clear_scratch()
    _tell_made(made, listener, skips=job.table.skips_bad_rows)
    return made


def _release_there(session: Session, job: Job, listener: Listener, *, resume: bool) -> Release | None:
    """Return the Release that this run already made; None if it must be made or continued."""
    method, file = job.method, session.folder.release_file(job.method.name)
    if resume:
        if not session.begun:
            raise ConfigError(
                "This output folder contains no run, so there is nothing to continue.",
                "Name the folder of the run with --output, or leave --continue out.",
            )
        earlier = load_release(file, max_bytes=sys.maxsize).parameters if file.exists() else method.dump()
        for name in sorted(method.stopping_parameters):  # else a smaller Release would replace a larger one
            before, now = earlier.get(name), method.dump()[name]
            if now is not None and (before is None or now < before):
                flag = "--" + name.replace("_", "-")
                raise ConfigError(
                    f"{flag} {now} would stop earlier than the existing Release ({before or 'no limit'}).",
                    f"Give {flag} the same number or a higher one.",
                )
        return None
    if RELEASED not in session.store.stages() or not file.exists():
        return None
    more = " (release --continue uses the rest of what was paid for)" if method.stopping_parameters else ""
    made = load_release(file, max_bytes=sys.maxsize)  # this run's
    kept = job.promise.unit, job.promise.budget, session.store.charges
    seals = {Sealed.of(seal) for seal in session.store.seals()}
    if {made.statement.sealed} != seals or not made.statement.is_of(*kept):
        raise PrivacyError(
            f"The Release in {session.folder.root.name} is not the one that this run made.",
            "Delete it and repeat the command, which makes it again from the stored values and charges nothing.",
        )
    if made.statement.dataset != job.promise.dataset:
        raise ResumeError(
            f"This output folder contains a run on the dataset {made.statement.dataset!r}, and this command names "
            f"{job.promise.dataset!r}.",
            f"Name another folder with --output, or, if it is the same table, --dataset {made.statement.dataset}.",
        )
    source, of = session.store.value(SOURCE), ""
    if source is not None and source["places"].tobytes() != job.table.places(session.folder.root):
        if job.dataset is None:
            raise ResumeError(
                f"The Release in {session.folder.root.name} was made from a table of the same name in another place.",
                "Name another folder with --output, and another dataset with --dataset; or, if it is the same table, "
                f"--dataset {made.statement.dataset}.",
            )
        of = ", made from a table in another place that was named the same dataset"
    listener.say(f"{file.name} exists already{of}: no private record is read, and nothing is charged{more}.")
    session.folder.write_statement(made.statement, labelled=made.schema.label is not None)
    session.clear_scratch()
    return made


def _prepare(
    stack: ExitStack, session: Session, job: Job, corpus: Corpus | None, writing: Writing | None, listener: Listener
) -> _Ready:
    """Do everything that could fail for public reasons, and report what is about to be charged."""
    method, table = job.method, job.table
    ledger = stack.enter_context(open_ledger(job.promise, session.store)) if session.noise.origin == SYSTEM else None
    engine = stack.enter_context(open_engine(job.engine, session.scratch))
    if corpus is None:
        corpus = stack.enter_context(table.open(session.folder.private))
    _check_columns(table, corpus, finds_labels=job.finds_labels)
    labels = job.label_set if job.finds_labels else LabelSet(tuple(canonical(label) for label in corpus.labels))
    plan = session.as_begun(job.plan(labels))
    preparation, trusted = _load_models(session, job, labels, engine, listener)
    preparation = replace(
        preparation,
        prompts=None if writing is None else writing.prompts,
        record_columns=tuple(corpus.schema.record_columns),
        columns=corpus.schema.typed,
        resuming=session.begun,
    )
    _tell_plan(session, job, plan, listener)
    if ledger is not None:
        corpus = VerifiedCorpus.read(corpus, ledger.fingerprint_key, resumed=session.begun, engine=engine)
    if plan.unit.kind == "secret":
        finder = table.finder(corpus)
        check_records_per_secret(corpus, finder, plan.unit.max_records)
        preparation = replace(preparation, secrets=finder)
    layout = corpus.layout.of(_synthesised(corpus))
    left = [name for name in corpus.layout.columns if name not in {*layout.columns, *corpus.schema.columns}]
    if left and (method.name != TOPICS or writing is not None):  # `topics` makes no table
        names = ", ".join(printable(name) for name in left)
        listener.say(f"Synthetic tables leave out columns that are not declared (--columns): {names}.")
    if taken := _types_taken(layout):
        listener.say(
            f"Taken from the table in memory as public facts: its columns' names and these types: {taken}. If it was "
            "read in a way that infers types from values, give these columns as strings."
        )
    session.folder.require_writable()
    planned = _planned_release(job, corpus, layout, plan, trusted)
    require_readable(planned)
    if writing is not None:
        details = "; ".join(filter(None, (each.details(writing.prompted) for each in job.additions)))
        require_room(writing, method, planned, details, listener)
    if method.needs.candidates and not session.begun:
        listener.say(
            "The private records vote on texts of this --llm; another can replace it only until the last vote."
        )
    json_records, no_key = bool(corpus.schema.record_columns), b""  # the key comes with the charge
    scratch = session.scratch_of(corpus.contents.digest if isinstance(corpus, VerifiedCorpus) else "")
    records = BoundedCorpus(corpus, plan.unit, no_key, json_records, engine, scratch, form=corpus.schema.form)
    additions = tuple(each.prepare(preparation) for each in job.additions)
    prepared = _prepared(method, records, preparation, plan=plan)
    if is_rehearsed(method) and not session.begun:
        rehearse(method, plan, planned, records, corpus.schema, preparation)
    return _Ready(corpus, records, plan, preparation, additions, prepared, planned, writing, ledger)


def _opened(session: Session, job: Job, ready: _Ready, paid: Paid, listener: Listener) -> Releasing:
    """Open the door to the private records that the charge paid for."""
    preparation, schema = ready.preparation, ready.corpus.schema
    for what, model in (("private model", preparation.model), ("embedder", preparation.embedder)):
        if model is None:
            continue
        sha = np.frombuffer(model.fingerprint.encode(), dtype=np.uint8)
        if not np.array_equal(session.store.keep_once(what, partial(dict, sha=sha))["sha"], sha):
            raise ResumeError(  # the statement names one model
                f"The {what} changed since this run began: its weights or tokenizer differ.",
                "Use the model that it began with (for the built-in one: that version of understudy), or --fresh to "
                "start over (which charges the budget again).",
            )
    tools = ReleaseTools(
        **vars(preparation),
        door=paid.door,
        writer=_candidates(job.method, ready.writing, preparation.labels, listener),
        prepared=ready.prepared,
        scratch=ready.records.scratch,
        note=session.folder.note_privately,
    )
    if not schema.labels_declared:
        listener.say("The label set is read from the data: it is not protected.")
    if job.table.skips_bad_rows:
        listener.say("Rows that cannot be used are left out; private/skipped_rows.json counts them.")
    if schema.clamps:
        listener.say("Numbers outside a column's range count as its ends; private/skipped_rows.json counts them.")
    listener.say("Reading the private records.")
    return Releasing(replace(ready.records, hash_key=paid.hash_key), tools, ready.planned)


def _release_method(method: Method, at: Releasing, ready: _Ready, listener: Listener) -> Releasing:
    """Run the method's release, with the labels that are known by now."""
    tools, labels = at.tools, at.tools.labels
    if labels is not ready.preparation.labels:  # an addition found them
        named = replace(ready.preparation, labels=labels, say=lambda _line: None)  # it was reported
        prepared = _prepared(method, ready.records, named, plan=ready.plan)
        tools = replace(tools, writer=_candidates(method, ready.writing, labels, listener), prepared=prepared)
    return replace(at, tools=tools, released=method.release(at.corpus, ready.plan, tools) | at.released)


def _candidates(method: Method, writing: Writing | None, labels: LabelSet, listener: Listener) -> Writer | None:
    """Return the writer of candidates, for a method that needs one."""
    return writing.writer(labels.names, listener) if writing and method.needs.candidates else None


def _tell_plan(session: Session, job: Job, plan: Plan, listener: Listener) -> None:
    """Report what is protected, what was decided, and what to expect of the budget."""
    protected = plan.unit.describe() if job.method.private else "nobody: a baseline without privacy"
    listener.say(f"Protecting {protected}; the budget is {plan.budget}.")
    for line in job.decisions(plan).values():
        listener.say(line)
    if session.noise.origin != "none":
        _tell(plan.usefulness, plan.forecast.verdict, listener)
    for warning in job.warnings:
        listener.warn(warning)


def _tell_made(made: Release, listener: Listener, *, skips: bool) -> None:
    """Report how useful the release is; the effect of the noise on each value is detail."""
    verdict = made.statement.verdict
    for name, entry in made.statement.public_inputs.items():
        listener.detail(f"{name}: {entry['source']}")
    for line in made.noise_check.lines(made.schema.label_set.names, warnings=False):
        listener.detail(line)
    for warning in made.noise_check.warnings:
        listener.warn(warning)
    _tell(made.statement.usefulness, verdict, listener)
    if skips and (made.noise_check.warnings or (verdict and verdict.level == "noise")):
        listener.say("If you expected more, see private/skipped_rows.json: do the declared labels match the data?")


def _tell(sentence: str, verdict: Verdict | None, listener: Listener) -> None:
    if verdict and verdict.level == "noise":
        listener.warn(sentence, sentence)
    elif sentence:
        listener.say(sentence)


def _load_models(
    session: Session, job: Job, labels: LabelSet, engine: Engine | None, listener: Listener
) -> tuple[Preparation, tuple[str, ...]]:
    """Load and try the method's models, before anything is charged. Return also the statement's sentences about whom
    the user trusts with private texts.

    Check that an embedder of private texts may read them, and that they do not change each other's vectors here.
    """
    embedder = model = None
    dimension, trusted = 0, statement_of(job.engine)
    if job.embeds_private_texts or job.method.needs.term_embedder:
        own = job.embedder.load(session.folder.private, job.texts.form, say=listener.say)
        embedder = embedder_of_workers(job.engine, own)
        if job.embeds_private_texts:
            require_trusted(embedder, trust_endpoint=job.embedder.trust_endpoint)
            trusted = (*trusted_with_texts(embedder), *trusted)
        dimension = require_embeds_all(embedder)
        if job.embeds_private_texts:
            require_same_vectors(engine, embedder, say=listener.say)
    if job.method.needs.private_model:
        listener.say("Loading the private model, and checking on this machine that texts do not change each other's.")
        model = job.private_model.load()
        require_encodes_all(model)
    loaded = Preparation(
        labels=labels,
        seed=job.wanted.seed,
        embedder=embedder,
        dimension=dimension,
        model=model,
        say=listener.say,
        progress=listener.progress,
    )
    return loaded, trusted


def _prepared(method: Method, corpus: BoundedCorpus, preparation: Preparation, *, plan: Plan) -> Any:
    """Return the result of the method's ``prepare``; raise a ModelError if rows do not fit into memory."""
    try:
        return method.prepare(corpus, plan, preparation)
    except Exception as error:
        if preparation.model is None or isinstance(error, UnderstudyError) or not is_out_of_memory(error):
            raise
    raise ModelError(
        f"The model {preparation.model.model_id} leaves too little memory for the prompts of one text.",
        "Show less of each text (--private-text-tokens) or fewer texts at once, or name a smaller model.",
    )


def _planned_release(job: Job, corpus: Corpus, layout: Layout, plan: Plan, trusted: tuple[str, ...]) -> Release:
    """Return the Release without its content, and its statement without seals."""
    schema, stored = corpus.schema, dict[str, Any]()
    for addition in job.additions:
        stored |= addition.stored
    planned = Release(
        method=job.method.name,
        parameters={**_without_folders(job.method), **stored, "seed": job.wanted.seed},
        schema=PublicSchema(
            schema.text or "record",
            schema.label,
            tuple(schema.labels),
            tuple(schema.record_columns),
            form=schema.form,
            owner=_owner(corpus) if plan.unit.kind == "owner" else None,
            records_per_owner=plan.unit.max_records or 1,
            layout=layout,
        ),
        statement=Statement.of(
            plan, public_inputs={}, labels_declared=schema.labels_declared, dataset=job.promise.dataset, trusted=trusted
        ),
        arrays={},
    )
    for addition in job.additions:
        planned = addition.planned(planned)
    return planned


def _owner(corpus: Corpus) -> Column | None:
    """Return the owner column: an identifier, with the declared pattern."""
    name = corpus.schema.owner
    declared = (column for column in corpus.schema.declared if column.name == name)
    return None if name is None else next(declared, Column(name, "identifier"))


def _types_taken(layout: Layout) -> str:
    """Return, in words, the columns of the synthetic table that keep a type other than text from a table in memory."""
    kinds = {each: kind for each, kind in layout.types.items() if not layout.is_text(each) or "dictionary" in kind}
    kinds = {each: "category" if "dictionary" in kind else kind for each, kind in {**kinds, **layout.dtypes}.items()}
    return ", ".join(f"{printable(each)} ({kinds[each]})" for each in layout.in_order(kinds) if not layout.format)


def _synthesised(corpus: Corpus) -> set[str]:
    """Return the names of the columns that a synthetic table has."""
    schema = corpus.schema
    read = set(schema.columns) - set(schema.secrets) - set(schema.record_columns)
    return read | {column.name for column in schema.declared}


def _check_columns(table: Table, corpus: Corpus, *, finds_labels: bool) -> None:
    """Check that the corpus was read with the columns that define what is protected."""
    schema = corpus.schema
    if finds_labels and schema.label:
        raise ConfigError(
            "Topics are found in place of labels, but the corpus was read with a label column.",
            "Read it without one: read_corpus(...) without label; or leave topics out.",
        )
    if table.owner and schema.owner != table.owner:
        raise ConfigError(f"The corpus has no owner column {table.owner!r}.", "Read the corpus with this owner column.")
    if (table.typed_columns, table.crossed) != (schema.typed, schema.crossed):
        raise ConfigError(
            "The corpus was read with other typed columns than the run declares.",
            "Declare the same columns in both: read_corpus(..., columns=...) and columns=....",
        )
    if set(table.secrets) != set(schema.secrets):
        raise ConfigError(
            "The corpus was read with other secrets columns than the run names.",
            "Name the same columns in both: read_corpus(..., secrets=...) and secrets=....",
        )


def _without_folders(method: Method) -> dict[str, Any]:
    """Return the method's parameters for the Release, which names public files without their folder, and no private
    ones."""
    files, private = method.parameters.files(), method.parameters.files(private=True)
    return {
        name: Path(value).name if name in files and isinstance(value, str) else value
        for name, value in method.dump().items()
        if name not in private
    }
