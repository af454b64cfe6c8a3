"""Classifiers by name: trained on some texts, and answering for each text for itself."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from toys import relabelled, toy

from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.classifiers import kind_named
from understudy.evaluate.metrics.utility.linear import Predict

ALONE = ("tf-idf", "embedding", "network")


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks need not learn much here."""
    monkeypatch.setattr(import_module("understudy.evaluate.metrics.utility.neural"), "_ROUNDS", 6)


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


@pytest.mark.parametrize("kind", ALONE)
def test_texts_of_one_label_make_a_classifier_that_always_gives_it(kind: str) -> None:
    assert answers(kind, toy(5, labels="sky"), toy(9)) == ["sky"] * 9
