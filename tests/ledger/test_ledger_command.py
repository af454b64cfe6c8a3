"""``understudy ledger open|show|history``."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from ledger_plans import SECRET, SECRET_CAP, pure_plan, secret_plan

from understudy.base.errors import ConfigError, LedgerError
from understudy.cli import cli
from understudy.ledger import Ledger
from understudy.privacy.guarantee import Budget
from understudy.privacy.unit import Unit

OPEN = "open clinic --secret-detectors email --secret-prior 1e-4 --secret-posterior 1e-3 --max-records-per-secret 5"


@pytest.fixture
def where(tmp_path: Path) -> str:
    path = str(tmp_path / "ledger.sqlite")
    Ledger.create(path).close()
    return path


def call(where: str, line: str) -> Result:
    return CliRunner().invoke(cli, ["ledger", *line.split(), "--ledger", where], catch_exceptions=False)


def test_open_makes_a_dataset_with_a_cap(where: str) -> None:
    result = call(where, "open clinic --epsilon 0.3 --delta 1e-6")
    assert "clinic" in result.output
    assert "epsilon=0.3" in result.output
    with Ledger(where) as ledger:
        dataset = ledger.dataset("clinic")
    assert dataset is not None
    assert (dataset.cap, dataset.unit, dataset.rule) == (Budget("3/10", "1e-6"), Unit("record"), "basic")


def test_open_takes_unit_and_rule(where: str) -> None:
    call(where, "open clinic --epsilon 3 --delta 1e-6 --owner patient --max-records-per-owner 5 --rule rdp")
    with Ledger(where) as ledger:
        dataset = ledger.dataset("clinic")
    assert dataset is not None
    assert (dataset.unit, dataset.rule) == (Unit("owner", 5, "patient"), "rdp")
    assert (
        "clinic\towner (column 'patient'), at most 5 records\trdp\t3, 1e-06\t-\t3, 1e-06" in call(where, "show").output
    )


def test_raise_raises_the_cap_and_nothing_else(where: str) -> None:
    call(where, "open clinic --epsilon 3 --delta 1e-6")
    with pytest.raises(LedgerError, match=r"us\.ledger\.raise_cap"):
        call(where, "open clinic --epsilon 4 --delta 1e-6")
    with pytest.raises(ConfigError, match="raise changes only the cap"):
        call(where, "open clinic --epsilon 4 --delta 1e-6 --raise --owner patient")
    call(where, "open clinic --epsilon 4 --delta 1e-6 --raise")
    assert "clinic\trecord\tbasic\t4, 1e-06" in call(where, "show clinic").output
    assert "cap raised\t4, 1e-06" in call(where, "history clinic").output


def test_show_rounds_to_the_side_that_promises_nothing_too_much(where: str) -> None:
    call(where, "open clinic --epsilon 1 --delta 1e-6")
    with Ledger(where) as ledger:
        ledger.charge("clinic", pure_plan("1/3"), run_id="r1")
    assert call(where, "show").output.splitlines()[1:] == [
        "dataset\tunit\trule\tcap\tspent\tremaining",
        "clinic\trecord\tbasic\t1, 1e-06\t0.333334, 0\t0.666666, 1e-06",
    ]


def test_history_lists_runs_and_as_json_every_charge(where: str) -> None:
    call(where, "open clinic --epsilon 1 --delta 1e-6")
    plan = pure_plan("1/3")
    with Ledger(where) as ledger:
        ledger.charge("clinic", plan, run_id="r1", note="a test")
    last = call(where, "history clinic").output.splitlines()[-1]
    assert last.split("\t")[1:] == ["test", "0.333334, 0", "sums", "r1", "a test"]
    (entry,) = json.loads(call(where, "history clinic --json").output)["entries"]
    assert entry["cost"] == {"epsilon": "1/3", "delta": "0"}
    assert entry["charges"] == [charge.to_json() for charge in plan.charges]
    assert entry["cap"] is None


def test_nothing_in_a_ledger_steers_a_terminal_or_ends_a_row(where: str) -> None:
    call(where, "open notes --epsilon 9 --delta 1e-5")
    call(where, "open notes --epsilon 10 --delta 1e-5 --raise")
    with sqlite3.connect(where) as ledger:
        assert ledger.execute("update understudy_entry set note = ?", ("\x1b[2J\thi\nho",)).rowcount
    shown = call(where, "history notes").output
    assert "\\x1b[2J\\thi\\nho" in shown
    assert "\x1b" not in shown
    assert len({line.count("\t") for line in shown.splitlines()}) == 1


def test_an_unknown_dataset_is_an_error(where: str) -> None:
    for line in ("show clinic", "history clinic"):
        with pytest.raises(LedgerError, match=r'us\.ledger\.open\("clinic"'):
            call(where, line)


def test_a_terminal_gets_a_table(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call(where, "open clinic --epsilon 1 --delta 1e-6")
    monkeypatch.setattr("understudy.cli.output._on_terminal", lambda: True)
    shown = call(where, "show").output
    assert "clinic" in shown
    assert "━" in shown or "─" in shown


def test_importing_the_command_loads_no_database() -> None:
    code = "import sys, understudy.cli.verbs.ledger; assert not {'sqlalchemy', 'rich', 'numpy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


# -- secrets --------------------------------------------------------------------------------------------------------


def test_open_makes_a_dataset_with_a_cap_for_secrets(where: str) -> None:
    assert "cap (p=0.0001, r=0.001)" in call(where, OPEN).output
    call(where, OPEN)  # changes nothing
    with Ledger(where) as ledger:
        dataset = ledger.dataset("clinic")
    assert dataset is not None
    assert (dataset.cap, dataset.unit, dataset.rule) == (SECRET_CAP, SECRET, "rdp")


@pytest.mark.parametrize(
    ("line", "cure"),
    [
        (OPEN.replace("--max-records-per-secret 5", ""), "Declare with max_records_per_secret=M"),
        (OPEN.replace("--secret-posterior 1e-3", ""), "secret_posterior is missing"),
        (OPEN.replace("--secret-detectors email", ""), "Name them with secrets"),
        (f"{OPEN} --epsilon 1", "Give epsilon and delta, or secret_prior"),
        (f"{OPEN} --rule basic", "Use rule rdp"),
        (f"{OPEN} --owner patient", "protects owners or secrets, not both"),
        ("open d --epsilon 1", "delta is missing"),
    ],
)
def test_a_cap_that_makes_no_sense_is_one_error_with_its_cure(where: str, line: str, cure: str) -> None:
    with pytest.raises(ConfigError, match=cure):
        call(where, line)
    assert call(where, "show").output.count("\n") == 2  # the ledger and the columns' names


def test_raise_raises_the_posterior(where: str) -> None:
    call(where, OPEN)
    with pytest.raises(LedgerError, match="not of the kind"):
        call(where, "open clinic --epsilon 4 --delta 1e-6 --raise")
    call(where, "open clinic --secret-prior 1e-4 --secret-posterior 1e-2 --raise")
    shown = call(where, "show").output
    assert "clinic\tsecret (recognised by detector email), at most 5 records\trdp\t" in shown
    assert "\t0.0001, 0.01\t-\t0.0001, 0.01" in shown
    assert "cap raised\t0.0001, 0.01" in call(where, "history clinic").output


def test_show_and_history_give_the_prior_and_the_posterior(where: str) -> None:
    call(where, OPEN)
    with Ledger(where) as ledger:
        ledger.charge("clinic", secret_plan(posterior="1/3000"), run_id="r1", note="a test")
    dataset, _, _, cap, spent, remaining = call(where, "show clinic").output.splitlines()[-1].split("\t")
    assert (dataset, cap, remaining) == ("clinic", "0.0001, 0.001", "depends on the run")
    assert spent.startswith("0.0001, 0.00033")
    heads, last = call(where, "history clinic").output.splitlines()
    assert heads.split("\t")[2] == "prior, posterior"
    assert last.split("\t")[1:] == ["test", "0.0001, 0.000333334", "sums", "r1", "a test"]
    (entry,) = json.loads(call(where, "history clinic --json").output)["entries"]
    assert entry["cost"] == {"prior": "1/10000", "posterior": "1/3000"}


def test_show_as_json_is_exact_and_holds_no_key(where: str) -> None:
    assert json.loads(call(where, "show --json").output)["datasets"] == []
    call(where, OPEN)
    call(where, "open archive --epsilon 1 --delta 1e-6")
    with Ledger(where) as ledger:
        ledger.charge("archive", pure_plan("1/3"), run_id="r1")
        ledger.charge("clinic", secret_plan(), run_id="r2")
    archive, clinic = json.loads(call(where, "show --json").output)["datasets"]
    assert archive.pop("opened_at") > "2020"
    assert archive == {
        "dataset": "archive",
        "unit": {"kind": "record", "max_records": 1},
        "rule": "basic",
        "cap": {"epsilon": "1", "delta": "1/1000000"},
        "spent": {"epsilon": "1/3", "delta": "0"},
        "remaining": {"epsilon": "2/3", "delta": "1/1000000"},
    }
    assert clinic["cap"] == {"prior": "1/10000", "posterior": "1/1000"}
    assert clinic["spent"].keys() == {"prior", "posterior"}
    assert clinic["remaining"] is None
    assert json.loads(call(where, "show clinic --json").output)["datasets"] == [clinic]
    with pytest.raises(LedgerError, match=r'us\.ledger\.open\("nowhere"'):
        call(where, "show nowhere --json")
