"""Train on synthetic, test on real: the label and every column; scores and their intervals; and classifiers that answer
for each text for itself."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib import import_module
from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest, t
from toys import relabelled, toy

from understudy.base.errors import ConfigError
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility import classifiers
from understudy.evaluate.metrics.utility.fitting import Predict
from understudy.evaluate.metrics.value import MAJORITY, REAL, REAL_ALL, SYNTHETIC, MetricValue
from understudy.schema.columns import declared_columns

ALONE = ("tf-idf", "embedding", "network")
KINDS = (*ALONE, "coral")
ALL = {"kinds": KINDS, "recipient": toy(40, seed=9)}


def measured(values: tuple[MetricValue, ...], of: str, metric: str, classifier: str) -> MetricValue:
    (found,) = [
        each for each in values if (each.of, each.metric.name, each.settings["classifier"]) == (of, metric, classifier)
    ]
    return found


def numbers(values: tuple[MetricValue, ...]) -> list[float | None]:
    return [each.value for each in values]


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks need not learn much here."""
    monkeypatch.setattr(import_module("understudy.evaluate.metrics.utility.fitting"), "_ROUNDS", 6)


def test_every_kind_learns_a_separable_problem_from_every_table() -> None:
    values = classifiers.measure_classifiers(
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
    values = classifiers.measure_classifiers(
        None, toy(600, seed=2), {"synthetic": relabelled(synthetic, shuffled)}, kinds=ALONE
    )
    for each in values:
        assert each.value is not None
        assert 0.15 < each.value < 0.55, each.settings  # by chance a third; 12 standard errors of the test


def test_accuracy_is_that_of_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score

    synthetic, test = toy(40, seed=3, noise=0.8), toy(200, seed=2, noise=0.8)
    model = LogisticRegression(C=10, max_iter=2000).fit(synthetic.embeddings, synthetic.labels)
    values = classifiers.measure_classifiers(None, test, {"synthetic": synthetic}, kinds=["embedding"])
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
    classifiers.measure_classifiers(None, marked, {"synthetic": synthetic}, kinds=["tf-idf"])
    assert seen == list(synthetic.texts)


def test_a_seed_repeats_all_figures_and_another_gives_others() -> None:
    def measured(seed: int) -> list[dict]:
        values = classifiers.measure_classifiers(
            toy(80, seed=1, noise=0.9), toy(90, seed=2, noise=0.9), {"s": toy(30, seed=3)}, seed=seed, seeds=2, **ALL
        )
        return list(values)

    first = measured(5)
    assert first == measured(5)
    pairs = zip(first, measured(6), strict=True)
    differ = [(one.of, one.settings["classifier"]) for one, two in pairs if one != two]
    assert {("real", "embedding"), ("real", "network"), ("s", "network"), ("real (all)", "coral")} <= set(differ)


def test_global_random_numbers_and_threads_stay_as_they_were() -> None:
    import torch

    torch.manual_seed(4)
    np.random.seed(4)  # noqa: NPY002
    expected = torch.rand(1).item(), np.random.rand()  # noqa: NPY002
    torch.manual_seed(4)
    np.random.seed(4)  # noqa: NPY002
    threads, grad = torch.get_num_threads(), torch.is_grad_enabled()
    classifiers.measure_classifiers(None, toy(20, seed=2), {"s": toy(30, seed=3)}, seeds=1, **ALL)
    assert (torch.rand(1).item(), np.random.rand()) == expected  # noqa: NPY002
    assert (torch.get_num_threads(), torch.is_grad_enabled()) == (threads, grad)


def test_macro_f1_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import f1_score

    generator = np.random.default_rng(0)
    for most in (2, 3, 14):
        truth, predicted = generator.integers(most, size=200), generator.integers(most + 1, size=200)
        expected = f1_score(truth, predicted, average="macro", labels=np.unique(truth), zero_division=0)
        assert classifiers.macro_f1(truth, predicted) == pytest.approx(expected)


def test_one_classifier_has_the_interval_of_its_test_texts() -> None:
    truth = np.zeros(50, dtype=np.int64)
    predicted = (np.arange(50) >= 40).astype(np.int64)
    wilson = binomtest(40, 50).proportion_ci(0.95, method="wilson")
    found = classifiers.accuracy_interval(truth, [predicted])
    assert (found.low, found.high) == pytest.approx((wilson.low, wilson.high))
    assert found.method == "Wilson, 50 trials"


def test_several_classifiers_add_what_seeds_do_at_a_right_angle() -> None:
    truth = np.zeros(100, dtype=np.int64)
    rights = (70, 75, 86)
    predictions = [(np.arange(100) >= right).astype(np.int64) for right in rights]
    values = np.array(rights) / 100
    mean, reach = values.mean(), t.ppf(0.975, 2) * values.std(ddof=1) / math.sqrt(3)
    wilson = binomtest(77, 100).proportion_ci(0.95, method="wilson")
    found = classifiers.accuracy_interval(truth, predictions)
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
        interval = classifiers.accuracy_interval(truth, predictions)
        held += interval.low <= 0.8 <= interval.high
    assert held / 400 > 0.93


def test_the_interval_of_macro_f1_holds_its_value_and_is_repeated_by_its_seed() -> None:
    generator = np.random.default_rng(0)
    truth = generator.integers(3, size=200)
    predictions = [np.where(generator.random(200) < 0.7, truth, generator.integers(3, size=200)) for _ in range(3)]
    mean = np.mean([classifiers.macro_f1(truth, each) for each in predictions])
    found = classifiers.macro_f1_interval(truth, predictions, seed=1)
    assert found.low < mean < found.high
    assert found == classifiers.macro_f1_interval(truth, predictions, seed=1)
    assert found != classifiers.macro_f1_interval(truth, predictions, seed=2)
    alone = classifiers.macro_f1_interval(truth, predictions[:1], seed=1)
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
    values = list(classifiers.measure_columns(table(60), table(40, ones=4), tables, seed=0))
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
    values = list(classifiers.measure_columns(table(20), table(20), {SYNTHETIC: table(30)}, seed=0))
    night = [each for each in values if each.settings["column"] == "night"]
    assert {(each.value, each.note) for each in night} == {(None, "All real rows have one value.")}
    assert {each.of for each in values} == {SYNTHETIC, REAL_ALL, MAJORITY}  # there are not more real rows


def test_training_works_where_gradients_are_off() -> None:
    import torch

    with torch.inference_mode():
        values = classifiers.measure_classifiers(None, toy(30, seed=2), {"s": toy(60, seed=3)}, seeds=1, **ALL)
    assert all(each.value is not None and each.value > 0.8 for each in values)


# -- each text answered for itself, and tables that little can be learned from -------------------------------------


def hard(count: int, *, seed: int) -> Sample:
    """Texts near the borders: every second label is wrong, embeddings of 384 dimensions are mostly noise."""
    sample = toy(count, seed=seed, dimension=384, noise=0.5)
    generator = np.random.default_rng(seed)
    return relabelled(sample, [str(each) for each in generator.permutation(np.array(sample.labels))])


def minds_others(predict: Predict, test: Sample) -> bool:
    """Whether some text's class changes with the texts beside it: in blocks of several sizes, in another order."""
    together = predict(test)
    order = np.random.default_rng(0).permutation(len(test))
    found = [np.array_equal(predict(test.take(order)), together[order])]
    for size in (1, 2, 7, 64):
        parts = [test.take(range(start, min(start + size, len(test)))) for start in range(0, len(test), size)]
        found.append(np.array_equal(np.concatenate([predict(part) for part in parts]), together))
    return not all(found)


@pytest.mark.parametrize("kind", ALONE)
def test_a_text_has_its_class_whatever_texts_are_beside_it(kind: str) -> None:
    labels, predict = classifiers.kind_named(kind).train(hard(60, seed=1), seed=0)
    test = hard(150, seed=2)
    assert set(predict(test).tolist()) == set(range(len(labels)))
    assert not minds_others(predict, test)


def test_a_classifier_that_takes_off_the_mean_of_its_test_texts_is_caught() -> None:
    _, predict = classifiers.kind_named("embedding").train(hard(60, seed=1), seed=0)

    def centred(sample: Sample) -> np.ndarray:
        assert sample.embeddings is not None
        return predict(replace(sample, embeddings=sample.embeddings - sample.embeddings.mean(0)))

    assert minds_others(centred, hard(150, seed=2))


def answers(kind: str, train: Sample, test: Sample, *, seed: int = 0) -> list[str]:
    labels, predict = classifiers.kind_named(kind).train(train, seed=seed)
    return [labels[each] for each in predict(test)]


def test_words_that_only_the_test_has_count_for_nothing() -> None:
    synthetic, test = hard(60, seed=1), hard(40, seed=2)
    more = Sample(tuple(f"{text} zebra quagga" for text in test.texts))
    assert answers("tf-idf", synthetic, more) == answers("tf-idf", synthetic, test)


@pytest.mark.parametrize("kind", ALONE)
def test_no_texts_have_no_answers(kind: str) -> None:
    assert answers(kind, toy(30), toy(3).take([])) == []
    assert answers(kind, toy(9, labels="sky"), toy(3).take([])) == []


def measured_on(synthetic: Sample, test: Sample | None = None, real: Sample | None = None) -> tuple[MetricValue, ...]:
    return classifiers.measure_classifiers(real, test or toy(30, seed=2), {"synthetic": synthetic}, seeds=2, **ALL)


def test_training_texts_of_one_label_make_a_classifier_that_always_gives_it() -> None:
    for each in measured_on(relabelled(toy(20, seed=1), ["sea"] * 20)):
        assert each.value == pytest.approx(1 / 3 if each.metric.name == "accuracy" else 1 / 6)
        assert each.note == "All training texts have one label, which the classifier always gives."


def test_a_label_that_the_test_lacks_is_a_wrong_answer() -> None:
    synthetic = toy(60, seed=1)
    renamed = ["elsewhere" if label == "sea" else label for label in synthetic.labels or ()]
    for each in measured_on(relabelled(synthetic, renamed)):
        assert each.value is not None
        assert 0.5 < each.value < 0.7
        assert each.note == (
            "1 of 3 labels of the test have no training text; labels of the training texts that are not in the test: 1."
        )


def test_tables_that_share_no_label_have_an_accuracy_of_zero() -> None:
    found = measured_on(relabelled(toy(30, seed=1), ["x", "y", "z"] * 10))
    assert {each.value for each in found} == {0.0}
    assert all(each.interval is not None and each.interval.high > 0 for each in found if each.metric.name == "accuracy")


def test_an_unlabelled_or_empty_table_has_no_figure_but_a_note() -> None:
    for synthetic, note in (
        (relabelled(toy(9, seed=1), None), "The texts have no labels to train on."),
        (toy(9, seed=1).take([]), "There are no texts to train on."),
    ):
        found = measured_on(synthetic)
        assert len(found) == 2 * len(KINDS)
        assert all(each.value is None and each.interval is None and each.note == note for each in found)


def test_without_labels_among_the_synthetic_texts_only_all_real_texts_are_the_yardstick() -> None:
    found = measured_on(relabelled(toy(9, seed=1), None), real=toy(60, seed=3))
    assert {each.of: each.value is None for each in found} == {"synthetic": True, "real (all)": False}


def test_fewer_real_texts_than_synthetic_ones_are_all_taken_and_told() -> None:
    found = [each for each in measured_on(toy(60, seed=1), real=toy(30, seed=3)) if each.of == "real"]
    assert len(found) == 2 * len(KINDS)
    for each in found:
        assert each.sample_size == 30
        assert each.note == "There are fewer real texts of some labels than synthetic ones."


def test_texts_without_a_word_get_the_commonest_label() -> None:
    synthetic = Sample(("?", "!", "", "- -"), ("sea", "sky", "sky", "soil"))
    accuracy, _ = classifiers.measure_classifiers(None, toy(30, seed=2), {"synthetic": synthetic}, kinds=["tf-idf"])
    assert accuracy.value == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": ["forest"]}, "no classifier 'forest'"),
        ({"kinds": ["coral"]}, "needs unlabelled texts of the recipient"),
        ({"kinds": ["embedding"], "train_real": Sample(("a",), ("sea",))}, "needs embeddings"),
        ({"test_real": Sample(("a",))}, "no labelled real texts"),
    ],
)
def test_what_cannot_be_measured_is_one_clear_error(options: dict, message: str) -> None:
    arguments = {"train_real": None, "test_real": toy(9), "synthetic": {"s": toy(9, seed=1)}, **options}
    with pytest.raises(ConfigError, match=message):
        classifiers.measure_classifiers(**arguments)


def test_an_empty_label_is_a_label() -> None:
    def empty(sample: Sample) -> Sample:
        return relabelled(sample, ["" if label == "sea" else label for label in sample.labels or ()])

    found = measured_on(empty(toy(60, seed=1)), empty(toy(30, seed=2)))
    assert all(each.value is not None and each.value > 0.9 and not each.note for each in found)
