"""What a prior and a posterior promise for one secret, in words. No secret is ever written, only its number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from understudy.privacy.exact import as_typed
from understudy.privacy.mechanisms import SampledSum
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.secrets.budget import SecretBudget
from understudy.release.statement import everywhere
from understudy.release.statement.rounding import in_a_hundred, round_up

PRIORS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
NOT_COVERED = (
    "What is not a secret: the rest of a record, and whoever wrote it.",
    "Secrets that go together: two that stand in one text, or of which one tells the other, are each protected alone.",
    "Paraphrases of a secret, and spellings that were not recognised: such a record counts as not holding it.",
    "Groups: several secrets together are protected more weakly than each of them.",
    "Other runs on the same data: together they come to a higher posterior (see the ledger, which composes them; "
    "posteriors do not add up), and a run that recognises other secrets protects only those.",
    everywhere.POPULATION,
    everywhere.SELECTION,
    everywhere.ENDING,
    everywhere.LANGUAGE_MODEL,
)
_PUBLIC_INCIDENCE = (
    "**Which records hold which secret is taken as public.** The weights and the noise follow from it, so this promise "
    "hides what a secret is and what its records say, not which records those are. Records that hold no secret get no "
    "protection at all: for the record unit epsilon is infinite."
)


@dataclass(frozen=True)
class SecretPromise:
    """``(p, r)``-secret protection (Wang et al. 2025), with the posterior at several priors and the power of a test.

    Args:
        budget: what was booked.
        max_records: most records that hold one secret (m).
        posterior_at: the highest posterior at each prior.
        power: of a test for one secret that is wrong about 1 absent secret in 100.
        public_incidence: True if which record holds which secret is taken as public.
    """

    budget: SecretBudget
    max_records: int
    posterior_at: Mapping[float, float]
    power: float
    public_incidence: bool
    neighbours: ClassVar[str] = "remove all records that hold one secret"
    not_covered: ClassVar[tuple[str, ...]] = NOT_COVERED

    def words(self) -> str:
        prior, posterior = as_typed(self.budget.prior), as_typed(self.budget.posterior)
        times = round_up(float(self.budget.posterior / self.budget.prior))
        paragraphs = [
            f"Whoever would guess a secret rightly with a probability of at most {prior} (the prior, p) before "
            f"seeing the Release or a text made from it guesses it rightly with at most {posterior} (the posterior, r) "
            f"after, whatever else they know: r/p is {times}, for a guesser at p itself; for others see the table.",
            f"In exact terms: any test for one given secret that says it is in the data with probability {prior} where "
            f"it is not says so with probability at most {posterior} where it is; neighbours {self.neighbours}. The "
            "probabilities are over the noise: they bound how often an attacker is right, not how sure one lucky "
            "sample of the noise may make them.",
            "In other words: whoever guesses from it whether one given secret was in the data, and is wrong about 1 in "
            f"100 secrets that were not, is right about at most {in_a_hundred(self.power)} in 100 that were.",
            "**This is not differential privacy of a record or of an owner:** it implies no epsilon and no delta for "
            "them, and promises nothing about what is not a secret. It holds for each secret that stands in at most "
            f"{self.max_records} {'record' if self.max_records == 1 else 'records'}; for one that stands in more, "
            "because it was not recognised there, the posterior may be higher. Secrets are known here by number only.",
        ]
        return "\n\n".join(paragraphs + [_PUBLIC_INCIDENCE] * self.public_incidence)

    def table(self) -> list[str]:
        rows = (f"| {prior:g} | {round_up(posterior)} |" for prior, posterior in self.posterior_at.items())
        return ["| prior | highest posterior |", "|---|---|", *rows]


def posterior_at(plan: Plan) -> dict[float, float]:
    """The highest posterior at the booked prior and at several others."""
    priors = {*([float(plan.budget.prior)] if isinstance(plan.budget, SecretBudget) else []), *PRIORS}
    return {prior: plan.posterior(prior) for prior in sorted(priors)}


def public_incidence(charges: tuple[Charge, ...]) -> bool:
    """Whether a release was made with the incidence of secrets taken as public."""
    return any(isinstance(each.mechanism, SampledSum) and each.mechanism.incidence is not None for each in charges)
