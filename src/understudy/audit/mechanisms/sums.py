"""Attacks on noisy sums: the best test, which knows both exact sums, on the real mechanism's answers; and on the
selection of unlisted names: which are shown, and with which numbers."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.audit.mechanisms.bounds import Claim, Floats, secret_budget
from understudy.base.lazy import special
from understudy.corpus.bounding import BoundedBatch, BoundedCorpus
from understudy.corpus.corpus import Batch
from understudy.evaluate.charged import ChargedMetrics, MetricCounts
from understudy.methods.additions.columns.fitting import shares
from understudy.methods.additions.columns.marginals import IndependenceScores, Marginals
from understudy.methods.additions.columns.plan import column_charges
from understudy.methods.additions.columns.variables import TablesParameters, Variables
from understudy.methods.additions.guide.plan import EmbeddingSumsSpec
from understudy.methods.additions.guide.sums import GuideSums
from understudy.methods.additions.topics import plan as topics_plan
from understudy.methods.additions.topics.labelling import SIZES, VOTES
from understudy.methods.additions.topics.release import TopicSizes, TopicSums
from understudy.methods.aug_pe.plan import AugPEParameters, planned_sums
from understudy.methods.dp_kde import plan as kde_plan
from understudy.methods.dp_kde.release import PrefixDensity, TermDensity
from understudy.methods.dp_kps.plan import DPKPSParameters, make_plan
from understudy.methods.facts import PublicFacts
from understudy.methods.sec_pe.clusters import Clusters, ClusterSums
from understudy.methods.sec_pe.plan import ClusterSumsSpec
from understudy.methods.shared.evolution.embeddings import Block, integer_vectors
from understudy.methods.shared.queries.counts import (
    ColumnTermHistogram,
    LabelCounts,
    TermCounts,
    TermHistogram,
    TermRows,
)
from understudy.methods.shared.queries.discovered_terms import UnlistedTerms
from understudy.methods.shared.specs import LabelCountsSpec, TermCountsSpec, TermHistogramSpec, VotesSpec
from understudy.methods.shared.votes import VoteHistogram
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.measurement import Batches, OpenQuery, Query, exact_sum, measure, select
from understudy.privacy.mechanisms import NoisySum, SampledSum, SubsampledSum
from understudy.privacy.noise import NoiseKind, NoiseSource, SystemNoise
from understudy.privacy.sample import SubsampledSums
from understudy.privacy.sealed import decode_names
from understudy.privacy.secrets.bounds import poisson_binomial
from understudy.privacy.secrets.composition import calibrate
from understudy.privacy.selection import NoisySelection
from understudy.privacy.subsampled import subsampled_multiplier
from understudy.privacy.unit import Unit
from understudy.schema.columns import Column
from understudy.schema.labels import LabelSet
from understudy.text.vocabulary.words import TermMatcher

TERMS = ("ache", "burn", "cough")
"""The vocabulary. The worst record contains all of it."""
_FREQUENCIES = 2
LABELS = 2
OWNER = Unit("owner", 3)
NEAREST = 2
_CANDIDATES = np.repeat(integer_vectors(np.eye(2, dtype=np.float32)), 2, axis=0)
_CANDIDATE_LABELS = np.array([0, 1, 0, 1], dtype=np.int32)
COLUMNS = (Column("first", "category", values=("a",)), Column("second", "category", values=("b",)))
"""Of two cells each: there, or missing."""
_SECRET, _OTHER = "Passport 9434765919", "a note on the weather"
QueryName = Literal["counts", "vocabulary", "histogram", "density", "prefixes", "labels"]


class Row(NamedTuple):
    """A record."""

    text: str
    label: int = 0
    owner: str = "somebody"
    cells: tuple[int, int] = (0, 0)
    """Of two typed columns."""


@dataclass(frozen=True)
class InMemory:
    """Batches in memory that are read once and are the same objects in every pass."""

    parts: Sequence[Any]

    def batches(self) -> Iterator[Any]:
        return iter(self.parts)


def corpus(rows: Sequence[Row], unit: Unit) -> BoundedCorpus:
    texts, labels, owners, cells = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = np.array(cells, dtype=np.int32).reshape(len(texts), len(COLUMNS))
    batch = Batch(list(texts), np.array(labels, dtype=np.int32), list(owners), cells=columns)
    return BoundedCorpus(InMemory([batch]), unit, b"a key of the dataset")


_OTHERS = (Row("a cough and an ache"), Row("a burn", 1))
_RECORD = (Row("a burn, an ache, a cough, and again a cough", 0, "Ann", (1, 1)),)
_RECORDS = (
    *_RECORD,
    *(Row(text, 0, "Ann", (1, 1)) for text in ("a cough, an ache, a burn", "the ache, burn and cough")),
)
"""Texts of one owner: equal in what counts, so that their sum is as large as possible."""


class Remembered:
    """A query that caches the exact sum of each batch, because an audit repeats the same few batches.

    Args:
        key: identifies batches; by default they must be the same objects.
    """

    def __init__(self, query: Query[Any], key: Callable[[Any], Hashable] = id) -> None:
        self._query, self._key = query, key
        self._sums: dict[Hashable, NDArray[np.int64]] = {}

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = getattr(self._query, name)
        return value

    def of_batch(self, batch: Any) -> NDArray[np.int64]:
        key = self._key(batch)
        if key not in self._sums:
            self._sums[key] = self._query.of_batch(batch)
        return self._sums[key]


@dataclass(frozen=True)
class Measured:
    mechanism: NoisySum | SampledSum | SubsampledSum
    query: Query[Any]
    records_per_unit: int = 1

    @property
    def chances(self) -> Sequence[float]:
        """Return the probabilities that 0, 1, 2, ... of the unit's records are in the sample."""
        if isinstance(self.mechanism, SampledSum):
            return tuple(poisson_binomial(self.mechanism.inclusion[0]))
        rate = self.mechanism.rate
        return (1 - rate, rate)

    @property
    def rate(self) -> float | None:
        """Return the rate at which each record is sampled, afresh in every release."""
        return self.mechanism.inclusion[0][0][0] if isinstance(self.mechanism, SampledSum) else None


