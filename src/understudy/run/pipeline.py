"""The verbs release, run and generate, which make a Release and its texts. :mod:`understudy.api` calls them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from understudy.base.errors import ConfigError
from understudy.corpus import Corpus
from understudy.ledger.store import begun_settings
from understudy.methods.additions.registry import additions_in
from understudy.methods.registry import load_release, method_of
from understudy.methods.shared.vocabulary import TermListParameters
from understudy.privacy.noise import InsecureNoNoise, SystemNoise
from understudy.release import Release
from understudy.run.generating import Result, prepare_writing, write_texts
from understudy.run.job import FreeJob, Job
from understudy.run.outputs import OutputFolder
from understudy.run.progress import recorded
from understudy.run.releasing import check_cap, make_release
from understudy.run.session import GENERATED, SILENT, Listener, Session, Witness, open_session
from understudy.run.settings import RunConfig, run_config
from understudy.run.signing import Signing


def release(
    config: RunConfig, *, corpus: Corpus | None = None, listener: Listener = SILENT, resume: bool = False
) -> Result:
    """Make a Release of private data. This is the only step that reads them.

    Args:
        resume: continue a release that stopped before it used up its charges; nothing more is charged.
    """
    job = Job(config, charges=True, generates=False)
    job.require_language()
    signing = Signing.of(job)
    if resume and not job.method.stopping_parameters:
        raise ConfigError(
            f"A release of {job.method.name} uses everything that it pays for, so there is nothing to continue.",
            "Leave --continue out (a killed run resumes without it); more of the same data is a new run.",
        )
    if resume and job.place.fresh:
        raise ConfigError(
            "A release cannot both continue and start over.",
            "Give one of --continue and --fresh (which charges again).",
        )
    opened = open_session(job.place, job.lasting, job.promise.noise_source, scratch=job.engine.scratch)
    with _recorded(opened, job, listener, "release") as (session, listener):
        _check_table(session, job, corpus)
        writing = None
        if job.method.needs.candidates or job.method.needs.private_model:
            writing = prepare_writing(session, job.method, job.texts, job.chat, listener)
        made = make_release(session, job, corpus, writing, listener, resume=resume)
        return signing.of_result(Result(made, folder=session.visible_folder), listener)


def run(
    config: RunConfig, *, corpus: Corpus | None = None, listener: Listener = SILENT, witness: Witness | None = None
) -> Result:
    """Release and generate in one go. The same configuration and output folder resume a killed run.

    Args:
        witness: the observer of an audit; raises PrivacyError unless the run is NOT PRIVATE.
    """
    job = Job(config, charges=True, generates=True)
    job.require_language()
    signing = Signing.of(job)
    noise, scratch = job.promise.noise_source, job.engine.scratch
    opened = open_session(job.place, job.lasting, noise, witness=witness, scratch=scratch)
    with _recorded(opened, job, listener, "run") as (session, listener):
        _say_free(session, job, config, listener)
        _check_table(session, job, corpus)
        writing = prepare_writing(session, job.method, job.texts, job.chat, listener)  # before any charge
        made = make_release(session, job, corpus, writing, listener)
        return signing.of_result(write_texts(session, made, job, writing, listener, capped=True), listener)


def generate(made: Release | str | PathLike[str], *, listener: Listener = SILENT, **options: Any) -> Result:
    """Turn a Release into synthetic records: post-processing, free, any number of times.

    Args:
        made: a Release, or its file.
        options: by their flag names: how many records, the language model, the writing, the output, and the free
            parameters of the method (``length``, ``contrast``, ...).
    """
    made = made if isinstance(made, Release) else load_release(made)
    method = method_of(made)
    free = set(method.generation_parameters.model_fields)
    fixed = {name: value for name, value in made.parameters.items() if name != "seed"}
    changed = sorted(name for name in set(options) & set(fixed) - free if options[name] != fixed[name])
    if changed:
        raise ConfigError(
            f"{changed[0]!r} cannot be changed now: it was fixed when the Release was made.",
            "Leave it out, or make another Release.",
        )
    config = run_config({**fixed, **options, "method": made.method})
    job = FreeJob(
        config,
        form=made.schema.form,
        additions=[each.name for each in additions_in(made)],
        labels=made.schema.label_set.size,
        foreign=isinstance(method, TermListParameters) and method.not_english,
    )
    signing = Signing.of(job)
    noise = SystemNoise() if made.statement.private else InsecureNoNoise()  # none is added: the folder's kind
    if job.place.output is not None:
        OutputFolder(Path(job.place.output)).require_no_other_release(made)
    opened = open_session(job.place, job.lasting.free({"release": made.digest}), noise, free=True)
    with _recorded(opened, job, listener, "generate") as (session, listener):
        writing = prepare_writing(session, job.method, job.texts, job.chat, listener)
        return signing.of_result(write_texts(session, made, job, writing, listener, clear=True), listener)


def _check_table(session: Session, job: Job, corpus: Corpus | None) -> None:
    """Check the cap of the dataset, then that a new run's files are there, before a model is loaded. A run that began
    may not need its table."""
    check_cap(session, job)
    if corpus is None and not session.begun:
        job.table.require_header()


def _say_free(session: Session, job: Job, config: RunConfig, listener: Listener) -> None:
    """If the run in the folder has ended, tell the user that more texts from its Release are free, and what this
    command would charge."""
    if job.place.fresh and begun_settings(session.folder.private, session.noise.origin):
        listener.say("Starting over (--fresh): the budget is charged a second time.")
    elif GENERATED in session.store.stages() and session.begin():
        wanted = f" --records {config.records}" if config.records else ""
        listener.say(
            f"The run here has ended: `understudy generate {session.folder.root}{wanted} --output ELSEWHERE` writes "
            "more texts, free of charge. This command replaces the texts here, also free; --fresh would charge "
            "the budget a second time."
        )


@contextmanager
def _recorded(
    opened: AbstractContextManager[Session], job: FreeJob, listener: Listener, verb: str
) -> Iterator[tuple[Session, Listener]]:
    """Open the run's folder. Yield the session and the listener, wrapped so that its messages are also kept there."""
    with (
        opened as session,
        recorded(listener, session.visible_folder, verb=verb, method=job.method.name, dataset=job.dataset) as told,
    ):
        for line in job.decided:
            told.say(line)
        yield session, told
