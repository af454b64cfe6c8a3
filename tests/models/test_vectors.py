"""A text is embedded once: what is looked up is what would be computed, and whatever fails costs only time."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hashing import Counting, Hashing, bits, write_some
from local_fixtures import make_bert
from numpy.typing import NDArray
from test_text_probe import ByPlace

from understudy.base.errors import ModelError
from understudy.base.files import atomic_file
from understudy.models import vectors
from understudy.models.embedder import SentenceEmbedder
from understudy.models.embedder_checks import require_embeds_all, require_text_invariance
from understudy.models.types import Embedder
from understudy.models.vectors import FOLDER, CachedEmbedder, remembering, uncached

WORDS = [f"note {number}" for number in range(300)]
ENTRY = 8 + 4 * 4 + 16  # bytes of a text with four numbers
PLANT = "zqxvkjw"


class OtherWeights(Counting):
    fingerprint = "2" * 64


class OtherBits(Counting):
    """Another machine, by which all else is the same: the last bit of some numbers differs."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        found = super().embed(texts)
        found[:, 0] = np.nextafter(found[:, 0], np.float32(2))
        return found


OtherBits.__module__, OtherBits.__qualname__ = Counting.__module__, Counting.__qualname__


def kept(embedder: Embedder, folder: Path, *, gigabytes: float = 1) -> Embedder:
    return remembering(embedder, folder, gigabytes=gigabytes)


def segments(folder: Path) -> list[Path]:
    return sorted((folder / FOLDER).glob("*.vectors"))


def test_a_vector_is_the_same_bit_for_bit_whether_it_was_kept_or_not(tmp_path: Path) -> None:
    odd = [*WORDS, "", "note 3", "\ud800 half", "a" * 9000, "\x00"]
    right = bits(Hashing(), odd)
    for _ in range(3):
        assert bits(kept(Hashing(), tmp_path), odd) == right
    assert bits(kept(Hashing(), tmp_path), odd[::-1]) == bits(Hashing(), odd[::-1])


def test_a_real_embedder_gives_the_same_bits_from_the_folder(tmp_path: Path) -> None:
    model = make_bert(tmp_path / "model")
    plain = SentenceEmbedder(model, name="tiny")
    texts = ["a note", "the heart of a patient", "a " * 40, "", *("b" * n for n in range(1, 30))]
    first, again = kept(plain, tmp_path), kept(SentenceEmbedder(model, name="tiny"), tmp_path)
    assert bits(plain, texts) == bits(first, texts) == bits(again, texts[:7]) + bits(again, texts[7:])


def test_a_text_is_embedded_once_however_often_it_comes_and_whoever_asks(tmp_path: Path) -> None:
    first, beside, later = Counting(), Counting(), Counting()
    one, two = kept(first, tmp_path), kept(beside, tmp_path)
    two.embed(["a"])
    one.embed([*WORDS, *WORDS])
    one.embed(WORDS[::-1])
    assert first.seen == WORDS
    two.embed([*WORDS, "a"])
    assert beside.seen == ["a"], "what one process adds the other finds"
    kept(later, tmp_path).embed([*WORDS[:50], "new"])
    assert later.seen == ["new"]


@pytest.mark.parametrize("differs", ["weights", "bits", "version", "processor"])
def test_another_model_machine_or_version_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, differs: str
) -> None:
    kept(Counting(), tmp_path).embed(WORDS)
    other = {"weights": OtherWeights, "bits": OtherBits}.get(differs, Counting)
    vectors._machine.cache_clear()
    if differs == "version":
        monkeypatch.setattr("importlib.metadata.version", lambda name: "0.0")
    elif differs == "processor":
        monkeypatch.setattr("platform.machine", lambda: "another")
    asked = other()
    assert bits(kept(asked, tmp_path), WORDS) == bits(other(), WORDS)
    vectors._machine.cache_clear()
    assert asked.seen == WORDS


def changed(data: bytes, *, first: int = -20, last: int = -19) -> bytes:
    """A bit of the last vector, or more."""
    numbers = np.frombuffer(data, dtype=np.uint8).copy()
    numbers[first:last] ^= 1
    return numbers.tobytes()


