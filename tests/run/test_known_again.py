"""What a table is known by: its texts, the bytes of its files, and, for a warning, most of the cells of its texts."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
import os
import re
import unicodedata
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clinic import COLUMNS, flags, rows, settings, write_csv
from run_fixtures import Command, runs_charged

import understudy as us
from understudy.base.errors import ConfigError, CorpusError, LedgerError, ResumeError, UnderstudyWarning
from understudy.corpus import read_corpus
from understudy.corpus.identity import TextsHash
from understudy.corpus.schema import Schema
from understudy.corpus.verified import contents
from understudy.ledger import Ledger
from understudy.ledger.values import Sketch
from understudy.methods.registry import load_release
from understudy.privacy.guarantee import Budget
from understudy.privacy.unit import Unit
from understudy.run import pipeline as running
from understudy.run.session import Listener
from understudy.run.settings import run_config

KEY = b"key"


def release(values: dict[str, Any], **changes: Any) -> running.Result:
    """A change to None takes a setting out."""
    changed = {name: value for name, value in {**values, **changes}.items() if value is not None}
    return running.release(run_config(changed))


@pytest.fixture
def told() -> Any:
    """A warning that a table is known is an error, unless a test expects it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Much of this table", UnderstudyWarning)
        yield


def apart(folder: Path, name: str, **changes: Any) -> dict[str, Any]:
    """A run of its own on a dataset of this name."""
    return settings(folder, output=str(folder / name), dataset=name, **changes)


def test_one_file_read_by_two_columns_or_packed_is_one_dataset(tmp_path: Path) -> None:
    """`a` by its notes and `c` by the same column as records: two texts, two caps."""
    release(apart(tmp_path, "a"))
    with pytest.raises(LedgerError, match=r"knows these data as the dataset 'a'.*dataset a"):
        release(apart(tmp_path, "c", text=None, record_columns="note"))
    with pytest.raises(LedgerError, match=r"knows these data as the dataset 'a'"):
        release(apart(tmp_path, "c", text="clinician"))
    (tmp_path / "again.csv.gz").write_bytes(gzip.compress((tmp_path / "notes.csv").read_bytes()))
    with pytest.raises(LedgerError, match="knows these data as the dataset 'a'"):
        release(apart(tmp_path, "c", text="clinician", data=str(tmp_path / "again.csv.gz")))
    corpus = us.read_corpus(rows(), text="note", label="department", labels="cardiology,dermatology")
    with pytest.raises(LedgerError, match="knows these data as the dataset 'a'"):
        running.release(run_config(apart(tmp_path, "c", data=None)), corpus=corpus)
    assert runs_charged(tmp_path / "ledger.sqlite", "c") == 0


@pytest.mark.parametrize("make", [list, lambda table: pa.Table.from_pylist(table[::-1])])
def test_one_frame_read_by_two_columns_is_one_dataset(tmp_path: Path, make: Callable[[Any], Any]) -> None:
    options: dict[str, Any] = {"ledger": str(tmp_path / "ledger.sqlite")}
    method, budget = us.DPKPS(**quick(settings(tmp_path))), us.Budget(3, "1e-6")
    us.release(rows(), method, budget, text="note", dataset="a", **options)
    for read in ({"record_columns": ["note"]}, {"text": "clinician"}):
        with pytest.raises(LedgerError, match="knows these data as the dataset 'a'"):
            us.release(make(rows()), method, budget, dataset="c", **read, **options)  # type: ignore[arg-type]
    assert runs_charged(tmp_path / "ledger.sqlite", "c") == 0


def quick(values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in ("vocabulary", "vocabulary_is_public", "top_terms", "length")}


CELLS: dict[str, tuple[str, Any]] = {
    "number": ("53.130", 53.13),
    "id": ("007", 7),
    "paid": ("12.00", decimal.Decimal("12.0")),
    "urgent": ("TRUE", True),
    "day": ("2024-02-02", datetime.date(2024, 2, 2)),
    "at": ("2024-02-02T10:00:00Z", datetime.datetime(2024, 2, 2, 10)),
    "empty": ("", None),
    "full": ("\uff11\uff12", 12),
}