@dataclass(frozen=True)
class SumAttack:
    """Attack on noisy sums: was the unit in the data?

    The score is the log-likelihood ratio of the answers, for the noise that the mechanisms state (Neyman and Pearson
    1933: no test is better). If units are sampled, no other unit moves the numbers that they move, as it would only
    hide them; and a unit's records all move them equally.

    Args:
        absent, present: the data without and with the unit.
        claim: of all sums together.
    """

    sums: Sequence[Measured]
    absent: Batches[Any]
    present: Batches[Any]
    claim: Claim
    source: NoiseSource = field(default_factory=SystemNoise)

    def scores(self, runs: int, *, present: bool) -> Floats:
        absent, with_it = (InMemory(list(data.batches())) for data in (self.absent, self.present))
        return np.asarray(sum(self._scores(each, runs, absent, with_it, present) for each in self.sums))

    def _scores(self, each: Measured, runs: int, absent: InMemory, with_it: InMemory, present: bool) -> Floats:
        mechanism, chances = each.mechanism, each.chances
        # a sampled batch is a new object each time
        query: Any = Remembered(each.query, id if isinstance(mechanism, NoisySum) else lambda batch: tuple(batch.texts))
        without, with_unit = exact_sum(query, absent).ravel(), exact_sum(query, with_it).ravel()
        moved = without != with_unit
        data, records = with_it if present else absent, each.records_per_unit
        one = partial(measure, mechanism, query, data, source=self.source, records_per_unit=records, rates=each.rate)
        answers = np.array([one().ravel()[moved] for _ in range(runs)])
        noise = (answers * mechanism.sensitivity.grid - without[moved]) / mechanism.scale
        shift = (with_unit - without)[moved] / mechanism.scale / (len(chances) - 1)
        if mechanism.noise == "laplace":
            return np.asarray((np.abs(noise) - np.abs(noise - shift)).sum(axis=1))
        length = float(np.linalg.norm(shift))
        return ratio_of_sampled(noise @ shift / max(length, 1e-300), length, chances)  # 0 if it moves nothing


