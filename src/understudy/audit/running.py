"""Audit a whole run: plant canaries in a copy of the corpus, run the method on it, and try to find which were planted.

    choose    canaries and coins, kept in private/ before anything else is done
    plant     a copy of the corpus with those whose coin says so
    run       the whole method, with a separate ledger
    attack    scores from the run's outputs
    bound     how large epsilon must be at least, for this many right guesses (Steinke, Nasr and Jagielski 2023)

Everything stays in the private part of the output folder: the run's results are not covered by a charge to the user's
dataset, so they must not be shared.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
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
from understudy.audit.result import (
    MOST_CANARIES,
    RunAudit,
    canaries_needed,
    guess_rules,
    judge,
    judge_groups,
    largest_bound,
)
from understudy.base.errors import ConfigError
from understudy.base.files import disk_faults, private_folder
from understudy.base.parameters import CommaSeparated, Parameters
from understudy.corpus import Corpus
from understudy.ledger.locking import FolderLock
from understudy.methods.additions.registry import own_parameters
from understudy.methods.dp_kps.plan import NAME as DP_KPS
from understudy.methods.dp_kps.plan import DPKPSParameters, score_noise
from understudy.models import catalog
from understudy.models.embedder_checks import require_trusted
from understudy.models.presets import preset_of
from understudy.models.types import Embedder
from understudy.models.vectors import remembering
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import SYSTEM
from understudy.release import Release
from understudy.run.defaults import fitted, settings_begun
from understudy.run.job import Job
from understudy.run.outputs import OutputFolder
from understudy.run.pipeline import run
from understudy.run.session import SILENT, Listener, remove_leftovers
from understudy.run.settings import RunConfig
from understudy.text.vocabulary.words import TermMatcher, split_words

FOLDER, CANARIES, AUDIT, LOCK = "audit", "canaries.json", "audit.json", "run.lock"
SECRET_DELTA = 1e-6
"""Delta at which an epsilon is computed for a run that promises secret protection."""


class AuditParameters(Parameters):
    """The audit."""

    canaries: int = Field(3000, ge=50, le=MOST_CANARIES)
    """Canaries: records that are each planted with probability 1/2."""
    prefix_words: int = Field(5, ge=0, le=100)
    """Number of words of a corpus record with which a canary begins."""
    suffix_terms: int = Field(8, ge=1, le=100)
    """Number of rare public terms with which it ends."""
    attacks: CommaSeparated = ()
    """Attacks to make: terms, ngram, embedding, release. Default: all that fit the method. Fewer, chosen before,
    sharpen it."""
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
        config: of the run, as for :func:`understudy.run.pipeline.run`. All is written to ``private/audit/`` of its
            ``output``, and the result to ``private/audit.json``; the folder may be that of the run itself.
        corpus: the open corpus, instead of ``config.data``.
    """
    parameters = parameters or AuditParameters()
    started = time.monotonic()
    place = config.output
    if place is None:
        raise ConfigError("An audit needs a folder for its results.", "Name one with --output FOLDER.")
    # a run in the same folder counts too: the audit's own run finds none
    config, _ = fitted(config, settings_begun(config))
    job = job_of(config)
    plan = job.plan()
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
    output = OutputFolder(Path(place))
    embedder, private = None, output.private
    if EMBEDDING in attacks:
        embedder = catalog.load_embedder(job.embedder.embedder)
        require_trusted(embedder, trust_endpoint=job.embedder.trust_endpoint)  # canaries begin like private records
        of_the_run = OutputFolder(private / FOLDER / RUN).private
        embedder = remembering(embedder, of_the_run)
    from understudy.ledger import Ledger

    with _locked(output) as folder:
        canaries = _prepare(job, parameters, corpus, folder, attacks)
        if job.promise.noise_source.origin == SYSTEM:
            Ledger.create(folder / LEDGER).close()
        diary = OutputFolder(folder / RUN)
        listener.say(f"Running the method on a copy. Its messages are in {diary.diary}: no charge covers them.")

        def note(line: str) -> None:
            diary.note_privately({"said": line})

        quiet = Listener(note, listener.progress, detail=note)
        result = run(on_the_copy(config, folder), listener=quiet)
    texts = [record.text for record in result.records if record.text]
    listener.say("Attacking the run's results.")
    scores = {name: score(name, canaries, texts=texts, release=result.release, embedder=embedder) for name in attacks}
    found = tuple(
        judge(name, values, canaries.planted, rules, delta=delta, confidence=single) for name, values in scores.items()
    )
    groups = groups_of(canaries, embedder)
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
        groups=judge_groups(scores, canaries.planted, groups, delta=delta, confidence=parameters.confidence),
    )
    with disk_faults(private):
        audit.save(private / AUDIT)
    shutil.rmtree(OutputFolder(private / FOLDER / RUN).shareable, ignore_errors=True)  # no charge covers it
    return audit


