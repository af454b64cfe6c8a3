"""What an audit finds is a number of the promised kind, and no test can pass what is promised."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from understudy.audit.mechanisms.bounds import PRIOR, Claim, ErrorLimits, secret_budget
from understudy.privacy.events import (
    Event,
    GaussianEvent,
    MixtureEvent,
    PureEvent,
    SubsampledGaussianEvent,
    SubsampledPureEvent,
    ZCDPEvent,
)
from understudy.privacy.guarantee import GDP, Budget


def epsilon(*events: Event, delta: float = 1e-6) -> Claim:
    return Claim(events, delta)


EVENTS = {
    "Gaussian": (GaussianEvent(1.2), GaussianEvent(2.0)),
    "Gaussian on everybody": (SubsampledGaussianEvent(1.2, 1.0, 3),),
    "sampled Gaussian": (SubsampledGaussianEvent(0.8, 0.3, 1),),
    "zCDP": (ZCDPEvent(0.3),),
    "pure": (PureEvent(1.0), PureEvent(0.5)),
    "sampled pure": (SubsampledPureEvent(1.0, 0.5, 1),),
    "sampled Gaussian, often": (SubsampledGaussianEvent(1.0, 0.3, 3),),
}
CURVES = ["Gaussian", "Gaussian", "sampled Gaussian", "zCDP", None, None, None]


def test_a_promise_has_the_curve_that_its_events_have() -> None:
    assert [epsilon(*events).curve for events in EVENTS.values()] == CURVES


@pytest.mark.parametrize("name", EVENTS)
def test_no_test_on_the_promised_curve_refutes_the_promise(name: str) -> None:
    events = EVENTS[name]
    pure = "pure" in name
    claim = epsilon(*events, delta=0.0 if pure else 1e-6)
    for false_positive in (0.001, 0.05, 0.3, 0.8):
        best = ErrorLimits(np.array(false_positive), np.array(1 - claim.power(false_positive)))
        assert claim.bound(best) <= claim.value * (1 + 1e-9)
        if claim.curve:
            found = claim.of_curve(float(claim.along_curve(best)))
            assert found == pytest.approx(claim.value, rel=2e-3)
            better = ErrorLimits(best.false_positive, 0.7 * best.false_negative)
            assert claim.of_curve(float(claim.along_curve(better))) > claim.value


def test_pure_privacy_is_refuted_where_its_best_test_is_beaten() -> None:
    claim = epsilon(PureEvent(1.0), delta=0.0)
    wrong = 1 / (1 + math.e)
    assert claim.bound(ErrorLimits(np.array(wrong), np.array(wrong))) == pytest.approx(claim.value)
    assert claim.bound(ErrorLimits(np.array(wrong), np.array(wrong * 0.9))) > claim.value


def test_the_epsilon_of_one_sampled_gaussian_is_that_of_its_privacy_loss_distribution() -> None:
    for noise, rate in ((0.8, 0.3), (2.0, 0.05)):
        claim = epsilon(SubsampledGaussianEvent(noise, rate, 1))
        assert claim.of_curve(1 / noise) == pytest.approx(claim.value, rel=2e-3)
        assert claim.of_curve(0.0) == 0


def test_the_numbers_are_named() -> None:
    assert epsilon(PureEvent(1.0), delta=0.0).words == "epsilon at delta 0"
    assert Claim((GaussianEvent(1.0),), prior=0.01).words == "posterior at prior 0.01"


def test_a_secret_that_is_always_drawn_has_a_gaussian_curve_and_one_that_is_drawn_sometimes_has_none() -> None:
    always, sometimes = MixtureEvent(1.5, (((1.0, 2),),)), MixtureEvent(1.5, (((0.5, 2),),))
    assert (
        Claim(
            (
                always,
                GaussianEvent(1.0),
            ),
            prior=0.01,
        ).curve
        == "Gaussian"
    )
    claim = Claim((always,), prior=0.01)
    assert claim.of_curve(2 / 1.5) == pytest.approx(claim.value, rel=1e-6)
    assert Claim((sometimes,), prior=0.01).curve is None


def test_secrets_are_promised_what_one_gaussian_release_of_the_same_epsilon_would() -> None:
    spend = secret_budget(Budget(4, "1e-6"))
    assert float(spend.prior) == PRIOR
    assert GDP(spend.mu).epsilon(1e-6) == pytest.approx(4, rel=1e-6)
    assert float(spend.posterior) == pytest.approx(stats.norm.sf(stats.norm.isf(PRIOR) - spend.mu))
