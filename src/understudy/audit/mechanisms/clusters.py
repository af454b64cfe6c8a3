"""An attack on SecPE's sums over drawn records: is a secret there?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.audit.bounds import Floats
from understudy.audit.mechanisms.corpora import Row, corpus
from understudy.audit.mechanisms.noisy_sums import paid
from understudy.audit.mechanisms.promise import PosteriorPromise
from understudy.audit.mechanisms.secret_promise import secret_budget
from understudy.evolution.embeddings import integer_vectors
from understudy.methods.sec_pe.clusters import Clusters, ClusterSums
from understudy.privacy.guarantee import Budget
from understudy.privacy.noise import NoiseSource, SystemNoise
from understudy.privacy.sampling import SampledSum
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
class DrawnAttack:
    """Is the secret in the corpus of these sums, each of which draws records anew?

    The score is the log-likelihood ratio along the direction in which the secret's records move the sums, all alike.

    Args:
        mechanism: draws each record of the secret with one rate.
        releases: how often it is run, with draws of its own each time.
        records: that hold the secret.
        promise: of all releases.
        source: of coins and noise.
    """

    mechanism: SampledSum[Any]
    releases: int
    records: int
    promise: PosteriorPromise
    source: NoiseSource = field(default_factory=SystemNoise)

    def scores(self, runs: int, *, present: bool) -> Floats:
        """A sum of them over releases."""
        unit = Unit("secret", self.records)
        others, mine = [Row(_OTHER, 1)] * 2, [Row(_SECRET)]
        data = corpus([*others, *mine * self.records] if present else others, unit)
        query, event = self.mechanism.query, self.mechanism.event
        moved = query.evaluate(corpus(mine, unit), lambda count: np.ones(count, dtype=np.bool_)) / self.mechanism.scale
        length = float(np.linalg.norm(moved))
        answers = [
            np.vdot(self.mechanism.run(data, receipt=paid(query.name, event), source=self.source), moved)
            for _ in range(runs * self.releases)
        ]
        along = np.array(answers) * (query.grid / self.mechanism.scale / length)
        return np.asarray(self._ratio(along, length).reshape(runs, self.releases).sum(axis=1))

    def _ratio(self, along: Floats, length: float) -> Floats:
        from scipy.special import logsumexp

        parts = [
            math.log(chance) + drawn * length * along - (drawn * length) ** 2 / 2
            for drawn, chance in enumerate(poisson_binomial(self.mechanism.inclusion[0]))
            if chance > 0
        ]
        return np.asarray(logsumexp(parts, axis=0))


def sec_pe(budget: Budget, *, rate: float, records: int, releases: int = 1) -> DrawnAttack:
    """Sums with the noise that SecPE's plan would calibrate for the secret alone."""
    inclusion = (((rate, records),),)
    spend = secret_budget(budget)
    mechanism = SampledSum(cluster_sums(), rate, inclusion, calibrate(spend, inclusion, releases=releases))
    return DrawnAttack(mechanism, releases, records, PosteriorPromise([mechanism.event] * releases, float(spend.prior)))