def query_of(kind: QueryName, noise: NoiseKind) -> Query[BoundedBatch]:
    matcher = TermMatcher(TERMS)
    rows = TermRows(matcher, len(TERMS))
    if kind == "counts":
        return TermCounts(TermCountsSpec(len(TERMS), len(TERMS)), matcher)
    if kind == "labels":
        return LabelCounts(LabelCountsSpec(LABELS))
    density = kde_plan.DensitySpec(LABELS, _FREQUENCIES)
    if kind == "density":  # every term's cosine and sine are equal here: the longest possible vector, in L1 too
        alike = np.full((len(TERMS), 2 * _FREQUENCIES), math.floor(kde_plan.GRID / math.sqrt(2)), dtype=np.int32)
        return TermDensity(density, rows, alike)
    if kind == "prefixes":  # so is the sum of these phases
        return PrefixDensity(density, rows, np.full((2, len(TERMS), _FREQUENCIES), 256, dtype=np.uint16))
    blocks = (LABELS,) if kind == "histogram" else ()
    return TermHistogram(TermHistogramSpec(noise, len(TERMS), len(TERMS), blocks), matcher)


def one_sum(kind: QueryName, noise: NoiseKind, budget: Budget) -> SumAttack:
    """Return the attack on one query, with the noise that ``budget`` requires; neighbours differ by a record."""
    pure = noise == "laplace"
    multiplier = 1 / float(budget.epsilon) if pure else gaussian_split(budget, [1.0])[0]
    query = query_of(kind, noise)
    measured = Measured(NoisySum(noise, multiplier, query.sensitivity, query.shape), query)
    return _attack([measured], Unit(), 0.0 if pure else float(budget.delta))


def dp_kps(noise: NoiseKind, unit: Unit, budget: Budget) -> SumAttack:
    """Attack all releases of DP-KPS at its defaults, with its plan's noise: weighted counts of all records, by label,
    and by the values of typed columns."""
    parameters = DPKPSParameters(noise=noise, top_terms=len(TERMS), length=len(TERMS), terms_per_record=len(TERMS))
    facts = PublicFacts(unit, LabelSet(("yes", "no")), columns=COLUMNS)
    plan = make_plan(parameters, budget, facts, vocabulary_size=len(TERMS))
    kinds = {"column-density": partial(ColumnTermHistogram, columns=(0, 1))}
    sums = [
        Measured(charge.mechanism, kinds.get(charge.name, TermHistogram)(charge.query, TermMatcher(TERMS)))  # type: ignore[arg-type]
        for charge in plan.charges
    ]
    return _attack(sums, unit, float(plan.budget.delta))  # type: ignore[union-attr]


def dp_kde(noise: NoiseKind, unit: Unit, budget: Budget) -> SumAttack:
    """Attack all releases of DP-KPS as published for sequences of two terms, with its plan's noise."""
    of_terms = kde_plan.DPKDEParameters(noise=noise, mode="iterative", length=2, top_terms=2, features=_FREQUENCIES)
    plan = kde_plan.make_plan(of_terms, budget, PublicFacts(unit, LabelSet(("yes", "no"))))
    names: tuple[QueryName, ...] = ("counts", "density", "prefixes")
    queries = [query_of(name, noise) for name in names]
    sums = [
        Measured(replace(charge.mechanism, sensitivity=query.sensitivity, shape=query.shape), query)  # type: ignore[type-var, arg-type]
        for charge, query in zip(plan.charges, queries, strict=True)
    ]
    return _attack(sums, unit, float(plan.budget.delta))  # type: ignore[union-attr]


def charged_metrics(unit: Unit, budget: Budget) -> SumAttack:
    """Attack the counts behind released metrics, with a classifier that is always right."""
    metrics = ChargedMetrics("audit", unit, float(budget.epsilon), ["a classifier"], seed=0)
    always = {"a classifier": lambda batch: np.ones(len(batch.texts), dtype=np.bool_)}
    query = MetricCounts(LABELS, always, unit)
    return _attack([Measured(metrics.mechanism(query), query)], unit, 0.0)


def _attack(sums: Sequence[Measured], unit: Unit, delta: float, others: Sequence[Row] = _OTHERS) -> SumAttack:
    mine = _RECORDS if unit.kind == "owner" else _RECORD
    return SumAttack(
        sums,
        corpus(others, unit),
        corpus([*others, *mine], unit),
        Claim(tuple(each.mechanism.event for each in sums), delta),
    )


