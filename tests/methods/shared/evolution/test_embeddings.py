"""Unit vectors on the grid never pass its bound; the private ones are in one file, whole or not there."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from understudy.base.errors import ModelError
from understudy.methods.shared.evolution import embeddings as embedding


class FakeEmbedder:
    """A unit vector made of a text's length; what it is told to answer for the texts in ``odd``."""

    model_id = "fake"

    def __init__(self, dimension: int = 5, fingerprint: str = "f", odd: dict[str, float] | None = None) -> None:
        self.dimension = dimension
        self.fingerprint = fingerprint
        self.odd = odd or {}

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            angle = len(text) / 7
            vectors[row, :2] = np.cos(angle), np.sin(angle)
            if text in self.odd:
                vectors[row] = self.odd[text]
        return vectors


TEXTS = [f"Zebra {'x' * number}" for number in range(23)]


@dataclass(frozen=True)
class Batch:
    texts: list[str]
    labels: NDArray[np.int32]
    units: NDArray[np.int64]


@dataclass(frozen=True)
class Records:
    """Texts in batches of ``size``, which die after ``dies_after`` of them; ``units`` by number."""

    texts: Sequence[str] = tuple(TEXTS)
    size: int = 4
    dies_after: int | None = None
    units: Sequence[int] = tuple(range(0, 23 * 7, 7))

    def batches(self) -> Iterator[Batch]:
        for number, start in enumerate(range(0, len(self.texts), self.size)):
            if number == self.dies_after:
                raise KeyboardInterrupt
            some = list(self.texts[start : start + self.size])
            labels = np.arange(start, start + len(some)) % 3
            yield Batch(some, labels.astype(np.int32), np.array(self.units[start : start + len(some)]))


class Untouchable:
    def batches(self) -> Iterator[Batch]:
        raise AssertionError("a whole file needs no private text")


class NoRecord:
    def batches(self) -> Iterator[Batch]:
        yield Batch([], np.zeros(0, np.int32), np.zeros(0, np.int64))


def built(
    folder: Path, some: Any = None, key: str = "k", rows: int = 8192, said: list[str] | None = None, **kwargs: Any
) -> embedding.PrivateEmbeddings:
    return embedding.PrivateEmbeddings(
        Records() if some is None else some,
        FakeEmbedder(**kwargs),
        folder / "private",
        key,
        rows=rows,
        say=(said if said is not None else []).append,
    )


def file_of(embeddings: embedding.PrivateEmbeddings) -> Path:
    return embeddings.folder / "embeddings.bin"


def whole(embeddings: embedding.PrivateEmbeddings) -> embedding.Block:
    blocks = list(embeddings.batches())
    return embedding.Block(*(np.concatenate([getattr(block, name) for block in blocks]) for name in vars(blocks[0])))


def same(one: embedding.PrivateEmbeddings, other: embedding.PrivateEmbeddings) -> bool:
    first, second = whole(one), whole(other)
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in vars(first))


# -- the grid ---------------------------------------------------------------------------------------------------------

any_row = hnp.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 40)), elements=st.floats(width=32))


@given(any_row)
def test_whatever_an_embedder_answers_no_rounded_vector_passes_the_bound(vectors: NDArray[np.float32]) -> None:
    rounded = embedding.private_vectors(vectors).astype(np.int64)
    assert (np.square(rounded).sum(axis=1) <= embedding.LARGEST_NORM**2).all()


@pytest.mark.parametrize("dimension", [1, 384, 20_000])
def test_unit_vectors_keep_their_direction(dimension: int) -> None:
    exact = np.random.default_rng(dimension).standard_normal((20, dimension))
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    rounded = embedding.integer_vectors(exact.astype(np.float32)).astype(np.float64)
    assert np.linalg.norm(rounded, axis=1).max() <= embedding.LARGEST_NORM
    assert np.abs(rounded / embedding.STEPS - exact).max() <= 0.51 / embedding.STEPS
    assert np.array_equal(embedding.private_vectors(exact.astype(np.float32)), rounded)


