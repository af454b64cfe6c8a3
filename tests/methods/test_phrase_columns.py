"""Phrases that depend on typed columns: what a record adds, what noise is planned, and which phrases rows get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from broken_twins import not_shared
from numpy.typing import NDArray
from tiny_corpora import OWNER, RECORD, WORDS, Row, bounded, movement, random_neighbours, with_cells

from understudy.base.errors import ConfigError
from understudy.corpus.bounding import BoundedBatch
from understudy.methods.dp_kps.lifts import Lifts, SequenceRows
from understudy.methods.dp_kps.plan import COLUMN_DENSITY, DPKPSParameters, make_plan, phrase_columns
from understudy.methods.facts import PublicFacts
from understudy.methods.shared.queries.counts import ColumnTermHistogram, weights_of_terms
from understudy.methods.shared.specs import TermHistogramSpec
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import exact_sum
from understudy.privacy.mechanisms import COUNT_GRID, Sensitivity
from understudy.privacy.unit import Unit
from understudy.schema.columns import declared_columns
from understudy.schema.labels import LabelSet
from understudy.text.records import Row as SampledRow
from understudy.text.records import Seed
from understudy.text.vocabulary.sampling import sample_independent
from understudy.text.vocabulary.shrinkage import KnownNoise
from understudy.text.vocabulary.words import TermMatcher

SIZES = (4, 2, 3)
COLUMNS = declared_columns("ward=A|B|C; night; beds=1..2")
NOISES = pytest.mark.parametrize("noise", ["gaussian", "laplace"])
UNITS = pytest.mark.parametrize("unit", [RECORD, OWNER], ids=["record", "owner"])


def query(noise: Any, kind: type[ColumnTermHistogram] = ColumnTermHistogram, places: Any = (0, 2)) -> Any:
    spec = TermHistogramSpec(noise, 4, len(WORDS), tuple(SIZES[place] for place in places))
    return kind(spec, TermMatcher(WORDS), columns=places)


def largest(asked: Any, unit: Unit, norm: str) -> float:
    pairs = random_neighbours(unit, pairs=150, seed=3)
    return max(movement(asked, pair, unit).of(norm) for pair in with_cells(pairs, SIZES))


# -- sensitivity ------------------------------------------------------------------------------------------------------


@NOISES
@UNITS
@pytest.mark.parametrize("places", [(0,), (0, 1, 2)])
def test_no_unit_moves_the_histograms_by_more_than_is_declared(noise: str, unit: Unit, places: Any) -> None:
    assert 0.97 < largest(query(noise, places=places), unit, noise) <= 1


class OneBlock(ColumnTermHistogram):
    """Broken: the sensitivity of one column for all of them."""

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_shared_weight(self.spec.noise, self.spec.terms_per_record)


class FullWeights(ColumnTermHistogram):
    """Broken: every term counts fully."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        assert batch.cells is not None
        rows, weights = self.rows.of(batch), COUNT_GRID // batch.shares
        places, cells = zip(self.columns, self.spec.blocks, strict=True), batch.cells
        return np.concatenate(
            [weights_of_terms((size, self.shape[1]), rows, cells[:, column], weights) for column, size in places]
        )


@NOISES
@pytest.mark.parametrize(
    ("kind", "unit"), [(OneBlock, RECORD), (FullWeights, RECORD), (not_shared(ColumnTermHistogram), OWNER)]
)
def test_broken_twins_move_by_more(kind: type[ColumnTermHistogram], unit: Unit, noise: str) -> None:
    assert largest(query(noise, kind), unit, noise) > 1.1


def test_each_column_has_a_block_of_its_cells() -> None:
    data = bounded([Row(f"{WORDS[0]} {WORDS[3]}", cells=(2, 0, 1)), Row(WORDS[3], cells=(2, 1, 0))])
    found = exact_sum(query("laplace"), data) / COUNT_GRID
    assert found.shape == (7, 12)
    assert {place: found[place].tolist() for place in range(7) if found[place].any()} == {
        2: [0.5, 0, 0, 1.5, *[0] * 8],
        4: [0, 0, 0, 1, *[0] * 8],
        5: [0.5, 0, 0, 0.5, *[0] * 8],
    }


