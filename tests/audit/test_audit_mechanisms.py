"""An audit of any attack, as sure as a test must be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import Any, Literal

import numpy as np
import pytest
from broken_twins import OwnersAsRecords, Unweighted, not_shared
from numpy.typing import NDArray
from word_embedder import WordEmbedder

from understudy.audit.mechanisms import models
from understudy.audit.mechanisms import sums as of_sums
from understudy.audit.mechanisms.audit import MECHANISMS, VIOLATION, Auditable, MechanismAudit, audit_mechanism
from understudy.audit.mechanisms.bounds import Claim
from understudy.base.errors import PrivacyError
from understudy.corpus.bounding import BoundedBatch
from understudy.evaluate.charged import MetricCounts
from understudy.methods.additions.columns.marginals import Marginals
from understudy.methods.additions.guide.plan import COUNT_WEIGHT, GRID, VECTOR_WEIGHT
from understudy.methods.additions.guide.sums import GuideSums
from understudy.methods.dp_kde.release import PrefixDensity, TermDensity
from understudy.methods.registry import GROUP, method_class
from understudy.methods.sec_pe.clusters import ClusterSums
from understudy.methods.seq_pate.plan import AnswersSpec
from understudy.methods.seq_pate.teachers import TeacherAnswers, Teachers
from understudy.methods.shared.decoding.sums import Sums, TokenSums
from understudy.methods.shared.evolution.embeddings import Block, integer_vectors
from understudy.methods.shared.queries.counts import ColumnTermHistogram, TermCounts, TermHistogram
from understudy.methods.shared.queries.gradients import ClippedGradients, clipped_sum
from understudy.methods.shared.specs import VotesSpec
from understudy.methods.shared.votes import VoteHistogram
from understudy.models.training import TokenRow
from understudy.privacy.accountant import Composition
from understudy.privacy.gradients import DPSGD
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import exact_sum
from understudy.privacy.mechanisms import COUNT_GRID, Sensitivity
from understudy.privacy.noise import InsecureSeededNoise, NoiseKind
from understudy.privacy.subsampled import Sample, SubsampledTokens
from understudy.privacy.tokens import TokenTest
from understudy.privacy.unit import Unit

BUDGET = Budget(3, "1e-6")
# So little noise that few runs show a third of it missing.
LOUD = Budget(8, "1e-6")
# A false alarm once in a million audits.
SURE = 1 - 1e-6


def audited(attack: Any, *, runs: int = 1_500, confidence: float = SURE) -> MechanismAudit:
    it = Auditable("it", "it", "neighbours", lambda _: attack)
    return audit_mechanism(it, BUDGET, runs=runs, confidence=confidence)


@pytest.mark.parametrize("name", MECHANISMS)
def test_no_mechanism_loses_more_than_it_promises(name: str) -> None:
    """With the system's noise, as in a release."""
    done = audit_mechanism(MECHANISMS[name], BUDGET, runs=100, confidence=1 - 1e-12)
    assert not done.violated
    assert done.runs == 100


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_attack_comes_near_to_an_ideal_one_and_stays_below_the_promise(name: str) -> None:
    """With noise that is the same each time, so that a lower confidence gives no false alarm, and sees with fewer runs
    how good an attack is."""
    attack: Any = MECHANISMS[name].attack(BUDGET)
    close = name.startswith(("private-tokens", "columns")) or name == "discovered-terms"  # to half of an ideal one
    runs = (
        4_000 if name.startswith(("guide-sampled", "topics-sampled")) else 2_000 if close else 1_200
    )  # half of the first tell nothing
    done = audited(replace(attack, source=InsecureSeededNoise(1)), runs=runs, confidence=0.999)
    # sampled steps are compared with a few points of delta; no attack on a sparse vector finds all that is charged
    nearly = 0.2 if name in ("dp-sgd-steps", "token-test") else 0.5
    assert nearly * done.ideal < done.bound <= done.promised
    assert done.ideal < done.promised < done.ceiling


def test_every_method_has_an_audit() -> None:
    titles = " ".join(each.title for each in MECHANISMS.values())
    private = [point.name for point in entry_points(group=GROUP) if method_class(point.name).private]
    assert [name for name in private if f"{name}:" not in titles] == []


class Less(InsecureSeededNoise):
    """Half the noise that is charged, and choices that are twice as sharp."""

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        return super().draw(kind, scale=scale / 2, size=size)

    def normal(self, size: int) -> NDArray[np.float64]:
        return super().normal(size) / 2

    def choose(self, utilities: NDArray[np.int64], *, scale: float) -> int:
        return super().choose(utilities, scale=scale / 2)


# Twins of others with noise of the same code, or attacks that need more runs.
FORGETFUL = ("-owners", "-secrets", "aug-pe", "sec-pe", "charged-metrics", "tokens-many", "token-test")
# Attacks that see less, and those that see a little less.
DIM = ("laplace", "subset-votes"), ("discovered-terms", "guide-sampled", "subsets", "topics-sampled")
KEPT_OWNERS = ("guide-owners", "columns-owners", "teacher-answers-owners")