def promise(plan: Plan) -> tuple[float, float]:
    """Return the (epsilon, delta) that a run promises for adding or removing one unit.

    If secrets are protected, a run promises a posterior; the result is then the same noise's epsilon at delta = 1e-6.
    """
    if isinstance(plan.budget, Budget):
        return float(plan.budget.epsilon), float(plan.budget.delta)
    return plan.composition.epsilon(SECRET_DELTA), SECRET_DELTA


@contextmanager
def _locked(output: OutputFolder) -> Iterator[Path]:
    """Lock the audit's folder in ``private/``, because another audit at the same time would choose other canaries."""
    try:
        folder = private_folder(output.make_private() / FOLDER)
    except OSError as error:
        raise ConfigError(f"{output.private} cannot be made ({error.strerror}).", "Use another --output.") from None
    with ExitStack() as stack:
        stack.callback(FolderLock(folder).release)
        stack.enter_context(disk_faults(folder))
        remove_leftovers(folder)
        yield folder


def _prepare(
    job: Job, parameters: AuditParameters, corpus: Corpus | None, folder: Path, attacks: tuple[str, ...]
) -> Canaries:
    """Return the canaries, and the corpus with them in ``folder``; both are made once."""
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


def job_of(config: RunConfig) -> Job:
    """Return the job of a run that can be audited: its language model is on this machine, since no charge covers the
    run's results, and it does not declare public which record contains which secret. Raises ConfigError otherwise."""
    if config.method_parameters.get("incidence") == "public":
        raise ConfigError(
            "An audit changes which record contains which secret, but this run declares that public.",
            "Audit the same run with `incidence: private`.",
        )
    job = Job(config, generates=True)
    job.require_language()
    model = job.chat
    provider, preset = model.llm.partition(":")[0], preset_of(model.llm)
    if provider in ("builtin", "none", "hf"):
        return job
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
    return job


_ORDER = 3


class NGramModel:
    """Interpolated trigrams with Witten-Bell weights, down to equal chances for all words::

        p(w | h) = (c(h w) + t(h) p(w | h without its first word)) / (c(h) + t(h))

    c counts in the texts, t(h) is how many different words follow h. Memory: only contexts whose words are all in
    ``words`` are kept.

    Args:
        words: all words that will be asked about, contexts included.

    Source: Witten and Bell 1991, method C; Chen and Goodman 1999, section 2.
    """

    def __init__(self, texts: Iterable[str], *, words: Iterable[str]) -> None:
        known = frozenset(words)
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._total: Counter[tuple[str, ...]] = Counter()
        self._types: Counter[tuple[str, ...]] = Counter()
        for text in texts:
            found = split_words(text)
            for position, word in enumerate(found):
                for start in range(position, max(-1, position - _ORDER), -1):
                    context = tuple(found[start:position])
                    if context and context[0] not in known:
                        break
                    gram = (*context, word)
                    self._total[context] += 1
                    self._types[context] += gram not in self._counts
                    self._counts[gram] += 1
        self._uniform = 1 / (len(known) + self._types[()] + 1)

    def log_probability(self, words: Sequence[str], *, after: Sequence[str] = ()) -> float:
        """Return log p(words | after), summed over the words; natural logarithm."""
        whole = [*after, *words]
        return sum(
            math.log(self._probability(whole[position], tuple(whole[max(0, position - _ORDER + 1) : position])))
            for position in range(len(after), len(whole))
        )

    def _probability(self, word: str, context: tuple[str, ...]) -> float:
        value = self._uniform
        for start in range(len(context), -1, -1):
            history = context[start:]
            types = self._types[history]
            if types == 0:
                break
            value = (self._counts[(*history, word)] + types * value) / (self._total[history] + types)
        return value


Scores = NDArray[np.float64]

TERMS, NGRAM, EMBEDDING, RELEASE = "terms", "ngram", "embedding", "release"
ATTACKS = (TERMS, NGRAM, EMBEDDING, RELEASE)

FEWEST = 50
"""Least number of canaries in a group with its own bound."""


