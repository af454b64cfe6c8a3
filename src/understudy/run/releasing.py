"""The private half of a run: check, charge, draw, store, confirm, and only then use."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from understudy.config import RunConfig
from understudy.corpus import Corpus, canonical
from understudy.corpus.bounding import BoundedCorpus
from understudy.corpus.verified import VerifiedCorpus, contents
from understudy.errors import ConfigError, ModelError, PrivacyError, UnderstudyError, UnderstudyWarning
from understudy.methods.base import Method, Preparation, ReleaseTools
from understudy.methods.loading import load_release
from understudy.methods.registry import make_method
from understudy.models.memory import is_out_of_memory
from understudy.models.odd_texts import require_embeds_all, require_encodes_all
from understudy.models.text_probe import require_text_invariance
from understudy.models.trust import require_trusted, trusted_with_texts
from understudy.models.types import Embedder
from understudy.privacy.origin import SYSTEM
from understudy.privacy.plan import Plan
from understudy.release import PublicSchema, Release
from understudy.release.reading import require_readable
from understudy.run.charging import dataset_name, open_ledger, pay
from understudy.run.generating import Writing, load_embedder_of, load_private_model_of
from understudy.run.listener import SILENT, Listener
from understudy.run.planning import make_plan
from understudy.run.resume import require_begun, require_no_less, require_same_model
from understudy.run.session import RELEASED, Session
from understudy.statement import Statement

if TYPE_CHECKING:
    from understudy.models.causal import CausalModel


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
        session.clear_scratch()
        return made
    early = make_plan(config)
    dataset = dataset_name(config.dataset, config.data)
    with ExitStack() as stack:
        ledger = stack.enter_context(open_ledger(config, session.store)) if session.noise.origin == SYSTEM else None
        if ledger is not None:
            ledger.check_if_open(dataset, early, run_id=session.store.run_id)  # before any private read
        if corpus is None:
            corpus = stack.enter_context(config.open_corpus(session.folder.private))
        _check_columns(config, corpus)
        label_names = tuple(canonical(label) for label in corpus.labels)
        plan = make_plan(config, label_names=label_names)
        embedder = _load_embedder(method, config, listener) if method.needs_embedder else None
        dimension = 0 if embedder is None else require_embeds_all(embedder)
        model = None
        if method.needs_private_model:
            listener.say("Loading the private model, and trying on this machine that texts do not change each other's.")
            model = load_private_model_of(config)
            require_encodes_all(model)
            assert writing is not None, "the run prepares prompts where needs_private_model says so"
            _check_prompts(method, model, writing, label_names, corpus.schema.record_columns)
        listener.say(f"Protecting {plan.unit.describe()}; the budget is {plan.budget}.")
        rows = ""
        if ledger is not None:
            found = contents(corpus, ledger.fingerprint_key)
            rows = found.digest
            corpus = VerifiedCorpus(corpus, key=ledger.fingerprint_key, expected=found)
        if plan.unit.kind == "secret":
            _check_secrets(method, config, corpus, plan)
        session.folder.require_writable()
        statement = Statement.of(
            plan,
            public_inputs={},
            labels_declared=corpus.schema.labels_declared,
            dataset=dataset,
            private=session.noise.origin == SYSTEM,
            trusted=trusted_with_texts(embedder) if method.embeds_private_texts else (),
        )
        planned = Release(
            method=method.name,
            parameters={**_without_folders(method), "seed": config.seed},
            schema=PublicSchema(
                corpus.schema.text or "record",
                corpus.schema.label,
                tuple(corpus.schema.labels),
                tuple(corpus.schema.record_columns),
            ),
            statement=statement,
            arrays={},
        )
        require_readable(planned)
        preparation = Preparation(max(1, len(label_names)), label_names, embedder, dimension, config.seed, listener.say)
        prepared = None if session.begun else method.prepare(corpus, plan, preparation)
        paid = pay(ledger, dataset, plan, corpus, rows, session, listener)
        if model is not None:
            require_same_model(session, model)
        if embedder is not None:
            require_same_model(session, embedder, what="embedder")
        tools = ReleaseTools(
            labels=preparation.labels,
            label_names=label_names,
            receipt=paid.receipt,
            noise=session.noise,
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
            prepared=prepared,
        )
        if not corpus.schema.labels_declared:
            listener.say("The label set is read from the data: it is not protected.")
        if config.on_bad_row == "skip":
            listener.say("Rows that cannot be used are left out; private/skipped_rows.json counts them.")
        listener.say("Reading the private records.")
        bounded = BoundedCorpus(corpus, plan.unit, paid.hash_key, json_records=bool(corpus.schema.record_columns))
        released = method.release(bounded, plan, tools)
    made = replace(
        planned,
        statement=replace(
            statement,
            private=session.store.private,  # as its values are, whatever this process is
            public_inputs=released.public_inputs,
            notes=released.notes,
        ),
        arrays={name: np.asarray(array) for name, array in released.arrays.items()},
        terms=list(released.terms),
        noise_check=released.noise_check,
        strings={name: list(strings) for name, strings in released.strings.items()},
    )
    session.folder.write_release(made)
    session.store.mark(RELEASED)
    session.clear_scratch()
    for name, entry in made.statement.public_inputs.items():
        listener.say(f"{name}: {entry['source']}")
    for line in made.noise_lines:
        listener.say(line)
    if "warning" in made.noise_check:
        if config.on_bad_row == "skip":
            listener.say("If you expected more, see private/skipped_rows.json: are the labels those of the data?")
        if listener is SILENT:
            warnings.warn(str(made.noise_check["warning"]), UnderstudyWarning, stacklevel=2)
    return made


def _require_own(session: Session, made: Release) -> None:
    """That the Release which stands in the folder promises what the run's stored values keep, no more and no less.

    Raises:
        PrivacyError: if it does not, and so is another run's.
    """
    if made.statement.private != session.store.private:
        raise PrivacyError(
            f"The Release in {session.folder.root.name} is not the one that this run made.",
            "Delete it and repeat the command: it is made again from the stored values, which charges nothing.",
        )


def _load_embedder(method: Method, config: RunConfig, listener: Listener) -> Embedder:
    """The embedder, before anything is charged: one that will read private texts may do so, and its texts do not
    change one another's vectors on this machine. No method gets one that was not tried."""
    embedder = load_embedder_of(config)
    if method.embeds_private_texts:
        require_trusted(embedder, trust_endpoint=config.trust_endpoint)
        listener.say("Trying on this machine that texts do not change the embeddings of others (under a minute).")
        require_text_invariance(embedder)
    return embedder


def _check_prompts(
    method: Method, model: CausalModel, writing: Writing, label_names: Sequence[str], columns: Sequence[str]
) -> None:
    """That the prompts can be made, and the rows of one draw held, before anything is charged."""
    try:
        return method.check_prompts(model, writing.prompts, label_names=label_names, record_columns=columns)
    except Exception as error:
        if isinstance(error, UnderstudyError) or not is_out_of_memory(error):
            raise
    raise ModelError(
        f"The prompts of one draw do not fit into memory beside {model.model_id}.",
        "Show less of each text (--private-text-tokens) or fewer at once, or name a smaller model.",
    )


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