@pytest.mark.parametrize("name", [each for each in MECHANISMS if each in KEPT_OWNERS or not each.endswith(FORGETFUL)])
def test_half_of_the_noise_is_caught(name: str) -> None:
    attack: Any = MECHANISMS[name].attack(BUDGET)
    if name == "dp-sgd-steps":
        attack = steps_of(attack.mechanism, delta=0.05)
    runs = 3_000 if name.endswith(DIM[0]) else 2_500 if name in DIM[1] else 1_500
    done = audited(replace(attack, source=Less(0)), runs=runs)
    assert done.violated
    assert done.verdict == VIOLATION


def query_replaced(attack: Any, query: Any) -> Any:
    """The same noise multiplier, the same claim, another query with the sensitivity that it states; with noise that
    is fast and repeatable."""
    (planned,) = attack.sums
    mechanism = replace(planned.mechanism, sensitivity=query.sensitivity)
    return replace(attack, sums=[replace(planned, mechanism=mechanism, query=query)], source=InsecureSeededNoise(0))


def twin(attack: Any, kind: Any, **changes: Any) -> Any:
    """The attack on a broken twin of its only query."""
    return query_replaced(attack, kind(**{**vars(attack.sums[0].query), **changes}))


def stating(kind: Any, sensitivity: Sensitivity) -> Any:
    """A query that says of itself that it moves so far."""
    return type(kind.__name__, (kind,), {"sensitivity": property(lambda _: sensitivity)})


def caught(attack: Any, *, runs: int = 1_500) -> bool:
    return audited(replace(attack, source=InsecureSeededNoise(0)), runs=runs).violated


# -- terms that no list has --------------------------------------------------------------------------------------------


def test_terms_whose_weights_are_not_shared_out_are_caught() -> None:
    assert caught(of_sums.discovered(Unit(), BUDGET, query_of=Unweighted), runs=2_500)


def test_owners_whose_records_each_have_a_set_are_caught() -> None:
    assert caught(of_sums.discovered(of_sums.OWNER, BUDGET, query_of=OwnersAsRecords))


def test_a_threshold_of_one_deviation_less_is_caught() -> None:
    """Where delta can be seen: at that of a tenth."""
    attack = of_sums.discovered(Unit(), Budget("0.001", "0.1"))
    assert not caught(attack)
    attack.mechanism.__dict__["threshold"] = attack.mechanism.threshold - round(3 * attack.mechanism.scale)
    assert caught(attack)


# -- dp-kps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_counts_that_forget_how_many_terms_a_record_has_are_caught(noise: NoiseKind) -> None:
    assert caught(twin(of_sums.one_sum("counts", noise, BUDGET), stating(TermCounts, Sensitivity.of_counts(1))))


@dataclass(frozen=True)
class WholeWeights(TermHistogram):
    """Every term weighs 1: a sum instead of an average."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        histogram = np.zeros(self.shape, dtype=np.int64)
        for row, label in zip(self.rows.of(batch), batch.labels, strict=True):
            terms = row[row >= 0]
            histogram[(label, terms) if self.spec.blocks else terms] += COUNT_GRID
        return histogram


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("sum_of", ["vocabulary", "histogram"])
def test_weights_of_1_for_every_term_of_a_record_are_caught(
    sum_of: Literal["vocabulary", "histogram"], noise: NoiseKind
) -> None:
    assert caught(twin(of_sums.one_sum(sum_of, noise, BUDGET), WholeWeights))


@pytest.mark.parametrize("sum_of", ["vocabulary", "histogram"])
def test_weights_with_the_divisor_of_the_other_noise_are_caught(sum_of: Literal["vocabulary", "histogram"]) -> None:
    """Weights of L2 norm 1 under noise for L1 norm 1."""
    wrong = stating(TermHistogram, Sensitivity(COUNT_GRID, COUNT_GRID, COUNT_GRID))
    attack: Any = of_sums.one_sum(sum_of, "laplace", BUDGET)
    spec = replace(attack.sums[0].query.spec, noise="gaussian")
    assert caught(twin(attack, wrong, spec=spec), runs=7_200)


def test_two_sums_that_each_spend_the_whole_budget_are_caught() -> None:
    attack = of_sums.dp_kps("gaussian", Unit(), LOUD)
    (whole,) = of_sums.one_sum("vocabulary", "gaussian", LOUD).sums
    assert not caught(attack, runs=600)
    assert caught(with_multiplier(attack, whole.mechanism.noise_multiplier))


def with_multiplier(attack: Any, noise_multiplier: float) -> Any:
    """All sums with this noise."""
    sums = [replace(each, mechanism=replace(each.mechanism, noise_multiplier=noise_multiplier)) for each in attack.sums]
    return replace(attack, sums=sums)


def test_an_owners_records_that_are_not_averaged_are_caught() -> None:
    attack = of_sums.dp_kps("gaussian", of_sums.OWNER, BUDGET)
    counts, histogram, by_column = attack.sums
    added, added_by_column = (
        replace(each, query=not_shared(type(each.query))(**vars(each.query))) for each in (histogram, by_column)
    )
    assert caught(replace(attack, sums=[counts, added, added_by_column]), runs=600)


class EveryColumnsTerms(ColumnTermHistogram):
    """Every term of a record counts fully, in the block of each column."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        return super().of_batch(batch) * self.rows.terms_per_record


