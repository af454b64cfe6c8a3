"""Few-shot, before a private record is read: what the noisy tokens cost, and how much noise the budget needs.

tokens       up to T noisy tokens of every label, each from a Poisson sample of its own; a record lies in one label, so
             one charge pays for all labels
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any

from understudy.errors import ConfigError, PrivacyError
from understudy.methods.base import PublicFacts
from understudy.methods.few_shot.parameters import FewShotParameters
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.subsampled import (
    SubsampledTokens,
    SubsetNoise,
    subsampled_multiplier,
    votes_epsilon,
)
from understudy.privacy.unit import Unit

NAME = "few-shot"
TOKENS = "tokens"
_MOST_NOISE = 0.5
_DROWNED = (
    "few tokens stand out above so much noise, and exemplars will be noise: spend more epsilon, declare a lower "
    "sampling rate (which needs a larger corpus), ask more subsets, or pay for fewer tokens"
)
SCHEMA = "json schema"
"""Where a Release holds the public JSON schema of its records."""


def part_name(label: int, number: int) -> str:
    """The part of the charge that an exemplar is: ``number`` counts those of a label, from 0."""
    return f"{TOKENS}/{label}/{number}"


def one_record_each(unit: Unit) -> Unit:
    """The unit with one record of each owner in use: a drawn owner shows one record, in one subset of one label."""
    return replace(unit, max_records=1) if unit.kind == "owner" else unit


def make_plan(parameters: FewShotParameters, budget: Budget, facts: PublicFacts) -> Plan:
    """The plan of a release. It depends on neither ``exemplars`` nor anything else that may change later.

    Raises:
        ConfigError: if the sampling rate is not declared, or the budget is out of range.
    """
    if parameters.sampling_rate is None and facts.expected_records is not None:
        rate = fitting_rate(parameters, facts.expected_records, facts.labels)
        raise ConfigError(
            "The sampling rate is missing.",
            f"For the declared corpus size --sampling-rate {rate:.3g} is recommended: subsets then hold as many "
            "records as they show, on average.",
        )
    mechanism = mechanism_of(parameters, budget)
    what = "Gaussian noise on the probabilities" if mechanism.noise == "gaussian" else "a noisy vote"
    charge = Charge(
        TOKENS,
        mechanism.event,
        {
            "noise": mechanism.noise,
            "noise_multiplier": mechanism.noise_multiplier,
            "subsets": mechanism.subsets,
            "sampling rate": mechanism.rate,
            "tokens": mechanism.tokens,
        },
        f"up to {mechanism.tokens} tokens of each label, by {what} of {mechanism.subsets} subsets of a fresh sample",
    )
    forecast = _forecast(parameters, mechanism, facts)
    return Plan(NAME, one_record_each(facts.unit), budget, (charge,), forecast)


def mechanism_of(parameters: FewShotParameters, budget: Budget) -> SubsampledTokens:
    """The mechanism, with the least noise that keeps within ``budget``.

    Raises:
        ConfigError: if the sampling rate is not declared, or the budget is out of range.
    """
    rate, tokens = parameters.declared_rate, parameters.tokens
    multiplier = _multiplier(parameters.noise, budget, rate, tokens)
    try:
        return SubsampledTokens(TOKENS, parameters.noise, parameters.subsets, multiplier, rate, tokens)
    except PrivacyError as error:
        raise ConfigError(
            f"This budget is out of range for these parameters. {error.problem}",
            "Choose an epsilon nearer to 1 (to see results without noise there is --insecure-no-noise).",
        ) from None


@lru_cache(maxsize=16)
def _multiplier(noise: SubsetNoise, budget: Budget, rate: float, tokens: int) -> float:
    """Some seconds of work, which a run asks for more than once."""
    if noise == "gaussian":
        return subsampled_multiplier(budget, rate=rate, tokens=tokens)
    return votes_epsilon(budget, rate=rate, tokens=tokens)


def planned_mechanism(parameters: FewShotParameters, plan: Plan) -> SubsampledTokens:
    """The mechanism whose charge the plan holds."""
    (charge,) = plan.charges
    multiplier = float(charge.parameters["noise_multiplier"])
    return SubsampledTokens(
        TOKENS, parameters.noise, parameters.subsets, multiplier, parameters.declared_rate, parameters.tokens
    )


def fitting_rate(parameters: FewShotParameters, expected_records: int, labels: int) -> float:
    """The rate at which a subset holds ``examples_per_subset`` records on average: M N labels / records, 1 at most."""
    return min(1.0, parameters.subsets * parameters.examples_per_subset * labels / expected_records)


def _forecast(parameters: FewShotParameters, mechanism: SubsampledTokens, facts: PublicFacts) -> dict[str, Any]:
    enough = parameters.tokens // parameters.exemplar_tokens
    forecast: dict[str, Any] = {
        "exemplars of each label": parameters.exemplars,
        f"exemplars that {parameters.tokens} tokens suffice for, at least": enough,
        **_noise(parameters, mechanism),
        **_work(parameters, facts.labels),
    }
    if facts.expected_records is not None:
        sample = mechanism.rate * facts.expected_records / facts.labels
        unit = "owners" if facts.unit.kind == "owner" else "records"
        forecast[f"{unit} (as declared)"] = facts.expected_records
        forecast[f"{unit} drawn for a token, on average"] = sample
        forecast[f"{unit} in a subset, on average (it shows {parameters.examples_per_subset} at most)"] = (
            sample / parameters.subsets
        )
        forecast["sampling rate at which a subset has as many as it shows"] = fitting_rate(
            parameters, facts.expected_records, facts.labels
        )
    return forecast


def _noise(parameters: FewShotParameters, mechanism: SubsampledTokens) -> dict[str, Any]:
    """How much of what the subsets say is left, in the units of their mean."""
    if mechanism.noise == "gaussian":
        std = math.sqrt(2) * mechanism.noise_multiplier / mechanism.subsets
        largest = _largest(parameters.candidates) * std
        noise = {
            "noise multiplier": mechanism.noise_multiplier,
            "noise on a token's mean probability (std)": std,
            f"largest noise among {parameters.candidates} candidates, about": largest,
        }
        return {**noise, **({"warning": _DROWNED} if largest >= _MOST_NOISE else {})}
    votes = 2 * math.log(parameters.candidates) / mechanism.noise_multiplier
    noise = {
        "epsilon of one choice, on its sample": mechanism.noise_multiplier,
        f"votes (of {mechanism.subsets}) that stand out among {parameters.candidates} candidates, about": votes,
    }
    return {**noise, **({"warning": _DROWNED} if votes > mechanism.subsets else {})}


def _work(parameters: FewShotParameters, labels: int) -> dict[str, Any]:
    """What the private model has to read: for each token one prompt a subset, and one without private text."""
    prompts = labels * parameters.tokens * (parameters.subsets + 1)
    room = parameters.examples_per_subset * parameters.private_text_tokens + parameters.exemplar_tokens
    return {
        "private model: prompts that it reads, at most": prompts,
        "private model: tokens that it reads in them, about": prompts * room,
    }


def _largest(count: int) -> float:
    """The largest of so many standard normal draws, on average, about (Blom 1958)."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))
