"""``understudy evaluate --show``: how values are laid out."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from run_fixtures import Said

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
def shown(monkeypatch: pytest.MonkeyPatch, understudy: Callable[..., Said]) -> Callable[[], str]:
    def measure(*_tables: str, **_settings: Any) -> Evaluation:
        return Evaluation(FIGURES, None, {})

    def show() -> str:
        said = understudy("evaluate", "real.csv", "made.csv", "--show")
        assert said.code == 0, said.err
        return said.out

    monkeypatch.setattr(import_module("understudy.evaluate.evaluate"), "evaluate", measure)
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
def test_metrics_that_are_not_shown_are_pointed_to(understudy: Callable[..., Said]) -> None:
    assert "--show prints them" in understudy("evaluate", "real.csv", "made.csv", "--output", "out").err
    assert "--show prints them" not in understudy("evaluate", "real.csv", "made.csv", "--show").err


def test_columns_align_on_a_terminal_and_brackets_are_no_markup(
    shown: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    out = shown()
    assert "label [/b]" in out
    for part in out.split("\n\n"):
        assert len({len(line) for line in part.strip().splitlines()[1:]}) == 1
