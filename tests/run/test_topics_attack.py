"""Fifty planted texts around one record that try to force a topic, its size or its name to show it: what leaves with
and without it is told apart no better than epsilon allows. Broken twins are caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_topics import Places
from tiny_corpora import RECORD, Row, bounded

from understudy.audit.mechanisms.bounds import best_bound
from understudy.methods.additions.topics.centres import nearest_centres
from understudy.methods.additions.topics.labelling import TERMS_OF_TOPIC
from understudy.methods.additions.topics.plan import CANDIDATES, TopicsParameters, make_plan
from understudy.methods.additions.topics.release import candidate_vectors, release
from understudy.methods.base import Released, ReleaseTools
from understudy.methods.facts import PublicFacts
from understudy.methods.shared.evolution.embeddings import private_vectors
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import measure
from understudy.privacy.noise import InsecureSeededNoise
from understudy.privacy.sealed import Seal, SealedValue
from understudy.schema.labels import LabelSet
from understudy.text.vocabulary.terms import load_vocabulary

EPSILON, DELTA = 1.0, 1e-6
RUNS = 40
TARGET = "flight luggage zoster"
OTHERS = [f"about engine wheel number {number}" for number in range(150)]
PLANTED = [f"flight luggage number {number}" for number in range(50)]
PARAMETERS = TopicsParameters(topics=3)
PLAN = make_plan(PARAMETERS, Budget(EPSILON, DELTA), PublicFacts(RECORD))


@dataclass
class FakeDoor:
    """Measures with the plan's noise, which is fast and repeatable; keeps nothing."""

    noise: InsecureSeededNoise

    def measure(self, name: str, query: Any, data: Any, *, rates: None = None) -> SealedValue:
        assert rates is None
        mechanism = PLAN.mechanism(name)
        value = measure(mechanism, query, data, source=self.noise)
        return SealedValue({"value": value}, Seal(name, mechanism.event, RECORD, "system", "a run"))

    def keep(self, name: str, make: Callable[[], Any]) -> Any:
        return make()


@dataclass(frozen=True)
class World:
    """One table, its vectors, and what many releases of it gave."""

    texts: list[str]
    vectors: NDArray[np.int16]
    made: list[Released]


def world(texts: list[str], folder: Path, *, first: int) -> World:
    embedder = Places()
    candidates, rows = candidate_vectors(embedder), [Row(text) for text in texts]

    def made(number: int) -> Released:
        door: Any = FakeDoor(InsecureSeededNoise(number))
        tools = ReleaseTools(LabelSet(), 0, embedder, 16, door=door, prepared=candidates, scratch=folder)
        return release(PARAMETERS, bounded(rows, RECORD, batch_size=1000), PLAN, tools)

    return World(texts, private_vectors(embedder.embed(texts)), [made(first + run) for run in range(RUNS)])


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, World]:
    """Without the target, and with it."""
    folder, others = tmp_path_factory.mktemp("attack"), [*OTHERS, *PLANTED]
    return world(others, folder / "absent", first=0), world([*others, TARGET], folder / "present", first=RUNS)


def bound(worlds: tuple[World, World], score: Callable[[World, Released], float]) -> float:
    """The epsilon that the score refutes, at 99.9 % confidence."""
    absent, present = (np.array([score(each, made) for made in each.made]) for each in worlds)
    return best_bound(absent, present, lambda limits: limits.epsilon(DELTA), alpha=1e-3)


def topics_of(each: World, made: Released) -> NDArray[np.int64]:
    """Of all records: nobody but the data's holder knows it."""
    return nearest_centres(made.arrays["centres"], each.vectors)


def test_planted_texts_tell_no_more_of_the_target_than_epsilon_allows(worlds: tuple[World, World]) -> None:
    target = private_vectors(Places().embed([TARGET]))

    def size_at_target(_: World, made: Released) -> float:
        topic = made.arrays["topic"][nearest_centres(made.arrays["centres"], target)[0]]
        return float(made.arrays["sizes"][topic])

    assert bound(worlds, size_at_target) < EPSILON


def test_names_are_public_terms_with_and_without_the_target(worlds: tuple[World, World]) -> None:
    listed = set(load_vocabulary().terms[:CANDIDATES])
    for each in worlds:
        for made in each.made:
            assert len(made.strings["terms"]) == TERMS_OF_TOPIC * len(made.arrays["sizes"])
            assert set(made.strings["terms"]) <= listed | {""}


def test_exact_sizes_are_caught(worlds: tuple[World, World]) -> None:
    """A broken twin: how many records the topics have, without noise."""
    assert bound(worlds, lambda each, made: float((topics_of(each, made) >= 0).sum())) > EPSILON


def test_titles_from_private_texts_are_caught(worlds: tuple[World, World]) -> None:
    """A broken twin: a topic is called by the last of its records in the alphabet."""

    def titled(each: World, made: Released) -> float:
        topics = topics_of(each, made)
        titles = [max((each.texts[at] for at in np.flatnonzero(topics == place)), default="") for place in range(3)]
        return float(TARGET in titles)

    assert bound(worlds, titled) > EPSILON
