"""Accuracy, macro F1 and their intervals, by hand and by scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest, t

from understudy.evaluate.metrics.utility.classifiers import accuracy, accuracy_interval, macro_f1, macro_f1_interval


def classes(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def test_macro_f1_by_hand() -> None:
    truth, predicted = classes(0, 0, 0, 1, 1, 2), classes(0, 0, 1, 1, 2, 1)
    # 0: 2 of 2 answers right, 2 of 3 found: 4/5. 1: 1 of 3, 1 of 2: 2/5. 2: never right: 0.
    assert macro_f1(truth, predicted) == pytest.approx((4 / 5 + 2 / 5 + 0) / 3)
    assert accuracy(truth, predicted) == 0.5


def test_a_class_that_is_only_predicted_is_no_class_of_the_mean() -> None:
    truth, predicted = classes(0, 0, 1, 1), classes(0, 3, 1, 1)
    assert macro_f1(truth, predicted) == pytest.approx((2 / 3 + 1) / 2)


def test_macro_f1_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import f1_score

    generator = np.random.default_rng(0)
    for most in (2, 3, 14):
        truth, predicted = generator.integers(most, size=(2, 200))
        expected = f1_score(truth, predicted, average="macro", labels=np.unique(truth), zero_division=0)
        assert macro_f1(truth, predicted) == pytest.approx(expected)


def test_one_classifier_has_the_interval_of_its_test_texts() -> None:
    truth = np.zeros(50, dtype=np.int64)
    predicted = (np.arange(50) >= 40).astype(np.int64)
    wilson = binomtest(40, 50).proportion_ci(0.95, method="wilson")
    found = accuracy_interval(truth, [predicted])
    assert (found.low, found.high) == pytest.approx((wilson.low, wilson.high))
    assert found.method == "Wilson, 50 trials"


def test_several_classifiers_add_what_seeds_do_at_a_right_angle() -> None:
    truth = np.zeros(100, dtype=np.int64)
    rights = (70, 75, 86)
    predictions = [(np.arange(100) >= right).astype(np.int64) for right in rights]
    values = np.array(rights) / 100
    mean, reach = values.mean(), t.ppf(0.975, 2) * values.std(ddof=1) / math.sqrt(3)
    wilson = binomtest(77, 100).proportion_ci(0.95, method="wilson")
    found = accuracy_interval(truth, predictions)
    assert found.low == pytest.approx(mean - math.hypot(mean - wilson.low, reach))
    assert found.high == pytest.approx(min(1, mean + math.hypot(wilson.high - mean, reach)))
    assert found.method == "Wilson, 100 trials and t over 3 seeds"


def test_perfect_answers_to_few_texts_prove_little() -> None:
    truth = np.zeros(5, dtype=np.int64)
    found = accuracy_interval(truth, [truth, truth])
    assert found.low < 0.6
    assert found.high == 1


def test_intervals_hold_the_true_accuracy_about_as_often_as_they_say() -> None:
    """Classifiers of a true accuracy that varies from seed to seed, on test texts drawn anew."""
    generator = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        truth = np.zeros(80, dtype=np.int64)
        hardness = generator.random(80)  # shared by all classifiers: a hard text is hard for all
        predictions = [(hardness > generator.normal(0.8, 0.03)).astype(np.int64) for _ in range(4)]
        interval = accuracy_interval(truth, predictions)
        held += interval.low <= 0.8 <= interval.high
    assert held / 400 > 0.93


def test_the_interval_of_macro_f1_holds_its_value_and_is_repeated_by_its_seed() -> None:
    generator = np.random.default_rng(0)
    truth = generator.integers(3, size=200)
    predictions = [np.where(generator.random(200) < 0.7, truth, generator.integers(3, size=200)) for _ in range(3)]
    mean = np.mean([macro_f1(truth, each) for each in predictions])
    found = macro_f1_interval(truth, predictions, seed=1)
    assert found.low < mean < found.high
    assert found == macro_f1_interval(truth, predictions, seed=1)
    assert found != macro_f1_interval(truth, predictions, seed=2)
    alone = macro_f1_interval(truth, predictions[:1], seed=1)
    assert alone.method == "bootstrap over the test texts, 200 resamples"
