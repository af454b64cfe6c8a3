"""Guided evolution, before a private record is read: the guide gets the whole budget."""

from __future__ import annotations

from understudy.base.errors import ConfigError
from understudy.methods.additions.guide.plan import forecast, guide_charge, verdict
from understudy.methods.facts import PublicFacts
from understudy.methods.shared.evolution.parameters import EvolvingParameters, candidates_per_round
from understudy.methods.shared.evolution.variation import keywords_of_labels
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan
from understudy.text.prompts.evolving import EvolutionPrompts

NAME = "guided-evolution"


class GuidedEvolutionParameters(EvolvingParameters):
    """All parameters of guided evolution: they are free, and may change at every ``generate``."""


def make_plan(parameters: GuidedEvolutionParameters, budget: Budget, facts: PublicFacts) -> Plan:
    """Return the plan of a release."""
    if budget.delta == 0:
        raise ConfigError("The noise of a guide is Gaussian, which needs a delta.", "Give a delta such as 1e-6.")
    keywords_of_labels(parameters, EvolutionPrompts(), ())  # a file that cannot be read is known before any charge
    candidates = candidates_per_round(parameters, facts.labels.size)
    labels, expected = facts.labels.size, facts.expected_records
    charge = guide_charge(gaussian_split(budget, (1,))[0], labels, expected_records=expected, unit=facts.unit)
    entries = (
        Fact("rounds", parameters.rounds, "rounds, all of them free"),
        Fact("candidates_per_round", candidates, "candidates per round"),
        *forecast(charge, labels=labels, expected_records=expected).entries,
    )
    return Plan(
        NAME, facts.unit, budget, (charge,), Facts(entries, verdict=verdict(charge, labels=labels, records=expected))
    )
