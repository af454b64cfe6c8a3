"""Texts without a table, and strings that are no paths."""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_tables import texts_of

import understudy as us
from understudy.base.errors import ConfigError, CorpusError, UnderstudyError
from understudy.corpus import read_corpus

TEXTS = ["The patient, born in 1952, was seen for chest pain.", "word " * 2000, "two\nlines", "Krebs", "and/or?", "."]


@pytest.fixture(autouse=True)
def an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("make", [list, tuple, np.array, lambda texts: np.array(texts, object), pa.array])
@pytest.mark.parametrize("texts", [TEXTS, TEXTS[:1]])
def test_strings_are_texts_of_one_column(make: Callable[[list[str]], Any], texts: list[str]) -> None:
    named = read_corpus(make(texts), text="note")
    assert (texts_of(named), named.schema.text) == (texts, "note")
    assert read_corpus(make(texts)).schema.text == "text"


def test_a_series_and_a_mapping_of_columns_are_tables_and_a_missing_text_is_a_bad_row() -> None:
    pandas = pytest.importorskip("pandas")
    series = pandas.Series([TEXTS[0], None, float("nan")], index=list("abc"))
    assert texts_of(read_corpus(series, on_bad_row="skip", max_bad_rows=1.0)) == TEXTS[:1]
    columns = {"note": ["a", "b"], "ward": np.array(["x", "y"])}
    assert labels_of(columns) == [0, 1]
    with pytest.raises(UnderstudyError, match="lists of one length"):
        read_corpus({"note": TEXTS, "ward": ["x"]}, text="note")


def test_names_of_files_stay_paths_and_a_mixture_is_refused_without_a_quote() -> None:
    Path("a.csv").write_text("text\nhello\n")
    Path("odd name").mkdir()
    Path("odd name/b.csv").write_text("text\nthere\n")
    assert texts_of(read_corpus(["a.csv", "odd name"], text="text")) == ["hello", "there"]
    assert texts_of(read_corpus(["odd name/*.csv", Path("a.csv")], text="text")) == ["there", "hello"]
    with pytest.raises(ConfigError, match="Some strings") as caught:
        read_corpus(["a.csv", "Krebs"])
    assert "Krebs" not in str(caught.value)
    with pytest.raises(UnderstudyError, match=r"There is no file 'missing.csv'"):
        read_corpus(["a.csv", "missing.csv"], text="text")


def labels_of(table: Any) -> list[int]:
    (batch,) = read_corpus(table, text="note", label="ward", labels="x,y").batches()
    return list(batch.labels.tolist())


def no_path(text: str) -> list[Callable[[], object]]:
    budget = us.Budget(3, "1e-6")
    return [
        lambda: read_corpus(text, text="note"),
        lambda: read_corpus(Path(text), text="note"),
        lambda: read_corpus([Path(text), Path("b.csv")], text="note"),
        lambda: us.check(text, text="note"),
        lambda: us.run(text, budget, text="note", dataset="d", llm="none"),
        lambda: us.evaluate(text, ["a", "b"], text="note", embedder="none"),
        lambda: us.evaluate(["a", "b"], text, text="note", embedder="none"),
        lambda: us.evaluate(["a", "b"], ["a"], holdout=text, metrics="fidelity", embedder="none"),
        lambda: us.generate(text),
        lambda: us.report(text),
        lambda: us.export(text, to="csv", output="x"),
        lambda: us.load_release(text),
        lambda: us.run(["a"], budget, dataset="d", output=text),
    ]


@pytest.mark.parametrize(
    "text",
    [
        TEXTS[0].replace("patient", "Zebra"),
        "Zebra" * 2000,
        "Zebra\nZebra",
        "Zebra\0",
        "~Zebra is ill, and so is her mother: why?",
        "Zebra " * 50,
    ],
)
def test_a_text_in_the_place_of_a_path_is_a_typed_error_that_does_not_quote_it(text: str) -> None:
    for use in no_path(text):
        with pytest.raises(UnderstudyError) as caught:
            use()
        assert "Zebra" not in str(caught.value)


@pytest.mark.parametrize("other", [b"Anna", [b"Anna"], [["Anna"]], ["Anna", 3], {"Anna"}, iter(["Anna"]), 3, None])
def test_what_is_neither_is_a_typed_error(other: Any) -> None:
    for use in (lambda: read_corpus(other), lambda: us.check(other), lambda: us.evaluate(other, ["a"])):
        with pytest.raises(ConfigError) as caught:
            use()
        assert "Anna" not in str(caught.value)


