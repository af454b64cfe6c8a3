"""Audit a whole run: plant canaries in a copy of the corpus, run the method on it, and try to tell which were planted.

    choose    canaries and coins, kept in private/ before anything else is done
    plant     a copy of the corpus with those in it whose coin says so
    run       the whole method, with a separate ledger
    attack    scores from what the run hands out
    bound     how large epsilon must be at least, for so many right guesses (Steinke, Nasr and Jagielski 2023)

Everything stays in the private part of the output folder: what the run makes is not covered by a charge to the user's
dataset, so it must not be handed out.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field

from understudy.audit.canaries import (
    CORPUS,
    LEDGER,
    RUN,
    Canaries,
    choose_canaries,
    load_canaries,
    on_the_copy,
    plant,
    vocabulary_of,
)
from understudy.audit.result import MOST_CANARIES, RunAudit, canaries_needed, guess_rules, judge, largest_bound
from understudy.audit.scoring import EMBEDDING, attacks_of, score
from understudy.base.errors import ConfigError
from understudy.base.files import disk_faults, private_folder
from understudy.base.parameters import CommaSeparated, Parameters
from understudy.corpus import Corpus
from understudy.ledger.locking import FolderLock
from understudy.models.presets import preset_of
from understudy.models.trials import require_trusted
from understudy.models.vectors import remembering
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import SYSTEM
from understudy.run.job import Job
from understudy.run.outputs import OutputFolder
from understudy.run.pipeline import run
from understudy.run.planning import make_plan
from understudy.run.session import SILENT, Listener, remove_leftovers
from understudy.run.settings import ModelParameters, RunConfig

FOLDER, CANARIES, AUDIT, LOCK = "audit", "canaries.json", "audit.json", "run.lock"
SECRET_DELTA = 1e-6
"""At which an epsilon is computed for a run that promises secret protection."""


class AuditParameters(Parameters):
    """The audit."""

    canaries: int = Field(3000, ge=50, le=MOST_CANARIES)
    """Canaries: records that are each planted with probability 1/2."""
    prefix_words: int = Field(5, ge=0, le=100)
    """Words of a record of the corpus that a canary begins with."""
    suffix_terms: int = Field(8, ge=1, le=100)
    """Rare public terms that it ends in."""
    attacks: CommaSeparated = ()
    """Attacks to make, of terms, ngram, embedding and release. Default: all that fit the method. Fewer, chosen
    beforehand, make a sharper bound."""
    confidence: float = Field(0.95, ge=0.5, lt=1)
    """Confidence of the bound, over all attacks together."""


def audit_run(
    config: RunConfig,
    parameters: AuditParameters | None = None,
    *,
    corpus: Corpus | None = None,
    listener: Listener = SILENT,
) -> RunAudit:
    """Audit the run that ``config`` describes. The same call resumes an audit that was killed.

    Args:
        config: of the run, as for :func:`understudy.run.run`. All is written to ``private/audit/`` of its ``output``,
            and the result to ``private/audit.json``; the folder may be that of the run itself.
        corpus: the open corpus, in place of ``config.data``.

    Raises UnderstudyError of the kind that says what is wrong; see ``docs/errors.md``.
    """
    parameters = parameters or AuditParameters()
    started = time.monotonic()
    if config.output is None:
        raise ConfigError("There is no folder for the results.", "Name one with --output FOLDER.")
    if config.method_parameters.get("incidence") == "public":
        raise ConfigError(
            "Canaries change which record holds which secret, which this run declares public.",
            "Audit the same run with `incidence: private`.",
        )
    job = Job(config, generates=True)
    _require_inside(job.chat)
    plan = make_plan(job.method, job.promise, job.table)
    epsilon, delta = promise(plan)
    attacks = attacks_of(job.method.name, parameters.attacks)
    rules = guess_rules(parameters.canaries)
    single = 1 - (1 - parameters.confidence) / (len(attacks) * len(rules))
    power = largest_bound(rules, canaries=parameters.canaries, delta=delta, confidence=single)
    needed = canaries_needed(epsilon, delta=delta, confidence=single)
    if power <= epsilon:
        enough = f"Nor could {MOST_CANARIES}; fewer attacks might." if needed is None else f"It takes {needed}."
        listener.say(
            f"With {parameters.canaries} canaries no bound can be above {power:.2f}: this audit cannot show that the "
            f"promised epsilon {epsilon:g} is broken. {enough}"
        )
    output = OutputFolder(Path(config.output))
    embedder, private = None, output.private
    if EMBEDDING in attacks:
        from understudy.models.catalog import load_embedder

        embedder = load_embedder(job.embedder.embedder)
        require_trusted(embedder, trust_endpoint=job.embedder.trust_endpoint)  # canaries begin like private records
        of_the_run = OutputFolder(private / FOLDER / RUN).private
        embedder = remembering(embedder, of_the_run)
    from understudy.ledger import Ledger

    with _locked(output) as folder:
        canaries = _prepare(job, parameters, corpus, folder, attacks)
        if job.promise.noise_source.origin == SYSTEM:
            Ledger.create(folder / LEDGER).close()
        diary = OutputFolder(folder / RUN)
        listener.say(f"Running the method on a copy: what it says is in {diary.diary}, since nobody has paid for it.")
        quiet = Listener(lambda line: diary.note_privately({"said": line}), listener.progress)
        result = run(on_the_copy(config, folder), listener=quiet)
    texts = [record.text for record in result.records if record.text]
    listener.say("Attacking what the run made.")
    found = tuple(
        judge(
            name,
            score(name, canaries, texts=texts, release=result.release, embedder=embedder),
            canaries.planted,
            rules,
            delta=delta,
            confidence=single,
        )
        for name in attacks
    )
    audit = RunAudit(
        method=job.method.name,
        unit=plan.unit.describe(),
        epsilon=epsilon,
        delta=delta,
        private=result.statement.private,
        canaries=len(canaries),
        planted=int(canaries.planted.sum()),
        synthetic_texts=len(texts),
        confidence=parameters.confidence,
        attacks=found,
        largest_bound=power,
        canaries_needed=needed,
        seconds=time.monotonic() - started,
        settings=parameters.model_dump(mode="json"),
    )
    with disk_faults(private):
        audit.save(private / AUDIT)
    shutil.rmtree(OutputFolder(private / FOLDER / RUN).shareable, ignore_errors=True)  # nobody has paid for it
    return audit


def promise(plan: Plan) -> tuple[float, float]:
    """The (epsilon, delta) that a run promises for adding or removing one unit.

    Where secrets are protected a run promises a posterior. What the same noise means at delta = 1e-6 stands for it.
    """
    if isinstance(plan.budget, Budget):
        return float(plan.budget.epsilon), float(plan.budget.delta)
    return plan.composition.epsilon(SECRET_DELTA), SECRET_DELTA


@contextmanager
def _locked(output: OutputFolder) -> Iterator[Path]:
    """The audit's folder in ``private/``, which no other audit may use meanwhile: it would toss other coins."""
    try:
        folder = private_folder(output.make_private() / FOLDER)
    except OSError as error:
        raise ConfigError(f"{output.private} cannot be made ({error.strerror}).", "Use another --output.") from None
    lock = FolderLock(folder)
    try:
        with disk_faults(folder):
            remove_leftovers(folder)
            yield folder
    finally:
        lock.release()


