"""Plan topics before a private record is read: the noisy sums, and how many topics the records can support.

discovered-terms   if terms in no list are searched for: noisy weighted counts, those above a threshold
votes        noisy histogram: each record's vote for the nearest of the public candidate terms in its text
sums-1..3    in every round, per topic the noisy number and sum of the embeddings of the records nearest to it
sizes        per topic the noisy number of records nearest to it

For topics that another Release found, only the sizes are released, for the whole budget. If many records are declared,
all sums are over one Poisson sample of them, under one charge, and only the sample's texts are embedded.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from understudy.base.display import plural
from understudy.base.errors import ConfigError, ReleaseError
from understudy.base.parameters import public_file
from understudy.methods.additions.guide.plan import (
    MOST_EMBEDDED,
    VECTOR_WEIGHT,
    EmbeddingSumsSpec,
    embedding_rate,
    sample_words,
)
from understudy.methods.additions.topics.centres import require_short
from understudy.methods.additions.topics.labelling import (
    BESIDE,
    CELL_ROUNDS,
    CELLS,
    CHARGES,
    MOST_TOPICS,
    SIZES,
    VOTES,
    TopicCount,
    sums_name,
)
from understudy.methods.facts import PublicFacts
from understudy.methods.shared.specs import LabelCountsSpec, VotesSpec
from understudy.methods.shared.vocabulary import VocabularyParameters, WordsParameters, public_vocabulary, split_off
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import LEAST_NOISE, QuerySpec
from understudy.privacy.plan import AddedCharges, Charge, Plan, charges_of, plan_beside
from understudy.privacy.sample import SubsampledSums
from understudy.privacy.unit import Unit
from understudy.privacy.verdict import Verdict
from understudy.release import Release
from understudy.release.reading import read_release
from understudy.text.vocabulary.terms import BUILT_IN

NAME = "topics"
CANDIDATES = 6000
"""Number of public terms that records vote for: the most frequent of the built-in vocabulary."""
_OF_CELLS = tuple(sums_name(number + 1) for number in range(CELL_ROUNDS))
SHARES = dict(zip(CHARGES, (0.2, 0.2, 0.2, 0.15, 0.15, 0.1), strict=True))
"""Of mu^2."""
LABELS_SHARE = 0.2
"""Share of the budget (of mu^2) for topics that are another method's labels."""
A_COUNT = f"a number from 1 to {MOST_TOPICS}, or auto"


class TopicsParameters(VocabularyParameters, WordsParameters):
    """All parameters of topics."""

    topics: Annotated[TopicCount | str, Field(union_mode="left_to_right")] = public_file(20)
    """Topics to look for (K): a public number, or ``auto``, as many as the records support, by public facts. Nearly
    equal topics are merged, so the result may have fewer. Or a Release of topics, to count the same ones in another
    table: the whole budget then goes to their sizes."""

    @field_validator("topics", mode="before")
    @classmethod
    def _in_range(cls, value: Any) -> Any:
        if isinstance(value, int | float) and value not in range(1, MOST_TOPICS + 1):
            raise ValueError(f"expected {A_COUNT}")
        return value


def listed_terms(parameters: VocabularyParameters) -> tuple[str, ...]:
    """Return the public terms that records vote for; empty if only the texts' own terms are used, because they are in
    another language than the built-in list. Raises ConfigError if the terms are not declared public."""
    if parameters.vocabulary == BUILT_IN and parameters.not_english and parameters.discover_terms:
        return ()
    return public_vocabulary(parameters).terms[:CANDIDATES]


def known_topics(file: str) -> tuple[Release, str]:
    """Load the Release whose topics are to be counted in another table. Return it and its SHA-256.

    Raises ReleaseError if it cannot be read, has no topics, or has centres that are not embeddings.
    """
    path = Path(file)
    content = path.read_bytes()
    known = read_release(path)
    if known.method != NAME or path.read_bytes() != content:
        raise ReleaseError("The Release of topics changed while it was read.", "Run the command again.")
    require_short(known.arrays["centres"])
    return known, hashlib.sha256(content).hexdigest()


def planned_sums(
    topics: int, multipliers: Sequence[float], unit: Unit, *, candidates: int | None = CANDIDATES, beside: str = ""
) -> tuple[Charge, ...]:
    """Return the charges of finding ``topics`` topics; ``multipliers`` is the noise of each, in order of
    :data:`SHARES`.

    Raises ConfigError if the noise does not fit its grid.
    """
    terms = f"{candidates} public terms" if candidates else "the listed or discovered terms"
    around = EmbeddingSumsSpec(topics), f"noisy sums of the texts' embeddings for each of {plural(topics, 'topic')}"
    cells = (
        EmbeddingSumsSpec(CELLS * topics),
        f"the same for each of up to {CELLS * topics} cells, which are parts of topics",
    )
    voting = f"noisy histogram of the {unit.kind}s' votes for the nearest of {terms}{' in a text' * bool(candidates)}"
    made: dict[str, tuple[QuerySpec, str]] = {
        **dict.fromkeys(SHARES, around),
        **dict.fromkeys(_OF_CELLS, cells),
        VOTES: (VotesSpec(unit, candidates=candidates), voting),
        SIZES: _sizes(topics, unit),
    }
    return charges_of({beside + name: made[name] for name in SHARES}, multipliers)


def _sizes(topics: int, unit: Unit) -> tuple[LabelCountsSpec, str]:
    return LabelCountsSpec(topics), f"noisy numbers of {unit.kind}s of {plural(topics, 'topic')}"