def test_a_column_whose_name_has_a_comma_is_one_column_by_its_exact_name(tmp_path: Path) -> None:
    name = "Any comments, suggestions?"
    rows = [{name: "router drops", "Department *": "a"}]
    Path("t.csv").write_text(f'"{name}",Department *\nrouter drops,a\n')
    Path("t.jsonl").write_text(json.dumps(rows[0]))
    pq.write_table(pa.Table.from_pylist(rows), "t.parquet")
    tables: list[Any] = [
        "t.csv",
        "t.jsonl",
        Path("t.parquet"),
        rows,
        pa.Table.from_pylist(rows),
        {name: ["router drops"]},
    ]
    for table in tables:
        known = () if table is rows or table == "t.jsonl" else (name,)  # the keys of a record are private
        for text in (*known, [name], f'"{name}"'):
            assert texts_of(read_corpus(table, text=text)) == ["router drops"]
            assert us.check(table, text=text).usable
    with pytest.raises(CorpusError, match="No row has the column 'a'"):
        read_corpus([{"a,b": "x"}], text="a,b")
    assert read_corpus([], text="a,b").schema.form.fields == ("a", "b")
    assert us.check("t.csv", text=name, label="Department *", labels="a").usable
    made = us.run("t.csv", us.Budget(3, "1e-6"), text=name, llm="none", records=2, insecure_no_noise=True, output="o")
    assert made.folder is not None
    for columns in ({}, {"text": name}):
        us.evaluate(["router drops", "it drops"], made.folder.root, metrics="fidelity", embedder="none", **columns)
    Path("u.csv").write_text("a,b\nrouter,drops\n")
    assert read_corpus("u.csv", text="a, b").schema.form.fields == ("a", "b")


CELLS: dict[str, Callable[[], Any]] = {
    "CSV": lambda: _written("t.csv", "text,n\na,1\nb,1.0\nc,2.00\nd,0.5\n"),
    "JSON lines": lambda: _written(
        "t.jsonl",
        "".join(f'{{"text": "{t}", "n": {n}}}\n' for t, n in zip("abcd", ("1", '"1.0"', "2.0", "0.5"), strict=True)),
    ),
    "Parquet": lambda: _parquet(pa.array([1.0, 1.0, 2.0, 0.5])),
    "decimals": lambda: _parquet(pa.array([decimal.Decimal(n) for n in ("1.0", "1", "2", "0.5")])),
    "strings": lambda: _parquet(pa.array(["1", "1.0", "2.0", "0.5"])),
}


def _written(name: str, content: str) -> str:
    Path(name).write_text(content)
    return name


def _parquet(numbers: pa.Array) -> str:
    pq.write_table(pa.table({"text": list("abcd"), "n": numbers}), "t.parquet")
    return "t.parquet"


@pytest.mark.parametrize("declared", [[1, 2, 0.5], [1.0, 2.0, 0.5], ["1.0", "2.0", "0.5"], ["1", "2", "0.5"]])
@pytest.mark.parametrize("cells", CELLS.values(), ids=CELLS)
def test_a_whole_decimal_is_a_number_as_label_and_category(cells: Callable[[], Any], declared: list[Any]) -> None:
    (labelled,) = read_corpus(cells(), text="text", label="n", labels=declared).batches()
    assert labelled.labels.tolist() == [0, 0, 1, 2]
    values = declared if len({*map(type, declared)}) == 1 else list(map(str, declared))
    (typed,) = read_corpus(cells(), text="text", columns={"n": values}).batches()
    assert typed.cells is not None
    assert typed.cells[:, 0].tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("labels", "bad"),
    [(["01067", "04109"], "1067"), (["1.0", "1.1", "1.10"], "1.100"), (["1", "1.0"], "1.00"), (["a", "1"], "1.0")],
)
def test_labels_that_are_no_numbers_are_compared_as_texts(labels: list[str], bad: str) -> None:
    rows = [{"text": "x", "n": label} for label in labels]
    (batch,) = read_corpus(rows, text="text", label="n", labels=labels, label_type="string").batches()
    assert batch.labels.tolist() == [*range(len(labels))]
    with pytest.raises(UnderstudyError):
        [*read_corpus([{"text": "x", "n": bad}], text="text", label="n", labels=labels, label_type="string").batches()]


def test_labels_with_blanks_or_commas_are_declared_in_quotes_or_in_a_list() -> None:
    cells = [" a", "b ", "c, d", 'say "hi"']
    rows = [{"text": "x", "n": cell} for cell in cells]
    for declared in (cells, '" a","b ", "c, d", "say ""hi"""'):
        (batch,) = read_corpus(rows, text="text", label="n", labels=declared).batches()
        assert batch.labels.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("first", ["sep=;\r\n", "\ufeffsep=;\n", '"sep=;"\n', "SEP=;\n"])
@pytest.mark.parametrize("options", [{}, {"delimiter": ";"}, {"quotes": "line"}])
def test_the_first_line_of_excel_names_the_delimiter(first: str, options: dict[str, Any]) -> None:
    Path("t.csv").write_text(f"{first}text;ward\n" + '"a;b";x\n', "utf-8", newline="")
    (batch,) = read_corpus("t.csv", text="text", owner="ward", **options).batches()
    assert (batch.texts, batch.owners) == (["a;b"], ["x"])
    assert [name for name, _ in us.corpus.read.read_header("t.csv")] == ["text", "ward"]
