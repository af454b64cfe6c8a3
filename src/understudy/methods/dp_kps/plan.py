"""DP-KPS, before a private record is read: which noisy sums will be released, and what they buy.

1. vocabulary   noisy counts of all public terms; the top N are V~
2. density      per label, a noisy kernel density over V~ (independent mode)
   sequences-m  per label, one for every structure K_m (iterative mode)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from understudy.errors import ConfigError, PrivacyError
from understudy.methods.dp_kps.density import SequenceDensity, TermDensity, TermHistogram, TermRows
from understudy.methods.dp_kps.parameters import DPKPSParameters, needs_embeddings
from understudy.methods.dp_kps.sequences import structures
from understudy.models.machine import require_memory
from understudy.privacy.accountant import gaussian_split, pure_split
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import IntegerSum, NoisySum, noise_event, require_releasable
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.unit import Unit
from understudy.vocabulary.matcher import TermMatcher
from understudy.vocabulary.top_terms import TermCounts, noise_floor, require_enough_terms

NAME = "dp-kps"


def sketch_names(parameters: DPKPSParameters) -> dict[str, int]:
    """Names of the density releases and the terms a sequence in each, in order."""
    if parameters.mode == "independent":
        return {"density": 1}
    return {f"sequences-{m}": m for m in structures(parameters.length, parameters.ensemble)}


def noise_multipliers(parameters: DPKPSParameters, budget: Budget) -> dict[str, float]:
    """Of each release, calibrated so that together they spend ``budget`` and no more."""
    sketches = sketch_names(parameters)
    share = parameters.vocabulary_share
    shares = [share, *((1 - share) / len(sketches) for _ in sketches)]
    if parameters.noise == "gaussian":
        multipliers = gaussian_split(budget, shares)
    else:
        multipliers = tuple(1 / epsilon for epsilon in pure_split(budget, shares))
    return dict(zip(["vocabulary", *sketches], multipliers, strict=True))


def make_plan(
    parameters: DPKPSParameters,
    budget: Budget,
    *,
    unit: Unit,
    labels: int,
    vocabulary_size: int,
    expected_records: int | None = None,
) -> Plan:
    """The plan of a release.

    Args:
        labels: size of the declared label set (1 without labels).
        vocabulary_size: terms in the public vocabulary.
        expected_records: the corpus size as the user types it in, in owners where owners are protected; only for the
            forecast.

    Raises:
        ConfigError: if N is larger than the vocabulary, the sequences are longer than N or than what is read of a
            record, a sum is too large to be drawn, or its noise does not fit.
    """
    require_enough_terms(parameters.top_terms, vocabulary_size)
    if parameters.length > parameters.top_terms:
        raise ConfigError(
            f"Sequences of {parameters.length} distinct terms need at least as many in the vocabulary.",
            "Lower length or raise top_terms.",
        )
    if parameters.mode == "iterative" and parameters.length > parameters.terms_per_record:
        raise ConfigError(
            f"No record has sequences of {parameters.length} terms, since {parameters.terms_per_record} terms of a "
            "record count.",
            "Lower length or raise terms_per_record.",
        )
    if parameters.noise == "laplace":
        budget = Budget(budget.epsilon, 0)  # pure: no delta is booked
    multipliers = noise_multipliers(parameters, budget)
    _check_mechanisms(parameters, multipliers, labels, vocabulary_size)
    why = {
        "vocabulary": f"noisy counts of {vocabulary_size} public terms, of which the top {parameters.top_terms} stay"
    }
    for name, size in sketch_names(parameters).items():
        kind = "histogram" if parameters.bandwidth == 0 and parameters.mode == "independent" else "kernel density"
        why[name] = (
            f"noisy {kind} of {'terms' if size == 1 else f'sequences of {size} terms'} for each of {labels} label(s)"
        )
    charges = tuple(
        Charge(
            name,
            noise_event(parameters.noise, multiplier),
            {
                "noise": parameters.noise,
                "noise_multiplier": multiplier,
                "terms_per_record": parameters.terms_per_record,
            },
            why[name],
        )
        for name, multiplier in multipliers.items()
    )
    forecast = _forecast(parameters, multipliers, f"{unit.kind}s", labels, vocabulary_size, expected_records)
    return Plan(NAME, unit, budget, charges, forecast)


def require_room(parameters: DPKPSParameters, dimension: int) -> None:
    """See that the embedded vocabulary and its features can be stored and held, before anything is charged.

    Args:
        dimension: of an embedding (d).

    Raises:
        ConfigError: if they cannot.
    """
    require_releasable("embeddings", parameters.top_terms * dimension, cure="Lower top_terms.")
    require_memory_for_features(
        parameters,
        terms=parameters.top_terms,
        dimension=dimension,
        cure="Lower features, top_terms or, in iterative mode, length.",
    )


def require_memory_for_features(parameters: DPKPSParameters, *, terms: int, dimension: int, cure: str) -> None:
    """See that the random features of a vocabulary can be held.

    Raises:
        ConfigError: if they cannot; ``cure`` says what to do.
    """
    features = parameters.features
    phases = max(sketch_names(parameters).values()) * terms * features * _PHASE_BYTES
    kernel = 0 if parameters.mode == "iterative" else terms * features * _FEATURE_BYTES
    require_memory(
        2 * phases + kernel + features * dimension * _FREQUENCY_BYTES,
        what="The random features of the vocabulary",
        cure=cure,
    )


_PHASE_BYTES = 4
_FEATURE_BYTES = 2 * (4 + 8 + 8)  # cos and sin: as they are, as sums are made of them, and on their way there
_FREQUENCY_BYTES = 8 + 4


def _check_mechanisms(
    parameters: DPKPSParameters, multipliers: Mapping[str, float], labels: int, vocabulary_size: int
) -> None:
    """Build every mechanism without data, so that noise which does not fit its grid is refused before any charge."""
    rows = TermRows(TermMatcher(()), parameters.terms_per_record)
    noise = parameters.noise
    fewer, each = "top_terms", parameters.top_terms
    if needs_embeddings(parameters):
        fewer, each = "features", 2 * parameters.features
    for name in sketch_names(parameters):
        require_releasable(name, labels * each, cure=f"Lower {fewer}, or declare fewer labels.")
    try:
        NoisySum(
            TermCounts(rows.matcher, vocabulary_size, parameters.terms_per_record), noise, multipliers["vocabulary"]
        )
        for name, length in sketch_names(parameters).items():
            query: IntegerSum[Any] = TermHistogram(rows, labels, parameters.top_terms, noise)
            if parameters.mode == "iterative":
                query = SequenceDensity(rows, labels, np.zeros((length, 0, parameters.features), np.float32), name)
            elif needs_embeddings(parameters):
                query = TermDensity(rows, labels, np.zeros((0, 2 * parameters.features), np.int32), noise)
            NoisySum(query, noise, multipliers[name])
    except PrivacyError as error:
        raise ConfigError(
            f"This budget is out of range for these parameters. {error.problem}",
            "Choose an epsilon nearer to 1 (to see results without noise there is --insecure-no-noise).",
        ) from None


def _forecast(
    parameters: DPKPSParameters,
    multipliers: Mapping[str, float],
    units: str,
    labels: int,
    vocabulary_size: int,
    expected_records: int | None,
) -> dict[str, Any]:
    """Noise in units (records or owners: an averaged owner weighs as much as a record), and signal against it."""
    terms = parameters.terms_per_record
    counts = count_noise(parameters, multipliers["vocabulary"])
    sketches = {name: score_noise(parameters, multipliers[name]) for name in sketch_names(parameters)}
    floor = noise_floor(counts, vocabulary_size)
    forecast: dict[str, Any] = {
        f"vocabulary count noise (std, {units})": counts,
        f"vocabulary noise floor ({units} a term must be in)": floor,
        **{f"{name} score noise (std, {units})": noise for name, noise in sketches.items()},
    }
    if expected_records is not None:
        per_label = expected_records / labels
        forecast[f"{units} (as declared)"] = expected_records
        forecast[f"vocabulary: share of {units} a term must be in to stand out"] = floor / expected_records
        weakest = max(sketches.values())
        weight = terms if parameters.noise == "laplace" else math.sqrt(terms)  # a term is one of S in its record
        for share in (0.01, 0.05):
            signal = per_label * share / weight
            forecast[f"signal / noise of a term that {share:.0%} of a label's {units} hold"] = signal / weakest
    return forecast


def count_noise(parameters: DPKPSParameters, multiplier: float) -> float:
    """Standard deviation of the noise on one term's count, in records."""
    if parameters.noise == "gaussian":
        return multiplier * math.sqrt(parameters.terms_per_record)
    return multiplier * parameters.terms_per_record * math.sqrt(2)


def score_noise(parameters: DPKPSParameters, multiplier: float) -> float:
    """Standard deviation of the noise on one term's score, in records."""
    if parameters.noise == "gaussian":
        return multiplier
    if parameters.bandwidth == 0 and parameters.mode == "independent":
        return multiplier * math.sqrt(2)
    return multiplier * 2 * math.sqrt(parameters.features)