_ROW = ENTRY - 8
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[:-1],
    "cut short": lambda data: data[:10],
    "emptied": lambda data: b"",
    "changed": changed,
    "all changed": lambda data: changed(data, first=24 + 8 * len(WORDS), last=len(data)),
    "two vectors exchanged, seals and all": lambda data: data[: -2 * _ROW] + data[-_ROW:] + data[-2 * _ROW : -_ROW],
    "noise": lambda data: np.random.default_rng(0).bytes(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_damaged_segment_is_left_out_and_removed(tmp_path: Path, damage: str, when: str) -> None:
    first = kept(Counting(), tmp_path)
    right = bits(first, WORDS)
    (whole,) = segments(tmp_path)
    whole.write_bytes(DAMAGES[damage](whole.read_bytes()))
    asked = Counting()
    reader = first if when == "meanwhile" else kept(asked, tmp_path)
    assert bits(reader, WORDS) == right
    assert when == "meanwhile" or asked.seen
    assert not whole.exists()
    again = Counting()
    assert bits(kept(again, tmp_path), WORDS) == right
    assert len(again.seen) < len(WORDS)


def test_the_seal_is_what_finds_a_changed_vector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors._Segments, "_seal", lambda self, key, vector: bytes(16))
    right = bits(kept(Counting(), tmp_path), WORDS)
    (segment,) = segments(tmp_path)
    segment.write_bytes(changed(segment.read_bytes()))
    with pytest.raises(AssertionError):
        assert bits(kept(Counting(), tmp_path), WORDS) == right


