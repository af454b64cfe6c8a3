"""A lower bound on what a mechanism loses, from how often an attacker's alarm rings on two neighbours."""

from __future__ import annotations

from understudy.audit.mechanisms.bounds import limits

CHANCE = 1e-6


def epsilon_found(true: int, false: int, draws: int) -> float:
    """Pure epsilon is at least this, but for one chance in a million."""
    return float(limits(false, draws - true, draws, alpha=CHANCE).epsilon(0.0))
