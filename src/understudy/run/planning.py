"""The plan of a run, before anything is read or asked."""

from __future__ import annotations

from understudy.base.labels import LabelSet
from understudy.methods.base import Method
from understudy.methods.public import PublicFacts
from understudy.methods.shared.guide.plan import GUIDE_SHARE, plan_with_guide
from understudy.methods.shared.tables.plan import plan_with_columns
from understudy.methods.shared.tables.variables import COLUMNS_SHARE, TablesParameters
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.plan import Plan
from understudy.release.statement import require_readable_charges
from understudy.run.job import Promise, Table


def make_plan(method: Method, promise: Promise, table: Table, *, labels: LabelSet | None = None) -> Plan:
    """The plan of a run, with the table's labels or the declared ones. Reads no private data.

    Raises ConfigError if the method cannot be planned with the budget.
    """
    beside = () if table.record_columns else table.typed_columns
    facts = PublicFacts(promise.unit, labels or table.label_set, promise.expected_records, beside)
    variables = table.variables(facts.labels)

    def plan_text(rest: Budget | SecretBudget) -> Plan:
        """The method, and its guide if there is to be one."""
        if not promise.guide:
            return method.plan(rest, facts)
        return plan_with_guide(
            lambda left: method.plan(left, facts),
            rest,
            share=GUIDE_SHARE,
            labels=facts.labels.size,
            expected_records=facts.expected_records,
        )

    if variables is None:
        plan = plan_text(promise.budget)
    else:
        plan = plan_with_columns(
            plan_text,
            promise.budget,
            variables=variables,
            parameters=promise.part(TablesParameters),
            share=COLUMNS_SHARE,
            expected_records=facts.expected_records,
        )
    require_readable_charges(plan.charges)
    return plan
