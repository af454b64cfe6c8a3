"""Train on synthetic, test on real."""

from __future__ import annotations

from importlib import import_module
from itertools import product

import numpy as np
import pytest
from toys import relabelled, toy

from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.classifiers import measure_classifiers
from understudy.evaluate.metrics.value import MetricValue

KINDS = ("tf-idf", "embedding", "network", "coral")
ALL = {"kinds": KINDS, "recipient": toy(40, seed=9)}


def measured(values: tuple[MetricValue, ...], of: str, metric: str, classifier: str) -> MetricValue:
    (found,) = [
        each for each in values if (each.of, each.metric.name, each.settings["classifier"]) == (of, metric, classifier)
    ]
    return found


def numbers(values: tuple[MetricValue, ...]) -> list[float | None]:
    return [each.value for each in values]


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


def test_two_labels_are_as_well_as_three() -> None:
    values = measure_classifiers(
        None, toy(40, seed=2, labels="sea sky"), {"synthetic": toy(40, seed=1, labels="sea sky")}, seeds=2, **ALL
    )
    assert all(each.value is not None and each.value > 0.9 for each in values)


def test_no_classifier_of_synthetic_texts_sees_a_test_text_or_a_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    seen: list[str] = []
    fit = TfidfVectorizer.fit_transform
    monkeypatch.setattr(TfidfVectorizer, "fit_transform", lambda self, texts: seen.extend(texts) or fit(self, texts))
    synthetic, test = toy(30, seed=1), toy(30, seed=2)
    marked = Sample(tuple(f"{text} onlyinthetest" for text in test.texts), test.labels, test.embeddings)
    measure_classifiers(None, marked, {"synthetic": synthetic}, kinds=["tf-idf"])
    assert seen == list(synthetic.texts)


@pytest.mark.parametrize("kind", KINDS)
def test_the_other_test_texts_do_not_move_a_classifier(kind: str) -> None:
    synthetic, test = toy(30, seed=1, noise=0.6), toy(60, seed=2, noise=0.6)
    options = {"kinds": [kind], "seeds": 2, "recipient": toy(30, seed=7)}

    def right(rows: range) -> float:
        accuracy, _ = measure_classifiers(None, test.take(rows), {"synthetic": synthetic}, **options)
        assert accuracy.value is not None
        return accuracy.value * len(rows)

    assert right(range(60)) == pytest.approx(right(range(25)) + right(range(25, 60)))


def test_a_seed_repeats_all_figures_and_another_gives_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("understudy.evaluate.metrics.utility.neural"), "_ROUNDS", 3)

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


def test_training_works_where_gradients_are_off() -> None:
    import torch

    with torch.inference_mode():
        values = measure_classifiers(None, toy(30, seed=2), {"s": toy(60, seed=3)}, seeds=1, **ALL)
    assert all(each.value is not None and each.value > 0.8 for each in values)


def test_what_is_deterministic_is_trained_once_and_what_is_not_once_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.linear_model import LogisticRegression

    trained: list[int] = []
    fit = LogisticRegression.fit
    monkeypatch.setattr(LogisticRegression, "fit", lambda self, x, y: trained.append(len(y)) or fit(self, x, y))
    values = measure_classifiers(
        toy(50, seed=1), toy(20, seed=2), {"s": toy(30, seed=3)}, kinds=["tf-idf", "network"], seeds=3
    )
    assert trained == [30, 30, 30, 30, 50]
    methods = {(each.of, each.settings["classifier"]): each.interval.method for each in values if each.interval}
    assert "seeds" not in methods["s", "tf-idf"]
    for of, kind in (("real", "tf-idf"), ("s", "network"), ("real (all)", "network")):
        assert "t over 3 seeds" in methods[of, kind]
