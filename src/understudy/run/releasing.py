"""The private half of a run: check, charge, sample, store, confirm, and only then use."""

from __future__ import annotations

import sys
import warnings
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from understudy.base.errors import (
    ConfigError,
    ModelError,
    PrivacyError,
    ResumeError,
    UnderstudyError,
    UnderstudyWarning,
)
from understudy.base.labels import LabelSet, canonical
from understudy.base.lazy import quiet_libraries
from understudy.corpus import Corpus
from understudy.corpus.bounding import BoundedCorpus
from understudy.corpus.secrets import check_records_per_secret
from understudy.corpus.verified import VerifiedCorpus, contents
from understudy.methods.base import Method, Preparation, Released, ReleaseTools, needed
from understudy.methods.registry import load_release
from understudy.methods.shared.guide.plan import GUIDE, GuideParameters, require_guide_fits
from understudy.methods.shared.labelling import BESIDE, COLUMN, TOPIC_CENTRES, TOPIC_SIZES, TOPIC_TERMS
from understudy.methods.shared.tables.fitting import require_fitting
from understudy.methods.shared.tables.variables import TablesParameters
from understudy.methods.topics.found import names_of
from understudy.methods.topics.plan import line_on_sample
from understudy.methods.topics.release import TopicLabels, embed_candidates, find
from understudy.models.causal import CausalModel
from understudy.models.machine import is_out_of_memory
from understudy.models.trials import (
    require_embeds_all,
    require_encodes_all,
    require_text_invariance_here,
    require_trusted,
    trusted_with_texts,
)
from understudy.models.types import Embedder
from understudy.privacy.measurement import Engine
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import SYSTEM
from understudy.privacy.unit import Unit
from understudy.privacy.verdict import Verdict
from understudy.release import PublicSchema, Release
from understudy.release.reading import require_readable
from understudy.release.statement import Sealed, Statement
from understudy.run.generating import Writing, require_room
from understudy.run.guiding import with_guide
from understudy.run.job import Job
from understudy.run.measuring import open_ledger, pay
from understudy.run.parts import Table
from understudy.run.session import RELEASED, Listener, Session
from understudy.run.tabling import TableRows, longest_details, with_columns
from understudy.run.working import embedder_of_workers, open_engine, require_same_vectors, statement_of