def embeddings(places: Sequence[int], labels: Sequence[int], units: Sequence[int]) -> InMemory:
    """Return records of these units and labels whose embeddings are one of two vectors."""
    vectors = integer_vectors(np.eye(2, dtype=np.float32)[list(places)])
    return InMemory([Block(vectors, np.array(labels, dtype=np.int32), np.array(units, dtype=np.int64))])


def votes(unit: Unit) -> VoteHistogram:
    """Return the real query of votes: two labels with two candidates each; every record votes for both candidates of
    its label."""
    return VoteHistogram(VotesSpec(unit, NEAREST), _CANDIDATES, _CANDIDATE_LABELS)


def _added(unit: Unit) -> InMemory:
    """Return two others' records, and the worst unit: a record, an owner's in both labels, or a secret's, all equal."""
    mine = {"record": [0], "owner": [0, 1, 1], "secret": [0, 0, 0]}[unit.kind]
    return embeddings([0, 1] + [0] * len(mine), [0, 1, *mine], [0, 1] + [2] * len(mine))


def aug_pe(rounds: int, unit: Unit, budget: Budget) -> SumAttack:
    """Attack the votes of ``rounds`` rounds with the noise of Aug-PE's plan. All rounds have the same candidates."""
    spend: Budget | SecretBudget = secret_budget(budget) if unit.kind == "secret" else budget
    parameters = AugPEParameters(rounds=rounds, nearest=NEAREST)
    planned = planned_sums(parameters, spend, PublicFacts(unit))
    sums = [Measured(charge.mechanism, votes(unit), unit.vectors) for charge in planned]  # type: ignore[arg-type]
    events = tuple(each.mechanism.event for each in sums)
    claim = Claim(events, float(budget.delta))
    if isinstance(spend, SecretBudget):
        claim = Claim(events, prior=float(spend.prior))
    return SumAttack(sums, embeddings([0, 1], [0, 1], [0, 1]), _added(unit), claim)


def _topic_sums(unit: Unit, budget: Budget) -> dict[str, Measured]:
    """Return the queries of votes, of all rounds, which have the same centres here, and of sizes."""
    centres = integer_vectors(np.eye(2, dtype=np.float32))
    of_votes = partial(VoteHistogram, candidates=centres, labels=np.zeros(2, dtype=np.int32), distance="centred")
    kinds: dict[str, Any] = {VOTES: of_votes, SIZES: partial(TopicSizes, centres=centres)}
    sums: dict[str, Measured] = {}
    multipliers = gaussian_split(budget, list(topics_plan.SHARES.values()))
    for each in topics_plan.planned_sums(2, multipliers, unit, candidates=2):
        query = kinds.get(each.name, partial(TopicSums, centres=centres))(each.query)
        sums[each.name] = Measured(each.mechanism, query)  # type: ignore[arg-type]
    return sums


def topics(unit: Unit, budget: Budget) -> SumAttack:
    """Attack all releases of topics, with their plan's noise. All records of the worst unit are in one topic."""
    sums = list(_topic_sums(unit, budget).values())
    mine = OWNER.max_records if unit.kind == "owner" else 1
    present = embeddings([0, 1] + [0] * mine, [0] * (2 + mine), [0, 1] + [2] * mine)
    claim = Claim(tuple(each.mechanism.event for each in sums), float(budget.delta))
    return SumAttack(sums, embeddings([0, 1], [0, 0], [0, 1]), present, claim)


@dataclass(frozen=True)
class SampleAttack:
    """Attack on several noisy sums over one sample: was the unit in the data? The score is that of :class:`SumAttack`.

    Args:
        queries: by the names of the sums; the records' embeddings are all equal.
        data: the records of the unit only.
    """

    mechanism: SubsampledSums
    queries: Mapping[str, Query[Any]]
    data: Batches[Any]
    claim: Claim
    source: NoiseSource = field(default_factory=SystemNoise)

    def scores(self, runs: int, *, present: bool) -> Floats:
        planned, whole, key = dict(self.mechanism.sums), _alike(self.data), lambda batch: batch.units.tobytes()
        moves = {name: exact_sum(query, whole) / planned[name].scale for name, query in self.queries.items()}
        remembered: dict[str, Any] = {name: Remembered(query, key) for name, query in self.queries.items()}
        along, data = np.zeros(runs), InMemory(list(self.data.batches()) if present else [])
        for run in range(runs):
            paid = self.mechanism.open(self.source)
            sample = _alike(paid.sample(data, lambda make: make()))
            for name, query in remembered.items():
                noisy = paid.measure(name, query, sample) * planned[name].sensitivity.grid
                along[run] += float((noisy * moves[name]).sum()) / planned[name].scale
        length = math.sqrt(sum(float(np.square(move).sum()) for move in moves.values()))
        return ratio_of_sampled(along / length, length, (1 - self.mechanism.rate, self.mechanism.rate))


