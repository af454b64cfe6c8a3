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
import tiny_corpora as tiny
from numpy.typing import NDArray
from scipy import stats

from understudy.base.errors import PrivacyError
from understudy.methods.shared.evolution.embeddings import Block, PrivateEmbeddings, integer_vectors, private_vectors
from understudy.methods.shared.evolution.voting import nearest
from understudy.methods.shared.specs import VotesSpec
from understudy.methods.shared.votes import VoteHistogram
from understudy.privacy.events import GaussianEvent
from understudy.privacy.measurement import exact_sum, measure
from understudy.privacy.mechanisms import COUNT_GRID, SMALLEST_SIGMA, NoisySum
from understudy.privacy.noise import InsecureNoNoise, SystemNoise
from understudy.privacy.unit import Unit

SECRET = Unit("secret", 4)
UNITS = {"record": tiny.RECORD, "owner": tiny.OWNER, "owner of one": Unit("owner", 1), "secret": SECRET}
units = pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
ks = pytest.mark.parametrize("k", [1, 3, 50])
distances = pytest.mark.parametrize("distance", ["cosine", "l2"])


@dataclass(frozen=True)
class InMemory:
    """Private embeddings without a file, three units in a block. The text "nothing" has no vector."""

    whole: Block

    def batches(self) -> Iterator[Block]:
        found, units = np.unique(self.whole.units, return_inverse=True)
        for start in range(0, len(found), 3):
            yield part(self.whole, (units >= start) & (units < start + 3))


def part(block: Block, rows: NDArray[np.bool_]) -> Block:
    return Block(block.vectors[rows], block.labels[rows], block.units[rows])


@cache
def vector(text: str) -> NDArray[np.float32]:
    return tiny.HashEmbedder().embed([text])[0] * np.float32(np.nan if text == "nothing" else 1)


def embedded(rows: Sequence[tiny.Row], unit: Unit, *, batch_size: int = 4) -> InMemory:
    batches = list(tiny.bounded(rows, unit, batch_size=batch_size).batches())
    texts = [text for batch in batches for text in batch.texts]
    none = np.zeros(0, dtype=np.int64)
    return InMemory(
        Block(
            private_vectors(np.array([vector(text) for text in texts], dtype=np.float32).reshape(-1, 8)),
            np.concatenate([none, *(batch.labels for batch in batches)]).astype(np.int32),
            np.concatenate([none, *(batch.units for batch in batches)]),
        )
    )


def vectors_of(unit: Unit) -> int:
    """How many vectors one unit adds: a secret is a group of records."""
    return unit.max_records if unit.kind == "secret" else 1


CANDIDATES = integer_vectors(tiny.HashEmbedder().embed([*tiny.WORDS, *tiny.WORDS]))


def query(
    unit: Unit = tiny.RECORD, kind: type[VoteHistogram] = VoteHistogram, *, neighbours: int = 1, **parameters: Any
) -> VoteHistogram:
    """Twelve candidates, twice each, of three labels."""
    labels = (np.arange(len(CANDIDATES)) % tiny.LABELS).astype(np.int32)
    return kind(VotesSpec(unit, neighbours), CANDIDATES, labels, **parameters)


@cache
def neighbours(unit: Unit) -> list[tiny.Neighbours]:
    return list(all_neighbours(unit))


def all_neighbours(unit: Unit) -> Iterator[tiny.Neighbours]:
    """All alike, spread over labels, no vector at all; and random ones."""
    others = [tiny.Row("one", 0, "ann"), tiny.Row("two", 1, "bob"), tiny.Row("one", 2, "ann")]
    most = 9 if unit.kind == "owner" else unit.max_records
    for said in ("same", "heartpain", "nothing", ""):
        for label in range(tiny.LABELS):
            yield tiny.Neighbours(others, [*[tiny.Row(said, label, "zoe")] * most, *others])
        yield tiny.Neighbours([], [tiny.Row(said, number % tiny.LABELS, "zoe") for number in range(most)])
        yield tiny.Neighbours(
            others, [*others, *(tiny.Row(f"{said} {number}", number % tiny.LABELS, "zoe") for number in range(most))]
        )
    if unit.kind != "secret":
        yield from tiny.random_neighbours(unit, pairs=40, seed=4)
        return
    generator = np.random.default_rng(4)
    for _ in range(40):
        rows = tiny.random_rows(generator, owners=["ann"], most=6)
        added = tiny.random_rows(generator, owners=["zoe"], most=9)[:most]
        larger = [*rows, *added]
        yield tiny.Neighbours(rows, [larger[place] for place in generator.permutation(len(larger))])


