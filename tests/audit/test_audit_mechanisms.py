"""Every mechanism as it is built passes its audit, and a broken twin of each is caught."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.audit.mechanisms.audit import Attack, Auditable, MechanismAudit, audit_mechanism
from understudy.audit.mechanisms.registry import MECHANISMS
from understudy.audit.mechanisms.terms import sum_of_terms, term_counts
from understudy.privacy.guarantee import Budget
from understudy.privacy.noise import InsecureSeededNoise, NoiseKind
from understudy.vocabulary.top_terms import TermCounts

BUDGET = Budget(6, "1e-6")
SURE = 1 - 1e-6
"""A false alarm, once in a million tests."""


def found(attack: Attack, *, runs: int = 4_000) -> MechanismAudit:
    return audit_mechanism(Auditable("x", "x", "x", lambda _: attack), BUDGET, runs=runs, confidence=SURE)


class Less(InsecureSeededNoise):
    """The broken twin of any noise: two thirds of the scale."""

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        return super().draw(kind, scale=scale * 2 / 3, size=size)


@pytest.mark.parametrize("name", MECHANISMS)
def test_no_mechanism_loses_more_than_it_promises(name: str) -> None:
    done = audit_mechanism(MECHANISMS[name], BUDGET, runs=1_500, confidence=SURE)
    assert not done.violated
    assert done.promised == pytest.approx(6, rel=0.01)
    assert max(done.clopper_pearson, done.gaussian_curve or 0) > 0.5 * done.ideal  # the attack is worth its name


def test_two_thirds_of_the_noise_on_term_counts_are_caught() -> None:
    assert not found(sum_of_terms(term_counts(), "gaussian", BUDGET, InsecureSeededNoise(0))).violated
    assert found(sum_of_terms(term_counts(), "gaussian", BUDGET, Less(0))).violated


@dataclass(frozen=True)
class ForgottenTerms(TermCounts):
    """The sensitivity of one term, whatever a record holds."""

    @property
    def l2_sensitivity(self) -> float:
        return self.grid


def test_term_counts_whose_sensitivity_forgets_the_terms_of_a_record_are_caught() -> None:
    counts = term_counts()
    forgotten = ForgottenTerms(counts.matcher, counts.size, counts.terms_per_record)
    assert found(sum_of_terms(forgotten, "gaussian", BUDGET, InsecureSeededNoise(0))).violated
