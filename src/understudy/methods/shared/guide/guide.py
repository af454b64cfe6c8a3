"""What the noisy sums say of a text: for which label it speaks. Post-processing, free.

The sum of a label's unit vectors, divided by the noisy number of its records, is a noisy mean. Means are shrunk towards
the mean of all labels as far as they are noise (empirical Bayes, a normal prior around the common mean; Efron and
Morris 1975): a label of few records, whose sum is all noise, then says nothing rather than something at random.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from understudy.methods.shared.guide.form import COUNT_WEIGHT, VECTOR_WEIGHT
from understudy.privacy.facts import Fact, Facts

Vectors = NDArray[np.float32]
_LEAST = 1e-9
_ROUNDS = 60  # of bisection


@dataclass(frozen=True, eq=False)
class Guide:
    """The released sums.

    Args:
        sums: ``Float64[labels, 1 + d]``: per label the weighted number of records, and the weighted sum of their unit
            vectors.
        noise_std: of the noise on each number; 0 where none was added.
    """

    sums: NDArray[np.float64]
    noise_std: float

    @cached_property
    def counts(self) -> NDArray[np.float64]:
        """``Float64[labels]``: noisy numbers of records, none below what noise alone reaches (at least 1)."""
        noise = self.noise_std / COUNT_WEIGHT
        return np.maximum(self.sums[:, 0] / COUNT_WEIGHT, max(1.0, 2 * noise))

    @cached_property
    def means(self) -> NDArray[np.float64]:
        """``Float64[labels, d]``: the labels' means, shrunk towards :attr:`centre`."""
        return self.centre + self.reliability[:, None] * (self._noisy - self.centre)

    @property
    def centre(self) -> NDArray[np.float64]:
        """``Float64[d]``: the mean over labels, weighted by how well each is known."""
        return self._fitted[0]

    @property
    def reliability(self) -> NDArray[np.float64]:
        """``Float64[labels]``: how much of a label's distance from the centre is signal, 0 to 1."""
        return self._fitted[1]

    def scores(self, vectors: Vectors) -> NDArray[np.float64]:
        """``Float64[n, labels]``: e . m - |m|^2 / 2, largest for the nearest mean."""
        found: NDArray[np.float64] = vectors @ self.means.T - 0.5 * (self.means**2).sum(axis=1)
        return found

    def margins(self, vectors: Vectors, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """``Float64[n]``: how much more each text speaks for its label than for any other; infinite if there is no
        other."""
        scores = self.scores(vectors)
        own = np.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
        np.put_along_axis(scores, labels[:, None], -np.inf, axis=1)
        found: NDArray[np.float64] = own - scores.max(axis=1)
        return found

    @cached_property
    def _noisy(self) -> NDArray[np.float64]:
        return self.sums[:, 1:] / (VECTOR_WEIGHT * self.counts[:, None])

    @cached_property
    def _fitted(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Centre and reliability, with the variance between labels at which the weighted squares of the distances from
        the centre add up to their degrees of freedom (Paule and Mandel 1982)."""
        noise = (self.noise_std / (VECTOR_WEIGHT * self.counts)) ** 2

        def fitted(between: float) -> tuple[NDArray[np.float64], float]:
            weights = 1 / (between + noise)
            centre = weights @ self._noisy / weights.sum()
            return centre, float(weights @ ((self._noisy - centre) ** 2).mean(axis=1)) - (len(noise) - 1)

        low, high = _LEAST, _LEAST + float(self._noisy.var(axis=0).mean()) * len(noise)
        if fitted(low)[1] <= 0:
            high = low
        for _ in range(_ROUNDS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if fitted(middle)[1] > 0 else (low, middle)
        return fitted(high)[0], high / (high + noise)


_KNOWN = 0.5
_WARNING = (
    "The sums of some labels are mostly noise: the guide says little of what their texts mean. More records, fewer "
    "labels or a larger epsilon would help."
)


def noise_check(guide: Guide) -> Facts:
    """How much of each label's distance from the others is signal."""
    shares = tuple(round(float(each), 2) for each in guide.reliability)
    counts = tuple(round(float(each)) for each in guide.sums[:, 0] / COUNT_WEIGHT)
    entries = [Fact("guide_records", counts, "records of the guide (noisy)")]
    if len(shares) > 1:
        entries.append(Fact("guide_reliability", shares, "share of signal in a label's distance from the others"))
    return Facts(tuple(entries), (_WARNING,) if len(shares) > 1 and min(shares) < _KNOWN else ())
