"""The test of disclosure: silent on texts that tell nothing of single records, and loud on a generator that copies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from understudy.evaluate.evaluate import _promised
from understudy.evaluate.metrics.disclosure import FALSE_ALARMS, POWER, least_copied, measure_disclosure
from understudy.evaluate.metrics.leakage import Phrases, measure_leakage
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import MetricValue
from understudy.privacy.guarantee import Budget, SecretBudget

Scores = NDArray[np.float64]


class World:
    """Texts of one population, with sayings that many share; a generator copies used ones with a probability."""

    def __init__(self, seed: int, *, records: int = 300) -> None:
        self.random, self.records = np.random.default_rng(seed), records
        self.sayings = [self._words(int(self.random.integers(3, 12))) for _ in range(100)]
        self.used, self.unused = ([self.text() for _ in range(records)] for _ in range(2))

    def _words(self, count: int) -> list[str]:
        return [f"w{int(number)}" for number in self.random.zipf(1.3, count)]

    def text(self) -> list[str]:
        parts = [
            self.sayings[self.random.integers(100)] if self.random.random() < 0.3 else self._words(4)
            for _ in range(int(self.random.integers(4, 10)))
        ]
        return list(chain.from_iterable(parts))

    def made(self, copied: float) -> list[list[str]]:
        return [
            self.used[self.random.integers(self.records)] if self.random.random() < copied else self.text()
            for _ in range(self.records)
        ]


def measured(
    used: Sequence[float] | Scores, unused: Sequence[float] | Scores, *, promised: tuple[float, float] | None = None
) -> tuple[float, float, MetricValue]:
    """The probability by chance, the bound on epsilon, and the latter's value."""
    scores = (np.asarray(each, dtype=np.float64) for each in (used, unused))
    chance, bound = measure_disclosure(*scores, by="words in a row", seed=3, promised=promised)
    assert chance.value is not None
    assert bound.value is not None
    return chance.value, bound.value, bound


def by_phrases(world: World, copied: float) -> float:
    near = Phrases(world.made(copied), [*world.used, *world.unused]).longest()
    return measured(near[: world.records], near[world.records :])[0]


def within(found: int, runs: int, probability: float) -> bool:
    """Whether so many of the runs are no more than the probability allows, but for one chance in a million."""
    return found <= int(stats.binom.isf(1e-6, runs, probability))


@pytest.mark.parametrize("shape", ["normal", "ties", "heavy", "few values"])
@pytest.mark.parametrize(("used", "unused"), [(300, 300), (1000, 100), (64, 500)])
def test_scores_that_tell_nothing_give_no_more_false_alarms_than_promised(shape: str, used: int, unused: int) -> None:
    random = np.random.default_rng(11)
    draws = {
        "normal": lambda count: random.normal(size=count),
        "ties": lambda count: np.zeros(count),
        "heavy": lambda count: random.pareto(0.5, count),
        "few values": lambda count: random.integers(4, size=count),
    }
    alarms = sum(measured(draws[shape](used), draws[shape](unused))[0] <= FALSE_ALARMS for _ in range(200))
    assert within(alarms, 200, FALSE_ALARMS)


def test_texts_of_the_population_alarm_nobody_and_copied_ones_are_found() -> None:
    copied = least_copied(300)
    above = (copied + 2.33 * math.sqrt(copied)) / 300  # as many are copied in 99 of 100 tables
    found = {share: sum(by_phrases(World(seed), share) <= FALSE_ALARMS for seed in range(12)) for share in (0, above)}
    assert found[0] <= 2
    assert found[above] >= 10


def test_a_hundred_tables_of_the_population_give_no_more_false_alarms_than_promised() -> None:
    """More than 8 alarms fail: an alarm in 6 tables is found with a probability of 0.99."""
    found = sum(by_phrases(World(seed, records=100), 0) <= FALSE_ALARMS for seed in range(100))
    assert within(found, 100, FALSE_ALARMS)


