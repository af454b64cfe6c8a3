"""``understudy ledger open|show|history`` for datasets that protect secrets, and ``show --json``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from ledger_plans import SECRET, SECRET_CAP, pure_plan, secret_plan

from understudy.base.errors import ConfigError, LedgerError
from understudy.cli import cli
from understudy.ledger import Ledger

OPEN = "open clinic --secret-detectors email --secret-prior 1e-4 --secret-posterior 1e-3 --max-records-per-secret 5"


@pytest.fixture
def where(tmp_path: Path) -> str:
    path = str(tmp_path / "ledger.sqlite")
    Ledger.create(path).close()
    return path


def call(where: str, line: str) -> Result:
    return CliRunner().invoke(cli, ["ledger", *line.split(), "--ledger", where], catch_exceptions=False)


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
        (
            "open d --secret-detectors email --secret-prior 1e-4 --secret-posterior 1e-3",
            "Declare with --max-records-per-secret M",
        ),
        (
            "open d --secret-detectors email --max-records-per-secret 5 --secret-prior 1e-4",
            "secret_posterior is missing",
        ),
        (
            "open d --secret-detectors email --max-records-per-secret 5 --secret-posterior 1e-4",
            "secret_prior is missing",
        ),
        (
            "open d --secret-detectors email --max-records-per-secret 5 --secret-prior 1e-3 --secret-posterior 1e-4",
            "posterior is how often",
        ),
        (
            "open d --secret-detectors email --max-records-per-secret 0 --secret-prior 1e-4 --secret-posterior 1e-3",
            "max_records_per_secret",
        ),
        (
            "open d --secret-detectors email --max-records-per-secret 5 --epsilon 1 --delta 0",
            "Give --secret-prior P and --secret-posterior R",
        ),
        ("open d --max-records-per-secret 5 --secret-prior 1e-4 --secret-posterior 1e-3", "Name them with --secrets"),
        (f"{OPEN} --epsilon 1", "Give --epsilon and --delta, or --secret-prior"),
        (f"{OPEN} --rule basic", "Use rule rdp"),
        (f"{OPEN} --owner patient", "protects owners or secrets, not both"),
        ("open d --delta 1e-6", "epsilon is missing"),
        ("open d --epsilon 1", "delta is missing"),
    ],
)
def test_a_cap_that_makes_no_sense_is_one_error_with_its_cure(where: str, line: str, cure: str) -> None:
    with pytest.raises(ConfigError, match=cure):
        call(where, line)
    assert call(where, "show").output.count("\n") == 2  # the ledger and the columns' names


def test_raise_raises_the_posterior(where: str) -> None:
    call(where, OPEN)
    with pytest.raises(LedgerError, match="another kind"):
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
    with pytest.raises(LedgerError, match="understudy ledger open nowhere"):
        call(where, "show nowhere --json")
