"""The promise of secret protection as a run's budget: a prior p and the highest posterior r."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from understudy.errors import ConfigError
from understudy.privacy.checks import Number, require_positive
from understudy.privacy.guarantee import as_typed, normal_quantile


@dataclass(frozen=True)
class SecretBudget:
    """``(p, r)``: whoever guesses a secret rightly with probability p before a release does so with at most r after.

    More exactly: a test for the secret that is wrong with probability p where it is absent is right with probability at
    most r where it is present. The probabilities are over the noise; no single outcome's odds are bounded. Kept exact.

    Args:
        prior: p, in (0, 1), no default.
        posterior: r, in (p, 1), no default.

    Raises:
        ConfigError: if a value is missing or out of its range.
    """

    prior: Fraction
    posterior: Fraction

    def __init__(self, prior: Number | None, posterior: Number | None) -> None:
        object.__setattr__(self, "prior", require_positive(secret_prior=prior))
        object.__setattr__(self, "posterior", require_positive(secret_posterior=posterior))
        if not self.prior < self.posterior < 1:
            raise ConfigError(
                f"Expected secret_prior < secret_posterior < 1, got {prior} and {posterior}.",
                "The posterior is how often an attacker may guess rightly, for example ten times the prior.",
            )

    @property
    def mu(self) -> float:
        """Any release that is mu-GDP for a secret gives (p, r): mu = Phi^-1(1 - p) - Phi^-1(1 - r)."""
        return normal_quantile(float(self.posterior)) - normal_quantile(float(self.prior))

    def to_json(self) -> dict[str, str]:
        return {"prior": str(self.prior), "posterior": str(self.posterior)}

    @classmethod
    def from_json(cls, fields: dict[str, str]) -> SecretBudget:
        return cls(Fraction(fields["prior"]), Fraction(fields["posterior"]))

    def __str__(self) -> str:
        return f"(p={as_typed(self.prior)}, r={as_typed(self.posterior)})"
