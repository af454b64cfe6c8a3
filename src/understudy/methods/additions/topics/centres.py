"""The centres of topics, from released sums and public terms. Post-processing: nothing private is used here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ReleaseError
from understudy.methods.additions.guide.plan import COUNT_WEIGHT, VECTOR_WEIGHT
from understudy.methods.additions.topics.labelling import CELLS, TERMS_OF_TOPIC
from understudy.methods.shared.evolution.embeddings import LARGEST_NORM, STEPS, Block
from understudy.methods.shared.evolution.voting import nearest
from understudy.text.vocabulary.shrinkage import SURE, KnownNoise, shrink

Floats = NDArray[np.float64]
Grid = NDArray[np.int16]
_WEIGHED = 1500
"""Number of candidates with most votes that form the first centres."""
_AWAY = 0.4
"""Distance of a first centre from the candidates' mean: any distance gives the same assignment."""
_PASSES = 3
_DEAD, _LOST = 3.0, 1.0
"""Standard deviations of noise that a topic's count must reach; fewer in the last round (the second number), since
more precise sizes follow."""
_PER_CELL = 40
"""Records per cell and unit of noise: with fewer, cells are mostly noise."""
_EARLIER = 0.5
"""Weight of the round before, whose centres were nearly the same, in a round's sums."""
_SPLIT = 0.1
_ALIKE = 0.5
"""Cosine of two topics, about the mean of all centres, above which a reader would call them the same (chosen on
banking77, by the meaning of its intents, and sgd)."""
_CONTRAST = 0.5
_VOTED, _MOST_VOTED = 0.15, 3.0
_NEAR = 0.2
"""Share of the best term's score that another needs to be shown: a word with many votes may be far from the topic."""
_LEAST = 1e-9


@dataclass(frozen=True)
class Candidates:
    """The public terms, with estimates from their noisy votes.

    Args:
        vectors: ``Float64[n, d]`` of unit length.
        weights: ``Float64[n]``: the expected number of votes, given the noisy one.
        sure: ``Bool[n]``: whether some record voted for the term, with a probability of at least SURE.
    """

    vectors: Floats
    weights: Floats
    sure: NDArray[np.bool_]

    @classmethod
    def of(cls, vectors: Grid, votes: Floats, noise_std: float) -> Candidates:
        found = shrink(votes, KnownNoise("gaussian", noise_std))
        return cls(vectors / STEPS, found.mean + _LEAST, found.probability >= SURE)

    @property
    def mean(self) -> Floats:
        """Return the mean ``Float64[d]`` of the terms that are voted for."""
        found: Floats = self.weights @ self.vectors / self.weights.sum()
        return found


@dataclass(frozen=True)
class Directions:
    """How public terms differ: the variance along each of their principal directions (the columns of ``vectors``)."""

    variances: Floats
    vectors: Floats

    @classmethod
    def of(cls, candidates: Grid) -> Directions:
        values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(candidates.T / STEPS)))
        return cls(np.maximum(values, _LEAST), vectors)


def on_grid(centres: Floats) -> Grid:
    """Round centres towards zero to grid steps: ``Int16[K, d]``, of length at most 1, so that scalar products are
    exact."""
    lengths = np.linalg.norm(centres, axis=1, keepdims=True)
    return np.asarray(np.trunc(STEPS * centres / np.maximum(lengths, 1.0)), dtype=np.int16)


def require_short(centres: NDArray[Any]) -> None:
    """Raise ReleaseError for centres that are longer than any of :func:`on_grid`, as in a forged Release: scalar
    products with them are not exact, and one record could change the topic of others."""
    longest = int(np.square(centres.astype(np.int64)).sum(axis=-1).max(initial=0))
    if longest > LARGEST_NORM**2:
        raise ReleaseError("The Release has centres that are not valid embeddings.", "Ask the sender for the original.")


