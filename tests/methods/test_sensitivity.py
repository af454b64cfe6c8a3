"""No neighbour moves a query by more than it declares; the worst one moves it by nearly as much.

Broken twins (the printed variants among them) must be caught by the very same measure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_corpora import (
    KEY,
    LABELS,
    OWNER,
    RECORD,
    WORDS,
    HashEmbedder,
    Neighbours,
    Row,
    TinyTable,
    bounded,
    movement,
    random_neighbours,
)

from understudy.audit.mechanisms.sums import InMemory
from understudy.corpus.bounding import BoundedBatch
from understudy.methods.dp_kde.generate import Frequencies, integer_features
from understudy.methods.dp_kde.plan import GRID, DensitySpec
from understudy.methods.dp_kde.release import PrefixDensity, TermDensity
from understudy.methods.shared.queries.counts import LabelCounts, TermCounts, TermHistogram, TermRows, weights_of_terms
from understudy.methods.shared.specs import LabelCountsSpec, TermCountsSpec, TermHistogramSpec
from understudy.privacy.measurement import exact_sum
from understudy.privacy.mechanisms import COUNT_GRID, Sensitivity
from understudy.privacy.noise import NoiseKind
from understudy.privacy.unit import Unit
from understudy.text.vocabulary.words import TermMatcher

S = 4
MATCHER = TermMatcher(WORDS)
ROWS = TermRows(MATCHER, S)
PAIRS = 120


def phases(length: int, count: int = 5) -> NDArray[np.uint16]:
    return Frequencies(7, count, 0.35, 8).phases(HashEmbedder().embed(WORDS), length)


def density(count: int = 5) -> TermDensity:
    return TermDensity(DensitySpec(LABELS, count), ROWS, integer_features(phases(1, count)[0]))


def histogram(noise: NoiseKind, *labels: int, kind: Any = TermHistogram) -> Any:
    return kind(TermHistogramSpec(noise, S, len(WORDS), labels), MATCHER)


# Every sequence of two terms has the phase pi/4, where the L1 norm of a feature vector is largest.
DIAGONAL = np.full((2, len(WORDS), 5), 256, dtype=np.uint16)
COUNTS = TermCounts(TermCountsSpec(len(WORDS), S), MATCHER)
QUERIES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "term counts": (COUNTS, ("gaussian", "laplace")),
    "label counts": (LabelCounts(LabelCountsSpec(LABELS)), ("gaussian", "laplace")),
    "term counts, huge S": (replace(COUNTS, spec=replace(COUNTS.spec, terms_per_record=100)), ("gaussian", "laplace")),
    "vocabulary, gaussian": (histogram("gaussian"), ("gaussian", "laplace")),
    "vocabulary, laplace": (histogram("laplace"), ("laplace", "gaussian")),
    "histogram, gaussian": (histogram("gaussian", LABELS), ("gaussian", "laplace")),
    "histogram, laplace": (histogram("laplace", LABELS), ("laplace", "gaussian")),
    "density": (density(), ("gaussian", "laplace")),
    "density, one frequency": (density(1), ("gaussian", "laplace")),
    "prefixes of 2, one frequency": (
        PrefixDensity(DensitySpec(LABELS, 1), ROWS, phases(2, 1)),
        ("gaussian", "laplace"),
    ),
    "prefixes of 3": (PrefixDensity(density().spec, ROWS, phases(3)), ("gaussian", "laplace")),
    "prefixes of 2, diagonal": (PrefixDensity(density().spec, ROWS, DIAGONAL), ("laplace", "gaussian")),
}
cases = pytest.mark.parametrize("name", QUERIES)
cases_of_terms = pytest.mark.parametrize("name", [name for name in QUERIES if name != "label counts"])
units = pytest.mark.parametrize("unit", [RECORD, OWNER, Unit("owner", 1)], ids=["record", "owner", "owner of one"])


def worst_neighbours(unit: Unit) -> Iterator[Neighbours]:
    """One term, all terms, and (for owners) many records that say the same or lie in all labels."""
    full, single = " ".join(WORDS), WORDS[0]
    others = [Row(full, 0, "ann"), Row(single, 1, "bob")]
    for said in (full, single, " ".join(WORDS[:3]), "", "junk", " ".join(reversed(WORDS)) * 50):
        for label in range(LABELS):
            yield Neighbours(others, [Row(said, label, "zoe"), *others])
        if unit.kind == "owner":
            same = [Row(f"{said} {number}", 0, "zoe") for number in range(9)]
            spread = [Row(f"{said} {number}", number % LABELS, "zoe") for number in range(9)]
            yield Neighbours(others, [*others, *same])
            yield Neighbours(others, [*spread, *others])
            yield Neighbours([], [same[0]] * 9)


@cache
def _batches(rows: tuple[Row, ...], unit: Unit) -> InMemory:
    return InMemory(list(bounded(rows, unit).batches()))


def once(rows: Sequence[Row], unit: Unit) -> InMemory:
    """The bounded records, which all queries share."""
    return _batches(tuple(rows), unit)


def largest_movement(query: Any, norm: str, unit: Unit = RECORD, *, bound: Any = once, pairs: int = PAIRS) -> float:
    neighbours = [*worst_neighbours(unit), *random_neighbours(unit, pairs=pairs, seed=1)]
    return max(movement(query, pair, unit, bound=bound).of(norm) for pair in neighbours)


@cases
@units
def test_no_neighbour_moves_a_query_by_more_than_it_declares(name: str, unit: Unit) -> None:
    query, norms = QUERIES[name]
    for pair in [*worst_neighbours(unit), *random_neighbours(unit, pairs=PAIRS, seed=1)]:
        moved = movement(query, pair, unit, bound=once)
        assert all(moved.of(norm) <= 1 for norm in norms)


@cases
@units
def test_the_worst_neighbour_comes_within_a_few_percent(name: str, unit: Unit) -> None:
    """In the norm the query is made for: a bound that is never reached is noise for nothing."""
    query, (norm, *_) = QUERIES[name]
    loose = name == "term counts, huge S"  # no text holds a hundred of twelve terms
    assert loose or largest_movement(query, norm, unit, pairs=20) > 0.97


@cases
@units
@pytest.mark.parametrize("batch_size", [1, 1000])
def test_a_unit_adds_its_own_vector_whoever_stands_beside_it(name: str, unit: Unit, batch_size: int) -> None:
    """Exactly: put in front, in between or behind, in batches of any size. No rounding may see the others."""
    query, _ = QUERIES[name]
    for pair in random_neighbours(unit, pairs=15, seed=2):
        alone = [row for row in pair.larger if row.owner == "zoe"]
        with_it = exact_sum(query, bounded(pair.larger, unit, batch_size=batch_size))
        without = exact_sum(query, bounded(pair.smaller, unit))
        assert np.array_equal(with_it - without, exact_sum(query, bounded(alone, unit)))


@cases_of_terms
def test_an_empty_corpus_has_an_answer_of_the_declared_shape(name: str) -> None:
    query, _ = QUERIES[name]
    for rows in ([], [Row("", 2)], [Row("junk", 1)]):
        total = exact_sum(query, bounded(rows))
        assert total.shape == query.shape
        assert total.dtype == np.int64
        assert not total.any()


def test_a_record_of_fewer_terms_gives_nothing_to_a_density_of_longer_sequences() -> None:
    query = PrefixDensity(density().spec, ROWS, phases(3))
    assert not exact_sum(query, bounded([Row(" ".join(WORDS[:2])), Row("junk", 1), Row(f"{WORDS[0]} " * 9, 2)])).any()
    assert exact_sum(query, bounded([Row(" ".join(WORDS[:3]), 1)]))[1].any()


@pytest.mark.parametrize(("count", "length"), [(1, 2), (7, 12), (64, 1)])
def test_phases_of_a_sequence_do_not_depend_on_the_batch(count: int, length: int) -> None:
    query = PrefixDensity(DensitySpec(LABELS, count), TermRows(MATCHER, len(WORDS)), phases(length, count))
    generator = np.random.default_rng(0)
    rows = [Row(" ".join(generator.permutation(WORDS)), int(generator.integers(LABELS))) for _ in range(300)]
    together = exact_sum(query, bounded(rows, batch_size=300))
    assert np.array_equal(together, sum(exact_sum(query, bounded([row])) for row in rows))


# -- broken twins -----------------------------------------------------------------------------------------------------


class UnboundedCounts(TermCounts):
    """Every distinct term of a record counts, not the first S."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        return replace(COUNTS, spec=replace(COUNTS.spec, terms_per_record=1_000)).of_batch(batch)