def check_cap(session: Session, job: Job) -> None:
    """See that the ledger has room for the whole plan before models are loaded: a refusal should not take long."""
    if session.noise.origin == SYSTEM and RELEASED not in session.store.stages():
        with open_ledger(job.promise, session.store) as ledger:
            plan = session.as_booked(job.declared_plan)
            ledger.check_if_open(job.promise.dataset, plan, run_id=session.store.run_id)


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
    """The Release of the private data; the one that is there already where the run had come so far.

    Args:
        writing: prompts, and what writes candidates, for methods that need such.
        resume: use what is still paid for, where the Release is there already.
    """
    method, promise, table = job.method, job.promise, job.table
    skips = table.skips_bad_rows
    own_scratch = (session.scratch if job.engine.scratch is None else Path(job.engine.scratch).expanduser()).resolve()
    file = session.folder.release_file(method.name)
    if resume:
        if not session.begun:
            raise ConfigError(
                "No run began in this output folder, so there is nothing to continue.",
                "Name the folder of the run with --output, or leave --continue out.",
            )
        if file.exists():
            require_no_less(method, load_release(file, max_bytes=sys.maxsize))
    elif RELEASED in session.store.stages() and file.exists():
        more = " (release --continue uses what is still paid for)" if method.stopping_parameters else ""
        listener.say(f"{file.name} is there already: no private record is read, nothing is charged{more}.")
        made = load_release(file, max_bytes=sys.maxsize)  # this run's own
        _require_own(session, made)
        session.folder.write_statement(made.statement, labelled=made.schema.label is not None)
        session.clear_scratch(own_scratch)
        return made
    early = session.as_booked(job.declared_plan)
    with ExitStack() as stack:
        ledger = stack.enter_context(open_ledger(promise, session.store)) if session.noise.origin == SYSTEM else None
        if ledger is not None:
            ledger.check_if_open(promise.dataset, early, run_id=session.store.run_id)  # before any private read
        engine = stack.enter_context(open_engine(job.engine, own_scratch))
        if corpus is None:
            corpus = stack.enter_context(table.open(session.folder.private))
        _check_columns(table, corpus, topics=job.topics)
        labels = job.label_set if job.topics else LabelSet(tuple(canonical(label) for label in corpus.labels))
        plan = session.as_begun(job.plan(labels))
        variables = table.variables(labels)
        if variables is not None:
            require_fitting()
        preparation = replace(
            _load_models(session, job, plan, labels, engine, listener),
            prompts=None if writing is None else writing.prompts,
            record_columns=tuple(corpus.schema.record_columns),
            columns=corpus.schema.typed,
        )
        protected = plan.unit.describe() if method.private else "nobody: a yardstick without privacy"
        listener.say(f"Protecting {protected}; the budget is {plan.budget}.")
        if job.fitted_line:
            listener.say(job.fitted_line)
        if job.topics_decision.why:
            listener.say(job.topics_decision.line)
        if line := line_on_sample(plan, promise.expected_records):
            listener.say(line)
        if job.guide_decision.why:
            listener.say(f"Guide {'on' if promise.guide else 'off'}: {job.guide_decision.why}.")
        noisy, expected = session.noise.origin != "none", plan.forecast.verdict
        _tell(expected if noisy else None, listener, plan.unit)
        for warning in job.warnings:
            listener.say(f"Warning: {warning}")
            if listener.nobody:
                warnings.warn(warning, UnderstudyWarning, stacklevel=2)
        found = None
        if ledger is not None:
            found = contents(corpus, ledger.fingerprint_key, engine)
            if not session.begun:  # one that was charged resumes, whatever share of the rows is bad
                corpus.require_usable(found.bad_share)
            corpus = VerifiedCorpus(corpus, key=ledger.fingerprint_key, expected=found)
        if plan.unit.kind == "secret":
            finder = table.finder(corpus)
            check_records_per_secret(corpus, finder, plan.unit.max_records)
            preparation = replace(preparation, secrets=finder)
        session.folder.require_writable()
        planned = _planned_release(job, corpus, plan, preparation)
        require_readable(planned)
        if writing is not None:
            require_room(writing, method, planned, longest_details(variables, writing.prompted), listener)
        if method.needs.candidates and not session.begun:
            listener.say("Votes are about what --llm writes: another can take over until the release, not after it.")
        json_records = bool(corpus.schema.record_columns)
        no_key = b""  # it comes with the charge
        unkeyed = BoundedCorpus(corpus, plan.unit, no_key, json_records, engine, form=corpus.schema.form)
        scratch = session.scratch_of("" if found is None else found.digest, own_scratch)
        preparation = replace(preparation, resuming=session.begun)
        candidates = embed_candidates(labels.size, preparation) if job.topics else None
        prepared = _prepared(method, unkeyed, plan, preparation)
        paid = pay(ledger, promise.dataset, plan, corpus, found, session, listener)
        for what, model in (("private model", preparation.model), ("embedder", preparation.embedder)):
            if model is not None:
                require_same_model(session, model, what=what)
        tools = ReleaseTools(
            **{each.name: getattr(preparation, each.name) for each in fields(preparation)},
            door=paid.door,
            writer=writing.writer(labels.names, listener) if writing and method.needs.candidates else None,
            prepared=prepared,
            scratch=scratch,
            note=session.folder.note_privately,
        )
        if not corpus.schema.labels_declared:
            listener.say("The label set is read from the data: it is not protected.")
        if skips:
            listener.say("Rows that cannot be used are left out; private/skipped_rows.json counts them.")
        if corpus.schema.clamps:
            listener.say("Numbers beyond a column's range count as its ends; private/skipped_rows.json counts them.")
        listener.say("Reading the private records.")
        bounded = replace(unkeyed, hash_key=paid.hash_key, scratch=scratch)
        beside, parameters = Released({}), promise.part(TablesParameters)
        if job.topics:
            bounded, labels, beside = label_by_topics(bounded, plan, tools, candidates=candidates)
            planned = replace(planned, schema=replace(planned.schema, labels=labels.names))
            variables = table.variables(labels)
            named = replace(preparation, labels=labels, say=lambda _line: None)  # it was said
            tools = replace(
                tools,
                labels=labels,
                writer=None if tools.writer is None else needed(writing).writer(labels.names, listener),
                prepared=_prepared(method, unkeyed, plan, named),
            )
        if variables is not None and method.needs.rows:
            beside = with_columns(beside, bounded, plan, tools, variables=variables, parameters=parameters)
            rows = TableRows.of(replace(planned, arrays=dict(beside.arrays)), seed=job.wanted.seed)
            tools = replace(tools, rows=needed(rows).of_part)
        released = method.release(bounded, plan, tools) | beside
        if promise.guide:
            released = with_guide(released, bounded, plan, tools)
        if variables is not None and not method.needs.rows:
            released = with_columns(released, bounded, plan, tools, variables=variables, parameters=parameters)
    verdict = released.noise_check.verdict or (expected and expected.coarse) if noisy else None
    statement = replace(
        planned.statement,
        public_inputs=released.public_inputs,
        notes=(*planned.statement.notes, *released.notes),
        verdict=verdict,
    )
    made = replace(
        planned,
        statement=statement.with_seals(session.store.seals()),  # as its values are, whatever this process is
        arrays={name: np.asarray(array) for name, array in released.arrays.items()},
        terms=list(released.terms),
        noise_check=replace(released.noise_check, verdict=None),
        strings={name: list(strings) for name, strings in released.strings.items()},
    )
    session.folder.write_release(made)
    session.store.mark(RELEASED)
    session.clear_scratch(own_scratch)
    for name, entry in made.statement.public_inputs.items():
        listener.say(f"{name}: {entry['source']}")
    for line in made.noise_lines:
        listener.say(line)
    _tell(verdict, listener, made.statement.unit, spent=True)
    if made.noise_check.warnings or (verdict and verdict.level == "noise"):
        if skips:
            listener.say("If you expected more, see private/skipped_rows.json: are the labels those of the data?")
        if listener.nobody:
            for warning in made.noise_check.warnings:
                warnings.warn(warning, UnderstudyWarning, stacklevel=2)
    return made


