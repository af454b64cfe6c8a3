"""Choosing by a guide: as many as are wanted, none twice, those that speak for their label, spread as its texts are."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from test_guide import DIMENSION, LABELS, around, summed, unit

from understudy.methods.shared.guide.guide import CONTRAST, Choice, choose, herd

GUIDE = summed(LABELS)
DIRECTIONS = unit(3, 1)


def made(spoken: list[int], seed: int = 3) -> NDArray[np.float32]:
    """Texts that speak for these labels."""
    return np.concatenate([around(DIRECTIONS[label], 1, seed + number) for number, label in enumerate(spoken)])


def chosen(choice: Choice) -> list[list[int]]:
    return [sorted(each.tolist()) for each in choice.chosen]


def slow_herd(vectors: NDArray[np.float32], target: NDArray[np.float64], count: int) -> list[int]:
    """Each time the one that leaves the sum nearest to that many times the target, of vectors of length 1."""
    taken: list[int] = []
    while len(taken) < min(count, len(vectors)):
        said = vectors[taken].sum(axis=0, dtype=np.float64)
        apart = {
            index: np.linalg.norm((len(taken) + 1) * target - said - vectors[index])
            for index in range(len(vectors))
            if index not in taken
        }
        taken.append(min(apart, key=lambda index: apart[index]))
    return taken


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("there", "count"), [(30, 8), (30, 30), (5, 9), (0, 3), (4, 0)])
def test_herding_is_the_greedy_choice(there: int, count: int, seed: int) -> None:
    vectors, target = unit(there, seed), np.random.default_rng(seed).normal(size=DIMENSION)
    assert herd(vectors, target, count).tolist() == slow_herd(vectors, target, count)


def test_counts_are_respected_and_no_text_is_chosen_twice() -> None:
    spoken = [number % 3 for number in range(60)]
    labels = np.random.default_rng(4).integers(3, size=60)
    there = np.bincount(labels, minlength=3).tolist()
    for counts in ([5, 5, 5], [1, 0, 9], [0, 0, 0], [20, 3, 2]):
        choice = choose(GUIDE, made(spoken), labels, counts)
        assert [len(each) for each in choice.chosen] == [min(pair) for pair in zip(counts, there, strict=True)]
        every = np.concatenate(choice.chosen)
        assert len(set(every.tolist())) == len(every)
        assert all((labels[each] == label).all() for label, each in enumerate(choice.chosen))
        assert choice.confirmed == sum(spoken[text] == label for text, label in enumerate(labels))


def test_texts_that_speak_for_another_label_are_left_out_while_others_are_there() -> None:
    spoken = [0, 1, 0, 2, 0, 1, 1, 2]
    labels = np.array([0, 0, 0, 0, 0, 1, 1, 2])
    vectors = made(spoken)
    assert chosen(choose(GUIDE, vectors, labels, [3, 2, 1])) == [[0, 2, 4], [5, 6], [7]]
    margins = GUIDE.margins(vectors, labels)
    fourth = 1 if margins[1] > margins[3] else 3
    assert chosen(choose(GUIDE, vectors, labels, [4, 2, 1])) == [sorted([0, 2, 4, fourth]), [5, 6], [7]]


def test_fewer_texts_than_wanted_are_all_chosen() -> None:
    labels = np.array([0, 1, 1, 2])
    assert chosen(choose(GUIDE, made([0, 2, 1, 2]), labels, [9, 9, 9])) == [[0], [1, 2], [3]]


@pytest.mark.parametrize("counts", [[3, 3, 3], [0, 0, 0]])
def test_of_no_texts_none_are_chosen(counts: list[int]) -> None:
    choice = choose(GUIDE, unit(0, 0), np.empty(0, dtype=np.int64), counts)
    assert chosen(choice) == [[], [], []]
    assert choice.confirmed == 0


def test_what_tells_labels_apart_is_said_more_often_than_by_chance() -> None:
    labels = np.repeat([0, 1, 2], 60)
    vectors = unit(180, 3)
    choice = choose(GUIDE, vectors, labels, [10, 10, 10])
    middle = vectors.mean(axis=0, dtype=np.float64)
    for label, each in enumerate(choice.chosen):
        target = middle + CONTRAST * (GUIDE.means[label] - GUIDE.centre)
        mean, random = vectors[each].mean(axis=0), vectors[labels == label].mean(axis=0)
        assert np.linalg.norm(mean - target) < np.linalg.norm(random - target)


def test_without_labels_the_chosen_are_typical_and_their_mean_follows_the_private_one() -> None:
    guide = summed([np.concatenate([around(DIRECTIONS[0], 50, 1), around(DIRECTIONS[1], 50, 2)])])
    vectors = np.concatenate([around(DIRECTIONS[0], 20, 3), around(DIRECTIONS[1], 20, 4), around(DIRECTIONS[2], 40, 5)])
    labels = np.zeros(80, dtype=np.int64)
    (found,) = choose(guide, vectors, labels, [20]).chosen
    assert len(set(found.tolist())) == 20
    assert (found < 40).all()
    assert 7 <= (found < 20).sum() <= 13
    for count in (0, 1, 200):
        (found,) = choose(guide, vectors, labels, [count]).chosen
        assert len(set(found.tolist())) == len(found) == min(count, 80)
    assert chosen(choose(guide, unit(0, 0), labels[:0], [4])) == [[]]
