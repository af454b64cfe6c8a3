"""Defaults of methods: plan noisy sums, judge the plan, return or write texts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from understudy.base.errors import ReleaseError, bug
from understudy.methods.facts import GenerationTools, PublicFacts
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import NoisySum, QuerySpec, SubsampledSum
from understudy.privacy.noise import NoiseKind
from understudy.privacy.plan import Plan, charges_of, noise_multipliers
from understudy.privacy.verdict import CLEAR, Verdict
from understudy.release import Release
from understudy.text.records import Seed, SyntheticRecord

TEXTS, LABEL, COUNTS = "texts", "label", "counts"
"""Keys in a Release of its texts, the label of each, and the weight of each term under each label."""
_TERMS = 8  # per text
_LEAST = 1e-9  # least weight of a term, so that there are enough to sample from


def plan_sums(name: str, budget: Budget, facts: PublicFacts, sums: Mapping[str, tuple[QuerySpec, float, str]]) -> Plan:
    """Plan noisy sums. ``sums`` maps the name of each charge to its query, share of the budget (any scale) and purpose.

    The noise is Gaussian; it is Laplace noise if the budget has no delta and every query states an L1 sensitivity.
    """
    shares = [share for _, share, _ in sums.values()]
    pure = budget.delta == 0 and all(query.sensitivity.l1 is not None for query, _, _ in sums.values())
    noise: NoiseKind = "laplace" if pure else "gaussian"
    queries = {charge: (query, why) for charge, (query, _, why) in sums.items()}
    charges, entries = charges_of(queries, noise_multipliers(budget, shares, noise), noise=noise), list[Fact]()
    for number, charge in enumerate(charges):
        identifier, std = re.sub("[^a-z0-9]+", "_", charge.name.lower())[:40], charge.mechanism.noise_std  # type: ignore[attr-defined]
        entries.append(Fact(f"noise_{number}_{identifier}", std, f"noise on each of {charge.name} (std)"))
    if facts.expected_records is not None:
        declared = f"{facts.unit.kind}s (as declared)"
        entries.append(Fact("expected_records", facts.expected_records, declared))
    return Plan(name, facts.unit, budget, charges, Facts(tuple(entries)))


def judged(plan: Plan, facts: PublicFacts) -> Plan:
    """Return the plan with the verdict of its noisiest sum; unchanged if it states a verdict or releases no noisy sum.

    A record is assumed to add 1.0 to one value of each sum. A sum with one row per label counts that label's records.
    """
    if plan.forecast.verdict is not None or facts.unit.kind == "secret":
        return plan
    noise = dict[float, tuple[float, int]]()
    for mechanism in (charge.mechanism for charge in plan.charges):
        if isinstance(mechanism, NoisySum | SubsampledSum):
            labels = facts.labels.size if mechanism.shape[:1] == (facts.labels.size,) else 1
            std = mechanism.noise_std / mechanism.rate
            noise[std * math.sqrt(labels)] = std, labels
    if not noise:
        return plan
    std, labels = noise[max(noise)]
    verdict = Verdict.of("topics", texts=CLEAR * std, labels=labels, records=facts.expected_records)
    return replace(plan, forecast=replace(plan.forecast, verdict=verdict))


def available(release: Release) -> list[int]:
    """Return how many texts of each label the Release contains."""
    size = release.schema.label_set.size
    return [int(number) for number in np.bincount(release.arrays[LABEL], minlength=size)]


def require_held(release: Release, counts: Sequence[int], there: Sequence[int]) -> None:
    """Raise ReleaseError if more texts of a label are requested (``counts``) than the Release contains (``there``)."""
    names = [str(label) for label in release.schema.labels] or ["in all"]
    if any(asked > holds for asked, holds in zip(counts, there, strict=True)):
        held = ", ".join(f"{name} {number}" for name, number in zip(names, there, strict=True))
        raise ReleaseError(
            f"You asked for more texts than the Release contains ({held}).",
            "Ask for fewer, or for all by giving no number. The data holder may make more, if paid for, with "
            "`understudy release --continue`.",
        )


def require_content(release: Release, *, holds_texts: bool) -> None:
    """Check that the Release has what :func:`generate` needs: texts, each with its label, or terms.

    Raises ReleaseError if it does not.
    """
    labels = release.schema.label_set.size
    if holds_texts:
        of, count = release.arrays.get(LABEL), len(release.strings.get(TEXTS, ()))
        whole = of is not None and of.shape == (count,) and np.issubdtype(of.dtype, np.integer)
        if of is None or not whole or (count and not (of.min() >= 0 and of.max() < labels)):
            raise bug("The Release lacks its texts, or the label of each.", f"{_OWN}; {_OF_TEXTS}", ReleaseError)
        return
    weights = release.arrays.get(COUNTS, np.ones((labels, len(release.terms))))
    if not release.terms or weights.shape != (labels, len(release.terms)) or not np.isfinite(weights).all():
        raise bug("The Release lacks terms, or the weight of each.", f"{_OWN}; {_OF_TERMS}", ReleaseError)


_OWN = "give the method its own `generate`, or its Release what the default one needs"
_OF_TEXTS = f"the strings {TEXTS!r} and the array {LABEL!r} of their labels"
_OF_TERMS = f"terms and, for unequal weights, the array {COUNTS!r} with a row per label and a column per term"


def generate(
    release: Release, counts: Sequence[int], tools: GenerationTools, *, holds_texts: bool
) -> Iterator[SyntheticRecord]:
    """Yield ``counts[label]`` records of each label: the first texts in the Release if it ``holds_texts``; else texts
    written around terms sampled in proportion to their weights."""
    require_content(release, holds_texts=holds_texts)
    if holds_texts:
        require_held(release, counts, available(release))
        return _held(release, counts)
    return tools.writer.write(_seeds(release, counts, tools.seed))


def _held(release: Release, counts: Sequence[int]) -> Iterator[SyntheticRecord]:
    left = list(counts)
    for text, label in zip(release.strings[TEXTS], release.arrays[LABEL].tolist(), strict=True):
        if left[label] > 0:
            left[label] -= 1
            yield SyntheticRecord(text, label, {})


def _seeds(release: Release, counts: Sequence[int], seed: int) -> list[Seed]:
    generator, size = np.random.default_rng(seed), len(release.terms)
    weights = np.maximum(release.arrays.get(COUNTS, np.ones((len(counts), size))), _LEAST)
    shares = weights / weights.sum(axis=1, keepdims=True)
    drawn = [
        (label, generator.choice(size, min(_TERMS, size), replace=False, p=shares[label]).tolist())
        for label, count in enumerate(counts)
        for _ in range(count)
    ]
    return [Seed(tuple(release.terms[term] for term in terms), label) for label, terms in drawn]
