"""What a promise for secrets is audited at: a prior, and the posterior that goes with an epsilon and a delta."""

from __future__ import annotations

from understudy.privacy.guarantee import Budget, gaussian_noise_multiplier, normal_quantile, phi_bar
from understudy.privacy.secrets.budget import SecretBudget

PRIOR = 0.05


def secret_budget(budget: Budget) -> SecretBudget:
    """(p, r) with p = :data:`PRIOR` and the r that one Gaussian release with (epsilon, delta) would raise it to."""
    mu = 1 / gaussian_noise_multiplier(float(budget.epsilon), float(budget.delta))
    return SecretBudget(PRIOR, phi_bar(-normal_quantile(PRIOR) - mu))
