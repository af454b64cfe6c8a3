"""An attacker who knows everything but whether one secret is in the corpus, against the real mechanism.

Thousands of worlds at once: each is a label, with records and a planted secret of its own, and what the mechanism
releases for a label is what it would release for that world alone. The attacker knows the text of the secret's records,
so the direction in which they move the release, and takes the best test that is wrong in a share p of the worlds
without the secret (the likelihood ratio; its threshold from simulated noise). Promised is that it is right in a share
of at most r of the worlds with the secret.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.sparse import csr_array
from tiny_corpora import HashEmbedder

import understudy as us
from understudy.corpus.bounding import BoundedBatch
from understudy.methods.facts import PublicFacts
from understudy.methods.sec_pe.clusters import Clusters, ClusterSums
from understudy.methods.sec_pe.plan import ClusterSumsSpec, public_rates
from understudy.methods.shared.evolution.embeddings import integer_vectors
from understudy.privacy.events import Inclusion, MixtureEvent
from understudy.privacy.measurement import measure
from understudy.privacy.mechanisms import SampledSum
from understudy.privacy.noise import InsecureSeededNoise, NoiseSource
from understudy.privacy.secrets.bounds import poisson_binomial
from understudy.privacy.secrets.composition import calibrate, posterior
from understudy.privacy.unit import Unit

WORLDS = 3_000
ALPHA = 1e-6
PRIOR, POSTERIOR = 0.02, 0.1
BUDGET = us.SecretBudget("0.02", "0.1")
# The noise multiplier of one release of one record that is certainly drawn.
ONCE = 1 / BUDGET.mu

SECRET, OTHER, OTHERS = "Passport 9434765919 of Ann Quill", "A note on the weather", 100
EMBEDDER = HashEmbedder(2)


class Remembering(HashEmbedder):
    """Each text is embedded once."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([_vector(text) for text in texts], dtype=np.float32).reshape(len(texts), 2)


@cache
def _vector(text: str) -> NDArray[np.float32]:
    return EMBEDDER.embed([text])[0]


def query(kind: type[ClusterSums] = ClusterSums) -> ClusterSums:
    """In every world one cluster, its centre a little beside the secret's records, which are clipped."""
    (secret,) = EMBEDDER.embed([SECRET])
    beside = np.array([math.cos(0.4), math.sin(0.4)]) @ np.array([secret, [-secret[1], secret[0]]])
    centres = integer_vectors(beside.astype(np.float32)[None])
    return kind(
        ClusterSumsSpec(WORLDS + 1, 1),
        Clusters(np.tile(centres, (WORLDS + 1, 1, 1)), np.ones((WORLDS + 1, 1), dtype=np.int64)),
        Remembering(2),
        clip=0.3,
        size_share=0.8,
    )


@dataclass(frozen=True)
class Worlds:
    """In every world ``count`` records of its secret, and some other records in a label behind them."""

    count: int

    def batches(self) -> Iterator[BoundedBatch]:
        labels = np.repeat(np.arange(WORLDS, dtype=np.int32), self.count)
        yield _batch([SECRET] * len(labels), labels)
        yield _batch([OTHER] * OTHERS, np.full(OTHERS, WORLDS, dtype=np.int32))


def _batch(texts: list[str], labels: NDArray[np.int32]) -> BoundedBatch:
    return BoundedBatch(texts, labels, np.ones(len(texts), dtype=np.int64), np.arange(len(texts)))


SEEDED = partial(InsecureSeededNoise, 0)


