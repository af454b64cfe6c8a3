"""The synthetic table is laid out and written as the private one: columns, order, types, notation; what is known of its
rows is beside it."""

from __future__ import annotations

import datetime
import decimal
import json
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_fixtures import Command, files_holding

import understudy as us
from understudy.evaluate.synthetic import first_rows, read_synthetic
from understudy.release import PublicSchema
from understudy.report.reports import write_reports
from understudy.run.outputs import OutputFolder
from understudy.run.table import SyntheticTable
from understudy.schema.columns import declared_columns
from understudy.schema.formats import LOCALES, as_written, written
from understudy.schema.layout import Layout
from understudy.text.records import SyntheticRecord

pd = pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("ignore::understudy.UnderstudyWarning")
SAID = ("Knie schmerzt nach Sturz", "Husten und Fieber", "Hand ist geschwollen", "\u00dcbelkeit nach dem Essen")
WARDS = ("Chirurgie", "Innere")
COUNT = 60
GERMAN = ("Befund", "Abteilung", "Datum", "Kosten", "Dringend", "Pat_ID")
DOMAINS: dict[str, Any] = {
    "Datum": {"kind": "date", "range": ["2024-01-01", "2024-12-31"], "bins": 12},
    "Kosten": {"kind": "number", "range": [0, 2000], "bins": 4, "required": True},
    "Dringend": {"kind": "boolean", "required": True},
    "Pat_ID": {"kind": "identifier", "format": "P-#####"},
}


def values(folder: Path, **changes: Any) -> dict[str, Any]:
    (folder / "terms.txt").write_text("knie\nhusten\nhand\nfieber\nsturz", "utf-8")
    found = {
        **{"vocabulary": str(folder / "terms.txt"), "vocabulary_is_public": True, "top_terms": 5, "length": 2},
        **{"label": "Abteilung", "labels": WARDS, "owner": "Pat_ID", "max_records_per_owner": 3, "llm": "none"},
        **{"dataset": "d", "records": 40, "insecure_noise_seed": 1, "output": str(folder / "out"), "language": "de"},
        **{"columns": DOMAINS, "text": "Befund", **changes},
    }
    return {name: value for name, value in found.items() if value is not None}


def rows() -> list[dict[str, Any]]:
    chosen = random.Random(1)
    return [
        {
            "Befund": f"{chosen.choice(SAID)} {number}",
            "Abteilung": chosen.choice(WARDS),
            "Datum": datetime.date(2024, 1, 1) + datetime.timedelta(days=chosen.randrange(360)),
            "Kosten": round(chosen.uniform(5, 2000), 2),
            "Dringend": chosen.choice((True, False)),
            "Zimmer": chosen.randrange(99),
            "Pat_ID": f"P-{chosen.randrange(30):05d}",
        }
        for number in range(COUNT)
    ]


def german(path: Path) -> Path:
    """As a German spreadsheet writes it."""
    frame = pd.DataFrame(rows())
    frame["Datum"] = [f"{day:%d.%m.%Y}" for day in frame["Datum"]]
    frame["Dringend"] = ["ja" if each else "nein" for each in frame["Dringend"]]
    frame.to_csv(path, sep=";", decimal=",", encoding="cp1252", index=False)
    return path


def read_german(path: Path) -> Any:
    return pd.read_csv(path, sep=";", decimal=",", encoding="cp1252")


READING = {"delimiter": ";", "encoding": "cp1252", "formats": "de"}
BUDGET = us.Budget(9, "1e-6")


def same(synthetic: Any, private: Any, without: str = "Zimmer") -> bool:
    """Whether two frames have the same columns in the same order, of the same dtypes."""
    private = private.drop(columns=without, errors="ignore")
    return list(synthetic.dtypes.items()) == list(private.dtypes.items())


@pytest.fixture
def clinic(tmp_path: Path) -> us.Result:
    return us.run(german(tmp_path / "clinic.csv"), BUDGET, **values(tmp_path), **READING)


