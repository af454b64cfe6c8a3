"""The guide's sums: no record or owner moves them by more than 1, whatever the embedder answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from broken_twins import not_shared
from numpy.typing import NDArray
from tiny_corpora import LABELS, OWNER, RECORD, HashEmbedder, Row, bounded, movement, random_neighbours

from understudy.base.errors import ModelError
from understudy.corpus.bounding import BoundedBatch
from understudy.methods.additions.guide.plan import COUNT_WEIGHT, GRID, VECTOR_WEIGHT, EmbeddingSumsSpec
from understudy.methods.additions.guide.sums import GuideSums
from understudy.privacy import measurement
from understudy.privacy.measurement import exact_sum, measure
from understudy.privacy.mechanisms import NoisySum, SubsampledSum
from understudy.privacy.noise import InsecureNoNoise
from understudy.privacy.unit import Unit

DIMENSION = 24
PAIRS = 300
LARGEST = float(np.finfo(np.float32).max)
Vector = NDArray[np.float64]
Generator = np.random.Generator


def filled(value: float) -> Callable[[Generator], Vector]:
    return lambda _: np.full(DIMENSION, value)


def dense(length: float) -> Callable[[Generator], Vector]:
    def made(generator: Generator) -> Vector:
        vector = generator.standard_normal(DIMENSION)
        return vector * (length / np.linalg.norm(vector))

    return made


def sparse(*coordinates: float) -> Callable[[Generator], Vector]:
    def made(generator: Generator) -> Vector:
        vector = np.zeros(DIMENSION)
        vector[generator.permutation(DIMENSION)[: len(coordinates)]] = coordinates
        return vector

    return made


def with_one(value: float) -> Callable[[Generator], Vector]:
    """A unit vector, one of whose coordinates is replaced."""

    def made(generator: Generator) -> Vector:
        vector = dense(1.0)(generator)
        vector[generator.integers(DIMENSION)] = value
        return vector

    return made


UNIT: dict[str, Callable[[Generator], Vector]] = {
    "dense": dense(1.0),
    "all alike": filled(DIMENSION**-0.5),
    "one coordinate": sparse(1.0),
    "two coordinates": sparse(0.5**0.5, -(0.5**0.5)),
    "hardly too long": sparse(float(np.nextafter(np.float32(1), np.float32(2)))),
    "a little too long": dense(1.09),
    "a little too short": dense(0.91),
    "with a subnormal": sparse(1.0, 1e-45, -1e-45),
}
OTHER: dict[str, Callable[[Generator], Vector]] = {
    "zero": filled(0.0),
    "subnormal": filled(1e-45),
    "too long": dense(3.0),
    "too short": dense(0.5),
    "largest": filled(LARGEST),
    "NaN": filled(np.nan),
    "infinite": filled(np.inf),
    "with NaN": with_one(np.nan),
    "with infinity": with_one(-np.inf),
    "with the largest": with_one(LARGEST),
}
KINDS = UNIT | OTHER


class WildEmbedder:
    """A text's vector is of the kind that the text names; or of any kind, by its hash."""

    model_id = "wild"
    fingerprint = "0" * 64
    local = True

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([self._of(text) for text in texts], dtype=np.float32).reshape(len(texts), DIMENSION)

    def _of(self, text: str) -> Vector:
        generator = np.random.default_rng(list(hashlib.sha256(text.encode()).digest()))
        kind = text.partition(":")[0]
        return KINDS[kind if kind in KINDS else str(generator.choice(list(KINDS)))](generator)


def query(embedder: Any = None, kind: type[GuideSums] = GuideSums) -> GuideSums:
    return kind(EmbeddingSumsSpec(LABELS), embedder or WildEmbedder(), DIMENSION)


def largest_movement(of: GuideSums, unit: Unit) -> float:
    return max(movement(of, pair, unit).l2 for pair in random_neighbours(unit, pairs=PAIRS, seed=1))


