"""Right predictions one by one: from synthetic texts alone, and each text for itself."""

from __future__ import annotations

import numpy as np
import pytest
from toys import relabelled, toy

from understudy.errors import ConfigError
from understudy.evaluation.sample import Sample
from understudy.evaluation.utility.classifiers import measure_classifiers
from understudy.evaluation.utility.correct import correct_predictions
from understudy.evaluation.utility.kinds import kind_named

DETERMINISTIC = ("tf-idf", "embedding")
PRIVATE = (*DETERMINISTIC, "network")


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks need not learn much here."""
    monkeypatch.setattr("understudy.evaluation.utility.network._ROUNDS", 6)


def hard(count: int, *, seed: int) -> Sample:
    """Texts near the borders: every second label is wrong, embeddings of 384 dimensions are mostly noise."""
    sample = toy(count, seed=seed, dimension=384, noise=0.5)
    generator = np.random.default_rng(seed)
    return relabelled(sample, [str(each) for each in generator.permutation(np.array(sample.labels))])


@pytest.mark.parametrize("kind", PRIVATE)
def test_a_text_is_right_or_wrong_whatever_texts_are_beside_it(kind: str) -> None:
    """For the classifier that is trained on synthetic texts, in blocks of any size and in any order."""
    labels, predict = kind_named(kind).train(hard(60, seed=1), seed=0)
    test = hard(150, seed=2)
    together = predict(test)
    assert len(labels) == len(set(together.tolist())) == 3
    for size in (1, 2, 7, 64):
        parts = [test.take(range(start, min(start + size, 150))) for start in range(0, 150, size)]
        assert np.array_equal(np.concatenate([predict(part) for part in parts]), together)
    order = np.random.default_rng(0).permutation(150)
    assert np.array_equal(predict(test.take(order)), together[order])


@pytest.mark.parametrize("kind", DETERMINISTIC)
def test_the_share_of_right_ones_is_the_accuracy(kind: str) -> None:
    synthetic, test = hard(60, seed=1), hard(150, seed=2)
    accuracy, _ = measure_classifiers(None, test, {"s": synthetic}, kinds=[kind])
    assert accuracy.value == pytest.approx(correct_predictions(synthetic, test, kind=kind).mean())


@pytest.mark.parametrize("kind", PRIVATE)
def test_training_reads_nothing_of_the_test(kind: str) -> None:
    """A classifier of the same texts answers alike, whatever the labels and words of the test are."""
    synthetic, test = toy(60, seed=1), toy(30, seed=2)
    right = correct_predictions(synthetic, test, kind=kind)
    wrong = correct_predictions(synthetic, relabelled(test, ["nowhere"] * 30), kind=kind)
    assert right.sum() > 25
    assert not wrong.any()
    padded = Sample(
        (*test.texts, "zebra zebra wave"),
        (*(test.labels or ()), "zebra"),
        np.vstack([test.embeddings, [[1] + [0] * 7]]),
    )
    assert np.array_equal(correct_predictions(synthetic, padded, kind=kind)[:30], right)


def test_a_seed_repeats_the_predictions_of_a_network_and_another_changes_some() -> None:
    synthetic, test = hard(60, seed=1), hard(150, seed=2)
    first = correct_predictions(synthetic, test, kind="network", seed=1)
    assert np.array_equal(first, correct_predictions(synthetic, test, kind="network", seed=1))
    assert not np.array_equal(first, correct_predictions(synthetic, test, kind="network", seed=2))


@pytest.mark.parametrize("kind", PRIVATE)
def test_no_test_texts_are_no_predictions(kind: str) -> None:
    assert correct_predictions(toy(30), toy(3).take([]), kind=kind).shape == (0,)


@pytest.mark.parametrize("kind", PRIVATE)
def test_synthetic_texts_of_one_label_are_right_where_the_test_has_it(kind: str) -> None:
    right = correct_predictions(toy(5, labels="sky"), toy(9), kind=kind)
    assert right.tolist() == [False, True, False] * 3


@pytest.mark.parametrize(
    ("synthetic", "test", "kind"),
    [
        (relabelled(toy(9), None), toy(9), "tf-idf"),
        (toy(9), relabelled(toy(9), None), "tf-idf"),
        (toy(9).take([]), toy(9), "tf-idf"),
        (toy(9), Sample(("a",), ("sea",)), "network"),
        (toy(9), toy(9), "coral"),
        (toy(9), toy(9), "encoder"),
        (toy(9), toy(9), "forest"),
    ],
)
def test_what_cannot_be_told_is_one_clear_error(synthetic: Sample, test: Sample, kind: str) -> None:
    with pytest.raises(ConfigError):
        correct_predictions(synthetic, test, kind=kind)