def _tell(verdict: Verdict | None, listener: Listener, unit: Unit, *, spent: bool = False) -> None:
    if verdict is None or not (sentence := verdict.sentence(spent=spent, unit=unit.kind)):
        return
    listener.say(sentence)
    if verdict.level == "noise" and listener.nobody:
        warnings.warn(sentence, UnderstudyWarning, stacklevel=3)


def _require_own(session: Session, made: Release) -> None:
    """See that the Release in the folder was made of the run's stored values."""
    if {made.statement.sealed} != {Sealed.of(seal) for seal in session.store.seals()}:
        raise PrivacyError(
            f"The Release in {session.folder.root.name} is not the one that this run made.",
            "Delete it and repeat the command: it is made again from the stored values, which charges nothing.",
        )


def _load_models(
    session: Session, job: Job, plan: Plan, labels: LabelSet, engine: Engine | None, listener: Listener
) -> Preparation:
    """What the method needs, loaded and tried before anything is charged.

    The embedder may read private texts, and texts do not change one another's vectors on this machine.
    """
    embedder = model = None
    dimension = 0
    if job.embeds_private_texts:
        own = job.embedder.load(session.folder.private, job.texts.form)
        embedder = embedder_of_workers(job.engine, own)
        require_trusted(embedder, trust_endpoint=job.embedder.trust_endpoint)
        dimension = require_embeds_all(embedder)
        require_text_invariance_here(embedder, say=listener.say)
        if engine is not None:
            require_same_vectors(engine, embedder)
        if any(charge.name == GUIDE for charge in plan.charges):
            require_guide_fits(labels.size, dimension)
    if job.method.needs.private_model:
        listener.say("Loading the private model, and checking on this machine that texts do not change each other's.")
        model = job.private_model.load()
        require_encodes_all(model)
    return Preparation(
        labels=labels,
        seed=job.wanted.seed,
        embedder=embedder,
        dimension=dimension,
        model=model,
        say=listener.say,
        progress=listener.progress,
    )


def _prepared(method: Method, corpus: BoundedCorpus, plan: Plan, preparation: Preparation) -> Any:
    """What the method does before the charge; rows that do not fit into memory are told as such."""
    try:
        return method.prepare(corpus, plan, preparation)
    except Exception as error:
        if preparation.model is None or isinstance(error, UnderstudyError) or not is_out_of_memory(error):
            raise
    raise ModelError(
        f"The prompts of one text do not fit into memory beside {preparation.model.model_id}.",
        "Show less of each text (--private-text-tokens) or fewer at once, or name a smaller model.",
    )


