"""Aug-PE, before a private record is read: which noisy histograms will be made, and how good they will be.

labels       noisy label counts, if asked for
vocabulary   noisy counts of public terms, if keywords are to come from the data (AugPE+V~)
votes-1..T   in every round, a noisy histogram of the private records' votes
"""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field

from understudy.base.errors import ConfigError
from understudy.base.parameters import Parameters, public_file
from understudy.methods.facts import PublicFacts
from understudy.methods.shared.evolution.parameters import EvolutionParameters, HarvestParameters, candidates_per_round
from understudy.methods.shared.evolution.variation import keywords_of_labels
from understudy.methods.shared.evolution.voting import Distance
from understudy.methods.shared.specs import TermCountsSpec, VotesSpec, planned_label_counts
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.mechanisms import NoisySum, QuerySpec
from understudy.privacy.plan import Charge, Plan, charges_of, noise_multipliers
from understudy.privacy.verdict import CLEAR, Verdict
from understudy.schema.labels import NOISY, UNIFORM, declared_proportions
from understudy.text.prompts.evolving import EvolutionPrompts
from understudy.text.vocabulary.shrinkage import require_enough_terms
from understudy.text.vocabulary.terms import BUILT_IN, Vocabulary, load_vocabulary


class VotingParameters(Parameters):
    """How the private records vote, and what else is released."""

    nearest: int = Field(1, ge=1, le=1000)
    """Candidates that each record votes for (k); the vote is divided so that its L2 norm stays 1."""
    distance: Distance = "centred"
    """How nearness is measured: ``centred`` (cosine about the mean of a label's candidates), ``cosine`` or ``l2``."""
    label_sizes: str = UNIFORM
    """Texts of each label: ``uniform``, declared proportions ``A=3,B=1``, or ``noisy`` counts (which cost budget)."""
    private_keywords: bool = False
    """Sample the keywords of random prompts from a privatised vocabulary, as in DP-KPS (AugPE+V~); costs budget."""
    vocabulary: str = public_file(BUILT_IN)
    """Private keywords: a public list of terms, a file or the built-in English word list."""
    vocabulary_is_public: bool = False
    """Confirms that your own vocabulary was not made from private data."""
    top_terms: int = Field(200, ge=1)
    """Private keywords: size of the privatised vocabulary (N)."""


class AugPEParameters(EvolutionParameters, VotingParameters, HarvestParameters):
    """All parameters of Aug-PE."""


NAME = "aug-pe"
LABELS, VOCABULARY = "labels", "vocabulary"
TERMS_PER_RECORD = 10
"""The first distinct terms of a record that count for private keywords (S)."""
_LABEL_SHARE, _VOCABULARY_SHARE = 0.05, 0.2
"""Shares of the budget (of mu^2)."""


def votes_name(number: int) -> str:
    """Return the name of a round's charge; the first round is 1."""
    return f"votes-{number}"


def keywords_name(label: int) -> str:
    """Return the name of the strings in a Release that contain a label's public keywords."""
    return f"keywords-{label}"


def public_vocabulary(parameters: AugPEParameters) -> Vocabulary | None:
    """Return the vocabulary of private keywords, if asked for. Raises ConfigError if it is not declared public."""
    if not parameters.private_keywords:
        return None
    if parameters.vocabulary != BUILT_IN and not parameters.vocabulary_is_public:
        raise ConfigError(
            "A vocabulary of your own must not be made from the private data.",
            "If it is public, say so with --vocabulary-is-public.",
        )
    return load_vocabulary(parameters.vocabulary)


def planned_sums(
    parameters: AugPEParameters, budget: Budget | SecretBudget, facts: PublicFacts, *, vocabulary_size: int = 0
) -> tuple[Charge, ...]:
    """Return the charges, calibrated so that together they spend ``budget`` and no more."""
    sums: dict[str, tuple[QuerySpec, str]] = {}
    shares = list[float]()
    if parameters.label_sizes == NOISY:
        sums[LABELS] = planned_label_counts(facts.labels.size)
        shares.append(_LABEL_SHARE)
    if parameters.private_keywords:
        largest = f"the {parameters.top_terms} largest are keywords"
        why = f"noisy counts of {vocabulary_size} public terms; {largest}"
        sums[VOCABULARY] = TermCountsSpec(vocabulary_size, TERMS_PER_RECORD), why
        shares.append(_VOCABULARY_SHARE)
    votes = "noisy histogram of the records' votes for the candidates of this round"
    rounds = [votes_name(number + 1) for number in range(parameters.rounds)]
    sums |= dict.fromkeys(rounds, (VotesSpec(facts.unit, parameters.nearest), votes))
    shares += [(1 - sum(shares)) / parameters.rounds] * parameters.rounds
    return charges_of(sums, noise_multipliers(budget, shares), unit=facts.unit)


def make_plan(parameters: AugPEParameters, budget: Budget | SecretBudget, facts: PublicFacts) -> Plan:
    """Return the plan of a release."""
    vocabulary = public_vocabulary(parameters)
    vocabulary_size = 0 if vocabulary is None else len(vocabulary.terms)
    keywords_of_labels(parameters, EvolutionPrompts(), ())  # a file that cannot be read is known before any charge
    _ = declared_proportions(parameters.label_sizes, facts.labels.names)  # checks them
    candidates = candidates_per_round(parameters, facts.labels.size)
    if isinstance(budget, Budget) and budget.delta == 0:
        raise ConfigError("The noise of aug-pe is Gaussian: it needs a delta.", "Give a delta such as 1e-6.")
    if vocabulary is not None:
        require_enough_terms(parameters.top_terms, vocabulary_size)
    charges = planned_sums(parameters, budget, facts, vocabulary_size=vocabulary_size)
    return Plan(NAME, facts.unit, budget, charges, _forecast(parameters, charges[-1].mechanism, facts, candidates))


def _forecast(parameters: AugPEParameters, votes: Any, facts: PublicFacts, candidates: int) -> Facts:
    entries = [
        Fact("rounds", parameters.rounds, "rounds"),
        Fact("candidates_per_round", candidates, "candidates per round"),
        Fact("vote_noise", votes.noise_std, "noise on the votes for a candidate (std, votes)"),
    ]
    if facts.expected_records is not None:
        voters = "owners" if facts.unit.kind == "owner" else "records"
        ratio = facts.expected_records / candidates / votes.noise_std
        entries += [
            Fact("expected_records", facts.expected_records, f"{voters} (as declared)"),
            Fact("signal_to_noise", ratio, "signal to noise of a candidate with the mean number of votes"),
        ]
    return Facts(tuple(entries), verdict=verdict(parameters, votes, facts.labels.size, facts.expected_records))


def verdict(parameters: AugPEParameters, votes: NoisySum, labels: int, records: float | None) -> Verdict:
    """Return the verdict, by how many of a label's texts must be nearest to a candidate for their votes to exceed the
    noise."""
    texts = CLEAR * votes.noise_std * math.sqrt(parameters.nearest)
    return Verdict.of("topics", texts=texts, labels=labels, records=records)
