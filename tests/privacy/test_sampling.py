"""Records are drawn with the probabilities that the event states, and every run pays for a draw of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from noise_tests import ALPHA, scale_p_value
from numpy.typing import NDArray
from scipy import stats
from understudy.privacy.sampling import Draw

from understudy.errors import PrivacyError
from understudy.privacy.events import Inclusion, MixtureEvent
from understudy.privacy.mechanisms import LARGEST_SCALE, SMALLEST_SIGMA, SampledSum
from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseSource, SystemNoise
from understudy.privacy.plan import Charge, Receipt

GRID = 1 << 24
COINS = 20_000
SOURCES = {"system": SystemNoise(), "seeded": InsecureSeededNoise(1), "no noise": InsecureNoNoise()}
sources = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)


@dataclass(frozen=True)
class Marks:
    """Each record adds 1 to a place of its own. A record is a place; they come in batches of ``batch``."""

    size: int
    batch: int = 7
    name: str = "marks"
    grid: float = float(GRID)
    l2_sensitivity: float = float(GRID)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    def evaluate(self, data: range, draw: Draw) -> NDArray[np.int64]:
        total = np.zeros(self.size, dtype=np.int64)
        for start in range(0, len(data), self.batch):
            here = np.array(data[start : start + self.batch])
            total[here[draw(len(here))]] += GRID
        return total


def charge(mechanism: SampledSum[range], name: str = "marks") -> Receipt:
    return Receipt("run", (Charge(name, mechanism.event, {}, "to test"),))


def run(
    rates: float | NDArray[np.float64],
    *,
    records: int | None = None,
    size: int = 40,
    multiplier: float = 1.0,
    source: NoiseSource = InsecureNoNoise(),  # noqa: B008
) -> NDArray[np.float64]:
    inclusion: tuple[Inclusion, ...] = (((rates, 2),),) if isinstance(rates, float) else (((1.0, 2),),)
    mechanism = SampledSum(Marks(size), rates, inclusion, multiplier)
    return mechanism.run(range(size if records is None else records), receipt=charge(mechanism), source=source)


# -- coins ------------------------------------------------------------------------------------------------------------


@sources
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.65])
def test_a_coin_falls_as_often_as_its_rate_says(source: NoiseSource, rate: float) -> None:
    """Two-sided at alpha = 1e-6: 2/3 and 3/2 of the rate would fail."""
    heads = int(source.include(np.full(COINS, rate)).sum())
    assert stats.binomtest(heads, COINS, rate).pvalue > ALPHA
    assert stats.binomtest(heads, COINS, rate * 2 / 3).pvalue < ALPHA
    assert stats.binomtest(heads, COINS, rate * 3 / 2).pvalue < ALPHA


@sources
def test_what_has_rate_0_is_never_drawn_and_what_has_rate_1_always(source: NoiseSource) -> None:
    rates = np.tile([0.0, 1.0], 500)
    assert np.array_equal(source.include(rates), rates == 1)
    assert source.include(np.zeros(0)).shape == (0,)


@sources
def test_each_coin_has_its_own_rate(source: NoiseSource) -> None:
    rates = np.tile([0.1, 0.5, 0.9], 5_000)
    found = source.include(rates).reshape(-1, 3).sum(axis=0)
    for heads, rate in zip(found, (0.1, 0.5, 0.9), strict=True):
        assert stats.binomtest(int(heads), 5_000, rate).pvalue > ALPHA


def test_coins_are_independent_of_one_another_and_of_the_last_ones() -> None:
    source, rates = SystemNoise(), np.full(COINS, 0.5)
    first, second = source.include(rates), source.include(rates)
    for one, other in ((first, second), (first[1:], first[:-1])):
        assert stats.binomtest(int(np.sum(one == other)), len(one), 0.5).pvalue > ALPHA


def test_a_rate_is_never_exceeded_by_rounding() -> None:
    """The largest integer that is drawn lies below the rate, exactly."""
    from understudy.privacy.noise import _below

    for rate in (0.1, 1 / 3, 1e-18, float(np.nextafter(1, 0)), 5e-324):
        above = int(rate * 2.0**64)  # floor: a power of two changes no digit
        rates = np.full(2, rate)
        bits = np.array([above, max(above - 1, 0)], dtype=np.uint64)
        assert _below(bits, rates).tolist() == [False, above > 0]


# -- the sum ----------------------------------------------------------------------------------------------------------


def test_records_are_drawn_in_the_corpus_order_with_the_rates_of_their_own() -> None:
    rates = np.tile([0.0, 1.0, 1.0, 0.0, 0.0], 8)
    assert np.array_equal(run(rates), rates)


def test_every_run_draws_anew() -> None:
    drawn = [run(0.5) for _ in range(3)]
    assert not np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[1], drawn[2])


def test_the_sum_draws_as_often_as_the_event_states() -> None:
    """Two-sided at alpha = 1e-6."""
    drawn = int(run(0.2, size=COINS).sum())
    assert stats.binomtest(drawn, COINS, 0.2).pvalue > ALPHA
    assert stats.binomtest(drawn, COINS, 0.3).pvalue < ALPHA
    assert stats.binomtest(drawn, COINS, 0.2 * 2 / 3).pvalue < ALPHA


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_the_noise_has_the_declared_scale_whatever_is_drawn(rate: float) -> None:
    """Two-sided at alpha = 1e-6: 2/3 and 3/2 of the scale would fail."""
    noise = run(rate, records=0, size=COINS, multiplier=1.5, source=SystemNoise()) * GRID
    assert scale_p_value("gaussian", noise, scale=1.5 * GRID) > ALPHA
    for wrong in (2 / 3, 3 / 2):
        assert scale_p_value("gaussian", noise, scale=1.5 * GRID * wrong) < ALPHA


def test_the_event_is_what_is_paid_for() -> None:
    inclusion: tuple[Inclusion, ...] = (((0.5, 3), (0.25, 1)), ((0.25, 2),))
    mechanism = SampledSum(Marks(4), np.array([0.5, 0.5, 0.25, 0.25]), inclusion, 2.0)
    assert mechanism.event == MixtureEvent(2.0, inclusion)
    receipt = charge(mechanism)
    mechanism.run(range(4), receipt=receipt, source=InsecureNoNoise())
    with pytest.raises(PrivacyError, match="no unused charge"):
        mechanism.run(range(4), receipt=receipt, source=InsecureNoNoise())


@pytest.mark.parametrize(
    ("name", "multiplier", "inclusion"),
    [("others", 2.0, (((0.5, 3),),)), ("marks", 1.9, (((0.5, 3),),)), ("marks", 2.0, (((0.5, 2),),))],
    ids=["name", "noise", "cap"],
)
def test_a_charge_of_another_release_pays_for_none(
    name: str, multiplier: float, inclusion: tuple[Inclusion, ...]
) -> None:
    seen: list[range] = []

    class Looking(Marks):
        def evaluate(self, data: range, draw: Draw) -> NDArray[np.int64]:
            seen.append(data)
            return super().evaluate(data, draw)

    planned = SampledSum(Marks(4), 0.5, inclusion, multiplier)
    with pytest.raises(PrivacyError, match="no unused charge"):
        SampledSum(Looking(4), 0.5, (((0.5, 3),),), 2.0).run(
            range(4), receipt=charge(planned, name), source=InsecureNoNoise()
        )
    assert not seen, "private records were read before the charge was there"


@pytest.mark.parametrize("inclusion", [(((0.4, 5),),), (((0.5, 3), (0.4, 2)),), ()])
def test_a_rate_that_the_event_does_not_state_is_refused(inclusion: tuple[Inclusion, ...]) -> None:
    with pytest.raises(PrivacyError, match="another rate than its event"):
        SampledSum(Marks(4), 0.5, inclusion, 1.0)


@pytest.mark.parametrize("rate", [-0.1, 1.1, np.nan, np.inf])
def test_a_rate_that_is_no_probability_is_refused(rate: float) -> None:
    with pytest.raises(PrivacyError, match="no probability"):
        SampledSum(Marks(4), np.array([0.5, rate, 0.5, 0.5]), (((0.5, 1),),), 1.0)


@pytest.mark.parametrize("records", [0, 6, 8, 39, 41, 47])
def test_a_corpus_of_another_size_than_its_rates_is_refused(records: int) -> None:
    with pytest.raises(PrivacyError, match="as many records") as caught:
        run(np.full(40, 0.5), records=records, size=60)
    assert not any(str(number) in str(caught.value) for number in (records, 40))


def test_one_rate_for_all_fits_a_corpus_of_any_size() -> None:
    assert [run(1.0, records=records).sum() for records in (0, 1, 40)] == [0, 1, 40]


def test_noise_that_does_not_fit_the_grid_is_refused() -> None:
    for multiplier in (SMALLEST_SIGMA / GRID * 0.99, LARGEST_SCALE / GRID * 1.01):
        with pytest.raises(PrivacyError, match="does not fit its noise"):
            SampledSum(Marks(4), 1.0, (((1.0, 1),),), multiplier)


@pytest.mark.parametrize("answer", [np.zeros(3, dtype=np.int64), np.zeros(4)])
def test_a_query_of_the_wrong_shape_or_type_is_refused(answer: NDArray[np.float64]) -> None:
    class Wrong(Marks):
        def evaluate(self, data: range, draw: Draw) -> NDArray[np.int64]:
            return answer  # type: ignore[return-value]

    mechanism = SampledSum(Wrong(4), 1.0, (((1.0, 1),),), 1.0)
    with pytest.raises(PrivacyError, match="wrong type or shape"):
        mechanism.run(range(4), receipt=charge(mechanism), source=InsecureNoNoise())