def _planned_release(job: Job, corpus: Corpus, plan: Plan, preparation: Preparation) -> Release:
    """The Release without its content, and its statement without seals."""
    read = preparation.embedder if job.embeds_private_texts else None
    schema, promise, columns = corpus.schema, job.promise, job.table.all_columns
    guided = promise.part(GuideParameters).model_dump(mode="json") if promise.guide else {}
    rows = promise.part(TablesParameters).model_dump(mode="json") if columns else {}
    return Release(
        method=job.method.name,
        parameters={**_without_folders(job.method), **guided, **rows, "seed": job.wanted.seed},
        schema=PublicSchema(
            schema.text or "record",
            COLUMN if job.topics else schema.label,
            job.label_set.names if job.topics else tuple(schema.labels),
            tuple(schema.record_columns),
            columns,
            schema.form,
            topics=job.topics,
        ),
        statement=Statement.of(
            plan,
            public_inputs={},
            labels_declared=schema.labels_declared,
            dataset=promise.dataset,
            trusted=(*trusted_with_texts(read), *statement_of(job.engine)),
            labels_found=job.topics,
        ),
        arrays={},
    )


def _check_columns(table: Table, corpus: Corpus, *, topics: bool) -> None:
    """Check that the corpus was read with the columns that say what is protected."""
    schema = corpus.schema
    if topics and schema.label:
        raise ConfigError(
            "Topics take the place of labels, and the corpus was read with a label column.",
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
    """The method's parameters. A Release names a public file, not where it lay on the machine that made it, and no
    private one."""
    files, private = method.parameters.files(), method.parameters.files(private=True)
    return {
        name: Path(value).name if name in files and isinstance(value, str) else value
        for name, value in method.dump().items()
        if name not in private
    }


def require_continuable(method: Method, *, fresh: bool) -> None:
    """Check that a run of these settings can be continued, before its folder is touched."""
    if not method.stopping_parameters:
        raise ConfigError(
            f"A release of {method.name} uses all that it pays for, so there is nothing to continue.",
            "Leave --continue out (a killed run goes on by itself); more of the same data is a new run.",
        )
    if fresh:
        raise ConfigError(
            "A release cannot both continue and start over.",
            "Give one of --continue and --fresh (which charges again).",
        )


def require_no_less(method: Method, made: Release) -> None:
    """Raises ConfigError if a continued release would stop earlier than the one that is there, and so write a smaller
    Release over a larger one."""
    wanted = method.dump()
    for name in sorted(method.stopping_parameters):
        before, now = made.parameters.get(name), wanted[name]
        if now is not None and (before is None or now < before):
            flag = "--" + name.replace("_", "-")
            raise ConfigError(
                f"{flag} {now} would stop earlier than the Release that is there ({before or 'no limit'}).",
                f"Give {flag} the same number or a higher one.",
            )


def require_same_model(session: Session, model: CausalModel | Embedder, *, what: str = "private model") -> None:
    """Check that a resumed run reads with the model that it began with: the statement names one.

    Args:
        what: the model is in this run.
    """
    sha = np.frombuffer(model.fingerprint.encode(), dtype=np.uint8)
    if not np.array_equal(session.store.keep_once(what, lambda: {"sha": sha})["sha"], sha):
        raise ResumeError(
            f"The {what} is not the one that this run began with: its weights or its tokenizer changed.",
            "Use the model that it began with (of the built-in one: the version of understudy), or --fresh to start "
            "over (which charges the budget again).",
        )


def label_by_topics(
    corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools, *, candidates: Any
) -> tuple[BoundedCorpus, LabelSet, Released]:
    """Find the topics of the records, with charges of their own, and give each record the nearest one for its label:
    the records with these labels, the topics' names, and the topics for the Release.

    Guarantee:
        Unit: a record; or an owner, of whom the same records count as without labels. The centres are released
        (:mod:`understudy.methods.topics.release`) before a record gets its label, which is a function of its own text
        and of them: a record has one label, as of a column, and the sensitivity of what is released by label is what
        it is there. Each session of a run computes a record's topic again, and may round otherwise: so each charge must
        be one measurement of all labels together, and a method that counts labels one by one under one charge is
        refused (``labels_in_parallel``). Labels of records never leave ``private/``; no text is read but to embed it.

    Args:
        tools: with as many labels as topics are looked for.
        candidates: what :func:`~understudy.methods.topics.release.embed_candidates` gave.
    """
    found = find(tools.labels.size, corpus, plan, replace(tools, prepared=candidates), beside=BESIDE)
    return (
        replace(corpus, label=TopicLabels(needed(tools.embedder), found.centres)),
        LabelSet(names_of(found.terms)),
        Released(
            {TOPIC_CENTRES: found.centres, TOPIC_SIZES: found.sizes},
            public_inputs={"topic terms": found.vocabulary, "embedder": found.embedder},
            noise_check=replace(found.check, verdict=None),
            strings={TOPIC_TERMS: found.terms},
        ),
    )