@dataclass(frozen=True)
class Attack:
    """A release to attack.

    Args:
        rates: of the records of a world's secret.
        noise_multiplier: that the mechanism is run with.
        releases: of fresh draws, unless they are ``shared``, as the attacker knows.
        kind: of the query; ``norm`` is the length of one record's vector in it, as the attacker knows.
        source: of coins and noise.
    """

    rates: tuple[float, ...]
    noise_multiplier: float
    releases: int = 1
    kind: type[ClusterSums] = ClusterSums
    norm: float = 1.0
    source: Callable[[], NoiseSource] = SEEDED
    shared: bool = False

    @property
    def inclusion(self) -> Inclusion:
        return tuple((rate, self.rates.count(rate)) for rate in sorted(set(self.rates), reverse=True))

    def right_and_wrong(self) -> tuple[int, int]:
        """In how many worlds with, and in how many without the secret, the attacker says that it is there."""
        threshold = np.quantile(self._ratio(self._simulated_noise()), 1 - PRIOR)
        present = self._ratio(self._released(present=True)) > threshold
        absent = self._ratio(self._released(present=False)) > threshold
        return int(present.sum()), int(absent.sum())

    def _released(self, *, present: bool) -> NDArray[np.float64]:
        """``Float64[releases, worlds]``: the mechanism's answers along the secret's direction, in sensitivities."""
        sums, count = query(self.kind), len(self.rates)
        rates: Any = self.rates[0]
        incidence = None if len(set(self.rates)) == 1 else "0" * 64
        if len(set(self.rates)) > 1:
            rates = np.array(self.rates * WORLDS * present + (1.0,) * OTHERS)
        mechanism = SampledSum(self.noise_multiplier, (self.inclusion,), sums.sensitivity, sums.shape, incidence)
        data = Worlds(count * present)
        source, direction = self.source(), _direction(sums)
        answers = (measure(mechanism, sums, data, source=source, rates=rates) for _ in range(self.releases))
        return np.array([answer[:WORLDS].reshape(WORLDS, -1) @ direction for answer in answers])

    def _simulated_noise(self) -> NDArray[np.float64]:
        return np.random.default_rng(1).normal(0, self.noise_multiplier, (self.releases, 50_000))

    def _ratio(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """``Float64[...]``: the log-likelihood ratio of present to absent, over all releases."""
        if self.shared:
            x = x.sum(axis=0, keepdims=True) / math.sqrt(self.releases)
        law = poisson_binomial(self.inclusion)
        shift = self.norm * (math.sqrt(self.releases) if self.shared else 1.0)
        variance = self.noise_multiplier**2
        parts = [
            math.log(chance) + (drawn * shift * x - (drawn * shift) ** 2 / 2) / variance
            for drawn, chance in enumerate(law)
            if chance > 1e-12
        ]
        return np.logaddexp.reduce(parts).sum(axis=0)


def _direction(sums: ClusterSums) -> NDArray[np.float64]:
    one = sums.of_batch(_batch([SECRET], np.zeros(1, dtype=np.int32)))
    flat = one[0].ravel() / sums.sensitivity.grid
    return flat / np.linalg.norm(flat)


def above_promise(found: int) -> bool:
    """Whether the attacker is right more often than promised; by chance at most once in a million."""
    return bool(stats.binom.sf(found - 1, WORLDS, POSTERIOR) < ALPHA)


def agrees(found: int, share: float) -> bool:
    return bool(stats.binomtest(found, WORLDS, share).pvalue > ALPHA)


# -- what is built ----------------------------------------------------------------------------------------------------

CORPORA: dict[str, dict[str, Any]] = {
    "one record": {"rate": 1.0, "records": 1},
    "five records": {"rate": 1.0, "records": 5},
    "rare": {"rate": 0.05, "records": 5},
    "half of five, three times": {"rate": 0.5, "records": 5, "releases": 3},
}


@pytest.mark.parametrize("what", CORPORA)
def test_the_attacker_is_right_as_often_as_predicted_and_never_more_than_promised(what: str) -> None:
    rate, records, releases = CORPORA[what]["rate"], CORPORA[what]["records"], CORPORA[what].get("releases", 1)
    method = us.SecPE(inclusion=rate, releases=releases, public_corpus="notes.csv", public_corpus_is_public=True)
    plan = method.plan(BUDGET, PublicFacts(Unit("secret", records)))
    noise = plan.charges[0].event.noise_multiplier  # type: ignore[union-attr]
    right, wrong = Attack((rate,) * records, noise, releases).right_and_wrong()
    assert agrees(wrong, PRIOR)
    assert not above_promise(right)
    assert agrees(right, plan.total)


def test_the_attacker_of_records_with_public_rates_does_no_better() -> None:
    """Three records hold the secret, one of them holds another too: rates by linear program."""
    held = csr_array(np.array([[1, 0], [1, 0], [1, 1], [0, 1], [0, 0]], dtype=np.float64))
    method = us.SecPE(incidence="public", incidence_file="i", public_corpus="p", public_corpus_is_public=True)
    sampling = public_rates(method, held, np.array([False] * 4 + [True]), Unit("secret", 3), sha256="0" * 64)
    noise = calibrate(BUDGET, sampling.inclusion)
    right, wrong = Attack(tuple(sampling.rates[:3]), max(noise, ONCE)).right_and_wrong()  # type: ignore[index]
    assert agrees(wrong, PRIOR)
    assert not above_promise(right)
    assert right > WORLDS * POSTERIOR / 2


# -- what is printed, and other mistakes ------------------------------------------------------------------------------


class TwoStatistics(ClusterSums):
    """Sizes and centres from one draw, each at the noise of one alone."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        each = [ClusterSums(self.spec, self.clusters, self.embedder, self.clip, share) for share in (1e-9, 1 - 1e-9)]
        return each[0].of_batch(batch) + each[1].of_batch(batch)


class OneDraw(InsecureSeededNoise):
    """The first coins are used for every release."""

    def __init__(self) -> None:
        super().__init__(0)
        self._coins: dict[int, NDArray[np.bool_]] = {}

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Batches of a length are the same batch."""
        return self._coins.setdefault(len(rates), super().include(rates))


RARE: Inclusion = ((0.05, 5),)
ONE_IN_FOUR: Inclusion = ((0.25, 1),)
PRINTED = {
    "two statistics, each at the noise of one": Attack((1.0,), ONCE, kind=TwoStatistics, norm=math.sqrt(2)),
    "three rounds at the noise of one": Attack((1.0,), ONCE, 3),
    "one draw for five rounds that were to draw anew": Attack(
        (0.25,), calibrate(BUDGET, [ONE_IN_FOUR], releases=5), 5, source=OneDraw, shared=True
    ),
    "a Gaussian in place of the mixture": Attack((0.05,) * 5, 0.25 * ONCE),
    "one record where the cap is two": Attack((1.0,) * 2, ONCE),
}


@pytest.mark.parametrize("what", PRINTED)
def test_the_same_attacker_breaks_what_is_printed(what: str) -> None:
    right, wrong = PRINTED[what].right_and_wrong()
    assert agrees(wrong, PRIOR)
    assert above_promise(right)


def test_the_attacker_is_told_nothing_by_a_release_that_reads_no_record() -> None:
    class Blind(ClusterSums):
        def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
            return np.zeros(self.shape, dtype=np.int64)

    direction = _direction(query())
    with pytest.MonkeyPatch.context() as patch:  # the attacker looks where it would be
        patch.setattr(f"{__name__}._direction", lambda _sums: direction)
        right, wrong = replace(Attack((1.0,), ONCE), kind=Blind).right_and_wrong()
    assert agrees(right, PRIOR)
    assert agrees(wrong, PRIOR)


def test_the_bound_predicts_how_often_the_printed_variants_are_broken() -> None:
    assert posterior([MixtureEvent(ONCE / math.sqrt(2), (((1.0, 1),),))], PRIOR) == pytest.approx(0.168, abs=1e-3)
    assert posterior([MixtureEvent(ONCE, (((1.0, 1),),))] * 3, PRIOR) == pytest.approx(0.237, abs=1e-3)
    assert posterior([MixtureEvent(0.25 * ONCE, (RARE,))], PRIOR) == pytest.approx(0.211, abs=1e-3)