class Sometimes(Counting):
    """Some texts have no finite vector."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        found = super().embed(texts)
        for row, text in enumerate(texts):
            if text.endswith("7"):
                found[row, 1] = np.nan if text.endswith("17") else np.inf
        return found


def test_what_is_not_finite_is_never_stored(tmp_path: Path) -> None:
    assert bits(kept(Sometimes(), tmp_path), WORDS) == bits(Sometimes(), WORDS)
    asked = Sometimes()
    assert bits(kept(asked, tmp_path), WORDS) == bits(Sometimes(), WORDS)
    assert asked.seen == [text for text in WORDS if text.endswith("7")]


@pytest.mark.parametrize("answer", [np.zeros((3, 4)), np.zeros((2, 5)), "no vectors", [[1.0], [1.0, 2.0]], None])
def test_an_answer_without_sense_goes_through_as_it_is(tmp_path: Path, answer: object) -> None:
    class Nonsense(Counting):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return answer if "odd" in texts else super().embed(texts)  # type: ignore[return-value]

    assert kept(Nonsense(), tmp_path).embed(["odd", "text"]) is answer
    assert not segments(tmp_path)


def test_the_folder_keeps_to_its_bound_and_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    hundred = 24 + 100 * ENTRY
    most = 3 * hundred / 1e9

    def batch(number: int) -> list[str]:
        return [f"{number} {place}" for place in range(100)]

    one = kept(Counting(), tmp_path, gigabytes=most)
    for number in range(5):
        one.embed(batch(number))
    assert sum(path.stat().st_size for path in segments(tmp_path)) == 3 * hundred  # what it uses itself stays
    for number in (0, 2):
        kept(Counting(), tmp_path, gigabytes=most).embed(batch(number))
    other = Counting()
    two = kept(other, tmp_path, gigabytes=most)
    two.embed(batch(9))
    assert sum(path.stat().st_size for path in segments(tmp_path)) == 3 * hundred
    two.embed([*batch(0), *batch(2), *batch(9)])
    assert other.seen == batch(9)
    two.embed(batch(1))
    assert other.seen == [*batch(9), *batch(1)]


def test_a_file_that_is_gone_before_it_is_looked_at_does_not_keep_others_from_being_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone:
        name = ".another.tmp"

        def stat(self) -> None:
            raise FileNotFoundError

    whole = os.scandir

    @contextmanager
    def scan(path: Path) -> Iterator[list[Any]]:
        with whole(path) as entries:
            yield [Gone(), *entries]

    monkeypatch.setattr(os, "scandir", scan)
    kept(Counting(), tmp_path).embed(WORDS)
    monkeypatch.undo()
    assert len(segments(tmp_path)) == 1


def test_a_nearly_full_disk_gets_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2**30))
    assert bits(kept(Counting(), tmp_path), WORDS) == bits(Counting(), WORDS)
    assert not segments(tmp_path)


def test_small_segments_become_one_and_nothing_is_lost(tmp_path: Path) -> None:
    asked, beside, watching = Counting(), Counting(), Counting()
    one, two = kept(asked, tmp_path), kept(beside, tmp_path)
    two.embed(["beside"])
    reader = kept(watching, tmp_path)
    for text in WORDS[:100]:
        one.embed([text])
        reader.embed(WORDS[:1])  # it knows segments that are gone by then
    assert len(segments(tmp_path)) < 20
    assert watching.seen == []
    assert bits(reader, [*WORDS[:100], "beside"]) == bits(Counting(), [*WORDS[:100], "beside"])
    assert watching.seen == []
    assert asked.seen == WORDS[:100]


def test_a_missing_folder_or_an_unwritable_one_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Counting()
    one = kept(asked, tmp_path)
    one.embed(WORDS)
    shutil.rmtree(tmp_path / FOLDER)
    assert bits(one, WORDS) == bits(Counting(), WORDS)
    (tmp_path / FOLDER).write_text("a file in its place")
    assert bits(kept(Counting(), tmp_path), WORDS) == bits(Counting(), WORDS)
    (tmp_path / FOLDER).unlink()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(vectors, "atomic_file", full)
    assert bits(kept(Counting(), tmp_path), WORDS) == bits(Counting(), WORDS)


@pytest.mark.parametrize("content", [b"", b"short"])
def test_a_damaged_key_is_made_anew(tmp_path: Path, content: bytes) -> None:
    kept(Counting(), tmp_path).embed(WORDS)
    (tmp_path / FOLDER / "key").write_bytes(content)
    for seen in (WORDS, []):
        asked = Counting()
        assert bits(kept(asked, tmp_path), WORDS) == bits(Counting(), WORDS)
        assert asked.seen == seen


def test_two_that_begin_at_once_have_one_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FOLDER).mkdir()
    theirs: list[bytes] = []

    def late(path: Path, *, mode: int) -> object:
        if not theirs:
            theirs.append(b"")  # from here on as before
            theirs[0] = vectors._secret(tmp_path / FOLDER)
        return atomic_file(path, mode=mode)

    monkeypatch.setattr(vectors, "atomic_file", late)
    assert vectors._secret(tmp_path / FOLDER) == theirs[0]
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["key"]


def test_no_text_is_in_the_folder_which_is_for_its_owner_alone(tmp_path: Path) -> None:
    private = tmp_path / "private"
    kept(Counting(), private).embed([f"{PLANT} {number}" for number in range(100)])
    files = list((private / FOLDER).iterdir())
    assert len(files) == 2
    for path in files:
        assert PLANT.encode() not in path.read_bytes()
        assert PLANT not in path.name
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((private / FOLDER).stat().st_mode) == 0o700
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_the_probes_try_the_embedder_itself(tmp_path: Path) -> None:
    good, wrong = kept(Counting(), tmp_path), kept(ByPlace(), tmp_path)
    for _ in range(2):
        require_text_invariance(good)
        with pytest.raises(ModelError, match="change with the texts beside them"):
            require_text_invariance(wrong)
    asked = Counting()
    wrapped = kept(asked, tmp_path)
    assert require_embeds_all(wrapped) == 4
    seen = len(asked.seen)
    require_embeds_all(wrapped)
    assert len(asked.seen) == 2 * seen > 0
    assert not (tmp_path / FOLDER).exists()
    assert uncached(wrapped) is asked
    assert uncached(asked) is asked


def test_an_endpoint_no_folder_and_no_room_mean_the_embedder_itself(tmp_path: Path) -> None:
    class Elsewhere(Counting):
        local = False

    class Silent(Counting):
        local = None  # type: ignore[assignment]

    for each in (Elsewhere(), Silent()):
        assert remembering(each, tmp_path, gigabytes=1) is each
    plain = Counting()
    assert remembering(plain, None, gigabytes=1) is plain
    assert remembering(plain, tmp_path, gigabytes=0) is plain


def test_it_travels_to_other_processes(tmp_path: Path) -> None:
    one = kept(Hashing(), tmp_path)
    one.embed(WORDS)
    sent = pickle.dumps(one)
    again = pickle.loads(sent)
    assert isinstance(again, CachedEmbedder)
    assert pickle.loads(sent) is again
    assert len(sent) < 1000
    assert (again.model_id, again.fingerprint, again.local) == (one.model_id, one.fingerprint, True)
    assert bits(again, WORDS) == bits(one, WORDS)


@pytest.mark.slow
def test_processes_that_write_at_once_find_all_and_lose_nothing(tmp_path: Path) -> None:
    one = kept(Counting(), tmp_path)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(write_some, [(one, 0), (one, 100)])
    texts = [f"text {number}" for number in range(300)]
    assert found == [bits(Hashing(), texts)] * 2
    asked = Counting()
    assert bits(kept(asked, tmp_path), texts) == bits(Hashing(), texts)
    assert asked.seen == []
