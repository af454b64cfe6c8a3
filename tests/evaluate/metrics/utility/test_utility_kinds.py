"""Classifiers by name: trained on some texts, and answering for each text for itself."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from toys import relabelled, toy

from understudy.base.errors import ConfigError
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.classifiers import kind_named, measure_classifiers
from understudy.evaluate.metrics.utility.fitting import Predict
from understudy.evaluate.metrics.value import MetricValue

ALONE = ("tf-idf", "embedding", "network")


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks need not learn much here."""
    monkeypatch.setattr(import_module("understudy.evaluate.metrics.utility.fitting"), "_ROUNDS", 6)


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
    labels, predict = kind_named(kind).train(hard(60, seed=1), seed=0)
    test = hard(150, seed=2)
    assert set(predict(test).tolist()) == set(range(len(labels)))
    assert not minds_others(predict, test)


def test_a_classifier_that_takes_off_the_mean_of_its_test_texts_is_caught() -> None:
    _, predict = kind_named("embedding").train(hard(60, seed=1), seed=0)

    def centred(sample: Sample) -> np.ndarray:
        assert sample.embeddings is not None
        return predict(sample.with_embeddings(sample.embeddings - sample.embeddings.mean(0)))

    assert minds_others(centred, hard(150, seed=2))


def answers(kind: str, train: Sample, test: Sample, *, seed: int = 0) -> list[str]:
    labels, predict = kind_named(kind).train(train, seed=seed)
    return [labels[each] for each in predict(test)]


def test_words_that_only_the_test_has_count_for_nothing() -> None:
    synthetic, test = hard(60, seed=1), hard(40, seed=2)
    more = Sample(tuple(f"{text} zebra quagga" for text in test.texts))
    assert answers("tf-idf", synthetic, more) == answers("tf-idf", synthetic, test)


@pytest.mark.parametrize("kind", ALONE)
def test_no_texts_have_no_answers(kind: str) -> None:
    assert answers(kind, toy(30), toy(3).take([])) == []
    assert answers(kind, toy(9, labels="sky"), toy(3).take([])) == []


# -- tables that little or nothing can be learned from: a note, never a crash -----------------------------------------


KINDS = ("tf-idf", "embedding", "network", "coral")
RECIPIENT = toy(30, seed=9)


def measured(synthetic: Sample, test: Sample | None = None, real: Sample | None = None) -> tuple[MetricValue, ...]:
    return measure_classifiers(
        real, test or toy(30, seed=2), {"synthetic": synthetic}, kinds=KINDS, seeds=2, recipient=RECIPIENT
    )


def test_training_texts_of_one_label_make_a_classifier_that_always_gives_it() -> None:
    for each in measured(relabelled(toy(20, seed=1), ["sea"] * 20)):
        assert each.value == pytest.approx(1 / 3 if each.metric.name == "accuracy" else 1 / 6)
        assert each.note == "All training texts have one label, which the classifier always gives."


def test_a_label_that_the_test_lacks_is_a_wrong_answer() -> None:
    synthetic = toy(60, seed=1)
    renamed = ["elsewhere" if label == "sea" else label for label in synthetic.labels or ()]
    for each in measured(relabelled(synthetic, renamed)):
        assert each.value is not None
        assert 0.5 < each.value < 0.7
        assert each.note == (
            "1 of 3 labels of the test have no training text; "
            "labels of the training texts that are none of the test's: 1."
        )


def test_tables_that_share_no_label_have_an_accuracy_of_zero() -> None:
    found = measured(relabelled(toy(30, seed=1), ["x", "y", "z"] * 10))
    assert {each.value for each in found} == {0.0}
    assert all(each.interval is not None and each.interval.high > 0 for each in found if each.metric.name == "accuracy")


def test_an_unlabelled_or_empty_table_has_no_figure_but_a_note() -> None:
    for synthetic, note in (
        (relabelled(toy(9, seed=1), None), "The texts have no labels to train on."),
        (toy(9, seed=1).take([]), "There are no texts to train on."),
    ):
        found = measured(synthetic)
        assert len(found) == 2 * len(KINDS)
        assert all(each.value is None and each.interval is None and each.note == note for each in found)


def test_without_labels_among_the_synthetic_texts_only_all_real_texts_are_the_yardstick() -> None:
    found = measured(relabelled(toy(9, seed=1), None), real=toy(60, seed=3))
    assert {each.of: each.value is None for each in found} == {"synthetic": True, "real (all)": False}


@pytest.mark.slow
def test_fewer_real_texts_than_synthetic_ones_are_all_taken_and_told() -> None:
    found = [each for each in measured(toy(60, seed=1), real=toy(30, seed=3)) if each.of == "real"]
    assert len(found) == 2 * len(KINDS)
    for each in found:
        assert each.sample_size == 30
        assert each.note == "There are fewer real texts of some labels than synthetic ones."


def test_texts_without_a_word_get_the_commonest_label() -> None:
    synthetic = Sample(("?", "!", "", "- -"), ("sea", "sky", "sky", "soil"))
    accuracy, _ = measure_classifiers(None, toy(30, seed=2), {"synthetic": synthetic}, kinds=["tf-idf"])
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
        measure_classifiers(**arguments)


def test_an_empty_label_is_a_label() -> None:
    def empty(sample: Sample) -> Sample:
        return relabelled(sample, ["" if label == "sea" else label for label in sample.labels or ()])

    found = measured(empty(toy(60, seed=1)), empty(toy(30, seed=2)))
    assert all(each.value is not None and each.value > 0.9 and not each.note for each in found)
