"""No unit moves the votes of a round by more than declared; broken twins are caught by the same measure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tiny_corpora import (
    LABELS,
    OWNER,
    RECORD,
    WORDS,
    HashEmbedder,
    Neighbours,
    Row,
    bounded,
    movement,
    random_neighbours,
    random_rows,
)

from understudy.evolution.embeddings import Block, PrivateEmbeddings, integer_vectors, private_vectors
from understudy.evolution.voting import nearest
from understudy.methods.aug_pe.votes import GRID, VoteHistogram
from understudy.privacy.events import GaussianEvent
from understudy.privacy.mechanisms import SMALLEST_SIGMA, GroupSum, NoisySum
from understudy.privacy.noise import SystemNoise
from understudy.privacy.plan import Charge, Receipt
from understudy.privacy.unit import Unit

SECRET = Unit("secret", 4)
UNITS = {"record": RECORD, "owner": OWNER, "owner of one": Unit("owner", 1), "secret": SECRET}
units = pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
ks = pytest.mark.parametrize("k", [1, 2, 3, 7, 50])
distances = pytest.mark.parametrize("distance", ["cosine", "l2"])


@dataclass(frozen=True)
class InMemory:
    """Private embeddings without a file. The text "nothing" has no vector."""

    whole: Block

    def blocks(self, rows: int = 3) -> Iterator[Block]:
        for start in range(0, len(self.whole.labels), rows):
            some = slice(start, start + rows)
            yield Block(self.whole.vectors[some], self.whole.labels[some], self.whole.units[some])


@cache
def vector(text: str) -> NDArray[np.float32]:
    return HashEmbedder().embed([text])[0] * np.float32(np.nan if text == "nothing" else 1)


def embedded(rows: Sequence[Row], unit: Unit, *, batch_size: int = 4) -> InMemory:
    batches = list(bounded(rows, unit, batch_size=batch_size).batches())
    texts = [text for batch in batches for text in batch.texts]
    none = np.zeros(0, dtype=np.int64)
    return InMemory(
        Block(
            private_vectors(np.array([vector(text) for text in texts], dtype=np.float32).reshape(-1, 8)),
            np.concatenate([none, *(batch.labels for batch in batches)]).astype(np.int32),
            np.concatenate([none, *(batch.units for batch in batches)]),
        )
    )


def for_unit(votes: VoteHistogram) -> Any:
    """What is released: for a secret, the votes of a group of records."""
    return GroupSum(votes, votes.unit.max_records) if votes.unit.kind == "secret" else votes


CANDIDATES = integer_vectors(HashEmbedder().embed([*WORDS, *WORDS]))


def query(unit: Unit = RECORD, kind: type[VoteHistogram] = VoteHistogram, **parameters: Any) -> VoteHistogram:
    """Twelve candidates, twice each, of three labels."""
    labels = (np.arange(len(CANDIDATES)) % LABELS).astype(np.int32)
    return kind(CANDIDATES, labels, unit, "votes-1", **parameters)


@cache
def neighbours(unit: Unit) -> list[Neighbours]:
    return list(all_neighbours(unit))


def all_neighbours(unit: Unit) -> Iterator[Neighbours]:
    """All alike, spread over labels, no vector at all; and random ones."""
    others = [Row("one", 0, "ann"), Row("two", 1, "bob"), Row("one", 2, "ann")]
    most = 9 if unit.kind == "owner" else unit.max_records
    for said in ("same", "heartpain", "nothing", ""):
        for label in range(LABELS):
            yield Neighbours(others, [*[Row(said, label, "zoe")] * most, *others])
        yield Neighbours([], [Row(said, number % LABELS, "zoe") for number in range(most)])
        yield Neighbours(
            others, [*others, *(Row(f"{said} {number}", number % LABELS, "zoe") for number in range(most))]
        )
    if unit.kind != "secret":
        yield from random_neighbours(unit, pairs=80, seed=4)
        return
    generator = np.random.default_rng(4)
    for _ in range(80):
        rows = random_rows(generator, owners=["ann"], most=6)
        added = random_rows(generator, owners=["zoe"], most=9)[:most]
        larger = [*rows, *added]
        yield Neighbours(rows, [larger[place] for place in generator.permutation(len(larger))])


def largest_movement(query: Any, unit: Unit) -> float:
    return max(movement(query, pair, unit, bound=embedded).l2 for pair in neighbours(unit))


@units
@ks
@distances
def test_no_unit_moves_the_votes_by_more_than_they_declare(unit: Unit, k: int, distance: str) -> None:
    votes = for_unit(query(unit, neighbours=k, distance=distance))
    for pair in neighbours(unit):
        moved = movement(votes, pair, unit, bound=embedded)
        assert moved.l1 <= 1
        assert moved.l2 <= 1


@units
@ks
def test_the_worst_unit_comes_within_a_thousandth(unit: Unit, k: int) -> None:
    assert largest_movement(for_unit(query(unit, neighbours=k)), unit) > 0.999


@units
@ks
@distances
def test_a_unit_adds_its_own_vector_whoever_stands_beside_it(unit: Unit, k: int, distance: str) -> None:
    votes = query(unit, neighbours=k, distance=distance)
    for pair in neighbours(unit):
        alone = [row for row in pair.larger if row.owner == "zoe"]
        smaller = [row for row in pair.larger if row.owner != "zoe"]
        added = votes.evaluate(embedded(pair.larger, unit)) - votes.evaluate(embedded(smaller, unit))  # type: ignore[arg-type]
        assert np.array_equal(added, votes.evaluate(embedded(alone, unit, batch_size=1)))  # type: ignore[arg-type]


def test_a_query_of_candidates_not_known_yet_declares_the_same() -> None:
    early, votes = VoteHistogram.of_size(24, name="votes-1"), query()
    for each in (early, votes):
        assert (each.name, each.shape, each.grid, each.l2_sensitivity) == ("votes-1", (24,), GRID, GRID)


# -- what is counted --------------------------------------------------------------------------------------------------


def counted(rows: Sequence[Row], votes: VoteHistogram) -> NDArray[np.float64]:
    return np.asarray(votes.evaluate(embedded(rows, votes.unit)) / GRID)  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [1, 3])
def test_each_record_votes_for_its_nearest_candidates_of_its_own_label(k: int) -> None:
    rows = [Row(f"text {number}", number % LABELS) for number in range(50)]
    votes = query(neighbours=k)
    x = private_vectors(HashEmbedder().embed([row.text for row in rows])).astype(np.int64)
    expected = np.zeros(24)
    for vector, row in zip(x, rows, strict=True):
        members = np.flatnonzero(votes.labels == row.label)
        best = members[np.argsort(-(votes.candidates[members].astype(np.int64) @ vector), kind="stable")[:k]]
        expected[best] += 1 / math.sqrt(k)
    assert counted(rows, votes) == pytest.approx(expected, abs=1e-4)


def test_a_label_with_fewer_candidates_than_k_votes_for_all_with_a_whole_vote() -> None:
    votes = replace(query(neighbours=5), labels=np.array([0] * 20 + [1] * 4, dtype=np.int32))
    assert counted([Row("text", 1)], votes) == pytest.approx([0.0] * 20 + [0.5] * 4)


def test_an_owners_votes_are_normalised_jointly_over_labels() -> None:
    spread = [Row("heartpain", label, "zoe") for label in range(LABELS)]
    total = counted(spread, query(OWNER))
    assert np.sort(total)[-3:] == pytest.approx([1 / math.sqrt(3)] * 3, abs=1e-5)
    assert counted(spread[:1], query(OWNER)).max() == pytest.approx(1, abs=1e-5)
    assert counted(spread, query(RECORD)).sum() == 3


@units
@ks
def test_no_records_no_candidates_or_a_label_of_neither_run_to_the_end(unit: Unit, k: int) -> None:
    votes = query(unit, neighbours=k)
    none = replace(votes, candidates=votes.candidates[:0], labels=votes.labels[:0])
    alone = replace(votes, labels=np.zeros_like(votes.labels))
    for rows in ([], [Row("nothing", 0)], [Row("text", 1, "zoe")], [Row("text", label, "zoe") for label in range(3)]):
        for each, size in ((votes, 24), (none, 0), (alone, 24)):
            total = each.evaluate(embedded(rows, unit))  # type: ignore[arg-type]
            assert total.shape == each.shape == (size,)
            assert total.dtype == np.int64
        assert movement(none, Neighbours([], list(rows)), unit, bound=embedded).l2 == 0


def test_of_candidates_all_alike_the_first_of_a_label_gets_all_votes() -> None:
    """As where every candidate is the empty text."""
    same = replace(query(), candidates=integer_vectors(HashEmbedder().embed([""] * 24)))
    total = counted([Row(f"text {number}", number % LABELS) for number in range(9)], same)
    assert total.tolist() == [3, 3, 3] + [0] * 21


def test_the_file_on_disk_says_what_memory_says(tmp_path: Path) -> None:
    rows = [Row(f"text {number}", number % LABELS, f"owner {number % 7}") for number in range(40)]
    for unit in UNITS.values():
        batches = ((batch.texts, batch.labels, batch.units) for batch in bounded(rows, unit).batches())
        on_disk = PrivateEmbeddings.build(batches, HashEmbedder(), folder=tmp_path, key=repr(unit))
        votes = query(unit, neighbours=2)
        assert np.array_equal(votes.evaluate(on_disk), votes.evaluate(embedded(rows, unit)))  # type: ignore[arg-type]
        assert votes.evaluate(on_disk).sum() > 0


# -- noise ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [RECORD, SECRET], ids=["record", "secret"])
def test_the_noise_has_the_declared_scale_in_votes(unit: Unit) -> None:
    """Two-sided at alpha = 1e-6: 2/3 and 3/2 of the scale would fail."""
    many = replace(query(unit), candidates=np.tile(query().candidates, (40, 1)), labels=np.tile(query().labels, 40))
    mechanism = NoisySum(for_unit(many), "gaussian", 1.5)
    event = mechanism.event
    assert event == GaussianEvent(1.5)
    receipt = Receipt("run", (Charge("votes-1", event, {}, "to test"),))
    noisy = mechanism.run(embedded([], unit), receipt=receipt, source=SystemNoise())  # type: ignore[arg-type]

    def p_value(scale: float) -> float:
        below = stats.chi2.cdf(float(np.square(noisy / scale).sum()), noisy.size)
        return float(2 * min(below, 1 - below))

    truth = 1.5 * (unit.max_records if unit.kind == "secret" else 1)
    assert mechanism.noise_std == pytest.approx(truth)
    assert p_value(truth) > 1e-6
    assert p_value(truth * 2 / 3) < 1e-6
    assert p_value(truth * 3 / 2) < 1e-6


def test_any_sensible_noise_is_fine_on_the_grid() -> None:
    assert NoisySum(query(), "gaussian", 1 / 64).scale >= SMALLEST_SIGMA


# -- broken twins -----------------------------------------------------------------------------------------------------


class PerLabel(VoteHistogram):
    """An owner's votes are normalised in each label by themselves: who has records in three labels weighs sqrt(3)."""

    def evaluate(self, data: Any) -> NDArray[np.int64]:
        total = np.zeros(self.shape, dtype=np.int64)
        for label in range(LABELS):
            mine = data.whole.labels == label
            part = Block(data.whole.vectors[mine], data.whole.labels[mine], data.whole.units[mine])
            total += super().evaluate(InMemory(part))  # type: ignore[arg-type]
        return total


