"""A broken twin of every mechanism is caught: what is printed wrongly, forgotten, or done in the wrong order."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from audited import BUDGET, LOUD, audited
from numpy.typing import NDArray

from understudy.assess.counting import MetricCounts
from understudy.audit.mechanisms.audit import VIOLATION
from understudy.audit.mechanisms.sums import OWNER, aug_pe, charged_metrics, cluster_sums, dp_kps, one_sum, sec_pe
from understudy.audit.mechanisms.tokens import few_shot, private_tokens, token_test
from understudy.corpus.bounding import BoundedBatch
from understudy.decoding.sums import Sums, TokenSums
from understudy.evolution.embeddings import Block
from understudy.methods.aug_pe.votes import VoteHistogram
from understudy.methods.dp_kps.density import WEIGHT_GRID, SequenceDensity, TermDensity, TermHistogram, TermRows
from understudy.methods.sec_pe.clusters import ClusterSums
from understudy.privacy.mechanisms import Sensitivity
from understudy.privacy.noise import InsecureSeededNoise, NoiseKind
from understudy.privacy.subsampled import Sample, SubsampledTokens
from understudy.privacy.unit import Unit
from understudy.queries.counts import TermCounts


class Less(InsecureSeededNoise):
    """Half the noise that is charged, and choices that are twice as sharp."""

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        return super().draw(kind, scale=scale / 2, size=size)

    def choose(self, utilities: NDArray[np.int64], *, scale: float) -> int:
        return super().choose(utilities, scale=scale / 2)


ATTACKS: dict[str, Any] = {
    "counts": lambda: one_sum("counts", "gaussian", BUDGET),
    "counts-laplace": lambda: one_sum("counts", "laplace", BUDGET),
    "histogram": lambda: one_sum("histogram", "gaussian", BUDGET),
    "histogram-laplace": lambda: one_sum("histogram", "laplace", BUDGET),
    "density": lambda: one_sum("density", "gaussian", BUDGET),
    "density-laplace": lambda: one_sum("density", "laplace", BUDGET),
    "sequences": lambda: one_sum("sequences", "gaussian", BUDGET),
    "sequences-laplace": lambda: one_sum("sequences", "laplace", BUDGET),
    "labels": lambda: one_sum("labels", "gaussian", BUDGET),
    "dp-kps": lambda: dp_kps("gaussian", Unit(), BUDGET),
    "votes": lambda: aug_pe(1, Unit(), BUDGET),
    "clusters": lambda: sec_pe(BUDGET, rate=1.0, records=1),
    "clusters-sampled": lambda: sec_pe(BUDGET, rate=0.5, records=3),
    "private-tokens": lambda: private_tokens("recenter", BUDGET),
    "private-tokens-difference": lambda: private_tokens("difference", BUDGET),
    "private-tokens-many": lambda: private_tokens("recenter", BUDGET, vocabulary=5000),
    "subsets": lambda: few_shot("gaussian", BUDGET, rate=1.0, tokens=2),
    "subsets-sampled": lambda: few_shot("gaussian", BUDGET, rate=0.5, tokens=1),
    "subset-votes": lambda: few_shot("votes", BUDGET, rate=0.5, tokens=1),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_half_of_the_noise_is_caught(name: str) -> None:
    pure = name.endswith(("laplace", "votes")) and name != "votes"
    done = audited(replace(ATTACKS[name](), source=Less(0)), runs=5_000 if pure else 2_500)
    assert done.violated
    assert done.verdict == VIOLATION


def query_replaced(attack: Any, query: Any) -> Any:
    """The same noise multiplier, the same claim, another query with the sensitivity that it states; with noise that
    is fast and repeatable."""
    (planned,) = attack.sums
    mechanism = replace(planned.mechanism, sensitivity=query.sensitivity)
    return replace(attack, sums=[replace(planned, mechanism=mechanism, query=query)], source=InsecureSeededNoise(0))


def caught(attack: Any, *, runs: int = 2_500) -> bool:
    return audited(replace(attack, source=InsecureSeededNoise(0)), runs=runs).violated


# -- dp-kps -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForgottenTerms(TermCounts):
    """Noise for one term a record."""

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_counts(1)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_counts_that_forget_how_many_terms_a_record_has_are_caught(noise: NoiseKind) -> None:
    attack = one_sum("counts", noise, BUDGET)
    counts: Any = attack.sums[0].query
    assert caught(query_replaced(attack, ForgottenTerms(counts.matcher, counts.size, counts.terms_per_record)))


@dataclass(frozen=True)
class WholeWeights(TermHistogram):
    """Every term weighs 1: a sum instead of an average."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        histogram = np.zeros(self.shape, dtype=np.int64)
        for row, label in zip(self.rows.of(batch), batch.labels, strict=True):
            histogram[label, row[row >= 0]] += WEIGHT_GRID
        return histogram


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_a_histogram_of_sums_instead_of_averages_is_caught(noise: NoiseKind) -> None:
    attack = one_sum("histogram", noise, BUDGET)
    query: Any = attack.sums[0].query
    assert caught(query_replaced(attack, WholeWeights(query.rows, query.labels, query.terms, noise)))


