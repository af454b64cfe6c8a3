"""Train on synthetic, test on real: the label and every column; scores and their intervals."""

from __future__ import annotations

import math
from importlib import import_module
from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest, t
from toys import relabelled, toy

from understudy.base.columns import declared_columns
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.classifiers import (
    accuracy_interval,
    macro_f1,
    macro_f1_interval,
    measure_classifiers,
    measure_columns,
)
from understudy.evaluate.metrics.value import MAJORITY, REAL, REAL_ALL, SYNTHETIC, MetricValue

KINDS = ("tf-idf", "embedding", "network", "coral")
ALL = {"kinds": KINDS, "recipient": toy(40, seed=9)}


def measured(values: tuple[MetricValue, ...], of: str, metric: str, classifier: str) -> MetricValue:
    (found,) = [
        each for each in values if (each.of, each.metric.name, each.settings["classifier"]) == (of, metric, classifier)
    ]
    return found


def numbers(values: tuple[MetricValue, ...]) -> list[float | None]:
    return [each.value for each in values]


@pytest.fixture
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("understudy.evaluate.metrics.utility.fitting"), "_ROUNDS", 3)


@pytest.mark.usefixtures("few_rounds")
def test_every_kind_learns_a_separable_problem_from_every_table() -> None:
    values = measure_classifiers(
        toy(150, seed=1), toy(60, seed=2), {"synthetic": toy(60, seed=3), "baseline": toy(30, seed=4)}, seeds=2, **ALL
    )
    tables = {"synthetic": 60, "baseline": 30, "real": 60, "real (all)": 150}
    for of, metric, kind in product(tables, ("accuracy", "macro_f1"), KINDS):
        found = measured(values, of, metric, kind)
        assert found.value is not None
        assert found.value > 0.9, (of, metric, kind, found.value)
        assert found.interval is not None
        assert 0 <= found.interval.low <= found.value <= found.interval.high <= 1
        assert found.sample_size == tables[of]
        assert found.note == ""
        assert found.reads_private
    assert len(values) == len(tables) * 2 * len(KINDS)


def test_labels_that_say_nothing_teach_nothing() -> None:
    synthetic = toy(300, seed=3)
    shuffled = np.random.default_rng(0).permutation(np.array(synthetic.labels)).tolist()
    values = measure_classifiers(
        None, toy(600, seed=2), {"synthetic": relabelled(synthetic, shuffled)}, kinds=("tf-idf", "embedding", "network")
    )
    for each in values:
        assert each.value is not None
        assert 0.15 < each.value < 0.55, each.settings  # by chance a third; 12 standard errors of the test


def test_accuracy_is_that_of_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score

    synthetic, test = toy(40, seed=3, noise=0.8), toy(200, seed=2, noise=0.8)
    model = LogisticRegression(C=10, max_iter=2000).fit(synthetic.embeddings, synthetic.labels)
    values = measure_classifiers(None, test, {"synthetic": synthetic}, kinds=["embedding"])
    assert numbers(values) == pytest.approx(
        [
            model.score(test.embeddings, test.labels),
            f1_score(test.labels, model.predict(test.embeddings), average="macro"),
        ]
    )


def test_no_classifier_of_synthetic_texts_sees_a_test_text_or_a_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    seen: list[str] = []
    fit = TfidfVectorizer.fit_transform
    monkeypatch.setattr(TfidfVectorizer, "fit_transform", lambda self, texts: seen.extend(texts) or fit(self, texts))
    synthetic, test = toy(30, seed=1), toy(30, seed=2)
    marked = Sample(tuple(f"{text} onlyinthetest" for text in test.texts), test.labels, test.embeddings)
    measure_classifiers(None, marked, {"synthetic": synthetic}, kinds=["tf-idf"])
    assert seen == list(synthetic.texts)