class RepeatedCounts(TermCounts):
    """Every occurrence counts: no contribution bound at all."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        counts = np.zeros(self.shape, dtype=np.int64)
        for text in batch.texts:
            np.add.at(counts, self.matcher.find(text), 1 << 20)
        return counts


class RoundedHistogram(TermHistogram):
    """Weights rounded to the nearest integer, not down."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        rows = self.rows.of(batch)
        norm = np.sqrt(np.maximum((rows >= 0).sum(axis=1), 1))
        weights = np.rint(COUNT_GRID / (norm * batch.shares)).astype(np.int64)
        return weights_of_terms(self.shape, rows, batch.labels, weights)


class SummedHistogram(TermHistogram):
    """Weight 1 for every term of a record, as if S were 1."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        return weights_of_terms(self.shape, self.rows.of(batch), batch.labels, COUNT_GRID // batch.shares)


class SummedVocabulary(TermHistogram):
    """Weight 1 for every term of a record, whatever its label."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        together = np.zeros_like(batch.labels)
        weights = COUNT_GRID // batch.shares
        return weights_of_terms((1, len(WORDS)), self.rows.of(batch), together, weights)[0]


class AllKeyphrases(TermDensity):
    """The paper's "all keyphrases": a record adds the features of every term at full weight."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        rows = self.rows.of(batch)
        return weights_of_terms((LABELS, len(WORDS)), rows, batch.labels, COUNT_GRID // batch.shares)


class WeightsOfTheOtherNorm(TermDensity):
    """A record's weights have an L2 norm of 1: terms that mean the same add up to more."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        return replace(self.weights, spec=replace(self.weights.spec, noise="gaussian")).of_batch(batch)


