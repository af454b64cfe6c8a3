"""DP-KPS, before a private record is read: which noisy sums will be released, and how good they will be.

1. vocabulary   noisy weighted counts of all public terms; those likely in many records (or the top N) form V~
   discovered-terms   noisy weighted counts of terms that no list has; those above a threshold join V~
2. density      per label, noisy weighted counts of V~; if the table has typed columns, also per cell of each
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import Field

from understudy.base.display import plural
from understudy.base.errors import ConfigError
from understudy.base.parameters import Ablation, CommaSeparated
from understudy.methods.additions.columns.variables import ALL, NONE
from understudy.methods.facts import PublicFacts
from understudy.methods.shared.specs import TermHistogramSpec
from understudy.methods.shared.vocabulary import (
    DISCOVERED,
    VocabularyParameters,
    WordsParameters,
    public_vocabulary,
    split_off,
)
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import COUNT_GRID, QuerySpec, require_releasable
from understudy.privacy.noise import NoiseKind
from understudy.privacy.plan import Charge, Plan, charges_of, noise_multipliers
from understudy.privacy.verdict import CLEAR, Verdict
from understudy.schema.columns import Column
from understudy.text.vocabulary.shrinkage import FEWEST_TERMS, MOST_TERMS, KnownNoise, noise_floor, require_enough_terms


class SequenceParameters(WordsParameters):
    """How keyphrase sequences are sampled from a Release: post-processing, free; may change at every ``generate``."""

    length: int = Field(6, ge=1, le=100)
    """Terms of the longest sequences (L). A label with fewer terms above the noise has shorter ones."""
    shortest: Ablation[int] = Field(3, ge=1, le=100)
    """Terms of the shortest sequences, if length is not less: lengths are uniform between the two."""
    contrast: Ablation[float] = Field(1.0, ge=0, le=100)
    """How strongly terms that other labels share are avoided (gamma). 0: not at all."""


class ReleaseParameters(VocabularyParameters):
    """What DP-KPS releases, and how its budget is divided."""

    noise: Ablation[NoiseKind] = "gaussian"
    """``gaussian``: (epsilon, delta)-DP. ``laplace``: pure DP, as published; the default where delta is 0."""
    top_terms: int | None = Field(None, ge=1)
    """Size of the privatised vocabulary (N). Default: twice as many as are likely to be real, given the noise (300 to
    5000)."""
    terms_per_record: Ablation[int] = Field(10, ge=1, le=100)
    """Contribution bound: the first distinct terms of a record that count (S)."""
    phrase_columns: Ablation[CommaSeparated] = (ALL,)
    """Typed columns that phrases depend on, besides the label: ``all``, ``none``, or names."""


class DPKPSParameters(ReleaseParameters, SequenceParameters):
    """All parameters of DP-KPS."""


NAME = "dp-kps"
VOCABULARY, DENSITY, COLUMN_DENSITY = "vocabulary", "density", "column-density"
_VOCABULARY_SHARE = 0.2
"""Share of the budget (of mu^2 or of epsilon)."""
MOST_DISCOVERED = 5000
"""Largest number of discovered terms that join the vocabulary: those that most units use."""
_COLUMNS_PART = 0.5
"""Share of the density's budget for all columns together; the label gets the rest."""


def phrase_columns(parameters: ReleaseParameters, columns: Sequence[Column]) -> tuple[int, ...]:
    """Return the positions, among the typed columns, of those that phrases depend on. Raises ConfigError if a name is
    not a typed column, or is repeated."""
    asked, places = parameters.phrase_columns, {column.name: place for place, column in enumerate(columns)}
    if asked == (NONE,):
        return ()
    if asked == (ALL,):
        return tuple(places.values())
    for name in asked:
        if name not in places:
            named = f"Name some of these (phrase_columns): {', '.join(places)}; or all, or none."
            raise ConfigError(
                f"Phrases cannot depend on {name!r:.60}, which is not a typed column.",
                named if places else "Declare typed columns with --columns, or leave phrase_columns out.",
            )
    if len(set(asked)) < len(asked):
        raise ConfigError("A column is named twice (phrase_columns).", "Name each once.")
    return tuple(sorted(places[name] for name in asked))


def fewest_terms(parameters: DPKPSParameters) -> int:
    """Return the number of terms in the smallest privatised vocabulary, which bounds the length of a sequence."""
    return parameters.top_terms or max(FEWEST_TERMS, parameters.length)


