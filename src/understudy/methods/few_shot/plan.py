"""Few-shot, before a private record is read: what the noisy tokens cost, and how much noise the budget needs.

tokens       up to T noisy tokens of every label, each from its own, fresh Poisson sample; a record has one label, so
             one charge pays for all labels
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import Literal

from pydantic import Field

from understudy.base.errors import ConfigError
from understudy.base.parameters import Parameters
from understudy.methods.facts import PublicFacts
from understudy.methods.shared.decoding.prompting import TextParameters
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.subsampled import SubsampledTokens, SubsetNoise, subsampled_multiplier, votes_epsilon
from understudy.privacy.unit import Unit
from understudy.privacy.verdict import Verdict

LEAST_RATE = 1e-9


class StoppingParameters(Parameters):
    """When a release stops before its tokens are used up."""

    exemplars: int = Field(4, ge=1, le=1000)
    """Exemplars of each label; unused tokens stay paid for (use ``release --continue`` with more exemplars)."""


class FewShotParameters(TextParameters, StoppingParameters):
    """All parameters of few-shot."""

    sampling_rate: float | None = Field(None, ge=LEAST_RATE, le=1)
    """Probability with which each record is sampled for a token (q); public, never computed from the private data.
    Default: subsets of ``expected_records`` have, on average, as many records as they show."""
    subsets: int = Field(10, ge=1, le=500)
    """Subsets among which the sampled records are divided; each has its own prompt (M)."""
    examples_per_subset: int = Field(4, ge=1, le=100)
    """Largest number of private records in a subset's prompt (N)."""
    tokens: int = Field(400, ge=1, le=1_000_000)
    """Noisy tokens paid for per label: enough for at least tokens / exemplar_tokens exemplars."""
    exemplar_tokens: int = Field(100, ge=1, le=10_000)
    """Largest number of tokens in an exemplar."""
    candidates: int = Field(100, ge=2, le=10_000)
    """Each token is one of the K likeliest without private records (K)."""
    noise: SubsetNoise = "gaussian"
    """``gaussian`` on the mean probabilities, or ``votes``: each subset votes for a token, the exponential mechanism
    chooses."""
    unfinished: Literal["drop", "keep"] = "keep"
    """What to do with an exemplar that did not end within its tokens."""

    @property
    def declared_rate(self) -> float:
        """Return the sampling rate q. Raises ConfigError if it is not declared."""
        if self.sampling_rate is None:
            raise ConfigError(
                "The sampling rate is missing.",
                "Declare the size of the corpus with --expected-records N, from which it follows, or --sampling-rate Q "
                "itself: from what you know of the corpus and not from counting it.",
            )
        return self.sampling_rate


NAME = "few-shot"
TOKENS = "tokens"
EXEMPLARS_PER_PROMPT = 4
"""Largest number of exemplars in a prompt of ``generate``."""


def one_record_each(unit: Unit) -> Unit:
    """Return the unit with one used record per owner, because a sampled owner shows one record in one subset of one
    label."""
    return replace(unit, max_records=1) if unit.kind == "owner" else unit


def make_plan(parameters: FewShotParameters, budget: Budget, facts: PublicFacts) -> Plan:
    """Return the plan of a release. It depends neither on ``exemplars`` nor on anything else that may change later."""
    mechanism = mechanism_of(parameters, budget)
    what = "Gaussian noise on the probabilities" if mechanism.noise == "gaussian" else "a noisy vote"
    why = f"up to {mechanism.tokens} tokens of each label, by {what} of {mechanism.subsets} subsets of a fresh sample"
    forecast = _forecast(parameters, mechanism, facts)
    return Plan(NAME, one_record_each(facts.unit), budget, (Charge(TOKENS, mechanism, why),), forecast)


