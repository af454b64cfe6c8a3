"""A pass over private data sees at its end whether they are those that were charged."""

from __future__ import annotations

import csv
import gc
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from understudy.base.errors import CorpusError
from understudy.corpus import Corpus, read_corpus
from understudy.corpus.verified import VerifiedCorpus, contents

KEY = b"key"
COLUMNS = ("t", "l", "o", "s")
TABLE = [
    {"t": f"text {number}", "l": "ab"[number % 2], "o": f"o{number % 3}", "s": f"s{number}"} for number in range(9)
]
CHANGES = {"text": {"t": "another"}, "label": {"l": "b"}, "owner": {"o": "o9"}, "secrets": {"s": "s9"}}


def corpus(table: Any, **changes: Any) -> Corpus:
    options = {"text": "t", "label": "l", "labels": ["a", "b"], "owner": "o", "secrets": "s", **changes}
    return read_corpus(table, **options)


def digest(table: Sequence[Mapping[str, str]], key: bytes = KEY, **changes: Any) -> str:
    return contents(corpus(table, **changes), key).digest


def write(path: Path, table: Sequence[Mapping[str, str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(table)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "table.csv", TABLE)


@pytest.fixture
def steady(file: Path) -> VerifiedCorpus:
    whole = corpus(file)
    return VerifiedCorpus(whole, key=KEY, expected=contents(whole, KEY))


def read(steady: Corpus, **options: Any) -> list[str]:
    return [text for batch in steady.batches(**options) for text in batch.texts]


def test_the_digest_is_the_same_in_every_order_and_however_the_rows_are_batched() -> None:
    assert digest(TABLE) == digest(TABLE[::-1])
    steady = VerifiedCorpus(corpus(TABLE), key=KEY, expected=contents(corpus(TABLE), KEY))
    for size in (1, 4, 9, 100):
        assert len(read(steady, batch_size=size)) == len(TABLE)
    backwards = VerifiedCorpus(corpus(TABLE[::-1]), key=KEY, expected=contents(corpus(TABLE), KEY))
    with pytest.raises(CorpusError, match="changed"):
        read(backwards)


@pytest.mark.parametrize("what", CHANGES)
def test_the_digest_depends_on_everything_that_a_row_holds(what: str) -> None:
    assert digest([{**TABLE[0], **CHANGES[what]}, *TABLE[1:]]) != digest(TABLE)


@pytest.mark.parametrize("column", ["t", "o", "s"])
def test_cells_that_two_rows_exchange_make_another_digest(column: str) -> None:
    first, second, *rest = TABLE
    exchanged = [{**first, column: second[column]}, {**second, column: first[column]}, *rest]
    assert digest(exchanged) != digest(TABLE)


def test_the_digest_depends_on_how_often_a_row_is_there_and_on_the_key() -> None:
    made = [digest(table) for table in ([], TABLE[:1], TABLE[:1] * 2, TABLE[:1] * 3)]
    assert len(set(made)) == 4
    assert digest(TABLE, b"other") != digest(TABLE)
    assert len(digest(TABLE)) == 64


ALIKE: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"t": "xo", "o": "1"}, {"t": "x", "o": "o1"}),
    ({"o": "o1", "s": ["23"]}, {"o": "o12", "s": ["3"]}),
    ({"s": ["ab", "c"]}, {"s": ["a", "bc"]}),
    ({"s": ["abc"]}, {"s": ["ab", "c"]}),
    ({"s": []}, {"s": ["a"]}),
    ({"o": "o1", "s": ["x"]}, {"o": "x", "s": ["o1"]}),
)


@pytest.mark.parametrize("pair", ALIKE)
def test_cells_that_run_into_one_another_do_not_collide(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    first, second = ({"t": "text", "l": "a", "o": "o", "s": ["s"], **row} for row in pair)
    assert digest([first]) != digest([second])


def test_the_label_does_not_run_into_the_text_or_the_owner() -> None:
    labels = [str(number) for number in range(12)]
    rows = [{"t": "x1", "l": "1", "o": "2"}, {"t": "x", "l": "11", "o": "2"}, {"t": "x1", "l": "2", "o": "12"}]
    made = {digest([{"s": "", **row}], labels=labels, label_type="string") for row in rows}
    assert len(made) == 3


def test_a_table_without_owners_and_secrets_has_contents_too() -> None:
    bare: dict[str, Any] = {"owner": None, "secrets": None}
    assert digest(TABLE, **bare) == digest([{**row, "o": "z", "s": "z"} for row in TABLE], **bare)
    assert digest(TABLE, **bare) != digest(TABLE[1:], **bare)


@pytest.mark.parametrize("size", [1, 4, 9, 100])
def test_data_at_rest_are_read_again_and_again_in_any_batches(steady: VerifiedCorpus, size: int) -> None:
    for _ in range(2):
        assert read(steady, batch_size=size) == [row["t"] for row in TABLE]
    assert steady.labels == ("a", "b")


CHANGED: dict[str, list[dict[str, str]]] = {
    **{what: [{**TABLE[0], **change}, *TABLE[1:]] for what, change in CHANGES.items()},
    "one more": [*TABLE, TABLE[0]],
    "one less": TABLE[:-1],
    "none": [],
    "another order": TABLE[::-1],
}


@pytest.mark.parametrize("what", CHANGED)
@pytest.mark.parametrize("size", [1, 100])
def test_a_pass_over_changed_data_is_an_error_at_its_end_until_they_are_as_they_were(
    steady: VerifiedCorpus, file: Path, what: str, size: int
) -> None:
    write(file, CHANGED[what])
    seen: list[str] = []
    with pytest.raises(CorpusError, match="changed while the run was reading them") as error:
        seen.extend(text for batch in steady.batches(size) for text in batch.texts)
    assert not any(told in str(error.value) for told in ("text ", "o1", "s1", "9", "10"))
    write(file, TABLE)
    assert len(read(steady)) == 9


def test_all_rows_are_read_before_the_error_whichever_is_bad(steady: VerifiedCorpus, file: Path) -> None:
    write(file, [*TABLE, TABLE[0]])
    passing = steady.batches(4)
    assert [len(next(passing).texts) for _ in range(3)] == [4, 4, 2]
    with pytest.raises(CorpusError):
        next(passing)


def test_a_pass_that_is_not_finished_says_nothing(steady: VerifiedCorpus, file: Path) -> None:
    write(file, TABLE[::-1])
    passing = steady.batches(1)
    assert next(passing).texts == ["text 8"]
    passing.close()
    write(file, TABLE)
    assert len(read(steady)) == 9


def test_a_copy_of_standard_input_lives_until_the_last_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(write(tmp_path / "t.csv", TABLE).read_bytes())))
    opened = corpus("-", format="csv", private_dir=tmp_path / "private")
    steady = VerifiedCorpus(opened, key=KEY, expected=contents(opened, KEY))
    del opened
    gc.collect()
    assert sum(len(batch.texts) for batch in steady.batches()) == len(TABLE)
    del steady
    gc.collect()
    assert not list((tmp_path / "private").iterdir())


def test_the_error_quotes_and_counts_nothing(steady: VerifiedCorpus, file: Path) -> None:
    write(file, CHANGED["one more"])
    with pytest.raises(CorpusError) as error:
        read(steady)
    assert not any(told in str(error.value) for told in ("text ", "o1", "s1", "9", "10"))
