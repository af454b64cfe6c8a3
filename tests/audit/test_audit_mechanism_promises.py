"""What an audit finds is a number of the promised kind, and no test can pass what is promised."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from understudy.audit.bounds import ErrorLimits
from understudy.audit.mechanisms.promise import EpsilonPromise, PosteriorPromise
from understudy.audit.mechanisms.secret_promise import PRIOR, secret_budget
from understudy.privacy.accountant import Composition
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


def epsilon(*events: Event, delta: float = 1e-6) -> EpsilonPromise:
    return EpsilonPromise(Composition(events), delta)


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
    promise = epsilon(*events, delta=0.0 if pure else 1e-6)
    for false_positive in (0.001, 0.05, 0.3, 0.8):
        best = ErrorLimits(np.array(false_positive), np.array(1 - promise.power(false_positive)))
        assert promise.bound(best) <= promise.value * (1 + 1e-9)
        if promise.curve:
            found = promise.of_curve(float(promise.along_curve(best)))
            assert found == pytest.approx(promise.value, rel=2e-3)
            better = ErrorLimits(best.false_positive, 0.7 * best.false_negative)
            assert promise.of_curve(float(promise.along_curve(better))) > promise.value


def test_pure_privacy_is_refuted_where_its_best_test_is_beaten() -> None:
    promise = epsilon(PureEvent(1.0), delta=0.0)
    wrong = 1 / (1 + math.e)
    assert promise.bound(ErrorLimits(np.array(wrong), np.array(wrong))) == pytest.approx(promise.value)
    assert promise.bound(ErrorLimits(np.array(wrong), np.array(wrong * 0.9))) > promise.value


def test_the_epsilon_of_one_sampled_gaussian_is_that_of_its_privacy_loss_distribution() -> None:
    for noise, rate in ((0.8, 0.3), (2.0, 0.05)):
        promise = epsilon(SubsampledGaussianEvent(noise, rate, 1))
        assert promise.of_curve(1 / noise) == pytest.approx(promise.value, rel=2e-3)
        assert promise.of_curve(0.0) == 0


def test_the_numbers_are_named() -> None:
    assert epsilon(PureEvent(1.0), delta=0.0).words == "epsilon at delta 0"
    assert PosteriorPromise([GaussianEvent(1.0)], 0.01).words == "posterior at prior 0.01"


def test_a_secret_that_is_always_drawn_has_a_gaussian_curve_and_one_that_is_drawn_sometimes_has_none() -> None:
    always, sometimes = MixtureEvent(1.5, (((1.0, 2),),)), MixtureEvent(1.5, (((0.5, 2),),))
    assert PosteriorPromise([always, GaussianEvent(1.0)], 0.01).curve == "Gaussian"
    promise = PosteriorPromise([always], 0.01)
    assert promise.of_curve(2 / 1.5) == pytest.approx(promise.value, rel=1e-6)
    assert PosteriorPromise([sometimes], 0.01).curve is None


def test_secrets_are_promised_what_one_gaussian_release_of_the_same_epsilon_would() -> None:
    spend = secret_budget(Budget(4, "1e-6"))
    assert float(spend.prior) == PRIOR
    assert GDP(spend.mu).epsilon(1e-6) == pytest.approx(4, rel=1e-6)
    assert float(spend.posterior) == pytest.approx(stats.norm.sf(stats.norm.isf(PRIOR) - spend.mu))
