"""Histograms of typed columns: no record or owner moves them, or the scores of pairs, by more than is declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pytest
from broken_twins import not_shared
from numpy.typing import NDArray
from tiny_corpora import LABELS, OWNER, RECORD, Row, bounded, celled, movement, random_neighbours, with_cells

from understudy.base.errors import PrivacyError
from understudy.corpus.bounding import BoundedBatch
from understudy.methods.additions.columns.fitting import shares
from understudy.methods.additions.columns.marginals import IndependenceScores, Marginals, independent
from understudy.methods.additions.columns.plan import MarginalsSpec, ScoresSpec, SelectedMarginalsSpec
from understudy.privacy.measurement import exact_sum, measure
from understudy.privacy.mechanisms import COUNT_GRID, NoisySum, Sensitivity
from understudy.privacy.noise import InsecureNoNoise
from understudy.privacy.unit import Unit

SIZES = (LABELS, 4, 2, 3)
ALL_PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
SCORED = (*ALL_PAIRS, (0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3))
PAIRS = 200
UNITS = pytest.mark.parametrize("unit", [RECORD, OWNER], ids=["record", "owner"])


def largest(query: Any, unit: Unit) -> float:
    pairs = with_cells(random_neighbours(unit, pairs=PAIRS, seed=2), SIZES[1:])
    return max(movement(query, pair, unit).l2 for pair in pairs)


def singles(kind: type[Marginals] = Marginals) -> Marginals:
    return kind(MarginalsSpec(SIZES, tuple((each,) for each in range(len(SIZES))), True))


def shared(pairs: Sequence[tuple[int, int]], kind: type[Marginals] = Marginals) -> Marginals:
    planned = SelectedMarginalsSpec(MarginalsSpec(SIZES, SCORED, True))
    return kind(planned.of(tuple(pairs), shares(SIZES, pairs)))


def scores(seed: int = 0, kind: type[IndependenceScores] = IndependenceScores, sets: Any = None) -> IndependenceScores:
    pairs = MarginalsSpec(SIZES, sets or SCORED, True)
    noisy = [np.random.default_rng([seed, place]).normal(2, 3, size) for place, size in enumerate(SIZES)]
    return kind(ScoresSpec(pairs), independent(pairs, noisy, 7.3))


# -- sensitivity ------------------------------------------------------------------------------------------------------


@UNITS
@pytest.mark.parametrize("sets", [((0,), (1,), (2,), (3,)), ALL_PAIRS, ((1, 2, 3),)], ids=["singles", "pairs", "three"])
def test_no_unit_moves_the_histograms_by_more_than_is_declared(sets: Any, unit: Unit) -> None:
    assert 0.99 < largest(Marginals(MarginalsSpec(SIZES, sets, True)), unit) <= 1


@UNITS
@pytest.mark.parametrize("count", [1, 3, 6])
def test_any_number_of_histograms_share_a_sensitivity_of_one(count: int, unit: Unit) -> None:
    query = shared(ALL_PAIRS[:count])
    assert query.sensitivity.within(Sensitivity.of_shared_weight("gaussian", len(ALL_PAIRS)), "gaussian")
    assert 0.99 < largest(query, unit) <= 1


@UNITS
@pytest.mark.parametrize("seed", [0, 1])
def test_no_unit_moves_the_scores_by_more_than_is_declared(seed: int, unit: Unit) -> None:
    assert 0.5 < largest(scores(seed), unit) <= 1


def test_a_score_moves_by_all_that_is_declared_where_a_pair_is_as_expected() -> None:
    every = MarginalsSpec(SIZES, SCORED, True)
    nothing = IndependenceScores(ScoresSpec(every), np.zeros(every.shape, np.int64))
    assert exact_sum(nothing, bounded([Row("a", cells=(1, 1, 1))])).tolist() == [COUNT_GRID] * len(SCORED)


class Shares(Marginals):
    """Broken: shares of the records of a batch, so that all of them move with one more record."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        return super().of_batch(batch) * 20 // max(len(batch.texts), 1)


class OneHistogram(Marginals):
    """Broken: the sensitivity of one histogram for all of them."""

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_counts(1)


def test_shares_of_any_pairs_are_within_one() -> None:
    generator = np.random.default_rng(0)
    one = Sensitivity.of_shared_weight("gaussian", 2)
    for _ in range(300):
        sizes = tuple(generator.integers(2, 2000, generator.integers(2, 60)).tolist())
        pairs = [(a, b) for b in range(len(sizes)) for a in range(b) if generator.random() < 0.3] or [(0, 1)]
        planned = SelectedMarginalsSpec(MarginalsSpec(sizes, tuple(pairs), False))
        query = Marginals(planned.of(tuple(pairs), shares(sizes, pairs)))
        assert query.sensitivity.within(one, "gaussian")
        assert query.sensitivity.l2 > 0.99 * COUNT_GRID