@pytest.mark.slow
@pytest.mark.usefixtures("few_rounds")
def test_a_seed_repeats_all_figures_and_another_gives_others() -> None:
    def measured(seed: int) -> list[dict]:
        values = measure_classifiers(
            toy(80, seed=1, noise=0.9), toy(90, seed=2, noise=0.9), {"s": toy(30, seed=3)}, seed=seed, seeds=2, **ALL
        )
        return list(values)

    first = measured(5)
    assert first == measured(5)
    pairs = zip(first, measured(6), strict=True)
    differ = [(one.of, one.settings["classifier"]) for one, two in pairs if one != two]
    assert {("real", "embedding"), ("real", "network"), ("s", "network"), ("real (all)", "coral")} <= set(differ)


@pytest.mark.usefixtures("few_rounds")
def test_global_random_numbers_and_threads_stay_as_they_were() -> None:
    import torch

    torch.manual_seed(4)
    np.random.seed(4)  # noqa: NPY002
    expected = torch.rand(1).item(), np.random.rand()  # noqa: NPY002
    torch.manual_seed(4)
    np.random.seed(4)  # noqa: NPY002
    threads, grad = torch.get_num_threads(), torch.is_grad_enabled()
    measure_classifiers(None, toy(20, seed=2), {"s": toy(30, seed=3)}, seeds=1, **ALL)
    assert (torch.rand(1).item(), np.random.rand()) == expected  # noqa: NPY002
    assert (torch.get_num_threads(), torch.is_grad_enabled()) == (threads, grad)


def test_macro_f1_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import f1_score

    generator = np.random.default_rng(0)
    for most in (2, 3, 14):
        truth, predicted = generator.integers(most, size=200), generator.integers(most + 1, size=200)
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


COLUMNS = declared_columns("ward=A|B; night")
WORDS = ("heart pulse", "rash itch", "unknown")


def table(count: int, *, wrong: bool = False, ones: int = 2) -> Sample:
    """Texts that tell the ward, or the other one; every ``ones``th is of ward B."""
    wards = [int(number % ones == 0) for number in range(count)]
    texts = tuple(f"{WORDS[1 - ward if wrong else ward]} {number % 7}" for number, ward in enumerate(wards))
    return Sample(texts, cells=np.array([[ward, 0] for ward in wards], np.int32), columns=COLUMNS)


def test_a_column_is_learned_from_each_table_s_own_texts_and_tested_on_real_ones() -> None:
    tables = {SYNTHETIC: table(20, wrong=True), "bare": Sample(("heart",), ("x",))}
    values = list(measure_columns(table(60), table(40, ones=4), tables, seed=0))
    found = {(each.of, each.metric.name): each for each in values if each.settings["column"] == "ward"}
    accuracy = {of: each.value for (of, name), each in found.items() if name == "column_accuracy"}
    assert accuracy == {SYNTHETIC: 0, REAL: 1, REAL_ALL: 1, MAJORITY: 0.75}
    assert found[MAJORITY, "column_macro_f1"].value == pytest.approx((2 * 30 / 70) / 2)
    assert {of: found[of, "column_accuracy"].sample_size for of in (SYNTHETIC, REAL, REAL_ALL)} == {
        SYNTHETIC: 20,
        REAL: 20,
        REAL_ALL: 60,
    }


def test_a_column_of_one_value_is_left_out_with_a_note() -> None:
    values = list(measure_columns(table(20), table(20), {SYNTHETIC: table(30)}, seed=0))
    night = [each for each in values if each.settings["column"] == "night"]
    assert {(each.value, each.note) for each in night} == {(None, "All real rows have one value.")}
    assert {each.of for each in values} == {SYNTHETIC, REAL_ALL, MAJORITY}  # there are not more real rows


@pytest.mark.usefixtures("few_rounds")
def test_training_works_where_gradients_are_off() -> None:
    import torch

    with torch.inference_mode():
        values = measure_classifiers(None, toy(30, seed=2), {"s": toy(60, seed=3)}, seeds=1, **ALL)
    assert all(each.value is not None and each.value > 0.8 for each in values)
