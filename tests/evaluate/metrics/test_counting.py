"""The counts behind charged metrics, and what they say: one unit's influence is bounded, and broken twins break it."""

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
from understudy.evaluate.charged import LENGTH_EDGES, MetricCounts, charged_values, length_bins
from understudy.evaluate.metrics.value import MetricValue
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


@pytest.mark.parametrize(("unit", "most"), [(Unit(), 1), (OWNERS, 9)], ids=["record", "owner"])
@given(rows=st.lists(rows_of, max_size=12), more=st.lists(rows_of, min_size=1, max_size=9), place=st.integers(0, 12))
def test_a_unit_more_moves_the_counts_by_no_more_than_the_bound(
    unit: Unit, most: int, rows: list[tuple[str, str, int]], more: list[tuple[str, str, int]], place: int
) -> None:
    query = MetricCounts(LABELS, {"one": right, "two": always}, unit)
    new = [("new", text, label) for _, text, label in more[:most]]
    moved = counts((*rows[:place], *new, *rows[place:]), unit) - counts(tuple(rows), unit)
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


LENGTHS = [0.0] * len(LENGTH_EDGES)


def values(
    labels: list[float], right: list[float], *, scale: float = 2.0, lengths: list[float] = LENGTHS
) -> list[MetricValue]:
    made = charged_values(
        np.array([*labels, *lengths, *right]),
        labels=[f"label {place}" for place in range(len(labels))],
        classifiers=["tf-idf"] if right else [],
        training_texts=20,
        noise_scale=scale,
        seed=0,
    )
    return list(made)


def of(made: list[MetricValue], name: str) -> list[MetricValue]:
    return [each for each in made if each.metric.name == name]


def test_shares_and_accuracy_are_ratios_of_the_counts() -> None:
    made = values([300.0, 100.0], [240.0, 60.0])
    assert [each.value for each in of(made, "label_share")] == [0.75, 0.25]
    assert [each.value for each in of(made, "accuracy")] == [0.75]
    assert [each.value for each in of(made, "records")] == [400.0]


def test_intervals_hold_the_value_and_grow_with_the_noise() -> None:
    narrow, wide = (of(values([300.0, 100.0], [240.0, 60.0], scale=scale), "accuracy")[0] for scale in (1.0, 40.0))
    for each in (narrow, wide):
        assert each.interval is not None
        assert each.value is not None
        assert each.interval.low <= each.value <= each.interval.high
    assert narrow.interval is not None
    assert wide.interval is not None
    assert wide.interval.high - wide.interval.low > 2 * (narrow.interval.high - narrow.interval.low)


@pytest.mark.parametrize("labels", [2, 20])
def test_the_number_of_records_is_told_without_a_bias(labels: int) -> None:
    generator, scale, found = np.random.default_rng(2), 6.0, []
    held = 0
    for _ in range(150):
        counts = np.full(labels, 400 / labels) + generator.laplace(0, scale, labels)
        (made,) = of(values(list(counts), [], scale=scale), "records")
        assert made.value is not None
        assert made.interval is not None
        found.append(made.value)
        held += made.interval.low <= 400 <= made.interval.high
    spread = scale * np.sqrt(2 * labels / 150)
    assert abs(np.mean(found) - 400) < 4 * spread
    assert 130 <= held <= 150  # 142 expected, the standard deviation is 3


@pytest.mark.parametrize("labels", [2, 20])
def test_the_interval_of_a_share_holds_the_truth_with_many_labels_too(labels: int) -> None:
    generator, scale, held = np.random.default_rng(3), 6.0, 0
    truth = np.array([0.5, *np.full(labels - 1, 0.5 / (labels - 1))])
    for _ in range(150):
        counts = generator.multinomial(2000, truth) + generator.laplace(0, scale, labels)
        interval = of(values(list(counts), [], scale=scale), "label_share")[0].interval
        assert interval is not None
        held += interval.low <= 0.5 <= interval.high
    assert 130 <= held <= 150


def test_the_interval_of_an_accuracy_holds_the_truth_as_often_as_it_says() -> None:
    generator, scale, held = np.random.default_rng(1), 4.0, 0
    for _ in range(200):
        records = generator.multinomial(400, [0.5, 0.5]).astype(float)
        hits = generator.binomial(records.astype(int), 0.8).astype(float)
        noise = generator.laplace(0, scale, 4)
        found = of(values(list(records + noise[:2]), list(hits + noise[2:]), scale=scale), "accuracy")[0].interval
        assert found is not None
        held += found.low <= 0.8 <= found.high
    assert 175 <= held <= 200  # 190 expected, the standard deviation is 3


@pytest.mark.parametrize("labels", [[-3.0, -1.0], [0.0, 0.0], [-2.0, 5.0]])
def test_counts_below_zero_give_shares_between_0_and_1(labels: list[float]) -> None:
    for each in values(labels, [7.0, -9.0]):
        assert each.value is not None
        assert np.isfinite(each.value)
        if each.metric.name != "records":
            assert 0 <= each.value <= 1


def test_without_labels_there_are_lengths_only() -> None:
    made = charged_values(
        np.array([10.0, *LENGTHS]), labels=[], classifiers=[], training_texts=0, noise_scale=1.0, seed=0
    )
    assert {each.metric.name for each in made} == {"records", "length_share"}


def test_all_of_them_may_be_shared() -> None:
    assert not any(each.reads_private for each in values([3.0, 4.0], [1.0, 1.0]))
