"""The columns' plan: their charges and the method's are within the budget, and what cannot be measured is told."""

from __future__ import annotations

from typing import Any

import pytest

from understudy.base.errors import ConfigError
from understudy.methods.additions.columns import addition as columns_addition
from understudy.methods.additions.columns.plan import parts
from understudy.methods.additions.columns.variables import TablesParameters, Variables
from understudy.privacy.events import GaussianEvent
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan
from understudy.run.job import Job
from understudy.run.settings import run_config
from understudy.schema.columns import declared_columns
from understudy.schema.labels import LabelSet

COLUMNS = "priority=low|high; stars=1..5; urgent"
METHODS = ("dp-kps", "private-prediction", "dp-finetune", "aug-pe", "guided-evolution")


def plan_of(values: dict[str, Any]) -> Plan:
    return Job(run_config(values)).plan()


def planned(method: str = "dp-kps", **changes: Any) -> Plan:
    values = {"label": "topic", "labels": "a,b", "epsilon": "4", "delta": "1e-6", "columns": COLUMNS, "method": method}
    if method == "dp-finetune":
        values["declared_records"] = 20_000
    return plan_of({**values, **changes})


def test_a_plan_counts_no_labels_that_are_not_declared() -> None:
    """One label in place of all of them would promise more signal than there is."""
    with pytest.raises(ConfigError, match="The label set of the column"):
        planned(labels=None)
    assert planned(labels=None, labels_from_data=True).charges


@pytest.mark.parametrize("method", METHODS)
def test_columns_and_method_together_are_within_the_budget(method: str) -> None:
    alone = [charge.name for charge in planned(method, columns=None).charges]
    plan = planned(method)
    own = ["column-density"] if method == "dp-kps" else []
    assert [charge.name for charge in plan.charges] == [*alone, *own, "columns", "column-scores", "column-pairs"]
    assert plan.budget == Budget(4, "1e-6")
    assert 0.9 * 4 <= plan.total <= 4


@pytest.mark.parametrize("share", [0.05, 0.3, 0.8])
def test_methods_spend_the_budget_and_columns_get_their_share(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    monkeypatch.setattr(columns_addition, "COLUMNS_SHARE", share)
    plan = planned(guide=True)
    events = [charge.event for charge in plan.charges]
    weights = [1 / event.noise_multiplier**2 for event in events if isinstance(event, GaussianEvent)]
    assert len(weights) == len(events) == 7
    assert sum(weights[-3:]) / sum(weights) == pytest.approx(share, rel=1e-3)
    assert plan.total == pytest.approx(4, rel=1e-5)


@pytest.mark.parametrize(
    ("pairs", "names", "measured"),
    [
        ("selected", ["columns", "column-scores", "column-pairs"], 1),
        ("tree", ["columns", "column-scores", "column-pairs"], 1),
        ("all", ["columns", "column-pairs"], 6),
        ("none", ["columns"], 0),
        ("topic*stars, urgent*priority", ["columns", "column-pairs"], 2),
    ],
)
def test_pairs_are_selected_or_public(pairs: str, names: list[str], measured: int) -> None:
    """Noise is for as many pairs as are declared, or for one, which those that are selected share."""
    plan = planned(column_pairs=pairs)
    assert [charge.name for charge in plan.charges][3:] == names
    if measured:
        planned_for = plan.mechanism("column-pairs").sensitivity
        assert planned_for.l2 == pytest.approx(planned_for.grid * measured**0.5)


def test_one_pair_is_not_selected() -> None:
    assert "column-scores" not in [charge.name for charge in planned(columns="urgent").charges]
    variables = Variables(None, LabelSet(), declared_columns("urgent"))
    assert parts(variables, TablesParameters()) == {"columns": 1.0}


@pytest.mark.parametrize("pairs", ["", "topic", "topic*nothing", "topic*topic", "topic*stars,stars*topic", "a*b*c"])
def test_what_is_no_pair_is_one_error(pairs: str) -> None:
    with pytest.raises(ConfigError, match="not a pair of columns"):
        planned(column_pairs=pairs)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"columns": "a=1..1000/999;b=1..1000/999; " + ";".join(f"c{n}=1..900/900" for n in range(7))}, "cells"),
        ({"columns": ";".join(f"c{n}" for n in range(65))}, "More than 64"),
        ({"columns": ";".join(f"c{n}=0..99/99" for n in range(6)), "column_pairs": "all"}, "too wide"),
        ({"columns": None, "column_pairs": "tree"}, "no columns"),
        ({"delta": "0"}, "needs a delta"),
        ({"label": "stars"}, "labels are declared as well"),
        ({"text": "stars"}, "typed column"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_what_cannot_be_measured_is_told_by_public_facts(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        planned(**changes)


def test_secrets_have_no_columns() -> None:
    secret = {"secret_prior": "1e-4", "secret_posterior": "1e-3", "secret_detectors": "email"}
    values = {"label": "topic", "labels": "a,b", "columns": COLUMNS, "method": "aug-pe", "max_records_per_secret": 2}
    with pytest.raises(ConfigError, match="not secrets"):
        plan_of({**values, **secret})


def test_few_records_are_warned_of() -> None:
    assert not planned(expected_records=20_000).forecast.warnings
    plan = planned(expected_records=40)
    assert any("columns would be mostly noise" in warning for warning in plan.forecast.warnings)
    assert plan.forecast["columns_error"] > planned(expected_records=4_000).forecast["columns_error"]  # type: ignore[operator]
