"""No unit moves what topics release by more than declared; broken twins are caught by the same measure."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_aug_pe_votes import UNITS, all_neighbours, embedded
from tiny_corpora import OWNER, RECORD, WORDS, HashEmbedder, Row, movement

from understudy.methods.additions.guide.plan import COUNT_WEIGHT, GRID, VECTOR_WEIGHT, EmbeddingSumsSpec
from understudy.methods.additions.topics import plan as plans
from understudy.methods.additions.topics.centres import nearest_centres, on_grid
from understudy.methods.additions.topics.labelling import CELLS, CHARGES, ROUNDS, SIZES, VOTES
from understudy.methods.additions.topics.release import NearestSaid, TopicSizes, TopicSums
from understudy.methods.facts import PublicFacts
from understudy.methods.shared.evolution.embeddings import STEPS, Block, integer_vectors, private_vectors
from understudy.methods.shared.specs import LabelCountsSpec, VotesSpec
from understudy.methods.shared.votes import VoteHistogram
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import exact_sum
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.sample import SubsampledSums
from understudy.privacy.unit import Unit

OURS = {name: unit for name, unit in UNITS.items() if unit.kind != "secret"}
units = pytest.mark.parametrize("unit", OURS.values(), ids=OURS)
POINTS = HashEmbedder().embed(WORDS)
CENTRES = on_grid(0.7 * POINTS.astype(np.float64))
CANDIDATES = integer_vectors(POINTS)


@dataclass(frozen=True)
class CellSums(TopicSums):
    """The sums of the first rounds, with fewer cells than planned rows."""


kinds = pytest.mark.parametrize("kind", [TopicSums, CellSums, TopicSizes])


def query_of(kind: Any) -> Any:
    if issubclass(kind, CellSums):
        return kind(EmbeddingSumsSpec(CELLS * len(CENTRES)), CENTRES)
    spec = LabelCountsSpec(len(CENTRES)) if issubclass(kind, TopicSizes) else EmbeddingSumsSpec(len(CENTRES))
    return kind(spec, CENTRES)


def charges(topics: int, budget: Budget, unit: Unit, **named: Any) -> tuple[Charge, ...]:
    return plans.planned_sums(topics, gaussian_split(budget, list(plans.SHARES.values())), unit, **named)


def unlabelled(rows: Sequence[Row], unit: Unit, **named: Any) -> Any:
    return embedded([row._replace(label=0) for row in rows], unit, **named)


def largest_movement(query: Any, unit: Unit) -> float:
    return max(movement(query, pair, unit, bound=unlabelled).l2 for pair in all_neighbours(unit))


@units
@kinds
def test_no_unit_moves_a_sum_by_more_than_declared_and_the_worst_nearly_does(unit: Unit, kind: Any) -> None:
    assert 0.999 < largest_movement(query_of(kind), unit) <= 1


@units
def test_no_unit_moves_the_votes_for_terms_by_more_than_they_declare(unit: Unit) -> None:
    votes = VoteHistogram(VotesSpec(unit), CANDIDATES, np.zeros(len(CANDIDATES), dtype=np.int32), distance="centred")
    assert 0.999 < largest_movement(votes, unit) <= 1


@units
def test_no_unit_moves_the_votes_for_terms_in_its_texts_by_more_than_they_declare(unit: Unit) -> None:
    def bound(rows: Sequence[Row], unit: Unit, **named: Any) -> Any:
        return embedded([row._replace(label=zlib.crc32(row.text.encode()) % 12 - 1) for row in rows], unit, **named)

    votes = VoteHistogram(VotesSpec(unit), CANDIDATES, np.arange(len(CANDIDATES), dtype=np.int32), distance="centred")
    assert 0.999 < max(movement(votes, pair, unit, bound=bound).l2 for pair in all_neighbours(unit)) <= 1


def test_a_text_votes_for_the_nearest_term_that_it_contains() -> None:
    vectors = np.eye(4, dtype=np.int16) * STEPS
    said = ["The engine of the Flight", "engine", "no term", "the car engine", ""]
    near = vectors[[3, 3, 3, 2, 0]] // 2 + vectors[[1, 3, 3, 3, 0]] // 3
    vote = NearestSaid(("engine", "flight", "car engine", "gearbox"), vectors, english=False)
    assert vote(said, near).tolist() == [1, 0, -1, 2, -1], "never the gearbox, to which most are nearest"
    for place in range(len(said)):
        assert vote(said[place : place + 1], near[place : place + 1]) == vote(said, near)[place]
    german = ["Der Engine ist leider kaputt und dampft"]
    assert replace(vote, english=True)(german, near[:1]) == -1
    assert vote(german, near[:1]) == 0


@units
@kinds
def test_a_unit_adds_its_own_vector_whoever_stands_beside_it(unit: Unit, kind: Any) -> None:
    query = query_of(kind)
    for pair in all_neighbours(unit):
        alone = [row for row in pair.larger if row.owner == "zoe"]
        others = [row for row in pair.larger if row.owner != "zoe"]
        added = exact_sum(query, unlabelled(pair.larger, unit)) - exact_sum(query, unlabelled(others, unit))
        assert np.array_equal(added, exact_sum(query, unlabelled(alone, unit, batch_size=1)))


@kinds
def test_no_records_and_records_without_a_vector_run_to_the_end(kind: Any) -> None:
    query = query_of(kind)
    for rows in ([], [Row("nothing", 0, "zoe")]):
        total = exact_sum(query, unlabelled(rows, OWNER))
        assert total.shape == query.shape
        assert total.dtype == np.int64
        assert not total.any()


def test_each_record_counts_at_the_centre_that_it_is_nearest_to() -> None:
    rows = [Row(f"text {number}") for number in range(60)]
    vectors = private_vectors(HashEmbedder().embed([row.text for row in rows]))
    distances = np.square(vectors[:, None].astype(np.int64) - CENTRES).sum(axis=2)
    expected = np.bincount(distances.argmin(axis=1), minlength=len(CENTRES))
    assert np.array_equal(nearest_centres(CENTRES, vectors), distances.argmin(axis=1))
    assert exact_sum(query_of(TopicSizes), unlabelled(rows, RECORD)) / COUNT_GRID == pytest.approx(expected)
    sums = exact_sum(query_of(TopicSums), unlabelled(rows, RECORD)) / GRID
    assert sums[:, 0] / COUNT_WEIGHT == pytest.approx(expected, abs=1e-4)
    first = vectors[distances.argmin(axis=1) == 0].astype(np.float64)
    unit = first / np.linalg.norm(first, axis=1, keepdims=True)
    assert sums[0, 1:] / VECTOR_WEIGHT == pytest.approx(unit.sum(axis=0), abs=1e-3)


def test_planned_rows_without_a_cell_have_no_record() -> None:
    rows = [Row(f"text {number}") for number in range(60)]
    sums = exact_sum(query_of(CellSums), unlabelled(rows, RECORD))
    assert np.array_equal(sums[: len(CENTRES)], exact_sum(query_of(TopicSums), unlabelled(rows, RECORD)))
    assert len(sums) == CELLS * len(CENTRES)
    assert not sums[len(CENTRES) :].any()


def test_an_owner_counts_once_whatever_it_holds() -> None:
    rows = [Row(f"text {number}", 0, "zoe") for number in range(3)]
    assert exact_sum(query_of(TopicSizes), unlabelled(rows, OWNER)).sum() / COUNT_GRID == pytest.approx(1, abs=1e-5)


# -- a sample ---------------------------------------------------------------------------------------------------------


def sampled(seed: int, rows: Sequence[Row], unit: Unit) -> Any:
    """Those of the units whose coin falls so, which hangs on the unit alone: others' are alike in both worlds."""
    told = [f"{seed}{row.owner if unit.kind == 'owner' else row}" for row in rows]
    return unlabelled([row for row, name in zip(rows, told, strict=True) if zlib.crc32(name.encode()) % 2], unit)