def largest_movement(query: Any, unit: Unit, *, records: int = 1) -> float:
    return max(tiny.movement(query, pair, unit, bound=embedded, records=records).l2 for pair in neighbours(unit))


@units
@ks
@distances
def test_no_unit_moves_the_votes_by_more_than_they_declare_and_the_worst_comes_within_a_thousandth(
    unit: Unit, k: int, distance: str
) -> None:
    votes = query(unit, neighbours=k, distance=distance)
    moved = [tiny.movement(votes, pair, unit, bound=embedded, records=vectors_of(unit)) for pair in neighbours(unit)]
    assert max(each.l1 for each in moved) <= 1
    assert 0.999 < max(each.l2 for each in moved) <= 1


@units
@ks
@distances
def test_a_unit_adds_its_own_vector_whoever_stands_beside_it(unit: Unit, k: int, distance: str) -> None:
    votes = query(unit, neighbours=k, distance=distance)
    for pair in neighbours(unit):
        alone = [row for row in pair.larger if row.owner == "zoe"]
        smaller = [row for row in pair.larger if row.owner != "zoe"]
        added = exact_sum(votes, embedded(pair.larger, unit)) - exact_sum(votes, embedded(smaller, unit))
        assert np.array_equal(added, exact_sum(votes, embedded(alone, unit, batch_size=1)))


@units
def test_candidates_that_are_not_known_yet_are_planned_for_with_the_same_sensitivity(unit: Unit) -> None:
    planned, votes = VotesSpec(unit, 2).sensitivity, query(unit, neighbours=2)
    assert votes.sensitivity == planned
    assert (planned.l2, planned.grid) == (COUNT_GRID, COUNT_GRID)
    assert votes.shape == (24,)


# -- what is counted --------------------------------------------------------------------------------------------------


def counted(rows: Sequence[tiny.Row], votes: VoteHistogram) -> NDArray[np.float64]:
    return exact_sum(votes, embedded(rows, votes.spec.unit)) / COUNT_GRID


def test_each_record_votes_for_its_nearest_candidates_of_its_own_label() -> None:
    k = 3
    rows = [tiny.Row(f"text {number}", number % tiny.LABELS) for number in range(50)]
    votes = query(neighbours=k)
    x = private_vectors(tiny.HashEmbedder().embed([row.text for row in rows])).astype(np.int64)
    expected = np.zeros(24)
    for vector, row in zip(x, rows, strict=True):
        members = np.flatnonzero(votes.labels == row.label)
        best = members[np.argsort(-(votes.candidates[members].astype(np.int64) @ vector), kind="stable")[:k]]
        expected[best] += 1 / math.sqrt(k)
    assert counted(rows, votes) == pytest.approx(expected, abs=1e-4)


def test_a_label_with_fewer_candidates_than_k_votes_for_all_with_a_whole_vote() -> None:
    votes = replace(query(neighbours=5), labels=np.array([0] * 20 + [1] * 4, dtype=np.int32))
    assert counted([tiny.Row("text", 1)], votes) == pytest.approx([0.0] * 20 + [0.5] * 4)


def test_an_owners_votes_are_normalised_jointly_over_labels() -> None:
    spread = [tiny.Row("heartpain", label, "zoe") for label in range(tiny.LABELS)]
    total = counted(spread, query(tiny.OWNER))
    assert np.sort(total)[-3:] == pytest.approx([1 / math.sqrt(3)] * 3, abs=1e-5)
    assert counted(spread[:1], query(tiny.OWNER)).max() == pytest.approx(1, abs=1e-5)
    assert counted(spread, query(tiny.RECORD)).sum() == 3


@units
@ks
def test_no_records_no_candidates_or_a_label_of_neither_run_to_the_end(unit: Unit, k: int) -> None:
    votes = query(unit, neighbours=k)
    none = replace(votes, candidates=votes.candidates[:0], labels=votes.labels[:0])
    alone = replace(votes, labels=np.zeros_like(votes.labels))
    for rows in (
        [],
        [tiny.Row("nothing", 0)],
        [tiny.Row("text", 1, "zoe")],
        [tiny.Row("text", label, "zoe") for label in range(3)],
    ):
        for each, size in ((votes, 24), (none, 0), (alone, 24)):
            total = exact_sum(each, embedded(rows, unit))
            assert total.shape == each.shape == (size,)
            assert total.dtype == np.int64
        assert tiny.movement(none, tiny.Neighbours([], list(rows)), unit, bound=embedded).l2 == 0