def _alike(data: Batches[Any]) -> InMemory:
    """Return the records in one place, in memory."""
    found = [embeddings([0] * len(batch.texts), batch.labels, batch.units) for batch in data.batches()]
    return InMemory([block for each in found for block in each.parts])


def sampled_topics(unit: Unit, budget: Budget, *, rate: float) -> SampleAttack:
    """Attack all releases of topics on a sample, with the least noise that keeps within the budget."""
    less = subsampled_multiplier(budget, rate=rate, count=1) / gaussian_split(budget, [1.0])[0]
    measured = _topic_sums(unit, budget)
    planned: dict[str, Any] = {name: each.mechanism for name, each in measured.items()}
    sums = ((name, replace(each, noise_multiplier=less * each.noise_multiplier)) for name, each in planned.items())
    mechanism = SubsampledSums(rate, tuple(sums))
    mine = _RECORDS if unit.kind == "owner" else _RECORD
    claim = Claim((mechanism.event,), float(budget.delta))
    return SampleAttack(mechanism, {name: each.query for name, each in measured.items()}, corpus(mine, unit), claim)


@dataclass(frozen=True)
class Corners:
    """An embedder that maps ``texts`` (by default the records with the secret) to one vector, and all others to
    another."""

    texts: Collection[str] = (_SECRET,)
    model_id = "corners"
    fingerprint = "0" * 64
    local = True

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.eye(2, dtype=np.float32)[[int(text not in self.texts) for text in texts]]


def guide(unit: Unit, budget: Budget) -> SumAttack:
    query = GuideSums(EmbeddingSumsSpec(LABELS), Corners([row.text for row in _RECORDS]), dimension=2)
    mechanism = NoisySum("gaussian", gaussian_split(budget, [1.0])[0], query.sensitivity, query.shape)
    return _attack([Measured(mechanism, query)], unit, float(budget.delta))


def sampled_guide(unit: Unit, budget: Budget, *, rate: float) -> SumAttack:
    """Return the attack on a guide over a sample, with the least noise that the budget allows."""
    whole = guide(unit, budget)
    query, multiplier = whole.sums[0].query, subsampled_multiplier(budget, rate=rate, count=1)
    mechanism = SubsampledSum(multiplier, rate, query.sensitivity, query.shape)
    return _attack([Measured(mechanism, query)], unit, float(budget.delta), others=())


def columns(unit: Unit, budget: Budget) -> SumAttack:
    """Attack all releases of typed columns, with their plan's noise; all sets are measured.

    The expected counts are 0, so that every record moves every score as much as possible.
    """
    variables = Variables("label", LabelSet(("yes", "no")), COLUMNS)
    charges = column_charges(budget, variables, TablesParameters())
    singles, scores, pairs = (charge.query for charge in charges)
    every = scores.sets
    queries: dict[str, Query[BoundedBatch]] = {
        "columns": Marginals(singles),
        "column-scores": IndependenceScores(scores, np.zeros(every.shape, dtype=np.int64)),
        "column-pairs": Marginals(pairs.of(every.sets, shares(variables.sizes, every.sets))),
    }
    sums = [Measured(charge.mechanism, queries[charge.name]) for charge in charges]  # type: ignore[arg-type]
    return _attack(sums, unit, float(budget.delta))


def cluster_sums() -> ClusterSums:
    """Return the real query with two labels, one for the records with the secret and one for the others, and one
    cluster each.

    The centres are so far from the records that their residuals are clipped.
    """
    centres = integer_vectors(np.array([[0, 1], [-1, 0]], dtype=np.float32))[:, None]
    clusters = Clusters(centres, np.ones((2, 1), dtype=np.int64))
    return ClusterSums(ClusterSumsSpec(2, 1), clusters, Corners(), clip=0.3, size_share=0.8)


