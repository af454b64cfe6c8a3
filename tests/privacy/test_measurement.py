"""From records to a noisy value: what is summed is what was paid for, batch by batch, with noise on every number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from noise_tests import ALPHA, scale_p_value
from numpy.typing import NDArray
from scipy import stats

from understudy.base.errors import PrivacyError
from understudy.corpus.bounding import BoundedBatch
from understudy.methods.shared.queries.counts import LabelCounts
from understudy.methods.shared.specs import LabelCountsSpec
from understudy.privacy import measurement
from understudy.privacy.events import Inclusion
from understudy.privacy.measurement import Query, Rates, exact_sum, measure
from understudy.privacy.mechanisms import COUNT_GRID, NoisySum, SampledSum, Sensitivity, Shape, SubsampledSum
from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseKind, NoiseSource, SystemNoise

COINS = 20_000
ONE = Sensitivity.of_counts(1)


@dataclass(frozen=True)
class Corpus:
    """Records that each raise one count, of their label: by ``COUNT_GRID`` over how many their owner has."""

    labels: Sequence[int]
    shares: Sequence[int] | None = None
    batch: int = 7
    units: Sequence[int] | None = None
    reads: list[int] = field(default_factory=list)

    def batches(self) -> Iterator[BoundedBatch]:
        self.reads.append(1)
        labels = np.asarray(self.labels, dtype=np.int32)
        shares = np.ones(len(labels), dtype=np.int64) if self.shares is None else np.asarray(self.shares)
        units = np.arange(len(labels)) if self.units is None else np.asarray(self.units)
        for first in range(0, len(labels), self.batch):
            here = slice(first, first + self.batch)
            texts = [f"record {label}" for label in labels[here]]
            yield BoundedBatch(texts, labels[here], shares[here], units[here])


class OneEverywhere(InsecureNoNoise):
    """Notes what was asked for and adds one grid step to every coordinate."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float, int]] = []
        self.coins = 0

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        self.asked.append((kind, scale, size))
        return np.ones(size, dtype=np.int64)

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        self.coins += len(rates)
        return super().include(rates)


@dataclass(frozen=True)
class Counts(Query[BoundedBatch]):
    """How many records each label has; says of itself what the tests want it to say."""

    labels: int = 3
    sensitivity: Sensitivity = ONE
    answer_as: type = np.int64
    answer_longer: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.labels,)

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        counts = LabelCounts(LabelCountsSpec(self.labels + self.answer_longer)).of_batch(batch)
        return counts.astype(self.answer_as)


def planned(
    noise: NoiseKind = "gaussian", *, multiplier: float = 2.0, shape: Shape = (3,), sensitivity: Sensitivity = ONE
) -> NoisySum:
    return NoisySum(noise, multiplier, sensitivity, shape)


def sampled(rate: float = 0.5, *, multiplier: float = 1.0, shape: Shape = (3,), records: int = 2) -> SampledSum:
    return SampledSum(multiplier, (((rate, records),),), ONE, shape)


