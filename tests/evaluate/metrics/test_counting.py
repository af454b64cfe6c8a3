"""The counts behind charged metrics: the bound on one unit's influence holds, and broken twins break it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedBatch, BoundedCorpus
from understudy.evaluate.counting import LENGTH_EDGES, MetricCounts, length_bins
from understudy.privacy.measurement import exact_sum
from understudy.privacy.unit import Unit

LABELS = 3
OWNERS = Unit("owner", 4, "who")


@dataclass(frozen=True)
class Batch:
    texts: list[str]
    labels: NDArray[np.int32]
    owners: list[str] | None
    cells: None = None


@dataclass(frozen=True)
class Table:
    rows: tuple[tuple[str, str, int], ...]

    def batches(self) -> Iterator[Batch]:
        for start in range(0, len(self.rows), 3):
            part = self.rows[start : start + 3]
            owners = [who for who, _, _ in part]
            yield Batch([text for _, text, _ in part], np.array([label for *_, label in part], np.int32), owners)


def right(batch: BoundedBatch) -> NDArray[np.bool_]:
    return np.array([len(text) % 2 == 0 for text in batch.texts], dtype=np.bool_)


def always(batch: BoundedBatch) -> NDArray[np.bool_]:
    return np.ones(len(batch.texts), dtype=np.bool_)


def counts(rows: tuple[tuple[str, str, int], ...], unit: Unit, query: type[MetricCounts] = MetricCounts) -> NDArray:
    made = query(LABELS, {"one": right, "two": always}, unit)
    return exact_sum(made, BoundedCorpus(Table(rows), unit, b"key"))


rows_of = st.tuples(st.sampled_from("abc"), st.text("x y", max_size=30), st.integers(0, LABELS - 1))


@given(st.lists(rows_of, max_size=12), rows_of, st.integers(0, 12))
def test_a_record_more_moves_the_counts_by_no_more_than_the_bound(
    rows: list[tuple[str, str, int]], more: tuple[str, str, int], place: int
) -> None:
    query = MetricCounts(LABELS, {"one": right, "two": always}, Unit())
    moved = counts((*rows[:place], more, *rows[place:]), Unit()) - counts(tuple(rows), Unit())
    assert np.abs(moved).sum() <= query.sensitivity.l1
    assert math.sqrt((moved**2).sum()) <= query.sensitivity.l2


@given(st.lists(rows_of, max_size=12), st.lists(rows_of, min_size=1, max_size=9))
def test_an_owner_more_moves_the_counts_by_no_more_than_the_bound(
    rows: list[tuple[str, str, int]], more: list[tuple[str, str, int]]
) -> None:
    query = MetricCounts(LABELS, {"one": right, "two": always}, OWNERS)
    new = tuple(("new", text, label) for _, text, label in more)
    moved = counts((*rows, *new), OWNERS) - counts(tuple(rows), OWNERS)
    assert np.abs(moved).sum() <= query.sensitivity.l1
    assert math.sqrt((moved**2).sum()) <= query.sensitivity.l2


class Undivided(MetricCounts):
    """Broken: an owner's records are counted whole."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        counts = np.zeros(self.shape, dtype=np.int64)
        np.add.at(counts, batch.labels, int(self.grid))
        return counts


def test_owners_counted_whole_would_pass_the_bound() -> None:
    new = tuple(("new", "x" * place, place % 3) for place in range(4))
    query = MetricCounts(LABELS, {}, OWNERS)
    moved = counts(new, OWNERS, Undivided)
    assert np.abs(moved[:LABELS]).sum() > query.grid
    assert np.abs(counts(new, OWNERS)[:LABELS]).sum() <= query.grid


def test_the_bound_is_reached_by_a_record_that_every_classifier_labels_right() -> None:
    query = MetricCounts(LABELS, {"one": always, "two": always}, Unit())
    found = exact_sum(query, BoundedCorpus(Table((("a", "two words", 1),)), Unit(), b"key"))
    assert found.sum() == query.sensitivity.l1 == 4


def test_the_blocks_hold_labels_lengths_and_right_answers() -> None:
    rows = (("a", "one two three four five six", 0), ("b", "x", 2), ("c", "xy", 2))
    found = counts(rows, Unit())
    assert found[:LABELS].tolist() == [1, 0, 2]
    lengths = found[LABELS : LABELS + len(LENGTH_EDGES)]
    assert lengths[:2].tolist() == [2, 1]
    assert lengths.sum() == 3
    first, second = found[LABELS + len(LENGTH_EDGES) :].reshape(2, LABELS)
    assert first.tolist() == [0, 0, 1]
    assert second.tolist() == [1, 0, 2]


def test_no_records_and_empty_texts_count_like_any_other() -> None:
    assert not counts((), Unit()).any()
    assert length_bins(["", "   ", "w " * 10_000]).tolist() == [0, 0, len(LENGTH_EDGES) - 1]


@pytest.mark.parametrize("words", [0, 4, 5, 9, 10, 639, 640])
def test_a_length_is_in_the_bin_whose_edges_hold_it(words: int) -> None:
    place = int(length_bins(["w " * words])[0])
    assert LENGTH_EDGES[place] <= words
    assert place == len(LENGTH_EDGES) - 1 or words < LENGTH_EDGES[place + 1]
