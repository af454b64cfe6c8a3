"""``understudy check``: what a run would say of the whole table, without a charge."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clinic import flags, rows, settings, write_csv
from run_fixtures import Command, run

import understudy as us
from understudy.base.errors import ConfigError, CorpusError
from understudy.corpus import Corpus
from understudy.ledger import Ledger
from understudy.methods.additions.columns.variables import Variables
from understudy.run import pipeline as running
from understudy.run.check import check
from understudy.run.settings import run_config
from understudy.schema.columns import declared_columns
from understudy.schema.formats import formats_of
from understudy.schema.labels import LabelSet

SECRET = "zanzibar"


def table(folder: Path, **changes: Any) -> dict[str, Any]:
    """Settings of a table with two rows without a text and one of an undeclared label."""
    bad = [{"note": "", "department": "cardiology"}] * 2 + [{"note": SECRET, "department": SECRET}]
    good = [{name: row[name] for name in ("note", "department")} for row in rows(37)]
    write_csv(folder / "notes.csv", [*good, *bad])
    return settings(folder, **changes)


def test_each_fault_is_told_with_its_cure_and_counted_in_private_alone(tmp_path: Path, understudy: Command) -> None:
    values = table(tmp_path)
    said = understudy("check", *flags(values), code=3)
    assert "A row has an empty text (column 'note')" in said.out
    assert "label that is not declared (column 'department')" in said.out
    assert SECRET not in said.out + said.err
    assert not re.search(r"\b(2|3|37|38|39|40)\b", (said.out + said.err).replace(str(tmp_path), ""))
    file = tmp_path / "out" / "private" / "check.json"
    assert str(file) in said.out
    found = json.loads(file.read_text())
    assert found["kinds"] == {"empty text": 2, "unknown label": 1}
    assert [each["row"] for each in found["first rows"]["empty text"]] == [38, 39]
    assert SECRET not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    with Ledger(values["ledger"]) as ledger:
        assert ledger.datasets() == []


def test_a_table_that_can_be_read_is_so_called_and_runs_in_the_folder(tmp_path: Path, understudy: Command) -> None:
    values = table(tmp_path, max_bad_rows=0.1)
    said = understudy("check", "--json", *flags(values), code=0)
    assert json.loads(said.out)["usable"]
    assert not (tmp_path / "out" / "release").exists()
    assert run(values).records


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"text": "nots"}, "notes.csv' has no column 'nots'"), ({"delimiter": ";"}, "no column 'note'")],
)
def test_a_wrong_name_or_delimiter_comes_before_the_labels(
    tmp_path: Path, understudy: Command, changes: dict[str, str], told: str
) -> None:
    values = table(tmp_path, **changes, labels=None)
    for verb in ("check", "run"):
        said = understudy(verb, *flags(values))
        assert told in said.err
        assert "label set" not in said.err
    with pytest.raises(CorpusError, match="no column"):
        us.check(values.pop("data"), **{name: value for name, value in values.items() if name != "output"})
    assert "label set" in understudy("check", *flags(table(tmp_path, labels=None))).err


NEAR: dict[str, tuple[Callable[[], object], str]] = {
    "a parameter": (lambda: run_config({"epsilom": "1"}), "Did you mean 'epsilon'?"),
    "one of the method": (lambda: run_config({"vocabularry": "x"}), "Did you mean 'vocabulary'?"),
    "one of another method": (lambda: run_config({"method": "aug-pe", "round": 3}), "Did you mean 'rounds'?"),
    "a field of a column": (lambda: declared_columns({"paid": {"kind": "number", "rnage": [0, 1]}}), "mean 'range'?"),
    "a format": (lambda: formats_of({"dates": "%d.%m.%Y"}), "but there is 'date'"),
    "a column in a condition": (lambda: VARIABLES.allowed({"piad": "0..1"}), "Did you mean 'paid'?"),
    "a semicolon in a condition": (lambda: VARIABLES.allowed("paid=0..1; urgent=true"), "with commas between them"),
}
VARIABLES = Variables(None, LabelSet(()), declared_columns("paid=0.0..99.9; urgent"))


@pytest.mark.parametrize("case", NEAR)
def test_a_misspelt_name_is_told_with_the_near_ones(case: str) -> None:
    use, told = NEAR[case]
    with pytest.raises(ConfigError) as caught:
        use()
    assert told in f"{caught.value.problem} {caught.value.cure}"
    with pytest.raises(ConfigError) as caught:
        run_config({"xyzzy": 1})
    assert "Did you mean" not in caught.value.cure


@pytest.mark.parametrize("share", [0.0, 0.05, 0.1])
def test_a_check_refuses_what_a_run_refuses_and_no_more(tmp_path: Path, share: float) -> None:
    config = run_config(table(tmp_path, max_bad_rows=share))
    refused = check(config).refused
    if share < 0.1:
        assert isinstance(refused, CorpusError)
        with pytest.raises(CorpusError):
            running.run(config)
    else:
        assert refused is None
        running.run(config)


def test_a_run_reads_the_table_by_what_checks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: where that refuses nothing, the run is charged for a table that it should refuse."""
    config = run_config(table(tmp_path, max_bad_rows=0.05))
    monkeypatch.setattr(Corpus, "require_usable", lambda *_given: None)
    assert running.run(config).records