def test_the_file_on_disk_says_what_memory_says(tmp_path: Path) -> None:
    rows = [tiny.Row(f"text {number}", number % tiny.LABELS, f"owner {number % 7}") for number in range(40)]
    for unit in UNITS.values():
        votes = query(unit, neighbours=2)
        for size in (1, 5, 8192):
            on_disk = PrivateEmbeddings(tiny.bounded(rows, unit), tiny.HashEmbedder(), tmp_path, repr(unit), rows=size)
            assert np.array_equal(exact_sum(votes, on_disk), exact_sum(votes, embedded(rows, unit)))
            assert exact_sum(votes, on_disk).sum() > 0


# -- noise ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [tiny.RECORD, SECRET], ids=["record", "secret"])
def test_the_noise_has_the_declared_scale_in_votes(unit: Unit) -> None:
    """Two-sided at alpha = 1e-12: 2/3 and 3/2 of the scale would fail."""
    many = replace(query(unit), candidates=np.tile(query().candidates, (40, 1)), labels=np.tile(query().labels, 40))
    records = vectors_of(unit)
    mechanism = NoisySum("gaussian", 1.5, many.sensitivity.times(records), (None,))
    assert mechanism.event == GaussianEvent(1.5)
    noisy = measure(mechanism, many, embedded([], unit), source=SystemNoise(), records_per_unit=records)

    def p_value(scale: float) -> float:
        below = stats.chi2.cdf(float(np.square(noisy / scale).sum()), noisy.size)
        return float(2 * min(below, 1 - below))

    truth = 1.5 * (unit.max_records if unit.kind == "secret" else 1)
    assert mechanism.noise_std == pytest.approx(truth)
    assert p_value(truth) > 1e-12
    assert p_value(truth * 2 / 3) < 1e-12
    assert p_value(truth * 3 / 2) < 1e-12


def test_any_sensible_noise_is_fine_on_the_grid() -> None:
    assert NoisySum("gaussian", 1 / 64, query().sensitivity, (None,)).scale >= SMALLEST_SIGMA


def test_votes_of_a_secret_are_refused_by_a_sum_that_was_planned_for_one_record() -> None:
    one = NoisySum("gaussian", 1.0, query(SECRET).sensitivity, (None,))
    with pytest.raises(PrivacyError, match="not the one that was planned"):
        measure(one, query(SECRET), embedded([], SECRET), source=InsecureNoNoise(), records_per_unit=vectors_of(SECRET))


# -- broken twins -----------------------------------------------------------------------------------------------------


class PerLabel(VoteHistogram):
    """An owner's votes are normalised in each label by themselves: who has records in three labels weighs sqrt(3)."""

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        return sum(
            (super(PerLabel, self).of_batch(part(batch, batch.labels == label)) for label in range(tiny.LABELS)),
            np.zeros(self.shape, dtype=np.int64),
        )


class NotJoint(VoteHistogram):
    """Every record of an owner has a whole vote."""

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        return query(tiny.RECORD).of_batch(batch)


class WholeVotes(VoteHistogram):
    """A whole vote for each of the k nearest."""

    vote = COUNT_GRID

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        total = np.zeros(self.shape, dtype=np.int64)
        (chosen,) = nearest([batch], self.candidates, self.labels, k=self.spec.nearest)
        np.add.at(total, chosen[chosen >= 0], self.vote)
        return total


class RoundedUp(WholeVotes):
    """Parts of a vote are rounded up."""

    vote = math.ceil(COUNT_GRID / math.sqrt(3))


class Competing(VoteHistogram):
    """A candidate counts the records of a block above the block's mean: a record moves its neighbours' votes."""

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        vectors = batch.vectors.astype(np.float64)
        scores = (vectors - vectors.mean(axis=0)) @ self.candidates.T.astype(np.float64)
        return np.bincount(scores.argmax(axis=1), minlength=self.shape[0]).astype(np.int64) * COUNT_GRID


BROKEN = {
    "an owner's votes are normalised per label": query(tiny.OWNER, PerLabel),
    "an owner's records have a vote each": query(tiny.OWNER, NotJoint),
    "a secret is taken for one record": query(SECRET),
    "a vote for each of the nearest": query(tiny.RECORD, WholeVotes, neighbours=2),
    "parts are rounded up": query(tiny.RECORD, RoundedUp, neighbours=3),
    "records are compared to one another": query(tiny.RECORD, Competing),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_query_is_caught(name: str) -> None:
    assert largest_movement(BROKEN[name], BROKEN[name].spec.unit) > 1