@pytest.mark.parametrize("name", CELLS)
def test_a_table_whose_cells_were_converted_is_one_dataset(tmp_path: Path, name: str) -> None:
    text, value = CELLS[name]
    notes = [row["note"] for row in rows()]
    write_csv(tmp_path / "base.csv", [{"note": note, name: text} for note in notes], ("note", name))
    pq.write_table(pa.table({name: [value] * 40, "note": notes}), tmp_path / "conv.parquet")
    whole: dict[str, Any] = {"text": None, "record_columns": ["note", name]}
    assert are_one(identity(tmp_path / "base.csv", **whole), identity(tmp_path / "conv.parquet", **whole))


def are_one(first: Any, second: Any) -> bool:
    """As a ledger compares them."""
    return bool(set(first.contents) & set(second.contents))


SPELLINGS: dict[str, Callable[[str], str]] = {
    "spaces of no width": lambda note: note.replace("e", "e\u200b"),
    "soft hyphens": lambda note: note.replace("a", "a\u00ad"),
    "another normal form": lambda note: unicodedata.normalize("NFD", note),
    "full-width digits": lambda note: re.sub(r"[0-9]", lambda digit: chr(ord(digit[0]) + 0xFEE0), note),
    "other blanks": lambda note: note.replace(" ", "\u00a0\r\n") + "\n",
    "typographic quotes": lambda note: note.replace("'", "\u2019"),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_texts_spelled_otherwise_are_one_dataset_and_have_the_same_cells(tmp_path: Path, spelling: str) -> None:
    table = [{**row, "note": f"Zo\u00eb's {row['note']}"} for row in rows()]
    write_csv(tmp_path / "base.csv", table)
    write_csv(tmp_path / "other.csv", [{**row, "note": SPELLINGS[spelling](row["note"])} for row in table])
    assert are_one(identity(tmp_path / "base.csv"), identity(tmp_path / "other.csv"))
    assert cells_of(tmp_path / "base.csv") == cells_of(tmp_path / "other.csv")


@pytest.mark.parametrize("cells", [("53.13", "53.14"), ("5", "-5"), ("a1", "a-1"), ("Ann", "ANN"), ("1.2.3", "1.23")])
def test_other_cells_make_another_table(cells: tuple[str, str]) -> None:
    """The twin: a spelling that merges all values would make one dataset of any two tables."""
    prints = [us.read_corpus([{"x": cell, "y": "a"}], record_columns=["x", "y"]).fingerprint(KEY) for cell in cells]
    assert len(set(prints)) == 2


def test_every_file_of_a_pattern_is_known(tmp_path: Path, told: None) -> None:
    table = rows()
    write_csv(tmp_path / "m1.csv", table[:20])
    write_csv(tmp_path / "m2.csv", table[20:])
    write_csv(tmp_path / "m3.csv", [])  # a month without a row is like any other
    release(apart(tmp_path, "months", data=str(tmp_path / "m*.csv")))
    with pytest.raises(LedgerError, match="knows these data as the dataset 'months'"):
        release(apart(tmp_path, "one", text="clinician", data=str(tmp_path / "m2.csv")))
    other = [{**row, "note": f"Another clinic, {row['note']}, {n}"} for n, row in enumerate(rows(30))]
    write_csv(tmp_path / "o1.csv", other)
    write_csv(tmp_path / "o2.csv", [])
    release(apart(tmp_path, "others", data=str(tmp_path / "o*.csv")))


@pytest.mark.parametrize("copy", ["packed", "linked", "copied"])
def test_a_file_that_is_there_twice_is_refused_before_the_charge(tmp_path: Path, copy: str) -> None:
    values = settings(tmp_path, data=str(tmp_path / "notes*"))
    content = (tmp_path / "notes.csv").read_bytes()
    if copy == "linked":
        (tmp_path / "notes-2.csv").hardlink_to(tmp_path / "notes.csv")
    elif copy == "copied":
        (tmp_path / "notes-2.csv").write_bytes(content)
    else:
        (tmp_path / "notes.csv.gz").write_bytes(gzip.compress(content))
    with pytest.raises(CorpusError, match=r"have the same content, so that each record would count twice") as caught:
        release(values, dataset="notes")
    assert "notes-2" not in str(caught.value)
    assert runs_charged(values["ledger"]) == 0


@pytest.mark.parametrize("share", ["grown", "half", "most"])
def test_much_the_same_table_under_another_name_is_warned_of(
    tmp_path: Path, finished: Callable[..., dict[str, Any]], understudy: Command, share: str
) -> None:
    finished(tmp_path, sixty, dataset="a")
    table = rows(60)
    later = {
        "grown": [*table, *({**row, "note": f"New: {row['note']} {n}"} for n, row in enumerate(rows(60)))],
        "half": table[:30],
        "most": [{**row, "note": f"Edited. {row['note']}"} if n % 3 == 0 else row for n, row in enumerate(table)],
    }[share]
    write_csv(tmp_path / "later.csv", later)
    said = understudy("run", *flags(apart(tmp_path, "b", data=str(tmp_path / "later.csv"))), code=0)
    (line,) = [line for line in said.err.splitlines() if line.startswith("Warning:") and "dataset" in line]
    assert "dataset 'a'" in line
    assert "one of the two names (--dataset)" in line
    assert not re.search(r"\d", line)
    assert not [row for row in later if row["note"] in said.err]


def saved_otherwise(folder: Path) -> dict[str, Any]:
    """Two thirds of the table as another program exports it: columns in another order, other dates, cp1252."""
    lines = [f"{n % 28 + 1:02d}.02.2024;{row['department']};{row['note']}" for n, row in enumerate(rows(60)[:40])]
    new = [f"03.03.2024;{row['department']};Größe {n}: {row['note']}" for n, row in enumerate(rows(20))]
    (folder / "later.csv").write_bytes("\n".join(["day;department;note", *lines, *new]).encode("cp1252"))
    return {"data": str(folder / "later.csv"), "delimiter": ";", "encoding": "cp1252"}


def test_much_the_same_texts_are_known_whatever_stands_around_them(tmp_path: Path) -> None:
    release(sixty(tmp_path, output=str(tmp_path / "a"), dataset="a"))
    with pytest.warns(UnderstudyWarning, match="Much of this table is known as the dataset 'a'"):
        release(apart(tmp_path, "b", **saved_otherwise(tmp_path)))


def changed(folder: Path, how: str) -> dict[str, Any]:
    """The same notes in another table, of which neither the bytes nor the texts as they are read are those before."""
    table = rows(60)
    if how == "a column more":
        table = [{**row, "note": row["note"] + " ", "more": str(n)} for n, row in enumerate(table)]
    elif how.startswith("a dot more"):
        table = [{**row, "note": f"{row['note'].upper()}."} for row in table]
    elif how == "a column more, as records":
        table = [{**row, "more": f"another text, {n}"} for n, row in enumerate(table)]
    write_csv(folder / "later.csv", table, list(table[0]))
    records = {"text": None, "label": None, "labels": None, "record_columns": ",".join(table[0])}
    return {"data": str(folder / "later.csv"), **(records if how.endswith("records") else {})}


@pytest.mark.parametrize("how", ["a column more, as records", "a dot more", "a dot more, as records"])
def test_a_table_that_was_changed_to_get_another_cap_is_warned_of(tmp_path: Path, how: str) -> None:
    release(sixty(tmp_path, output=str(tmp_path / "a"), dataset="a"))
    with pytest.warns(UnderstudyWarning, match="Much of this table is known as the dataset 'a'"):
        release(apart(tmp_path, "b", **changed(tmp_path, how)))


def test_a_table_of_the_same_texts_with_a_column_more_is_the_same_dataset(tmp_path: Path) -> None:
    release(sixty(tmp_path, output=str(tmp_path / "a"), dataset="a"))
    with pytest.raises(LedgerError, match="knows these data as the dataset 'a'"):
        release(apart(tmp_path, "b", **changed(tmp_path, "a column more")))


def test_tables_that_share_numbers_dates_and_few_words_are_not_near() -> None:
    """As records of all columns: identifiers, dates and labels are the same in both."""

    def table(word: str) -> list[dict[str, str]]:
        return [
            {"id": str(n), "day": f"2024-01-{n % 28 + 1:02}", "label": "ab"[n % 2], "note": f"{word} {n}"}
            for n in range(50)
        ]

    one, other = (cells_of(table(word), text=None, record_columns=list(table("")[0])) for word in ("knee", "wrist"))
    assert one.is_near(one)
    assert not one.is_near(other)


def sixty(folder: Path, **changes: Any) -> dict[str, Any]:
    write_csv(folder / "notes.csv", rows(60))
    return settings(folder, **changes)


def test_a_table_that_grows_under_its_own_name_is_not_warned_of(tmp_path: Path, told: None) -> None:
    table = rows(60)
    with Ledger.create(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_dataset("a", cap=us.Budget(9, "1e-5"), unit=Unit("record"))
    for by_now in (20, 40, 60):
        write_csv(tmp_path / "notes.csv", table[:by_now])
        release(apart(tmp_path, "a"), output=str(tmp_path / str(by_now)))
    assert runs_charged(tmp_path / "ledger.sqlite", "a") == 3


def test_tables_of_other_people_are_not_warned_of(tmp_path: Path, told: None) -> None:
    release(apart(tmp_path, "a"))
    words = ["knee", "wrist", "elbow", "plaster", "crutch", "sling", "brace", "joint"]
    table = [
        {"note": " ".join(words[(n + step * step) % 8] for step in range(5)) + f" case {n}", "department": "cardiology"}
        for n in range(40)
    ]
    write_csv(tmp_path / "other.csv", [{**row, "clinician": "x"} for row in table])
    release(apart(tmp_path, "b", data=str(tmp_path / "other.csv")))


def test_a_strict_ledger_refuses_a_dataset_that_nobody_opened_before_anything_is_read(tmp_path: Path) -> None:
    values = apart(tmp_path, "clinic")
    Ledger.create(values["ledger"], strict=True).close()
    (tmp_path / "notes.csv").unlink()
    with pytest.raises(LedgerError, match=r'strict.*us\.ledger\.open\("clinic", epsilon=E, delta=D\)'):
        release(values)
    with pytest.raises(LedgerError, match=r'us\.ledger\.open\("clinic", owner="clinician"'):
        release(values, owner="clinician")
    settings(tmp_path)  # writes the table again
    with Ledger(values["ledger"]) as ledger:
        assert ledger.datasets() == []
        ledger.open_dataset("clinic", cap=us.Budget(3, "1e-6"), unit=Unit("record"))
    release(values)
    assert runs_charged(values["ledger"], "clinic") == 1


def test_a_run_takes_the_ledger_that_is_pinned_and_no_other(tmp_path: Path) -> None:
    values = apart(tmp_path, "clinic")
    with Ledger(values["ledger"]) as ledger:
        pinned = ledger.id
    with pytest.raises(LedgerError, match="different id"):
        release(values, ledger_id="0" * 32)
    release(values, ledger_id=pinned)
    (tmp_path / "clinic" / "release" / "dp-kps.release").unlink()
    release(values)  # which ledger it is said to be changes nothing of the run


def identity(path: Any, **more: Any) -> Any:
    return read_corpus(path, **{"text": "note", **more}).identity(KEY)


def cells_of(path: Any, key: bytes = KEY, **more: Any) -> Sketch:
    return Sketch(contents(read_corpus(path, **{"text": "note", **more}), key).cells)


def test_the_cells_are_the_same_in_every_format(tmp_path: Path) -> None:
    table = [{**row, "note": f'{row["note"]}\nsaid "x"; and\r\nmore, {n}'} for n, row in enumerate(rows(30))]
    write_csv(tmp_path / "t.csv", table)
    by_csv = cells_of(tmp_path / "t.csv")
    pq.write_table(pa.table({name: [row[name] for row in table] for name in COLUMNS}), tmp_path / "t.parquet")
    (tmp_path / "t.jsonl").write_text(
        "\n".join(json.dumps({name: row[name] for name in COLUMNS}) for row in table), "utf-8"
    )
    others = (tmp_path / "t.parquet", tmp_path / "t.jsonl", table, pa.Table.from_pylist(table))
    assert {cells_of(other) for other in others} == {by_csv}
    assert identity(tmp_path / "t.csv").contents == identity(tmp_path / "t.csv").contents
    assert len({*identity(tmp_path / "t.csv").contents, *identity(tmp_path / "t.csv", text="clinician").contents}) == 3


UNHELD = {
    "infinity": pa.array([9_224_318_015_999_999] * 30, pa.timestamp("ms")),  # of PostgreSQL: beyond the year 9999
    "unknown zone": pa.array([0] * 30, pa.timestamp("us", tz="CEST")),
    "duration": pa.array([2**62] * 30, pa.duration("s")),
    "two of a name": pa.StructArray.from_arrays([pa.array([1] * 30)] * 2, names=["a", "a"]),
}


@pytest.mark.parametrize("kind", UNHELD)
def test_a_parquet_file_is_known_whatever_its_other_columns_hold(tmp_path: Path, kind: str) -> None:
    table = {name: [row[name] for row in rows(30)] for name in COLUMNS}
    pq.write_table(pa.table(table), tmp_path / "plain.parquet")
    pq.write_table(pa.table({**table, "kind": UNHELD[kind]}), tmp_path / "t.parquet")
    by_note, by_clinician = (identity(tmp_path / "t.parquet", text=name) for name in ("note", "clinician"))
    assert len(set(by_note.contents) & set(by_clinician.contents)) == 1
    assert cells_of(tmp_path / "t.parquet") == cells_of(tmp_path / "plain.parquet")
    assert cells_of(pa.table({**table, "kind": UNHELD[kind]})) == cells_of(tmp_path / "plain.parquet")


def test_nobody_without_the_key_learns_a_cell(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", rows(30))
    one, other = (cells_of(tmp_path / "t.csv", key) for key in (KEY, b"another"))
    assert len(one.hashes) == 30
    assert not set(one.hashes) & set(other.hashes)
    assert repr(one.hashes[0]) not in repr(one)
    prints = [read_corpus(tmp_path / "t.csv", text="note").identity(key).contents for key in (KEY, b"another")]
    assert not set(prints[0]) & set(prints[1])


def numbers(first: int, last: int) -> Sketch:
    """The sketch of a table of these texts."""
    texts = TextsHash(KEY, Schema(text="note"))
    texts.add(f"text {number}" for number in range(first, last))
    return Sketch(texts.cells)


@pytest.mark.parametrize(
    ("first", "second", "near"),
    [
        ((0, 20_000), (0, 40_000), True),
        ((0, 20_000), (0, 1_000), True),  # contained
        ((0, 20_000), (8_000, 28_000), True),  # 60 % of either
        ((0, 20_000), (12_000, 32_000), False),  # 40 %
        ((0, 100), (0, 51), True),
        ((0, 2), (0, 2), False),  # too little to say anything
        ((0, 0), (0, 100), False),
    ],
)
def test_a_sketch_tells_like_from_other_tables(first: tuple[int, int], second: tuple[int, int], near: bool) -> None:
    one, other = numbers(*first), numbers(*second)
    assert one.is_near(other) is near
    assert other.is_near(one) is near
    assert Sketch.from_text(one.to_text()) == one
    assert one.merged(other) == numbers(min(first[0], second[0]), max(first[1], second[1])) or first[1] < second[0]


# -- units and owners --------------------------------------------------------------------------------------------------


def test_two_datasets_without_a_good_row_are_two(tmp_path: Path) -> None:
    for name in ("e1", "e2"):
        write_csv(tmp_path / f"{name}.csv", [{**row, "department": "other"} for row in rows(3)])
        values = settings(tmp_path, data=str(tmp_path / f"{name}.csv"), output=str(tmp_path / name))
        values |= {"max_bad_rows": 1}
        release(values)
        assert runs_charged(values["ledger"], name) == 1
        with Ledger(values["ledger"]) as ledger:
            assert ledger.known_as("") is None
        (tmp_path / name / "release" / "dp-kps.release").unlink()
        release(values)  # resumes
        assert runs_charged(values["ledger"], name) == 1


def test_data_that_were_empty_when_the_run_began_are_still_compared(tmp_path: Path) -> None:
    values = settings(tmp_path, max_bad_rows=1)
    write_csv(tmp_path / "notes.csv", [{**row, "department": "other"} for row in rows(3)])
    release(values)
    (tmp_path / "out" / "release" / "dp-kps.release").unlink()
    write_csv(tmp_path / "notes.csv", rows())
    with pytest.raises(ResumeError, match="are not those that this run began with"):
        release(values)


def test_owners_by_two_columns_are_never_added(tmp_path: Path) -> None:
    table = [{**row, "patient": f"p{number % 7}"} for number, row in enumerate(rows())]
    write_csv(tmp_path / "notes.csv", table, (*COLUMNS, "patient"))
    values = settings(tmp_path)
    with Ledger(values["ledger"]) as ledger:
        ledger.open_dataset("notes", cap=Budget(9, "1e-5"), unit=Unit("owner", 5, "clinician"))
    made = release(values, owner="clinician")
    with pytest.raises(LedgerError, match=r"\(column 'clinician'\), but this run one owner \(column 'patient'\)"):
        release(values, owner="patient", output=str(tmp_path / "second"))
    release(values, owner="clinician", max_records_per_owner=2, output=str(tmp_path / "third"))
    assert runs_charged(values["ledger"]) == 2
    assert made.statement.unit == Unit("owner", 5, "clinician")
    assert load_release(tmp_path / "out" / "release" / "dp-kps.release").statement.unit.column == "clinician"
    assert "each owner (column 'clinician') as a whole: all" in (
        tmp_path / "out" / "release" / "statement.md"
    ).read_text("utf-8")


def test_a_unit_with_a_column_survives_json_and_older_units_are_read() -> None:
    unit = Unit("owner", 3, "patient")
    assert Unit.from_json(unit.to_json()) == unit
    assert Unit.from_json({"kind": "owner", "max_records": 3}) == Unit("owner", 3)
    with pytest.raises(ConfigError, match="one record"):
        Unit("record", 1, "patient")


def test_no_cap_is_announced_for_content_that_another_dataset_has(
    tmp_path: Path, finished: Callable[..., dict[str, Any]], understudy: Command
) -> None:
    finished(tmp_path, sixty, dataset="a")
    said = understudy("run", *flags(apart(tmp_path, "b")), code=5)
    assert "knows these data as" in said.err
    assert "sets the cap" not in said.err


def test_another_table_of_the_same_name_is_not_answered_with_the_release_in_the_folder(tmp_path: Path) -> None:
    values = settings(tmp_path)
    first = release(values)
    (tmp_path / "other").mkdir()
    other = str(write_csv(tmp_path / "other" / Path(values["data"]).name, rows(30)))
    with pytest.raises(ResumeError, match="made from a table of the same name in another place"):
        release(values, data=other)
    near = os.path.relpath(values["data"])
    assert release(values, data=near).release.origin == first.release.origin  # the same file
    said: list[str] = []
    running.release(run_config({**values, "data": other, "dataset": "notes"}), listener=Listener(said.append))
    assert any("made from a table in another place" in line for line in said)
    assert runs_charged(values["ledger"]) == 1
