"""Every format, compression and way of naming a table gives the same rows."""

from __future__ import annotations

import codecs
import encodings
import io
import itertools
import json
import pickle
import pkgutil
import re
import stat
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_tables import rows_of, texts_of

from understudy.base.errors import ConfigError, CorpusError
from understudy.corpus import read_corpus
from understudy.corpus.bounding import BoundedCorpus
from understudy.corpus.sources import Reading
from understudy.privacy.unit import Unit
from understudy.run.settings import run_config
from understudy.schema.columns import Column, declared_columns

CSV = 'note,ward\r\n"pain, ""sharp""",a\r\n"two\r\nlines",b\r\n'
TSV = 'note\tward\npain, sharp\ta\n5" nail, "deep\tb\r\n'
JSONL = '{"note": "one", "ward": "a"}\n\n{"ward": "b", "note": "zwei 🎈 日本"}\r\n'


def read(source, **more):
    return read_corpus(source, **{"text": "note", "label": "ward", "labels": ["a", "b"], **more})


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("t.csv", CSV, [('pain, "sharp"', "a"), ("two\r\nlines", "b")]),
        ("t.tsv", TSV, [("pain, sharp", "a"), ('5" nail, "deep', "b")]),
        *((name, JSONL, [("one", "a"), ("zwei 🎈 日本", "b")]) for name in ("t.jsonl", "t.ndjson", "T.JSONL")),
    ],
)
@pytest.mark.parametrize("compression", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_every_text_format_is_read_through_every_compression(write, name, content, rows, compression):
    assert rows_of(read(write(f"{name}{compression}", content))) == rows


@pytest.mark.parametrize(
    "text_type", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_parquet_texts_may_be_of_every_string_type(tmp_path, text_type):
    if text_type == pa.string_view():
        table = pa.table({"note": pa.array(["one", "two"], text_type)})
        corpus = read_corpus(table, text="note")
    else:
        pq.write_table(pa.table({"note": pa.array(["one", "two"]).cast(text_type)}), tmp_path / "t.parquet")
        corpus = read_corpus(tmp_path / "t.parquet", text="note")
    assert texts_of(corpus) == ["one", "two"]


def test_a_parquet_column_with_a_dot_in_its_name_is_found(tmp_path):
    pq.write_table(pa.table({"a.b": ["one"], "a": ["no"]}), tmp_path / "t.parquet")
    assert texts_of(read_corpus(tmp_path / "t.parquet", text="a.b")) == ["one"]


def test_an_arrow_table_and_a_list_of_dicts_are_sources():
    rows = [{"note": "one", "ward": "a"}, {"note": "two", "ward": "b"}]
    expected = [("one", "a"), ("two", "b")]
    assert rows_of(read(rows)) == expected
    assert rows_of(read(pa.Table.from_pylist(rows))) == expected


def test_format_and_compression_can_be_named_when_the_file_name_tells_nothing(write):
    assert len(rows_of(read(write("notes.txt", CSV), format="csv"))) == 2
    assert len(rows_of(read(write("notes.txt.gz", CSV), format="csv"))) == 2
    hidden = write("a.csv.gz", CSV).rename(write("x", "").with_name("hidden"))
    assert len(rows_of(read(hidden, format="csv.gz"))) == 2


def test_the_delimiter_is_an_option_and_never_guessed(write):
    path = write("t.csv", "note;ward\none;a\n")
    assert rows_of(read(path, delimiter=";")) == [("one", "a")]
    with pytest.raises(CorpusError, match="has no column 'note'"):
        read(path)


def test_a_table_in_another_encoding_is_told_so_and_not_that_it_lacks_a_column(write):
    path = write("t.csv", "")
    path.write_bytes("note,ward\none,a\n".encode("utf-16"))
    with pytest.raises(CorpusError, match="is not text in utf-8") as caught:
        read(path)
    assert "--encoding" in caught.value.cure
    assert "convert the file to UTF-8" in caught.value.cure, "which the encoding of this one needs"
    path.write_bytes("n\u00f6te,ward\none,a\n".encode("latin-1"))
    with pytest.raises(CorpusError, match="is not text in utf-8"):
        read(path)


def test_other_encodings_and_the_byte_order_mark_are_read(write):
    assert texts_of(read(write("a.csv", "note,ward\nénergie,a\n".encode("latin-1")), encoding="latin-1")) == ["énergie"]
    for encoding, name in itertools.product(["utf8", "utf-8-sig"], ["b.csv", "b.jsonl"]):
        content = CSV if name == "b.csv" else JSONL
        assert len(rows_of(read(write(name, content.encode("utf-8-sig")), encoding=encoding))) == 2


def test_globs_are_sorted_and_lists_take_a_file_once(write, tmp_path):
    write("b.csv", "note,ward\nsecond,a\n")
    write("a.csv.gz", "ward,note\na,first\n")
    pattern = str(tmp_path / "*.csv*")
    assert texts_of(read(pattern)) == ["first", "second"]
    assert texts_of(read([tmp_path / "b.csv", pattern])) == ["second", "first"]


def test_a_file_whose_name_looks_like_a_pattern_is_read_as_a_file(write):
    assert len(texts_of(read(write("notes[1].csv", CSV)))) == 2


class FakeStdin:
    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def test_standard_input_is_copied_once_into_the_private_folder_read_twice_and_removed(monkeypatch, private):
    monkeypatch.setattr(sys, "stdin", FakeStdin(CSV.encode()))
    copy = private / "stdin.spool"
    with read("-", format="csv", private_dir=private) as corpus:
        assert rows_of(corpus) == rows_of(corpus) != []
        assert copy.read_bytes() == CSV.encode()
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert not copy.exists()


@pytest.mark.parametrize("labels_from_data", [False, True])
def test_the_temporary_copy_of_standard_input_goes_at_close(monkeypatch, tmp_path, labels_from_data):
    monkeypatch.setattr(sys, "stdin", FakeStdin(CSV.encode()))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    corpus = read("-", format="csv", labels=None if labels_from_data else "a,b", labels_from_data=labels_from_data)
    (copy,) = tmp_path.iterdir()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert len(rows_of(corpus)) == 2
    corpus.close()
    corpus.close()
    assert not list(tmp_path.iterdir())


def test_several_columns_become_one_json_record_in_the_order_asked_for(write):
    path = write("t.csv", "a,b,c\n1,é,x\n,2,y\n,,z\n")
    corpus = read_corpus(path, record_columns=["b", "a"], on_bad_row="skip")
    assert texts_of(corpus) == ['{"b": "é", "a": "1"}', '{"b": "2", "a": ""}']


def test_a_record_of_parquet_columns_keeps_numbers_nulls_and_dates(tmp_path):
    import datetime

    table = {"n": [1, None], "x": [0.5, float("nan")], "d": [datetime.date(2020, 1, 2), None], "t": ["a", "b"]}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    records = texts_of(read_corpus(tmp_path / "t.parquet", record_columns=list(table)))
    assert [json.loads(record) for record in records] == [
        {"n": 1, "x": 0.5, "d": "2020-01-02", "t": "a"},
        {"n": None, "x": None, "d": None, "t": "b"},
    ]


def test_a_whole_decimal_in_a_record_is_an_integer_whatever_the_other_rows_hold(tmp_path):
    nested = [{"a": 3.0, "b": [1.0, 0.5]}] * 2
    for name, table in [("i", {"n": [3, 4], "s": nested}), ("f", {"n": [3.0, None], "s": nested})]:
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    first = [texts_of(read_corpus(tmp_path / f"{name}.parquet", record_columns=["n", "s"]))[0] for name in "if"]
    assert first == ['{"n": 3, "s": {"a": 3, "b": [1, 0.5]}}'] * 2


def test_owners_and_secrets_come_with_the_batch(write, tmp_path):
    path = write("t.csv", "note,who,hidden\none,7,anna; 1234\ntwo,8,\n")
    (batch,) = read_corpus(path, text="note", owner="who", secrets="hidden").batches()
    assert (batch.owners, batch.secrets) == (["7", "8"], [["anna", "1234"], []])
    pq.write_table(pa.table({"note": ["one"], "who": [7], "hidden": [["anna", "1;2"]]}), tmp_path / "t.parquet")
    (batch,) = read_corpus(tmp_path / "t.parquet", text="note", owner="who", secrets=["hidden"]).batches()
    assert (batch.owners, batch.secrets) == (["7"], [["anna", "1;2"]])


def test_batches_have_the_size_asked_for_and_no_batch_is_empty():
    corpus = read_corpus([{"note": str(i)} for i in range(10)], text="note")
    assert [len(batch.texts) for batch in corpus.batches(4)] == [4, 4, 2]
    assert [len(batch.texts) for batch in corpus.batches(5)] == [5, 5]
    assert [batch.labels.tolist() for batch in corpus.batches()] == [[0] * 10]
    with pytest.raises(ConfigError):
        corpus.batches(0)


@pytest.mark.parametrize("source", ["t.csv", "t.jsonl", "t.parquet", "dicts", "arrow"])
def test_a_table_without_rows_runs_to_the_end(write, tmp_path, source):
    empty = pa.table({"note": pa.array([], pa.null()), "ward": pa.array([], pa.null()), "who": pa.array([], pa.null())})
    pq.write_table(empty, tmp_path / "t.parquet")
    write("t.csv", "note,ward,who\n")
    write("t.jsonl", "")
    table = {"dicts": [], "arrow": empty}.get(source, tmp_path / source)
    corpus = read(table, owner="who")
    assert list(corpus.batches()) == []
    assert corpus.fingerprint(b"key") == ""
    assert read(table, labels=None, labels_from_data=True).labels == ()


@pytest.mark.parametrize(
    ("source", "error", "match"),
    [
        ("absent.csv", CorpusError, "There is no file"),
        ("*.nothing", CorpusError, "No file matches"),
        (".", ConfigError, "folder .* different formats"),
        ("t.docx", ConfigError, "format of .* is not clear"),
        ("t.parquet.gz", ConfigError, "compressed as a whole"),
        (["t.csv", "t.jsonl"], ConfigError, "different formats"),
        ("empty.csv", CorpusError, "is empty"),
        ("double.csv", CorpusError, "same name"),
        ("other.csv", CorpusError, "has no column 'note'"),
        ("pipe.csv", ConfigError, "read only once"),
    ],
)
def test_a_source_that_cannot_be_used_is_one_clear_error(write, tmp_path, monkeypatch, source, error, match):
    import os

    for name, content in [
        ("t.docx", ""), ("t.parquet.gz", ""), ("t.csv", CSV), ("t.jsonl", JSONL), ("empty.csv", ""),
        ("double.csv", "note,ward,x,x\n"), ("other.csv", "text,ward\n"),
    ]:  # fmt: skip
        write(name, content)
    os.mkfifo(tmp_path / "pipe.csv")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=match):
        read(source)


@pytest.mark.parametrize(
    "options",
    [
        {"text": None},
        {"record_columns": ["note"]},
        {"encoding": "klingon"},
        {"delimiter": ";;"},
        {"delimiter": 5},
        {"encoding": 5},
        {"delimiter": '"'},
        {"quotes": "double"},
        {"encoding": "utf\x00"},
        {"max_cell_bytes": 0},
        {"on_bad_row": "ignore"},
        {"format": "xls"},
        {"label_type": "date"},
    ],
)
def test_options_that_cannot_be_meant_are_config_errors(write, options):
    with pytest.raises(ConfigError):
        read(write("t.csv", CSV), **options)


def test_a_label_among_the_columns_of_a_record_may_be_left_out_of_them(write):
    with pytest.raises(ConfigError, match="leave it out of record_columns"):
        read(write("t.csv", CSV), text=None, record_columns=["note", "ward"], label="ward")


def test_standard_input_needs_its_format_named(monkeypatch):
    monkeypatch.setattr(sys, "stdin", FakeStdin(b""))
    with pytest.raises(ConfigError, match="standard input"):
        read("-")


def test_a_parquet_file_with_unusable_columns_is_one_clear_error(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"note": ["x"], "n": [1], "l": [[1]]}), path)
    with pytest.raises(CorpusError, match="'n' is not of a string type"):
        read_corpus(path, text="n")
    with pytest.raises(CorpusError, match="'l' cannot be used"):
        read_corpus(path, text="note", label="l", labels="1")
    with pytest.raises(CorpusError, match="no column 'm'"):
        read_corpus(path, text="m")
    pq.write_table(pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], names=["note", "note"]), path)
    with pytest.raises(CorpusError, match="same name"):
        read_corpus(path, text="note")