def nearest_centres(centres: Grid, vectors: NDArray[np.int16]) -> NDArray[np.int64]:
    """Return each vector's nearest centre, -1 for a zero vector: ``Int64[n]``. Exact, so it depends on that vector
    only."""
    nothing = np.zeros(len(vectors), dtype=np.int32)
    block = Block(vectors, nothing, nothing.astype(np.int64))
    (found,) = nearest([block], centres, np.zeros(len(centres), dtype=np.int32), distance="l2")
    return found[:, 0].astype(np.int64)


def first_centres(candidates: Candidates, topics: int) -> Grid:
    """Choose the first centres, ``Int16[K, d]``: the greedy k-median of the candidate terms by their noisy votes, then
    the mean of the terms around each.

    Distances are of directions about the mean, 1 - cosine, since what all terms share does not distinguish topics.
    """
    chosen = np.argsort(-candidates.weights, kind="stable")[: max(_WEIGHED, topics)]
    weights, mean = candidates.weights[chosen], candidates.mean
    points = _unit(candidates.vectors[chosen] - mean)
    found = points[_k_median(points, weights, topics)]
    for _ in range(_PASSES):
        places = (points @ found.T).argmax(axis=1)
        sums = np.zeros_like(found)
        np.add.at(sums, places, weights[:, None] * points)
        found = np.where(np.isin(np.arange(topics), places)[:, None], _unit(sums), found)
    return on_grid(mean + _AWAY * found)


def _k_median(points: Floats, weights: Floats, count: int) -> NDArray[np.int64]:
    """Choose points greedily; each one reduces the weighted distances to the nearest chosen point most."""
    distances = 1 - points @ points.T
    best, chosen = np.full(len(points), 2.0), list[int]()
    for _ in range(count):
        gains = weights @ np.maximum(best[:, None] - distances, 0)
        gains[chosen] = -np.inf
        chosen.append(int(gains.argmax()))
        best = np.minimum(best, distances[:, chosen[-1]])
    return np.array(chosen, dtype=np.int64)


def next_centres(
    sums: Floats,
    noise_std: float,
    directions: Directions,
    generator: np.random.Generator,
    *,
    last: bool,
    twins: bool = True,
) -> Grid:
    """Compute the centres of the next round, ``Int16[K, d]``: the means of the noisy sums, each shrunk towards the mean
    of all in proportion to its noise.

    A mean's distance from that of all is assumed to be normal with the covariance of public terms times a factor that
    is estimated from all of them (empirical Bayes), so that it is shrunk most along directions in which texts hardly
    differ. If a topic's count is within the noise, it restarts next to the largest: in the last round as its twin
    (``twins``), else with half of it.

    Args:
        sums: ``Float64[K, 1 + d]``, as :class:`~understudy.methods.additions.topics.release.TopicSums` has them.
        noise_std: on each of their numbers.
        generator: public.
    """
    counts, std = sums[:, 0] / COUNT_WEIGHT, noise_std / COUNT_WEIGHT
    surely = np.maximum(counts, max(1.0, 2 * std))
    means = sums[:, 1:] / (VECTOR_WEIGHT * surely[:, None])
    centre = surely @ means / surely.sum()
    noise = (noise_std / (VECTOR_WEIGHT * surely)) ** 2
    away, variances = (means - centre) @ directions.vectors, directions.variances
    total = float(np.square(away).sum()) - away.shape[1] * float(noise.sum())
    prior = max(total / (len(away) * float(variances.sum())), _LEAST_SCALE) * variances
    found = centre + (away * (prior / (prior + noise[:, None]))) @ directions.vectors.T
    for dead in np.flatnonzero(counts < max(1.0, (_LOST if last else _DEAD) * std)).tolist():
        largest, size = int(counts.argmax()), found.shape[1]
        step = 0.0 if last and twins else generator.normal(0, _SPLIT / np.sqrt(size), size)
        found[dead], found[largest] = found[largest] + step, found[largest] - step
        counts[[dead, largest]] = counts[largest] / 2
    return on_grid(found)


