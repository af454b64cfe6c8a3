"""The Python face of ``understudy plan``."""

from __future__ import annotations

from typing import Any

from understudy.config import budget_fields, run_config
from understudy.methods.base import Method
from understudy.methods.registry import require_method
from understudy.privacy.guarantee import Budget
from understudy.privacy.secrets.budget import SecretBudget
from understudy.run.forecast import Forecast, forecast


def plan(method: Method, budget: Budget | SecretBudget, **options: Any) -> Forecast:
    """What a run would release, cost and buy. Reads no private data.

    Args:
        method: such as ``DPKPS()``.
        budget: what the run may spend.
        options: public facts by their flag names: ``label``, ``labels``, ``expected_records``, ``records_per_label``,
            ``llm``, ``owner`` and so on.

    Raises:
        ConfigError: if the method is none, or the run cannot be made.
    """
    require_method(method)
    fields = {**budget_fields(budget), "method": method.name, **method.dump()}
    return forecast(run_config({**fields, **options}))
