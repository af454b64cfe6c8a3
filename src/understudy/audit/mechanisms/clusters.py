"""An attack on SecPE's sums over drawn records: is a secret there?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from understudy.audit.bounds import Floats
from understudy.audit.mechanisms.corpora import Row, corpus
from understudy.audit.mechanisms.promise import PosteriorPromise
from understudy.audit.mechanisms.secret_promise import secret_budget
from understudy.evolution.embeddings import integer_vectors
from understudy.methods.sec_pe.clusters import Clusters, ClusterSums
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import exact_sum, measure
from understudy.privacy.mechanisms import SampledSum
from understudy.privacy.noise import NoiseSource, SystemNoise
from understudy.privacy.secrets.bounds import poisson_binomial
from understudy.privacy.secrets.composition import calibrate
from understudy.privacy.unit import Unit

_SECRET, _OTHER = "Passport 9434765919", "a note on the weather"


class Corners:
    """An embedder: the secret's records lie in one corner, all others in another."""

    model_id = "corners"
    fingerprint = "0" * 64
    local = True

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.eye(2, dtype=np.float32)[[int(text != _SECRET) for text in texts]]


def cluster_sums() -> ClusterSums:
    """The real query: a label for the secret's records and one for the others, with one cluster each.

    The centres lie so far from the records that their residuals are clipped.
    """
    centres = integer_vectors(np.array([[0, 1], [-1, 0]], dtype=np.float32))[:, None]
    return ClusterSums(Clusters(centres, np.ones((2, 1), dtype=np.int64)), Corners(), clip=0.3, size_share=0.8)


@dataclass(frozen=True)
class SampledAttack:
    """Is the secret in the corpus of these sums, each of which samples records anew?

    The score is the log-likelihood ratio along the direction in which the secret's records move the sums, all alike.

    Args:
        mechanism: samples each record of the secret with ``rate``.
        releases: how often it is run, with a sample of its own each time.
        records: that hold the secret.
        promise: of all releases.
        source: of coins and noise.
    """

    mechanism: SampledSum
    rate: float
    releases: int
    records: int
    promise: PosteriorPromise
    source: NoiseSource = field(default_factory=SystemNoise)

    def scores(self, runs: int, *, present: bool) -> Floats:
        """A sum of them over releases."""
        unit = Unit("secret", self.records)
        others, mine = [Row(_OTHER, 1)] * 2, [Row(_SECRET)]
        data = corpus([*others, *mine * self.records] if present else others, unit)
        query, scale = cluster_sums(), self.mechanism.scale
        moved = exact_sum(query, corpus(mine, unit)) / scale
        length = float(np.linalg.norm(moved))
        answers = [
            np.vdot(measure(self.mechanism, query, data, source=self.source, rates=self.rate), moved)
            for _ in range(runs * self.releases)
        ]
        along = np.array(answers) * (self.mechanism.sensitivity.grid / scale / length)
        return np.asarray(self._ratio(along, length).reshape(runs, self.releases).sum(axis=1))

    def _ratio(self, along: Floats, length: float) -> Floats:
        from scipy.special import logsumexp

        parts = [
            math.log(chance) + sampled * length * along - (sampled * length) ** 2 / 2
            for sampled, chance in enumerate(poisson_binomial(self.mechanism.inclusion[0]))
            if chance > 0
        ]
        return np.asarray(logsumexp(parts, axis=0))


def sec_pe(budget: Budget, *, rate: float, records: int, releases: int = 1) -> SampledAttack:
    """Sums with the noise that SecPE's plan would calibrate for the secret alone."""
    inclusion = (((rate, records),),)
    spend = secret_budget(budget)
    query, multiplier = cluster_sums(), calibrate(spend, inclusion, releases=releases)
    mechanism = SampledSum(multiplier, inclusion, query.sensitivity, query.shape)
    promise = PosteriorPromise([mechanism.event] * releases, float(spend.prior))
    return SampledAttack(mechanism, rate, releases, records, promise)
