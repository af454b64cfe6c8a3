"""Phrases that evolve towards a guide: counts, repeats, and what a swap may do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from understudy.methods.dp_kps.generate import _varied, evolve_seeds
from understudy.text.records import Seed

TERMS = [[f"heart{number}" for number in range(9)], [f"skin{number}" for number in range(9)]]


def pool(sizes: Sequence[int], seed: int = 0) -> list[Seed]:
    draw = np.random.default_rng(seed)
    return [
        Seed(tuple(draw.choice(TERMS[label], int(draw.integers(2, 5)), replace=False).tolist()), label)
        for label, size in enumerate(sizes)
        for _ in range(size)
    ]


class First:
    """Chooses the first texts in the order of ``score``, and remembers what it was asked."""

    def __init__(self, score: str = "", agreement: float = 0.0) -> None:
        self.score, self.asked, self._agreement = score, list[list[str]](), agreement

    def choose(self, texts: Sequence[str], labels: Sequence[int], counts: Sequence[int]) -> list[list[int]]:
        self.asked.append(list(texts))
        best = sorted(range(len(texts)), key=lambda index: -texts[index].count(self.score) if self.score else index)
        return [[index for index in best if labels[index] == label][:count] for label, count in enumerate(counts)]

    def agreement(self, texts: Sequence[str], labels: Sequence[int]) -> float:
        assert len(texts) == len(labels)
        return self._agreement


def evolved(seeds: Sequence[Seed], counts: Sequence[int], chooser: First, rounds: int = 3, seed: int = 0) -> list[Seed]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.methods.dp_kps.generate._ROUNDS", rounds)
        return evolve_seeds(seeds, counts, chooser=chooser, generator=np.random.default_rng(seed))


@pytest.mark.parametrize("rounds", [0, 1, 4])
@pytest.mark.parametrize("counts", [(5, 3), (0, 4), (0, 0), (20, 20)])
def test_there_are_as_many_of_each_label_as_are_wanted(counts: tuple[int, int], rounds: int) -> None:
    found = evolved(pool((20, 20)), counts, First(), rounds)
    assert Counter(seed.label for seed in found) == Counter({0: counts[0], 1: counts[1]})
    assert [seed.label for seed in found] == sorted(seed.label for seed in found)


def test_where_too_few_differ_they_are_repeated_in_turn() -> None:
    alike = [Seed(("a", "b"), 0), Seed(("b", "a"), 0), Seed(("a", "c"), 0)] * 4
    found = evolved(alike, [5], First(), rounds=0)
    assert Counter(frozenset(seed.phrases) for seed in found) == {frozenset("ab"): 3, frozenset("ac"): 2}
    assert found[:2] == found[2:4]
    assert evolved([], [3], First()) == []
    assert evolved([Seed((), 0)] * 3, [3], First()) == [Seed((), 0)] * 3


def test_without_rounds_they_are_those_of_the_pool_that_are_chosen() -> None:
    seeds, chooser = pool((20, 20)), First("heart3")
    found = evolved(seeds, [4, 4], chooser, rounds=0)
    assert set(found) <= set(seeds)
    assert len(chooser.asked) == 1
    assert all("heart3" in seed.phrases for seed in found if seed.label == 0)


def test_a_round_asks_for_the_chosen_and_their_variations() -> None:
    chooser = First()
    evolved(pool((20, 20)), [4, 4], chooser, rounds=2)
    assert len(chooser.asked) == 3
    assert all(8 <= len(asked) <= 8 * 4 for asked in chooser.asked[1:])
    assert all(len(set(asked)) == len(asked) for asked in chooser.asked)


def test_a_swap_keeps_the_length_and_the_label_and_repeats_no_term() -> None:
    seeds = pool((30, 30))
    by_label = [[seed for seed in seeds if seed.label == label] for label in (0, 1)]
    swaps = 0
    for number, seed in enumerate(seeds):
        for varied in _varied([seed], by_label, np.random.default_rng(number)):
            swaps += 1
            assert varied.label == seed.label
            assert len(set(varied.phrases)) == len(varied.phrases) == len(seed.phrases)
            assert sum(new != old for new, old in zip(varied.phrases, seed.phrases, strict=True)) == 1
            assert set(varied.phrases) <= set(TERMS[seed.label])
    assert swaps > 60


def test_seeds_evolve_towards_what_is_chosen() -> None:
    def held(rounds: int) -> int:
        """Of the terms that end in 3."""
        return sum(
            phrase.endswith("3")
            for seed in evolved(pool((20, 20)), [15, 15], First("3"), rounds)
            for phrase in seed.phrases
        )

    assert held(0) < held(1) <= held(5)


@pytest.mark.parametrize(("agreement", "rounds"), [(0.0, 3), (0.79, 3), (0.8, 0), (1.0, 0)])
def test_no_term_is_swapped_where_sequences_speak_for_their_label(agreement: float, rounds: int) -> None:
    chooser = First(agreement=agreement)
    evolved([Seed(("a", "b"), 0), Seed(("c", "d"), 0), Seed(("e", "f"), 0)], [2], chooser)
    assert len(chooser.asked) == 1 + rounds