def test_phrases_by_columns_that_share_no_weight_are_caught() -> None:
    attack = of_sums.dp_kps("gaussian", Unit(), BUDGET)
    *others, by_column = attack.sums
    added = EveryColumnsTerms(**vars(by_column.query))
    assert caught(replace(attack, sums=[*others, replace(by_column, query=added)]), runs=1_000)


# -- dp-kde -----------------------------------------------------------------------------------------------------------


class SummedFeatures(TermDensity):
    """The features of a record's terms are added up, as printed, and not averaged."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        return super().of_batch(batch) * self.rows.terms_per_record


class Reversed(PrefixDensity):
    """The first terms in both orders, each at full weight."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        return 2 * super().of_batch(batch)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_a_density_of_summed_features_is_caught(noise: NoiseKind) -> None:
    assert caught(twin(of_sums.one_sum("density", noise, BUDGET), SummedFeatures))


def test_a_density_of_several_sequences_of_a_record_is_caught() -> None:
    assert caught(twin(of_sums.one_sum("prefixes", "gaussian", BUDGET), Reversed))


def test_densities_that_each_spend_the_whole_budget_are_caught() -> None:
    (whole,) = of_sums.one_sum("density", "gaussian", LOUD).sums
    assert caught(with_multiplier(of_sums.dp_kde("gaussian", Unit(), LOUD), whole.mechanism.noise_multiplier))


def test_charged_metrics_that_forget_a_block_are_caught() -> None:
    """Noise for one block of counts, where a record is in each."""
    attack = of_sums.charged_metrics(Unit(), BUDGET)
    one = Sensitivity.of_counts(1, grid=attack.sums[0].query.sensitivity.grid)
    assert caught(twin(attack, stating(MetricCounts, one)))


# -- aug-pe -----------------------------------------------------------------------------------------------------------


class WholeVotes(VoteHistogram):
    """k whole votes per record."""

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        return np.rint(super().of_batch(batch) * math.sqrt(self.spec.nearest)).astype(np.int64)


def test_votes_that_are_not_split_among_the_nearest_are_caught() -> None:
    assert caught(twin(of_sums.aug_pe(1, Unit(), LOUD), WholeVotes))


# Candidates of words that nobody but the canary writes.
PROBES = ("zorvex quil", "zorvex brandle quil")


def of_texts(texts: Sequence[str]) -> Block:
    vectors = integer_vectors(WordEmbedder().embed(texts))
    return Block(vectors, np.zeros(len(texts), dtype=np.int32), np.arange(len(texts)))


def probed() -> of_sums.SumAttack:
    """The audit of ``votes`` with texts: nonsense words in two candidates and in one record, and an embedder."""
    others = ("a cough and a burn", "the weather is fine")
    candidates = of_texts(["a cough", "fine weather", *PROBES])
    (planned,) = of_sums.aug_pe(1, Unit(), LOUD).sums
    query = VoteHistogram(VotesSpec(Unit(), of_sums.NEAREST), candidates.vectors, candidates.labels)
    data = [of_sums.InMemory([of_texts([*others, *canary])]) for canary in ((), ("zorvex brandle",))]
    return of_sums.SumAttack([replace(planned, query=query)], *data, of_sums.aug_pe(1, Unit(), LOUD).claim)


def test_nonsense_words_in_candidates_see_all_of_a_record_and_no_more_than_its_noise_allows() -> None:
    attack = probed()
    absent, present = (exact_sum(attack.sums[0].query, data) for data in (attack.absent, attack.present))
    moved = present - absent
    assert moved[:2].tolist() == [0, 0]
    assert moved[2:].min() > 0
    assert np.linalg.norm(moved) == pytest.approx(COUNT_GRID, rel=1e-3)  # as far as the worst record of the audit
    assert not caught(attack)


def test_votes_without_the_noise_that_is_charged_are_caught_by_nonsense_words() -> None:
    assert audited(replace(probed(), source=Less(0))).violated
    assert caught(twin(probed(), WholeVotes))


class VotesOfEachLabel(VoteHistogram):
    """An owner's votes are normalised in each label, and not together."""

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        total = np.zeros(self.shape, dtype=np.int64)
        for label in np.unique(self.labels):
            here = batch.labels == label
            total += super().of_batch(Block(batch.vectors[here], batch.labels[here], batch.units[here]))
        return total


def test_an_owners_votes_that_are_normalised_label_by_label_are_caught() -> None:
    assert caught(twin(of_sums.aug_pe(1, of_sums.OWNER, LOUD), VotesOfEachLabel))


def test_rounds_with_the_noise_of_one_are_caught() -> None:
    attack, one = of_sums.aug_pe(3, Unit(), BUDGET), of_sums.aug_pe(1, Unit(), BUDGET)
    assert caught(with_multiplier(attack, one.sums[0].mechanism.noise_multiplier))


