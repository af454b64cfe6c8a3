"""Attacks on sums over the corpus: counts, histograms, densities, a whole release of DP-KPS, charged metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from understudy.assess.charged import ChargedMetrics
from understudy.assess.counting import MetricCounts
from understudy.audit.mechanisms.corpora import Row, corpus
from understudy.audit.mechanisms.noisy_sums import Measured, SumAttack
from understudy.audit.mechanisms.promise import EpsilonPromise
from understudy.corpus.bounding import BoundedBatch
from understudy.labels import LabelSet
from understudy.methods.dp_kps.density import SequenceDensity, TermDensity, TermHistogram, TermRows
from understudy.methods.dp_kps.features import Frequencies, integer_features
from understudy.methods.dp_kps.parameters import DPKPSParameters
from understudy.methods.dp_kps.plan import make_plan
from understudy.methods.public import PublicFacts
from understudy.privacy.accountant import Composition, gaussian_split
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import Query as SumQuery
from understudy.privacy.mechanisms import NoisySum
from understudy.privacy.noise import NoiseKind
from understudy.privacy.unit import Unit
from understudy.queries.counts import LabelCounts, TermCounts
from understudy.vocabulary.matcher import TermMatcher

TERMS = ("ache", "burn", "cough")
"""The vocabulary. The worst record holds all of it."""
LABELS = 2
OWNER = Unit("owner", 3)
_OTHERS = (Row("a cough and an ache"), Row("a burn", 1))
_RECORD = (Row("a burn, an ache, a cough, and again a cough", owner="Ann"),)
_RECORDS = (*_RECORD, Row("a cough, an ache, a burn", 0, "Ann"), Row("the ache and the burn and a cough", 0, "Ann"))
"""Of one owner: alike in what counts, so that they add up to the most that they can."""
_FREQUENCIES = 2

Query = Literal["counts", "histogram", "density", "sequences", "labels"]


def query_of(kind: Query, noise: NoiseKind) -> SumQuery[BoundedBatch]:
    """The real query, of few terms and frequencies."""
    matcher = TermMatcher(TERMS)
    rows = TermRows(matcher, len(TERMS))
    if kind == "counts":
        return TermCounts(matcher, len(TERMS), len(TERMS))
    if kind == "labels":
        return LabelCounts(LABELS)
    if kind == "histogram":
        return TermHistogram(rows, LABELS, len(TERMS), noise)
    if kind == "sequences":  # cosine and sine are alike here: the longest vector that there is, in L1 too
        return SequenceDensity(rows, LABELS, np.full((2, len(TERMS), _FREQUENCIES), np.pi / 8, dtype=np.float32))
    frequencies = Frequencies(seed=0, length=1, count=_FREQUENCIES, bandwidth=0.35, dimension=len(TERMS))
    phases = frequencies.phases(np.eye(len(TERMS), dtype=np.float32))
    return TermDensity(rows, LABELS, integer_features(phases[0]), noise)


def one_sum(kind: Query, noise: NoiseKind, budget: Budget) -> SumAttack:
    """One query, with the noise that ``budget`` asks for; neighbours differ by a record."""
    pure = noise == "laplace"
    multiplier = 1 / float(budget.epsilon) if pure else gaussian_split(budget, [1.0])[0]
    query = query_of(kind, noise)
    return _attack(
        [Measured(NoisySum(noise, multiplier, query.sensitivity, query.shape), query)],
        Unit(),
        0.0 if pure else float(budget.delta),
    )


def dp_kps(noise: NoiseKind, unit: Unit, budget: Budget) -> SumAttack:
    """All that DP-KPS releases at its defaults, with the noise of its own plan: term counts, then the histogram."""
    parameters = DPKPSParameters(noise=noise, top_terms=len(TERMS), length=len(TERMS), terms_per_record=len(TERMS))
    facts = PublicFacts(unit, LabelSet(("yes", "no")))
    plan = make_plan(parameters, budget, facts, vocabulary_size=len(TERMS))
    queries = {"vocabulary": query_of("counts", noise), "density": query_of("histogram", noise)}
    sums = [Measured(charge.mechanism, queries[charge.name]) for charge in plan.charges]  # type: ignore[arg-type]
    return _attack(sums, unit, float(plan.budget.delta))  # type: ignore[union-attr]


def charged_metrics(unit: Unit, budget: Budget) -> SumAttack:
    """The counts behind metrics that are released, by a classifier that is always right."""
    metrics = ChargedMetrics("audit", unit, float(budget.epsilon), ["a classifier"], seed=0)
    always = {"a classifier": lambda batch: np.ones(len(batch.texts), dtype=np.bool_)}
    query = MetricCounts(LABELS, always, unit)
    return _attack([Measured(metrics.mechanism(query), query)], unit, 0.0)


def _attack(sums: Sequence[Measured], unit: Unit, delta: float) -> SumAttack:
    mine = _RECORDS if unit.kind == "owner" else _RECORD
    return SumAttack(
        sums,
        corpus(_OTHERS, unit),
        corpus([*_OTHERS, *mine], unit),
        EpsilonPromise(Composition(tuple(each.mechanism.event for each in sums)), delta),
    )