@pytest.mark.parametrize("pairs", [16, 100, 5000])
def test_as_many_copies_as_it_names_are_found_as_often_as_it_says(pairs: int) -> None:
    random = np.random.default_rng(5)
    copied = least_copied(pairs)

    def found(copies: int) -> float:
        alarms = 0
        for _ in range(50):
            used, unused = random.normal(size=pairs), random.normal(size=pairs)
            used[:copies] += 100
            alarms += measured(used, unused)[0] <= FALSE_ALARMS
        return alarms / 50

    assert found(copied) >= POWER - 0.2
    assert found(copied // 3) < 0.5


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_a_run_at_the_edge_of_its_promise_keeps_it_and_one_beyond_is_caught(epsilon: float) -> None:
    random = np.random.default_rng(7)

    def bounds(spent: float) -> int:
        """How many of 40 tables show more than ``epsilon``, where each record's noisy membership spends ``spent``."""
        broken = 0
        for _ in range(40):
            true = random.random((2, 1000)) < 1 / (1 + math.exp(-spent))
            bound = measured(true[0], ~true[1], promised=(epsilon, 1e-9))[1]
            broken += bound > epsilon
        return broken

    assert within(bounds(epsilon), 40, FALSE_ALARMS)
    assert bounds(2 * epsilon) >= 36


def test_what_is_promised_is_said_beside_what_is_found() -> None:
    scores = np.arange(100.0)
    for promised, words in (((50, 0), "does not contradict"), ((0.1, 0), "MORE IS DISCLOSED"), (None, "No more than")):
        assert words in measured(scores + 1000, scores, promised=promised)[2].note
    assert measured(scores, scores + 1000)[:2] == (1.0, 0.0)  # unused records come nearer: nothing is disclosed
    large = measured(scores + 1000, scores, promised=(5, 1e-3))[1]
    assert large < measured(scores + 1000, scores, promised=(5, 0))[1]


def test_delta_is_paid_for() -> None:
    scores = np.arange(5000.0)
    assert measured(scores + 10000, scores, promised=(1, 0.5))[1] == 0


def test_few_records_say_nothing() -> None:
    for value in measure_disclosure(np.ones(15), np.zeros(900), by="embeddings", seed=0, promised=None):
        assert value.value is None
        assert "fewer than 16" in value.note


def test_a_budget_of_secrets_and_a_run_without_noise_promise_no_epsilon() -> None:
    def promised(budget: Budget | SecretBudget, *, private: bool = True) -> object:
        statement: Any = SimpleNamespace(private=private, budget=budget)
        return _promised(statement)

    assert promised(Budget(6, "1e-6")) == (6, 1e-6)
    assert promised(SecretBudget("0.01", "0.2")) is None
    assert promised(Budget(6, "1e-6"), private=False) is None
    assert _promised(None) is None


def test_an_evaluation_with_held_out_texts_has_it_by_words_and_by_embeddings() -> None:
    world, random = World(1, records=60), np.random.default_rng(2)
    made = [*world.used[:30], *(world.text() for _ in range(30))]
    vectors = {id(text): random.normal(size=16).astype(np.float32) for text in [*world.used, *world.unused, *made]}

    def sample(texts: list[list[str]]) -> Sample:
        found = np.array([vectors[id(text)] for text in texts])
        return Sample(tuple(map(" ".join, texts)), None, found / np.linalg.norm(found, axis=1, keepdims=True))

    tables = sample(world.used), sample(made)
    for holdout in (None, sample(world.unused)):
        values = measure_leakage(*tables, holdout=holdout, detectors=(), seed=0, resamples=2)
        found = {each.settings["by"]: each for each in values if each.metric.name == "disclosure_by_chance"}
        assert set(found) == ({"words in a row", "embeddings"} if holdout else set())
        for each in found.values():
            assert each.value is not None
            assert each.value <= FALSE_ALARMS
