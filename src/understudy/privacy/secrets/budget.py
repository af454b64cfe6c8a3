"""The promise of secret protection as a run's budget: a prior p and the highest posterior r."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from understudy.base.errors import ConfigError
from understudy.privacy.exact import Number, as_typed, exact, require_chance, require_positive
from understudy.privacy.guarantee import normal_quantile


@dataclass(frozen=True)
class SecretBudget:
    """``(p, r)``: whoever guesses a secret rightly with probability p before a release does so with at most r after.

    More exactly: a test for the secret that is wrong with probability p where it is absent is right with probability at
    most r where it is present. The probabilities are over the noise; no single outcome's odds are bounded. Kept exact.

    Args:
        prior: p, from 1e-100, no default.
        posterior: r, above p and at most 0.999999999, no default.

    Raises:
        ConfigError: if a value is missing, no number, or out of its range.
    """

    prior: Fraction
    posterior: Fraction

    def __init__(self, prior: Number | None, posterior: Number | None) -> None:
        object.__setattr__(self, "prior", require_chance(secret_prior=prior))
        object.__setattr__(self, "posterior", require_chance(secret_posterior=posterior))
        self._check()

    @classmethod
    def of(cls, prior: Fraction, posterior: Fraction) -> SecretBudget:
        """What is added up or stored: any 0 < prior < posterior < 1, whatever a user may ask for.

        Raises ConfigError if the values are not in this order.
        """
        made = object.__new__(cls)
        object.__setattr__(made, "prior", require_positive(secret_prior=prior))
        object.__setattr__(made, "posterior", require_positive(secret_posterior=posterior))
        made._check()
        return made

    def _check(self) -> None:
        if not self.prior < self.posterior < 1:
            raise ConfigError(
                f"Expected secret_prior < secret_posterior < 1, got {as_typed(self.prior)} and "
                f"{as_typed(self.posterior)}.",
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
        """What :meth:`to_json` made. Raises ValueError if a field is no number."""
        return cls.of(exact(fields["prior"]), exact(fields["posterior"]))

    def __str__(self) -> str:
        return f"(p={as_typed(self.prior)}, r={as_typed(self.posterior)})"
