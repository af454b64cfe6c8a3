"""Records whose label is the nearest released topic move no sum by more than those with a label of a column.

Labels that follow from other records are caught by the same measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_sensitivity import QUERIES, largest_movement
from tiny_corpora import LABELS, OWNER, RECORD, WORDS, HashEmbedder, Row, bounded, random_neighbours

from understudy.audit.mechanisms.sums import InMemory
from understudy.corpus.bounding import BoundedBatch
from understudy.methods.additions.guide.plan import EmbeddingSumsSpec
from understudy.methods.additions.guide.sums import GuideSums
from understudy.methods.additions.topics import centres as centres_of_topics
from understudy.methods.additions.topics import centres as topics
from understudy.methods.additions.topics.found import called_by, names_of
from understudy.methods.additions.topics.labelling import BESIDE, CHARGES
from understudy.methods.additions.topics.plan import LABELS_SHARE, plan_with_topics
from understudy.methods.additions.topics.release import TopicLabels
from understudy.methods.dp_kps.generate import sample_sequences
from understudy.methods.dp_kps.plan import DPKPSParameters
from understudy.methods.facts import PublicFacts
from understudy.methods.registry import make_method
from understudy.privacy.guarantee import Budget
from understudy.privacy.unit import Unit
from understudy.schema.labels import LabelSet
from understudy.text.prompts.writer import Brief
from understudy.text.vocabulary.shrinkage import KnownNoise

CENTRES = topics.on_grid(0.7 * HashEmbedder().embed(WORDS[:LABELS]).astype(np.float64))
BY_LABEL = [name for name in QUERIES if name.startswith(("label", "histogram", "density", "sequences"))]
units = pytest.mark.parametrize("unit", [RECORD, OWNER, Unit("owner", 1)], ids=["record", "owner", "owner of one"])


@cache
def vector(text: str) -> NDArray[np.float32]:
    return HashEmbedder().embed([text])[0]


@dataclass(frozen=True)
class Remembering(HashEmbedder):
    """The same vectors, made once."""

    dimension: int = 8

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([vector(text) for text in texts], dtype=np.float32).reshape(-1, 8)


LABEL = TopicLabels(Remembering(), CENTRES)


@cache
def _labelled(rows: tuple[Row, ...], unit: Unit) -> InMemory:
    return InMemory(list(replace(bounded([row._replace(label=0) for row in rows], unit), label=LABEL).batches()))


def labelled(rows: Sequence[Row], unit: Unit) -> InMemory:
    return _labelled(tuple(rows), unit)


@pytest.mark.parametrize("name", BY_LABEL)
@units
def test_no_neighbour_moves_a_query_by_topic_by_more_than_it_declares(name: str, unit: Unit) -> None:
    query, norms = QUERIES[name]
    assert all(largest_movement(query, norm, unit, bound=labelled) <= 1 for norm in norms)


@units
def test_a_guide_by_topic_moves_no_further_either(unit: Unit) -> None:
    guide = GuideSums(EmbeddingSumsSpec(LABELS), Remembering(), 8)
    assert 0.999 < largest_movement(guide, "gaussian", unit, bound=labelled) <= 1


@units
def test_the_same_records_count_as_without_labels_and_each_has_the_topic_that_it_is_nearest_to(unit: Unit) -> None:
    for pair in random_neighbours(unit, pairs=20, seed=2):
        rows = [row._replace(label=0) for row in pair.larger]
        plain, found = bounded(rows, unit), replace(bounded(rows, unit), label=LABEL)
        for before, after in zip(plain.batches(), found.batches(), strict=True):
            assert after.texts == before.texts
            assert np.array_equal(after.shares, before.shares)
            assert np.array_equal(after.units, before.units)
            assert tuple(after.hashes()) == tuple(before.hashes())
            vectors = np.round(4000 * Remembering().embed(after.texts)).astype(np.int16)
            assert np.array_equal(after.labels, topics.nearest_centres(CENTRES, vectors))


# -- broken twins -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recomputed:
    """Centres are the means of all records' vectors, without noise: who is in the table moves others' topics."""

    rows: Sequence[Row]
    unit: Unit

    def batches(self) -> Iterator[BoundedBatch]:
        every = [row.text for row in self.rows]
        vectors = Remembering().embed(every).astype(np.float64)
        places = topics.nearest_centres(CENTRES, np.round(4000 * vectors).astype(np.int16))
        means = [vectors[places == place].mean(axis=0) if (places == place).any() else [0] * 8 for place in range(3)]
        yield from replace(
            bounded(self.rows, self.unit), label=TopicLabels(Remembering(), topics.on_grid(np.array(means)))
        ).batches()


def in_the_batch(texts: Sequence[str]) -> NDArray[np.int32]:
    """Topics of vectors about the mean of their batch."""
    vectors = Remembering().embed(texts)
    away = (vectors - vectors.mean(axis=0)) if len(texts) else vectors
    return topics.nearest_centres(CENTRES, np.round(2000 * away).astype(np.int16)).clip(0).astype(np.int32)


def by_size(texts: Sequence[str]) -> NDArray[np.int32]:
    """Topics numbered by how many records of the batch have each."""
    found = LABEL(texts)
    order = np.argsort(-np.bincount(found, minlength=LABELS), kind="stable")
    return np.argsort(order)[found].astype(np.int32)


def labelled_by(label: Callable[[Sequence[str]], NDArray[np.int32]], rows: Sequence[Row], unit: Unit) -> Any:
    return replace(bounded([row._replace(label=0) for row in rows], unit), label=label)


@pytest.mark.parametrize(
    "bound",
    [Recomputed, partial(labelled_by, in_the_batch), partial(labelled_by, by_size)],
    ids=["centres without noise", "about the mean of the batch", "numbered by exact sizes"],
)
@pytest.mark.parametrize("unit", [RECORD, OWNER], ids=["record", "owner"])
def test_labels_that_hang_on_other_records_are_caught(bound: Any, unit: Unit) -> None:
    query, (norm, *_) = QUERIES["histogram, gaussian"]
    assert largest_movement(query, norm, unit, bound=bound, pairs=40) > 1.05


# -- the plan ---------------------------------------------------------------------------------------------------------


METHODS = [("dp-kps", {}), ("dp-kps", {"noise": "laplace"}), ("aug-pe", {"rounds": 3})]


@pytest.mark.parametrize(("name", "parameters"), METHODS)
@pytest.mark.parametrize("unit", [RECORD, OWNER], ids=["record", "owner"])
def test_topics_and_method_spend_the_budget_and_no_more(name: str, parameters: dict[str, Any], unit: Unit) -> None:
    made, facts = make_method(name, parameters), PublicFacts(unit, LabelSet(tuple("abcde")))
    budget = Budget("3", "1e-6")
    plan = plan_with_topics(lambda rest: made.plan(rest, facts), budget, topics=5, unit=unit)
    assert 0.97 * 3 < plan.total <= 3
    first = [charge.name for charge in plan.charges[: len(CHARGES)]]
    assert first == [BESIDE + name for name in CHARGES]
    alone = made.plan(budget, facts)
    assert [charge.name for charge in plan.charges[len(CHARGES) :]] == [charge.name for charge in alone.charges]
    if not parameters and name == "dp-kps":  # mu^2 adds up
        spent = sum(charge.mechanism.noise_multiplier**-2 for charge in plan.charges[: len(CHARGES)])
        whole = sum(charge.mechanism.noise_multiplier**-2 for charge in plan.charges)
        assert spent / whole == pytest.approx(LABELS_SHARE, rel=1e-3)


# -- what is sampled, and shown ---------------------------------------------------------------------------------------


def test_terms_of_topics_are_sampled_from_flatter_weights_of_the_same_terms() -> None:
    scores = np.array([2.0 ** np.arange(10, 0, -0.5), [0.0] * 20])
    parameters = DPKPSParameters(length=1, shortest=1)
    noise = KnownNoise("gaussian", 0.0)
    share = {}
    for flatness in (1.0, 0.5):
        sampled, _ = sample_sequences(
            parameters, scores, [5000, 1], seed=0, sampling_seed=0, noise=noise, flatness=flatness
        )
        share[flatness] = float(np.mean(sampled == 0))
    weights = scores[0]
    assert share[1.0] == pytest.approx(weights[0] / weights.sum(), abs=0.03)
    assert share[0.5] == pytest.approx(weights[0] ** 0.5 / (weights**0.5).sum(), abs=0.03)


def test_a_term_that_many_voted_for_is_no_name_of_a_topic_that_it_is_far_from() -> None:
    generator = np.random.default_rng(0)
    axes = np.eye(40)
    near = [axes[0] + 0.3 * generator.normal(size=40) / 6 for _ in range(6)]
    other = [axes[1] + 0.3 * generator.normal(size=40) / 6 for _ in range(6)]
    far = [axes[2], axes[3]]  # voted for more than any
    vectors = np.array([*near, *other, *far]) / np.linalg.norm([*near, *other, *far], axis=1, keepdims=True)
    candidates = topics.Candidates(vectors, np.array([50.0] * 12 + [500.0] * 2), np.ones(14, dtype=np.bool_))
    terms = ["apple", "bread", "cream", "dough", "eggs", "flour", "gear", "helm", "iron", "jack", "keel", "loom"]
    named = topics.terms_of(
        topics.on_grid(0.5 * axes[:2]),
        np.ones(2),
        np.arange(2, dtype=np.int32),
        candidates,
        [*terms, "people", "creed"],
    )
    assert set(named[:10]) == {*terms[:6], ""}
    assert set(named[10:]) == {*terms[6:], ""}


def test_a_topic_is_named_by_its_sure_terms_alone_and_by_none_that_nobody_wants() -> None:
    vectors = np.array([[1.0, 0.1], [0.9, 0.2], [1.0, 0.0], [0.1, 1.0], [0.0, 1.0]])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    candidates = topics.Candidates(vectors, np.full(5, 50.0), np.array([True, True, False, False, True]))
    centres, topic = topics.on_grid(0.5 * np.eye(2)), np.arange(2, dtype=np.int32)
    terms = ["pin", "taught", "theft", "spaatz", "sex"]
    named = topics.terms_of(centres, np.ones(2), topic, candidates, terms, unwanted=np.array([False] * 4 + [True]))
    assert set(named[:10]) == {"pin", "taught", ""}
    assert named[10:] == [""] * 10
    assert names_of(named) == ("pin, taught", "other")
    assert names_of([""] * 20) == ("other", "other (2)")
    assert Brief("message", label="other (2)").prompt == "message"
    assert set(topics.terms_of(centres, np.ones(2), topic, candidates, terms)[10:]) == {"sex", ""}


def test_topics_that_a_reader_would_call_the_same_are_one_and_all_others_stay() -> None:
    axes = np.eye(12)
    restaurants = [axes[0] + 0.4 * axes[place] for place in (8, 9, 10, 11)]  # four of seven, as different as dishes
    others = [axes[1], axes[2], axes[2]]  # the last two are equal: the first has all records
    centres = topics.on_grid(0.5 * np.array([*restaurants, *others]))
    topic, sizes = topics.merged(centres, np.array([100.0, 90, 80, 70, 500, 60, 3]))
    assert topic[:4].tolist() == [1] * 4
    assert topic[4:].tolist() == [0, 2, 2]
    assert sizes.tolist() == [500, 340, 60]


def test_cells_that_a_reader_would_call_the_same_are_joined_first_and_then_the_smallest() -> None:
    axes = np.eye(6)
    cells = topics.on_grid(0.5 * np.array([axes[0], axes[0] + 0.8 * axes[1], axes[2], axes[3], axes[4]]))
    counts = np.array([3000.0, 2000, 5000, 2, 4000])
    found = topics.joined(cells, counts, 3)
    assert found[0] == pytest.approx(0.6 * cells[0] + 0.4 * cells[1], abs=1)
    assert found[1:] == pytest.approx(cells[[2, 4]], abs=2)  # the cell of two records is in one of them
    assert topics.joined(cells, counts, 5) == pytest.approx(cells, abs=1)
    tiny = topics.joined(cells[[0, 2, 3]], counts[[0, 2, 3]], 2)
    assert tiny == pytest.approx(cells[[0, 2]], abs=2), "not the two large ones"


@pytest.mark.parametrize(("records", "cells"), [(0, 20), (3000, 20), (4800, 30), (15_000, 40), (10**6, 40)])
def test_records_get_as_many_cells_as_they_support_by_their_noisy_votes(records: int, cells: int) -> None:
    assert topics.cells_of(np.array([records + 50.0, -50.0]), 4.0, 20) == cells
    assert topics.cells_of(np.array([float(records)]), 0.0, 20) in (20, 40)


def test_sums_of_two_rounds_are_averaged_with_less_noise() -> None:
    generator = np.random.default_rng(0)
    now, before = (5 + 2 * generator.normal(size=20_000) for _ in range(2))
    sums, noise = topics.averaged((now, 2.0), (before, 2.0))
    assert float(sums.mean()) == pytest.approx(5, abs=0.05)
    assert float(sums.std()) == pytest.approx(noise, rel=0.02)
    assert noise == pytest.approx(2 * 0.745, rel=0.01)


def test_topics_with_the_same_name_are_told_from_those_without_any() -> None:
    terms = [*["cards", "pin"], *[""] * 8, *["pin", "cards"], *[""] * 8, *[""] * 20]
    assert called_by(terms) == [("cards", "pin"), ("cards", "pin"), ("2",), ("3",)]
    centres = topics.on_grid(0.5 * np.eye(4))
    topic, sizes = centres_of_topics.by_size(np.array([0, 0, 2, 3]), centres, np.array([5.0, 4.0, 20.0, 1.0]))
    assert (topic.tolist(), sizes.tolist()) == ([1, 1, 0, 2], [20.0, 9.0, 1.0])