@dataclass(frozen=True)
class WrongNorm(TermHistogram):
    """Weights of L2 norm 1 under noise for L1 norm 1: the divisor of the other noise."""

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(WEIGHT_GRID, WEIGHT_GRID, WEIGHT_GRID)


def test_a_histogram_with_the_divisor_of_the_other_noise_is_caught() -> None:
    attack = one_sum("histogram", "laplace", BUDGET)
    query: Any = attack.sums[0].query
    assert caught(query_replaced(attack, WrongNorm(query.rows, query.labels, query.terms, "gaussian")), runs=12_000)


@dataclass(frozen=True)
class SummedFeatures(TermDensity):
    """The features of a record's terms are added up, as printed, and not scaled onto the ball of one term."""

    def _norms(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.where((rows >= 0).any(axis=1), self.sensitivity.of(self.noise) / WEIGHT_GRID, 0.0)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_a_density_of_summed_features_is_caught(noise: NoiseKind) -> None:
    attack = one_sum("density", noise, BUDGET)
    query: Any = attack.sums[0].query
    alike = np.tile(query.features[:1], (len(query.features), 1))  # terms that mean the same
    assert caught(query_replaced(attack, SummedFeatures(query.rows, query.labels, alike, noise)))
    assert not caught(query_replaced(attack, replace(query, features=alike)), runs=1_000)


class NextTerms(TermRows):
    """Without the first term."""

    def of(self, batch: BoundedBatch) -> NDArray[np.int64]:
        return np.roll(super().of(batch), -1, axis=1)


class EveryPair(SequenceDensity):
    """All pairs of terms that follow one another, and not the first one alone."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        after = replace(self, rows=NextTerms(self.rows.matcher, self.rows.terms_per_record))
        return super().of_batch(batch) + SequenceDensity.of_batch(after, batch)


def test_a_density_of_all_of_a_records_sequences_is_caught() -> None:
    attack = one_sum("sequences", "gaussian", BUDGET)
    query: Any = attack.sums[0].query
    assert caught(query_replaced(attack, EveryPair(**vars(query))))


def test_two_sums_that_each_spend_the_whole_budget_are_caught() -> None:
    attack = dp_kps("gaussian", Unit(), LOUD)
    (whole,) = one_sum("counts", "gaussian", LOUD).sums
    assert not caught(attack, runs=1_000)
    assert caught(with_multiplier(attack, whole.mechanism.noise_multiplier))


def with_multiplier(attack: Any, noise_multiplier: float) -> Any:
    """All sums with this noise."""
    sums = [replace(each, mechanism=replace(each.mechanism, noise_multiplier=noise_multiplier)) for each in attack.sums]
    return replace(attack, sums=sums)


class NotShared(TermHistogram):
    """An owner's records are added up, and not averaged."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        return super().of_batch(replace(batch, shares=np.ones_like(batch.shares)))


def test_an_owners_records_that_are_not_averaged_are_caught() -> None:
    attack = dp_kps("gaussian", OWNER, BUDGET)
    counts, histogram = attack.sums
    added = NotShared(**vars(histogram.query))
    assert caught(replace(attack, sums=[counts, replace(histogram, query=added)]), runs=1_000)


class OneBlock(MetricCounts):
    """Noise for one block of counts, where a record is in each."""

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_counts(1, grid=self.grid)


def test_charged_metrics_that_forget_a_block_are_caught() -> None:
    attack = charged_metrics(Unit(), BUDGET)
    query: Any = attack.sums[0].query
    assert caught(query_replaced(attack, OneBlock(**vars(query))))


# -- aug-pe -----------------------------------------------------------------------------------------------------------


class WholeVotes(VoteHistogram):
    """k whole votes per record."""

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        return np.rint(super().of_batch(batch) * math.sqrt(self.neighbours)).astype(np.int64)


def test_votes_that_are_not_split_among_the_nearest_are_caught() -> None:
    attack = aug_pe(1, Unit(), LOUD)
    query: Any = attack.sums[0].query
    assert caught(query_replaced(attack, WholeVotes(**vars(query))))


class VotesOfEachLabel(VoteHistogram):
    """An owner's votes are normalised in each label, and not together."""

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        total = np.zeros(self.shape, dtype=np.int64)
        for label in np.unique(self.labels):
            here = batch.labels == label
            total += super().of_batch(Block(batch.vectors[here], batch.labels[here], batch.units[here]))
        return total


def test_an_owners_votes_that_are_normalised_label_by_label_are_caught() -> None:
    attack = aug_pe(1, OWNER, LOUD)
    query: Any = attack.sums[0].query
    assert caught(query_replaced(attack, VotesOfEachLabel(**vars(query))))


def test_rounds_with_the_noise_of_one_are_caught() -> None:
    attack, one = aug_pe(3, Unit(), BUDGET), aug_pe(1, Unit(), BUDGET)
    assert caught(with_multiplier(attack, one.sums[0].mechanism.noise_multiplier))


def test_votes_of_secrets_that_count_one_record_where_three_hold_the_secret_are_caught() -> None:
    attack = aug_pe(1, Unit("secret", 3), BUDGET)
    (group,) = attack.sums
    assert group.records_per_unit == 3
    assert group.mechanism.sensitivity == group.query.sensitivity.times(3)
    one = replace(attack, sums=[replace(group, records_per_unit=1)])
    assert caught(query_replaced(one, group.query), runs=1_000)


# -- sec-pe -----------------------------------------------------------------------------------------------------------


class TwoStatistics(ClusterSums):
    """Sizes and centres from one draw, each at the noise of one alone: the square root of two is left out."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        each = [ClusterSums(self.clusters, self.embedder, self.clip, share) for share in (1e-9, 1 - 1e-9)]
        return each[0].of_batch(batch) + each[1].of_batch(batch)


def test_two_statistics_at_the_noise_of_one_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    attack, both = sec_pe(LOUD, rate=1.0, records=1), TwoStatistics(**vars(cluster_sums()))
    monkeypatch.setattr(sys.modules[sec_pe.__module__], "cluster_sums", lambda: both)
    assert caught(attack)


def test_the_noise_for_one_record_where_up_to_three_are_drawn_is_caught() -> None:
    attack = sec_pe(BUDGET, rate=0.5, records=3)
    one = sec_pe(BUDGET, rate=1.0, records=1).mechanism.noise_multiplier
    assert caught(replace(attack, mechanism=replace(attack.mechanism, noise_multiplier=one)), runs=5_000)


def test_two_releases_with_the_noise_of_one_are_caught() -> None:
    attack = sec_pe(LOUD, rate=1.0, records=1, releases=2)
    once = sec_pe(LOUD, rate=1.0, records=1).mechanism
    assert caught(replace(attack, mechanism=once))


# -- private prediction -----------------------------------------------------------------------------------------------


def test_a_clip_range_wider_than_charged_is_caught() -> None:
    attack = private_tokens("recenter", BUDGET)
    wider = replace(attack.sums, clip=2 * attack.sums.clip, grid=2 * attack.sums.grid)
    assert caught(replace(attack, sums=wider))


class ActualSize(TokenSums):
    """The mean over the rows that happen to be there."""

    def over(self, contexts: Any, candidates: Any, divisors: Any = None) -> Sums:
        sums, rows = super().over(contexts, candidates, divisors), max(1, len(contexts) - 1)
        return replace(sums, clipped=np.rint(sums.clipped * 20 / rows).astype(np.int64))


def test_a_mean_over_the_actual_number_of_rows_is_caught() -> None:
    """Declared are twenty rows; there are none but the unit's and one other."""
    attack = private_tokens("recenter", BUDGET, batch_size=20)
    assert not caught(attack, runs=1_000)
    assert caught(replace(attack, sums=ActualSize(**vars(attack.sums))), runs=1_000)


class NotDivided(TokenSums):
    """An owner's rows weigh one each."""

    def over(self, contexts: Any, candidates: Any, divisors: Any = None) -> Sums:
        return super().over(contexts, candidates)


def test_an_owners_rows_that_are_not_divided_are_caught() -> None:
    attack = private_tokens("recenter", BUDGET, rows=3)
    assert caught(replace(attack, sums=NotDivided(**vars(attack.sums))), runs=1_000)


class EqualNoise(InsecureSeededNoise):
    """No more noise on an answer of the sparse vector than on its threshold."""

    scale = token_test(BUDGET).vector.scale

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        return super().draw(kind, scale=self.scale, size=size)


def test_a_sparse_vector_with_equal_noise_on_answers_and_threshold_is_caught() -> None:
    assert audited(replace(token_test(BUDGET), source=EqualNoise(0)), runs=40_000).violated


# -- few-shot ---------------------------------------------------------------------------------------------------------


class WithoutRoot(InsecureSeededNoise):
    """Noise for a vector that moves by 1, where two distributions are the square root of 2 apart."""

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        return super().draw(kind, scale=scale / math.sqrt(2), size=size)


def test_subsets_without_the_square_root_of_two_are_caught() -> None:
    attack = few_shot("gaussian", LOUD, rate=1.0, tokens=2)
    assert audited(replace(attack, source=WithoutRoot(0)), runs=5_000).violated


class Everybody(InsecureSeededNoise):
    """The sample is everybody."""

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.ones(len(rates), dtype=np.bool_)


@pytest.mark.parametrize(("noise", "runs"), [("gaussian", 1_000), ("votes", 6_000)])
def test_a_sample_of_everybody_is_caught(noise: Any, runs: int) -> None:
    attack = few_shot(noise, BUDGET, rate=0.1, tokens=1)
    assert not caught(attack, runs=runs)
    assert audited(replace(attack, source=Everybody(0)), runs=runs).violated


def ordered(sample: Sample, *, subsets: int, most: int) -> list[NDArray[np.int64]]:
    """An ordered sample, cut into equal parts: one record more moves all that follow."""
    return [part[:most] for part in np.array_split(np.flatnonzero(sample.included), subsets)]


def test_an_ordered_sample_cut_into_subsets_is_caught() -> None:
    """Records say the first and the second token in turn; one more before them, and each subset begins with another."""
    attack = few_shot("gaussian", BUDGET, rate=1.0, tokens=2)
    says = {True: (99.0, 0.0), False: (0.0, 99.0)}
    wide: SubsampledTokens = replace(attack.mechanism, subsets=6)
    others = [says[number % 2 == 1] for number in range(11)]
    shifted = replace(attack, mechanism=wide, others=others)
    assert not caught(shifted, runs=1_000)
    assert caught(replace(shifted, deal=ordered), runs=1_000)
