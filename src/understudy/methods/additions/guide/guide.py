"""The guide of a Release: which label a text matches, and which texts to choose. Post-processing, free.

The sum of a label's unit vectors, divided by the noisy number of its records, is a noisy mean. Means are shrunk towards
the mean of all labels as far as they are noise (empirical Bayes, a normal prior around the common mean; Efron and
Morris 1975): a label of few records, whose sum is all noise, then has no effect instead of a random one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ReleaseError
from understudy.methods.additions.guide.plan import COUNT_WEIGHT, GUIDE, VECTOR_WEIGHT
from understudy.models.types import Embedder
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.verdict import Verdict
from understudy.release import Release
from understudy.schema.labels import present_labels

Vectors = NDArray[np.float32]
_LEAST = 1e-9
_ROUNDS = 60  # of bisection


@dataclass(frozen=True, eq=False)
class Guide:
    """The released sums of embeddings, and estimates from them.

    Args:
        sums: ``Float64[labels, 1 + d]``: per label the weighted number of records, and the weighted sum of their unit
            vectors; of the sampled ones, where records were sampled.
    """

    sums: NDArray[np.float64]
    noise_std: float  # of the noise on each number; 0 if none was added

    @cached_property
    def counts(self) -> NDArray[np.float64]:
        """Return the noisy number of records of each label: ``Float64[labels]``, at least the level that noise alone
        reaches, and at least 1."""
        noise = self.noise_std / COUNT_WEIGHT
        return np.maximum(self.sums[:, 0] / COUNT_WEIGHT, max(1.0, 2 * noise))

    @cached_property
    def present(self) -> NDArray[np.bool_]:
        """Return ``Bool[labels]``: which labels have records. The others' sums are only noise, and no text is compared
        with them."""
        return np.array(present_labels((self.sums[:, 0] / COUNT_WEIGHT).tolist(), self.noise_std / COUNT_WEIGHT))

    @cached_property
    def means(self) -> NDArray[np.float64]:
        """Return ``Float64[labels, d]``: the labels' means, shrunk towards :attr:`centre`."""
        return self.centre + self.reliability[:, None] * (self._noisy - self.centre)

    @property
    def centre(self) -> NDArray[np.float64]:
        """Return ``Float64[d]``: the mean over labels with records, weighted by how well each is known."""
        return self._fitted[0]

    @property
    def reliability(self) -> NDArray[np.float64]:
        """Return ``Float64[labels]``: how much of a label's distance from the centre is signal, 0 to 1."""
        return self._fitted[1]

    def scores(self, vectors: Vectors) -> NDArray[np.float64]:
        """Return how well each text matches each label, e . m - |m|^2 / 2: ``Float64[n, labels]``, largest for the
        nearest mean."""
        found: NDArray[np.float64] = vectors @ self.means.T - 0.5 * (self.means**2).sum(axis=1)
        return found

    def margins(self, vectors: Vectors, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return how much better each text matches its label than any other with records: ``Float64[n]``; infinite if
        its label has none, or no other has any."""
        scores = self.scores(vectors)
        own = np.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
        np.put_along_axis(scores, labels[:, None], -np.inf, axis=1)
        others = scores[:, self.present].max(axis=1)
        return np.where(self.present[labels], own - others, np.inf)

    @cached_property
    def _noisy(self) -> NDArray[np.float64]:
        return self.sums[:, 1:] / (VECTOR_WEIGHT * self.counts[:, None])

    @cached_property
    def _fitted(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute centre and reliability, with the variance between labels at which the weighted squares of the
        distances from the centre add up to their degrees of freedom (Paule and Mandel 1982)."""
        every = (self.noise_std / (VECTOR_WEIGHT * self.counts)) ** 2
        noise, means = every[self.present], self._noisy[self.present]

        def fitted(between: float) -> tuple[NDArray[np.float64], float]:
            weights = 1 / (between + noise)
            centre = weights @ means / weights.sum()
            return centre, float(weights @ ((means - centre) ** 2).mean(axis=1)) - (len(noise) - 1)

        low, high = _LEAST, _LEAST + float(means.var(axis=0).mean()) * len(noise)
        if fitted(low)[1] <= 0:
            high = low
        for _ in range(_ROUNDS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if fitted(middle)[1] > 0 else (low, middle)
        return fitted(high)[0], np.where(self.present, high / (high + every), 0.0)


def noise_check(guide: Guide, *, rate: float = 1.0) -> Facts:
    """Return how much of each label's distance from the others is signal, and the noisy numbers of records."""
    shares = tuple(round(float(each), 2) for each in guide.reliability)
    counts = tuple(round(float(each)) for each in guide.sums[:, 0] / COUNT_WEIGHT / rate)
    records = Fact("guide_records", counts, "records of the guide (noisy)")
    if len(shares) == 1:
        return Facts((records,))
    reliability = Fact("guide_reliability", shares, "how reliably the labels differ (1 = no noise)")
    known = max(float(guide.reliability[guide.present].mean()), _LEAST)
    return Facts((records, reliability), verdict=Verdict.of("labels", least=math.sqrt((1 - known) / known)))


def guide_counts(made: Release) -> tuple[list[float], float] | None:
    """Return the noisy number of records of each label and the standard deviation of its noise; None without a
    guide."""
    if GUIDE not in made.arrays:
        return None
    noise = made.statement.noise_multiplier(GUIDE) or 0.0
    return (made.arrays[GUIDE][:, 0] / COUNT_WEIGHT).tolist(), noise / COUNT_WEIGHT


def guide_of(made: Release, embedder: Embedder, *, cure: str) -> Guide:
    """Return the guide of a Release, which may come from anybody.

    Args:
        embedder: the embedder whose vectors the guide is to be compared with.
        cure: what the error tells the user to do if the guide was made with another embedder.

    Raises ReleaseError if the embedder is not the one that the Release names, or there is no guide for its vectors.
    """
    named = made.statement.public_inputs.get("embedder", {})
    if embedder.fingerprint != named.get("sha256"):
        source = named.get("source", "another embedder")
        raise ReleaseError(
            f"The guide of this Release is made of embeddings of {source}, not of {embedder.model_id}.", cure
        )
    noise = made.statement.noise_multiplier(GUIDE)
    sums, columns = made.arrays.get(GUIDE), 1 + embedder.embed(["a public text"]).shape[1]
    if sums is None or sums.shape != (made.schema.label_set.size, columns) or noise is None:
        raise ReleaseError(
            "The Release has no guide made of this embedder's vectors.", "Ask the sender for an unchanged copy."
        )
    return Guide(sums, noise)


CONTRAST = 2.0
"""Distance of a label's target from the centre, as a multiple of its mean's: 2, so that chosen texts show the label's
features clearly."""


@dataclass(frozen=True)
class Choice:
    """The texts that were chosen.

    Args:
        chosen: ``Int64[counts[label]]`` per label: indices of texts, in the order in which they were chosen. May be
            fewer.
    """

    chosen: tuple[NDArray[np.int64], ...]
    confirmed: int  # texts that match their intended label


def choose(guide: Guide, vectors: Vectors, labels: NDArray[np.int64], counts: Sequence[int]) -> Choice:
    """Choose ``counts[label]`` texts for each label, so that together they resemble the label's private texts.

    Texts that match another label better than their own are left out if there are enough others; if not, those with the
    largest margin are added. Of the rest, texts are chosen one by one, each such that the mean of those chosen comes
    nearest to the target (herding: Chen, Welling and Smola 2010). So they do not repeat each other, as the most typical
    texts would.

    Without labels the target is the mean of the private texts; twice as many typical candidates as requested take part.

    Args:
        vectors: ``Float32[n, d]`` of unit length, one per text.
        labels: ``Int64[n]``: the label for which each text was written.
        counts: the number of texts requested per label.
    """
    if len(counts) == 1:
        typical = np.argsort(-(vectors @ guide.centre), kind="stable")[: max(2 * counts[0], 1)]
        return Choice((typical[herd(vectors[typical], guide.centre, counts[0])],), len(vectors))
    margins = guide.margins(vectors, labels)
    confirmed = margins > 0
    middle = np.zeros(vectors.shape[1]) if not len(vectors) else vectors.mean(axis=0, dtype=np.float64)
    chosen: list[NDArray[np.int64]] = []
    for label, count in enumerate(counts):
        mine = np.flatnonzero(labels == label)
        pool = mine[confirmed[mine]]
        if len(pool) < count:
            others = mine[~confirmed[mine]]
            pool = np.concatenate([pool, others[np.argsort(-margins[others], kind="stable")][: count - len(pool)]])
        target = middle + CONTRAST * (guide.means[label] - guide.centre)
        chosen.append(pool[herd(vectors[pool], target, count)])
    return Choice(tuple(chosen), int((confirmed & guide.present[labels]).sum()))


def herd(vectors: Vectors, target: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Choose ``count`` vectors (or all, if fewer) one by one, so that the mean of those chosen follows ``target``.
    Return their indices in order.

    Time grows with the square of the number, so more than 1,000 are chosen in parts, each from a part of the vectors.
    """
    count = min(count, len(vectors))
    parts = max(1, math.ceil(count / _AT_ONCE))
    sizes = [count // parts + (part < count % parts) for part in range(parts)]
    found = [
        np.arange(part, len(vectors), parts)[_herd(vectors[part::parts], target, size)]
        for part, size in enumerate(sizes)
    ]
    return np.concatenate(found)


_AT_ONCE = 1000


def _herd(vectors: Vectors, target: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    chosen = np.empty(count, dtype=np.int64)
    towards = vectors @ target
    said = np.zeros(len(vectors))
    free = np.ones(len(vectors), dtype=np.bool_)
    for number in range(count):
        gains = np.where(free, (number + 1) * towards - said, -np.inf)
        best = int(gains.argmax())
        chosen[number], free[best] = best, False
        said += vectors @ vectors[best]
    return chosen