def test_importing_the_corpus_floor_does_not_import_pyarrow():
    code = "import sys, understudy.corpus; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_a_corpus_and_a_batch_show_does_not_depend_on_the_rows(write):
    few, many = write("t.csv", "note\nx\n"), write("u.csv", "note\n" + "secret\n" * 500)
    one, other = read_corpus(few, text="note"), read_corpus(many, text="note")
    assert repr(one) == repr(other)
    assert one.describe() == other.describe()
    assert not hasattr(one, "__len__")
    (batch,) = other.batches()
    assert "secret" not in repr(batch)
    assert "500" not in re.sub("0x[0-9a-f]+", "", repr(batch))  # the place in memory may hold any digits


def test_a_home_folder_is_expanded(write, monkeypatch, tmp_path):
    write("t.csv", CSV)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(rows_of(read("~/t.csv"))) == len(rows_of(read(Path("~/*.csv")))) == 2


def test_neither_a_bounded_batch_nor_a_bounded_corpus_shows_a_text_or_the_key():
    rows = [{"note": "Zebra-quux", "who": "anna"}]
    bounded = BoundedCorpus(read_corpus(rows, text="note", owner="who"), Unit("owner", 2), b"Zebra-key")
    (batch,) = bounded.batches()
    assert batch.texts == ["Zebra-quux"]
    assert "Zebra" not in repr(batch) + repr(bounded)


