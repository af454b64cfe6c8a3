"""A sum is stated once: plans and queries have its sensitivity and shape from one spec."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import understudy
from understudy.methods.additions.columns.plan import column_charges
from understudy.methods.additions.columns.variables import ALL, SELECTED, TablesParameters, Variables
from understudy.methods.additions.guide.plan import guide_charge
from understudy.methods.additions.topics.plan import TopicsParameters, make_plan
from understudy.methods.aug_pe.method import AugPE
from understudy.methods.base import Method
from understudy.methods.dp_finetune.method import DPFinetune
from understudy.methods.dp_kde.method import DPKDE
from understudy.methods.dp_kps.method import DPKPS
from understudy.methods.facts import PublicFacts
from understudy.methods.seq_pate.method import SeqPATE
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.mechanisms import NoisySum, SampledSum, SubsampledSum
from understudy.privacy.plan import Charge
from understudy.privacy.sample import SubsampledSums
from understudy.privacy.unit import Unit
from understudy.schema.columns import declared_columns
from understudy.schema.labels import LabelSet

SOURCE = Path(understudy.__file__).parent / "methods"
COLUMNS = declared_columns("ward=A|B; night; beds=1..4")
LABELS = LabelSet(("a", "b"))
BUDGET = Budget(4, "1e-6")
OWNER = Unit("owner", 3, "who")
# Its spec is the mechanism, which clips and samples too.
BY_THE_MECHANISM = {"ClippedGradients"}


def classes_with(name: str) -> dict[str, set[str]]:
    """The classes of methods that define ``name``, each with what else it defines."""
    found = {}
    for file in SOURCE.rglob("*.py"):
        for each in ast.walk(ast.parse(file.read_text())):
            if isinstance(each, ast.ClassDef):
                defined = {part.name for part in each.body if isinstance(part, ast.FunctionDef)}
                if name in defined:
                    found[each.name] = defined
    return found


def test_what_reads_records_states_neither_sensitivity_nor_shape() -> None:
    queries = classes_with("of_batch")
    assert len(queries) > 12
    assert {name for name, defined in queries.items() if defined & {"sensitivity", "shape"}} == BY_THE_MECHANISM


def test_what_states_a_sensitivity_reads_no_records() -> None:
    specs = classes_with("sensitivity").keys() - BY_THE_MECHANISM
    assert len(specs) > 9
    assert all(name.endswith("Spec") for name in specs)


def noisy(label_sizes: str = "noisy") -> list[Method]:
    return [
        DPKPS(),
        DPKPS(discover_terms=0.3),
        DPKPS(noise="laplace"),
        DPKDE(mode="iterative", length=4),
        AugPE(label_sizes=label_sizes, private_keywords=True, rounds=2),
        DPFinetune(label_sizes=label_sizes, declared_records=1000),
        SeqPATE(label_sizes=label_sizes, declared_records=1000),
    ]


def planned() -> dict[str, tuple[Unit, tuple[Charge, ...]]]:
    found = {}
    for number, method in enumerate(noisy()):
        for unit in (Unit(), OWNER):
            plan = method.plan(BUDGET, PublicFacts(unit, LABELS, 1000, columns=COLUMNS))
            found[f"{method.name} {number} {unit.kind}"] = unit, plan.charges
    secret = Unit("secret", 3)
    aug_pe = AugPE(rounds=2).plan(SecretBudget("0.01", "0.1"), PublicFacts(secret, LABELS))  # type: ignore[arg-type]
    found["aug-pe secret"] = secret, aug_pe.charges
    for records in (1000, 10**6):
        facts = PublicFacts(Unit(), expected_records=records)
        topics = make_plan(TopicsParameters(topics=5), BUDGET, facts)
        guide = guide_charge(2.0, 2, expected_records=records, unit=Unit())
        found[f"additions of {records}"] = Unit(), (*topics.charges, guide)
    for pairs in (SELECTED, ALL):
        columns = column_charges(BUDGET, Variables("label", LABELS, COLUMNS), TablesParameters(column_pairs=pairs))
        found[f"columns, {pairs} pairs"] = Unit(), columns
    return found


@pytest.mark.parametrize("name", planned())
def test_every_sum_is_charged_with_what_its_query_states(name: str) -> None:
    unit, charges = planned()[name]
    for charge in charges:
        sums = {charge.name: charge.mechanism}
        queries = {charge.name: charge.query}
        if isinstance(charge.mechanism, SubsampledSums):
            sums, queries = dict(charge.mechanism.sums), charge.query
        for each, mechanism in sums.items():
            if isinstance(mechanism, NoisySum | SampledSum | SubsampledSum):
                times = unit.vectors if isinstance(mechanism, NoisySum) else 1
                assert mechanism.sensitivity == queries[each].sensitivity.times(times)
                assert mechanism.shape == queries[each].shape