@pytest.mark.parametrize("unit", [RECORD, OWNER], ids=["record", "owner"])
@pytest.mark.parametrize("embedder", [WildEmbedder(), HashEmbedder(DIMENSION)], ids=["wild", "hash"])
def test_no_record_or_owner_moves_the_sums_by_more_than_is_declared(embedder: Any, unit: Unit) -> None:
    assert 0.99 < largest_movement(query(embedder), unit) <= 1


@pytest.mark.parametrize("kind", UNIT)
def test_a_unit_vector_moves_the_sums_by_nearly_all_that_is_declared(kind: str) -> None:
    text = f"{kind}: a text"
    sums = exact_sum(query(), bounded([Row(text, 1)]))
    squared = sum(int(step) ** 2 for step in sums.ravel())  # exact: Python's integers
    assert GRID**2 * 0.99999 < squared <= GRID**2
    assert not sums[[0, 2]].any()
    vector = KINDS[kind](np.random.default_rng(list(hashlib.sha256(text.encode()).digest())))
    np.testing.assert_allclose(sums[1, 1:] / GRID, VECTOR_WEIGHT * vector / np.linalg.norm(vector), atol=1e-5)


@pytest.mark.parametrize("kind", OTHER)
@pytest.mark.parametrize("unit", [RECORD, OWNER], ids=["record", "owner"])
def test_a_record_without_a_unit_vector_adds_nothing_and_raises_nothing(
    kind: str, unit: Unit, recwarn: pytest.WarningsRecorder
) -> None:
    assert not exact_sum(query(), bounded([Row(f"{kind}: a text", 1)], unit)).any()
    assert not recwarn.list


def test_owners_in_several_labels_weigh_one_in_all() -> None:
    rows = [Row(f"{kind}: {label}", label, "ann") for label, kind in enumerate(["dense", "one coordinate", "dense"])]
    sums = exact_sum(query(), bounded(rows, OWNER))
    norms = np.sqrt(np.square(sums).sum(axis=1))
    assert norms / GRID == pytest.approx([1 / 3] * 3, rel=1e-4)
    assert norms.sum() <= GRID


def random_rows(count: int, seed: int) -> list[Row]:
    generator = np.random.default_rng(seed)
    owners = generator.choice(["ann", "bob", "cleo"], count).tolist()
    return [Row(f"text {number}", int(generator.integers(LABELS)), owner) for number, owner in enumerate(owners)]


@pytest.mark.parametrize("unit", [RECORD, Unit("owner", 7)], ids=["record", "owner"])
def test_the_sums_are_the_same_in_any_order_and_any_batches(unit: Unit) -> None:
    rows = random_rows(60, seed=2)
    shuffled = [rows[place] for place in np.random.default_rng(3).permutation(len(rows))]
    expected = exact_sum(query(), bounded(rows, unit, batch_size=60))
    for order in (rows, shuffled):
        for size in (1, 7, 60):
            np.testing.assert_array_equal(exact_sum(query(), bounded(order, unit, batch_size=size)), expected)


class Unasked:
    model_id, fingerprint, local = "unasked", "0" * 64, True

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        raise AssertionError("nothing to embed")


@pytest.mark.parametrize("unit", [RECORD, OWNER], ids=["record", "owner"])
def test_no_records_make_sums_of_nothing(unit: Unit) -> None:
    sums = exact_sum(query(Unasked()), bounded([], unit))
    np.testing.assert_array_equal(sums, np.zeros((LABELS, 1 + DIMENSION), dtype=np.int64))
    nobody = np.zeros(0, dtype=np.int64)
    batch = BoundedBatch([], nobody.astype(np.int32), nobody, nobody)
    np.testing.assert_array_equal(query(Unasked()).of_batch(batch), sums)


def test_counts_and_directions_come_back_from_a_noisy_sum_without_its_noise() -> None:
    rows = [Row(f"one coordinate: {number}", number % 2) for number in range(30)] + [Row("NaN: none", 0)]
    sums = query()
    mechanism = NoisySum("gaussian", 1.0, sums.sensitivity, sums.spec.shape)
    value = measure(mechanism, sums, bounded(rows), source=InsecureNoNoise())
    np.testing.assert_allclose(value[:, 0] / COUNT_WEIGHT, [15, 15, 0], atol=1e-3)
    vectors = WildEmbedder().embed([row.text for row in rows[0:30:2]])
    np.testing.assert_allclose(value[0, 1:] / VECTOR_WEIGHT, vectors.sum(axis=0), atol=1e-3)