def test_a_vectors_integers_depend_on_that_vector_alone() -> None:
    exact = np.random.default_rng(0).standard_normal((50, 384)).astype(np.float32)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    together = embedding.private_vectors(exact)
    for order in ("C", "F"):
        assert np.array_equal(embedding.private_vectors(np.asarray(exact, order=order)), together)
    for row in range(50):
        assert np.array_equal(embedding.private_vectors(exact[row : row + 1])[0], together[row])


BAD = [[np.nan, 0], [np.nan, 1], [0, 0], [1.1, 0], [0.9, 0], [np.inf, 0], [3e38, 3e38], [1, 1], [-np.inf, np.nan]]


@pytest.mark.parametrize("bad", BAD)
def test_a_vector_of_another_length_than_one_is_an_error_for_candidates_and_zero_for_records(bad: list[float]) -> None:
    vectors = np.array([[1, 0], bad, [0.6, 0.8]], dtype=np.float32)
    with pytest.raises(ModelError, match="one vector of length 1 per text"):
        embedding.integer_vectors(vectors)
    assert np.array_equal(embedding.private_vectors(vectors), [[embedding.STEPS, 0], [0, 0], [2400, 3200]])


# -- on disk ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 10, 8192])
@pytest.mark.parametrize("size", [1, 100])
def test_the_records_come_back_in_order_in_blocks_of_any_size(tmp_path: Path, rows: int, size: int) -> None:
    found = whole(built(tmp_path, Records(size=size), rows=rows))
    assert np.array_equal(found.vectors, embedding.private_vectors(FakeEmbedder().embed(TEXTS)))
    assert np.array_equal(found.labels, np.arange(23) % 3)
    assert np.array_equal(found.units, np.arange(23) * 7)
    assert [part.dtype for part in (found.vectors, found.labels, found.units)] == [np.int16, np.int32, np.int64]


def test_blocks_are_no_larger_than_asked_for_and_nothing_that_is_done_to_one_changes_the_file(tmp_path: Path) -> None:
    embeddings = built(tmp_path, rows=10)
    blocks = list(embeddings.batches())
    assert [len(block.labels) for block in blocks] == [10, 10, 3]
    before = file_of(embeddings).read_bytes()
    for block in blocks:
        block.labels[:], block.units[:] = 9, 9
        if block.vectors.flags.writeable:
            block.vectors[:] = 9
    assert file_of(embeddings).read_bytes() == before
    assert same(embeddings, built(tmp_path, Untouchable()))


@pytest.mark.parametrize("rows", [1, 5, 8192])
def test_all_records_of_a_unit_are_in_one_block(tmp_path: Path, rows: int) -> None:
    units = [number * 5 % 7 for number in range(23)]
    blocks = list(built(tmp_path, Records(units=units), rows=rows).batches())
    where = [set(block.units.tolist()) for block in blocks]
    assert sum(map(len, where)) == 7 == len(set().union(*where))
    found = [
        (unit, label, vector.tobytes())
        for block in blocks
        for unit, label, vector in zip(block.units.tolist(), block.labels.tolist(), block.vectors, strict=True)
    ]
    vectors = embedding.private_vectors(FakeEmbedder().embed(TEXTS))
    assert sorted(found) == sorted((units[n], n % 3, vectors[n].tobytes()) for n in range(23))
    assert max(len(block.units) for block in blocks) < rows + 4, "a unit has four records at most"


def test_nothing_is_embedded_before_it_is_asked_for_and_then_it_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    embeddings = built(tmp_path, said=said)
    assert not said
    assert not embeddings.folder.exists()
    for _ in range(2):
        whole(embeddings)
    whole(built(tmp_path, Untouchable(), said=said))
    assert said == ["Embedding the private texts. Ten thousand take minutes on a few cores."]


