"""dp-kps with terms that no list has: found, joined to the vocabulary, and never one of a few records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doors import MemoryStore, door_of
from tiny_corpora import LABELS, OWNER, RECORD, Row, bounded

from understudy.base.errors import ConfigError, PrivacyError
from understudy.methods.base import Released, ReleaseTools
from understudy.methods.dp_kps.method import DPKPS
from understudy.methods.dp_kps.plan import DISCOVERED, MOST_DISCOVERED
from understudy.methods.dp_kps.release import word_for_word
from understudy.methods.facts import PublicFacts
from understudy.privacy.guarantee import Budget
from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseSource, SystemNoise
from understudy.privacy.plan import Plan, Receipt
from understudy.privacy.unit import Unit
from understudy.schema.labels import LabelSet

BUDGET = Budget(6, "1e-6")
NAMES = LabelSet(tuple("abc"[:LABELS]))
FEW, MANY = "zyxwvut", "Quexil pump"
ROWS = [Row(f"rate of the {MANY}, card {number}", number % LABELS, f"owner {number // 2}") for number in range(400)]
PLANTED = [*ROWS, Row(f"{FEW}, rate {FEW} card", 0, "zoe")]


def method(folder: Path, **parameters: Any) -> DPKPS:
    (folder / "terms.txt").write_text("card\nrate\nnever\nseen\n", "utf-8")
    given = {"vocabulary": str(folder / "terms.txt"), "vocabulary_is_public": True, "length": 3, "top_terms": 3}
    return DPKPS(**{**given, "discover_terms": 0.3, **parameters})


def plan_of(chosen: DPKPS, unit: Unit = RECORD, budget: Budget = BUDGET) -> Plan:
    return chosen.plan(budget, PublicFacts(unit, NAMES))


def release(
    chosen: DPKPS,
    folder: Path,
    rows: Sequence[Row] = PLANTED,
    *,
    unit: Unit = RECORD,
    noise: NoiseSource | None = None,
    **door: Any,
) -> Released:
    plan = plan_of(chosen, unit)
    paid = door_of(plan, noise or InsecureNoNoise(), **door)
    tools = ReleaseTools(labels=NAMES, door=paid, seed=0, scratch=folder / "scratch")
    return chosen.release(bounded(rows, unit), plan, tools)


@pytest.mark.parametrize("unit", [RECORD, OWNER], ids=["record", "owner"])
def test_what_hundreds_have_is_found_and_what_one_unit_has_never_is(unit: Unit, tmp_path: Path) -> None:
    chosen = method(tmp_path)
    for seed in range(3):
        released = release(chosen, tmp_path, unit=unit, noise=InsecureSeededNoise(seed))
        found = list(released.terms)[:-3]
        assert "quexil pump" in found
        assert found == sorted(found)
        assert not any(FEW in term for term in found)
        assert released.notes == (word_for_word(plan_of(chosen, unit)),)


def test_found_terms_join_the_vocabulary_and_the_density(tmp_path: Path) -> None:
    released = release(method(tmp_path), tmp_path)
    found = list(released.terms)[:-3]
    assert set(found) >= {"quexil", "pump", "quexil pump"}
    assert released.arrays["counts"].shape == (len(released.terms),)
    assert np.array_equal(released.arrays["counts"][:-3], released.arrays[DISCOVERED])
    density = released.arrays["density"]
    assert density.shape == (LABELS, len(released.terms))
    by_term = dict(zip(released.terms, density.sum(axis=0), strict=True))
    assert by_term["quexil pump"] > 200
    assert by_term["quexil"] == by_term["pump"] == 0  # the longest match counts


def test_the_most_frequent_ones_join_where_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_DISCOVERED == 5000
    monkeypatch.setattr("understudy.methods.dp_kps.release.MOST_DISCOVERED", 2)
    rows = [*ROWS, *(Row("blue", 0) for _ in range(500))]
    assert release(method(tmp_path), tmp_path, rows).terms[0] == "blue"
    assert len(release(method(tmp_path), tmp_path, rows).terms) == 5


def test_a_stored_selection_is_used_again_and_pays_nothing(tmp_path: Path) -> None:
    chosen, store = method(tmp_path), MemoryStore()
    first = release(chosen, tmp_path, noise=SystemNoise(), store=store)
    unpaid = Receipt("run", Plan("dp-kps", RECORD, BUDGET, ()))
    unpaid.seal = Receipt("run", plan_of(chosen)).seal  # type: ignore[method-assign]
    again = release(chosen, tmp_path, [], noise=SystemNoise(), store=store, receipt=unpaid)
    assert list(again.terms) == list(first.terms)
    with pytest.raises(PrivacyError, match="no unused charge"):
        release(chosen, tmp_path, noise=SystemNoise(), receipt=unpaid)


# -- the plan ---------------------------------------------------------------------------------------------------------


def test_the_plan_has_the_charge_and_its_delta_and_spends_the_budget(tmp_path: Path) -> None:
    plan = plan_of(method(tmp_path))
    assert [charge.name for charge in plan.charges] == ["vocabulary", DISCOVERED, "density"]
    assert plan.mechanism(DISCOVERED).delta == pytest.approx(1e-7)
    assert 5.9999 < plan.total <= 6
    rho = [charge.event.rho for charge in plan.charges]
    assert rho[1] / sum(rho) == pytest.approx(0.3)
    assert "threshold" in str(plan.forecast)
    assert "shows a word of one single unit with probability at most 1e-07" in str(plan.charges[1].event)


@pytest.mark.parametrize("share", [None, 0])
def test_by_default_nothing_is_looked_for(tmp_path: Path, share: float | None) -> None:
    assert [charge.name for charge in plan_of(method(tmp_path, discover_terms=share)).charges] == [
        "vocabulary",
        "density",
    ]


def test_pure_privacy_finds_no_terms_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Discovering terms needs a delta"):
        plan_of(method(tmp_path, noise="laplace"))
    assert len(plan_of(method(tmp_path, noise="laplace", discover_terms=None)).charges) == 2
    with pytest.raises(ConfigError, match="delta"):
        plan_of(method(tmp_path), budget=Budget(6, 0))