# -- no encoding that is accepted lets the bytes of one row change how a later row is read ----------------------------


LEADS = [bytes(pair) for pair in itertools.product(range(256), repeat=2)]
LEADS += [bytes(triple) for triple in itertools.product((0x30, 0x41, 0x81, 0x8E, 0x8F, 0xA4, 0xE3, 0xFF), repeat=3)]


def accepted() -> list[str]:
    names = []
    for module in pkgutil.iter_modules(encodings.__path__):
        try:
            Reading(encoding=module.name)
        except ConfigError:
            continue
        names.append(module.name)
    return names


MULTIBYTE = ["utf_8", "shift_jis", "cp932", "gbk", "gb2312", "gb18030", "big5", "cp949", "cp950", "euc_jp", "euc_kr"]


def test_the_usual_encodings_are_accepted_by_any_of_their_names():
    wanted = ["ascii", "latin_1", "cp1252", "iso8859_15", "koi8_r", "mac_roman", "mac_latin2", "utf_8_sig", *MULTIBYTE]
    assert set(wanted) <= set(accepted())
    for alias in ("UTF-8", "utf8", "Latin-1", "windows-1252", "sjis", "EUC-JP", "ms932", "us-ascii"):
        assert Reading(encoding=alias).encoding == alias


@pytest.mark.parametrize("name", accepted())
def test_a_line_break_quote_or_comma_is_itself_after_whatever_bytes(name):
    decode = codecs.getdecoder(name)
    leads = LEADS if name in MULTIBYTE else [bytes([byte]) for byte in range(256)]
    for lead, end in itertools.product(leads, (b"\n", b"\r", b'"', b",", b"\t")):
        assert decode(lead + end, "surrogateescape")[0][-1] == end.decode()


