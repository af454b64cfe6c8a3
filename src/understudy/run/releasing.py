"""The private half of a run: check, charge, sample, store, confirm, and only then use."""

from __future__ import annotations

import sys
import warnings
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from understudy.base.errors import (
    ConfigError,
    ModelError,
    PrivacyError,
    ResumeError,
    UnderstudyError,
    UnderstudyWarning,
)
from understudy.base.labels import LabelSet
from understudy.base.quiet import quiet_libraries
from understudy.corpus import Corpus, canonical
from understudy.corpus.bounding import BoundedCorpus
from understudy.corpus.verified import VerifiedCorpus, contents
from understudy.methods.base import Method, Preparation, Released, ReleaseTools, needed
from understudy.methods.registry import load_release, make_method, method_class
from understudy.methods.shared.guide.plan import GUIDE, require_guide_fits
from understudy.methods.shared.tables.fitting import require_fitting
from understudy.methods.shared.tables.parameters import TablesParameters
from understudy.models.machine import is_out_of_memory
from understudy.models.trials import (
    require_embeds_all,
    require_encodes_all,
    require_text_invariance,
    require_trusted,
    trusted_with_texts,
)
from understudy.privacy.measurement import Engine
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import SYSTEM
from understudy.release import PublicSchema, Release
from understudy.release.reading import require_readable
from understudy.release.statement import Sealed, Statement
from understudy.run.generating import Writing, load_private_model_of, require_room
from understudy.run.guiding import guide_parameters, load_embedder_of, with_guide
from understudy.run.measuring import dataset_name, open_ledger, pay
from understudy.run.planning import make_plan, variables_of, weak_promises
from understudy.run.session import RELEASED, Listener, Session
from understudy.run.settings import RunConfig
from understudy.run.tabling import TableRows, with_columns
from understudy.run.working import embedder_of_workers, open_engine, require_same_vectors, statement_of

if TYPE_CHECKING:
    from understudy.corpus.secrets import SecretFinder
    from understudy.models.causal import CausalModel
    from understudy.models.types import Embedder


