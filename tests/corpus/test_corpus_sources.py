"""What a table can be read from, and one clear error for everything else; no error shows what is in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from corpus_tables import texts_of

import understudy as us
from understudy.base.errors import ConfigError
from understudy.corpus import read_corpus
from understudy.methods.dp_kps.method import DPKPS
from understudy.run.settings import RunConfig


class DataFrame:
    """As an old pandas': no truth value, columns by name, a ``repr`` that shows rows, and no Arrow."""

    def __bool__(self) -> bool:
        raise ValueError("The truth value of a DataFrame is ambiguous. Zebra")

    def __len__(self) -> int:
        return 1

    def __getitem__(self, name: object) -> object:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(["note"])

    def __repr__(self) -> str:
        return "note\n0 Zebra"


NO_TABLES = {
    "a data frame": DataFrame(),
    "bytes": b"note\nZebra\n",
    "a dict of no columns": {"note": "Zebra"},
    "an iterator": iter([{"note": "Zebra"}]),
}


@pytest.mark.parametrize("what", NO_TABLES)
def test_what_is_no_table_is_one_error_with_the_cure(what: str) -> None:
    for use in (
        lambda: read_corpus(NO_TABLES[what], text="note"),
        lambda: us.evaluate(NO_TABLES[what], "synthetic.csv", text="note"),
        lambda: us.evaluate("real.csv", NO_TABLES[what], text="note"),
    ):
        with pytest.raises(ConfigError, match="No table can be read from an object of the type") as caught:
            use()
        assert "Give " in caught.value.cure
        assert "Zebra" not in str(caught.value)


@pytest.fixture(autouse=True)
def a_synthetic_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("synthetic.csv").write_text("text\nhello\nthere\n")


@pytest.mark.parametrize("rows", [[1], ["a.csv", {"note": "x"}], [None], [["Zebra"]], ["a.csv", None]])
def test_a_list_of_other_things_is_one_error(rows: list[object]) -> None:
    with pytest.raises(ConfigError, match="Expected a list of paths") as caught:
        read_corpus(rows, text="note")  # type: ignore[arg-type]
    assert "Zebra" not in str(caught.value)


def test_paths_lists_of_paths_dicts_and_arrow_tables_are_tables() -> None:
    path = Path("synthetic.csv").resolve()
    for source in (path, str(path), [path], (str(path),), [path, "synthetic.csv"]):
        assert texts_of(read_corpus(source, text="text")) == ["hello", "there"]
    for rows in ([{"text": "hello"}], ({"text": "hello"},), pa.table({"text": ["hello"]})):
        assert texts_of(read_corpus(rows, text="text")) == ["hello"]
    assert texts_of(read_corpus([], text="text")) == []


def test_a_run_on_what_is_no_table_says_what_is_one() -> None:
    for call in (us.run, us.release, us.audit):
        with pytest.raises(ConfigError, match="type DataFrame") as caught:
            call(DataFrame(), DPKPS(), us.Budget(3, "1e-6"), text="note")  # type: ignore[arg-type]
        assert "pandas, Polars, DuckDB or Arrow" in caught.value.cure


def test_data_are_a_path_or_several_paths() -> None:
    for data in ("a.csv", Path("a.csv"), ["a.csv"], [Path("a.csv")], ("a.csv",)):
        assert RunConfig(data=data).data == ("a.csv",)


@pytest.mark.parametrize("value", [DataFrame(), [DataFrame()], [{"note": "Zebra"}], {"note": "Zebra"}])
@pytest.mark.parametrize("name", ["data", "text", "epsilon", "records", "output"])
def test_a_parameter_of_a_wrong_type_shows_the_type_alone(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        RunConfig(**{name: value})
    assert "Zebra" not in str(caught.value)