SECRET = "Passport 9434765919"


@pytest.mark.parametrize(
    "answer",
    [
        lambda texts: np.zeros((len(texts), DIMENSION + 1), dtype=np.float32),
        lambda texts: np.zeros((len(texts) + 1, DIMENSION), dtype=np.float32),
        lambda texts: np.zeros(DIMENSION, dtype=np.float32),
        lambda texts: [[0.0] * (DIMENSION + number) for number, _ in enumerate([*texts, ""])],
        lambda texts: None,
    ],
)
def test_an_embedder_of_another_shape_is_an_error_that_quotes_no_text(answer: Any) -> None:
    class Other(WildEmbedder):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return answer(texts)  # type: ignore[no-any-return]

    with pytest.raises(ModelError, match="'wild'") as raised:
        exact_sum(query(Other()), bounded([Row(SECRET)]))
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None  # nor does a traceback show it
    assert SECRET not in repr(query(Other()))


# -- a sample ----------------------------------------------------------------------------------------------------------


def is_of_whole_units(rows: list[Row], unit: Unit) -> bool:
    """Whether a sampled sum is that of all records of some units, and of nothing else: with the coins of others as they
    are, one unit more then moves it as it moves a sum of all, or not at all."""
    mechanism = SubsampledSum(1.0, 0.5, query().sensitivity, query().shape)
    found = measure(mechanism, query(), bounded(rows, unit), source=InsecureNoNoise())
    told = [row.owner if unit.kind == "owner" else str(place) for place, row in enumerate(rows)]
    names = sorted(set(told))
    subsets = (chosen for size in range(len(names) + 1) for chosen in combinations(names, size))
    parts = ([row for name, row in zip(told, rows, strict=True) if name in chosen] for chosen in subsets)
    return any(np.array_equal(found, exact_sum(query(), bounded(part, unit)) / GRID) for part in parts)


def test_a_sample_is_of_all_records_of_some_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(20):
        assert is_of_whole_units(random_rows(7, seed), RECORD)
        assert is_of_whole_units(random_rows(12, seed), OWNER)
    monkeypatch.setattr(measurement, "_SampledUnits", measurement._Sampled)  # the broken twin: a coin per record
    assert not all(is_of_whole_units(random_rows(12, seed), OWNER) for seed in range(20))


# -- broken twins, caught by the very same measure --------------------------------------------------------------------


class NearestUnchecked(GuideSums):
    """Rounded to the nearest, whatever length it has."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        sums = np.zeros(self.shape, dtype=np.int64)
        vectors = np.nan_to_num(self.embedder.embed(batch.texts).astype(np.float64), posinf=9, neginf=-9).clip(-9, 9)
        vectors = np.hstack([np.full((len(vectors), 1), COUNT_WEIGHT), VECTOR_WEIGHT * vectors])
        np.add.at(sums, batch.labels, np.rint(vectors * GRID / batch.shares[:, None]).astype(np.int64))
        return sums


class WholeVectors(GuideSums):
    """The count stands beside a vector of length 1."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        sums = super().of_batch(batch)
        sums[:, 1:] = (sums[:, 1:] / VECTOR_WEIGHT).astype(np.int64)
        return sums


@pytest.mark.parametrize(
    ("kind", "embedder", "unit"),
    [
        (NearestUnchecked, WildEmbedder(), RECORD),
        (NearestUnchecked, HashEmbedder(DIMENSION), RECORD),  # by rounding alone
        (not_shared(GuideSums), HashEmbedder(DIMENSION), OWNER),
        (WholeVectors, HashEmbedder(DIMENSION), RECORD),
    ],
)
def test_a_broken_twin_moves_by_more_than_is_declared(kind: type[GuideSums], embedder: Any, unit: Unit) -> None:
    assert largest_movement(query(embedder, kind), unit) > 1