def joint_movement(unit: Unit, planned: SubsampledSums, *, seed: int) -> list[float]:
    """By how much one unit more moves all sums over one sample together, in noise of their one charge."""
    votes = VoteHistogram(VotesSpec(unit), CANDIDATES, np.zeros(len(CANDIDATES), dtype=np.int32), distance="centred")
    queries = {**dict.fromkeys(CHARGES, query_of(TopicSums)), VOTES: votes, SIZES: query_of(TopicSizes)}
    found = []
    for pair in all_neighbours(unit):
        norms = {
            name: movement(queries[name], pair, unit, bound=partial(sampled, seed)).l2
            * each.sensitivity.l2
            / each.scale
            for name, each in planned.sums
        }
        found.append(math.sqrt(sum(each**2 for each in norms.values())) * planned.event.noise_multiplier)
    return found


@units
def test_no_unit_moves_all_sums_over_one_sample_together_by_more_than_their_one_charge_says(unit: Unit) -> None:
    facts = PublicFacts(unit, expected_records=10**6)
    (charge,) = plans.make_plan(plans.TopicsParameters(topics=len(CENTRES)), Budget(3, "1e-6"), facts).charges
    assert isinstance(charge.mechanism, SubsampledSums)
    found = [each for seed in range(2) for each in joint_movement(unit, charge.mechanism, seed=seed)]
    assert min(found) == 0
    assert 0.99 < max(found) <= 1