_LEAST_SCALE = 1e-3
"""Smallest ratio of the covariance of topics to that of terms."""


def averaged(now: tuple[Floats, float], before: tuple[Floats, float]) -> tuple[Floats, float]:
    """Average the noisy sums of a round and, with half the weight, of the round before; return them and their noise."""
    sums, noise = now[0] + _EARLIER * before[0], float(np.hypot(now[1], _EARLIER * before[1]))
    return sums / (1 + _EARLIER), noise / (1 + _EARLIER)


def cells_of(votes: Floats, noise_multiplier: float, topics: int) -> int:
    """Return how many cells the records support, ``topics`` to CELLS times as many: by their noisy number of votes and
    the noise on a cell's sum."""
    return int(np.clip(votes.sum() / (_PER_CELL * max(noise_multiplier, _LEAST)), topics, CELLS * topics))


def joined(centres: Grid, counts: Floats, topics: int) -> Grid:
    """Join cells into ``topics`` centres, ``Int16[topics, d]``: first the most similar ones that a reader would call
    the same, then always the two whose joining adds least to the squared distances of records from their centres (Ward
    1963), by the cells' noisy counts."""
    mean, sizes, left = _mean_of(centres, counts), np.maximum(counts, _LEAST), np.ones(len(centres), dtype=np.bool_)
    away = centres / STEPS - mean

    def costs(one: int) -> Floats:
        cosines = (_unit(away) @ _unit(away[[one]]).T)[:, 0]
        added = np.square(away - away[one]).sum(axis=1) / (1 / sizes + 1 / sizes[one])
        return np.where(left & (np.arange(len(away)) != one), np.where(cosines > _ALIKE, -cosines, added), np.inf)

    apart = np.array([costs(one) for one in range(len(away))])
    for _ in range(len(away) - topics):
        one, other = divmod(int(apart.argmin()), len(away))
        away[one] = np.average(away[[one, other]], axis=0, weights=sizes[[one, other]])
        sizes[one] += sizes[other]
        left[other] = False
        apart[one] = apart[:, one] = costs(one)
        apart[other] = apart[:, other] = np.inf
    return on_grid(mean + away[left])


def first_ones(centres: Grid) -> NDArray[np.bool_]:
    """Return which centres are the first of several equal ones, ``Bool[K]``; only these can have records."""
    found = np.zeros(len(centres), dtype=np.bool_)
    found[np.unique(centres, axis=0, return_index=True)[1]] = True
    return found


def merged(centres: Grid, counts: Floats) -> tuple[NDArray[np.int32], Floats]:
    """Merge similar centres into topics. Return each centre's topic, ``Int32[K]``, and the topics' sizes, the largest
    first.

    Of equal centres, the first has all records, and the counts of the others are noise and left out.
    """
    topic = np.unique(centres, axis=0, return_inverse=True)[1].ravel()
    away = np.maximum(counts, _LEAST)[:, None] * (centres / STEPS - _mean_of(centres, counts))
    while (topics := int(topic.max()) + 1) > 1:
        sums = np.zeros((topics, away.shape[1]))
        np.add.at(sums, topic, away)
        alike = np.triu(_unit(sums) @ _unit(sums).T, 1)
        one, other = np.unravel_index(int(alike.argmax()), alike.shape)
        if alike[one, other] <= _ALIKE:
            break
        topic[topic == other] = one
        topic[topic > other] -= 1
    return by_size(topic, centres, counts)


def by_size(topic: NDArray[Any], centres: Grid, counts: Floats) -> tuple[NDArray[np.int32], Floats]:
    """Number topics by size, the largest first. Return each centre's topic and the sizes."""
    _, topic = np.unique(topic, return_inverse=True)
    sizes = np.zeros(int(topic.max()) + 1)
    np.add.at(sizes, topic, np.where(first_ones(centres), counts, 0.0))
    order = np.argsort(-sizes, kind="stable")
    return np.argsort(order)[topic].astype(np.int32), sizes[order]


