"""Labels compare as canonical strings, keep their type, and are declared."""

from __future__ import annotations

import decimal
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_tables import rows_of

from understudy.base.errors import ConfigError, CorpusError
from understudy.corpus import read_corpus
from understudy.corpus.bounding import BoundedCorpus
from understudy.privacy.unit import Unit
from understudy.schema.labels import canonical, declared_labels, output_type, typed_labels


def jsonl(write, labels):
    return write("t.jsonl", "".join(json.dumps({"t": "x", "l": label}) + "\n" for label in labels))


def typed(corpus):
    return [(type(label), label) for _, label in rows_of(corpus)]


@pytest.mark.parametrize(
    ("label", "string"),
    [*((True, "true"), (-3, "-3"), (0.5, "0.5"), (1.0, "1"), (-0.0, "0"), (1e16, str(10**16)), ("a", "a"))],
)
def test_a_label_has_one_canonical_string(label, string):
    assert canonical(label) == string


def test_labels_are_declared_as_a_sequence_a_list_in_words_or_a_file(tmp_path):
    (tmp_path / "labels.txt").write_text("\ufeffheart, lung\r\n\n  other \n", "utf-8")
    (tmp_path / "labels.json").write_text('["a,b", 2, true]')
    assert declared_labels(["a", 1]) == ("a", 1)
    assert declared_labels(np.array([3, 4])) == (3, 4)
    assert declared_labels(" a, b ,,c") == ("a", "b", "c")
    assert declared_labels(f"@{tmp_path / 'labels.txt'}") == ("heart, lung", "other")
    assert declared_labels(f"@{tmp_path / 'labels.json'}") == ("a,b", 2, True)


@pytest.mark.parametrize(
    "labels",
    [
        *("", [], ["a", "a"], [1, "1"], [True, "true"], [None], [""], [" "], [[1]], [float("nan")]),
        *("@absent.txt", "@bad.json", "@map.json", "@bytes.txt"),
    ],
)
def test_a_label_set_that_cannot_be_meant_is_a_config_error(labels, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text("[1,")
    (tmp_path / "map.json").write_text("{}")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(ConfigError) as caught:
        declared_labels(labels)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("column", "declared", "expected"),
    [
        (pa.array([1, 2, 1]), "1,2", [1, 2, 1]),
        (pa.array([1, 2], pa.uint8()), ["2", 1], [1, 2]),
        (pa.array([True, False]), "True,false", [True, False]),
        (pa.array([0.5, 1.0]), "0.5,1", [0.5, 1.0]),
        (pa.array(["1", "b"]), ["b", 1], ["1", "b"]),
        (pa.array(["a", "b"]).dictionary_encode(), "a,b", ["a", "b"]),
        (pa.array([3, 4]).dictionary_encode(), "3,4", [3, 4]),
    ],
)
def test_parquet_labels_have_the_columns_type(tmp_path, column, declared, expected):
    pq.write_table(pa.table({"t": ["x"] * len(column), "l": column}), tmp_path / "t.parquet")
    corpus = read_corpus(tmp_path / "t.parquet", text="t", label="l", labels=declared)
    assert typed(corpus) == [(type(label), label) for label in expected]
    from_data = read_corpus(tmp_path / "t.parquet", text="t", label="l", labels_from_data=True)
    assert typed(from_data) == typed(corpus)


def test_a_label_that_the_parquet_column_cannot_hold_is_a_config_error(tmp_path):
    pq.write_table(pa.table({"t": ["x"], "l": [1]}), tmp_path / "t.parquet")
    with pytest.raises(ConfigError, match="'heart' is not of the label column's type"):
        read_corpus(tmp_path / "t.parquet", text="t", label="l", labels="1,heart")


def test_parquet_files_with_labels_of_different_types_need_the_type_named(tmp_path):
    pq.write_table(pa.table({"t": ["x"], "l": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"t": ["x"], "l": ["1"]}), tmp_path / "b.parquet")
    options = {"text": "t", "label": "l", "labels": "1"}
    with pytest.raises(ConfigError, match="different types"):
        read_corpus(str(tmp_path / "*.parquet"), **options)
    corpus = read_corpus(str(tmp_path / "*.parquet"), **options, label_type="string")
    assert typed(corpus) == [(str, "1"), (str, "1")]