# -- the plan ---------------------------------------------------------------------------------------------------------


@NOISES
@pytest.mark.parametrize("asked", ["all", "none", "night", "beds, ward"])
def test_the_charge_has_the_sensitivity_that_its_query_states(noise: Any, asked: str) -> None:
    """Or the release would be refused after its charge."""
    parameters = DPKPSParameters(noise=noise, length=2, top_terms=12, terms_per_record=4, phrase_columns=asked)  # type: ignore[arg-type]
    plan = make_plan(
        parameters, Budget(4, "1e-6"), PublicFacts(RECORD, LabelSet(("a", "b")), columns=COLUMNS), vocabulary_size=12
    )
    places = phrase_columns(parameters, COLUMNS)
    assert [COLUMNS[place].name for place in places] == {
        "all": ["ward", "night", "beds"],
        "none": [],
        "night": ["night"],
        "beds, ward": ["ward", "beds"],
    }[asked]
    assert plan.total == pytest.approx(4, rel=1e-5)
    assert (COLUMN_DENSITY in [charge.name for charge in plan.charges]) == bool(places)
    if places:
        own = ColumnTermHistogram(plan.query(COLUMN_DENSITY), TermMatcher(WORDS), columns=places)
        assert own.sensitivity == Sensitivity.of_shared_weight(noise, 4).in_blocks(len(places))
        assert own.shape == (sum(COLUMNS[place].size for place in places), 12)
        mechanism = plan.mechanism(COLUMN_DENSITY)
        assert (own.sensitivity, own.shape) == (mechanism.sensitivity, mechanism.shape)


@pytest.mark.parametrize(("records", "drowned"), [(200, "ward, night, beds"), (4_000, "beds"), (20_000, "")])
def test_a_plan_names_the_columns_that_noise_drowns(records: int, drowned: str) -> None:
    columns = declared_columns("ward=A|B; night; beds=1..60/60")
    facts = PublicFacts(RECORD, LabelSet(("a", "b")), columns=columns, expected_records=records)
    plan = make_plan(DPKPSParameters(), Budget(6, "1e-6"), facts, vocabulary_size=5_000)
    assert [f"Phrases by {drowned} would" in warning for warning in plan.forecast.warnings] == [True] * bool(drowned)


@pytest.mark.parametrize("asked", ["wing", "ward,", "all,ward", "", "id"])
def test_names_that_are_no_columns_are_refused(asked: str) -> None:
    with pytest.raises(ConfigError, match="is not a typed column"):
        phrase_columns(DPKPSParameters(phrase_columns=asked), COLUMNS)  # type: ignore[arg-type]


# -- lifts ------------------------------------------------------------------------------------------------------------


def noisy_scores(shares: NDArray[np.float64], *, std: float, seed: int = 0) -> NDArray[np.float64]:
    """Of terms with these shares under the cells of one column, of 500 records on average."""
    generator = np.random.default_rng(seed)
    exact = generator.poisson(500 * np.asarray(shares))
    return np.asarray(exact + generator.normal(0, std, exact.shape))


def test_a_column_that_says_nothing_of_terms_lifts_none() -> None:
    alike = np.repeat(np.random.default_rng(1).exponential(1, (1, 200)), 4, axis=0)
    lifts = Lifts.of(noisy_scores(alike, std=5), (4,), KnownNoise("gaussian", 5))
    assert lifts.spreads[0] < 0.05
    assert np.abs(lifts.logarithms).max() < 0.1


@pytest.mark.parametrize(("cells", "terms"), [(4, 200), (2, 1), (50, 300)])
def test_a_column_of_noise_alone_lifts_none(cells: int, terms: int) -> None:
    generator, found = np.random.default_rng(2), []
    for _ in range(50):
        noise = generator.normal(0, 30, (cells, terms))
        found.append(np.abs(Lifts.of(noise, (cells,), KnownNoise("gaussian", 30)).logarithms).max())
    assert np.mean(np.array(found) > 0.1) < 0.1


