"""A text is embedded once: what is looked up is what would be computed, and whatever fails costs only time."""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
import sqlite3
import stat
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hashing import Counting, Hashing, bits, write_some
from local_fixtures import make_bert
from numpy.typing import NDArray
from test_text_probe import ByPlace

from understudy.base.errors import ModelError
from understudy.models import vectors
from understudy.models.embedder import SentenceEmbedder
from understudy.models.embedder_checks import require_embeds_all, require_text_invariance
from understudy.models.types import Embedder
from understudy.models.vectors import FOLDER, CachedEmbedder, remembering, uncached

WORDS = [f"note {number}" for number in range(300)]
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


def file(folder: Path) -> Path:
    return folder / FOLDER / "vectors.sqlite"


def stored(folder: Path) -> int:
    """How many vectors the file contains."""
    if not file(folder).exists():
        return 0
    with closing(sqlite3.connect(file(folder))) as connection:
        return int(connection.execute("SELECT count(*) FROM vector").fetchone()[0])


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
def test_another_model_or_version_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, differs: str) -> None:
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


def changed(data: bytes, place: int, number: int = 1) -> bytes:
    """A bit of some bytes is flipped."""
    return data[:place] + bytes(byte ^ 1 for byte in data[place : place + number]) + data[place + number :]


def between(data: bytes, text: str) -> int:
    """Where the file stores the vector of a text."""
    return data.index(bits(Hashing(), [text]))


def exchanged(data: bytes) -> bytes:
    """Two vectors have changed places, with their seals."""
    one, two = (slice(place, place + 16 + 24) for place in (between(data, "note 5"), between(data, "note 6")))
    found = bytearray(data)
    found[one], found[two] = data[two], data[one]
    return bytes(found)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[:-1],
    "cut to half": lambda data: data[: len(data) // 2],
    "cut short": lambda data: data[:10],
    "emptied": lambda data: b"",
    "a vector changed": lambda data: changed(data, between(data, "note 5") + 3),
    "a seal changed": lambda data: changed(data, between(data, "note 5") + 16),
    "two vectors exchanged, seals and all": exchanged,
    "a page changed": lambda data: changed(data, 1 << 14, 1 << 14),
    "all after the header changed": lambda data: changed(data, 100, len(data)),
    "noise": lambda data: np.random.default_rng(0).bytes(len(data)),
    "another program's": lambda data: data.replace(b"numbers", b"letters"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_damaged_file_gives_no_wrong_vector_and_is_made_good(tmp_path: Path, damage: str, when: str) -> None:
    first = kept(Counting(), tmp_path)
    right = bits(first, WORDS)
    file(tmp_path).write_bytes(DAMAGES[damage](file(tmp_path).read_bytes()))
    asked = Counting()
    reader = first if when == "meanwhile" else kept(asked, tmp_path)
    assert bits(reader, WORDS) == right
    assert when == "meanwhile" or asked.seen
    bits(reader, WORDS)
    again = Counting()
    assert bits(kept(again, tmp_path), WORDS) == right
    assert not again.seen


def test_a_row_of_another_type_is_no_vector(tmp_path: Path) -> None:
    right = bits(kept(Counting(), tmp_path), WORDS)
    with closing(sqlite3.connect(file(tmp_path))) as connection, connection:
        connection.execute("UPDATE vector SET numbers = 'sixteen characte'")
    assert bits(kept(Counting(), tmp_path), WORDS) == right


@pytest.mark.parametrize("seed", range(20))
def test_a_vector_is_right_wherever_bits_flip(tmp_path: Path, seed: int) -> None:
    right = bits(kept(Counting(), tmp_path), WORDS)
    rng = np.random.default_rng(seed)
    for _ in range(5):
        data = file(tmp_path).read_bytes()
        for place in rng.integers(0, len(data), 1 + seed):
            data = changed(data, int(place))
        file(tmp_path).write_bytes(data)
        assert bits(kept(Counting(), tmp_path), WORDS) == right


def test_the_seal_is_what_finds_a_changed_vector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = vectors._hash
    monkeypatch.setattr(vectors, "_hash", lambda key, data: whole(key, b"" if len(data) == 16 else data))
    right = bits(kept(Counting(), tmp_path), WORDS)
    data = file(tmp_path).read_bytes()
    file(tmp_path).write_bytes(changed(data, between(data, "note 5")))
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
    assert not stored(tmp_path)


def test_the_file_keeps_to_its_bound_and_vectors_of_other_embedders_make_room(tmp_path: Path) -> None:
    most = 100_000  # bytes
    texts = [f"text {number}" for number in range(2000)]

    def embed_by_hundreds(embedder: Counting) -> list[str]:
        one = kept(embedder, tmp_path, gigabytes=most / 1e9)
        for start in range(0, len(texts), 100):
            some = texts[start : start + 100]
            assert bits(one, some) == bits(Hashing(), some)
            assert file(tmp_path).stat().st_size <= most
        return embedder.seen

    embed_by_hundreds(Counting())
    before = stored(tmp_path)
    assert 100 <= before < len(texts)
    assert embed_by_hundreds(Counting()) == texts[before:], "what is stored stays"
    assert embed_by_hundreds(OtherWeights()) == texts
    assert embed_by_hundreds(OtherWeights()) == texts[before:], "they have taken the place of the first ones"
    assert stored(tmp_path) == before


def test_a_nearly_full_disk_gets_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2**30))
    assert bits(kept(Counting(), tmp_path), WORDS) == bits(Counting(), WORDS)
    assert not stored(tmp_path)


def test_a_missing_folder_or_one_that_is_a_file_costs_only_time(tmp_path: Path) -> None:
    asked = Counting()
    one = kept(asked, tmp_path)
    one.embed(WORDS)
    shutil.rmtree(tmp_path / FOLDER)
    assert bits(one, WORDS) == bits(Counting(), WORDS)
    shutil.rmtree(tmp_path / FOLDER)
    (tmp_path / FOLDER).write_text("a file in its place")
    assert bits(kept(Counting(), tmp_path), WORDS) == bits(Counting(), WORDS)


def test_a_file_that_is_locked_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_WAIT_SECONDS", 0.05)
    one = kept(Counting(), tmp_path)
    one.embed(WORDS[:5])
    with closing(sqlite3.connect(file(tmp_path), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert bits(one, WORDS) == bits(Counting(), WORDS)
    assert stored(tmp_path) == 5


def test_no_text_is_in_the_folder_which_is_for_its_owner_alone(tmp_path: Path) -> None:
    private = tmp_path / "private"
    kept(Counting(), private).embed([f"{PLANT} {number}" for number in range(100)])
    for path in [file(private)]:
        assert PLANT.encode() not in path.read_bytes()
        assert PLANT not in path.name
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((private / FOLDER).stat().st_mode) == 0o700
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_the_probes_try_the_embedder_itself(tmp_path: Path) -> None:
    good, wrong = kept(Counting(), tmp_path), kept(ByPlace(), tmp_path)
    for _ in range(2):
        require_text_invariance(good)
        with pytest.raises(ModelError, match="change with the other texts"):
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


def test_processes_that_write_at_once_find_all_and_lose_nothing(tmp_path: Path) -> None:
    one = kept(Counting(), tmp_path)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(write_some, [(one, 0), (one, 100)])
    texts = [f"text {number}" for number in range(300)]
    assert found == [bits(Hashing(), texts)] * 2
    asked = Counting()
    assert bits(kept(asked, tmp_path), texts) == bits(Hashing(), texts)
    assert asked.seen == []
