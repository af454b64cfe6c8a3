"""A secret budget split over several Gaussian releases."""

from __future__ import annotations

import math
from collections.abc import Sequence

from understudy.privacy.events import GaussianEvent
from understudy.privacy.secrets.bounds import smallest
from understudy.privacy.secrets.budget import SecretBudget
from understudy.privacy.secrets.composition import posterior


def secret_split(budget: SecretBudget, shares: Sequence[float]) -> tuple[float, ...]:
    """Noise multipliers of Gaussian releases that together spend ``budget`` and no more.

    As :func:`understudy.privacy.accountant.gaussian_split` for (epsilon, delta): one noise multiplier a share, in
    sensitivities of one *secret*; mu_i = mu sqrt(share_i / sum), mu that of the budget.

    Args:
        shares: how much of mu^2 each release gets; positive, any scale.
    """
    whole = math.fsum(shares)
    parts = [math.sqrt(whole / share) for share in shares]

    def bound(multiplier: float) -> float:
        return posterior([GaussianEvent(multiplier * part) for part in parts], budget.prior)

    total = smallest(bound, float(budget.posterior), low=1 / budget.mu)
    return tuple(total * part for part in parts)