def test_votes_of_secrets_that_count_one_record_where_three_hold_the_secret_are_caught() -> None:
    attack = of_sums.aug_pe(1, Unit("secret", 3), BUDGET)
    (group,) = attack.sums
    assert group.records_per_unit == 3
    assert group.mechanism.sensitivity == group.query.sensitivity.times(3)
    one = replace(attack, sums=[replace(group, records_per_unit=1)])
    assert caught(query_replaced(one, group.query), runs=600)


# -- sec-pe -----------------------------------------------------------------------------------------------------------


class TwoStatistics(ClusterSums):
    """Sizes and centres from one draw, each at the noise of one alone: the square root of two is left out."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        each = [ClusterSums(self.spec, self.clusters, self.embedder, self.clip, share) for share in (1e-9, 1 - 1e-9)]
        return each[0].of_batch(batch) + each[1].of_batch(batch)


def test_two_statistics_at_the_noise_of_one_are_caught() -> None:
    attack = of_sums.sec_pe(LOUD, rate=1.0, records=1)
    (planned,) = attack.sums
    assert caught(replace(attack, sums=[replace(planned, query=TwoStatistics(**vars(planned.query)))]))


def test_the_noise_for_one_record_where_up_to_three_are_drawn_is_caught() -> None:
    attack = of_sums.sec_pe(BUDGET, rate=0.5, records=3)
    one: Any = of_sums.sec_pe(BUDGET, rate=1.0, records=1).sums[0].mechanism
    (planned,) = attack.sums
    less = replace(planned, mechanism=replace(planned.mechanism, noise_multiplier=one.noise_multiplier))
    assert caught(replace(attack, sums=[less]), runs=5_000)


def test_two_releases_with_the_noise_of_one_are_caught() -> None:
    attack = of_sums.sec_pe(LOUD, rate=1.0, records=1, releases=2)
    assert caught(replace(attack, sums=[*of_sums.sec_pe(LOUD, rate=1.0, records=1).sums] * 2), runs=2_500)


# -- typed columns ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AsOneHistogram(Marginals):
    """All histograms with the noise of one, and each record counted fully in each."""

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_counts(1)

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        return Marginals(replace(self.spec, steps=())).of_batch(batch)


@pytest.mark.parametrize(("broken", "unit"), [(AsOneHistogram, Unit()), (not_shared(Marginals), of_sums.OWNER)])
def test_histograms_that_move_further_than_they_state_are_caught(broken: Any, unit: Unit) -> None:
    attack = of_sums.columns(unit, LOUD)
    pairs = attack.sums[-1]
    alone = replace(attack, sums=[pairs], claim=Claim((pairs.mechanism.event,), 1e-6))
    real: Any = pairs.query
    assert not caught(query_replaced(alone, real), runs=600)
    assert caught(query_replaced(alone, broken(real.spec)))


# -- the guide --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeansOfLabels(GuideSums):
    """The mean over a label's records, times a declared number: the noise is that of a sum over so many."""

    declared: int = 20

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        records = np.bincount(batch.labels, minlength=self.spec.rows)
        return super().of_batch(batch) * self.declared // np.maximum(records, 1)[:, None]


def test_means_of_a_labels_records_are_caught() -> None:
    attack = of_sums.guide(Unit(), BUDGET)
    assert caught(twin(attack, MeansOfLabels), runs=600)


@dataclass(frozen=True)
class Longer:
    """An embedder whose vectors are of another length."""

    embedder: Any
    length: float
    model_id = "longer"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.float32(self.length) * self.embedder.embed(texts)


class AsTheyAre(GuideSums):
    """Vectors are summed as the embedder answers."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        sums = np.zeros(self.shape, dtype=np.int64)
        vectors = VECTOR_WEIGHT * self.embedder.embed(batch.texts).astype(np.float64)
        vectors = np.hstack([np.full((len(vectors), 1), COUNT_WEIGHT), vectors])
        np.add.at(sums, batch.labels, np.trunc(vectors * GRID / batch.shares[:, None]).astype(np.int64))
        return sums


@pytest.mark.parametrize(("kind", "wrong"), [(GuideSums, False), (AsTheyAre, True)])
@pytest.mark.parametrize("length", [1.0, 1.09, 3.0])
def test_vectors_that_are_not_brought_to_length_1_are_caught(kind: Any, wrong: bool, length: float) -> None:
    """Nine percent of length are too few to be caught by so many runs; the real query brings them to length 1."""
    attack = of_sums.guide(Unit(), BUDGET)
    longer = Longer(attack.sums[0].query.embedder, length)
    assert caught(twin(attack, kind, embedder=longer), runs=600) is (wrong and length == 3.0)


def rows_of_declared(_data: Any) -> int:
    """The rows of the sum are those of the declared labels."""
    return int(of_sums.guide(Unit(), BUDGET).sums[0].query.shape[0])


def rows_of_found(data: Any) -> int:
    """There is a row where there is a record."""
    return len({label for batch in data.batches() for label in batch.labels.tolist()})


@pytest.mark.parametrize(("rows", "wrong"), [(rows_of_declared, False), (rows_of_found, True)])
def test_labels_that_are_taken_from_the_data_are_caught(rows: Any, wrong: bool) -> None:
    """The unit's record is the only one of its label; who sees the sums sees how many there are."""
    others = [of_sums.Row("a burn", 1)]
    data = {
        "absent": of_sums.corpus(others, Unit()),
        "present": of_sums.corpus([of_sums.Row("an ache"), *others], Unit()),
    }
    attack = replace(of_sums.guide(Unit(), BUDGET), source=InsecureSeededNoise(0), **data)
    assert audited(SeenBeside(attack, rows)).violated is wrong