def test_a_german_csv_file_has_a_german_stand_in(tmp_path: Path, clinic: us.Result) -> None:
    assert clinic.folder is not None
    table = clinic.folder.synthetic_file("csv")
    assert table.read_bytes().splitlines()[0] == ";".join(GERMAN).encode()
    made = read_german(table)
    assert same(made, read_german(tmp_path / "clinic.csv"))
    for name, pattern in {"Datum": r"\d\d\.\d\d\.2024", "Dringend": "ja|nein", "Pat_ID": r"P-\d{5}"}.items():
        assert all(re.fullmatch(pattern, cell) for cell in made[name].dropna())
    assert re.search(rb";\d+,\d\d;", table.read_bytes())
    assert list(clinic.columns) == list(GERMAN)
    assert list(clinic.provenance) == ["text_sha256", "provenance"]
    more = us.generate(clinic.folder.release_file("dp-kps"), llm="none", records=20, output=tmp_path / "elsewhere")
    assert more.folder is not None
    assert same(read_german(more.folder.synthetic_file("csv")), made), "the Release says how"


def test_records_of_an_invented_owner_are_within_the_bound(tmp_path: Path, clinic: us.Result) -> None:
    sizes = pd.Series(clinic.columns["Pat_ID"]).value_counts()
    assert sizes.max() <= 3
    assert len(sizes) < 40
    plain = {name: each for name, each in DOMAINS.items() if name != "Pat_ID"}
    made = us.run(rows(), BUDGET, **values(tmp_path, columns=plain, output=None))
    assert all(str(name).isdecimal() for name in made.columns["Pat_ID"])
    alone = us.run(rows(), BUDGET, **values(tmp_path, columns="Pat_ID=identifier ??-#", output=None))
    assert all(re.fullmatch("[A-Z]{2}-[0-9]", str(name)) for name in alone.columns["Pat_ID"])


def test_columns_that_are_not_declared_are_named_and_left_out(tmp_path: Path) -> None:
    said: list[str] = []
    made = us.run(german(tmp_path / "c.csv"), BUDGET, **values(tmp_path), **READING, listener=us.Listener(said.append))
    assert "Synthetic tables leave out columns that are not declared (columns): Zimmer." in said
    assert "Zimmer" not in json.dumps(made.release.schema.to_json())


def test_json_lines_keep_their_columns_and_tell_no_key_that_is_not_declared(tmp_path: Path) -> None:
    first = ["Kosten", "Befund", "Pat_ID", "Datum", "Abteilung", "Dringend"]
    lines = [{"zebra": {"a": 1}, **{name: row[name] for name in first}} for row in rows()]
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps(line, default="{:%d.%m.%Y}".format) for line in lines))
    said: list[str] = []
    formats = {"formats": {"date": "%d.%m.%Y"}}
    us.run(tmp_path / "t.jsonl", BUDGET, **values(tmp_path), **formats, listener=us.Listener(said.append))
    made = pd.read_json(tmp_path / "out/release/synthetic.jsonl", lines=True, convert_dates=False)
    private = pd.read_json(tmp_path / "t.jsonl", lines=True, convert_dates=False)
    assert same(made[first], private, "zebra")
    assert list(made) != first, "the order of a record's keys is private"
    assert made["Datum"].dropna().str.fullmatch(r"\d\d\.\d\d\.2024").all()
    assert not files_holding(tmp_path / "out/release", b"zebra")
    assert "zebra" not in "".join(said)


