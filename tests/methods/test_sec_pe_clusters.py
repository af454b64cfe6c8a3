"""No record moves the noisy clusters' integers by more than GRID; broken twins are caught by the same measure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_corpora import LABELS, WORDS, HashEmbedder, Neighbours, Row, bounded, movement, random_neighbours, random_rows

from understudy.base.errors import ConfigError
from understudy.corpus.bounding import BoundedBatch
from understudy.methods.sec_pe.clusters import GRID, Clusters, ClusterSums, make_clusters, noisy_centres
from understudy.methods.sec_pe.plan import ClusterSumsSpec, SamplingRates
from understudy.methods.sec_pe.release import _without_secrets
from understudy.methods.shared.evolution.embeddings import STEPS, private_vectors
from understudy.privacy.measurement import exact_sum, measure
from understudy.privacy.mechanisms import SampledSum
from understudy.privacy.noise import InsecureNoNoise
from understudy.privacy.unit import Unit

SECRET = Unit("secret", 3)
K = 3


BAD = {"": 0.0, "?!": np.nan, " ": np.inf, "nothing known here": 3.0, "tiny": 1e-30}


class SometimesNoVector(HashEmbedder):
    """Of some texts the vector is none: not of length 1, zero, infinite or NaN."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([_vector(text) for text in texts], dtype=np.float32).reshape(-1, 8)


@cache
def _vector(text: str) -> NDArray[np.float32]:
    with np.errstate(invalid="ignore"):
        return HashEmbedder().embed([text])[0] * np.float32(BAD.get(text, 1.0))


def clusters(labels: int = LABELS, *, count: int = K, dimension: int = 8) -> Clusters:
    public = HashEmbedder(dimension).embed([f"public {number}" for number in range(60)])
    made = make_clusters(public, None, labels=labels, count=count, seed=0)
    turned = [np.roll(made.centres[label], label, axis=-1) for label in range(labels)]  # each label has its own
    return Clusters(np.stack(turned), made.sizes)


def spec_of(made: Clusters) -> ClusterSumsSpec:
    return ClusterSumsSpec(*made.shape[:2])


def sums_of(kind: type[ClusterSums] = ClusterSums, *, clip: float = 1.0, size_share: float = 0.8) -> ClusterSums:
    """Over all records: what a record that is certainly sampled can change."""
    return kind(spec_of(clusters()), clusters(), SometimesNoVector(), clip, size_share)


@dataclass(frozen=True)
class Given:
    """Answers with these unit vectors, whatever the texts."""

    vectors: NDArray[np.float32]

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        assert len(texts) == len(self.vectors)
        return self.vectors


def sums_of_vectors(made: Clusters, unit: NDArray[np.float32], *, clip: float, size_share: float) -> NDArray[np.int64]:
    """Of records of the first label with these vectors."""
    query = ClusterSums(spec_of(made), made, Given(unit), clip, size_share)  # type: ignore[arg-type]
    return exact_sum(query, bounded([Row(f"text {number}") for number in range(len(unit))], SECRET, batch_size=1000))


@cache
def neighbours() -> list[Neighbours]:
    return list(_neighbours())


def _neighbours() -> Iterator[Neighbours]:
    others = [Row("one", 0), Row("two", 1), Row("one", 2)]
    for text in ("same", *BAD, *WORDS):
        for label in range(LABELS):
            yield Neighbours([], [Row(text, label)])
            yield Neighbours(others, [Row(text, label), *others])
            yield Neighbours([Row(text, label)] * 3, [Row(text, label)] * 4)
    yield from random_neighbours(Unit("record"), pairs=100, seed=7)


def largest_movement(query: ClusterSums) -> float:
    return max(movement(query, pair, SECRET).l2 for pair in neighbours())


clips = pytest.mark.parametrize("clip", [0.01, 1.0, 2.0])
shares = pytest.mark.parametrize("share", [1e-3, 0.8])


@clips
@shares
def test_no_record_moves_sizes_and_residuals_together_by_more_than_the_grid(clip: float, share: float) -> None:
    assert largest_movement(sums_of(clip=clip, size_share=share)) <= 1