class RowsOfFound(GuideSums):
    """Rows of nothing are left out."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        return super().of_batch(batch)[np.unique(batch.labels)]


def test_sums_whose_rows_follow_from_the_data_are_refused_before_noise_is_added() -> None:
    with pytest.raises(PrivacyError, match="shape"):
        exact_sum(
            RowsOfFound(**vars(of_sums.guide(Unit(), BUDGET).sums[0].query)),
            of_sums.corpus([of_sums.Row("a burn", 1)], Unit()),
        )


def test_records_that_are_sampled_more_often_than_is_charged_are_caught() -> None:
    attack = of_sums.sampled_guide(Unit(), BUDGET, rate=0.1)
    (planned,) = attack.sums
    more = replace(attack, sums=[replace(planned, mechanism=replace(planned.mechanism, rate=0.5))])
    assert not caught(attack)
    assert caught(more, runs=2_500)


@pytest.mark.parametrize("unit", [Unit(), of_sums.OWNER], ids=["record", "owner"])
def test_topics_of_units_that_are_sampled_more_often_than_is_charged_are_caught(unit: Unit) -> None:
    """What a sum over another sample than the others is charged: tests/privacy/test_sample.py."""
    attack = of_sums.sampled_topics(unit, BUDGET, rate=0.1)
    assert not caught(attack)
    assert caught(replace(attack, mechanism=replace(attack.mechanism, rate=0.5)), runs=3_000)


class SharesOfEachLabel(GuideSums):
    """A guide per label, each of sensitivity 1 and all of them under one charge: an owner weighs 1 in each."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        lies_in = batch.units * self.spec.rows + batch.labels
        return super().of_batch(replace(batch, shares=np.bincount(lies_in)[lies_in]))


def test_an_owners_records_that_are_averaged_label_by_label_are_caught() -> None:
    attack = of_sums.guide(of_sums.OWNER, LOUD)
    others = [of_sums.Row("a cough", 0), of_sums.Row("a burn", 1)]
    mine = [of_sums.Row("an ache", 0, "Ann"), of_sums.Row("a burn", 1, "Ann"), of_sums.Row("the burn", 1, "Ann")]
    attack = replace(
        attack, absent=of_sums.corpus(others, of_sums.OWNER), present=of_sums.corpus([*others, *mine], of_sums.OWNER)
    )
    assert not caught(twin(attack, GuideSums))
    assert caught(twin(attack, SharesOfEachLabel))


# -- private prediction -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clipping", ["recenter", "fixed"])
def test_a_clip_range_wider_than_charged_is_caught(clipping: Any) -> None:
    attack = models.private_tokens(clipping, BUDGET)
    assert not caught(attack)
    wider = replace(attack.sums, clip=2 * attack.sums.clip, grid=2 * attack.sums.grid)
    assert caught(replace(attack, sums=wider))


class ActualSize(TokenSums):
    """The mean over the rows that happen to be there."""

    def over(self, contexts: Any, candidates: Any, divisors: Any = None) -> Sums:
        sums, rows = super().over(contexts, candidates, divisors), max(1, len(contexts) - 1)
        return replace(sums, clipped=np.rint(sums.clipped * 20 / rows).astype(np.int64))


def test_a_mean_over_the_actual_number_of_rows_is_caught() -> None:
    """Declared are twenty rows; there are none but the unit's and one other."""
    attack = models.private_tokens("recenter", BUDGET, batch_size=20)
    assert not caught(attack, runs=600)
    assert caught(replace(attack, sums=ActualSize(**vars(attack.sums))), runs=600)


class NotDivided(TokenSums):
    """An owner's rows weigh one each."""

    def over(self, contexts: Any, candidates: Any, divisors: Any = None) -> Sums:
        return super().over(contexts, candidates)


def test_an_owners_rows_that_are_not_divided_are_caught() -> None:
    attack = models.private_tokens("recenter", BUDGET, rows=3)
    assert caught(replace(attack, sums=NotDivided(**vars(attack.sums))), runs=600)


class EqualNoise(InsecureSeededNoise):
    """No more noise on a distance of the sparse vector than on its threshold."""

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        return super().draw(kind, scale=2 * TokenTest.grid / float(BUDGET.epsilon), size=size)


def test_a_sparse_vector_with_equal_noise_on_distances_and_threshold_is_caught() -> None:
    assert audited(replace(models.token_test(BUDGET), source=EqualNoise(0)), runs=25_000).violated


# -- few-shot ---------------------------------------------------------------------------------------------------------