# -- the loop ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 2, 7, 1000])
def test_the_sum_is_the_same_however_records_come_in_batches(batch: int) -> None:
    corpus = Corpus([0, 2, 2, 0, 2] * 3, batch=batch)
    assert (exact_sum(Counts(), corpus) // COUNT_GRID).tolist() == [6, 0, 9]


def test_what_all_batches_add_is_finished_once() -> None:
    """Such as differences of neighbouring sums: an exact linear map of what every batch adds."""

    @dataclass(frozen=True)
    class UpTo(Counts):
        @property
        def partial_shape(self) -> tuple[int, ...]:
            return (self.labels,)

        @property
        def shape(self) -> tuple[int, ...]:
            return (self.labels, 2)

        def finish(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.stack([np.cumsum(sums), sums], axis=1)

    found = exact_sum(UpTo(), Corpus([0, 1, 1, 2, 2, 2] * 4))
    assert (found // COUNT_GRID).tolist() == [[4, 4], [12, 8], [24, 12]]


@dataclass(frozen=True)
class Workers:
    """What the workers of an engine send back."""

    answers: tuple[Any, ...]
    engine: None = None

    def map(self, _function: object) -> Iterator[Any]:
        return iter(self.answers)

    def batches(self) -> Iterator[Any]:
        return iter(())


_RIGHT = np.array([1, -2, 3])


@pytest.mark.parametrize(
    "wrong", [7, np.int64(7), np.array([7]), _RIGHT[None], _RIGHT * 1.0, _RIGHT.astype(np.int32), None, [1, 2, 3]]
)
def test_what_a_worker_sends_is_of_the_stated_type_and_shape_and_never_broadcast(wrong: Any) -> None:
    assert exact_sum(Counts(), Workers((_RIGHT, _RIGHT))).tolist() == [2, -4, 6]
    with pytest.raises(PrivacyError, match="wrong type or shape"):
        exact_sum(Counts(), Workers((_RIGHT, wrong)))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_that_does_not_fit_is_an_error_and_never_wraps(sign: int) -> None:
    half = np.array([0, sign * 2**62, 0])
    assert exact_sum(Counts(), Workers((half, half - sign))).tolist() == [-sign, sign * (2**63 - 1), -sign]
    with pytest.raises(PrivacyError, match="does not fit into 64-bit"):
        exact_sum(Counts(), Workers((half, half, half)))


def test_no_records_give_the_same_shape() -> None:
    assert exact_sum(Counts(), Corpus([])).tolist() == [0, 0, 0]
    assert measure(planned(), Counts(), Corpus([]), source=SystemNoise()).shape == (3,)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_every_coordinate_gets_noise_zero_or_not(kind: NoiseKind) -> None:
    source, mechanism = OneEverywhere(), planned(kind)
    noisy = measure(mechanism, Counts(), Corpus([0, 2, 2]), source=source)
    assert source.asked == [(kind, mechanism.scale, 3)]
    assert noisy.tolist() == [1 + 2**-20, 2**-20, 2 + 2**-20]


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_noise_has_the_scale_of_the_mechanism_whatever_the_query_states(kind: NoiseKind) -> None:
    """Two-sided at alpha = 1e-12. The broken twin calibrates its noise to the query that it is given."""
    paid = Sensitivity.of_counts(4)
    mechanism = planned(kind, sensitivity=paid, shape=(None,))
    noisy = measure(mechanism, Counts(4_000), Corpus([]), source=SystemNoise())
    noise = np.rint(noisy * COUNT_GRID).astype(np.int64)
    assert scale_p_value(kind, noise, scale=mechanism.scale) > ALPHA
    twin = replace(mechanism, sensitivity=Counts(4_000).sensitivity)
    assert scale_p_value(kind, noise, scale=twin.scale) < ALPHA


# -- what is not as it was planned ------------------------------------------------------------------------------------

L1, L2 = float(COUNT_GRID), float(COUNT_GRID)
REFUSED: dict[str, tuple[NoisySum, Counts]] = {
    "a larger L2 sensitivity": (planned(), Counts(sensitivity=Sensitivity(L1, L2 * (1 + 1e-9), COUNT_GRID))),
    "a larger L1 sensitivity": (planned("laplace"), Counts(sensitivity=Sensitivity(L1 * (1 + 1e-9), L2, COUNT_GRID))),
    "a coarser grid": (planned(), Counts(sensitivity=Sensitivity(L1 / 2, L2 / 2, COUNT_GRID / 2))),
    "a finer grid": (planned(), Counts(sensitivity=Sensitivity(L1, L2, COUNT_GRID * 2))),
    "one number more": (planned(), Counts(4)),
    "one number less": (planned(), Counts(2)),
    "another dimension": (planned(shape=(3, 1)), Counts()),
    "another dimension of a size unknown before": (planned(shape=(3, None)), Counts()),
    "no dimension": (planned(shape=()), Counts()),
}


@pytest.mark.parametrize(("mechanism", "query"), REFUSED.values(), ids=REFUSED)
def test_a_query_that_is_not_the_one_that_was_planned_reads_no_record(mechanism: NoisySum, query: Counts) -> None:
    corpus, source = Corpus([0, 1, 2]), OneEverywhere()
    with pytest.raises(PrivacyError, match="not the one that was planned"):
        measure(mechanism, query, corpus, source=source)
    assert (corpus.reads, source.asked) == ([], [])


def test_a_query_of_smaller_sensitivity_or_of_a_size_known_only_now_is_fine() -> None:
    for mechanism in (planned(sensitivity=Sensitivity.of_counts(3)), planned(shape=(None,))):
        assert measure(mechanism, Counts(), Corpus([1, 1]), source=InsecureNoNoise()).tolist() == [0, 2, 0]


def test_a_query_without_an_l1_norm_has_no_laplace_noise() -> None:
    with pytest.raises(PrivacyError, match="without an L1 sensitivity"):
        measure(
            planned("laplace"), Counts(sensitivity=Sensitivity(None, L2, COUNT_GRID)), Corpus([]), source=SystemNoise()
        )


@pytest.mark.parametrize("answer_as", [np.int32, np.float64, np.uint64])
def test_an_answer_of_another_type_is_refused(answer_as: type) -> None:
    source = OneEverywhere()
    with pytest.raises(PrivacyError, match="wrong type or shape"):
        measure(planned(), Counts(answer_as=answer_as), Corpus([0]), source=source)
    assert source.asked == []


def test_an_answer_of_another_shape_is_refused_though_it_could_be_added() -> None:
    """numpy would spread a single number over all counts: one record would raise each of them."""

    class Spread(Counts):
        def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
            return super().of_batch(batch)[:1]

    total = np.zeros(3, dtype=np.int64)
    (batch,) = Corpus([0]).batches()
    total += Spread().of_batch(batch)  # the broken twin: nothing is checked
    assert np.count_nonzero(total) == 3
    for query in (Spread(), Counts(answer_longer=1)):
        with pytest.raises(PrivacyError, match="wrong type or shape"):
            measure(planned(), query, Corpus([0]), source=SystemNoise())


def test_a_finish_of_another_type_or_shape_is_refused() -> None:
    class Halves(Counts):
        def finish(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
            return sums / 2  # type: ignore[return-value]

    class Longer(Counts):
        def finish(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.concatenate([sums, sums])

    for query in (Halves(), Longer()):
        with pytest.raises(PrivacyError, match="wrong type or shape"):
            measure(planned(), query, Corpus([0]), source=SystemNoise())


# -- whom the noise protects ------------------------------------------------------------------------------------------


def moved(corpus: Corpus, without: Corpus, query: Counts) -> int:
    """How far, in L1, the unit moves the sum."""
    return int(np.abs(exact_sum(query, corpus) - exact_sum(query, without)).sum())


@pytest.mark.parametrize("owned", [1, 2, 3, 7, 11])
def test_an_owners_records_together_move_no_more_than_one_record_and_unweighted_they_do(owned: int) -> None:
    others, query = [0, 1, 2] * 3, Counts()
    theirs, shares = [1] * owned, [1] * len(others) + [owned] * owned
    here = moved(Corpus(others + theirs, shares), Corpus(others), query)
    assert 0.99 * query.sensitivity.l2 < here <= query.sensitivity.l2
    broken = moved(Corpus(others + theirs), Corpus(others), query)
    assert (broken > query.sensitivity.l2) == (owned > 1)


def test_all_records_of_a_secret_move_a_sum_no_further_than_its_noise_was_planned_for() -> None:
    records, query = 4, Counts()
    paid = planned(sensitivity=query.sensitivity.times(records))
    far = moved(Corpus([0, 1, 2] + [1] * records), Corpus([0, 1, 2]), query)
    assert far == records * query.sensitivity.l2 <= paid.sensitivity.l2
    assert measure(paid, query, Corpus([1]), source=InsecureNoNoise(), records_per_unit=records).tolist() == [0, 1, 0]


@pytest.mark.parametrize("planned_for", [1, 3])
def test_noise_for_fewer_records_than_hold_a_secret_is_refused(planned_for: int) -> None:
    corpus = Corpus([1])
    too_little = planned(sensitivity=ONE.times(planned_for))
    with pytest.raises(PrivacyError, match="not the one that was planned"):
        measure(too_little, Counts(), corpus, source=SystemNoise(), records_per_unit=4)
    assert corpus.reads == []
    measure(too_little, Counts(), corpus, source=SystemNoise(), records_per_unit=1)  # the broken twin: m is forgotten


# -- sampled sums -----------------------------------------------------------------------------------------------------


def marks(
    rates: Rates,
    *,
    records: int | None = None,
    size: int = 40,
    source: NoiseSource | None = None,
    multiplier: float = 1.0,
) -> NDArray[np.float64]:
    """The sum of records that each have a place of their own."""
    inclusion: tuple[Inclusion, ...] = (((rates, 2),),) if isinstance(rates, float) else (((1.0, 2),),)
    incidence = None if isinstance(rates, float) else "0" * 64
    mechanism = SampledSum(multiplier, inclusion, ONE, (size,), incidence)
    corpus = Corpus(range(size if records is None else records))
    return measure(mechanism, Counts(size), corpus, source=source or InsecureNoNoise(), rates=rates)


def test_records_are_sampled_in_the_corpus_order_with_the_rates_of_their_own() -> None:
    rates = np.tile([0.0, 1.0, 1.0, 0.0, 0.0], 8)
    assert np.array_equal(marks(rates), rates)


def test_every_measurement_samples_anew() -> None:
    found = [marks(0.5) for _ in range(3)]
    assert not np.array_equal(found[0], found[1])
    assert not np.array_equal(found[1], found[2])


def test_the_sum_samples_as_often_as_the_event_states() -> None:
    """Two-sided at alpha = 1e-12: 2/3 and 3/2 of the rate would fail."""
    found = int(marks(0.2, size=COINS).sum())
    assert stats.binomtest(found, COINS, 0.2).pvalue > ALPHA
    assert stats.binomtest(found, COINS, 0.3).pvalue < ALPHA
    assert stats.binomtest(found, COINS, 0.2 * 2 / 3).pvalue < ALPHA


def test_one_coin_is_tossed_per_record_and_none_is_left_out() -> None:
    source = OneEverywhere()
    marks(np.zeros(40), source=source)
    assert source.coins == 40
    assert [size for _, _, size in source.asked] == [40]  # noise, though nothing was sampled


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_the_noise_has_the_declared_scale_whatever_is_sampled(rate: float) -> None:
    """Two-sided at alpha = 1e-12: 2/3 and 3/2 of the scale would fail."""
    noise = marks(rate, records=0, size=COINS, multiplier=1.5, source=SystemNoise()) * COUNT_GRID
    assert scale_p_value("gaussian", noise, scale=1.5 * COUNT_GRID) > ALPHA
    for wrong in (2 / 3, 3 / 2):
        assert scale_p_value("gaussian", noise, scale=1.5 * COUNT_GRID * wrong) < ALPHA


@pytest.mark.parametrize("inclusion", [(((0.4, 5),),), (((0.5, 3), (0.4, 2)),), ()])
def test_a_rate_that_the_event_does_not_state_is_refused(inclusion: tuple[Inclusion, ...]) -> None:
    corpus = Corpus([0, 1])
    with pytest.raises(PrivacyError, match="a different rate than the event"):
        measure(replace(sampled(), inclusion=inclusion), Counts(), corpus, source=SystemNoise(), rates=0.5)
    assert corpus.reads == []


@pytest.mark.parametrize("rate", [-0.1, 1.1, np.nan, np.inf])
def test_a_rate_that_is_no_probability_is_refused(rate: float) -> None:
    corpus = Corpus([0] * 4)
    for rates in (rate, np.array([0.5, rate, 0.5, 0.5])):
        with pytest.raises(PrivacyError, match="not a probability"):
            measure(sampled(), Counts(), corpus, source=SystemNoise(), rates=rates)
    assert corpus.reads == []


@pytest.mark.parametrize("records", [0, 6, 8, 39, 41, 47])
def test_a_corpus_of_another_size_than_its_rates_is_refused(records: int) -> None:
    with pytest.raises(PrivacyError, match="number of records in the corpus differs") as caught:
        marks(np.full(40, 0.5), records=records, size=60)
    assert not any(str(number) in str(caught.value) for number in (records, 40))


def test_one_rate_for_all_fits_a_corpus_of_any_size() -> None:
    assert [marks(1.0, records=records, size=40).sum() for records in (0, 1, 40)] == [0, 1, 40]


def test_only_a_sum_that_was_planned_to_sample_samples_and_it_never_reads_all_records() -> None:
    """Rates left out would sum every record under an event for few of them."""
    corpus = Corpus([0, 1, 2])
    for mechanism, rates in ((sampled(), None), (planned(), 0.5), (planned(), np.full(3, 0.5))):
        with pytest.raises(PrivacyError, match="Sampling rates were given"):
            measure(mechanism, Counts(), corpus, source=SystemNoise(), rates=rates)
    assert corpus.reads == []


def test_a_sampled_sum_refuses_a_query_that_was_not_planned() -> None:
    larger = Counts(sensitivity=Sensitivity(None, math.nextafter(L2, math.inf), COUNT_GRID))
    for query in (larger, Counts(4)):
        with pytest.raises(PrivacyError, match="not the one that was planned"):
            measure(sampled(), query, Corpus([0]), source=SystemNoise(), rates=0.5)
    with pytest.raises(PrivacyError, match="wrong type or shape"):
        measure(sampled(1.0), Counts(answer_as=np.float64), Corpus([0]), source=SystemNoise(), rates=1.0)


# -- sums over sampled units ------------------------------------------------------------------------------------------


def units_marks(
    rate: float, *, units: int, each: int = 1, source: NoiseSource | None = None, query: type[Counts] = Counts
) -> NDArray[np.float64]:
    """``Float64[each, units]``: the sum of records that each have a place of their own, those of a unit far apart."""
    places = each * units
    corpus = Corpus(range(places), units=np.tile(np.arange(units), each).tolist())
    mechanism = SubsampledSum(1.0, rate, ONE, (places,))
    return measure(mechanism, query(places), corpus, source=source or InsecureNoNoise()).reshape(each, units)


class MoreOften(InsecureNoNoise):
    """The broken twin of a source: half as many coins again fall as the rate says."""

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        return super().include(1.5 * rates)


def test_each_unit_is_sampled_with_the_rate_that_is_charged() -> None:
    """Two-sided at alpha = 1e-12."""
    found, twin = (int(units_marks(0.2, units=COINS, source=source).sum()) for source in (None, MoreOften()))
    assert stats.binomtest(found, COINS, 0.2).pvalue > ALPHA
    assert stats.binomtest(twin, COINS, 0.2).pvalue < ALPHA


def test_units_are_sampled_independently_of_each_other() -> None:
    """How many of two neighbours are sampled, at alpha = 1e-12."""
    both = np.bincount(units_marks(0.5, units=COINS)[0].reshape(-1, 2).sum(axis=1).astype(int))
    assert stats.chisquare(both, COINS / 2 * np.array([0.25, 0.5, 0.25])).pvalue > ALPHA


def test_the_records_of_an_owner_are_all_in_the_sample_or_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = units_marks(0.5, units=40, each=3)
    assert 0 < first.sum() < 40
    assert all(np.array_equal(first, other) for other in others)
    monkeypatch.setattr(measurement, "_SampledUnits", measurement._Sampled)  # the broken twin: a coin per record
    first, *others = units_marks(0.5, units=40, each=3)
    assert not any(np.array_equal(first, other) for other in others)


def test_one_coin_is_tossed_per_unit_and_noise_is_added_though_nothing_is_sampled() -> None:
    source = OneEverywhere()
    assert units_marks(1e-12, units=40, each=3, source=source).tolist() == [[2**-20] * 40] * 3
    assert source.coins == 40
    assert [size for _, _, size in source.asked] == [120]


@pytest.mark.parametrize("units", [[0, 2, 1], [0, -1, 1]])
def test_units_that_might_share_a_coin_are_refused(units: list[int]) -> None:
    corpus = Corpus([0, 1, 2], units=units, batch=2)
    with pytest.raises(PrivacyError, match="same random decision"):
        measure(SubsampledSum(1.0, 0.5, ONE, (3,)), Counts(), corpus, source=SystemNoise())


def test_every_measurement_of_units_samples_anew() -> None:
    def fixed(make: Any) -> bool:
        return len({units_marks(0.5, units=60, source=make()).tobytes() for _ in range(3)}) < 3

    assert not fixed(InsecureNoNoise)  # its coins are the system's
    assert not fixed(SystemNoise)
    assert fixed(lambda: InsecureSeededNoise(0))  # the broken twin


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_the_noise_is_that_of_a_sampled_unit_whatever_the_rate_is(rate: float) -> None:
    """Two-sided at alpha = 1e-12. The broken twin scales it by the rate, as the mean over all units would be."""
    corpus, mechanism = Corpus([]), SubsampledSum(1.5, rate, ONE, (COINS,))
    noise = measure(mechanism, Counts(COINS), corpus, source=SystemNoise()) * COUNT_GRID
    assert scale_p_value("gaussian", noise, scale=1.5 * COUNT_GRID) > ALPHA
    for wrong in (1 / 4, 2 / 3, 3 / 2):
        assert scale_p_value("gaussian", noise, scale=1.5 * COUNT_GRID * wrong) < ALPHA


def test_only_sampled_records_reach_the_query_many_together() -> None:
    handed: list[NDArray[np.int32]] = []

    @dataclass(frozen=True)
    class Watched(Counts):
        def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
            handed.append(batch.labels)
            return super().of_batch(batch)

    found = units_marks(0.1, units=COINS, query=Watched)[0]
    assert np.concatenate(handed).tolist() == np.flatnonzero(found).tolist()
    assert 2 <= len(handed) <= 3, "of nearly three thousand small batches"


def test_what_a_sum_over_sampled_units_was_not_planned_for_is_refused() -> None:
    """Rates of the caller's, and secrets, whose records each have a coin."""
    corpus, mechanism = Corpus([0, 1, 2]), SubsampledSum(1.0, 0.5, ONE.times(2), (3,))
    with pytest.raises(PrivacyError, match="Sampling rates were given"):
        measure(mechanism, Counts(), corpus, source=SystemNoise(), rates=0.5)
    with pytest.raises(PrivacyError, match="one by one"):
        measure(mechanism, Counts(), corpus, source=SystemNoise(), records_per_unit=2)
    with pytest.raises(PrivacyError, match="not the one that was planned"):
        measure(mechanism, Counts(sensitivity=ONE.times(3)), corpus, source=SystemNoise())
    assert corpus.reads == []