@pytest.mark.parametrize("some", [Records(()), NoRecord()], ids=["none", "empty"])
def test_no_record_at_all_is_a_whole_file_with_a_dimension(tmp_path: Path, some: Any) -> None:
    embeddings = built(tmp_path, some)
    assert list(embeddings.batches()) == []
    assert (embeddings._file.count, embeddings._file.dimension) == (0, 5)
    assert list(built(tmp_path, Untouchable()).batches()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX")
def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    embeddings = built(tmp_path)
    whole(embeddings)
    assert stat.S_IMODE(file_of(embeddings).stat().st_mode) == 0o600
    assert stat.S_IMODE(embeddings.folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("change", [{"key": "other"}, {"fingerprint": "other"}])
def test_the_file_of_other_records_or_of_another_embedder_is_replaced(tmp_path: Path, change: dict[str, str]) -> None:
    whole(built(tmp_path))
    again = built(tmp_path, Records(TEXTS[:5]), **change)
    assert len(whole(again).labels) == 5
    assert list(again.folder.iterdir()) == [file_of(again)]


class Elsewhere(FakeEmbedder):
    """The same model on another device, where vectors differ in their last bits."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.nextafter(super().embed(texts), np.float32(2))


def test_the_file_of_another_device_is_replaced(tmp_path: Path) -> None:
    whole(built(tmp_path))
    whole(built(tmp_path, Untouchable()))
    again = replace(built(tmp_path, Records(TEXTS[:5])), embedder=Elsewhere())
    assert len(whole(again).labels) == 5


@pytest.mark.parametrize("left", [0, 10, 60, -1])
def test_a_file_that_was_cut_off_is_made_anew(tmp_path: Path, left: int) -> None:
    first = built(tmp_path)
    expected = whole(first)
    before = file_of(first).read_bytes()
    file_of(first).write_bytes(before[:left])
    assert np.array_equal(whole(built(tmp_path)).vectors, expected.vectors)
    assert file_of(first).read_bytes() == before


def test_a_run_that_dies_half_way_leaves_no_file_and_what_a_killed_one_left_is_cleared(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        whole(built(tmp_path, Records(dies_after=2)))
    folder = tmp_path / "private"
    assert list(folder.iterdir()) == []
    (folder / ".embeddings.bin.12345678.tmp").write_bytes(b"half")
    whole(built(tmp_path))
    assert [path.name for path in folder.iterdir()] == ["embeddings.bin"]


def test_private_records_whose_vectors_are_nonsense_are_zero_and_nothing_fails(tmp_path: Path) -> None:
    odd = {TEXTS[3]: np.nan, TEXTS[8]: 0.0, TEXTS[22]: 2.0}
    found = whole(built(tmp_path, odd=odd))
    assert np.flatnonzero(~found.vectors.any(axis=1)).tolist() == [3, 8, 22]


def test_an_embedder_that_answers_in_another_shape_is_an_error_that_quotes_nothing(tmp_path: Path) -> None:
    class Changing(FakeEmbedder):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return super().embed(texts)[:, : 3 if len(texts) > 1 else 5]

    with pytest.raises(ModelError, match="one vector per text") as caught:
        whole(embedding.PrivateEmbeddings(Records(), Changing(), tmp_path, "k"))
    assert "Zebra" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_nothing_private_shows_in_a_repr(tmp_path: Path) -> None:
    embeddings = built(tmp_path)
    whole(embeddings)
    shown = re.sub("0x[0-9a-f]+", "", repr(embeddings))  # the place in memory, which may hold any digits
    assert "23" not in shown
    assert "array" not in repr(next(embeddings.batches()))


def test_the_room_loads_neither_torch_nor_the_corpus() -> None:
    code = (
        "import sys, understudy.methods.shared.evolution.voting, understudy.methods.shared.evolution.embeddings\n"
        "loaded = {name for name in sys.modules if name.startswith(('torch', 'understudy.corpus'))}\n"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