def make_plan(parameters: TopicsParameters, budget: Budget, facts: PublicFacts) -> Plan:
    """Return the plan of a release.

    Raises ConfigError if the budget has no delta, the table has labels, or the noise does not fit its grid.
    """
    if budget.delta == 0:
        raise ConfigError("The noise of topics is Gaussian: it needs a delta.", "Give a delta such as 1e-6.")
    if facts.labels.names:
        raise ConfigError("Topics can only be found without labels.", "Leave out --label and --labels.")
    topics, expected, unit = parameters.topics, facts.expected_records, facts.unit
    terms: Charge | None = None
    (whole,) = gaussian_split(budget, [1.0])
    rate, found = embedding_rate(expected, unit) if whole >= LEAST_NOISE else 1.0, None
    if isinstance(topics, str):
        topics = len(known_topics(topics)[0].arrays["centres"])
        charges = charges_of({SIZES: _sizes(topics, unit)}, (whole,))
    else:
        shares, candidates = list(SHARES.values()), len(listed_terms(parameters)) or None
        multipliers: Sequence[float] = gaussian_split(budget, shares)
        if parameters.discover_terms:
            (terms, multipliers), candidates = split_off(budget, parameters.discover_terms, shares), None
        charges = planned_sums(topics, multipliers, unit, candidates=candidates)
        multiplier = multipliers[1]
        while rate < 1 and verdict(multiplier, topics, rate * (expected or 0)).level != "good":
            rate *= 2
        found = verdict(multiplier, topics, expected and rate * expected)
    forecast = replace(_forecast(topics, charges, unit, rate), verdict=found)
    if rate < 1:
        sums: dict[str, Any] = {each.name: each.mechanism for each in charges}
        why = f"{', '.join(sums)}: noisy, of {plural(topics, 'topic')}, all over one Poisson sample of the {unit.kind}s"
        queries = {each.name: each.query for each in charges}
        charges = (Charge(NAME, SubsampledSums(rate, tuple(sums.items())), why, queries),)
    if terms:
        charges = (terms, *charges)
    return Plan(NAME, unit, budget, charges, forecast)


def sample_of(charges: Iterable[Charge]) -> SubsampledSums | None:
    """Return the mechanism of sums over a sample; None if all records are read."""
    return next((each.mechanism for each in charges if isinstance(each.mechanism, SubsampledSums)), None)


def line_on_sample(plan: Plan, expected_records: int | None) -> str:
    """Return a line for the user on which texts are embedded, and why; empty if no line is needed."""
    sampled = sample_of(plan.charges)
    if plan.method != NAME or (sampled is None and expected_records):
        return ""
    if sampled is None:
        return f"All texts are embedded (--expected-records lets tables of more than {MOST_EMBEDDED:,} be sampled)."
    size = f" ({sample_words(sampled.rate, expected_records, plan.unit)})" if expected_records else ""
    return (
        f"Texts embedded: those of a random sample of the {plan.unit.kind}s at rate {sampled.rate:g}{size}, since all "
        "would take hours, and the sample is enough to find topics; sizes are scaled up."
    )


def plan_with_topics(plan_method: Callable[[Budget], Plan], budget: Any, *, topics: int, unit: Unit) -> Plan:
    """Plan a method whose labels are topics. The topics are found first, with their share of the budget.

    Raises ConfigError if the budget protects secrets or has no delta, or nothing is left for the method.
    """

    def plan_topics(multipliers: Sequence[float]) -> AddedCharges:
        charges = planned_sums(topics, multipliers, unit, beside=BESIDE)
        return AddedCharges(charges, _forecast(topics, charges, unit))

    shares = [LABELS_SHARE * each for each in SHARES.values()]
    plan = plan_beside(plan_method, budget, plan_topics, shares=shares, what="topics")
    rest = len(plan.charges) - len(SHARES)
    return replace(plan, charges=(*plan.charges[rest:], *plan.charges[:rest]))


def topics_that_pay(budget: Budget, *, share: float, records: float) -> int:
    """Return how many topics the records support above the noise, given ``share`` of mu^2; 0 if fewer than two."""
    each = share * SHARES[sums_name(1)]
    multiplier = gaussian_split(budget, (each, 1 - each))[0]
    return max((count for count in _COUNTS if verdict(multiplier, count, records).level == "good"), default=0)


SPARE = 2.0
"""Factor on the records that a topic needs if it is a label: the method's own sums need some too."""
_COUNTS = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50)
"""Few values, so that a Release hardly reveals the declared number of records, in case it was counted."""


def _forecast(topics: int, charges: Sequence[Charge], unit: Unit, rate: float = 1.0) -> Facts:
    sizes: Any = charges[-1].mechanism
    noise = Fact("size_noise", sizes.noise_std / rate, f"noise on the size of a topic (std, {unit.kind}s)")
    sample = [Fact("topics_rate", rate, "rate of the sample that is embedded")] if rate < 1 else []
    return Facts((Fact("topics", topics, "topics"), noise, *sample))


def verdict(multiplier: float, topics: int, records: float | None) -> Verdict:
    """Return the verdict on topics, by the noise on a topic's mean compared with the distance between topics."""
    return Verdict.of("labels", texts=multiplier / VECTOR_WEIGHT * _NOISE, labels=topics, records=records)


_NOISE = math.sqrt(60) / 0.45
"""Root of the number of directions in which texts differ, over two topics' distance: about the built-in embedder's."""