def mechanism_of(parameters: FewShotParameters, budget: Budget) -> SubsampledTokens:
    """Return the mechanism with the least noise that keeps within ``budget``."""
    rate, tokens = parameters.declared_rate, parameters.tokens
    multiplier = _least_noise[parameters.noise](budget, rate=rate, count=tokens)
    return SubsampledTokens(parameters.noise, parameters.subsets, multiplier, rate, tokens)


_least_noise = {"gaussian": subsampled_multiplier, "votes": votes_epsilon}


def fitting_rate(parameters: FewShotParameters, expected_records: int, labels: int) -> float:
    """Return the rate at which a subset averages ``examples_per_subset`` records: M N labels / records, at most 1."""
    return min(1.0, parameters.subsets * parameters.examples_per_subset * labels / expected_records)


def fitted(parameters: FewShotParameters, expected_records: int, labels: int) -> dict[str, float]:
    """Return the sampling rate that fits the other parameters; empty if one is given."""
    if parameters.sampling_rate is not None:
        return {}
    return {"sampling_rate": max(LEAST_RATE, float(f"{fitting_rate(parameters, expected_records, labels):.3g}"))}


def _forecast(parameters: FewShotParameters, mechanism: SubsampledTokens, facts: PublicFacts) -> Facts:
    enough, labels = parameters.tokens // parameters.exemplar_tokens, facts.labels.size
    noise, share = _noise(parameters, mechanism)
    prompts = labels * parameters.tokens * (parameters.subsets + 1)
    room = parameters.examples_per_subset * parameters.private_text_tokens + parameters.exemplar_tokens
    entries = [
        Fact("exemplars", parameters.exemplars, "exemplars per label"),
        Fact("exemplars_paid_for", enough, f"exemplars that {parameters.tokens} tokens suffice for, at least"),
        *noise,
        Fact("private_model_prompts", prompts, "private model: prompts to read, at most"),
        Fact("private_model_tokens", prompts * room, "private model: tokens in these prompts, about"),
    ]
    if facts.expected_records is not None:
        sample = mechanism.rate * facts.expected_records / labels
        unit, shown = f"{facts.unit.kind}s", parameters.examples_per_subset
        fitting = fitting_rate(parameters, facts.expected_records, labels)
        title = f"{unit} in a subset, on average (it shows {shown} at most)"
        entries += [
            Fact("expected_records", facts.expected_records, f"{unit} (as declared)"),
            Fact("expected_sample", sample, f"{unit} sampled for a token, on average"),
            Fact("records_in_a_subset", sample / parameters.subsets, title),
            Fact("fitting_rate", fitting, "sampling rate at which a subset has as many as it shows"),
        ]
    # by the share of the subsets that must agree on a token; fewer agree if some have no record
    texts, records = share * mechanism.subsets / mechanism.rate, facts.expected_records
    found = Verdict.of("tokens", texts=texts, least=share, labels=labels, records=records)
    return Facts(tuple(entries), verdict=found)


def _noise(parameters: FewShotParameters, mechanism: SubsampledTokens) -> tuple[list[Fact], float]:
    """Return the noise, in units of the subsets' mean, and the share of the subsets that exceeds it."""
    multiplier, candidates = mechanism.noise_multiplier, parameters.candidates
    if mechanism.noise == "gaussian":
        std = math.sqrt(2) * multiplier / mechanism.subsets
        largest = std * NormalDist().inv_cdf((candidates - 0.375) / (candidates + 0.25))  # on average (Blom 1958)
        return [
            Fact("noise_multiplier", multiplier, "noise multiplier"),
            Fact("probability_noise", std, "noise on a token's mean probability (std)"),
            Fact("largest_noise", largest, f"largest noise among {candidates} candidates, about"),
        ], largest
    votes = 2 * math.log(candidates) / multiplier
    title = f"votes (of {mechanism.subsets}) that exceed the noise on {candidates} candidates, about"
    one = Fact("epsilon_of_one_choice", multiplier, "epsilon of one choice, on its sample")
    return [one, Fact("votes_to_stand_out", votes, title)], votes / mechanism.subsets