class WithoutRoot(InsecureSeededNoise):
    """Noise for a vector that moves by 1, where two distributions are the square root of 2 apart."""

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        return super().draw(kind, scale=scale / math.sqrt(2), size=size)


def test_subsets_without_the_square_root_of_two_are_caught() -> None:
    attack = models.few_shot("gaussian", LOUD, rate=1.0, tokens=2)
    assert audited(replace(attack, source=WithoutRoot(0)), runs=5_000).violated


class Everybody(InsecureSeededNoise):
    """The sample is everybody."""

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.ones(len(rates), dtype=np.bool_)


@pytest.mark.parametrize(("noise", "runs"), [("gaussian", 250), ("votes", 2_400)])
def test_a_sample_of_everybody_is_caught(noise: Any, runs: int) -> None:
    attack = models.few_shot(noise, BUDGET, rate=0.1, tokens=1)
    assert not caught(attack, runs=600)
    assert audited(replace(attack, source=Everybody(0)), runs=runs).violated


def ordered(sample: Sample, *, subsets: int, most: int) -> list[NDArray[np.int64]]:
    """An ordered sample, cut into equal parts: one record more moves all that follow."""
    return [part[:most] for part in np.array_split(np.flatnonzero(sample.included), subsets)]


def test_an_ordered_sample_cut_into_subsets_is_caught() -> None:
    """Records say the first and the second token in turn; one more before them, and each subset begins with another."""
    attack = models.few_shot("gaussian", BUDGET, rate=1.0, tokens=2)
    says = {True: (99.0, 0.0), False: (0.0, 99.0)}
    wide: SubsampledTokens = replace(attack.mechanism, subsets=6)
    others = [says[number % 2 == 1] for number in range(11)]
    shifted = replace(attack, mechanism=wide, others=others)
    assert not caught(shifted, runs=600)
    assert caught(replace(shifted, deal=ordered), runs=600)


# -- dp-sgd -----------------------------------------------------------------------------------------------------------


def steps_of(mechanism: DPSGD, *, delta: float) -> Any:
    """The attack on steps that may have any noise, and what they promise at ``delta``: at a large one few runs show."""
    attack = models.dp_sgd(BUDGET, rate=mechanism.rate, steps=mechanism.steps)
    query: Any = attack.query
    claim = Claim((mechanism.event,), delta)
    return replace(attack, mechanism=mechanism, query=replace(query, mechanism=mechanism), claim=claim)


def steps_replaced(kind: type[ClippedGradients], *others: int, **settings: Any) -> tuple[Any, Any]:
    """The attack on two steps over all records, whose others have these tokens; and on a broken twin of the query."""
    attack = replace(models.dp_sgd(LOUD, rate=1.0, steps=2), others=[[token] for token in others])
    real: Any = attack.query
    return attack, replace(attack, query=kind(real.trainable, real.shapes, real.mechanism, **settings))


class ClippedAfterwards(ClippedGradients):
    """The sum is clipped, and not each example's gradient."""

    def of_batch(self, batch: Sequence[TokenRow]) -> NDArray[np.int64]:
        blocks = self.shapes.blocks(batch, device="cpu")
        gradients = sum(self.trainable.gradients(block)[:real].sum(0) for block, real in blocks)
        return clipped_sum(gradients[None], 1, clipping_norm=self.mechanism.clipping_norm, grid=self.mechanism.grid)


def test_a_sum_that_is_clipped_as_a_whole_is_caught() -> None:
    """The canary's gradient outweighs the other one, and turns the clipped sum round."""
    attack, broken = steps_replaced(ClippedAfterwards, models.OPPOSITE)
    assert not caught(attack, runs=600)
    assert caught(broken, runs=600)


class ClippedApart(ClippedGradients):
    """Each of two matrices is clipped to the whole norm."""

    def of_batch(self, batch: Sequence[TokenRow]) -> NDArray[np.int64]:
        sums = []
        for start in (0, 2):
            table = self.trainable.table.clone()  # type: ignore[attr-defined]
            table[:, :start] = table[:, start + 2 :] = 0
            one = ClippedGradients(type(self.trainable)(table), self.shapes, self.mechanism)  # type: ignore[call-arg]
            sums.append(one.of_batch(batch))
        return sums[0] + sums[1]


def test_matrices_that_are_clipped_apart_are_caught() -> None:
    attack, broken = steps_replaced(ClippedApart, models.OTHER)
    assert not caught(attack, runs=600)
    assert caught(broken)


@dataclass(frozen=True, repr=False)
class MeanOfSample(ClippedGradients):
    """The mean over the sample, times the declared size: the noise is that of a sum over so many."""

    declared: int = 20

    def of_batch(self, batch: Sequence[TokenRow]) -> NDArray[np.int64]:
        return super().of_batch(batch) * self.declared // len(batch)


def test_a_mean_over_the_actual_sample_is_caught() -> None:
    attack, broken = steps_replaced(MeanOfSample, models.OPPOSITE, models.OTHER)
    assert not caught(attack, runs=600)
    assert caught(broken, runs=600)


BLOCKS = 4