def ratio_of_sampled(along: Floats, length: float, chances: Iterable[float]) -> Floats:
    """Return the log-likelihood ratio of answers ``along`` the direction in which a record moves a sum with unit noise
    by ``length``, if 0, 1, 2, ... records are in the sample with these ``chances``."""
    parts = [
        math.log(chance) + chosen * length * along - (chosen * length) ** 2 / 2
        for chosen, chance in enumerate(chances)
        if chance > 0
    ]
    return np.asarray(special.logsumexp(parts, axis=0))


def sec_pe(budget: Budget, *, rate: float, records: int, releases: int = 1) -> SumAttack:
    """Attack sums over fresh samples, with the noise that SecPE's plan calibrates for the secret alone."""
    inclusion = (((rate, records),),)
    spend = secret_budget(budget)
    query, multiplier = cluster_sums(), calibrate(spend, inclusion, releases=releases)
    mechanism = SampledSum(multiplier, inclusion, query.sensitivity, query.shape)
    claim = Claim((mechanism.event,) * releases, prior=float(spend.prior))
    unit, others = Unit("secret", records), [Row(_OTHER, 1)] * 2
    present = corpus([*others, *[Row(_SECRET)] * records], unit)
    return SumAttack([Measured(mechanism, query)] * releases, corpus(others, unit), present, claim)


_KNOWN = ("zorple", "quexil", "vantor")
_LONE = "brindlewick"
_MANY = 400  # other units, so that their terms are always shown
Sums = Mapping[str, int]


@dataclass(frozen=True)
class SelectionAttack:
    """Attack on the selection of names: was the unit among those whose names are selected?

    The score is the log-likelihood ratio of the shown numbers (Neyman and Pearson 1933) of names that are always shown;
    a name that only the unit has decides.
    """

    mechanism: NoisySelection
    absent: Sums
    present: Sums
    claim: Claim
    source: NoiseSource = field(default_factory=SystemNoise)

    @property
    def most(self) -> int:
        return self.mechanism.most

    def sums(self, data: Sums) -> Iterator[tuple[list[str], NDArray[np.int64]]]:
        yield sorted(data), np.array([data[name] for name in sorted(data)], dtype=np.int64)

    def scores(self, runs: int, *, present: bool) -> Floats:
        data: Any = self.present if present else self.absent
        return np.array([self._score(select(self.mechanism, self, data, source=self.source)) for _ in range(runs)])

    def _score(self, found: Mapping[str, NDArray[Any]]) -> float:
        score = 0.0
        for name, value in zip(decode_names(found["names"]), found["value"].tolist(), strict=True):
            if name not in self.absent:
                return _CERTAIN
            shift = self.present[name] - self.absent[name]
            middle = (self.present[name] + self.absent[name]) / 2
            score += shift * (value * self.mechanism.sensitivity.grid - middle) / self.mechanism.scale**2
        return score


_CERTAIN = 1e6


def discovered(
    unit: Unit, budget: Budget, *, query_of: Callable[..., OpenQuery] = UnlistedTerms, most: int = len(_KNOWN) + 1
) -> SelectionAttack:
    """Return the attack on term discovery, with the noise and threshold that ``budget`` requires (a tenth of delta for
    lone names)."""
    lone = budget.delta / 10
    multiplier = gaussian_split(Budget.of(budget.epsilon, budget.delta - lone), [1.0])[0]
    mechanism = NoisySelection(multiplier, float(lone), most)
    others = [Row(". ".join(_KNOWN), owner=f"somebody {number}") for number in range(_MANY)]
    mine = [Row(". ".join([*_KNOWN, _LONE]))]
    if unit.kind == "owner":
        mine = [Row(name, owner="Ann") for name in _KNOWN]
    with tempfile.TemporaryDirectory() as scratch:
        query = query_of(frozenset(), frozenset(), most, Path(scratch))
        absent, present = (by_name(query, corpus(rows, unit)) for rows in (others, [*others, *mine]))
    return SelectionAttack(mechanism, absent, present, Claim((mechanism.event,), float(budget.delta)))


def by_name(query: OpenQuery, data: Any) -> dict[str, int]:
    """Return the exact sum of every name. Private."""
    return {name: int(each) for names, sums in query.sums(data) for name, each in zip(names, sums, strict=True)}
