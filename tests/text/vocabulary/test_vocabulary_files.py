"""Where public vocabularies come from, and what is left out of them."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from understudy.base.errors import ConfigError
from understudy.text.vocabulary import terms as terms_module
from understudy.text.vocabulary.terms import Vocabulary, is_unwanted, load_stop_words, load_vocabulary

NONE: frozenset[str] = frozenset()


def load(path: Path) -> tuple[str, ...]:
    return load_vocabulary(path, stop_words="none").terms


@pytest.mark.parametrize(
    ("name", "pack"),
    [("t.txt", bytes), ("t.txt.gz", gzip.compress), ("t.txt.bz2", bz2.compress), ("t.txt.xz", lzma.compress)],
)
def test_text_files_in_any_compression_keep_order(tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / name
    path.write_bytes(pack("\ufeffzebra\r\n\n  heart   attack \nÄpfel\n".encode()))
    assert load(path) == ("zebra", "heart attack", "Äpfel")


@pytest.mark.parametrize(
    ("name", "content", "terms"),
    [
        ("t.txt", "rare\t1\nheart attack\t1e3\ncommon\t20\n", ("heart attack", "common", "rare")),
        ("t.txt", "rare\t1\ncommon\n", ("rare", "common")),
        ("t.csv", "term\nb\nzebra\napple\n", ("zebra", "apple")),
    ],
)
def test_terms_are_ordered_by_their_frequencies_if_all_have_one(
    tmp_path: Path, name: str, content: str, terms: tuple[str, ...]
) -> None:
    (tmp_path / name).write_text(content)
    assert load(tmp_path / name) == terms


@pytest.mark.parametrize("column", ["term", "word"])
@pytest.mark.parametrize(
    ("weight", "values"), [("count", [1, 30, 2]), ("frequency", [0.1, 0.9, 0.2]), ("centibels", [-900, -10, -500])]
)
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_tables_are_frequency_ordered(tmp_path: Path, column: str, weight: str, values: list[float], form: str) -> None:
    table = pa.table({column: ["rare", "common", "middle"], weight: values})
    path = tmp_path / f"t.{form}"
    (pyarrow.csv.write_csv if form == "csv" else pyarrow.parquet.write_table)(table, str(path))
    assert load(path) == ("common", "middle", "rare")


def test_a_table_without_a_column_of_terms_or_a_number_as_frequency_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("phrase\nzebra\n")
    with pytest.raises(ConfigError, match="no column 'term'"):
        load(path)
    path.write_text("term,count\nzebra,5\napple,many\n")
    with pytest.raises(ConfigError, match="not a number"):
        load(path)
    path.write_text("term,count\nzebra,\napple,5\n")
    assert load(path) == ("apple", "zebra")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("missing.txt", None),
        ("t.txt.gz", b"no gzip"),
        ("t.txt.xz", b"no xz"),
        ("t.txt.gz", gzip.compress(b"zebra\n" * 99, mtime=0)[:-9]),
        ("t.txt", b"\xff\xfe\x00latin"),
        ("t.parquet", b"PAR1 no table"),
        ("t.csv", b""),
    ],
)
def test_an_unreadable_file_is_one_clear_error(tmp_path: Path, name: str, content: bytes | None) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(path)


@pytest.mark.parametrize("content", ["", "\n \n", "7\n42\n", "x\nY\n", "...\n"])
def test_a_file_without_a_useful_term_is_one_clear_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t.txt"
    path.write_text(content)
    with pytest.raises(ConfigError, match="empty"):
        load(path)


def test_a_vocabulary_beyond_the_limit_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every term gets noise of its own, at microseconds each."""
    monkeypatch.setattr(terms_module, "LARGEST", 3)
    several = ["aa", "bb", "cc", "dd"]
    with pytest.raises(ConfigError, match="more than 3 terms"):
        Vocabulary.of(several, source="x", stop_words=NONE)


def test_stop_words_one_letter_terms_and_numbers_are_left_out_and_doubles_count_once() -> None:
    made = Vocabulary.of(
        ["the", "of", "a", "7", "The Heart", "heart", "HEART", "x-ray", "x ray", "é", "4 5", "vitamin d", ""],
        source="x",
        stop_words=load_stop_words(None),
    )
    assert made.terms == ("The Heart", "heart", "x-ray", "é", "vitamin d")


def test_stop_words_of_your_own_replace_the_built_in_ones(tmp_path: Path) -> None:
    path = tmp_path / "stop.txt"
    path.write_text("Heart\n")
    assert load_stop_words(path) == {"heart"}
    assert load_stop_words("none") == NONE
    assert "the" in load_stop_words(None)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_stop_words(tmp_path / "missing.txt")


def test_the_hash_names_the_terms_as_used_and_is_stable() -> None:
    made = Vocabulary.of(["zebra", " apple  pie"], source="x", stop_words=NONE)
    assert made.sha256 == hashlib.sha256(b"zebra\napple pie").hexdigest()
    assert made.sha256 == Vocabulary.of(["zebra", "apple pie", "Zebra"], source="y", stop_words=NONE).sha256
    assert made.sha256 != Vocabulary.of(["apple pie", "zebra"], source="x", stop_words=NONE).sha256


def test_the_built_in_vocabulary_is_english_by_frequency() -> None:
    made = load_vocabulary()
    assert made.source == "built-in (English words of symspellpy)"
    assert not {"fag", "kike", "shithead"} & set(made.terms)
    assert {"cocktail", "peacock"} <= set(made.terms)
    assert 70_000 < len(made.terms) < 83_000
    assert "the" not in made.terms
    assert not {"spaatz", "luzern", "quetzalcoatl"} & set(made.terms), "names that hardly any text has"
    assert {"london", "baghdad", "obama", "lucerne", "fallopian"} <= set(made.terms)
    assert made.terms[:2_000].count("people") == 1


@pytest.mark.parametrize(
    ("term", "tongue", "unwanted"),
    [
        *[("Sex", "en", True), ("anal", "de", True), ("shitty", "en", True), ("gross anal", "en", True)],
        *[("hit", "en", False), ("a", "en", False), ("sextant", "en", False), ("analysis", "en", False)],
        *[("Arschloch", "de", True), ("Arschloch", "en", False), ("merde", "fr", True), ("rash", "xx", False)],
    ],
)
def test_public_lists_of_each_language_say_what_nobody_should_read(term: str, tongue: str, unwanted: bool) -> None:
    assert is_unwanted(term, tongue) is unwanted


def test_a_vocabulary_file_that_changed_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "terms.txt"
    file.write_text("fever\ncough\n", "utf-8")
    assert load_vocabulary(file).terms == ("fever", "cough")
    file.write_text("fever\nrash\nitch\n", "utf-8")
    assert load_vocabulary(file).terms == ("fever", "rash", "itch")