# -- the plan ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", ["0.3", "3", "40"])
@units
def test_the_charges_spend_the_budget_and_no_more(epsilon: str, unit: Unit) -> None:
    budget = Budget(epsilon, "1e-6")
    plan = plans.make_plan(plans.TopicsParameters(topics=7), budget, PublicFacts(unit))
    assert 0.999 * float(epsilon) < plan.total <= float(epsilon)
    assert len(plan.charges) == ROUNDS + 2


@pytest.mark.parametrize("unit", [Unit(), Unit("owner", 4)], ids=["record", "owner"])
def test_a_large_table_is_sampled_at_a_power_of_two_with_the_noise_of_all_records(unit: Unit) -> None:
    def plan(records: int | None, *, topics: int = 20, epsilon: float = 2) -> Plan:
        return plans.make_plan(
            plans.TopicsParameters(topics=topics), Budget(epsilon, "1e-6"), PublicFacts(unit, expected_records=records)
        )

    def rate(made: Plan) -> float:
        sampled = plans.sample_of(made.charges)
        return 1.0 if sampled is None else sampled.rate

    texts = unit.max_records
    for records in (None, 50_000 // texts):
        assert rate(plan(records)) == 1
    assert rate(plan(50_004 // texts)) == 1 / 2
    assert rate(plan(10**6 // texts)) == 1 / 32
    large = plan(10**6 // texts)
    assert dict(large.charges[0].mechanism.sums) == {  # type: ignore[attr-defined]
        each.name: each.mechanism for each in charges(20, Budget(2, "1e-6"), unit)
    }
    assert large.total < 0.3
    assert large.forecast["size_noise"] == pytest.approx(32 * plan(None).forecast["size_noise"])
    assert large.forecast.verdict is not None
    assert large.forecast.verdict.level == "good"
    assert rate(plan(10**6 // texts, topics=200)) > 1 / 32, "so many topics need more records"
    assert rate(plan(10**6 // texts, epsilon=0.002)) == 1, "too noisy for a sample"
    assert rate(plan(10**6 // texts, epsilon=50)) == 1, "who is sampled would be given away"
    line = plans.line_on_sample(large, 10**6 // texts)
    assert f"random sample of the {unit.kind}s at rate 0.03125" in line
    assert "about 31,000 texts: 7 minutes on one core" in line
    assert "--expected-records" in plans.line_on_sample(plan(None), None)
    assert not plans.line_on_sample(plan(1000), 1000)


def test_every_query_is_the_one_that_was_planned() -> None:
    for unit in OURS.values():
        for charge in charges(len(CENTRES), Budget(3, "1e-6"), unit, candidates=12):
            query: Any = {
                VOTES: partial(VoteHistogram, candidates=CANDIDATES, labels=np.zeros(12, dtype=np.int32)),
                SIZES: partial(TopicSizes, centres=CENTRES),
            }.get(charge.name, partial(TopicSums, centres=CENTRES))(charge.query)
            mechanism: Any = charge.mechanism
            assert query.sensitivity == mechanism.sensitivity
            assert len(query.shape) == len(mechanism.shape)
            assert all(size in (None, found) for size, found in zip(mechanism.shape, query.shape, strict=True))


# -- broken twins -----------------------------------------------------------------------------------------------------


class Means(TopicSums):
    """The mean of each topic's vectors in place of their sum: divided by a private number."""

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        sums = super().of_batch(batch)
        counts = np.maximum(sums[:, :1], 1) / math.floor(COUNT_WEIGHT * GRID)
        return np.trunc(sums / counts).astype(np.int64)


class Ownerless(TopicSums):
    """Every record of an owner adds a whole vector."""

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        return super().of_batch(replace(batch, units=np.arange(len(batch.units))))


class OwnerlessSizes(TopicSizes):
    """Every record of an owner counts."""

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        return super().of_batch(replace(batch, units=np.arange(len(batch.units))))


class TwoStatistics(TopicSums):
    """A whole count beside a whole vector."""

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        sums = super().of_batch(batch)
        return np.concatenate([np.rint(sums[:, :1] / COUNT_WEIGHT), np.rint(sums[:, 1:] / VECTOR_WEIGHT)], 1).astype(
            np.int64
        )


class Twice(TopicSizes):
    """A record counts at its nearest centre, and at the next one too."""

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        total = super().of_batch(batch)
        for centre in np.flatnonzero(total).tolist():
            total[(centre + 1) % len(total)] += COUNT_GRID
        return total


class NotOfLengthOne(TopicSums):
    """Vectors as the embedder gives them, up to 2 % longer than 1, and rounded to the nearest step."""

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        return np.rint(super().of_batch(batch) * 1.0001).astype(np.int64)


class Reseeded(TopicSums):
    """Centres are begun again at private records: whoever is in the block moves the others' topics."""

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        if not len(batch.vectors):
            return super().of_batch(batch)
        centres = self.centres.copy()
        centres[0] = batch.vectors.max(axis=0)
        return replace(query_of(TopicSums), centres=on_grid(centres / STEPS)).of_batch(batch)


class AsManyAsRecords(CellSums):
    """The exact number of records decides how many cells there are: one record more moves others to another cell."""

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        fewer = CENTRES[: 1 + len(batch.vectors) % len(CENTRES)]
        return replace(query_of(CellSums), centres=fewer).of_batch(batch)


BROKEN = {
    "means in place of sums": (query_of(Means), RECORD),
    "an owner's records add a vector each": (query_of(Ownerless), OWNER),
    "an owner's records count each": (query_of(OwnerlessSizes), OWNER),
    "count and vector are two whole statistics": (query_of(TwoStatistics), RECORD),
    "a record counts twice": (query_of(Twice), RECORD),
    "vectors are a little longer": (query_of(NotOfLengthOne), RECORD),
    "as many cells as private records": (query_of(AsManyAsRecords), RECORD),
    "centres are seeded from private texts": (query_of(Reseeded), RECORD),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_query_is_caught(name: str) -> None:
    query, unit = BROKEN[name]
    assert largest_movement(query, unit) > 1