def test_parquet_keeps_its_types(tmp_path: Path) -> None:
    columns = {name: [row[name] for row in rows()] for name in rows()[0] if name != "Zimmer"}
    table = pa.table(
        {
            "Pat_ID": pa.array([int(name[2:]) for name in columns["Pat_ID"]], pa.int32()),
            "Datum": pa.array(columns["Datum"]).cast(pa.timestamp("ms", "Europe/Berlin")),
            "Kosten": pa.array([decimal.Decimal(f"{each:.2f}") for each in columns["Kosten"]], pa.decimal128(9, 2)),
            "Abteilung": pa.array(columns["Abteilung"]).dictionary_encode(),
            "Befund": pa.array(columns["Befund"], pa.large_string()),
            "Dringend": pa.array(["ja" if each else "nein" for each in columns["Dringend"]]),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    assert pq.read_schema(tmp_path / "t.parquet").equals(table.schema)
    plain = {name: each for name, each in DOMAINS.items() if name != "Pat_ID"}
    us.run(tmp_path / "t.parquet", BUDGET, **values(tmp_path, columns=plain, formats={"boolean": "ja|nein"}))
    made = pq.read_table(tmp_path / "out/release/synthetic.parquet")
    assert made.schema.equals(table.schema)
    assert set(made["Dringend"].to_pylist()) == {"ja", "nein"}
    assert not (tmp_path / "out/release/synthetic.csv").exists()
    assert len(read_synthetic(tmp_path / "out/release", declared_columns(plain, {"boolean": "ja|nein"}))) == 40


def frame() -> Any:
    found = pd.DataFrame(rows()).drop(columns="Zimmer")
    found["Abteilung"] = found["Abteilung"].astype(pd.CategoricalDtype(WARDS))
    found["Datum"] = pd.to_datetime(found["Datum"]).astype("datetime64[ns]")
    found["Dringend"] = found["Dringend"].astype("boolean")
    found["Kosten"] = found["Kosten"].astype("float32")
    found["Befund"] = found["Befund"].astype("string")
    found["Pat_ID"] = found["Pat_ID"].astype(object)
    return found.assign(Tage=pd.array(range(COUNT), "Int64"))[["Tage", *found.columns]]


def test_a_data_frame_keeps_its_dtypes_and_so_does_its_parquet_file(tmp_path: Path) -> None:
    days = {**DOMAINS, "Tage": {"kind": "integer", "range": [0, 100]}}
    made = us.run(frame(), BUDGET, **values(tmp_path, columns=days))
    as_texts = pd.Series(["P-1"]).dtype  # what pandas makes of strings: that objects are any depends on the values
    expected = frame().astype({"Pat_ID": as_texts, "Datum": "datetime64[us]"})  # as does the unit of times
    assert same(made.to_pandas(), expected)
    frame().to_parquet(tmp_path / "t.parquet")
    us.run(tmp_path / "t.parquet", BUDGET, **values(tmp_path, columns=days, output=str(tmp_path / "again")))
    assert same(pd.read_parquet(tmp_path / "again/release/synthetic.parquet"), expected)


def test_a_layout_tells_nothing_that_only_values_tell(tmp_path: Path) -> None:
    """A frame of objects, and one with another category that no row has to have."""
    less = frame().assign(Abteilung=pd.Categorical(frame()["Abteilung"], [*WARDS, "Zebra"]))
    made = [us.read_corpus(each, text="Befund", label="Abteilung", labels=WARDS).layout for each in (frame(), less)]
    assert made[0] == made[1] == us.read_corpus(frame()[:0], text="Befund").layout
    assert "Pat_ID" not in made[0].types
    many = frame().assign(Abteilung=pd.Categorical(frame()["Abteilung"], [*WARDS, *map(str, range(200))]))
    assert us.read_corpus(many, text="Befund").layout == made[0], "nor how many categories there are"
    lists = us.read_corpus({"Befund": ["Husten"], "Tage": [1]}, text="Befund").layout
    assert lists == Layout(("Befund", "Tage")), "a list declares no type"


SAME: dict[str, tuple[list[Any], list[Any], str | None]] = {
    "a larger number": ([1, 2, 3], [1, 2, 2**63], None),
    "no number": ([1, 2, 3], [1, 2, "3"], None),
    "one text": ([None] * 3, [None, None, "a"], None),
    "one finer time": (["2024-01-01"] * 3, ["2024-01-01"] * 2 + ["2024-01-01T01:02:03.123456789"], "datetime"),
    "one that is no date": (["2024-01-01"] * 3, ["2024-01-01", "2024-01-01", "n/k"], "csv"),
    "a category that is missing": ([1, 2, 3], [1, 2, None], "category"),
    "one category at all": ([None] * 3, [None, None, "a"], "category"),
}


@pytest.mark.parametrize("change", SAME)
@pytest.mark.parametrize("as_file", [False, True])
def test_no_value_of_one_row_of_a_data_frame_shows_in_the_layout(tmp_path: Path, change: str, as_file: bool) -> None:
    *columns, kind = SAME[change]
    layouts = []
    for values in columns:
        found = pd.DataFrame({"note": ["a", "b", "c"], "x": values})
        if kind == "csv":
            found.to_csv(tmp_path / "t.csv", index=False)
            found = pd.read_csv(tmp_path / "t.csv", parse_dates=["x"])
        elif kind == "datetime":
            found["x"] = [pd.Timestamp(each) for each in values]
        elif kind is not None:
            found["x"] = found["x"].astype(kind)
        if as_file and change != "no number":
            found.to_parquet(tmp_path / "t.parquet")
        source: Any = tmp_path / "t.parquet" if as_file and change != "no number" else found
        if as_file and change == "one text":
            source = pq.read_table(source)  # which says that it was a frame
        declared = (
            {"x": {"kind": "date", "range": ["2024-01-01", "2024-12-31"]}} if kind in ("csv", "datetime") else None
        )
        layouts.append(us.read_corpus(source, text="note", columns=declared).layout)
    assert layouts[0] == layouts[1]
    assert layouts[0].columns == ("note", "x")


@pytest.mark.parametrize("as_file", [False, True])
@pytest.mark.parametrize(
    ("declared", "typed"),
    [("1,2", (1, 2)), ("true,false", (True, False)), ("0.5,1", (0.5, 1.0)), ("01,2", ("01", "2")), ("a,b", ("a", "b"))],
)
def test_no_value_of_one_row_of_a_data_frame_shows_in_the_labels(
    tmp_path: Path, declared: str, typed: tuple[Any, ...], as_file: bool
) -> None:
    found = pd.Series(typed)
    for last in (found[0], None, "x"):
        values = [*map(str, found), last] if last == "x" else [*found, last]
        frame = pd.DataFrame({"note": list("abc"), "x": values})
        frame.to_parquet(tmp_path / "t.parquet")
        source: Any = tmp_path / "t.parquet" if as_file else frame
        corpus = us.read_corpus(source, text="note", label="x", labels=declared, on_bad_row="skip")
        assert [(type(each), each) for each in corpus.labels] == [(type(each), each) for each in typed]
        assert [each for batch in corpus.batches() for each in batch.labels][:2] == [0, 1]


@pytest.mark.parametrize("as_file", [False, True])
def test_no_row_that_was_taken_out_shows_in_the_layout(tmp_path: Path, as_file: bool) -> None:
    layouts = []
    for gone in ("b", "e"):
        found = pd.DataFrame({"note": list("abcde"), "sex": ["f", "m"] * 2 + ["f"]}).query(f"note != '{gone}'")
        found.to_parquet(tmp_path / "t.parquet")
        layouts.append(us.read_corpus(tmp_path / "t.parquet" if as_file else found, text="note").layout)
    assert layouts[0] == layouts[1]


def test_categories_keep_their_order_and_their_values() -> None:
    kinds = [pd.CategoricalDtype(["low", "high"], ordered=True), pd.CategoricalDtype([1, 2])]
    found = pd.DataFrame({"note": ["a", "b"], "x": ["low", "high"], "n": [1, 2]}).astype({"x": kinds[0], "n": kinds[1]})
    declared = {"x": {"kind": "category", "values": ["low", "high"]}, "n": {"kind": "integer", "range": [1, 2]}}
    layout = us.read_corpus(found, text="note", columns=declared).layout
    schema = PublicSchema("note", None, columns=tuple(declared_columns(declared)), layout=layout)
    made = SyntheticTable.of(
        [SyntheticRecord("a", 0, {}, ("high", 2)), SyntheticRecord("b", 0, {}, ("low", 1))], schema
    )
    assert made.to_arrow().to_pandas().dtypes[["x", "n"]].tolist() == kinds


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ((), "Befund;Abteilung;Datum;Kosten;Dringend;Pat_ID"),
        (("--like", "plain"), "Befund,Abteilung,Datum,Kosten,Dringend,Pat_ID"),
        (("--like", "delimiter=|,encoding=utf-8 formats=en-US"), "Befund|Abteilung|Datum|Kosten|Dringend|Pat_ID"),
        (("--provenance",), "Befund;Abteilung;Datum;Kosten;Dringend;Pat_ID;provenance"),
    ],
)
def test_an_export_is_written_like_the_private_table_or_as_it_is_asked_for(
    tmp_path: Path, clinic: us.Result, understudy: Command, options: tuple[str, ...], first: str
) -> None:
    file = tmp_path / "not-private.csv"
    understudy("export", str(tmp_path / "out"), "--to", "csv", "--output", str(file), *options, code=0)
    encoding = "utf-8" if options[:1] == ("--like",) else "cp1252"
    header, row, *_ = file.read_text(encoding).splitlines()
    assert header == first
    forms = {
        ";": r";\d\d\.\d\d\.2024;\d+,\d\d;",
        ",": r",2024-\d\d-\d\d,\d+\.\d+,",
        "|": r"\|\d\d/\d\d/2024\|\d+\.\d\d\|",
    }
    assert re.search(forms[first[6]], row)
    like = options[1] if options[:1] == ("--like",) else None
    clinic.save(tmp_path / "not-private-2.csv", like=like, provenance="--provenance" in options)
    assert (tmp_path / "not-private-2.csv").read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"to": "jsonl", "output": "x.csv"}, "A jsonl file cannot be written as 'x.csv'"),
        ({"to": "csv", "output": "x.jsonl"}, "A csv file cannot be written as 'x.jsonl'"),
        ({"to": "csv", "output": "x.csv", "like": "separator=;"}, "cannot be written like 'separator'"),
        ({"to": "csv", "output": "x.csv", "like": {"encoding": "utf-16"}}, "In the encoding 'utf-16'"),
        ({"to": "chat", "output": "not-private.jsonl", "like": "plain"}, "only for CSV and JSON lines"),
    ],
)
def test_an_export_that_contradicts_itself_is_refused(
    tmp_path: Path, clinic: us.Result, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(us.UnderstudyError, match=problem):
        us.export(clinic, **{**options, "output": tmp_path / options["output"]})


def test_rows_that_were_taken_out_or_sorted_keep_their_provenance(tmp_path: Path, clinic: us.Result) -> None:
    assert clinic.folder is not None
    before = {text.text: text.phrases for text in read_synthetic(clinic.folder.shareable)}
    table = pq.read_table(clinic.folder.synthetic_file()).sort_by("Befund").slice(3)
    pq.write_table(table, clinic.folder.synthetic_file())
    after = {text.text: text.phrases for text in read_synthetic(clinic.folder.shareable)}
    assert after == {text: before[text] for text in table["Befund"].to_pylist()}


def test_the_report_and_the_csv_file_alone_show_the_table_as_it_is_written(tmp_path: Path, clinic: us.Result) -> None:
    folder = OutputFolder(tmp_path / "out")
    paths = write_reports(folder, embedder=None)
    heads = "".join(f'<th scope="col">{name}</th>' for name in GERMAN)
    assert f"<tr>{heads}</tr>" in paths.shareable.read_text("utf-8")
    (names, first, *_), texts = (
        first_rows(folder.shareable),
        read_synthetic(folder.shareable, clinic.release.schema.columns),
    )
    folder.synthetic_file().unlink()
    assert first_rows(folder.shareable)[:2] == [names, first]
    assert re.fullmatch(r"\d\d\.\d\d\.2024|", first[2])
    assert read_synthetic(folder.shareable, clinic.release.schema.columns) == texts
    assert us.evaluate(rows(), tmp_path / "out", embedder="none", metrics="utility", text="Befund").values


def test_text_that_would_end_a_row_or_has_no_place_in_the_encoding_is_written_without_harm(tmp_path: Path) -> None:
    from understudy.corpus import read_corpus, write_table

    texts = {"t": ['a\tb\r\n"c" \u2192 \u20ac', "plain"]}
    for quotes, kept in (
        ("none", 'a b "c" ? \u20ac'),
        ("line", 'a\tb "c" ? \u20ac'),
        ("multiline", 'a\tb\r\n"c" ? \u20ac'),
    ):
        layout = Layout(delimiter="\t", encoding="cp1252", quotes=quotes)  # type: ignore[arg-type]
        write_table(tmp_path / "t.csv", texts, layout=layout)
        corpus = read_corpus(tmp_path / "t.csv", text="t", **layout.reading)
        assert [text for batch in corpus.batches() for text in batch.texts] == [kept, "plain"]


@pytest.mark.parametrize("locale", LOCALES)
def test_what_is_written_is_read_as_the_same(locale: str) -> None:
    chosen = random.Random(2)
    for kind in ("date", "datetime", "number", "integer", "boolean"):
        format_ = LOCALES[locale]["date" if kind.startswith("date") else "boolean" if kind == "boolean" else "number"]
        for _ in range(200):
            time = datetime.datetime(chosen.randrange(1, 10_000), 1, 1) + datetime.timedelta(
                minutes=chosen.randrange(10**5)
            )
            value: Any = {
                "date": time.date(),
                "datetime": time,
                "number": round(chosen.uniform(-(10**6), 10**6), 2),
                "integer": chosen.randrange(-(10**9), 10**9),
                "boolean": chosen.random() < 0.5,
            }[kind]
            read = as_written(written(value, kind, format_), kind, format_)
            assert (read.date() if kind == "date" else float(read) if kind == "number" else read) == (
                str(value) if kind == "integer" else value
            )


@pytest.mark.parametrize(
    "layout",
    [
        {"encoding": "utf-16"},
        {"encoding": "hex"},
        {"encoding": "nothing"},
        {"delimiter": ""},
        {"delimiter": '"'},
        {"format": "xlsx"},
        {"types": {"a": 5}},
    ],
)
def test_a_layout_that_no_table_has_is_no_release(tmp_path: Path, clinic: us.Result, layout: dict[str, Any]) -> None:
    fields = clinic.release.schema.to_json()
    with pytest.raises(ValueError):
        type(clinic.release.schema).from_json({**fields, "layout": {**fields["layout"], **layout}})


def test_a_layout_does_not_depend_on_any_row() -> None:
    """With one row more, whose values are missing and whose keys are in another order, it is the same."""
    names = {"text": "Befund", "label": "Abteilung", "labels": ["a", "b"], "columns": "Stufe=1..5; Dringend=boolean"}
    plain = [{"Befund": "knee", "Abteilung": "a", "Stufe": 3, "Dringend": True}] * 3
    other = {"Dringend": None, "Stufe": None, "Abteilung": None, "Befund": None}

    def layout(table: Any) -> Any:
        return us.read_corpus(table, **names).layout.to_json()

    assert layout(plain) == layout([other, *plain])
    frame, more = pd.DataFrame(plain), pd.DataFrame([*plain, other])
    assert (frame["Stufe"].dtype, more["Stufe"].dtype) == ("int64", "float64"), "pandas itself tells"
    assert layout(frame) == layout(more)


def test_a_file_s_layout_does_not_depend_on_any_row(tmp_path: Path) -> None:
    names = {"text": "Befund", "columns": "Stufe=1..5"}
    rows = [{"Befund": "knee", "Stufe": 3}] * 3
    found = []
    for name, table in {"one": rows, "two": [{"Befund": None, "Stufe": None}, *rows]}.items():
        reordered = [dict(reversed(row.items())) if row["Stufe"] is None else row for row in table]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, reordered)))
        pd.DataFrame(table).to_parquet(tmp_path / f"{name}.parquet")
        files = (tmp_path / f"{name}.jsonl", tmp_path / f"{name}.parquet")
        found.append([us.read_corpus(file, **names).layout.to_json() for file in files])
    assert found[0] == found[1]
