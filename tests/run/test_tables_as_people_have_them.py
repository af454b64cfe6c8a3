"""Exports of spreadsheets, databases, ticket systems and chats: each can be read, or fails with advice that, followed
literally, makes it so. Nothing is charged on the way."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from understudy.base.errors import UnderstudyError
from understudy.ledger import Ledger
from understudy.run.check import check
from understudy.run.pipeline import release
from understudy.run.settings import run_config

NAMES = ("Kategorie", "Beschreibung", "Datum", "Betrag", "Erledigt")
LABELS = ("Lieferung", "Rechnung")
COLUMNS: dict[str, Any] = {
    "Datum": {"kind": "date", "range": ["2024-01-01", "2024-12-31"], "bins": 12},
    "Betrag": {"kind": "number", "range": [0, 2000], "bins": 20},
    "Erledigt": "boolean",
}
# Of settings, or of the file.
Change = Mapping[str, Any] | Callable[[Path], object]
Rows = list[list[str]]


@dataclass
class Table:
    """A file, what its owner first says of it, and the advice that is followed after each error."""

    name: str
    content: bytes | Rows
    told: dict[str, Any] = field(default_factory=dict)
    steps: Sequence[tuple[str, Change]] = ()


def records(
    date: str = "%Y-%m-%d",
    number: Callable[[float], str] = "{:.2f}".format,
    truth: tuple[str, str] = ("true", "false"),
    *,
    count: int = 40,
    text: str = "Paket {} kam verspätet an, die Größe stimmt nicht",
) -> Rows:
    """The records of a table, with its header."""
    rows = [list(NAMES)]
    for place in range(count):
        day = datetime(2024, 1, 1) + timedelta(days=9 * place)
        amount = number(31.37 * (place + 1) + (900 if place % 3 else 0))
        rows.append([LABELS[place % 2], text.format(place), day.strftime(date), amount, truth[place % 2]])
    return rows


def written(rows: Rows, delimiter: str = ",", encoding: str = "utf-8", **how: Any) -> bytes:
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter, **how).writerows(rows)
    return stream.getvalue().encode(encoding)


def with_cells(rows: Rows, column: str, *cells: str) -> Rows:
    """The same with other cells in the first rows of a column."""
    place = NAMES.index(column)
    for row, cell in zip(rows[1:], cells, strict=False):
        row[place] = cell
    return rows


def comma(number: float) -> str:
    return f"{number:.2f}".replace(".", ",")


def german(number: float) -> str:
    return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))


def rewritten(content: bytes | Rows) -> Callable[[Path], object]:
    """What somebody does who fixes the table, or saves it otherwise."""
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else written(content))


def lines(rows: Rows, **more: Any) -> bytes:
    return "\n".join(json.dumps(dict(zip(rows[0], row, strict=True)) | more) for row in rows[1:]).encode()


DE = records("%d.%m.%Y", german, ("ja", "nein"))
HINT = r"formats: de.*docs/tables\.md"


def declare(**formats: Any) -> tuple[str, Change]:
    return HINT, {"formats": formats}


DELIMITER = r"--delimiter"
NO_COLUMN = r"has no column 'Beschreibung'.*begins with a header row"
GERMAN = {"delimiter": ";", "formats": "de"}
TALK = [
    [{"role": "kunde", "content": f"Wo ist Paket {n}?"}, {"role": "agent", "content": "Unterwegs."}] for n in range(40)
]
TALKS = "\n".join(json.dumps({"chat": talk}) for talk in TALK).encode()
CHAT = {"text": "chat", "label": None, "labels": None, "columns": None}
SKIP = (r"skip such rows with --max-bad-rows", {"max_bad_rows": 0.05})

TABLES: dict[str, Table] = {
    # spreadsheets
    "plain": Table("t.csv", records()),
    "German, all declared": Table("t.csv", written(DE, ";", "cp1252"), {**GERMAN, "encoding": "cp1252"}),
    "German, nothing declared": Table(
        "t.csv", written(DE, ";", "cp1252"), {},
        [(DELIMITER, {"delimiter": ";"}), (r"valid in the declared encoding.*--encoding", {"encoding": "cp1252"}),
         (HINT, {"formats": "de"})],
    ),
    "German with time": Table("t.csv", written(records("%d.%m.%Y %H:%M", comma, ("WAHR", "FALSCH")), ";"), GERMAN),
    "German, tabs": Table("t.tsv", written(DE, "\t"), {"formats": "de"}),
    "German, tabs in a .csv": Table("t.csv", written(DE, "\t"), {"formats": "de"}, [(DELIMITER, {"delimiter": "\t"})]),
    "German, pipes": Table("t.csv", written(DE, "|"), {"formats": "de"}, [(DELIMITER, {"delimiter": "|"})]),
    "Macintosh": Table("t.csv", written(DE, ";", "mac-roman"), {**GERMAN, "encoding": "mac-roman"}),
    "Latin 1": Table("t.csv", written(DE, ";", "latin-1"), {**GERMAN, "encoding": "latin-1"}),
    "Windows 1250": Table("t.csv", written(DE, ";", "cp1250"), {**GERMAN, "encoding": "cp1250"}),
    "byte order mark": Table("t.csv", written(records(), ",", "utf-8-sig")),
    "UTF-16": Table(
        "t.csv", written(records(), ",", "utf-16"), {}, [(r"UTF-16 is converted to UTF-8", rewritten(records()))]
    ),
    "UTF-16 that was named": Table(
        "t.csv", written(records(), ",", "utf-16"), {"encoding": "utf-16"},
        [(r"Convert the file to UTF-8", {"encoding": "utf-8"}), (r"UTF-16 is converted", rewritten(records()))],
    ),
    "only commas in numbers": Table("t.csv", records("%Y-%m-%d", comma), {}, [declare(number="1234,56")]),
    "only German dates": Table("t.csv", records("%d.%m.%Y"), {}, [declare(date="%d.%m.%Y")]),
    "two digits of a year": Table("t.csv", records("%d.%m.%y"), {"formats": {"date": "%d.%m.%y"}}),
    "the wrong German form": Table(
        "t.csv", records("%d.%m.%y"), {"formats": "de"}, [(r"written as %d\.%m\.%Y", {"formats": {"date": "%d.%m.%y"}})]
    ),
    "French": Table(
        "t.csv", written(records("%d/%m/%Y", comma, ("oui", "non")), ";"), {"delimiter": ";", "formats": "fr"}
    ),
    "French with thin spaces": Table(
        "t.csv", records("%d/%m/%Y", lambda n: german(n).replace(".", "\u202f"), ("VRAI", "FAUX")), {"formats": "fr"}
    ),
    "British": Table("t.csv", records("%d/%m/%Y", "{:,.2f}".format, ("Yes", "No")), {"formats": "en-GB"}),
    "American": Table("t.csv", records("%m/%d/%Y", "{:,.2f}".format, ("TRUE", "FALSE")), {"formats": "en-US"}),
    "American with time": Table("t.csv", records("%m/%d/%Y %I:%M %p"), {"formats": "en-US"}),
    "American read as British": Table(
        "t.csv", records("%m/%d/%Y"), {"formats": "en-GB"}, [(r"written as %d/%m/%Y", {"formats": "en-US"})]
    ),
    "Swiss": Table("t.csv", records("%d.%m.%Y", lambda n: f"{n:,.2f}".replace(",", "'")),
                   {"formats": {"date": "%d.%m.%Y", "number": "1'234.56"}}),
    "euros": Table("t.csv", records("%Y-%m-%d", lambda n: f"{german(n)} €"), {}, [declare(number="1.234,56 €")]),
    "dollars": Table("t.csv", records("%Y-%m-%d", "${:,.2f}".format), {}, [declare(number="$1,234.56")]),
    "a cross for yes": Table("t.csv", records(truth=("x", "")), {"formats": {"boolean": "x|"}}),
    "Y and N": Table("t.csv", records(truth=("Y", "N")), {}, [declare(boolean="Y|N")]),
    "dashes for nothing": Table(
        "t.csv", with_cells(records(), "Betrag", "-", "k. A."), {}, [declare(missing=["-", "k. A."])]
    ),
    "errors of formulas": Table("t.csv", with_cells(records(), "Betrag", "#NV", "#DIV/0!"),
                                {"formats": {"missing": ["#NV", "#DIV/0!"]}}),
    "a workbook": Table("t.xlsx", b"PK\x03\x04", {}, [(r"save the sheet as CSV", {"data": "saved.csv"})]),
    "an open document": Table("t.ods", b"PK\x03\x04", {}, [(r"save the sheet as CSV", {"data": "saved.csv"})]),
    "sep= in the first line": Table("t.csv", b"sep=;\r\n" + written(DE, ";"), GERMAN),
    "a title above the header": Table(
        "t.csv", b"Bericht vom 02.02.2024;;;;\n" + written(DE, ";"), GERMAN, [(NO_COLUMN, rewritten(written(DE, ";")))]
    ),
    "no header": Table("t.csv", records()[1:], {}, [(NO_COLUMN, rewritten(records()))]),
    "a sum in the last row": Table("t.csv", [*records(), ["Summe", "", "", "999.00", ""]], {}, [SKIP]),
    "empty rows": Table("t.csv", written(records()).replace(b"\r\n", b"\r\n\r\n")),
    "trailing separators": Table(
        "t.csv", written(records()).replace(b"\r\n", b",\r\n"), {},
    ),
    "one row with a separator too many": Table(
        "t.csv", written(records(), quoting=csv.QUOTE_NONE, escapechar="\\").replace(b"kam", b"kam, leider,", 1), {},
        [(r"too few or too many fields.*--delimiter", rewritten(records()))],
    ),
    "line breaks within cells": Table("t.csv", records(text='Erste Zeile {}\nzweite "Zeile"')),
    "line breaks and quotes told as lines": Table(
        "t.csv", records(text="Erste Zeile {}\nzweite Zeile"), {"quotes": "line"},
        [(r"quotes|too few", {"quotes": "multiline"})],
    ),
    "a quote that is not closed": Table(
        "t.csv", written(records()).replace(b"Paket 7 ", b'"Paket 7 ', 1), {},
        [(r"double the inner quotes|--quotes", rewritten(records()))],
    ),
    "old Macintosh line ends": Table(
        "t.csv", written(records(), lineterminator="\r"), {},
        [(r"rows end at LF or CRLF", rewritten(records()))],
    ),
    "names in other capitals": Table(
        "t.csv", [[name.upper() for name in NAMES], *records()[1:]], {},
        [(r"header has 'BESCHREIBUNG'", lambda path: rewritten(records())(path))],
    ),
    "a blank behind a name": Table(
        "t.csv", [["Kategorie", "Beschreibung ", " Datum", *NAMES[3:]], *records()[1:]],
    ),
    # databases
    "PostgreSQL COPY": Table(
        "t.tsv", written(with_cells(records(truth=("t", "f")), "Betrag", "\\N"), "\t"), {},
        [declare(boolean="t|f", missing=["\\N"])],
    ),
    "MySQL": Table("t.csv", with_cells(records(truth=("1", "0")), "Datum", "0000-00-00", "NULL"),
                   {"formats": {"missing": ["0000-00-00", "NULL"]}}),
    "timestamps": Table("t.csv", records("%Y-%m-%dT%H:%M:%SZ")),
    "timestamps with zones": Table("t.csv", records("%Y-%m-%d %H:%M:%S.000+02:00")),
    "compact dates": Table("t.csv", records("%Y%m%d")),
    "Oracle": Table("t.csv", records("%d-%b-%y"), {}, [declare(date="%d-%b-%y")]),
    "JSON lines": Table("t.jsonl", lines(records())),
    "JSON lines, German": Table("t.jsonl", lines(DE), {}, [(HINT, {"formats": "de"})]),
    "JSON lines, compressed": Table("t.jsonl.gz", gzip.compress(lines(records()))),
    "JSON lines called .json": Table("t.json", lines(records()), {}, [(r"--format jsonl", {"format": "jsonl"})]),
    "a list of JSON": Table("t.json", json.dumps([1]).encode(), {}, [(r"jq -c", {"data": "saved.jsonl"})]),
    "a table called .txt": Table("t.txt", records(), {}, [(r"--format csv", {"format": "csv"})]),
    "a database": Table("t.sqlite", b"SQLite format 3\0", {}, [(r"Export the table as CSV", {"data": "saved.csv"})]),
    "an archive": Table("t.zip", b"PK\x03\x04", {}, [(r"Unpack it", {"data": "saved.csv"})]),
    # ticket systems and chats
    "two columns of one name": Table(
        "t.csv", [[*row, row[0]] for row in records()], {}, [(r"same name.*Rename one", rewritten(records()))]
    ),
    "a few tickets without a text": Table("t.csv", with_cells(records(), "Beschreibung", ""), {}, [SKIP]),
    "labels in other capitals": Table(
        "t.csv", [[row[0].upper() if place else row[0], *row[1:]] for place, row in enumerate(records())], {},
        [(r"as it is spelled there \(--labels", {"labels": "LIEFERUNG,RECHNUNG"})],
    ),
    "a label that was forgotten": Table(
        "t.csv", with_cells(records(), "Kategorie", *["Gerät"] * 9), {},
        [(r"as it is spelled there \(--labels", {"labels": "Lieferung,Rechnung,Gerät"})],
    ),
    "a label of columns": Table("t.csv", records(), {"label": "Erledigt", "labels": None}),
    "dialogues without roles": Table("t.jsonl", TALKS, CHAT, [(r"--roles A,B", {"roles": "kunde,agent"})]),
    "dialogues with a role too few": Table(
        "t.jsonl", TALKS, {**CHAT, "roles": "kunde,bot"}, [(r"every role with --roles", {"roles": "kunde,agent"})]
    ),
    "dialogues in CSV": Table(
        "t.csv", [["chat"], *([json.dumps(talk)] for talk in TALK)], {**CHAT, "roles": "kunde,agent"}
    ),
}  # fmt: skip


def settings(folder: Path, table: Table) -> dict[str, Any]:
    path = folder / table.name
    path.write_bytes(table.content if isinstance(table.content, bytes) else written(table.content))
    (folder / "saved.csv").write_bytes(written(records()))
    (folder / "saved.jsonl").write_bytes(lines(records()))
    return {
        "data": table.name,
        "text": "Beschreibung",
        "label": "Kategorie",
        "labels": ",".join(LABELS),
        "columns": COLUMNS,
        "epsilon": 3,
        "delta": "1e-6",
        "guide": False,
        "llm": "none",
        "output": str(folder / "out"),
        "ledger": str(folder / "ledger.sqlite"),
        **table.told,
    }


def said(values: dict[str, Any]) -> str:
    """What stands on the terminal where the table cannot be used; nothing where it can."""
    try:
        found = check(run_config({name: value for name, value in values.items() if value is not None}))
    except UnderstudyError as error:
        return f"{error.problem} {error.cure}"
    errors = () if found.refused is None else (*found.faults, found.refused)
    return " ".join(f"{error.problem} {error.cure}" for error in errors)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_table_can_be_read_or_is_cured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: Table) -> None:
    monkeypatch.chdir(tmp_path)
    values = settings(tmp_path, table)
    for advice, change in table.steps:
        problem = said(values)
        assert re.search(advice, problem), problem
        assert "Paket" not in problem
        if callable(change):
            change(tmp_path / values["data"])
        else:
            values |= change
    assert said(values) == ""
    assert not Path(values["ledger"]).exists()


def test_there_are_sixty_of_them() -> None:
    assert len(TABLES) >= 60


@pytest.mark.parametrize("name", ["German, all declared", "French"])
def test_such_a_table_is_released_after_its_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    values = settings(tmp_path, TABLES[name])
    Ledger.create(values["ledger"]).close()
    made = release(run_config({**values, "columns": None})).release
    assert made.schema.label == "Kategorie"


def test_nearly_nothing_but_noise_is_refused_and_not_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What began it: a German export, with the advice to skip rows taken at its word."""
    monkeypatch.chdir(tmp_path)
    values = settings(tmp_path, TABLES["German, all declared"]) | {"formats": None, "max_bad_rows": 0.05}
    problem = said(values)
    assert "More of the rows than --max-bad-rows allows do not match the declaration" in problem
    assert re.search(HINT, problem)
    Ledger.create(values["ledger"]).close()
    with pytest.raises(UnderstudyError, match="More rows are unusable"):
        release(run_config({name: value for name, value in values.items() if value is not None}))
    with Ledger(values["ledger"]) as ledger:
        assert ledger.datasets() == []
