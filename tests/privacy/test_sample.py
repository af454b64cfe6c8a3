"""Several noisy sums over one Poisson sample: one coin per unit for all of them, charged as the one Gaussian that they
are on that sample. What is taken or charged otherwise is caught."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from noise_tests import ALPHA, scale_p_value
from numpy.typing import NDArray
from scipy import stats
from test_measurement import COINS, ONE, Corpus, Counts, MoreOften

from understudy.base.errors import ConfigError, PrivacyError, ResumeError
from understudy.corpus.bounding import BoundedBatch
from understudy.privacy import measurement
from understudy.privacy.accountant import Composition
from understudy.privacy.events import Event, SubsampledGaussianEvent
from understudy.privacy.guarantee import GDP
from understudy.privacy.measurement import SampleOf
from understudy.privacy.mechanisms import COUNT_GRID, LEAST_NOISE, SMALLEST_SIGMA, NoisySum, Sensitivity
from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, SystemNoise
from understudy.privacy.sample import SubsampledSums


def sums(*multipliers: float, rate: float = 0.2, places: int | None = None) -> SubsampledSums:
    named = (("a", "b", "c", "d", "e")[number] for number in range(len(multipliers)))
    return SubsampledSums(
        rate,
        tuple(
            (name, NoisySum("gaussian", each, ONE, (places,))) for name, each in zip(named, multipliers, strict=True)
        ),
    )


def taken(corpus: Any, *, rate: float = 0.2, source: Any = None, places: int) -> Sequence[np.ndarray[Any, Any]]:
    """What each of three sums counts, of records that each have a place of their own."""
    mechanism = sums(1.0, 1.0, 1.0, rate=rate, places=places)
    paid = mechanism.open(source or InsecureNoNoise())
    sample = paid.sample(corpus, made)
    return [paid.measure(name, Counts(places), sample) for name in "abc"]


def made(make: Callable[[], Any]) -> Any:
    """Keeps nothing."""
    return make()


def of_owners(each: int, units: int = 40) -> Corpus:
    return Corpus(range(each * units), units=np.tile(np.arange(units), each).tolist())


# -- the sample --------------------------------------------------------------------------------------------------------


def test_each_unit_is_sampled_with_the_rate_that_is_charged_and_independently_of_others() -> None:
    """Two-sided at alpha = 1e-12."""
    corpus = Corpus(range(COINS), batch=5_000)
    found, twin = (taken(corpus, source=source, places=COINS)[0] for source in (None, MoreOften()))
    assert stats.binomtest(int(found.sum()), COINS, 0.2).pvalue > ALPHA
    assert stats.binomtest(int(twin.sum()), COINS, 0.2).pvalue < ALPHA
    both = np.bincount(found.reshape(-1, 2).sum(axis=1).astype(int), minlength=3)
    assert stats.chisquare(both, COINS / 2 * np.array([0.64, 0.32, 0.04])).pvalue > ALPHA


def test_all_sums_are_over_one_sample_of_whole_units(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = of_owners(3)

    def whole() -> bool:
        found = taken(corpus, rate=0.5, places=120)
        assert all(np.array_equal(found[0], other) for other in found)
        first, *others = found[0].reshape(3, 40)
        return 0 < first.sum() < 40 and all(np.array_equal(first, other) for other in others)

    assert whole()

    def of_records(sample: SampleOf) -> Any:
        corpus = replace(sample.data, units=None)
        chosen = InsecureNoNoise().include(np.full(120, 0.5))
        units = np.flatnonzero(chosen)
        return iter([batch.only(np.isin(batch.units, units)) for batch in corpus.batches()])

    drawn: dict[int, Any] = {}
    monkeypatch.setattr(
        measurement.SampleOf, "batches", lambda sample: iter(drawn.setdefault(id(sample), list(of_records(sample))))
    )
    assert not whole()


def test_a_sample_that_was_stored_is_found_again_record_by_record_in_batches_of_any_size() -> None:
    corpus = of_owners(3)
    kept = sums(1.0, rate=0.5).open(SystemNoise()).sample(corpus, made).kept
    units = kept["units"]
    assert units.tolist() == sorted(set(units.tolist()))
    for batch in (1, 7, 1000):
        again = [label for each in SampleOf(replace(corpus, batch=batch), kept).batches() for label in each.labels]
        assert again == [place for place in range(120) if place % 40 in units]
    assert "units" not in repr(SampleOf(corpus, kept))


def test_a_run_takes_one_sample_and_each_sum_once() -> None:
    corpus = Corpus([0, 1, 2])
    paid = sums(1.0, 1.0, places=3).open(SystemNoise())
    with pytest.raises(PrivacyError, match="before the sample was taken"):
        paid.measure("a", Counts(), corpus)
    sample = paid.sample(corpus, made)
    paid.measure("a", Counts(), sample)
    with pytest.raises(PrivacyError, match="twice"):
        paid.sample(corpus, made)
    with pytest.raises(PrivacyError, match="twice"):
        paid.measure("a", Counts(), sample)
    with pytest.raises(PrivacyError, match="not the one that was planned"):
        paid.measure("b", Counts(sensitivity=ONE.times(2)), sample)
    assert (
        len(
            {
                sums(1.0, rate=0.5).open(SystemNoise()).sample(of_owners(1, 60), made).kept["units"].tobytes()
                for _ in "abc"
            }
        )
        == 3
    )


def test_units_that_might_share_a_coin_are_refused_and_no_unit_at_all_is_fine() -> None:
    with pytest.raises(PrivacyError, match="same random decision"):
        sums(1.0).open(SystemNoise()).sample(Corpus([0, 1, 2], units=[0, 2, 1], batch=2), made)
    nobody = sums(1.0, places=COINS).open(SystemNoise())
    sample = nobody.sample(Corpus([]), made)
    assert sample.kept["units"].tolist() == []
    noise = nobody.measure("a", Counts(COINS), sample) * COUNT_GRID
    assert scale_p_value("gaussian", noise, scale=COUNT_GRID) > ALPHA
    assert scale_p_value("gaussian", noise, scale=COUNT_GRID * 0.2) < ALPHA, "the noise is that of a sampled unit"


def test_rows_in_another_order_are_not_taken_for_the_sample() -> None:
    """Units are numbered in the order of their rows: of others the same numbers would be a second sample."""
    corpus = of_owners(1, 60)
    kept = sums(1.0, rate=0.5).open(SystemNoise()).sample(corpus, made).kept
    backwards = Corpus(list(reversed(range(60))))
    with pytest.raises(ResumeError, match="order of the rows has changed"):
        list(SampleOf(backwards, kept).batches())


def test_noise_that_no_number_says_is_refused() -> None:
    for multiplier in (1e-200, 1e200):
        with pytest.raises(ConfigError):
            sums(multiplier, 1.0)


# -- the charge --------------------------------------------------------------------------------------------------------


def true_delta(mechanism: SubsampledSums, epsilon: float) -> float:
    """Of a unit that moves every sum by all that it may, in one sample: exactly that of one Gaussian, whose mean lies
    where the moves add up, amplified as in Balle, Barthe and Gaboardi 2018, Theorem 2."""
    mu = math.sqrt(sum(each.noise_multiplier**-2 for _, each in mechanism.sums))
    return mechanism.rate * GDP(mu).delta(math.log1p(math.expm1(epsilon) / mechanism.rate))


def as_of_a_sample_each(mechanism: SubsampledSums) -> tuple[Event, ...]:
    """The broken twin: the account of sums over independent samples."""
    return tuple(SubsampledGaussianEvent(each.noise_multiplier, mechanism.rate, 1) for _, each in mechanism.sums)


@pytest.mark.parametrize("rate", [1 / 32, 0.5])
def test_what_is_charged_covers_one_sample_and_the_account_of_one_each_does_not(rate: float) -> None:
    mechanism, delta = sums(1.5, 1.9, 1.9, 1.9, 2.6, rate=rate), 1e-6
    charged = Composition((mechanism.event,)).epsilon(delta)
    assert true_delta(mechanism, charged) <= delta < true_delta(mechanism, 0.999 * charged)
    apart = Composition(as_of_a_sample_each(mechanism)).epsilon(delta)
    assert true_delta(mechanism, apart) > 10 * delta


def test_the_charge_would_not_cover_a_new_sample_for_every_sum() -> None:
    """The other broken twin: with three chances to be in, a unit is in one of them more often than in one sample."""
    mechanism = sums(0.5, 0.5, 0.5, rate=0.1)
    delta = float(true_delta(mechanism, 0.0))
    assert Composition((mechanism.event,)).epsilon(delta * 1.001) < 0.01
    assert Composition(as_of_a_sample_each(mechanism)).epsilon(delta * 1.001) > 0.3


@dataclass(frozen=True)
class Signed(Counts):
    """Counts with a sign that was chosen by what was released before."""

    sign: int = 1

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        return self.sign * super().of_batch(batch)


def test_a_sum_that_is_chosen_by_those_before_tells_no_more() -> None:
    """What an attacker knows of both answers who knows how the second was asked: along the unit's moves, added up with
    their signs, it is one Gaussian of the joint multiplier on the one sample. Two-sided at 1e-6, with seeded noise."""
    runs, mechanism = 1_500, sums(1.0, 1.0, rate=0.25, places=1)
    source, along = InsecureSeededNoise(0), np.zeros(runs)
    for run in range(runs):
        paid, corpus = mechanism.open(source), Corpus([0])
        sample = paid.sample(corpus, made)
        (first,) = paid.measure("a", Counts(1), sample)
        sign = 1 if first > 0 else -1
        (second,) = paid.measure("b", Signed(1, sign=sign), sample)
        along[run] = (first + sign * second) / math.sqrt(2)
    joint = 1 / mechanism.event.noise_multiplier
    for threshold in (0.0, 1.0, 2.0):
        expected = 0.75 * stats.norm.sf(threshold) + 0.25 * stats.norm.sf(threshold - joint)
        assert stats.binomtest(int((along > threshold).sum()), runs, expected).pvalue > 1e-6


def test_the_joint_noise_is_less_than_that_of_each_sum_and_too_little_is_refused() -> None:
    assert sums(2.0).event.noise_multiplier <= 2.0
    assert sums(3.0, 3.0, 3.0, 3.0).event.noise_multiplier == pytest.approx(1.5)
    with pytest.raises(ConfigError, match="reveal which units are sampled"):
        sums(2 * LEAST_NOISE, 2 * LEAST_NOISE, 2 * LEAST_NOISE, 2 * LEAST_NOISE, 2 * LEAST_NOISE)


def test_sums_of_one_name_none_or_another_noise_are_refused() -> None:
    one = sums(1.0).sums[0]
    laplace = ("a", NoisySum("laplace", 1.0, ONE, (3,)))
    for wrong in ((), (one, one), (laplace,)):
        with pytest.raises(ConfigError, match="separate name"):
            SubsampledSums(0.5, wrong)


def test_a_grid_on_which_all_sums_together_would_exceed_their_charge_is_refused() -> None:
    """The excess of a discrete Gaussian falls with the square of its sigma: of five, each has a fifth."""

    def coarse(times: float) -> SubsampledSums:
        each = NoisySum("gaussian", 1.0, Sensitivity(None, times * SMALLEST_SIGMA), (3,))
        return SubsampledSums(0.5, tuple((name, each) for name in "abcde"))

    coarse(math.sqrt(5) * 1.01)
    with pytest.raises(ConfigError, match="too small"):
        coarse(math.sqrt(5) * 0.99)
