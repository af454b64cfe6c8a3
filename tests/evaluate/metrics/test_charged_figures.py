"""Figures from noisy counts."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.evaluate.counting import LENGTH_EDGES, charged_values
from understudy.evaluate.metrics.value import MetricValue

LENGTHS = [0.0] * len(LENGTH_EDGES)


def values(
    labels: list[float], right: list[float], *, scale: float = 2.0, lengths: list[float] = LENGTHS
) -> list[MetricValue]:
    made = charged_values(
        np.array([*labels, *lengths, *right]),
        labels=[f"label {place}" for place in range(len(labels))],
        classifiers=["tf-idf"] if right else [],
        training_texts=20,
        noise_scale=scale,
        seed=0,
    )
    return list(made)


def of(made: list[MetricValue], name: str) -> list[MetricValue]:
    return [each for each in made if each.metric.name == name]


def test_shares_and_accuracy_are_ratios_of_the_counts() -> None:
    made = values([300.0, 100.0], [240.0, 60.0])
    assert [each.value for each in of(made, "label_share")] == [0.75, 0.25]
    assert [each.value for each in of(made, "accuracy")] == [0.75]
    assert [each.value for each in of(made, "records")] == [400.0]


def test_intervals_hold_the_value_and_grow_with_the_noise() -> None:
    narrow, wide = (of(values([300.0, 100.0], [240.0, 60.0], scale=scale), "accuracy")[0] for scale in (1.0, 40.0))
    for each in (narrow, wide):
        assert each.interval is not None
        assert each.value is not None
        assert each.interval.low <= each.value <= each.interval.high
    assert narrow.interval is not None
    assert wide.interval is not None
    assert wide.interval.high - wide.interval.low > 2 * (narrow.interval.high - narrow.interval.low)


def test_totals_that_are_all_noise_and_beyond_any_integer_have_values() -> None:
    made = values([4e19, 2e19], [1e19, 1e19], scale=1e19)
    assert of(made, "label_share")[0].value == pytest.approx(2 / 3)


@pytest.mark.parametrize("labels", [2, 50])
def test_the_number_of_records_is_told_without_a_bias(labels: int) -> None:
    generator, scale, found = np.random.default_rng(2), 6.0, []
    held = 0
    for _ in range(150):
        counts = np.full(labels, 400 / labels) + generator.laplace(0, scale, labels)
        (made,) = of(values(list(counts), [], scale=scale), "records")
        assert made.value is not None
        assert made.interval is not None
        found.append(made.value)
        held += made.interval.low <= 400 <= made.interval.high
    spread = scale * np.sqrt(2 * labels / 150)
    assert abs(np.mean(found) - 400) < 4 * spread
    assert 130 <= held <= 150  # 142 expected, the standard deviation is 3


@pytest.mark.parametrize("labels", [2, 10, 50])
def test_the_interval_of_a_share_holds_the_truth_with_many_labels_too(labels: int) -> None:
    generator, scale, held = np.random.default_rng(3), 6.0, 0
    truth = np.array([0.5, *np.full(labels - 1, 0.5 / (labels - 1))])
    for _ in range(150):
        counts = generator.multinomial(2000, truth) + generator.laplace(0, scale, labels)
        interval = of(values(list(counts), [], scale=scale), "label_share")[0].interval
        assert interval is not None
        held += interval.low <= 0.5 <= interval.high
    assert 130 <= held <= 150


def test_the_interval_of_an_accuracy_holds_the_truth_as_often_as_it_says() -> None:
    generator, scale, held = np.random.default_rng(1), 4.0, 0
    for _ in range(200):
        records = generator.multinomial(400, [0.5, 0.5]).astype(float)
        hits = generator.binomial(records.astype(int), 0.8).astype(float)
        noise = generator.laplace(0, scale, 4)
        found = of(values(list(records + noise[:2]), list(hits + noise[2:]), scale=scale), "accuracy")[0].interval
        assert found is not None
        held += found.low <= 0.8 <= found.high
    assert 175 <= held <= 200  # 190 expected, the standard deviation is 3


@pytest.mark.parametrize("labels", [[-3.0, -1.0], [0.0, 0.0], [-2.0, 5.0]])
def test_counts_below_zero_give_shares_between_0_and_1(labels: list[float]) -> None:
    for each in values(labels, [7.0, -9.0]):
        assert each.value is not None
        assert np.isfinite(each.value)
        if each.metric.name != "records":
            assert 0 <= each.value <= 1


def test_all_of_them_may_be_shared() -> None:
    assert not any(each.reads_private for each in values([3.0, 4.0], [1.0, 1.0]))


def test_without_labels_there_are_lengths_only() -> None:
    made = charged_values(
        np.array([10.0, *LENGTHS]), labels=[], classifiers=[], training_texts=0, noise_scale=1.0, seed=0
    )
    assert {each.metric.name for each in made} == {"records", "length_share"}
