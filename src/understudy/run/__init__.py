"""One run from start to finish: plan, charge, release, generate, resume.

The order of things is the privacy argument (architecture, section 4, rule 3):

    plan       from public parameters; the ledger is asked whether it fits, nothing is read
    charge     content fingerprint, then one serialised transaction in the ledger, synced
    draw       each noisy value is stored in private/run.sqlite, and confirmed in the ledger by a keyed digest,
               before anything is done with it: a copy of the folder cannot draw and use another
    use        the Release is built from stored values only; on resume they are read, never redrawn
    generate   reads the Release; every answer of a language model is stored under its request
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from understudy.config import RunConfig, budget_fields, run_config
from understudy.corpus import Corpus
from understudy.errors import ConfigError
from understudy.methods.base import Method
from understudy.methods.registry import load_release, method_class, require_method
from understudy.privacy.guarantee import Budget
from understudy.privacy.noise import InsecureNoNoise, SystemNoise
from understudy.privacy.secrets.budget import SecretBudget
from understudy.release import Release
from understudy.run.generating import prepare_writing, write_texts
from understudy.run.listener import SILENT, Listener
from understudy.run.planning import (
    check_wanted,
    declared_label_set,
    make_plan,
    require_language_model,
    require_name,
    wanted,
)
from understudy.run.releasing import make_release
from understudy.run.result import Result
from understudy.run.resume import require_continuable
from understudy.run.session import noise_source, open_session

__all__ = [
    "Listener",
    "Result",
    "corpus_config",
    "declared_label_set",
    "generate",
    "make_plan",
    "release",
    "release_corpus",
    "require_language_model",
    "run",
    "synthesize",
    "wanted",
]


def release(
    config: RunConfig, *, corpus: Corpus | None = None, listener: Listener = SILENT, resume: bool = False
) -> Result:
    """Make a Release of private data: the only step that reads them.

    Args:
        resume: continue a release that stopped before its charges were used up; nothing more is charged.

    Raises:
        UnderstudyError: of the kind that says what is wrong; see ``docs/errors.md``.
    """
    require_name(config)
    require_language_model(config, releases=True, generates=False)
    needs = method_class(config.method).needs
    if resume:
        require_continuable(config)
    with open_session(config, config.lasting, noise_source(config)) as session:
        writing = None
        if needs.candidates or needs.private_model:
            writing = prepare_writing(session, config, listener, asks=needs.candidates)
        made = make_release(session, config, corpus, writing, listener, resume=resume)
        return Result(made, folder=session.visible_folder)


def run(config: RunConfig, *, corpus: Corpus | None = None, listener: Listener = SILENT) -> Result:
    """Release and generate in one go. The same configuration and output folder resume where a killed run was.

    Raises:
        UnderstudyError: of the kind that says what is wrong; see ``docs/errors.md``.
    """
    check_wanted(config)
    require_name(config)
    require_language_model(config, releases=True, generates=True)
    asks = method_class(config.method).needs.generation_llm != "never"
    with open_session(config, config.lasting, noise_source(config)) as session:
        writing = prepare_writing(session, config, listener, asks=asks)  # before anything is charged
        made = make_release(session, config, corpus, writing, listener)
        return write_texts(session, made, config, writing, listener, capped=True)


def generate(made: Release | str | Path, *, listener: Listener = SILENT, **options: Any) -> Result:
    """Turn a Release into synthetic records: post-processing, free, any number of times.

    Args:
        made: a Release, or its file.
        options: by their flag names: how many records, the language model, the writing, the output, and those
            parameters of the method that are free (``length``, ``contrast``, ...).

    Raises:
        UnderstudyError: of the kind that says what is wrong; see ``docs/errors.md``.
    """
    made = made if isinstance(made, Release) else load_release(made)
    free = set(method_class(made.method).generation_parameters.model_fields)
    fixed = {name: value for name, value in made.parameters.items() if name != "seed"}
    changed = sorted(name for name in set(options) & set(fixed) - free if options[name] != fixed[name])
    if changed:
        raise ConfigError(
            f"{changed[0]!r} was fixed when the Release was made.", "Leave it out, or make another Release."
        )
    config = run_config({**fixed, **options, "method": made.method})
    check_wanted(config)
    require_language_model(config, releases=False, generates=True)
    asks = method_class(config.method).needs.generation_llm != "never"
    noise = SystemNoise() if made.statement.private else InsecureNoNoise()  # none is added: whose folder it may be
    with open_session(config, {**config.lasting, "release": made.digest}, noise) as session:
        writing = prepare_writing(session, config, listener, asks=asks)
        return write_texts(session, made, config, writing, listener, clear=True)


def synthesize(
    corpus: Corpus,
    method: Method,
    budget: Budget | SecretBudget,
    *,
    llm: str = "builtin",
    records_per_label: int | None = None,
    records: int | None = None,
    output: str | Path | None = None,
    listener: Listener = SILENT,
    **options: Any,
) -> Result:
    """From a private corpus to a synthetic one, from Python (also inside a notebook's event loop).

    Args:
        corpus: from :func:`understudy.read_corpus`.
        method: such as ``DPKPS()``.
        budget: what the run may spend; booked in the ledger.
        llm: the model that writes the texts, or ``none``.
        records_per_label, records: how many synthetic records.
        output: folder for the results; without one nothing is kept and a killed run cannot be resumed.
        options: further parameters by their flag names (``dataset``, ``ledger``, ``max_records_per_owner``,
            ``document_type``, ``base_url``, ``seed``, ...).

    Raises:
        UnderstudyError: of the kind that says what is wrong; see ``docs/errors.md``.
    """
    return run(
        corpus_config(
            corpus,
            method,
            budget,
            llm=llm,
            records_per_label=records_per_label,
            records=records,
            output=output,
            **options,
        ),
        corpus=corpus,
        listener=listener,
    )


def release_corpus(
    corpus: Corpus,
    method: Method,
    budget: Budget | SecretBudget,
    *,
    output: str | Path | None = None,
    listener: Listener = SILENT,
    resume: bool = False,
    **options: Any,
) -> Release:
    """Make a Release of a private corpus, from Python; :func:`generate` turns it into texts, here or elsewhere.

    Args:
        corpus, method, budget, output, options: as for :func:`synthesize`.
        resume: as for ``release --continue``: use what an earlier release in ``output`` has paid for and not used.

    Raises:
        UnderstudyError: of the kind that says what is wrong; see ``docs/errors.md``.
    """
    config = corpus_config(corpus, method, budget, output=output, **options)
    return release(config, corpus=corpus, listener=listener, resume=resume).release


def corpus_config(corpus: Corpus, method: Method, budget: Budget | SecretBudget, **options: Any) -> RunConfig:
    """The configuration of a run on an open corpus."""
    if not isinstance(corpus, Corpus):
        raise ConfigError(
            f"The corpus is an object of the type {type(corpus).__name__}.", "Open the table with read_corpus first."
        )
    require_method(method)
    schema = corpus.schema
    return run_config(
        {
            "dataset": corpus.name,
            "text": schema.text,
            "record_columns": schema.record_columns,
            "label": schema.label,
            "labels": (schema.labels or None) if schema.labels_declared else None,
            "labels_from_data": not schema.labels_declared,
            "owner": schema.owner,
            "secrets": schema.secrets,
            **budget_fields(budget),
            "method": method.name,
            **method.dump(),
            **options,
        }
    )