def _prepare(
    job: Job, parameters: AuditParameters, corpus: Corpus | None, folder: Path, attacks: tuple[str, ...]
) -> Canaries:
    """The canaries, and the corpus with them in ``folder``; both are made once."""
    lasting = {**job.lasting.settings, "audit": {**parameters.model_dump(mode="json"), "attacks": attacks}}
    settings = hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()
    if job.place.fresh:
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()
    kept = load_canaries(folder / CANARIES, settings=settings) if (folder / CANARIES).exists() else None
    if kept is not None and (folder / CORPUS).exists():
        return kept
    with job.table.open(folder) if corpus is None else nullcontext(corpus) as opened:
        if kept is None:
            kept = choose_canaries(
                opened,
                vocabulary_of(job.method).terms,
                finder=job.table.finder(opened) if job.promise.unit.kind == "secret" else None,
                count=parameters.canaries,
                prefix_words=parameters.prefix_words,
                suffix_terms=parameters.suffix_terms,
            )
            kept.save(folder / CANARIES, settings=settings)
        plant(job.table, job.promise.unit, opened, kept, folder)
    return kept


def _require_inside(model: ModelParameters) -> None:
    """Refuse endpoints on other machines: nothing is charged for what the run releases."""
    provider, preset = model.llm.partition(":")[0], preset_of(model.llm)
    if provider in ("builtin", "none", "hf"):
        return
    host = urlsplit(model.base_url or (preset and preset.base_url) or "").hostname or ""
    try:
        near = preset is not None and (host == "localhost" or ip_address(host).is_loopback)
    except ValueError:
        near = False
    if not near:
        raise ConfigError(
            "An audit's run is not charged to your dataset, so nothing of it may leave this machine.",
            "Use a local language model: --llm none, builtin, hf:NAME, or an endpoint with --base-url on localhost.",
        )