def most_terms(parameters: DPKPSParameters, vocabulary_size: int) -> int:
    """Return the number of terms in the largest possible privatised vocabulary."""
    listed = parameters.top_terms or min(max(MOST_TERMS, fewest_terms(parameters)), vocabulary_size)
    return listed + (MOST_DISCOVERED if discovery_share(parameters) else 0)


def discovery_share(parameters: ReleaseParameters) -> float:
    """Return the share of the budget (of mu^2) for discovering terms. Raises ConfigError if it is above 0 and the noise
    is Laplace (pure)."""
    share = parameters.discover_terms or 0.0
    if share and parameters.noise == "laplace":
        raise ConfigError(
            "Discovering terms needs a delta, but Laplace noise promises pure differential privacy, without one.",
            "Leave --discover-terms out, or choose gaussian noise.",
        )
    return share


def planned_sums(
    parameters: DPKPSParameters, budget: Budget, *, labels: int, vocabulary_size: int, columns: Sequence[Column] = ()
) -> tuple[Charge, ...]:
    """Return the charges, calibrated so that together they spend ``budget`` and no more.

    Args:
        columns: the typed columns that phrases depend on.
    """
    share, part = _VOCABULARY_SHARE, _COLUMNS_PART if columns else 0.0
    shares = [share, (1 - share) * (1 - part), *([(1 - share) * part] if columns else [])]
    noise, cells = parameters.noise, tuple(column.size for column in columns)
    multipliers: Sequence[float]
    found: tuple[Charge, ...] = ()
    if discovered := discovery_share(parameters):
        terms_found, multipliers = split_off(budget, discovered, shares)
        found = (terms_found,)
    else:
        multipliers = noise_multipliers(budget, shares, noise)
    terms, most = None if discovered else parameters.top_terms, most_terms(parameters, vocabulary_size)
    require_releasable((labels, most), cure="Lower top_terms, or declare fewer labels.")
    require_releasable((sum(cells), most), cure="Lower top_terms, or name fewer phrase_columns.")
    stay = f"the top {parameters.top_terms}" if parameters.top_terms else "the likeliest"
    named = ", ".join(column.name for column in columns)
    weights = partial(TermHistogramSpec, noise, parameters.terms_per_record)
    sums: dict[str, tuple[QuerySpec, str]] = {
        VOCABULARY: (
            weights(vocabulary_size),
            f"noisy weighted counts of {vocabulary_size} public terms, of which {stay} stay",
        ),
        DENSITY: (weights(terms, (labels,)), f"noisy histogram of terms for each of {plural(labels, 'label')}"),
    }
    if columns:
        sums[COLUMN_DENSITY] = weights(terms, cells), f"noisy histogram of terms for each value of {named}"
    first, *others = charges_of(sums, multipliers, noise=noise)
    return (first, *found, *others)


def make_plan(
    parameters: DPKPSParameters, budget: Budget, facts: PublicFacts, *, vocabulary_size: int | None = None
) -> Plan:
    """Return the plan of a release over a public vocabulary of this size; by default that of the parameters."""
    vocabulary_size = vocabulary_size or len(public_vocabulary(parameters).terms)
    if parameters.top_terms is not None:
        require_enough_terms(parameters.top_terms, vocabulary_size)
    if parameters.length > most_terms(parameters, vocabulary_size):
        raise ConfigError(
            f"Sequences of {parameters.length} distinct terms need at least as many in the vocabulary.",
            "Lower length or raise top_terms." if parameters.top_terms else "Lower length or give a larger vocabulary.",
        )
    if parameters.noise == "laplace":
        budget = Budget(budget.epsilon, 0)  # pure: no delta is charged
    chosen = [facts.columns[place] for place in phrase_columns(parameters, facts.columns)]
    charges = planned_sums(
        parameters, budget, labels=facts.labels.size, vocabulary_size=vocabulary_size, columns=chosen
    )
    return Plan(NAME, facts.unit, budget, charges, _forecast(parameters, charges, facts, vocabulary_size, chosen))


