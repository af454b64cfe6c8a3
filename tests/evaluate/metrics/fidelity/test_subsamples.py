"""Intervals by subsamples: how they are drawn, and that they are as wide as a statistic varies."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.evaluate.metrics.intervals import over_subsamples, value_of_subsamples, whole_and_subsamples
from understudy.evaluate.metrics.value import Metric

METRIC = Metric("fidelity", "m", "M", "A number.", "none", "lower")


def test_the_first_choice_is_all_texts_and_the_others_different_subsamples() -> None:
    ours, theirs = whole_and_subsamples((20, 40), seed=0, resamples=6, share=0.5)
    assert ours[0].all()
    assert theirs[0].all()
    assert (ours[1:].sum(axis=1) == 10).all()
    assert (theirs[1:].sum(axis=1) == 20).all()
    assert len({row.tobytes() for row in ours}) == 7


def test_a_small_table_has_no_subsamples_and_no_interval() -> None:
    assert [len(each) for each in whole_and_subsamples((19, 500), seed=0, resamples=6)] == [1, 1]
    measured = value_of_subsamples(METRIC, [0.25], "synthetic", settings={"label": "a"})
    assert measured.value == 0.25
    assert measured.interval is None
    assert measured.note
    assert measured.settings == {"label": "a"}


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_the_interval_of_a_difference_of_means_is_as_wide_as_by_the_normal_law(share: float) -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 1000))
    ours, theirs = whole_and_subsamples((1000, 1000), seed=0, resamples=2000, share=share)
    values = [a[one].mean() - b[two].mean() for one, two in zip(ours, theirs, strict=True)]
    measured = value_of_subsamples(METRIC, values, "synthetic", share=share)
    assert measured.interval is not None
    expected = 2 * 1.96 * np.sqrt((a.var() + b.var()) / 1000)
    assert measured.interval.high - measured.interval.low == pytest.approx(expected, rel=0.1)
    assert (measured.interval.high + measured.interval.low) / 2 == pytest.approx(measured.value, abs=expected / 10)


def test_a_bias_of_small_samples_does_not_move_the_interval() -> None:
    values = np.random.default_rng(0).normal(size=1000)
    measured = over_subsamples(
        METRIC, lambda one: values[one].mean() + 3000 / one.sum(), [1000], "synthetic", seed=0, resamples=200
    )
    assert measured.interval is not None
    assert measured.interval.low < measured.value < measured.interval.high


def test_a_statistic_that_strays_upward_may_have_been_lower() -> None:
    measured = value_of_subsamples(METRIC, [5.0, *[4.0] * 8, 9.0], "synthetic", share=0.5)
    assert measured.interval is not None
    assert 5 - measured.interval.low > measured.interval.high - 5
    within = value_of_subsamples(METRIC, [0.95, 0.5, 0.7, 0.9, 0.99], "synthetic", low=0.0, high=1.0).interval
    assert within is not None
    assert within.high == 1.0, "an interval stays within the range"