def terms_of(
    centres: Grid,
    counts: Floats,
    topic: NDArray[np.int32],
    candidates: Candidates,
    terms: Sequence[str],
    *,
    unwanted: NDArray[np.bool_] | None = None,
) -> list[str]:
    """Return up to TERMS_OF_TOPIC terms of each topic, concatenated and padded with empty strings. The most distinctive
    terms come first.

    A term's score is its cosine with the topic, about the means of all, less half of that with the nearest other topic;
    it counts more the more records voted for it. Only terms are named that some record surely voted for and that are
    clearly nearer to the topic than to others: otherwise any word could fill the list, including names of peoples or
    creeds. Of terms that begin alike, one is named.

    Args:
        unwanted: ``Bool[n]``: terms that may not name a topic.
    """
    cosines = _cosines(centres, counts, topic, candidates)
    topics = cosines.shape[1]
    known = 1 + _VOTED * np.minimum(np.log1p(candidates.weights), _MOST_VOTED)
    sure = candidates.sure if unwanted is None else candidates.sure & ~unwanted
    found = list[str]()
    for place in range(topics):
        others = np.delete(cosines, place, axis=1)
        beside = others.max(axis=1) if topics > 1 else 0.0
        scores = (cosines[:, place] - _CONTRAST * beside) * known
        named = np.flatnonzero(sure & (scores > max(_NEAR * float(scores[sure].max(initial=0)), 0)))
        shown = _unlike(terms[term] for term in named[np.argsort(-scores[named], kind="stable")].tolist())
        found += shown + [""] * (TERMS_OF_TOPIC - len(shown))
    return found


def are_said(centres: Grid, counts: Floats, topic: NDArray[np.int32], candidates: Candidates) -> NDArray[np.int8]:
    """Return, for each topic, whether records surely voted for a term that is nearest to it: ``Int8[topics]``. If not,
    its terms are merely near its centre, whatever the language of the texts."""
    cosines = _cosines(centres, counts, topic, candidates)
    nearest = cosines.argmax(axis=1)[candidates.sure]
    return np.isin(np.arange(cosines.shape[1]), nearest).astype(np.int8)


def _cosines(centres: Grid, counts: Floats, topic: NDArray[np.int32], candidates: Candidates) -> Floats:
    """Return cosines ``Float64[n, topics]`` of each term and each topic, about the means of all."""
    topics = int(topic.max()) + 1
    mean, middle = _mean_of(centres, counts), candidates.mean
    if topics == 1:  # only compared with what is said everywhere
        mean = middle = candidates.vectors.mean(axis=0)
    sums = np.zeros((topics, centres.shape[1]))
    np.add.at(sums, topic, np.maximum(counts, _LEAST)[:, None] * (centres / STEPS - mean))
    found: Floats = _unit(candidates.vectors - middle) @ _unit(sums).T
    return found


def _unlike(terms: Iterable[str]) -> list[str]:
    """Return the first few terms, one of those that begin alike."""
    found = list[str]()
    for term in terms:
        if not any(_alike(term, other) for other in found):
            found.append(term)
        if len(found) == TERMS_OF_TOPIC:
            break
    return found


def _alike(one: str, other: str) -> bool:
    """Return whether terms begin alike, such as ``payment`` and ``payments``."""
    size = max(4, min(len(one), len(other)) - 1)
    return one[:size] == other[:size]


def _mean_of(centres: Grid, counts: Floats) -> Floats:
    weights = np.maximum(counts, _LEAST)
    found: Floats = weights @ (centres / STEPS) / weights.sum()
    return found


def _unit(vectors: Floats) -> Floats:
    found: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _LEAST)
    return found