REFUSED = [
    *("utf-7", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "iso2022_jp", "iso2022_kr", "iso2022_jp_2", "hz"),
    *("unicode_escape", "raw_unicode_escape", "punycode", "cp037", "cp424", "undefined", "hex"),
]


@pytest.mark.parametrize("encoding", REFUSED)
def test_an_encoding_in_which_a_row_could_change_later_rows_is_refused_with_its_cure(write, encoding):
    with pytest.raises(ConfigError, match="Convert the file to UTF-8"):
        read_corpus(write("t.csv", "note\none\n"), text="note", encoding=encoding)


@pytest.mark.parametrize("encoding", MULTIBYTE)
def test_half_a_character_at_the_end_of_a_row_spoils_that_row_only(write, encoding):
    path = write("t.csv", b"note\none\nbad \x81\nbad \xe3\ntwo\n")
    assert texts_of(read_corpus(path, text="note", encoding=encoding, on_bad_row="skip")) == ["one", "two"]


def test_the_temporary_copy_of_standard_input_goes_when_it_cannot_be_used(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdin", FakeStdin(b"other\n1\n"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(CorpusError):
        read("-", format="csv")
    assert not list(tmp_path.iterdir())


# -- how a table writes dates, numbers, truth and missing values is declared, and each cell is read by it alone -------

GERMAN = "Text;Datum;Betrag;Kunde\nZu warm;02.02.2024;1.220,39;ja\nZu kalt;31.12.2024;k. A.;nein\n"
COLUMNS = {
    "Datum": {"kind": "date", "range": ["01.01.2024", "31.12.2024"], "bins": 12},
    "Betrag": {"kind": "number", "range": [0, 2000], "bins": 20},
    "Kunde": "boolean",
}


def _column(kind: str, format_: str, low: object = 0, high: object = 2000) -> Column:
    return declared_columns({"x": {"kind": kind, "range": [low, high], "bins": 20, "format": format_}})[0]


@pytest.mark.parametrize(
    ("format_", "good", "bad"),
    [
        (
            "1.234,56",
            {"220,39": 220.39, "1.220,39": 1220.39, "1220": 1220, "-3,5": -3.5, " 12,0 ": 12},
            ["220.39", "1.22"],
        ),
        ("1,234.56", {"1,220.39": 1220.39, "220.39": 220.39}, ["220,39", "1,2,3"]),
        ("1234,56", {"1220,39": 1220.39}, ["1.220,39"]),
        ("1 234,56", {"1\u00a0220,39": 1220.39, "1\u202f220": 1220}, ["1 22"]),
        ("1'234.56", {"1'220.5": 1220.5}, ["1,220.5"]),
        ("1.234,56 €", {"12,50 €": 12.5, "12,50": 12.5}, ["12,50 $"]),
    ],
)
def test_a_number_is_read_by_its_declared_form_alone(format_: str, good: dict[str, float], bad: list[str]) -> None:
    column = _column("number", format_)
    for cell, value in good.items():
        assert column.cell(cell) == column.plain.cell(value), cell
    assert [column.cell(cell) for cell in bad] == [None] * len(bad)


def test_a_point_before_three_digits_is_what_was_declared_and_never_guessed() -> None:
    """The twin: the plain reading takes the same cell for a thousandth of it."""
    assert _column("number", "1.234,56").cell("1.234") == 12
    assert _column("number", "1.234,56").plain.cell("1.234") == 0


def test_dates_have_the_declared_order_of_day_and_month() -> None:
    column = _column("date", "%d.%m.%Y|%d.%m.%Y %H:%M", "2024-01-01", "31.12.2024")
    assert column.cell("2.12.2024") == column.cell("02.12.2024 10:30") == column.plain.cell("2024-12-02")
    assert [column.cell(each) for each in ("2024-12-02", "12/02/2024", "31.02.2024")] == [None] * 3
    american = declared_columns({"x": {"kind": "date", "range": ["2024-01-01", "2024-12-31"]}}, "en-US")[0]
    assert american.cell("02/12/2024") == american.plain.cell("2024-02-12")


def test_truth_is_told_by_the_declared_words_and_a_mark_may_be_one() -> None:
    forms = {"a": "ja|nein", "b": "x|"}
    yes, mark = declared_columns({name: {"kind": "boolean", "format": form} for name, form in forms.items()})
    assert [yes.cell(each) for each in ("Ja", "nein", "", "true")] == [1, 0, 2, None]
    assert [mark.cell(each) for each in ("X", "", "y")] == [1, 0, None]
    assert yes.asked("true").weights.tolist() == [0, 1, 0]  # a condition is not in the table's language


def test_marks_of_missing_cells_give_way_to_declared_values() -> None:
    marked, kept = declared_columns({"a": ["b", "c"], "k": ["-", "c"]}, {"locale": "de", "missing": ["k. A.", "-"]})
    assert [marked.cell("-"), marked.cell(" k. A. "), kept.cell("-")] == [2, 2, 0]
    required = Column("a", "category", values=("b",), required=True, marks=("-",))
    assert required.cell("-") is None


def test_a_german_export_is_read_whole_and_not_at_all_without_its_formats(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(GERMAN.encode("cp1252"))
    named = {"text": "Text", "columns": COLUMNS, "delimiter": ";", "encoding": "cp1252"}
    formats = {"locale": "de", "missing": "k. A."}
    (batch,) = read_corpus(path, **named, formats=formats).batches()
    assert batch.cells is not None
    assert batch.cells.tolist() == [[1, 12, 1], [11, 20, 0]]
    dates = {"Datum": "2024-01-01..2024-12-31/12"}
    with pytest.raises(CorpusError, match="'Datum' does not declare") as caught:
        list(read_corpus(path, **{**named, "columns": dates}).batches())
    assert "formats: de" in str(caught.value)
    assert "skip" not in str(caught.value)


def test_a_configuration_gives_each_column_its_form_and_the_release_keeps_it() -> None:
    config = run_config({"text": "Text", "columns": COLUMNS, "formats": "de"})
    date, number, truth = config.all_columns
    assert date.format.startswith("%d.%m.%Y|")
    assert (number.format, truth.format.split("|")[0]) == ("1(.)234,56", "ja,j,wahr,1")
    assert [Column.from_json(each.to_json()).to_json() for each in config.all_columns] == [
        each.to_json() for each in config.all_columns
    ]
    assert pickle.loads(pickle.dumps(date)).cell("02.02.2024") == 1  # engines send columns to other processes
    assert date == date.plain  # how a column is written is no part of what it is
    assert "format" not in run_config({"text": "Text", "columns": {"Kunde": "boolean"}}).all_columns[0].to_json()


@pytest.mark.parametrize(
    "formats",
    ["xx", {"when": "%d"}, {"date": "%B"}, {"date": "dd.mm.yyyy"}, {"number": "0,00"}, {"number": "1.234.56"},
     {"boolean": "ja"}, {"boolean": "ja|ja"}, {"missing": [""]}, {"locale": "de", "missing": 3}],
)  # fmt: skip
def test_formats_that_say_nothing_clear_are_refused(formats: object) -> None:
    with pytest.raises(ConfigError, match="declaration of the formats is invalid"):
        declared_columns({"a": "boolean"}, formats)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["category", "identifier"])
def test_a_column_without_numbers_dates_or_truth_has_no_format(kind: str) -> None:
    with pytest.raises(ConfigError, match="has no such format"):
        declared_columns({"a": {"kind": kind, "values": ["b"] if kind == "category" else [], "format": "ja|nein"}})