def test_a_record_whose_residual_is_clipped_moves_them_by_all_of_it() -> None:
    query = sums_of(clip=0.01)
    assert largest_movement(query) > 1 - 1e-6
    assert query.sensitivity.l1 is None
    assert (query.sensitivity.l2, query.sensitivity.grid) == (GRID, GRID)


@given(st.floats(1e-3, 2), st.floats(1e-6, 1 - 1e-6), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_a_residual_of_any_length_and_size_is_on_the_grid(clip: float, share: float, dimension: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(20, dimension)) * generator.choice([1e-3, 1.0], size=(20, dimension))
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    made = make_clusters(unit[:4], None, labels=1, count=2, seed=0)
    for vector in unit:
        sums = sums_of_vectors(made, vector[None], clip=clip, size_share=share)
        assert sum(int(step) ** 2 for step in sums.ravel()) <= GRID**2


def test_a_record_touches_one_cluster_of_its_own_label() -> None:
    query = sums_of()
    for label in range(LABELS):
        moved = exact_sum(query, bounded([Row("heartpain", label)], SECRET))
        assert np.count_nonzero(moved.any(axis=-1)) == 1
        assert moved[label, :, 0].sum() == math.floor(math.sqrt(0.8) * GRID * (1 - 1e-9))


def test_a_record_adds_its_own_vector_whoever_stands_beside_it() -> None:
    """Shuffled, in batches of any size, with any others: the same integers."""
    query, generator = sums_of(), np.random.default_rng(3)
    for _ in range(20):
        rows = random_rows(generator, owners=["ann"], most=30)
        alone = sum((exact_sum(query, bounded([row], SECRET)) for row in rows), np.zeros(query.shape, dtype=np.int64))
        for size in (1, 2, 7, 1000):
            shuffled = [rows[place] for place in generator.permutation(len(rows))]
            assert np.array_equal(exact_sum(query, bounded(shuffled, SECRET, batch_size=size)), alone)


def test_only_sampled_records_are_embedded_and_counted() -> None:
    seen: list[str] = []

    class Telling(HashEmbedder):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            seen.extend(texts)
            return super().embed(texts)

    rows = [Row(f"text {number}", number % LABELS) for number in range(20)]
    query = ClusterSums(spec_of(clusters()), clusters(), Telling(), 1.0, 0.8)
    coins = iter([True, False] * 10)

    class Coins(InsecureNoNoise):
        def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
            assert set(rates.tolist()) == {0.5}
            return np.array([next(coins) for _ in rates])

    mechanism = SampledSum(1.0, (((0.5, 3),),), query.sensitivity, (LABELS, K, None))
    some = measure(mechanism, query, bounded(rows, SECRET), source=Coins(), rates=0.5)
    assert seen == [row.text for row in rows[::2]]
    assert np.array_equal(some, exact_sum(query, bounded(rows[::2], SECRET)) / GRID)


@pytest.mark.parametrize("rows", [[], [Row("?!", 1)], [Row("", label) for label in range(LABELS)]])
def test_no_record_and_records_without_a_vector_add_nothing(rows: list[Row]) -> None:
    total = exact_sum(sums_of(), bounded(rows, SECRET))
    assert (total.shape, total.dtype) == ((LABELS, K, 9), np.dtype(np.int64))
    assert not total.any()


# -- what is released of it -------------------------------------------------------------------------------------------


def test_sums_are_counts_and_clipped_residuals_by_hand() -> None:
    made = Clusters(np.array([[[4000, 0], [0, 4000]]], dtype=np.int16), np.array([[5, 7]]))
    near, far = [0.8, 0.6], [-1.0, 0.0]  # 0.63 and 2 from the first; 1.41 from the second
    sums = sums_of_vectors(made, np.array([near, near, far], dtype=np.float32), clip=1.0, size_share=0.75)
    share = math.sqrt(0.75)
    assert sums[0] / GRID == pytest.approx(
        np.array([[2 * share, 2 * 0.5 * -0.2, 2 * 0.5 * 0.6], [share, 0.5 * -math.sqrt(0.5), 0.5 * -math.sqrt(0.5)]]),
        abs=1e-6,
    )


def test_centres_by_hand() -> None:
    """Two private records, both 0.5 from a centre of six public ones."""
    made = Clusters(np.array([[[4000, 0, 0]]], dtype=np.int16), np.array([[6]]))
    sums = np.array([[[2 * math.sqrt(0.75), 0.0, 2 * 0.5 * 0.5 / 1.5, 0.0]]])
    sizes, centres = noisy_centres(made, sums, clip=1.5, size_share=0.75, noise=0.0)
    assert sizes == pytest.approx(np.array([[2.0]]))
    assert centres[0, 0] == pytest.approx([1, 2 * 0.5 / 8, 0])
    shrink = 1 - 0.1**2 / (1 / 3) ** 2  # one of three coordinates counts
    _, shrunk = noisy_centres(made, sums, clip=1.5, size_share=0.75, noise=0.1)
    assert shrunk[0, 0] == pytest.approx([1, shrink * 2 * 0.5 / 8, 0])
    sums[..., 0] = -3.0
    sizes, centres = noisy_centres(made, sums, clip=1.5, size_share=0.75, noise=0.0)
    assert sizes[0, 0] < 0  # as it was drawn; a weight below none counts as none
    assert centres[0, 0] == pytest.approx([1, 2 * 0.5 / 6, 0])


def test_where_all_is_noise_centres_stay_near_the_public_ones() -> None:
    """In the mean over clusters, far nearer than without shrinking."""
    made = clusters(labels=1, count=20, dimension=32)
    noise = 5.0
    sums = np.random.default_rng(0).normal(0, noise, (1, 20, 33))
    _, centres = noisy_centres(made, sums, clip=1.0, size_share=0.8, noise=noise)
    moved = np.linalg.norm(centres - made.centres / STEPS, axis=-1).mean()
    raw = np.linalg.norm(sums[..., 1:] / math.sqrt(0.2) / made.sizes[..., None], axis=-1).mean()
    assert moved < raw / 4
    _, there = noisy_centres(made, np.zeros((1, 20, 33)), clip=1.0, size_share=0.8, noise=noise)
    assert np.array_equal(there, made.centres / STEPS)


# -- public clusters --------------------------------------------------------------------------------------------------


def test_public_clusters_are_the_same_every_time_and_each_text_lies_in_one() -> None:
    public = HashEmbedder().embed([f"public {number}" for number in range(60)])
    labels = (np.arange(60) % LABELS).astype(np.int32)
    first = make_clusters(public, labels, labels=LABELS, count=K, seed=0)
    again = make_clusters(public, labels, labels=LABELS, count=K, seed=0)
    other = make_clusters(public, labels, labels=LABELS, count=K, seed=1)
    assert first.centres.shape == (LABELS, K, 8)
    assert np.array_equal(first.centres, again.centres)
    assert not np.array_equal(first.centres, other.centres)
    assert first.sizes.sum(axis=1).tolist() == [20] * LABELS


def test_clusters_that_lie_apart_are_found_with_their_means_and_sizes() -> None:
    generator = np.random.default_rng(5)
    axes, wanted = np.eye(6), [3, 10, 25, 40]
    near = np.repeat(axes[:4], wanted, axis=0) + generator.normal(0, 0.02, (78, 6))
    public = (near / np.linalg.norm(near, axis=1, keepdims=True)).astype(np.float32)[generator.permutation(78)]
    made = make_clusters(public, None, labels=1, count=4, seed=0)
    assert sorted(made.sizes[0].tolist()) == wanted
    for centre, size in zip(made.centres[0], made.sizes[0].tolist(), strict=True):
        mine = public[(public @ centre) > STEPS / 2]
        assert len(mine) == size
        assert centre / STEPS == pytest.approx(mine.mean(axis=0), abs=2 / STEPS)


@pytest.mark.parametrize("different", [1, 5])
@pytest.mark.filterwarnings("error")
def test_public_texts_that_are_alike_leave_clusters_empty_and_nobody_warns(different: int) -> None:
    public = HashEmbedder().embed([f"public {number % different}" for number in range(20)])
    made = make_clusters(public, None, labels=2, count=5, seed=0)
    assert made.centres.shape == (2, 5, 8)
    assert made.sizes.min() >= 1
    assert len(np.unique(made.centres[0], axis=0)) == different
    assert exact_sum(
        ClusterSums(spec_of(made), made, HashEmbedder(), 1.0, 0.8), bounded([Row("public 0", 1)], SECRET)
    ).any()


def test_records_without_secrets_are_told_by_their_place_in_the_table() -> None:
    rows = [Row(f"text {number}", number % LABELS) for number in range(23)]
    free = np.arange(23) % 5 == 2
    sampling = SamplingRates(1.0, (((1.0, 1),),), free)
    for size in (1, 4, 100):
        parts = list(_without_secrets(bounded(rows, SECRET, batch_size=size), sampling, HashEmbedder()))
        vectors, labels = (np.concatenate(each) for each in zip(*parts, strict=True))
        assert np.array_equal(vectors, HashEmbedder().embed([row.text for row in rows[2::5]]))
        assert labels.tolist() == [row.label for row in rows[2::5]]


def test_fewer_public_texts_than_clusters_are_one_clear_error() -> None:
    public = HashEmbedder().embed(["one", "two"])
    with pytest.raises(ConfigError, match="has 2 texts, too few for 3 clusters"):
        make_clusters(public, None, labels=1, count=3, seed=0)


# -- broken twins -----------------------------------------------------------------------------------------------------


class NotClipped(ClusterSums):
    """A residual counts as long as it is."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        sums = np.zeros(self.shape, dtype=np.int64)
        vectors, labels = private_vectors(self.embedder.embed(batch.texts)), batch.labels
        found = self.assign(vectors, labels)
        known = found >= 0
        vectors, labels, found = vectors[known], labels[known], found[known]
        residuals = vectors.astype(np.int64) - self.clusters.centres[labels, found]
        weight = math.sqrt(1 - self.size_share) * GRID / (self.clip * STEPS)
        np.add.at(sums[..., 0], (labels, found), int(math.sqrt(self.size_share) * GRID))
        np.add.at(sums[..., 1:], (labels, found), np.trunc(residuals * weight).astype(np.int64))
        return sums


class BothWhole(ClusterSums):
    """The size at full weight beside the residual at full weight: two statistics for the price of one."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        each = [ClusterSums(self.spec, self.clusters, self.embedder, self.clip, share) for share in (1e-12, 1 - 1e-12)]
        return each[0].of_batch(batch) + each[1].of_batch(batch)


class RoundedUp(ClusterSums):
    """Coordinates are rounded away from zero."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        sums = np.zeros(self.shape, dtype=np.int64)
        for row in range(len(batch.texts)):
            exact = super().of_batch(batch.only(np.arange(len(batch.texts)) == row))
            sums += exact + np.sign(exact)
        return sums


class Centred(ClusterSums):
    """Residuals are taken from the mean of the batch: a record moves its neighbours' vectors."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        mean = private_vectors(self.embedder.embed(batch.texts)).mean(axis=0, dtype=np.float64).astype(np.int16)
        moved = Clusters(np.broadcast_to(mean, self.clusters.centres.shape), self.clusters.sizes)
        return ClusterSums(self.spec, moved, self.embedder, self.clip, self.size_share).of_batch(batch)


BROKEN = {
    "residuals are not clipped": (NotClipped, 0.1),
    "two statistics for the price of one": (BothWhole, 0.1),
    "coordinates are rounded up": (RoundedUp, 0.01),
    "records are compared to one another": (Centred, 1.0),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_query_is_caught(name: str) -> None:
    kind, clip = BROKEN[name]
    assert largest_movement(sums_of(kind, clip=clip)) > 1