def test_histograms_that_share_no_sensitivity_are_refused() -> None:
    """Broken twin: a record adds 1 to each histogram, where the noise was planned for 1 in all."""
    planned = NoisySum("gaussian", 1.0, Sensitivity.of_shared_weight("gaussian", 6), (None,))
    data, two = bounded(rows()), ((0, 1), (1, 2))
    values = measure(planned, shared(two), data, source=InsecureNoNoise())
    assert shared(two).spec.in_records(values).sum() == pytest.approx(120, rel=1e-5)
    with pytest.raises(PrivacyError, match="not the one that was planned"):
        measure(planned, Marginals(MarginalsSpec(SIZES, two, True)), data, source=InsecureNoNoise())


@dataclass(frozen=True)
class FullSteps(Marginals):
    """Broken: states the sensitivity of shared histograms and counts each record fully."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        return Marginals(replace(self.spec, steps=())).of_batch(batch)


def test_full_counts_in_place_of_shared_ones_are_caught() -> None:
    assert largest(shared(ALL_PAIRS, FullSteps), RECORD) > 2


@pytest.mark.parametrize(
    ("broken", "unit"),
    [(not_shared(Marginals), OWNER), (Shares, RECORD), (OneHistogram, RECORD)],
    ids=lambda each: str(each),
)
def test_broken_histograms_are_caught(broken: type[Marginals], unit: Unit) -> None:
    assert largest(singles(broken), unit) > 1.01


@dataclass(frozen=True)
class ExactIndependence(IndependenceScores):
    """Broken: independence is that of the exact histograms, which move with the record too."""

    def finish(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        found = []
        for pair in self.spec.sets.split(sums):
            total = max(int(pair.sum()), 1)
            first = pair.reshape(len(pair), -1)
            found.append(np.abs(first - first.sum(1, keepdims=True) * (first.sum(0, keepdims=True) / total)).sum())
        return np.array(found).astype(np.int64)


def test_independence_of_exact_counts_is_caught() -> None:
    assert largest(scores(kind=ExactIndependence), RECORD) > 1.01


@dataclass(frozen=True)
class ThreesForNothing(IndependenceScores):
    """Broken: the sensitivity of the scores of pairs alone."""

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_counts(len(ALL_PAIRS))


@dataclass(frozen=True)
class SquaredDistances(IndependenceScores):
    """Broken: squares, which a record moves by the more the more there are in its cell."""

    def finish(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        apart = self.spec.sets.split((sums - self.expected) / COUNT_GRID)
        return np.array([(each**2).sum() * COUNT_GRID for each in apart]).astype(np.int64)


@pytest.mark.parametrize("broken", [ThreesForNothing, SquaredDistances])
def test_broken_scores_are_caught(broken: type[IndependenceScores]) -> None:
    every = MarginalsSpec(SIZES, SCORED, True)
    nothing = broken(ScoresSpec(every), np.zeros(every.shape, np.int64))
    assert largest(nothing, RECORD) > 1.01
    assert 0.99 < largest(IndependenceScores(ScoresSpec(every), np.zeros(every.shape, np.int64)), RECORD) <= 1


# -- values -----------------------------------------------------------------------------------------------------------


def rows(count: int = 60) -> list[Row]:
    return [celled(Row(f"text {number}", number % LABELS), 1, SIZES[1:]) for number in range(count)]


def test_histograms_are_those_of_numpy() -> None:
    query = Marginals(MarginalsSpec(SIZES, ((0, 1), (2,), (1, 3)), True))
    values = query.spec.split(exact_sum(query, bounded(rows(), batch_size=7)) / COUNT_GRID)
    table = np.array([[row.label, *row.cells] for row in rows()])
    for found, chosen in zip(values, query.spec.sets, strict=True):
        bins = [np.arange(SIZES[each] + 1) for each in chosen]
        np.testing.assert_array_equal(found, np.histogramdd(table[:, list(chosen)], bins)[0])


def test_a_table_without_labels_has_its_columns_alone() -> None:
    query = Marginals(MarginalsSpec(SIZES[1:], ((0,), (1, 2)), False))
    assert [each.sum() for each in query.spec.split(exact_sum(query, bounded(rows())) / COUNT_GRID)] == [60, 60]


def test_scores_are_distances_from_what_is_expected() -> None:
    pairs = MarginalsSpec(SIZES, SCORED, True)
    exact = pairs.split(exact_sum(Marginals(pairs), bounded(rows())) / COUNT_GRID)
    margins = [singles().spec.split(exact_sum(singles(), bounded(rows())) / COUNT_GRID)[each] for each in range(4)]
    query = IndependenceScores(ScoresSpec(pairs), independent(pairs, margins, 60.0))
    found = exact_sum(query, bounded(rows())) / COUNT_GRID
    for score, histogram, chosen in zip(found, exact, SCORED, strict=True):
        expected = reduce(np.multiply.outer, (margins[each] / 60 for each in chosen)) * 60
        assert score == pytest.approx(np.abs(histogram - expected).sum(), abs=1e-3)


@pytest.mark.parametrize("margins", ["negative", "nothing", "huge"])
def test_any_noisy_counts_give_finite_expectations(margins: str) -> None:
    value = {"negative": -5.0, "nothing": 0.0, "huge": 1e30}[margins]
    pairs = MarginalsSpec(SIZES, ALL_PAIRS, True)
    found = independent(pairs, [np.full(size, value) for size in SIZES], value)
    assert found.dtype == np.int64
    assert (found >= 0).all()
    assert found.max() <= 2**40 * COUNT_GRID
