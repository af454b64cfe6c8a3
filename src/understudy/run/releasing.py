"""The private half of a run: check, charge, draw, store, confirm, and only then use."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from understudy.config import DataParameters, RunConfig
from understudy.corpus import Corpus, canonical, read_corpus
from understudy.corpus.bounding import BoundedCorpus
from understudy.corpus.sources import SPOOL
from understudy.corpus.steady import SteadyCorpus, contents
from understudy.errors import ConfigError
from understudy.methods.protocol import Method, ReleaseTools
from understudy.methods.registry import make_method
from understudy.privacy.plan import Plan
from understudy.release import PublicSchema, Release, load_release
from understudy.run.charging import dataset_name, noise_source, open_ledger, pay
from understudy.run.generating import Writing, load_embedder_of, load_release_model_of
from understudy.run.going_on import require_begun, require_no_less, require_same_model
from understudy.run.listener import Listener
from understudy.run.planning import make_plan
from understudy.run.session import RELEASED, Session
from understudy.statement import Statement


def make_release(
    session: Session,
    config: RunConfig,
    corpus: Corpus | None,
    writing: Writing | None,
    listener: Listener,
    *,
    go_on: bool = False,
) -> Release:
    """The Release of the private data; the one that is there already where the run had come so far.

    Args:
        writing: prompts, and what writes candidates, for methods that need such.
        go_on: use what is still paid for, where the Release is there already.
    """
    method = make_method(config.method, config.method_parameters)
    file = session.folder.release_file(method.name)
    if go_on:
        require_begun(session)
        if file.exists():
            require_no_less(method, load_release(file))
    elif RELEASED in session.store.stages() and file.exists():
        more = " (release --continue uses what is still paid for)" if method.stopping_parameters else ""
        listener.say(f"{file.name} is there already: no private record is read, nothing is charged{more}.")
        made = load_release(file)
        session.folder.write_statement(made.statement)
        session.clear_scratch()
        return made
    early, noise = make_plan(config), noise_source(config)
    dataset = dataset_name(config.dataset, config.data)
    with ExitStack() as stack:
        ledger = stack.enter_context(open_ledger(config)) if noise.private else None
        if ledger is not None and ledger.dataset(dataset) is not None:
            ledger.check(dataset, early, run_id=session.store.run_id)  # before any private read
        if corpus is None:
            corpus = stack.enter_context(_open_corpus(config, session.folder.private))
        _check_columns(config, corpus)
        plan = make_plan(config, labels=max(1, len(corpus.labels)))
        embedder = load_embedder_of(config) if method.needs_embedder else None  # before anything is charged
        model = None
        if method.needs_release_model:
            listener.say("Loading the release model, and trying on this machine that texts do not change each other's.")
            model = load_release_model_of(config)
            assert writing is not None, "the run prepares prompts where needs_release_model says so"
            method.check_prompts(
                model,
                writing.prompts,
                label_names=[canonical(label) for label in corpus.labels],
                record_columns=corpus.schema.record_columns,
            )
        listener.say(f"Protecting {plan.unit.describe()}; the budget is {plan.budget}.")
        rows = ""
        if ledger is not None:
            found = contents(corpus, ledger.fingerprint_key)
            rows = found.digest
            corpus = SteadyCorpus(corpus, key=ledger.fingerprint_key, expected=found)
        if plan.unit.kind == "secret":
            _check_secrets(method, config, corpus, plan)
        paid = pay(ledger, dataset, plan, corpus, rows, session, listener)
        if model is not None:
            require_same_model(session, model)
        tools = ReleaseTools(
            labels=max(1, len(corpus.labels)),
            label_names=tuple(canonical(label) for label in corpus.labels),
            receipt=paid.receipt,
            noise=noise,
            keep=paid.keep,
            embedder=embedder,
            seed=config.seed,
            scratch=session.scratch,
            run_key=f"{session.store.run_id} {rows}",
            writer=writing.writer(config, corpus.labels, listener) if writing and method.asks_for_candidates else None,
            model=model,
            prompts=None if writing is None else writing.prompts,
            record_columns=tuple(corpus.schema.record_columns),
            say=listener.say,
            diary=session.folder.note_privately,
        )
        if not corpus.schema.labels_declared:
            listener.say("The label set is read from the data: it is not protected.")
        if config.on_bad_row == "skip":
            listener.say("Rows that cannot be used are left out; private/skipped_rows.json counts them.")
        listener.say("Reading the private records.")
        released = method.release(BoundedCorpus(corpus, plan.unit, paid.hash_key), plan, tools)
        schema = corpus.schema
    statement = Statement.of(
        plan,
        public_inputs=released.public_inputs,
        labels_declared=schema.labels_declared,
        dataset=dataset,
        private=noise.private,
        notes=released.notes,
    )
    made = Release(
        method=method.name,
        parameters={**_without_folders(method), "seed": config.seed},
        schema=PublicSchema(schema.text or "record", schema.label, tuple(schema.labels), tuple(schema.record_columns)),
        statement=statement,
        arrays={name: np.asarray(array) for name, array in released.arrays.items()},
        terms=list(released.terms),
        noise_check=released.noise_check,
        strings={name: list(strings) for name, strings in released.strings.items()},
    )
    session.folder.write_release(made)
    session.store.mark(RELEASED)
    session.clear_scratch()
    (session.folder.private / SPOOL).unlink(missing_ok=True)  # no private record is read any more
    for name, entry in made.statement.public_inputs.items():
        listener.say(f"{name}: {entry['source']}")
    for line in made.noise_lines:
        listener.say(line)
    return made


def _check_columns(config: RunConfig, corpus: Corpus) -> None:
    """That the corpus was read with the columns that say what is protected.

    Raises:
        ConfigError: if it was not.
    """
    if config.owner and corpus.schema.owner != config.owner:
        raise ConfigError(
            f"The corpus has no owner column {config.owner!r}.", "Read the corpus with this owner column."
        )
    if set(config.secrets) != set(corpus.schema.secrets):
        raise ConfigError(
            "The corpus was read with other secrets columns than the run names.",
            "Name the same columns in both: read_corpus(..., secrets=...) and secrets=....",
        )


def _check_secrets(method: Method, config: RunConfig, corpus: Corpus, plan: Plan) -> None:
    """What was declared of the secrets, checked before anything is charged, as a rule of the schema."""
    from understudy.corpus.secrets import check_records_per_secret, secret_finder

    finder = secret_finder(corpus, file=config.secrets_file, detectors=config.secret_detectors)
    check_records_per_secret(corpus, finder, plan.unit.max_records)
    method.check_secrets(corpus, finder, plan)


def _without_folders(method: Method) -> dict[str, Any]:
    """The method's parameters. A Release names a file, not where it lay on the machine that made it."""
    files = method.parameters.public_files()
    return {
        name: Path(value).name if name in files and isinstance(value, str) else value
        for name, value in method.dump().items()
    }


def _open_corpus(config: RunConfig, private: Path) -> Corpus:
    if not config.data:
        raise ConfigError("No private data are named.", "Give them with --data FILE.")
    data: DataParameters = config.part(DataParameters)
    fields = data.model_dump(
        exclude={"data", "max_records_per_owner", "secrets_file", "secret_detectors", "max_records_per_secret"}
    )
    return read_corpus(config.data[0] if len(config.data) == 1 else config.data, **fields, private_dir=private)