class DividedNoise(InsecureSeededNoise):
    """The noise is divided by the number of micro-batches, as gradients that are accumulated are."""

    def normal(self, size: int) -> NDArray[np.float64]:
        return super().normal(size) / BLOCKS


class NoisePerBlock(InsecureSeededNoise):
    """Each micro-batch has its share of the scale: together half of it."""

    def normal(self, size: int) -> NDArray[np.float64]:
        return np.sum([super(NoisePerBlock, self).normal(size) / BLOCKS for _ in range(BLOCKS)], axis=0)


@pytest.mark.parametrize(("source", "rate"), [(DividedNoise, 0.5), (NoisePerBlock, 1.0)])
def test_noise_that_is_shared_out_among_micro_batches_is_caught(source: Any, rate: float) -> None:
    attack = steps_of(models.dp_sgd(BUDGET, rate=rate, steps=3).mechanism, delta=0.05)
    assert not caught(attack, runs=600)
    assert audited(replace(attack, source=source(0)), runs=1_000).violated


class NothingForNobody(InsecureSeededNoise):
    """An empty sample has no noise."""

    empty = False

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        included = super().include(rates)
        self.empty = not included.any()
        return included

    def normal(self, size: int) -> NDArray[np.float64]:
        return np.zeros(size) if self.empty else super().normal(size)


def test_an_empty_sample_without_noise_is_caught() -> None:
    attack = replace(models.dp_sgd(BUDGET, rate=0.5, steps=1), others=[])
    assert not caught(attack, runs=600)
    assert audited(replace(attack, source=NothingForNobody(0))).violated


class Shuffled(InsecureSeededNoise):
    """Batches of one fixed size, gone through in a random order: every unit is in one of them for certain."""

    steps = 4
    asked = 0

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        units, step = len(rates), self.asked % self.steps
        if step == 0:
            self.order = self._generator.permutation(units)
        self.asked += 1
        return np.isin(np.arange(units), np.array_split(self.order, self.steps)[step])


def test_shuffled_batches_accounted_as_poisson_samples_are_caught() -> None:
    """With so little noise the canary is seen where it is sampled. Poisson samples miss it in a third of all runs, so
    little is promised at a delta near two thirds; shuffled batches never miss it."""
    attack = replace(
        steps_of(DPSGD(0.25, rate=0.25, steps=4, clipping_norm=1.0), delta=0.6), others=[[models.OTHER]] * 3
    )
    assert not caught(attack, runs=300)
    assert audited(replace(attack, source=Shuffled(0)), runs=1_000).violated


class SampledOnce(InsecureSeededNoise):
    """All steps of a run share one sample."""

    steps = 30
    asked = 0

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        if self.asked % self.steps == 0:
            self.kept = super().include(rates)
        self.asked += 1
        return self.kept


def test_steps_that_share_one_sample_are_caught() -> None:
    attack = steps_of(DPSGD(1.5, rate=0.1, steps=SampledOnce.steps, clipping_norm=1.0), delta=0.01)
    assert not caught(attack, runs=200)
    assert audited(replace(attack, source=SampledOnce(0)), runs=1_700).violated


def test_everybody_in_place_of_a_sample_of_gradients_is_caught() -> None:
    attack = models.dp_sgd(BUDGET, rate=0.1, steps=1)
    assert not caught(attack, runs=600)
    assert audited(replace(attack, source=Everybody(0)), runs=600).violated


class EveryRecord(ClippedGradients):
    """A sampled owner shows all records, and not one of them."""

    def of_batch(self, batch: Sequence[TokenRow]) -> NDArray[np.int64]:
        return super().of_batch([row for row in batch for _ in range(3 if row.target[0] == models.CANARY else 1)])


def test_an_owner_who_shows_all_records_is_caught() -> None:
    attack = models.dp_sgd(BUDGET, rate=0.5, steps=1, records=3)
    real: Any = attack.query
    assert caught(replace(attack, query=EveryRecord(real.trainable, real.shapes, real.mechanism)), runs=600)


# -- seq-pate ---------------------------------------------------------------------------------------------------------


class NoiseOfEach(InsecureSeededNoise):
    """Every teacher adds noise to its own answer, as printed: a share of it, so that the mean has the noise's scale."""

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        return np.sum(
            [super(NoiseOfEach, self).draw(kind, scale=scale / models.COUNT, size=size) for _ in range(models.COUNT)], 0
        )


class DividedTwice(InsecureSeededNoise):
    """The noise on the sum is that which the mean should have; then both are divided by the number of teachers."""

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        return super().draw(kind, scale=scale / models.COUNT, size=size)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_noise_on_teachers_or_on_their_mean_in_place_of_their_sum_is_caught(noise: NoiseKind) -> None:
    attack = models.seq_pate(BUDGET, queries=1, noise=noise)
    assert not caught(attack)
    assert audited(replace(attack, source=NoiseOfEach(0)), runs=3_000).violated
    assert audited(replace(attack, source=DividedTwice(0))).violated


EPOCHS = 5


