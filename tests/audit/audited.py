"""An audit of any attack, as sure as a test must be."""

from __future__ import annotations

from typing import Any

from understudy.audit.mechanisms.audit import Auditable, MechanismAudit, audit_mechanism
from understudy.privacy.guarantee import Budget

BUDGET = Budget(3, "1e-6")
LOUD = Budget(8, "1e-6")
"""So little noise that few runs show a third of it missing."""
SURE = 1 - 1e-6
"""A false alarm once in a million audits."""


def audited(attack: Any, *, runs: int = 1_500, confidence: float = SURE) -> MechanismAudit:
    it = Auditable("it", "it", "neighbours", lambda _: attack)
    return audit_mechanism(it, BUDGET, runs=runs, confidence=confidence)
