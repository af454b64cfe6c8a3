"""Topics, before a private record is read: which noisy sums will be made, and how many topics the records can carry.

votes        noisy histogram: each record's vote for the nearest of the public candidate terms
sums-1..3    in every round, per topic the noisy number and sum of the embeddings of the records nearest to it
sizes        per topic the noisy number of records nearest to it
"""

from __future__ import annotations

import math

from pydantic import Field

from understudy.base.errors import ConfigError
from understudy.base.parameters import Parameters
from understudy.methods.public import PublicFacts
from understudy.methods.shared.evolution.voting import vote_sensitivity
from understudy.methods.shared.guide.plan import VECTOR_WEIGHT, guide_sensitivity
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import NoisySum, Sensitivity
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.verdict import Verdict

NAME = "topics"
VOTES, SIZES = "votes", "sizes"
ROUNDS = 3
CANDIDATES = 6000
"""Public terms that records vote for: the most frequent of the built-in vocabulary."""
_VOTES_SHARE, _SIZES_SHARE = 0.3, 0.1
"""Of mu^2; the rounds share the rest."""
MOST_TOPICS = 1000


class TopicsParameters(Parameters):
    """All parameters of topics."""

    topics: int = Field(20, ge=1, le=MOST_TOPICS)
    """Topics to look for (K): a public number. Near twins are merged, so that there may be fewer in the end."""


def sums_name(number: int) -> str:
    """The charge of a round, the first being 1."""
    return f"sums-{number}"


def mechanisms(
    parameters: TopicsParameters, budget: Budget, facts: PublicFacts, *, candidates: int = CANDIDATES
) -> dict[str, NoisySum]:
    """Each noisy sum by its charge's name, calibrated so that together they spend ``budget`` and no more.

    Raises ConfigError if the noise does not fit its grid.
    """
    topics = parameters.topics
    rounds = [sums_name(number + 1) for number in range(ROUNDS)]
    round_share = (1 - _VOTES_SHARE - _SIZES_SHARE) / ROUNDS
    shares = {VOTES: _VOTES_SHARE, **dict.fromkeys(rounds, round_share), SIZES: _SIZES_SHARE}
    made = {
        VOTES: (vote_sensitivity(1, facts.unit), (candidates,)),
        **dict.fromkeys(rounds, (guide_sensitivity(), (topics, None))),
        SIZES: (Sensitivity.of_counts(1), (topics,)),
    }
    split = gaussian_split(budget, list(shares.values()))
    return {name: NoisySum("gaussian", multiplier, *made[name]) for name, multiplier in zip(shares, split, strict=True)}


def make_plan(parameters: TopicsParameters, budget: Budget, facts: PublicFacts) -> Plan:
    """The plan of a release.

    Raises ConfigError if the budget has no delta, the table has labels, or the noise does not fit its grid.
    """
    if budget.delta == 0:
        raise ConfigError("The noise of topics is Gaussian: it needs a delta.", "Give a delta such as 1e-6.")
    if facts.labels.names:
        raise ConfigError("Topics are found where there are no labels.", "Leave out --label and --labels.")
    topics, sums = parameters.topics, mechanisms(parameters, budget, facts)
    why = {
        VOTES: f"noisy histogram of the records' votes for the nearest of {CANDIDATES} public terms",
        SIZES: f"noisy numbers of records of {topics} topic(s)",
    }
    around = f"noisy sums of the texts' embeddings for each of {topics} topic(s)"
    charges = tuple(Charge(name, mechanism, why.get(name, around)) for name, mechanism in sums.items())
    entries = [
        Fact("topics", topics, "topics"),
        Fact("size_noise", sums[SIZES].noise_std, f"noise on the size of a topic (std, {facts.unit.kind}s)"),
    ]
    found = verdict(sums[sums_name(1)].noise_multiplier, topics, facts.expected_records)
    return Plan(NAME, facts.unit, budget, charges, Facts(tuple(entries), verdict=found))


def verdict(multiplier: float, topics: int, records: float | None) -> Verdict:
    """By the noise on a topic's mean over its distance from the others, along the directions in which terms differ."""
    return Verdict.of("labels", texts=multiplier / VECTOR_WEIGHT * _NOISE, labels=topics, records=records)


_NOISE = math.sqrt(60) / 0.45
"""The root of how many directions texts differ in, over the distance of two topics: of the built-in embedder, about."""
