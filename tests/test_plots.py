"""Charts for notebooks: what they show, and on which axes."""

from __future__ import annotations

import sys

import pytest

import understudy as us
from understudy.base.errors import ConfigError

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")


def test_a_plan_draws_the_share_of_the_budget_of_each_release() -> None:
    plan = us.plan(us.Budget(4, "1e-6"), labels=["a", "b"], expected_records=1000, guide=True)
    axes = plan.plot()
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == [charge.name for charge in plan.plan.charges]
    assert len(names) > 1
    assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(100)
    assert plan.plot(axes) is axes


def test_a_missing_library_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ConfigError, match="matplotlib"):
        us.plan(us.Budget(4, "1e-6"), expected_records=1000).plot()