def test_csv_labels_are_strings_unless_their_type_is_named(write):
    path = write("t.csv", "t,l\nx,1\nx,0\n")
    assert typed(read_corpus(path, text="t", label="l", labels=[0, 1])) == [(str, "1"), (str, "0")]
    assert typed(read_corpus(path, text="t", label="l", labels="0,1", label_type="int")) == [(int, 1), (int, 0)]
    path = write("t.csv", "t,l\nx,True\nx,false\nx,1\n")
    corpus = read_corpus(path, text="t", label="l", labels=[True, False], label_type="bool", on_bad_row="skip")
    assert typed(corpus) == [(bool, True), (bool, False)]
    path = write("t.csv", "t,l\nx,1\nx,1.50\nx,nan\n")
    corpus = read_corpus(path, text="t", label="l", labels="1,1.5", label_type="float", on_bad_row="skip")
    assert typed(corpus) == [(float, 1.0), (float, 1.5)]


def test_json_labels_have_the_type_that_they_are_declared_in(write):
    path = jsonl(write, [1, "1", 2])
    assert typed(read_corpus(path, text="t", label="l", labels=[1, 2])) == [(int, 1), (int, 1), (int, 2)]
    assert typed(read_corpus(path, text="t", label="l", labels="1,2")) == [(int, 1), (int, 1), (int, 2)]
    strings = read_corpus(path, text="t", label="l", labels="1,2", label_type="string")
    assert typed(strings) == [(str, "1"), (str, "1"), (str, "2")]
    mixed = read_corpus(path, text="t", label="l", labels=["1", 2])
    assert typed(mixed) == [(str, "1"), (str, "1"), (int, 2)]


def test_json_booleans_and_numbers_are_different_labels(write):
    corpus = read_corpus(jsonl(write, [True, 1, 1.0, "true"]), text="t", label="l", labels=[True, 1], on_bad_row="skip")
    assert typed(corpus) == [(bool, True), (int, 1), (int, 1), (bool, True)]


@pytest.mark.parametrize("labels", [["01", "2"], ["+1"], ["1", "a"], ["1.0"], ["٣"]])
def test_strings_that_do_not_all_spell_integers_stay_strings(labels):
    assert typed_labels(labels, output_type(labels, None, None)) == tuple(labels)


@pytest.mark.parametrize("declared", [[0, 1], "0,1", ["0", 1]])
def test_one_null_in_a_column_of_integers_does_not_change_the_type_of_the_published_labels(tmp_path, declared):
    for name, column in [("int", pa.array([0, 1, 1])), ("float", pa.array([0.0, 1.0, None]))]:
        pq.write_table(pa.table({"t": ["x"] * 3, "l": column}), tmp_path / f"{name}.parquet")
    options = {"text": "t", "label": "l", "labels": declared, "on_bad_row": "skip"}
    whole, torn = (read_corpus(tmp_path / f"{name}.parquet", **options) for name in ("int", "float"))
    assert typed(torn) == [(int, 0), (int, 1)]
    assert repr(whole.labels) == repr(torn.labels) == "(0, 1)"


def test_labels_that_are_declared_as_decimals_stay_decimals(tmp_path):
    pq.write_table(pa.table({"t": ["x"] * 2, "l": [0.0, 1.0]}), tmp_path / "t.parquet")
    for declared, more in [([0.0, 1.0], {}), ("0.0,1.0", {}), ("0,1", {"label_type": "float"})]:
        corpus = read_corpus(tmp_path / "t.parquet", text="t", label="l", labels=declared, **more)
        assert typed(corpus) == [(float, 0.0), (float, 1.0)]


def test_two_declared_labels_that_become_one_are_a_config_error():
    with pytest.raises(ConfigError, match="twice"):
        typed_labels(["1", "1.0"], "float")


def test_a_label_column_without_declared_labels_is_an_error_that_says_the_cure(write):
    path = write("t.csv", "t,l\nx,a\n")
    with pytest.raises(ConfigError, match=r'labels=\["A", "B", "C"\] or labels="@FILE"'):
        read_corpus(path, text="t", label="l")
    with pytest.raises(ConfigError, match="label"):
        read_corpus(path, text="t", labels="a")
    with pytest.raises(ConfigError, match="Choose one"):
        read_corpus(path, text="t", label="l", labels="a", labels_from_data=True)


def test_labels_read_from_the_data_are_sorted_and_marked_as_not_declared(write):
    path = write("t.csv", "t,l\nx,b\nx,a\n,c\nx,\nx,b\n")
    corpus = read_corpus(path, text="t", label="l", labels_from_data=True, on_bad_row="skip")
    assert corpus.labels == ("a", "b")  # c is on no good row
    assert not corpus.schema.labels_declared
    assert rows_of(corpus) == [("x", "b"), ("x", "a"), ("x", "b")]
    with pytest.raises(CorpusError):
        read_corpus(path, text="t", label="l", labels_from_data=True)


@pytest.mark.parametrize("order", [["1", 1, True], [True, 1, "1"]])
def test_labels_read_from_json_do_not_depend_on_the_order_of_the_rows(write, order):
    assert read_corpus(jsonl(write, order), text="t", label="l", labels_from_data=True).labels == ("1", True)