class NearestFeatures(PrefixDensity):
    """Features rounded to the nearest integer: clipping first and rounding after raises norms."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        total = np.zeros(self.shape, dtype=np.int64)
        for row, label, share in zip(self.rows.of(batch), batch.labels, batch.shares, strict=True):
            if row[len(self.phases) - 1] >= 0:
                turns = self.phases[np.arange(len(self.phases)), row[: len(self.phases)]].sum(axis=0) / 4096
                exact = GRID * np.concatenate([np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)])
                total[label] += np.rint(exact).astype(np.int64) * (COUNT_GRID // share)
        return total


class EveryPair(PrefixDensity):
    """All terms that follow one another, and not the first ones alone."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        after = [" ".join(text.split()[1:]) for text in batch.said]
        return super().of_batch(batch) + super().of_batch(replace(batch, texts=after))


class OtherNorm(TermHistogram):
    """Weights of L2 norm 1 that state an L1 norm of 1."""

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_shared_weight("laplace", S)


BROKEN: dict[str, tuple[Any, str]] = {
    "more than S terms": (UnboundedCounts(COUNTS.spec, MATCHER), "gaussian"),
    "every occurrence": (RepeatedCounts(COUNTS.spec, MATCHER), "laplace"),
    "every term of the vocabulary at full weight": (histogram("gaussian", kind=SummedVocabulary), "gaussian"),
    "vocabulary weights of the other norm": (histogram("gaussian", kind=OtherNorm), "laplace"),
    "every term at full weight": (histogram("gaussian", LABELS, kind=SummedHistogram), "gaussian"),
    "all keyphrases": (AllKeyphrases(**vars(density())), "gaussian"),
    "all keyphrases, laplace": (AllKeyphrases(**vars(density())), "laplace"),
    "weights of the other norm": (
        WeightsOfTheOtherNorm(density().spec, ROWS, np.tile(density().features[:1], (len(WORDS), 1))),
        "gaussian",
    ),
    "features to the nearest": (NearestFeatures(DensitySpec(LABELS, 64), ROWS, phases(2, 64)), "gaussian"),
    "every pair": (EveryPair(density().spec, ROWS, DIAGONAL), "gaussian"),
    "weights to the nearest": (histogram("gaussian", LABELS, kind=RoundedHistogram), "gaussian"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_query_is_caught(name: str) -> None:
    query, norm = BROKEN[name]
    assert largest_movement(query, norm) > 1


@dataclass(frozen=True)
class BrokenBound:
    """An owner bound with a fault. ``choose`` gives the rows used and their shares."""

    table: TinyTable
    choose: Callable[[tuple[Row, ...]], list[tuple[Row, int]]]

    def batches(self) -> Iterator[BoundedBatch]:
        used = self.choose(self.table.rows)
        yield BoundedBatch(
            [row.text for row, _ in used],
            np.array([row.label for row, _ in used], dtype=np.int32),
            np.array([share for _, share in used], dtype=np.int64),
            np.arange(len(used)),
        )


def averaged_per_label(rows: tuple[Row, ...]) -> list[tuple[Row, int]]:
    """Each label's records of an owner are averaged by themselves: an owner in all labels weighs three."""
    kept = list(dict.fromkeys(rows))
    return [(row, sum((o.owner, o.label) == (row.owner, row.label) for o in kept)) for row in kept]


def not_averaged(rows: tuple[Row, ...]) -> list[tuple[Row, int]]:
    """Up to three records of an owner, each at full weight."""
    kept: list[Row] = []
    for row in rows:
        if sum(other.owner == row.owner for other in kept) < OWNER.max_records:
            kept.append(row)
    return [(row, 1) for row in kept]


def chosen_by_row_number(rows: tuple[Row, ...]) -> list[tuple[Row, int]]:
    """An owner's record with the smallest hash of its row number: an inserted row moves everyone."""
    best: dict[str, tuple[bytes, Row]] = {}
    for number, row in enumerate(rows):
        key = hashlib.blake2b(str(number).encode(), key=KEY).digest()
        best[row.owner] = min(best.get(row.owner, (key, row)), (key, row), key=lambda pair: pair[0])
    return [(row, 1) for _, row in best.values()]


@pytest.mark.parametrize("choose", [averaged_per_label, not_averaged, chosen_by_row_number])
@pytest.mark.parametrize(
    "name", ["term counts", "vocabulary, laplace", "histogram, gaussian", "density", "prefixes of 2, diagonal"]
)
def test_a_broken_owner_bound_is_caught(choose: Callable[..., Any], name: str) -> None:
    query, (norm, *_) = QUERIES[name]

    def broken(rows: list[Row], unit: Unit) -> BrokenBound:
        return BrokenBound(TinyTable(tuple(rows)), choose)

    assert largest_movement(query, norm, OWNER, bound=broken) > 1.05