@quiet_libraries()
def make_release(
    session: Session,
    config: RunConfig,
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
    method = make_method(config.method, config.method_parameters)
    file = session.folder.release_file(method.name)
    if resume:
        require_begun(session)
        if file.exists():
            require_no_less(method, load_release(file, max_bytes=sys.maxsize))
    elif RELEASED in session.store.stages() and file.exists():
        more = " (release --continue uses what is still paid for)" if method.stopping_parameters else ""
        listener.say(f"{file.name} is there already: no private record is read, nothing is charged{more}.")
        made = load_release(file, max_bytes=sys.maxsize)  # this run's own
        _require_own(session, made)
        session.folder.write_statement(made.statement)
        session.clear_scratch(_scratch(config, session))
        return made
    early = make_plan(config)
    dataset = dataset_name(config.dataset, config.data)
    with ExitStack() as stack:
        ledger = stack.enter_context(open_ledger(config, session.store)) if session.noise.origin == SYSTEM else None
        if ledger is not None:
            ledger.check_if_open(dataset, early, run_id=session.store.run_id)  # before any private read
        engine = stack.enter_context(open_engine(config, _scratch(config, session)))
        if corpus is None:
            corpus = stack.enter_context(config.open_corpus(session.folder.private))
        _check_columns(config, corpus)
        labels = LabelSet(tuple(canonical(label) for label in corpus.labels))
        plan = make_plan(config, labels=labels)
        variables = variables_of(config, labels)
        if variables is not None:
            require_fitting()
        preparation = _load_models(session, method, config, corpus, labels, plan, writing, listener, engine)
        protected = plan.unit.describe() if method.private else "nobody: a yardstick without privacy"
        listener.say(f"Protecting {protected}; the budget is {plan.budget}.")
        for warning in weak_promises(config, plan.budget):
            listener.say(f"Warning: {warning}")
            if listener.nobody:
                warnings.warn(warning, UnderstudyWarning, stacklevel=2)
        found = None
        if ledger is not None:
            found = contents(corpus, ledger.fingerprint_key, engine)
            if not session.begun:
                corpus.require_usable(found.bad_share)
            corpus = VerifiedCorpus(corpus, key=ledger.fingerprint_key, expected=found)
        if plan.unit.kind == "secret":
            preparation = replace(preparation, secrets=_find_secrets(config, corpus, plan))
        session.folder.require_writable()
        planned = _planned_release(method, config, corpus, plan, dataset, preparation)
        require_readable(planned)
        if writing is not None:
            require_room(writing, method, planned, config, listener)
        if method.needs.candidates and not session.begun:
            listener.say("Votes are about what --llm writes: another can take over until the release, not after it.")
        json_records = bool(corpus.schema.record_columns)
        no_key = b""  # it comes with the charge
        unkeyed = BoundedCorpus(corpus, plan.unit, no_key, json_records, engine, form=corpus.schema.form)
        scratch = session.scratch_of("" if found is None else found.digest, _scratch(config, session))
        prepared = _prepared(method, unkeyed, plan, replace(preparation, resuming=session.begun))
        paid = pay(ledger, dataset, plan, corpus, found, session, listener)
        _require_same_models(session, preparation)
        tools = ReleaseTools(
            **{each.name: getattr(preparation, each.name) for each in fields(preparation)},
            door=paid.door,
            writer=writing.writer(config, corpus.labels, listener) if writing and method.needs.candidates else None,
            prepared=prepared,
            scratch=scratch,
            note=session.folder.note_privately,
        )
        if not corpus.schema.labels_declared:
            listener.say("The label set is read from the data: it is not protected.")
        if config.on_bad_row == "skip":
            listener.say("Rows that cannot be used are left out; private/skipped_rows.json counts them.")
        listener.say("Reading the private records.")
        bounded = replace(unkeyed, hash_key=paid.hash_key, scratch=scratch)
        beside, parameters = Released({}), config.part(TablesParameters)
        if variables is not None and method.needs.rows:
            beside = with_columns(beside, bounded, plan, tools, variables=variables, parameters=parameters)
            rows = TableRows.of(replace(planned, arrays=dict(beside.arrays)), seed=config.seed)
            tools = replace(tools, rows=needed(rows).of_part)
        released = method.release(bounded, plan, tools) | beside
        if config.guide:
            released = with_guide(released, bounded, plan, tools)
        if variables is not None and not method.needs.rows:
            released = with_columns(released, bounded, plan, tools, variables=variables, parameters=parameters)
    statement = replace(
        planned.statement, public_inputs=released.public_inputs, notes=(*planned.statement.notes, *released.notes)
    )
    made = replace(
        planned,
        statement=statement.with_seals(session.store.seals()),  # as its values are, whatever this process is
        arrays={name: np.asarray(array) for name, array in released.arrays.items()},
        terms=list(released.terms),
        noise_check=released.noise_check,
        strings={name: list(strings) for name, strings in released.strings.items()},
    )
    session.folder.write_release(made)
    session.store.mark(RELEASED)
    session.clear_scratch(_scratch(config, session))
    for name, entry in made.statement.public_inputs.items():
        listener.say(f"{name}: {entry['source']}")
    for line in made.noise_lines:
        listener.say(line)
    if made.noise_check.warnings:
        if config.on_bad_row == "skip":
            listener.say("If you expected more, see private/skipped_rows.json: are the labels those of the data?")
        if listener.nobody:
            for warning in made.noise_check.warnings:
                warnings.warn(warning, UnderstudyWarning, stacklevel=2)
    return made


def _scratch(config: RunConfig, session: Session) -> Path:
    """Where intermediate files go, by a path that other processes can follow."""
    return (session.scratch if config.scratch is None else Path(config.scratch).expanduser()).resolve()


def _require_own(session: Session, made: Release) -> None:
    """That the Release which stands in the folder is of the run's stored values.

    Raises PrivacyError if it is not, and so is another run's.
    """
    if {made.statement.sealed} != {Sealed.of(seal) for seal in session.store.seals()}:
        raise PrivacyError(
            f"The Release in {session.folder.root.name} is not the one that this run made.",
            "Delete it and repeat the command: it is made again from the stored values, which charges nothing.",
        )


def _load_models(
    session: Session,
    method: Method,
    config: RunConfig,
    corpus: Corpus,
    labels: LabelSet,
    plan: Plan,
    writing: Writing | None,
    listener: Listener,
    engine: Engine | None,
) -> Preparation:
    """What the method needs, loaded and tried before anything is charged.

    An embedder that will read private texts may do so, and texts do not change one another's vectors on this machine.
    """
    needs = method.needs
    embedder = model = None
    dimension = 0
    if method.needs_embedder or config.guide:
        embedder = embedder_of_workers(config, load_embedder_of(config, session.folder.private, config.form))
        if _embeds_private_texts(method, config):
            require_trusted(embedder, trust_endpoint=config.trust_endpoint)
            listener.say("Checking on this machine that texts do not change each other's embeddings (under a minute).")
            require_text_invariance(embedder)
            if engine is not None:
                require_same_vectors(engine, embedder)
        dimension = require_embeds_all(embedder)
        if any(charge.name == GUIDE for charge in plan.charges):
            require_guide_fits(labels.size, dimension)
    if needs.private_model:
        listener.say("Loading the private model, and checking on this machine that texts do not change each other's.")
        model = load_private_model_of(config)
        require_encodes_all(model)
    return Preparation(
        labels=labels,
        seed=config.seed,
        embedder=embedder,
        dimension=dimension,
        model=model,
        prompts=None if writing is None else writing.prompts,
        record_columns=tuple(corpus.schema.record_columns),
        columns=corpus.schema.typed,
        say=listener.say,
        progress=listener.progress,
    )


def _embeds_private_texts(method: Method, config: RunConfig) -> bool:
    return config.guide or method.needs.embedder == "private"


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


def _planned_release(
    method: Method, config: RunConfig, corpus: Corpus, plan: Plan, dataset: str, preparation: Preparation
) -> Release:
    """The Release without its content, and its statement without seals."""
    read = preparation.embedder if _embeds_private_texts(method, config) else None
    schema = corpus.schema
    columns = config.part(TablesParameters).model_dump(mode="json") if config.all_columns else {}
    return Release(
        method=method.name,
        parameters={**_without_folders(method), **guide_parameters(config), **columns, "seed": config.seed},
        schema=PublicSchema(
            schema.text or "record",
            schema.label,
            tuple(schema.labels),
            tuple(schema.record_columns),
            config.all_columns,
            schema.form,
        ),
        statement=Statement.of(
            plan,
            public_inputs={},
            labels_declared=schema.labels_declared,
            dataset=dataset,
            trusted=(*trusted_with_texts(read), *statement_of(config)),
        ),
        arrays={},
    )


def _require_same_models(session: Session, preparation: Preparation) -> None:
    for what, model in (("private model", preparation.model), ("embedder", preparation.embedder)):
        if model is not None:
            require_same_model(session, model, what=what)


def _check_columns(config: RunConfig, corpus: Corpus) -> None:
    """That the corpus was read with the columns that say what is protected. Raises ConfigError if it was not."""
    if config.owner and corpus.schema.owner != config.owner:
        raise ConfigError(
            f"The corpus has no owner column {config.owner!r}.", "Read the corpus with this owner column."
        )
    if (config.typed_columns, config.crossed) != (corpus.schema.typed, corpus.schema.crossed):
        raise ConfigError(
            "The corpus was read with other typed columns than the run declares.",
            "Declare the same columns in both: read_corpus(..., columns=...) and columns=....",
        )
    if set(config.secrets) != set(corpus.schema.secrets):
        raise ConfigError(
            "The corpus was read with other secrets columns than the run names.",
            "Name the same columns in both: read_corpus(..., secrets=...) and secrets=....",
        )


def _find_secrets(config: RunConfig, corpus: Corpus, plan: Plan) -> SecretFinder:
    """What tells secrets; that none is in more records than declared is checked before anything is charged."""
    from understudy.corpus.secrets import check_records_per_secret, secret_finder

    finder = secret_finder(corpus, file=config.secrets_file, detectors=config.secret_detectors)
    check_records_per_secret(corpus, finder, plan.unit.max_records)
    return finder


def _without_folders(method: Method) -> dict[str, Any]:
    """The method's parameters. A Release names a public file, not where it lay on the machine that made it, and no
    private one."""
    files, private = method.parameters.public_files(), method.parameters.private_files()
    return {
        name: Path(value).name if name in files and isinstance(value, str) else value
        for name, value in method.dump().items()
        if name not in private
    }


def require_continuable(config: RunConfig) -> None:
    """That a run of these settings can be continued, before its folder is touched.

    Raises ConfigError if the method's releases do not stop before their charges are used up, or all is to start anew.
    """
    if not method_class(config.method).stopping_parameters:
        raise ConfigError(
            f"A release of {config.method} uses all that it pays for, so there is nothing to continue.",
            "Leave --continue out (a killed run goes on by itself); more of the same data is a new run.",
        )
    if config.fresh:
        raise ConfigError(
            "A release cannot both go on and start anew.", "Give one of --continue and --fresh (which charges again)."
        )


def require_begun(session: Session) -> None:
    """That there is something to go on with. Raises ConfigError if no run began here."""
    if not session.begun:
        raise ConfigError(
            "No run began in this output folder, so there is nothing to continue.",
            "Name the folder of the run with --output, or leave --continue out.",
        )


def require_no_less(method: Method, made: Release) -> None:
    """That a release that goes on stops no earlier than the one that is there.

    Raises ConfigError if it would, and so write a smaller Release over a larger one.
    """
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
    """That a run which goes on reads with the model that it began with: the statement names one.

    Args:
        what: the model is in this run.

    Raises:
        ResumeError: if its weights or tokenizer are others.
    """
    sha = np.frombuffer(model.fingerprint.encode(), dtype=np.uint8)
    if not np.array_equal(session.store.keep_once(what, lambda: {"sha": sha})["sha"], sha):
        raise ResumeError(
            f"The {what} is not the one that this run began with: its weights or its tokenizer changed.",
            "Use the model it began with, or --fresh to start anew (which charges the budget again).",
        )
