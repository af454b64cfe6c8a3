"""Unit vectors on the grid never pass its bound; the private ones are in one file, whole or not there."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from understudy.errors import ModelError, StorageError
from understudy.evolution.embeddings import (
    LARGEST_NORM,
    STEPS,
    Block,
    PrivateEmbeddings,
    integer_vectors,
    private_vectors,
)


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
Batch = tuple[list[str], NDArray[np.int32], NDArray[np.int64]]


def batches(size: int = 4, texts: Sequence[str] = TEXTS) -> Iterator[Batch]:
    for start in range(0, len(texts), size):
        some = list(texts[start : start + size])
        numbers = np.arange(start, start + len(some))
        yield some, (numbers % 3).astype(np.int32), numbers * 7


def untouchable() -> Iterator[Batch]:
    raise AssertionError("a whole file needs no private text")
    yield


def built(folder: Path, some: Iterator[Batch] | None = None, key: str = "k", **kwargs: object) -> PrivateEmbeddings:
    return PrivateEmbeddings.build(
        batches() if some is None else some,
        FakeEmbedder(**kwargs),  # type: ignore[arg-type]
        folder=folder / "private",
        key=key,
    )


def whole(embeddings: PrivateEmbeddings, rows: int = 8192) -> Block:
    blocks = list(embeddings.blocks(rows))
    return Block(*(np.concatenate([getattr(block, name) for block in blocks]) for name in vars(blocks[0])))


# -- the grid ---------------------------------------------------------------------------------------------------------

any_row = hnp.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 40)), elements=st.floats(width=32))


@given(any_row)
def test_whatever_an_embedder_answers_no_rounded_vector_passes_the_bound(vectors: NDArray[np.float32]) -> None:
    rounded = private_vectors(vectors).astype(np.int64)
    assert (np.square(rounded).sum(axis=1) <= LARGEST_NORM**2).all()


@pytest.mark.parametrize("dimension", [1, 2, 384, 4096, 20_000])
def test_unit_vectors_keep_their_direction(dimension: int) -> None:
    exact = np.random.default_rng(dimension).standard_normal((20, dimension))
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    rounded = integer_vectors(exact.astype(np.float32)).astype(np.float64)
    assert np.linalg.norm(rounded, axis=1).max() <= LARGEST_NORM
    assert np.abs(rounded / STEPS - exact).max() <= 0.51 / STEPS
    assert np.array_equal(private_vectors(exact.astype(np.float32)), rounded)


def test_a_vectors_integers_depend_on_that_vector_alone() -> None:
    exact = np.random.default_rng(0).standard_normal((50, 384)).astype(np.float32)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    together = private_vectors(exact)
    for order in ("C", "F"):
        assert np.array_equal(private_vectors(np.asarray(exact, order=order)), together)
    for row in range(50):
        assert np.array_equal(private_vectors(exact[row : row + 1])[0], together[row])


BAD = [[np.nan, 0], [np.nan, 1], [0, 0], [1.1, 0], [0.9, 0], [np.inf, 0], [3e38, 3e38], [1, 1], [-np.inf, np.nan]]


@pytest.mark.parametrize("bad", BAD)
def test_a_vector_that_is_not_of_length_one_is_an_error_for_candidates_and_zero_for_private_records(
    bad: list[float],
) -> None:
    vectors = np.array([[1, 0], bad, [0.6, 0.8]], dtype=np.float32)
    with pytest.raises(ModelError, match="one unit vector per text"):
        integer_vectors(vectors)
    assert np.array_equal(private_vectors(vectors), [[STEPS, 0], [0, 0], [2400, 3200]])


def test_no_candidates_are_no_error() -> None:
    assert integer_vectors(np.zeros((0, 7), dtype=np.float32)).shape == (0, 7)


# -- on disk ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 4, 10, 8192])
@pytest.mark.parametrize("size", [1, 4, 100])
def test_the_records_come_back_in_order_in_blocks_of_any_size(tmp_path: Path, rows: int, size: int) -> None:
    found = whole(built(tmp_path, batches(size)), rows)
    assert np.array_equal(found.vectors, private_vectors(FakeEmbedder().embed(TEXTS)))
    assert np.array_equal(found.labels, np.arange(23) % 3)
    assert np.array_equal(found.units, np.arange(23) * 7)
    assert [part.dtype for part in (found.vectors, found.labels, found.units)] == [np.int16, np.int32, np.int64]


def test_blocks_are_read_only_and_no_larger_than_asked_for(tmp_path: Path) -> None:
    blocks = list(built(tmp_path).blocks(10))
    assert [len(block.labels) for block in blocks] == [10, 10, 3]
    with pytest.raises(ValueError, match="read-only"):
        blocks[0].vectors[0, 0] = 1


@pytest.mark.parametrize("some", [[], [([], np.zeros(0, np.int32), np.zeros(0, np.int64))]], ids=["none", "empty"])
def test_no_record_at_all_is_a_whole_file_with_a_dimension(tmp_path: Path, some: list[Batch]) -> None:
    embeddings = built(tmp_path, iter(some))
    assert (embeddings.count, embeddings.dimension) == (0, 5)
    assert list(embeddings.blocks()) == []
    assert built(tmp_path, untouchable()) == embeddings


@pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX")
def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    embeddings = built(tmp_path)
    assert stat.S_IMODE(embeddings.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(embeddings.file.parent.stat().st_mode) == 0o700


def test_a_whole_file_is_used_again_and_no_private_text_is_read(tmp_path: Path) -> None:
    first = built(tmp_path)
    assert built(tmp_path, untouchable()) == first


@pytest.mark.parametrize("change", [{"key": "other"}, {"fingerprint": "other"}])
def test_the_file_of_other_records_or_of_another_embedder_is_replaced(tmp_path: Path, change: dict[str, str]) -> None:
    built(tmp_path)
    again = built(tmp_path, batches(texts=TEXTS[:5]), **change)  # type: ignore[arg-type]
    assert again.count == len(whole(again).labels) == 5
    assert [path.name for path in again.file.parent.iterdir()] == [again.file.name]


@pytest.mark.parametrize("left", [0, 10, 60, -1])
def test_a_file_that_was_cut_off_is_made_anew(tmp_path: Path, left: int) -> None:
    first = built(tmp_path)
    before = first.file.read_bytes()
    first.file.write_bytes(before[:left])
    assert built(tmp_path) == first
    assert first.file.read_bytes() == before


def test_a_run_that_dies_half_way_leaves_no_file_and_what_a_killed_one_left_is_cleared(tmp_path: Path) -> None:
    def dying() -> Iterator[Batch]:
        yield from list(batches())[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        built(tmp_path, dying())
    folder = tmp_path / "private"
    assert list(folder.iterdir()) == []
    (folder / ".embeddings.bin.12345678.tmp").write_bytes(b"half")
    assert [path.name for path in built(tmp_path).file.parent.iterdir()] == ["embeddings.bin"]


def test_private_records_whose_vectors_are_nonsense_are_zero_and_nothing_fails(tmp_path: Path) -> None:
    odd = {TEXTS[3]: np.nan, TEXTS[8]: 0.0, TEXTS[22]: 2.0}
    found = whole(built(tmp_path, odd=odd))
    assert np.flatnonzero(~found.vectors.any(axis=1)).tolist() == [3, 8, 22]


def test_an_embedder_that_answers_in_another_shape_is_an_error_that_quotes_nothing(tmp_path: Path) -> None:
    class Changing(FakeEmbedder):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return super().embed(texts)[:, : 3 if len(texts) > 1 else 5]

    with pytest.raises(ModelError, match="one vector per text") as caught:
        PrivateEmbeddings.build(batches(), Changing(), folder=tmp_path, key="k")
    assert "Zebra" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "private").write_text("a file")
    with pytest.raises(StorageError, match="cannot be written"):
        built(tmp_path)


def test_nothing_private_shows_in_a_repr(tmp_path: Path) -> None:
    embeddings = built(tmp_path)
    shown = re.sub("0x[0-9a-f]+", "", repr(embeddings))  # the place in memory, which may hold any digits
    assert "23" not in shown
    assert "array" not in repr(next(embeddings.blocks()))


def test_the_room_loads_neither_torch_nor_the_corpus() -> None:
    code = (
        "import sys, understudy.evolution.voting, understudy.evolution.embeddings\n"
        "loaded = {name for name in sys.modules if name.startswith(('torch', 'understudy.corpus'))}\n"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
