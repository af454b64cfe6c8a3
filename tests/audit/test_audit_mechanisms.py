"""Every mechanism as it is built passes its audit, with an attack that is worth its name."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import entry_points
from typing import Any

import pytest
from audited import BUDGET, audited

from understudy.audit.mechanisms.audit import MECHANISMS, audit_mechanism
from understudy.methods.registry import GROUP, method_class
from understudy.privacy.noise import InsecureSeededNoise


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_no_mechanism_loses_more_than_it_promises(name: str) -> None:
    """With the system's noise, as in a release."""
    done = audit_mechanism(MECHANISMS[name], BUDGET, runs=100, confidence=1 - 1e-12)
    assert not done.violated
    assert done.runs == 100


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_attack_comes_near_to_an_ideal_one_and_stays_below_the_promise(name: str) -> None:
    """With noise that is the same each time, so that a lower confidence gives no false alarm, and sees with fewer runs
    how good an attack is."""
    attack: Any = MECHANISMS[name].attack(BUDGET)
    close = name.startswith(("private-tokens", "columns")) or name == "discovered-terms"  # to half of an ideal one
    runs = 4_000 if name.startswith("guide-sampled") else 2_000 if close else 1_200  # half of the first tell nothing
    done = audited(replace(attack, source=InsecureSeededNoise(1)), runs=runs, confidence=0.999)
    nearly = 0.2 if name == "dp-sgd-steps" else 0.5  # sampled steps are compared with a few points of delta
    assert nearly * done.ideal < done.bound <= done.promised
    assert done.ideal < done.promised < done.ceiling


def test_every_method_has_an_audit() -> None:
    titles = " ".join(each.title for each in MECHANISMS.values())
    private = [point.name for point in entry_points(group=GROUP) if method_class(point.name).private]
    assert [name for name in private if f"{name}:" not in titles] == []