def test_noise_that_is_sampled_anew_in_every_epoch_under_one_charge_is_caught() -> None:
    attack = models.seq_pate(BUDGET, queries=4)
    assert caught(replace(attack, sums=attack.sums * EPOCHS))
    events = tuple(each.mechanism.event for each in attack.sums) * EPOCHS
    assert Composition(events).epsilon(1e-6) == pytest.approx(7.5, abs=0.1)


class OneAnswer(TeacherAnswers):
    """Noise for a vector that moves by 1, however many questions there are."""

    @property
    def sensitivity(self) -> Sensitivity:
        return replace(Sensitivity.of_counts(1), l1=super().sensitivity.l1)


def test_noise_for_one_answer_of_length_1_is_caught() -> None:
    attack = models.seq_pate(BUDGET, queries=4)
    assert caught(query_replaced(attack, OneAnswer(AnswersSpec(4, None), models.faculty(), models.questions(4))))


class Unnormalised(TeacherAnswers):
    """Each candidate has a probability of its own: they add up to more than 1."""

    def _of(self, read: Any, candidates: NDArray[np.int32], real: int) -> NDArray[np.int64]:
        beside = [np.stack([tokens, 0 * tokens], axis=1) for tokens in candidates.T]
        return np.stack([super(Unnormalised, self)._of(read, pairs, real)[:, 0] for pairs in beside], axis=1)


def test_answers_that_add_up_to_more_than_1_are_caught() -> None:
    """The unit's teacher likes all candidates alike, and more than any other token; all other teachers like none."""
    alike, spec = models.questions(1, (1, 3, 5, 7, 9, 11)), AnswersSpec(1, None)
    attack = models.seq_pate(LOUD, queries=1)
    (planned,) = attack.sums
    wide = replace(planned, mechanism=replace(planned.mechanism, shape=alike.candidates.shape))
    attack = replace(attack, sums=[wide])
    assert not caught(query_replaced(attack, TeacherAnswers(spec, models.faculty(), alike)), runs=500)
    assert caught(query_replaced(attack, Unnormalised(spec, models.faculty(), alike)))


class ByRowNumber(Teachers):
    """Records are cut into equal parts in the order of the file."""

    @property
    def _shards(self) -> Any:
        batches = self.corpus.batches()
        texts = [each for batch in batches for each in zip(batch.texts, batch.labels.tolist(), strict=True)]
        rows = [self.faculty.tuned.row(text, label) for text, label in texts]
        return [[rows[each] for each in part] for part in np.array_split(np.arange(len(rows)), self.count)]


class ByRecord(Teachers):
    """An owner's records are in shards of their own hashes."""

    @property
    def _shards(self) -> Any:
        records = replace(self.corpus, unit=Unit())
        return Teachers(self.faculty, self.count, records, self.folder)._shards


# Cut into five parts, four of them turn their teachers; with one text before them, two do.
NINE = [f"{models.TURNED if number in (3, 4, 7, 8) else 'a'} note {number}" for number in range(9)]


@pytest.mark.parametrize(
    ("kind", "unit", "others", "mine"),
    [
        (ByRowNumber, Unit(), NINE, ["a note"]),
        (ByRecord, of_sums.OWNER, ["a note"], [f"{models.TURNED} by note {number}" for number in range(3)]),
    ],
)
def test_a_unit_that_changes_more_than_one_shard_is_caught(
    kind: Any, unit: Unit, others: Sequence[str], mine: Sequence[str]
) -> None:
    absent = [of_sums.Row(text) for text in others]
    present = [*(of_sums.Row(text, owner="Ann") for text in mine), *absent]
    attack = models.seq_pate(BUDGET, queries=4)
    for shards, wrong in ((Teachers, False), (kind, True)):
        both = {"absent": models.trained(absent, unit, shards), "present": models.trained(present, unit, shards)}
        assert caught(replace(attack, **both), runs=1_000) is wrong


@dataclass(frozen=True)
class SeenBeside:
    """An attack that also looks at what is released as it is."""

    attack: Any
    released: Any

    @property
    def claim(self) -> Any:
        return self.attack.claim

    def scores(self, runs: int, *, present: bool) -> NDArray[np.float64]:
        seen = self.released(self.attack.present if present else self.attack.absent)
        like_present = np.array_equal(seen, self.released(self.attack.present))
        like_absent = np.array_equal(seen, self.released(self.attack.absent))
        return self.attack.scores(runs, present=present) + 100.0 * (int(like_present) - int(like_absent))


def of_student(_groups: of_sums.InMemory) -> NDArray[np.int32]:
    """What the questions are about follows from public texts and released values."""
    return models.questions(4).candidates


def of_teachers(groups: of_sums.InMemory) -> NDArray[np.int64]:
    """What any teacher finds likely."""
    return np.unique([weights > 0 for each in groups.parts for weights in each.weights[: each.real]])


@pytest.mark.parametrize(("candidates", "wrong"), [(of_student, False), (of_teachers, True)])
def test_candidates_that_teachers_choose_are_caught(candidates: Any, wrong: bool) -> None:
    attack = replace(models.seq_pate(BUDGET, queries=4), source=InsecureSeededNoise(0))
    assert audited(SeenBeside(attack, candidates)).violated is wrong
