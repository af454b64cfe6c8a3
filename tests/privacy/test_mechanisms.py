"""A mechanism is checked when it is made, knows its cost before any data are read, and states its noise exactly."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from noise_tests import ALPHA, scale_p_value

from understudy.base.errors import ConfigError, PrivacyError
from understudy.privacy import mechanisms
from understudy.privacy.accountant import DISCRETE_EXCESS, Composition
from understudy.privacy.events import GaussianEvent, MixtureEvent, PureEvent, SubsampledGaussianEvent
from understudy.privacy.gradients import DPSGD
from understudy.privacy.guarantee import GDP, gaussian_noise_multiplier
from understudy.privacy.noise import NoiseKind, SystemNoise
from understudy.privacy.plan import mechanism_from_json, mechanism_to_json
from understudy.privacy.sample import SubsampledSums
from understudy.privacy.selection import NoisySelection
from understudy.privacy.subsampled import SubsampledTokens
from understudy.privacy.tokens import PrivateTokens, TokenTest

COUNTS = mechanisms.Sensitivity.of_counts(3)
GAUSSIAN = mechanisms.NoisySum("gaussian", 2.0, COUNTS, (3,))
LAPLACE = mechanisms.NoisySum("laplace", 2.0, COUNTS, (3,))
SAMPLED = mechanisms.SampledSum(2.5, (((0.5, 3), (0.25, 1)), ((1.0, 2),)), COUNTS, (None, 4), incidence="ab" * 32)
UNITS = mechanisms.SubsampledSum(2.5, 0.125, COUNTS, (None, 4))
TOKENS = PrivateTokens(clip=10, batch_size=250, temperature=2, tokens=100)
MECHANISMS: dict[str, mechanisms.Mechanism] = {
    "gaussian": GAUSSIAN,
    "laplace": LAPLACE,
    "of an unknown size": mechanisms.NoisySum(
        "gaussian", 2.0, mechanisms.Sensitivity(None, 2.0**20, 2.0**20), (None, 7)
    ),
    "sampled": SAMPLED,
    "of sampled units": UNITS,
    "over one sample": SubsampledSums(0.125, (("votes", GAUSSIAN), ("sizes", replace(GAUSSIAN, shape=(None, 4))))),
    "tokens": TOKENS,
    "tested tokens": replace(TOKENS, test=TokenTest(0.5, 0.2)),
    "subsampled": SubsampledTokens("gaussian", subsets=4, noise_multiplier=1.0, rate=0.1, tokens=20),
    "votes": SubsampledTokens("votes", subsets=4, noise_multiplier=1.0, rate=0.1, tokens=20),
    "dp-sgd": DPSGD(noise_multiplier=5 / 3, rate=1 / 3, steps=5, clipping_norm=2.0),
    "selection": NoisySelection(2.0, 1e-7, 10),
    "declared": mechanisms.Declared(GaussianEvent(5 / 3)),
}


def test_the_event_and_the_noise_are_known_before_any_data_is_read() -> None:
    assert GAUSSIAN.event == GaussianEvent(2.0)
    assert LAPLACE.event == PureEvent(0.5)
    assert GAUSSIAN.scale == pytest.approx(2 * 2**20 * math.sqrt(3))
    assert LAPLACE.scale == pytest.approx(2 * 2**20 * 3)
    assert GAUSSIAN.noise_std == pytest.approx(2 * math.sqrt(3))
    assert LAPLACE.noise_std == pytest.approx(2 * 3 * math.sqrt(2))
    assert SAMPLED.event == MixtureEvent(2.5, SAMPLED.inclusion)
    assert SAMPLED.scale == pytest.approx(2.5 * 2**20 * math.sqrt(3))
    assert UNITS.event == SubsampledGaussianEvent(2.5, 0.125, 1)
    for rate in (1e-6, 0.5, 1.0):
        assert replace(UNITS, rate=rate).scale == SAMPLED.scale, "the noise is that of a sampled unit"
    assert UNITS.noise_std == pytest.approx(2.5 * math.sqrt(3))


# -- sensitivities ----------------------------------------------------------------------------------------------------


@given(cells=st.integers(1, 10**6))
def test_the_sensitivity_of_counts_is_never_rounded_down(cells: int) -> None:
    counts = mechanisms.Sensitivity.of_counts(cells)
    assert counts.l1 == mechanisms.COUNT_GRID * cells
    assert Fraction(counts.l2) ** 2 >= Fraction(mechanisms.COUNT_GRID) ** 2 * cells
    assert counts.l2 == pytest.approx(mechanisms.COUNT_GRID * math.sqrt(cells))


def test_one_count_has_one_and_the_same_norm() -> None:
    assert mechanisms.Sensitivity.of_counts(1) == mechanisms.Sensitivity(
        mechanisms.COUNT_GRID, mechanisms.COUNT_GRID, mechanisms.COUNT_GRID
    )


@given(l2=st.floats(1e-3, 1e12), records=st.integers(1, 10**6))
def test_m_records_move_a_sum_by_m_vectors_and_never_less(l2: float, records: int) -> None:
    moved = mechanisms.Sensitivity(l2, l2, 8.0).times(records)
    assert moved.l1 == l2 * records
    assert Fraction(moved.l2) >= Fraction(l2) * records
    assert moved.l2 == pytest.approx(l2 * records)
    assert moved.grid == 8.0


def test_m_records_without_an_l1_norm_have_none_and_one_record_is_one() -> None:
    assert mechanisms.Sensitivity(None, 2.0).times(3).l1 is None
    assert mechanisms.Sensitivity(None, 2.0).times(1) == mechanisms.Sensitivity(None, 2.0)


def test_laplace_noise_is_not_calibrated_to_an_l2_norm() -> None:
    with pytest.raises(PrivacyError, match="without an L1 sensitivity"):
        mechanisms.NoisySum("laplace", 2.0, mechanisms.Sensitivity(None, 2.0**20), (3,))


@pytest.mark.parametrize(
    ("stated", "gaussian", "laplace"),
    [
        (mechanisms.Sensitivity(8, 4, 2), True, True),
        (mechanisms.Sensitivity(7, 3, 2), True, True),
        (mechanisms.Sensitivity(9, 4, 2), True, False),
        (mechanisms.Sensitivity(8, math.nextafter(4, 5), 2), False, True),
        (mechanisms.Sensitivity(7, 3, 1), False, False),
        (mechanisms.Sensitivity(7, 3, 4), False, False),
    ],
    ids=["equal", "smaller", "larger L1", "larger L2", "coarser grid", "finer grid"],
)
def test_noise_is_enough_for_a_sensitivity_no_larger_on_the_same_grid(
    stated: mechanisms.Sensitivity, gaussian: bool, laplace: bool
) -> None:
    paid = mechanisms.Sensitivity(8, 4, 2)
    assert (stated.within(paid, "gaussian"), stated.within(paid, "laplace")) == (gaussian, laplace)


# -- scales -----------------------------------------------------------------------------------------------------------


def test_the_scale_is_never_rounded_below_multiplier_times_sensitivity() -> None:
    sevens = mechanisms.Sensitivity.of_counts(7)
    for multiplier in np.random.default_rng(0).uniform(0.3, 9, 200).tolist():
        for mechanism in (
            mechanisms.NoisySum("gaussian", multiplier, sevens, (7,)),
            mechanisms.SampledSum(multiplier, (((1.0, 1),),), sevens, (7,)),
            mechanisms.SubsampledSum(multiplier, 0.5, sevens, (7,)),
        ):
            assert Fraction(mechanism.scale) > Fraction(multiplier) * Fraction(sevens.l2)
        assert sevens.l1 is not None
        assert Fraction(mechanisms.NoisySum("laplace", multiplier, sevens, (7,)).scale) > Fraction(
            multiplier
        ) * Fraction(sevens.l1)


@pytest.mark.parametrize("make", [lambda l2, of=of: replace(of, sensitivity=l2) for of in (GAUSSIAN, SAMPLED, UNITS)])
def test_a_grid_too_coarse_for_gaussian_noise_is_refused_in_the_plan(make: Any) -> None:
    edge = mechanisms.SMALLEST_SIGMA / make(COUNTS).noise_multiplier
    with pytest.raises(ConfigError, match="out of range for these parameters: its noise is too small"):
        make(mechanisms.Sensitivity(None, edge * 0.99))
    make(mechanisms.Sensitivity(None, edge * 1.01))


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.0000001, math.nan, math.inf])
def test_a_rate_that_is_no_probability_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="rate"):
        replace(UNITS, rate=rate)


def test_a_sampled_unit_is_never_given_away_however_seldom_it_is_sampled() -> None:
    assert replace(UNITS, noise_multiplier=mechanisms.LEAST_NOISE, rate=1e-9)
    with pytest.raises(ConfigError, match="reveal which units are sampled"):
        replace(UNITS, noise_multiplier=0.99 * mechanisms.LEAST_NOISE, rate=1e-9)


def test_laplace_noise_is_exactly_pure_on_any_grid() -> None:
    assert replace(LAPLACE, sensitivity=mechanisms.Sensitivity(3.0, 2.0)).event == PureEvent(0.5)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_noise_that_would_leave_the_64_bit_integers_is_refused(kind: NoiseKind) -> None:
    """The sampler clamps there: a clamped value plus the exact sum would show the sum."""
    edge = mechanisms.LARGEST_SCALE / COUNTS.of(kind)
    with pytest.raises(ConfigError, match="64-bit"):
        mechanisms.NoisySum(kind, edge * 1.01, COUNTS, (3,))
    assert mechanisms.NoisySum(kind, edge * 0.99, COUNTS, (3,)).event


def test_noise_on_sampled_records_that_would_leave_the_64_bit_integers_is_refused_with_a_cure_for_secrets() -> None:
    with pytest.raises(ConfigError, match=r"64-bit.*Choose a prior and a posterior"):
        replace(SAMPLED, noise_multiplier=mechanisms.LARGEST_SCALE / COUNTS.l2 * 1.01)


def test_the_sampler_does_clamp_and_at_the_largest_scale_it_does_not() -> None:
    ends = [-(2**63), 2**63 - 1]
    assert np.isin(SystemNoise().draw("laplace", scale=2.0**62, size=2_000), ends).any()
    assert not np.isin(SystemNoise().draw("laplace", scale=mechanisms.LARGEST_SCALE, size=2_000), ends).any()


@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("mechanism", [GAUSSIAN, LAPLACE, SAMPLED, UNITS], ids=lambda each: each.kind)
def test_an_impossible_noise_multiplier_is_refused(mechanism: Any, multiplier: float) -> None:
    with pytest.raises(ConfigError, match="noise_multiplier"):
        replace(mechanism, noise_multiplier=multiplier)


@pytest.mark.parametrize("sensitivity", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("mechanism", [GAUSSIAN, SAMPLED], ids=["gaussian", "sampled"])
def test_an_impossible_sensitivity_is_refused(mechanism: Any, sensitivity: float) -> None:
    with pytest.raises(ConfigError, match="l2"):
        replace(mechanism, sensitivity=mechanisms.Sensitivity(None, sensitivity))


@pytest.mark.parametrize("mechanism", [GAUSSIAN, SAMPLED], ids=["gaussian", "sampled"])
def test_a_value_too_large_to_be_stored_is_refused_in_the_plan(mechanism: Any) -> None:
    assert replace(mechanism, shape=(mechanisms.LARGEST_RELEASE // 10, 10))
    with pytest.raises(ConfigError, match=r"would have 2e\+08 numbers"):
        replace(mechanism, shape=(mechanisms.LARGEST_RELEASE // 10, 10, 1 + 1))


# -- JSON, from anybody -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
def test_a_mechanism_survives_json_exactly(mechanism: mechanisms.Mechanism) -> None:
    fields = json.loads(json.dumps(mechanism_to_json(mechanism)))
    back = mechanism_from_json(fields, mechanism.event)
    assert back == mechanism
    assert type(back) is type(mechanism)
    assert hash(back) == hash(mechanism)  # tuples are tuples again


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "declared"])
def test_a_mechanism_of_another_event_is_refused(name: str) -> None:
    mechanism = MECHANISMS[name]
    with pytest.raises(ValueError, match="not that of its mechanism"):
        mechanism_from_json(mechanism_to_json(mechanism), GaussianEvent(1.2345))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "other"},
        {"kind": None},
        {"kind": ["noisy-sum"]},
        {"noise": "uniform"},
        {"noise_multiplier": None},
        {"shape": [3, "many"]},
        {"sensitivity": {"l1": 1, "l2": "long", "grid": 1}},
        {"sensitivity": None},
    ],
    ids=str,
)
def test_what_is_no_mechanism_is_refused(change: dict[str, object]) -> None:
    fields = {**mechanism_to_json(GAUSSIAN), **change}
    with pytest.raises(ValueError):
        mechanism_from_json(fields, GAUSSIAN.event)


@pytest.mark.parametrize(
    "change",
    [{"rate": 0.25}, {"rate": 1.5}, {"rate": 0.0}, {"rate": True}, {"rate": "0.125"}, {"noise": "laplace"}],
    ids=str,
)
def test_a_forged_sum_over_sampled_units_is_refused(change: dict[str, object]) -> None:
    """Another rate than is charged, none, and a noise that it does not have."""
    fields = {**mechanism_to_json(UNITS), **change}
    with pytest.raises((ValueError, ConfigError)):
        mechanism_from_json(fields, UNITS.event)
    with pytest.raises(ValueError):  # all units, charged as a sample of them
        mechanism_from_json({**mechanism_to_json(replace(GAUSSIAN, noise_multiplier=2.5))}, UNITS.event)


@pytest.mark.parametrize(
    "change",
    [
        lambda sums: [*sums, sums[0]],
        lambda sums: sums[:1],
        lambda sums: [],
        lambda sums: [[sums[0][0], {**sums[0][1], "noise_multiplier": 9.0}], sums[1]],
        lambda sums: [[sums[0][0], {**sums[0][1], "noise": "laplace"}], sums[1]],
        lambda sums: [[sums[0][0], None], sums[1]],
    ],
    ids=["twice", "one less", "none", "another noise", "laplace", "no sum"],
)
def test_forged_sums_over_one_sample_are_refused(change: Callable[[Any], Any]) -> None:
    fields = mechanism_to_json(made := MECHANISMS["over one sample"])
    with pytest.raises((ValueError, ConfigError)):
        mechanism_from_json({**fields, "sums": change(fields["sums"])}, made.event)
    with pytest.raises(ValueError, match="not that of its mechanism"):
        mechanism_from_json({**fields, "rate": 0.25}, made.event)


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "declared"])
def test_a_mechanism_that_lacks_a_field_is_refused(name: str) -> None:
    fields = mechanism_to_json(MECHANISMS[name])
    for missing in fields:
        with pytest.raises(ValueError):
            mechanism_from_json({key: fields[key] for key in fields if key != missing}, MECHANISMS[name].event)


def test_a_mechanism_that_could_not_be_planned_cannot_be_read_either() -> None:
    fields = {**mechanism_to_json(GAUSSIAN), "sensitivity": {"l1": 3, "l2": 2, "grid": 1}}
    with pytest.raises(ConfigError, match="out of range"):
        mechanism_from_json(fields, GAUSSIAN.event)


def test_a_declared_mechanism_has_no_numbers_to_be_believed() -> None:
    with pytest.raises(ValueError, match="no numbers"):
        mechanism_from_json({"kind": "declared", "noise_multiplier": 9.0}, GaussianEvent(9.0))


def test_no_records_give_noise_of_the_declared_scale() -> None:
    """Two-sided at alpha = 1e-12: 2/3 and 3/2 of the scale would fail."""
    for mechanism in (replace(GAUSSIAN, shape=(4_000,)), replace(LAPLACE, shape=(4_000,))):
        released = mechanism.with_noise(np.zeros(4_000, dtype=np.int64), SystemNoise())
        assert released.shape == (4_000,)
        assert released.dtype == np.float64
        noise = np.rint(released * 2**20).astype(np.int64)
        assert scale_p_value(mechanism.noise, noise, scale=mechanism.scale) > ALPHA
        for wrong in (2 / 3, 3 / 2):
            assert scale_p_value(mechanism.noise, noise, scale=mechanism.scale * wrong) < ALPHA


# -- discrete Gaussian noise is not exactly Gaussian: by how much, summed exactly over its grid -----------------------


def discrete_delta(*, sigma: float, shift: int, epsilon: float) -> float:
    """delta at ``epsilon`` between a discrete Gaussian and the same one moved by ``shift`` grid units."""
    reach = int(14 * sigma) + shift + 2
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    here = np.exp(-(x**2) / (2 * sigma**2))
    moved = np.exp(epsilon - (x + shift) ** 2 / (2 * sigma**2))
    return float(np.sum(np.maximum(here - moved, 0))) / float(np.sum(here))


def worst_excess(*, sigma: float, epsilon: float, delta: float) -> float:
    """Largest relative excess over the continuous curve, over positions of the threshold within a grid cell."""
    shift = round(sigma / gaussian_noise_multiplier(epsilon, delta))
    mu = shift / sigma
    thresholds = [epsilon + quarter * mu / sigma / 4 for quarter in range(4)]
    return max(discrete_delta(sigma=sigma, shift=shift, epsilon=e) / GDP(mu).delta(e) - 1 for e in thresholds)


@pytest.mark.parametrize(("epsilon", "times"), [(1, 1.02), (3, 1.38), (6, 1.82), (8, 3.01)])
def test_on_a_grid_of_one_the_analytic_delta_is_exceeded(epsilon: float, times: float) -> None:
    sigma = gaussian_noise_multiplier(epsilon, 1e-6)
    assert discrete_delta(sigma=sigma, shift=1, epsilon=epsilon) / 1e-6 == pytest.approx(times, abs=0.005)


@pytest.mark.parametrize("epsilon", [1, 3, 6, 8])
def test_at_4096_grid_units_the_excess_is_what_the_design_says(epsilon: float) -> None:
    assert worst_excess(sigma=4096, epsilon=epsilon, delta=1e-6) < 2e-7


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (8, 1e-6), (8, 1e-12), (100, 1e-12), (200, 1e-14)])
def test_on_the_coarsest_grid_the_excess_is_below_what_the_accountant_adds(epsilon: float, delta: float) -> None:
    assert worst_excess(sigma=mechanisms.SMALLEST_SIGMA, epsilon=epsilon, delta=delta) < DISCRETE_EXCESS / 4


def test_the_accountant_adds_the_excess_of_every_event() -> None:
    """At the delta of the continuous curve, n discrete releases promise a little less than n continuous ones."""
    for count in (1, 10):
        mu = count**0.5 / 4
        epsilon = Composition((GaussianEvent(4.0),) * count).epsilon(1e-6)
        assert GDP(mu).delta(epsilon) * (1 + DISCRETE_EXCESS * count) <= 1e-6
        assert epsilon == pytest.approx(GDP(mu).epsilon(1e-6), rel=1e-6)
