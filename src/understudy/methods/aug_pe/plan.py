"""Aug-PE, before a private record is read: which noisy histograms will be made, and what they buy.

labels       noisy label counts, if asked for
vocabulary   noisy counts of public terms, if keywords are to come from the data (AugPE+V~)
votes-1..T   in every round, a noisy histogram of the private records' votes
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.errors import ConfigError, PrivacyError
from understudy.evolution.loop import candidates_per_round, require_few
from understudy.methods.aug_pe.parameters import AugPEParameters
from understudy.methods.aug_pe.sizes import NOISY, LabelCounts, declared_proportions
from understudy.methods.aug_pe.votes import VoteHistogram
from understudy.methods.base import PublicFacts
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.events import GaussianEvent
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import GroupSum, IntegerSum, NoisySum
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.secrets.budget import SecretBudget
from understudy.privacy.secrets.split import secret_split
from understudy.privacy.unit import Unit
from understudy.vocabulary.matcher import TermMatcher
from understudy.vocabulary.top_terms import TermCounts, require_enough_terms

NAME = "aug-pe"
LABELS, VOCABULARY = "labels", "vocabulary"


def votes_name(number: int) -> str:
    """The charge of a round, the first being 1."""
    return f"votes-{number}"


def keywords_name(label: int) -> str:
    """Where a Release holds a label's public keywords."""
    return f"keywords-{label}"


def noise_multipliers(parameters: AugPEParameters, budget: Budget | SecretBudget) -> dict[str, float]:
    """Of each release, in sensitivities of one unit, calibrated so that together they spend ``budget`` and no more."""
    extra = {}
    if parameters.label_sizes == NOISY:
        extra[LABELS] = parameters.label_share
    if parameters.private_keywords:
        extra[VOCABULARY] = parameters.vocabulary_share
    left = 1 - sum(extra.values())
    if left <= 0:
        raise ConfigError("The shares leave nothing for the votes.", "Lower label_share or vocabulary_share.")
    names = [*extra, *(votes_name(number + 1) for number in range(parameters.rounds))]
    shares = [*extra.values(), *[left / parameters.rounds] * parameters.rounds]
    split = secret_split(budget, shares) if isinstance(budget, SecretBudget) else gaussian_split(budget, shares)
    return dict(zip(names, split, strict=True))


def for_unit(query: IntegerSum[Any], unit: Unit) -> IntegerSum[Any]:
    """``query`` with the sensitivity that this unit has: a secret is up to m records."""
    return GroupSum(query, unit.max_records) if unit.kind == "secret" else query


def make_plan(
    parameters: AugPEParameters, budget: Budget | SecretBudget, facts: PublicFacts, *, vocabulary_size: int | None
) -> Plan:
    """The plan of a release.

    Args:
        vocabulary_size: terms in the public vocabulary, None where none is used.

    Raises:
        ConfigError: if the label proportions do not fit the labels, there are too many candidates, the shares leave
            nothing, N is larger than the vocabulary, or the noise does not fit its grid.
    """
    declared_proportions(parameters.label_sizes, facts.label_names)
    require_few(parameters, facts.labels)
    if isinstance(budget, Budget) and budget.delta == 0:
        raise ConfigError("The noise of aug-pe is Gaussian: it needs a delta.", "Give a delta such as 1e-6.")
    if vocabulary_size is not None:
        require_enough_terms(parameters.top_terms, vocabulary_size)
    multipliers = noise_multipliers(parameters, budget)
    _check_mechanisms(parameters, multipliers, facts)
    why = {
        LABELS: f"noisy counts of the records of {facts.labels} label(s)",
        VOCABULARY: f"noisy counts of {vocabulary_size} public terms; the {parameters.top_terms} largest are keywords",
    }
    nearest = {"nearest": parameters.nearest}
    charges = tuple(
        Charge(
            name,
            GaussianEvent(multiplier),
            {"noise": "gaussian", "noise_multiplier": multiplier, **({} if name in why else nearest)},
            why.get(name, "noisy histogram of the records' votes for the candidates of this round"),
        )
        for name, multiplier in multipliers.items()
    )
    return Plan(NAME, facts.unit, budget, charges, _forecast(parameters, multipliers, facts))


def _check_mechanisms(parameters: AugPEParameters, multipliers: Mapping[str, float], facts: PublicFacts) -> None:
    """Build every mechanism without data, so that noise which does not fit its grid is refused before any charge."""
    queries: dict[str, IntegerSum[Any]] = {
        LABELS: LabelCounts(facts.labels),
        VOCABULARY: TermCounts(TermMatcher(()), 0, parameters.terms_per_record),
    }
    try:
        for name, multiplier in multipliers.items():
            query = queries.get(name) or VoteHistogram.of_size(0, name=name)
            NoisySum(for_unit(query, facts.unit), "gaussian", multiplier)
    except PrivacyError as error:
        raise ConfigError(
            f"This budget is out of range for these parameters. {error.problem}",
            "Choose an epsilon nearer to 1 (to see results without noise there is --insecure-no-noise).",
        ) from None


def vote_noise(multiplier: float, unit: Unit) -> float:
    """Standard deviation of the noise on a candidate's votes, in votes of one record (or owner)."""
    return multiplier * (unit.max_records if unit.kind == "secret" else 1)


def _forecast(parameters: AugPEParameters, multipliers: Mapping[str, float], facts: PublicFacts) -> dict[str, Any]:
    noise = vote_noise(multipliers[votes_name(1)], facts.unit)
    work = candidates_per_round(parameters, facts.labels)
    candidates = max(work.candidates)
    forecast: dict[str, Any] = {
        "rounds": parameters.rounds,
        "candidates a round": candidates,
        "noise on the votes of a candidate (std, votes)": noise,
    }
    if facts.expected_records is not None:
        voters = f"{'owner' if facts.unit.kind == 'owner' else 'record'}s"
        mean = facts.expected_records / candidates
        forecast[f"{voters} (as declared)"] = facts.expected_records
        forecast["signal / noise of a candidate with the mean number of votes"] = mean / noise
    return forecast
