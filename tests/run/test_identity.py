"""What a dataset is known by: its content, its unit, and the column that tells owners apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clinic import COLUMNS, flags, rows, settings, write_csv
from run_fixtures import Said, runs_charged

import understudy as us
from understudy.base.errors import ConfigError, LedgerError, ResumeError
from understudy.ledger import Ledger
from understudy.methods.registry import load_release
from understudy.privacy.guarantee import Budget
from understudy.privacy.unit import Unit
from understudy.run import pipeline as running
from understudy.run.settings import run_config


def release(values: dict[str, Any], **changes: Any) -> running.Result:
    return running.release(run_config({**values, **changes}))


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
    with pytest.raises(LedgerError, match=r"\(column 'clinician'\), this run one owner \(column 'patient'\)"):
        release(values, owner="patient", output=str(tmp_path / "second"))
    release(values, owner="clinician", max_records_per_owner=2, output=str(tmp_path / "third"))
    assert runs_charged(values["ledger"]) == 2
    assert made.statement.unit == Unit("owner", 5, "clinician")
    assert load_release(tmp_path / "out" / "release" / "dp-kps.release").statement.unit.column == "clinician"
    assert "one owner (column 'clinician'): all" in (tmp_path / "out" / "release" / "statement.md").read_text("utf-8")


def test_a_dataset_opened_for_the_owners_of_a_column_takes_their_run(
    tmp_path: Path, understudy: Callable[..., Said]
) -> None:
    values = settings(tmp_path, owner="clinician")
    words = ["--epsilon", "3", "--delta", "1e-6", "--owner", "clinician"]
    assert understudy("ledger", "open", "notes", *words, "--ledger", values["ledger"]).code == 0
    assert understudy("run", *flags(values)).code == 0
    assert runs_charged(values["ledger"]) == 1


def test_a_corpus_with_another_owner_column_is_refused(tmp_path: Path) -> None:
    values = settings(tmp_path)
    corpus = us.read_corpus(rows(), text="note", label="department", labels="cardiology,dermatology", owner="clinician")
    with pytest.raises(ConfigError, match="no owner column 'patient'"):
        running.release(run_config({**values, "data": (), "dataset": "notes", "owner": "patient"}), corpus=corpus)
    assert runs_charged(values["ledger"]) == 0


def test_a_unit_with_a_column_survives_json_and_older_units_are_read() -> None:
    unit = Unit("owner", 3, "patient")
    assert Unit.from_json(unit.to_json()) == unit
    assert Unit.from_json({"kind": "owner", "max_records": 3}) == Unit("owner", 3)
    with pytest.raises(ConfigError, match="one record"):
        Unit("record", 1, "patient")