def _forecast(
    parameters: DPKPSParameters,
    charges: Sequence[Charge],
    facts: PublicFacts,
    vocabulary_size: int,
    chosen: Sequence[Column],
) -> Facts:
    """Return noise in units (records or owners: an averaged owner weighs as much as a record), and signal to noise.

    A unit's weight of 1 is divided among its terms that count; here among S of them, as in a longer record.
    """
    units, warnings = f"{facts.unit.kind}s", list[str]()
    sums: dict[str, Any] = {charge.name: charge.mechanism for charge in charges}
    counts, noise = sums[VOCABULARY].noise_std, score_noise(parameters, sums[DENSITY].noise_multiplier)
    floor = noise_floor(counts, vocabulary_size)
    entries = [
        Fact("vocabulary_count_noise", counts, f"vocabulary weighted count noise (std, {units})"),
        Fact("vocabulary_noise_floor", floor, f"smallest number of {units} whose only term can be seen"),
        Fact("density_score_noise", noise, f"density score noise (std, {units})"),
    ]
    if DISCOVERED in sums:
        threshold = sums[DISCOVERED].threshold / COUNT_GRID
        entries.append(Fact("discovery_threshold", threshold, _DISCOVERY.format(units=units)))
    if COLUMN_DENSITY in sums:
        title = f"noise on a term's score by a column (std, {units})"
        entries.append(Fact("column_density_score_noise", sums[COLUMN_DENSITY].noise_std, title))
    if facts.expected_records is not None:
        per_label = facts.expected_records / facts.labels.size
        weight = records_per_term(parameters)
        share = RELEASED[parameters.noise] * counts * weight / facts.expected_records
        entries += [
            Fact("expected_records", facts.expected_records, f"{units} (as declared)"),
            Fact("vocabulary_share_to_stand_out", share, f"share of {units} that must use a term for it to be seen"),
        ]
        for percent in (1, 5):
            ratio = per_label * percent / 100 / weight / noise
            title = f"signal to noise of a term that {percent}% of a label's {units} use"
            entries.append(Fact(f"signal_to_noise_at_{percent}_percent", ratio, title))
        if chosen:
            seen = facts.expected_records * _COMMON / weight / sums[COLUMN_DENSITY].noise_std
            if drowned := [column.name for column in chosen if seen < column.size]:
                warnings.append(_DROWNED.format(units=units, names=", ".join(drowned), share=_COMMON))
    judged = verdict(parameters, noise, counts, labels=facts.labels.size, records=facts.expected_records, units=units)
    return Facts(tuple(entries), tuple(warnings), judged)


def verdict(
    parameters: DPKPSParameters, noise: float, counts: float, *, labels: int, records: float | None, units: str
) -> Verdict:
    """Return the verdict, given the standard deviations of a score's ``noise`` under a label and of that on ``counts``
    in all texts, in units of weight 1.

    A term in the share s of a label's n records has the score n s w, where w is what a record gives to each of its
    terms. It is above the noise if that is CLEAR standard deviations. Records are assumed to have S terms.

    Words are lost by their counts, which have the smaller part of the budget: a word of one label needs RELEASED
    standard deviations. With ``top_terms`` it depends on the other terms, too, so that no number is named.
    """
    texts = CLEAR * noise * records_per_term(parameters)
    found = Verdict.of("topics", texts=texts, labels=labels, records=records)
    if parameters.top_terms is not None:
        return found
    least = math.ceil(RELEASED[parameters.noise] * counts * records_per_term(parameters))
    who = f"{least:,} {units}{' of a label or topic' if labels > 1 else ''}"
    first = f"first {parameters.terms_per_record} vocabulary terms"
    among = f"the {first} of each text" if units == "owners" else f"their {first}"
    return replace(found, survives=f"words that at least {who} have among {among}")


RELEASED: Mapping[NoiseKind, float] = {"gaussian": 3.5, "laplace": 5.0}
"""Standard deviations of its count at which at least nine in ten terms are released and sure (benchmarks/README.md)."""


def records_per_term(parameters: DPKPSParameters) -> float:
    """Return 1/w: the number of records, each with S terms, that together give one term a weight of 1."""
    terms = parameters.terms_per_record
    return terms if parameters.noise == "laplace" else math.sqrt(terms)


_DISCOVERY = "threshold of a term that is in no list (weighted count, {units})"
_COMMON = 0.05
_DROWNED = (
    "Phrases by {names} would be mostly noise: a term in {share:.0%} of the {units} with a given value counts for less "
    "than the noise. These columns take budget from the label's phrases. Name only those that matter with "
    "phrase_columns, or none."
)


def known_noise(parameters: DPKPSParameters, multiplier: float | None, *, columns: int = 1) -> KnownNoise:
    """Return the noise on one term's score under a label, or, given the number of ``columns``, under a cell of one of
    them. None without a ``multiplier`` above 0."""
    blocks = math.sqrt(columns) if parameters.noise == "gaussian" else columns
    return KnownNoise(parameters.noise, score_noise(parameters, multiplier or 0.0) * blocks)


def score_noise(parameters: DPKPSParameters, multiplier: float) -> float:
    """Return the standard deviation of the noise on one term's score, in records."""
    return multiplier * (1.0 if parameters.noise == "gaussian" else math.sqrt(2))