@pytest.mark.parametrize("std", [0.0, 5.0])
def test_terms_of_a_value_are_lifted_by_about_what_they_are(std: float) -> None:
    shares = np.ones((2, 100))
    shares[0, :10], shares[1, :10] = 1.6, 0.4
    lifts = Lifts.of(noisy_scores(shares, std=std), (2,), KnownNoise("gaussian", std))
    # the first column has more of all, and so less of the others
    assert np.exp(lifts.logarithms[0, :10]).mean() == pytest.approx(1.6 * 200 / (2 * 106), rel=0.06)
    assert np.exp(lifts.logarithms[1, :10]).mean() == pytest.approx(0.4 * 200 / (2 * 94), rel=0.15)


@pytest.mark.parametrize("scores", [np.zeros((3, 5)), np.full((3, 5), -7.0), np.full((3, 5), 1e30), np.zeros((3, 1))])
def test_any_scores_have_finite_lifts(scores: NDArray[np.float64]) -> None:
    for std in (0.0, 1e-9, 1e9):
        assert np.isfinite(Lifts.of(scores, (1, 2), KnownNoise("gaussian", std)).logarithms).all()


# -- rows and their sequences -----------------------------------------------------------------------------------------


class Alternating:
    """Rows of one column of two cells, in turn."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self, label: int) -> SampledRow:
        self.taken += 1
        return SampledRow((f"row {self.taken}",), "", numbers=(9, self.taken % 2))


LIFTS = Lifts(np.log([[3.0, 0.1, 1.0, 1.0], [0.1, 3.0, 1.0, 1.0]]).astype(np.float32), (1.0,), (2,))


def rows_of(counts: Sequence[int], power: float = 1.0) -> SequenceRows:
    return SequenceRows.take(Alternating(), counts, (1,), lifts=LIFTS, power=power)


@pytest.mark.parametrize("times", [1, 3])
def test_sequences_are_sampled_by_the_lifts_of_their_rows(times: int) -> None:
    rows, count = rows_of([0, 2000]), 2000 * times
    lifted = rows.log_lifts(times)[1]
    sampled = sample_independent(
        np.ones(4), length=1, count=count, generator=np.random.default_rng(0), log_lifts=lifted
    )[:, 0]
    cells = np.repeat(rows.places[1][:, 0], times)
    for cell in (0, 1):
        shares = np.bincount(sampled[cells == cell], minlength=4) / (count / 2)
        assert shares == pytest.approx(np.exp(LIFTS.logarithms[cell]) / 5.1, abs=0.06)


def test_rows_are_shared_out_among_sequences_that_are_there() -> None:
    """The sequences and the rows stay as they are; who goes with whom is sampled by the lifts."""
    seeds = [Seed((f"t{number % 4}",), label) for label, count in enumerate((401, 0, 400)) for number in range(count)]
    rows = rows_of([401, 0, 400])
    found = rows.shared_out(seeds, ["t0", "t1", "t2", "t3"], np.random.default_rng(0))
    assert [(seed.phrases, seed.label) for seed in found] == [(seed.phrases, seed.label) for seed in seeds]
    given = sorted(row.values for some in rows.rows for row in some)
    assert sorted(seed.row.values for seed in found if seed.row is not None) == given
    cells = Counter((seed.phrases[0], seed.row.numbers[1]) for seed in found if seed.row is not None)
    assert cells["t0", 0] / (cells["t0", 0] + cells["t0", 1]) == pytest.approx(3 / 3.1, abs=0.05)
    assert cells["t1", 1] / (cells["t1", 0] + cells["t1", 1]) == pytest.approx(3 / 3.1, abs=0.05)
    assert cells["t2", 0] / (cells["t2", 0] + cells["t2", 1]) == pytest.approx(0.5, abs=0.1)


def test_fewer_sequences_than_rows_get_one_each() -> None:
    found = rows_of([5]).shared_out([Seed((), 0), Seed(("t1",), 0)], ["t0", "t1"], np.random.default_rng(0))
    assert len({seed.row.values for seed in found if seed.row is not None}) == 2
    assert rows_of([5]).shared_out([], [], np.random.default_rng(0)) == []
