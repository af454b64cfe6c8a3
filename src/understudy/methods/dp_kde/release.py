"""DP-KPS as published, the only code that reads private records.

KPS (Nagesh et al. 2025, arXiv:2502.13193, section 2 and appendix B), cut at the privacy boundary:

    counts  = [ records with v among their first S terms : v in V ] + noise                       charge "vocabulary"
    V~      = the N terms of the largest counts, embedded
    F_c     = sum over records of label c of the average of phi(t), t a term in V~, + noise       charge "density-1"
    F_cm    = sum over records of label c of phi(t_1..t_m), the first m terms in V~, + noise      charges "density-m"

Guarantee:
    Unit: a record, or an owner of whom at most k records are averaged (:mod:`understudy.corpus.bounding`).
    Each line with noise is one :class:`~understudy.privacy.mechanisms.NoisySum` over a query that states its
    sensitivity (:class:`~understudy.methods.shared.queries.counts.TermCounts`, :class:`TermDensity`,
    :class:`PrefixDensity`), joint over labels. Everything else is post-processing: V~ of noisy counts, its embeddings
    and random features of V~, a public model and a public seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ModelError
from understudy.corpus.bounding import BoundedBatch, BoundedCorpus
from understudy.methods.base import Preparation, Released, ReleaseTools, needed
from understudy.methods.dp_kde.generate import Frequencies, Phases, density_scores, integer_features
from understudy.methods.dp_kde.plan import (
    VOCABULARY,
    DensitySpec,
    DPKDEParameters,
    densities,
    require_room,
    score_noise,
)
from understudy.methods.release_schema import Contents, Held
from understudy.methods.shared.queries.counts import TermCounts, TermHistogram, TermRows
from understudy.methods.shared.specs import TermHistogramSpec
from understudy.methods.shared.vocabulary import REAL, public_vocabulary
from understudy.models.types import Embedder
from understudy.privacy.events import GaussianEvent, PureEvent
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.measurement import PlannedQuery
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.plan import Plan
from understudy.privacy.verdict import Verdict
from understudy.release import Release
from understudy.text.vocabulary.shrinkage import KnownNoise, noise_floor, shrink, top_terms
from understudy.text.vocabulary.words import TermMatcher

_TRIED = 256
_NUMBERS = 1 << 22  # of phases at once


@dataclass(frozen=True)
class TermDensity(PlannedQuery[BoundedBatch, DensitySpec]):
    """Kernel density of terms: for each label, the sum over its records of the average of their terms' features.

    Guarantee:
        Unit: a record, or an owner whose records are averaged jointly over labels.
        Sensitivity: a record's weights on its m terms are floor(COUNT_GRID / m) each, COUNT_GRID together at most, and
        a term's integer features have L2 norm at most GRID sqrt(I) and L1 norm at most GRID sqrt(2) I; so has their
        weighted sum, times COUNT_GRID (the triangle inequality). Of an owner's k records each has COUNT_GRID / k.
        Source: KPS; LSQ (Wagner et al. 2023).
    """

    rows: TermRows
    features: NDArray[np.int32]  # [N, 2 I], of terms

    @property
    def weights(self) -> TermHistogram:
        """Return the weights of a record's terms, of L1 norm 1 for either noise."""
        spec = TermHistogramSpec("laplace", self.rows.terms_per_record, len(self.features), (self.spec.labels,))
        return TermHistogram(spec, self.rows.matcher)

    @property
    def found(self) -> tuple[int, ...]:
        return self.features.shape[1:]

    @property
    def partial_shape(self) -> tuple[int, ...]:
        return self.weights.shape

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        return self.weights.of_batch(batch)

    def finish(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        return sums @ self.features.astype(np.int64)


@dataclass(frozen=True)
class PrefixDensity(PlannedQuery[BoundedBatch, DensitySpec]):
    """Kernel density of sequences of m terms: for each label, the sum over its records of the features of a record's
    first m distinct terms. A record with fewer terms adds nothing.

    Guarantee:
        Unit: a record, or an owner whose records are averaged jointly over labels.
        Sensitivity: floor(COUNT_GRID / the owner's records) times one vector of integer features of a record: L2 norm
        at most COUNT_GRID GRID sqrt(I), L1 norm at most COUNT_GRID GRID sqrt(2) I, whatever the phases are.
        Source: KPS, appendix B; LSQ (Wagner et al. 2023).
    """

    rows: TermRows
    phases: Phases  # [m, N, I]

    @property
    def found(self) -> tuple[int, ...]:
        return (2 * self.phases.shape[2],)

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        total, rows, length = np.zeros(self.shape, dtype=np.int64), self.rows.of(batch), len(self.phases)
        complete = np.flatnonzero(rows[:, length - 1] >= 0)
        size = max(1, _NUMBERS // (length * self.phases.shape[2]))
        for some in (complete[start : start + size] for start in range(0, len(complete), size)):
            phases = self.phases[np.arange(length), rows[some, :length]].sum(axis=1, dtype=np.uint16)
            features = integer_features(phases).astype(np.int64)
            weights = np.zeros((self.spec.labels, len(some)), dtype=np.int64)
            weights[batch.labels[some], np.arange(len(some))] = COUNT_GRID // batch.shares[some]
            total += weights @ features
        return total


def prepare(parameters: DPKDEParameters, corpus: BoundedCorpus, plan: Plan, preparation: Preparation) -> None:
    """Check that the embedder works on public terms, and that N terms fit into memory. Raises ModelError or
    ConfigError."""
    tried = _unit_vectors(needed(preparation.embedder), public_vocabulary(parameters).terms[:_TRIED])
    cure = "Lower features, top_terms or, in the iterative mode, length."
    require_room(parameters, terms=parameters.top_terms, dimension=tried.shape[1], cure=cure)


def contents(parameters: DPKDEParameters, release: Release) -> Contents:
    """Describe the N terms with their noisy counts and embeddings, and the noisy random features of each density by
    label."""
    terms, names = parameters.top_terms, densities(parameters).values()
    kind = GaussianEvent.kind if parameters.noise == "gaussian" else PureEvent.kind
    sums = Held("float64", (release.schema.label_set.size, 2 * parameters.features))
    arrays = {
        "counts": Held("float64", (terms,)),
        REAL: Held("float64", (terms,), 0, 1),
        "embeddings": Held("float32", (terms, "dimension of terms"), -1.01, 1.01),
        "frequencies": Held("uint8", (32,)),
    }
    return Contents(dict.fromkeys((VOCABULARY, *names), kind), arrays | dict.fromkeys(names, sums), terms=terms)


def release(parameters: DPKDEParameters, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
    """Release noisy counts of the vocabulary's most frequent terms and, per sequence length and label, a noisy kernel
    density over sequences of these terms."""
    vocabulary, embedder = public_vocabulary(parameters), needed(tools.embedder)
    tools.require_same(VOCABULARY, vocabulary.sha256)
    size = len(vocabulary.terms)
    measured = tools.measure(VOCABULARY, TermCounts(plan.query(VOCABULARY), TermMatcher(vocabulary.terms)), corpus)
    counts, std = measured.value, plan.mechanism(VOCABULARY).noise_std
    real = shrink(counts, KnownNoise(parameters.noise, 0.0 if measured.seal.noise == "none" else std)).probability
    chosen = top_terms(counts, parameters.top_terms)
    terms = [vocabulary.terms[index] for index in chosen.tolist()]
    embeddings = tools.keep("embeddings", lambda: {"values": _unit_vectors(embedder, terms)})["values"]
    frequencies = Frequencies(tools.seed, parameters.features, parameters.bandwidth, embeddings.shape[1])
    arrays: dict[str, NDArray[Any]] = {
        "counts": counts[chosen],
        REAL: real[chosen],
        "embeddings": embeddings,
        "frequencies": np.frombuffer(frequencies.digest, dtype=np.uint8),
    }
    rows = TermRows(TermMatcher(terms), parameters.terms_per_record)
    for length, name in densities(parameters).items():
        phases = frequencies.phases(embeddings, length)
        spec: DensitySpec = plan.query(name)
        of_terms = TermDensity(spec, rows, integer_features(phases[0])) if length == 1 else None
        arrays[name] = tools.measure(name, of_terms or PrefixDensity(spec, rows, phases), corpus).value
    floor = noise_floor(std, size)
    noise = score_noise(parameters, plan.mechanism(densities(parameters)[1]).noise_multiplier)
    strong = (density_scores(arrays["density-1"], frequencies, embeddings) > 3 * noise).sum(axis=1)
    entries = (
        Fact("vocabulary_terms_above_floor", int((counts > floor).sum()), "terms that count as real"),
        Fact("scores_above_3_std", tuple(map(int, strong)), "reliable terms (3 std above the noise)"),
    )
    public = {
        "vocabulary": vocabulary.public_input,
        "embedder": {"source": embedder.model_id, "sha256": embedder.fingerprint},
    }
    verdict = None if strong.any() else Verdict("noise", "topics")
    return Released(arrays, terms, public, Facts(entries, verdict=verdict))


def _unit_vectors(embedder: Embedder, terms: Sequence[str]) -> NDArray[np.float32]:
    """Return an embedding of length 1 per term, ``Float32[n, d]``. Raises ModelError if the embedder does not."""
    vectors = np.asarray(embedder.embed(terms), dtype=np.float32)
    if vectors.ndim != 2 or len(vectors) != len(terms) or not (abs(np.linalg.norm(vectors, axis=1) - 1) < 0.01).all():
        raise ModelError(
            f"The embedder {embedder.model_id!r} does not return one vector of length 1 per term.",
            "Use an embedder that normalises its vectors.",
        )
    return vectors