class NotJoint(VoteHistogram):
    """Every record of an owner has a whole vote."""

    def evaluate(self, data: Any) -> NDArray[np.int64]:
        return query(RECORD).evaluate(data)


class WholeVotes(VoteHistogram):
    """A whole vote for each of the k nearest."""

    def evaluate(self, data: Any) -> NDArray[np.int64]:
        total = np.zeros(self.shape, dtype=np.int64)
        for chosen in nearest(data.blocks(), self.candidates, self.labels, k=self.neighbours):
            np.add.at(total, chosen[chosen >= 0], GRID)
        return total


class RoundedUp(VoteHistogram):
    """Parts of a vote are rounded up."""

    def evaluate(self, data: Any) -> NDArray[np.int64]:
        total = np.zeros(self.shape, dtype=np.int64)
        for chosen in nearest(data.blocks(), self.candidates, self.labels, k=self.neighbours):
            np.add.at(total, chosen[chosen >= 0], math.ceil(GRID / math.sqrt(self.neighbours)))
        return total


class Competing(VoteHistogram):
    """A candidate counts the records of a block above the block's mean: a record moves its neighbours' votes."""

    def evaluate(self, data: Any) -> NDArray[np.int64]:
        vectors = data.whole.vectors.astype(np.float64)
        if not len(vectors):
            return np.zeros(self.shape, dtype=np.int64)
        scores = (vectors - vectors.mean(axis=0)) @ self.candidates.T.astype(np.float64)
        return np.bincount(scores.argmax(axis=1), minlength=self.shape[0]).astype(np.int64) * GRID


BROKEN = {
    "an owner's votes are normalised per label": query(OWNER, PerLabel),
    "an owner's records have a vote each": query(OWNER, NotJoint),
    "a secret is taken for one record": query(SECRET),
    "a vote for each of the nearest": query(RECORD, WholeVotes, neighbours=2),
    "parts are rounded up": query(RECORD, RoundedUp, neighbours=3),
    "records are compared to one another": query(RECORD, Competing),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_query_is_caught(name: str) -> None:
    assert largest_movement(BROKEN[name], BROKEN[name].unit) > 1