def test_declared_labels_that_occur_in_no_row_stay_in_the_set(write):
    corpus = read_corpus(write("t.csv", "t,l\nx,a\n"), text="t", label="l", labels="z,a")
    (batch,) = corpus.batches()
    assert corpus.labels == ("z", "a")
    assert batch.labels.tolist() == [1]
    assert batch.labels.dtype == np.int32


# -- one owner is one owner, however the files spell it ---------------------------------------------------------------


def owners_of(source, **more) -> list[str]:
    return [owner for batch in read_corpus(source, text="t", owner="o", **more).batches() for owner in batch.owners]


def test_an_owner_with_a_decimal_point_in_one_row_and_without_in_another_is_one_owner(write):
    cells = [7, 7.0, "7", "7.0", " 7 ", "\u00a07\t", np.int64(7), np.float64(7.0)]
    assert set(owners_of([{"t": "x", "o": cell} for cell in cells])) == {"7"}
    lines = "".join(json.dumps({"t": "x", "o": cell}) + "\n" for cell in cells[:6])
    assert set(owners_of(write("t.jsonl", lines))) == {"7"}
    assert owners_of(write("t.csv", "t,o\nx,7\nx,7.0\nx, 7\n")) == ["7", "7", "7"]
    assert owners_of(pa.table({"t": ["x"] * 3, "o": [7.0, None, 7.5]}), on_bad_row="skip") == ["7", "7.5"]


def test_an_owner_that_a_missing_one_makes_inexact_is_not_another_s():
    """pandas makes one float of the two identifiers, as soon as a row has no owner."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"t": ["x", "y"], "o": [2**53 + 1, 2**53]})
    assert owners_of(frame) == ["9007199254740993", "9007199254740992"]
    frame = pd.concat([frame, pd.DataFrame({"t": ["z", "w"], "o": [None, 2**53 - 1]})])
    assert owners_of(frame, on_bad_row="skip") == ["9007199254740991"]
    with pytest.raises(CorpusError, match="several owners may look alike"):
        owners_of(frame)
    exact = [2**53 + 1, str(2**53), decimal.Decimal(2**53 + 3)]
    assert owners_of([{"t": "x", "o": cell} for cell in exact]) == [str(2**53 + 1), str(2**53), str(2**53 + 3)]
    for cell in (np.float32(2**60), decimal.Decimal("9007199254740993.5"), None, float("nan"), np.float32("nan"), ""):
        assert owners_of([{"t": "x", "o": cell}], on_bad_row="skip") == []


SPELLED = ["7", "7.00", "\uff17", "\u0667.0", "7\u200b", "\ufeff7", "\u00ad7"]
NAMES = [f"{name} Smith" for name in ("Zo\u00eb", "Zoe\u0308", "Zo\u00eb\u00a0", "\uff3ao\u00ad\u00eb\u200b")]


@pytest.mark.parametrize("spellings", [SPELLED, NAMES])
def test_an_owner_is_one_whatever_characters_spell_it(spellings):
    rows = [{"t": f"text {n}", "o": owner} for n, owner in enumerate(spellings)]
    assert set(owners_of(rows)) == {spellings[0]}
    bounded = BoundedCorpus(read_corpus(rows, text="t", owner="o"), Unit("owner", 2, "o"), b"key")
    assert [batch.shares.tolist() for batch in bounded.batches()] == [[2, 2]]  # by spellings all would be used


def test_leading_zeros_case_and_other_decimals_make_other_owners():
    different = ["7", "07", "7.5", "7.50", "a", "A", "a.0", "v7.0", "-7", "true"]
    assert owners_of([{"t": "x", "o": owner} for owner in different]) == different


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([7]), pa.array([7.0, None])),
        (pa.array([7]), pa.array(["7", "8"])),
        (pa.array([7]), pa.array([True, False])),
        (pa.array([20_000_001.0]), pa.array([20_000_001.0]).cast(pa.float32(), safe=False)),  # which is 20000000
    ],
)
def test_parquet_files_whose_owner_columns_have_different_types_are_refused(tmp_path, one, other):
    """Or one owner could count as two."""
    for name, column in (("a", one), ("b", other)):
        pq.write_table(pa.table({"t": ["x"] * len(column), "o": column}), tmp_path / f"{name}.parquet")
    with pytest.raises(ConfigError, match="owner column has different types"):
        read_corpus(str(tmp_path / "*.parquet"), text="t", owner="o")
    pq.write_table(pa.table({"t": ["x"], "o": pa.array([8], pa.int32())}), tmp_path / "b.parquet")
    if one.type == pa.int64():
        assert owners_of(str(tmp_path / "*.parquet")) == ["7", "8"], "widths of whole numbers may differ"
