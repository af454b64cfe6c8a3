"""``understudy evaluate --show``: how values are laid out."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import pytest
from run_fixtures import Command

from understudy.audit.mechanisms import audit as mechanisms
from understudy.audit.mechanisms.audit import MECHANISMS
from understudy.base.errors import PrivacyError
from understudy.cli import output
from understudy.evaluate.metrics.results import Evaluation
from understudy.evaluate.metrics.value import HOLDOUT, Family, Interval, Metric, MetricValue

HEADS = "metric\tof\tvalue\tinterval\tsettings\tnote"


def metric(name: str, family: Family) -> Metric:
    return Metric(family, name, name.capitalize(), "", "", "lower")


FIGURES = (
    MetricValue(metric("copied", "leakage"), 3, note="Of 40."),
    MetricValue(
        metric("near", "fidelity"), 0.12345678, HOLDOUT, Interval(0.1, 0.2, "bootstrap"), {"n": 2, "label": "[/b]"}
    ),
    MetricValue(metric("pii_replayed", "leakage"), None, settings={"detector": "email"}, note="There are none."),
    MetricValue(metric("pii_replayed", "leakage"), 0, settings={"detector": "name"}),
    MetricValue(metric("clusters", "fidelity"), None, note="Too few."),
)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, understudy: Command) -> Callable[[], str]:
    def measure(*_tables: str, **_settings: Any) -> Evaluation:
        return Evaluation(FIGURES, None, {})

    def show() -> str:
        said = understudy("evaluate", "real.csv", "made.csv", "--show")
        assert said.code == 0, said.err
        return said.out

    monkeypatch.setattr(import_module("understudy.evaluate.evaluate"), "evaluate", measure)
    monkeypatch.setattr(import_module("understudy.evaluate.tables"), "opened", lambda *_: nullcontext((None, None)))
    return show


def test_figures_are_shown_a_table_a_family_without_personal_data_that_cannot_be_told(shown: Callable[[], str]) -> None:
    assert shown().splitlines() == [
        "",
        "fidelity",
        HEADS,
        "Near\tholdout\t0.1235\t0.1 to 0.2\tn 2, label [/b]\t",
        "Clusters\tsynthetic\t-\t\t\tToo few.",
        "",
        "leakage",
        HEADS,
        "Copied\tsynthetic\t3\t\t\tOf 40.",
        "Pii_replayed\tsynthetic\t0\t\tdetector name\t",
    ]


@pytest.mark.usefixtures("shown")
def test_metrics_that_are_not_shown_are_pointed_to(understudy: Command) -> None:
    assert "--show prints them" in understudy("evaluate", "real.csv", "made.csv", "--output", "out").err
    assert "--show prints them" not in understudy("evaluate", "real.csv", "made.csv", "--show").err


def test_columns_align_and_brackets_are_no_markup(shown: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    out = shown()
    assert "label [/b]" in out
    for part in out.split("\n\n"):
        assert len({len(line) for line in part.strip().splitlines()[1:]}) == 1


def test_the_list_names_every_mechanism_with_its_neighbours(understudy: Command) -> None:
    said = understudy("audit", "mechanism", "--list")
    assert said.code == 0
    lines = said.out.splitlines()[1:]
    assert [line.split("\t")[0] for line in lines] == list(MECHANISMS)
    assert all(MECHANISMS[line.split("\t")[0]].neighbours in line for line in lines)


def test_an_audit_is_a_line_beside_the_promise_and_says_that_it_is_no_proof(understudy: Command) -> None:
    said = understudy("audit", "mechanism", "label-counts", "--runs", "150", "--confidence", "0.999999")
    assert said.code == 0
    heads, row, note = said.out.splitlines()
    found = dict(zip(heads.split("\t"), row.split("\t"), strict=True))
    assert (found["mechanism"], found["verdict"]) == ("label-counts", "no violation found")
    assert found["number"] == "epsilon at delta 1e-06"
    assert float(found["promised"]) == pytest.approx(4, rel=1e-3)
    assert "(Gaussian)" in found["bound by the curve"]
    assert "not a proof" in note


def test_as_json_an_audit_is_all_that_is_known_of_it(understudy: Command) -> None:
    words = ("term-counts-laplace", "--runs", "120", "--epsilon", "2", "--confidence", "0.999999", "--json")
    (found,) = json.loads(understudy("audit", "mechanism", *words).out)["audits"]
    assert found["promised"] == 2
    assert found["quantity"] == "epsilon at delta 0"  # pure
    assert (found["runs"], found["confidence"]) == (120, 0.999999)
    assert (found["curve"], found["along_curve"]) == (None, None)
    assert found["clopper_pearson"] <= found["promised"]
    assert found["ideal"] < found["ceiling"]
    assert found["neighbours"] == MECHANISMS["term-counts-laplace"].neighbours
    assert "not a proof" in found["note"]


def test_a_violation_is_shown_and_ends_with_the_code_of_a_broken_privacy_rule(
    understudy: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mechanism that adds no noise."""
    from dataclasses import replace

    from understudy.audit.mechanisms.sums import one_sum
    from understudy.privacy.noise import InsecureNoNoise

    def bare(budget: object) -> object:
        return replace(one_sum("labels", "gaussian", budget), source=InsecureNoNoise())  # type: ignore[arg-type]

    broken = replace(MECHANISMS["label-counts"], attack=bare)
    monkeypatch.setitem(MECHANISMS, "label-counts", broken)
    said = understudy("audit", "mechanism", "label-counts", "--runs", "150")
    assert said.code == PrivacyError.exit_code
    assert "VIOLATION" in said.out
    assert "label-counts" in said.err.splitlines()[-2]


def test_without_torch_what_needs_it_is_left_out_of_all_and_refused_by_name(
    understudy: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = {name: MECHANISMS[name] for name in ("label-counts", "subsets")}
    monkeypatch.setattr(mechanisms, "MECHANISMS", two)
    monkeypatch.setattr(mechanisms, "find_spec", lambda _: None)
    monkeypatch.setattr("understudy.models.machine.find_spec", lambda _: None)
    said = understudy("audit", "mechanism", "all", "--runs", "100", "--confidence", "0.999999999999")
    assert said.code == 0
    assert "subsets" not in said.out
    assert "extra `local` is not installed: subsets" in said.err
    alone = understudy("audit", "mechanism", "subsets")
    assert alone.code == 6
    assert "understudy[local]" in alone.err


REFUSED = {
    "no name": [],
    "unknown": ["nonsense"],
    "few runs": ["votes", "--runs", "99"],
    "no epsilon": ["votes", "--epsilon", "0"],
    "no delta": ["votes", "--delta", "0"],
    "certainty": ["votes", "--confidence", "1"],
    "a secret without delta": ["clusters", "--delta", "0"],
    "subsets without delta": ["subsets", "--delta", "0"],
    "tokens without delta": ["private-tokens", "--delta", "0"],
    "next to no promise": ["term-counts-laplace", "--epsilon", "51"],
}


@pytest.mark.parametrize("words", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_audited_is_one_clear_error(understudy: Command, words: list[str]) -> None:
    said = understudy("audit", "mechanism", *words)
    assert said.code in (2, PrivacyError.exit_code)
    assert "Traceback" not in said.err
    assert "Internal error" not in said.err
    assert len(said.err.splitlines()) <= 3


def test_help_of_an_audit_loads_no_model_and_no_noise() -> None:
    from test_command_line import COMMAND, NOISE, loaded_by

    assert not loaded_by(COMMAND, "audit", "mechanism", "--help") & set(NOISE)