def groups_of(canaries: Canaries, embedder: Embedder | None) -> dict[str, NDArray[np.bool_]]:
    """Return the groups with their own bounds, ``Bool[m]`` by name: each label, and, with an embedder, the tenth of the
    canaries that are farthest from all. They do not depend on the coins."""
    labels = [canary.label for canary in canaries]
    found = {
        f"label {label}": np.array([each == label for each in labels], dtype=bool)
        for label in sorted({label for label in labels if label is not None}, key=str)
    }
    if embedder is not None:
        vectors = embedder.embed([canary.text for canary in canaries])
        cosines = vectors @ vectors.mean(axis=0)
        far = np.zeros(len(canaries), dtype=bool)
        far[np.argsort(cosines, kind="stable")[: len(canaries) // 10]] = True
        found["farthest from the rest"] = far
    return {name: chosen for name, chosen in found.items() if FEWEST <= chosen.sum() < len(canaries)}


_ALTERNATIVES = 20
_PARTS = 64


def attacks_of(method: str, chosen: Sequence[str]) -> tuple[str, ...]:
    """Return the attacks to make on a run of ``method``: the chosen ones or, by default, all that fit.

    Raises ConfigError if one is unknown, or does not fit the method.
    """
    possible = tuple(name for name in ATTACKS if name != RELEASE or method == DP_KPS)
    for name in chosen:
        if name not in possible:
            raise ConfigError(
                f"There is no attack {name!r} on the method {method}.", f"Attacks are {', '.join(possible)}."
            )
    return tuple(dict.fromkeys(chosen)) or possible


def score(
    attack: str, canaries: Canaries, *, texts: Sequence[str], release: Release, embedder: Embedder | None
) -> Scores:
    """Return the scores of one attack: ``Float64[m]``, one per canary."""
    makers: dict[str, Callable[[], Scores]] = {
        TERMS: lambda: term_scores(canaries, texts),
        NGRAM: lambda: ngram_scores(canaries, texts),
        EMBEDDING: lambda: embedding_scores(canaries, texts, embedder),
        RELEASE: lambda: release_scores(canaries, release),
    }
    return makers[attack]()


def term_scores(canaries: Canaries, texts: Sequence[str]) -> Scores:
    """Return how often each canary's rare terms occur in ``texts``. They occur in no other canary and in no record."""
    owners = [number for number, canary in enumerate(canaries) for _ in canary.terms]
    matcher = TermMatcher([term for canary in canaries for term in canary.terms])
    found = np.zeros(len(canaries))
    for text in texts:
        for index in matcher.find(text):
            found[owners[index]] += 1
    return found


def ngram_scores(canaries: Canaries, texts: Sequence[str]) -> Scores:
    """Return log p(suffix | prefix) in a trigram model of ``texts``, minus its mean over 20 other canaries' suffixes.

    Source: Meeus et al. 2025, *The Canary's Echo* (arXiv:2502.14921), who score with bigrams; the comparison with
    alternatives is the exposure of Carlini et al. 2019.
    """
    prefixes = [split_words(canary.prefix) for canary in canaries]
    suffixes = [split_words(canary.suffix) for canary in canaries]
    model = NGramModel(texts, words=(word for words in (*prefixes, *suffixes) for word in words))
    count = len(suffixes)
    others = range(1, min(_ALTERNATIVES, count - 1) + 1)
    found = np.zeros(count)
    for number, (prefix, suffix) in enumerate(zip(prefixes, suffixes, strict=True)):
        alternatives = [model.log_probability(suffixes[(number + step) % count], after=prefix) for step in others]
        found[number] = model.log_probability(suffix, after=prefix) - float(np.mean(alternatives or [0.0]))
    return found


def embedding_scores(canaries: Canaries, texts: Sequence[str], embedder: Embedder | None) -> Scores:
    """Return the cosine of each canary with its nearest synthetic text.

    Source: Meeus et al. 2025, who plant a canary several times and average over as many texts.
    """
    assert embedder is not None, "the audit loads one if this attack is made"
    if not texts:
        return np.zeros(len(canaries))
    ours, theirs = embedder.embed([canary.text for canary in canaries]), embedder.embed(list(texts))
    parts = [(part @ theirs.T).max(axis=1) for part in np.array_split(ours, _PARTS) if len(part)]
    return np.concatenate(parts).astype(np.float64)


def release_scores(canaries: Canaries, release: Release) -> Scores:
    """Score the canary's terms in a dp-kps Release: noisy counts and densities, each weighted by its signal over its
    variance: the log-likelihood ratio for gaussian noise, up to a constant.

    A term that is not in the privatised vocabulary counts as the smallest one that is.
    """
    parameters = DPKPSParameters(**own_parameters(release))
    mechanisms: dict[str, Any] = {charge.name: charge.mechanism for charge in release.statement.charges}
    terms = parameters.terms_per_record
    signal = 1 / math.sqrt(terms) if parameters.noise == "gaussian" else 1 / terms
    counts = np.asarray(release.arrays["counts"], dtype=np.float64)
    weighted = counts * signal / mechanisms["vocabulary"].noise_std ** 2
    least = float(weighted.min())
    labels = {label: row for row, label in enumerate(release.schema.labels)}
    by_label = np.tile(weighted, (release.schema.label_set.size, 1))
    variance = score_noise(parameters, mechanisms["density"].noise_multiplier) ** 2
    by_label += release.arrays["density"] * signal / variance
    position = {term: index for index, term in enumerate(release.terms)}
    found = np.zeros(len(canaries))
    for number, canary in enumerate(canaries):
        row = by_label[0 if canary.label is None else labels[canary.label]]
        found[number] = sum(row[position[term]] if term in position else least for term in canary.terms)
    return found