def test_a_wrong_column_is_told_first_with_those_that_may_be_meant(tmp_path: Path, understudy: Command) -> None:
    values = table(tmp_path, text="Notes")
    del values["output"]
    for verb in ("check", "run"):
        said = understudy(verb, *flags(values), code=3)
        assert said.err.splitlines() == [
            "Error: " + f"{str(tmp_path / 'notes.csv')!r} has no column 'Notes'.",
            "Its header has 'note'.",
        ]
    assert SECRET not in said.err


@pytest.mark.parametrize("source", ["*.csv", "-"])
def test_data_without_one_name_ask_for_both_names_at_once(tmp_path: Path, understudy: Command, source: str) -> None:
    values = table(tmp_path, data=source)
    del values["output"]
    values.pop("dataset", None)
    said = understudy("run", *flags(values), code=2)
    assert "--output FOLDER" in said.err
    assert "--dataset NAME" in said.err


def test_python_checks_files_and_frames_as_the_command_does(tmp_path: Path) -> None:
    told = {"text": "note", "label": "department", "labels": ["cardiology", "dermatology"]}
    values = table(tmp_path)
    found = us.check(values["data"], us.DPKPS(), us.Budget(3, "1e-6"), **told, output=tmp_path / "out")
    assert (found.usable, len(found.faults), found.file) == (False, 2, tmp_path / "out" / "private" / "check.json")
    assert "skip such rows with max_bad_rows" in repr(found), "of keywords"
    assert repr(us.check(values["data"], **told)).startswith(repr(found)[:80]), "without a folder"
    assert us.check([*rows(37), {"note": "", "department": "cardiology"}], **told, max_bad_rows=0.1).usable
    assert not us.check([*rows(3), {"note": "", "department": "cardiology"}], **told, max_bad_rows=0.1).usable
    opened: Any = us.read_corpus(rows(3), **told)
    with pytest.raises(us.UnderstudyError, match="open already"):
        us.check(opened)
    with Ledger(values["ledger"]) as ledger:
        assert ledger.datasets() == []


AMOUNTS = "paid=0.0..9.9/10; opened=2024-01-01..2024-12-31/12"


def amounts(folder: Path, opened: str) -> dict[str, Any]:
    """Settings of a table with 7 of 40 amounts beyond their range, in the last files, and 3 dates."""
    for part in range(4):
        made = [
            {
                **{"note": row["note"], "department": "cardiology", "paid": 99.5 if number > 32 else 5},
                "opened": opened if number > 36 else "2024-05-01",
            }
            for number, row in list(enumerate(rows()))[part * 10 : part * 10 + 10]
        ]
        (folder / f"part-{part}.jsonl").write_text("\n".join(map(json.dumps, made)))
    values = settings(folder, data=str(folder / "part-*.jsonl"), columns=AMOUNTS, dataset="amounts")
    return {**values, "labels": "cardiology"}


@pytest.mark.parametrize("engine", [{}, {"engine": "processes", "workers": 2}], ids=["one process", "two"])
def test_amounts_beyond_a_range_are_counted_privately_and_shown_by_a_check(
    tmp_path: Path, understudy: Command, engine: dict[str, Any]
) -> None:
    values = {**amounts(tmp_path, "2024-12-31"), **engine}
    said = understudy("check", *flags(values), code=0)
    assert "column 'paid' are outside its range, 0.0 to 9.9, and count as its nearest end" in said.out
    assert "'opened'" not in said.out
    assert not re.search(r"\b7\b", (said.out + said.err).replace(str(tmp_path), ""))
    private = tmp_path / "out" / "private"
    assert json.loads((private / "check.json").read_text())["values beyond their range"] == {"paid": 7}
    said = understudy("run", *flags(values), code=0)
    assert "private/skipped_rows.json counts them" in said.out + said.err
    assert json.loads((private / "skipped_rows.json").read_text()) == {
        "skipped": 0,
        "kinds": {},
        "clamped": {"paid": 7},
    }


def test_dates_beyond_a_range_make_bad_rows(tmp_path: Path, understudy: Command) -> None:
    values = amounts(tmp_path, "2025-01-01")
    said = understudy("check", *flags(values), code=3)
    assert "typed column 'opened' does not declare" in said.out
    assert "from 2024-01-01 to 2024-12-31" in said.out
    found = json.loads((tmp_path / "out" / "private" / "check.json").read_text())
    assert list(found["kinds"].values()) == [3]
    assert found["values beyond their range"] == {"paid": 4}, "of rows that are used"
    assert "does not declare" in understudy("run", *flags(values), code=3).err
