"""The release of DP-KPS on small corpora in memory, and the sampling from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from doors import MemoryStore, door_of
from numpy.typing import NDArray
from tiny_corpora import LABELS, RECORD, WORDS, Row, bounded

from understudy.base.errors import ConfigError
from understudy.methods.base import Released, ReleaseTools
from understudy.methods.dp_kps import release as releasing
from understudy.methods.dp_kps.generate import released_noise, sample_sequences, sampling_scores, unwanted_terms
from understudy.methods.dp_kps.method import DPKPS
from understudy.methods.dp_kps.plan import DPKPSParameters, known_noise
from understudy.methods.dp_kps.plan import verdict as judged
from understudy.methods.dp_kps.release import noise_check
from understudy.methods.facts import PublicFacts
from understudy.privacy.events import GaussianEvent, PureEvent
from understudy.privacy.guarantee import Budget
from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseSource, SystemNoise
from understudy.privacy.plan import Receipt
from understudy.privacy.unit import Unit
from understudy.release.statement import Statement
from understudy.schema.labels import LabelSet
from understudy.text.vocabulary.shrinkage import KnownNoise, sure_terms
from understudy.text.vocabulary.terms import is_telling

BUDGET = Budget(6, "1e-6")
NAMES = LabelSet(tuple("abc"[:LABELS]))
ROWS = [Row(" ".join([WORDS[n % 12], WORDS[n % 5], WORDS[n % 3]]), n % LABELS, f"owner {n % 7}") for n in range(60)]
MODES: dict[str, dict[str, Any]] = {"gaussian": {}, "laplace": {"noise": "laplace"}}
modes = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def vocabulary(tmp_path: Path) -> str:
    path = tmp_path / "vocabulary.txt"
    path.write_text("\n".join([*WORDS, "never", "seen"]))
    return str(path)


def method(vocabulary: str, **parameters: Any) -> DPKPS:
    small = {"top_terms": 12, "terms_per_record": 4, "length": 3, "stop_words": "none"}
    return DPKPS(vocabulary=vocabulary, vocabulary_is_public=True, **{**small, **parameters})


def release(
    chosen: DPKPS,
    rows: Sequence[Row] = ROWS,
    *,
    unit: Unit = RECORD,
    noise: NoiseSource | None = None,
    budget: Budget = BUDGET,
    receipt: Receipt | None = None,
    store: MemoryStore | None = None,
) -> Released:
    plan = chosen.plan(budget, PublicFacts(unit, NAMES))
    tools = ReleaseTools(
        labels=NAMES, door=door_of(plan, noise or InsecureNoNoise(), store=store, receipt=receipt), seed=0
    )
    return chosen.release(bounded(rows, unit), plan, tools)


def sequences(
    chosen: DPKPS, arrays: Any, counts: Sequence[int], *, seed: int = 0, sampling_seed: int = 0, std: float = 0.0
) -> list[NDArray[np.int64]]:
    """Sequences of a Release whose scores have noise of this standard deviation."""
    noise = KnownNoise(chosen.noise, std)
    return sample_sequences(chosen, arrays["density"], counts, seed=seed, sampling_seed=sampling_seed, noise=noise)


def words_of(sequence: Sequence[int]) -> list[int]:
    """The terms of one, which stand before the padding and are distinct."""
    terms = [term for term in sequence if term >= 0]
    assert list(sequence) == terms + [-1] * (len(sequence) - len(terms))
    assert len(set(terms)) == len(terms) >= 1
    return terms


class OneStep(NoiseSource):
    """Adds one grid step everywhere and notes the shapes."""

    origin: Any = "none"

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def draw(self, kind: str, *, scale: float, size: int) -> NDArray[np.int64]:
        self.sizes.append(size)
        return np.ones(size, dtype=np.int64)


def test_without_noise_the_histogram_is_exact(vocabulary: str) -> None:
    made = release(method(vocabulary, noise="laplace"))
    exact = np.zeros((LABELS, 12))
    for row in ROWS:
        distinct = list(dict.fromkeys(row.text.split()))
        for word in distinct:
            exact[row.label, made.terms.index(word)] += 1 / len(distinct)
    assert np.allclose(made.arrays["density"], exact, atol=1e-4)
    assert np.allclose(made.arrays["counts"], exact.sum(axis=0), atol=1e-4)
    assert np.all(np.diff(made.arrays["counts"]) <= 0)
    assert set(made.terms) <= set(WORDS)


def test_without_noise_a_gaussian_histogram_weighs_by_the_root(vocabulary: str) -> None:
    made = release(method(vocabulary), [Row(" ".join(WORDS[:4]), 1)])
    assert np.allclose(np.linalg.norm(made.arrays["density"]), 1, atol=1e-5)
    assert np.allclose(sorted(made.arrays["density"][1])[-4:], 0.5, atol=1e-5)


@modes
def test_every_coordinate_of_every_release_gets_noise(vocabulary: str, mode: str) -> None:
    noise = OneStep()
    made = release(method(vocabulary, **MODES[mode]), [], noise=noise)
    assert noise.sizes == [14, made.arrays["density"].size]
    assert np.all(made.arrays["density"] > 0)
    assert np.all(made.arrays["counts"] > 0)


@modes
@pytest.mark.parametrize("rows", [[], [Row("", 0)], [Row("junk", 2)], ROWS[:1]], ids=["none", "empty", "junk", "one"])
def test_any_corpus_gives_a_release_of_the_same_shape(vocabulary: str, mode: str, rows: list[Row]) -> None:
    chosen = method(vocabulary, **MODES[mode])
    made, full = release(chosen, rows, noise=SystemNoise()), release(chosen, noise=SystemNoise())
    assert {name: array.shape for name, array in made.arrays.items()} == {
        name: array.shape for name, array in full.arrays.items()
    }
    assert len(made.terms) == len(set(made.terms)) == 12
    for std in (0.0, 1.0):
        sampled = sequences(chosen, made.arrays, [4, 0, 2], sampling_seed=1, std=std)
        assert [rows.shape for rows in sampled] == [(4, 3), (0, 3), (2, 3)]
        assert all(words_of(row) for rows in sampled for row in rows.tolist())


def test_a_label_of_which_there_is_no_record_runs_like_any_other(vocabulary: str) -> None:
    chosen = method(vocabulary)
    made = release(chosen, [row for row in ROWS if row.label != 1])
    assert not made.arrays["density"][1].any()
    sampled = sequences(chosen, made.arrays, [60] * LABELS, sampling_seed=1)
    assert [{len(words_of(row)) for row in rows.tolist()} for rows in sampled] == [{3}, {1}, {3}]
    assert len(set(sampled[1][:, 0])) > 6, "of all terms alike, since none of them is known to be the label's"


@modes
def test_a_kept_value_is_used_and_never_sampled_again(vocabulary: str, mode: str) -> None:
    """The second run's charges are used up: everything it needs is stored."""
    chosen, store = method(vocabulary, **MODES[mode]), MemoryStore()
    plan = chosen.plan(BUDGET, PublicFacts(RECORD, NAMES))
    first = release(chosen, noise=SystemNoise(), store=store)
    used = Receipt("run", plan)
    for charge in plan.charges:
        used.pay(charge.name)
    again = release(chosen, noise=SystemNoise(), store=store, receipt=used)
    assert {name: seal.event for name, seal in store.seals.items()} == {each.name: each.event for each in plan.charges}
    assert list(first.terms) == list(again.terms)
    for name, array in first.arrays.items():
        assert np.array_equal(array, again.arrays[name])


@modes
def test_a_tiny_corpus_is_warned_about_and_a_large_one_is_not(vocabulary: str, mode: str) -> None:
    chosen = method(vocabulary, **MODES[mode], top_terms=12)
    few, many = (release(chosen, rows).noise_check for rows in (ROWS[:2], ROWS * 100))
    assert few.verdict is not None
    assert few.verdict.level == "noise"
    assert many.verdict is not None
    assert many.verdict.level == "good"
    assert many["vocabulary_terms_above_floor"] == 12


@modes
def test_words_that_as_many_records_have_as_the_verdict_says_survive(tmp_path: Path, mode: str) -> None:
    """And fewer than half of those in a third as many (the broken twin promises these), or of those that stand too late
    in long texts, as if the verdict named records that only contain a word."""
    names = [f"w{number}" for number in range(8_000)]
    (path := tmp_path / "vocabulary.txt").write_text("\n".join(names))
    chosen = DPKPS(vocabulary=str(path), vocabulary_is_public=True, stop_words="none", **MODES[mode])
    plan = chosen.plan(BUDGET, PublicFacts(RECORD, NAMES, 6_000))
    assert plan.forecast.verdict is not None
    least = int(plan.forecast.verdict.survives.split()[4].replace(",", ""))
    early = dict(zip(range(5_000, 5_040), [least] * 20 + [least // 3] * 20, strict=True))
    draw, texts = np.random.default_rng(0), [list[int]() for _ in range(1_500)]  # the first 1,000 have the label a
    for term, times in early.items():
        for place in draw.choice(1_000, times, replace=False):
            texts[place].append(term)
    for text in texts:
        text += draw.choice(300, 10, replace=False).tolist()
    for term in range(5_040, 5_060):
        for place in draw.choice(1_000, least, replace=False):
            texts[place].append(term)
    rows = [Row(" ".join(names[term] for term in text), int(n >= 1_000)) for n, text in enumerate(texts)]
    found = []
    for seed in range(2):
        made = release(chosen, rows, noise=InsecureSeededNoise(seed))
        assert made.noise_check.verdict is not None
        assert made.noise_check.verdict.survives == plan.forecast.verdict.survives
        scores = sampling_scores(
            made.arrays["density"], known_noise(chosen, plan.mechanism("density").noise_multiplier)
        )
        sure = sure_terms(scores, made.arrays["real"], np.full(len(made.arrays["density"]), True)).any(axis=0)
        kept = {made.terms[place] for place in np.flatnonzero(sure)}
        found.append([names[term] in kept for term in range(5_000, 5_060)])
    as_said, third, late = np.mean(np.reshape(found, (2, 3, 20)), axis=(0, 2))
    assert as_said >= 0.9
    assert third < 0.5
    assert late < 0.5


@pytest.mark.parametrize(("word", "language"), [("unsaid", ""), ("unknown", "en")])
def test_texts_of_many_rare_words_are_no_other_language(long_vocabulary: str, word: str, language: str) -> None:
    """Each word is too rare to be above the floor alone; together they are known."""
    rows = [Row(" ".join(f"{word}{(10 * row + place) % 900}" for place in range(10))) for row in range(500)]
    made = release(method(long_vocabulary, top_terms=None, terms_per_record=10), rows, noise=InsecureSeededNoise(0))
    assert made.noise_check["vocabulary_terms_above_floor"] < 5
    assert made.noise_check.verdict is not None
    assert made.noise_check.verdict.unsaid_in == language


def test_owners_are_counted_who_have_a_word_in_each_text(vocabulary: str) -> None:
    facts = PublicFacts(Unit("owner", 3), NAMES, 100)
    found = method(vocabulary, top_terms=None).plan(BUDGET, facts).forecast.verdict
    assert found is not None
    assert found.survives.endswith("owners of a label or topic have among the first 4 vocabulary terms of each text")


def test_what_was_public_is_named_with_its_hash(vocabulary: str) -> None:
    made = release(method(vocabulary))
    assert made.public_inputs["vocabulary"]["source"] == "vocabulary.txt"
    assert len(made.public_inputs["vocabulary"]["sha256"]) == 64
    assert set(made.public_inputs) == {"vocabulary"}


@modes
def test_sampling_repeats_with_its_seed_and_changes_with_it(vocabulary: str, mode: str) -> None:
    chosen = method(vocabulary, **MODES[mode])
    arrays = release(chosen, noise=SystemNoise()).arrays

    def sample(seed: int) -> list[list[list[int]]]:
        return [rows.tolist() for rows in sequences(chosen, arrays, [20] * 3, sampling_seed=seed, std=1.0)]

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)
    assert all(words_of(row) for rows in sample(1) for row in rows)


def test_sequences_longer_than_what_was_released_are_one_clear_error(vocabulary: str) -> None:
    made = release(method(vocabulary))
    with pytest.raises(ConfigError, match="more terms than"):
        sequences(method(vocabulary, length=13, top_terms=13), made.arrays, [1] * 3)


def test_without_noise_each_labels_own_terms_are_sampled(vocabulary: str) -> None:
    order = np.random.default_rng(0).permutation
    rows = [Row(" ".join(order(WORDS[4 * (n % LABELS) : 4 * (n % LABELS) + 4])), n % LABELS) for n in range(600)]
    chosen = method(vocabulary)
    made = release(chosen, rows)
    for label, found in enumerate(sequences(chosen, made.arrays, [100] * 3)):
        own = [made.terms[term] in WORDS[4 * label : 4 * label + 4] for term in found.ravel()]
        assert np.mean(own) > 0.9


def planted(records: int = 3_000) -> list[Row]:
    """Each label has three terms of its own; the others of the vocabulary are in no record."""
    return [Row(" ".join(WORDS[3 * (n % LABELS) : 3 * (n % LABELS) + 3]), n % LABELS) for n in range(records)]


@pytest.fixture
def long_vocabulary(tmp_path: Path) -> str:
    path = tmp_path / "long.txt"
    path.write_text("\n".join([*WORDS, *(f"unsaid{number}" for number in range(3_000))]))
    return str(path)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_vocabulary_has_the_real_terms_and_room_for_uncertain_ones(long_vocabulary: str, noise: str) -> None:
    chosen = method(long_vocabulary, top_terms=None, noise=noise)
    made = release(chosen, planted(), noise=InsecureSeededNoise(0))
    assert set(made.terms[:9]) == set(WORDS[:9])
    assert len(made.terms) == len(made.arrays["counts"]) == made.arrays["density"].shape[1] == 300
    assert len(release(chosen, [], noise=InsecureSeededNoise(0)).terms) >= 300


def test_a_resumed_run_has_the_terms_that_it_had(long_vocabulary: str) -> None:
    chosen, store = method(long_vocabulary, top_terms=None), MemoryStore()
    first = release(chosen, planted(), noise=SystemNoise(), store=store)
    again = release(chosen, planted(), noise=SystemNoise(), store=store)
    assert list(first.terms) == list(again.terms)
    assert "terms" in store.arrays


def test_without_noise_a_vocabulary_of_unknown_size_is_what_was_said(long_vocabulary: str) -> None:
    chosen = method(long_vocabulary, top_terms=None)
    made = release(chosen, planted())
    assert set(made.terms[:9]) == set(WORDS[:9])
    assert len(made.terms) == 300
    assert not made.noise_check.warnings


def test_sequences_are_no_longer_than_a_labels_real_terms(long_vocabulary: str) -> None:
    """Terms that are chance are left out of its texts, whatever length was asked for."""
    chosen = method(long_vocabulary, top_terms=200, length=6)
    made = release(chosen, planted(), noise=InsecureSeededNoise(0))
    std = chosen.plan(BUDGET, PublicFacts(RECORD, NAMES)).mechanism("density").noise_std
    lengths = [
        {len(words_of(row)) for row in rows.tolist()} for rows in sequences(chosen, made.arrays, [50] * 3, std=std)
    ]
    assert all(max(each) <= 4 for each in lengths)
    lengths = [{len(words_of(row)) for row in rows.tolist()} for rows in sequences(chosen, made.arrays, [50] * 3)]
    assert lengths == [{3, 4, 5, 6}] * 3, "as if there were no noise"


@modes
def test_lengths_are_mixed_between_the_shortest_and_the_longest(vocabulary: str, mode: str) -> None:
    chosen = method(vocabulary, **MODES[mode], length=4, shortest=2)
    arrays = release(chosen, ROWS * 50).arrays
    lengths = [len(words_of(row)) for rows in sequences(chosen, arrays, [300] * 3) for row in rows.tolist()]
    assert np.all(np.abs(np.bincount(lengths, minlength=5)[2:] - 300) < 100)
    assert set(lengths) == {2, 3, 4}
    same = method(vocabulary, **MODES[mode], length=2, shortest=5)
    assert {len(words_of(row)) for rows in sequences(same, arrays, [9] * 3) for row in rows.tolist()} == {2}


def test_shrinkage_is_of_the_noise_that_the_statement_has() -> None:
    for parameters, event, std in (
        ({}, GaussianEvent(3.0), 3.0),
        ({"noise": "laplace"}, PureEvent(0.5), 2 * math.sqrt(2)),
    ):
        charges = [SimpleNamespace(name=name, event=event) for name in ("vocabulary", "density")]
        statement: Any = SimpleNamespace(charges=charges, sealed=SimpleNamespace(noise="system"))
        statement.noise_multiplier = partial(Statement.noise_multiplier, statement)
        found = released_noise(DPKPSParameters(**parameters), statement)
        assert found.std == pytest.approx(std)
        statement.sealed.noise = "none"
        assert released_noise(DPKPSParameters(**parameters), statement).std == 0


def test_without_noise_scores_are_what_was_released() -> None:
    found = np.array([[3.0, -1.0, 0.5]])
    posterior = sampling_scores(found, KnownNoise("gaussian", 0.0))
    assert posterior.mean.tolist() == found.tolist()
    assert posterior.probability.tolist() == [[1, 0, 1]]
    shrunk = sampling_scores(found, KnownNoise("gaussian", 2.0)).mean
    assert np.all((shrunk >= 0) & (shrunk < 3))


@pytest.mark.parametrize("few", [0, 3])
def test_labels_without_records_make_no_term_of_the_others_less_likely(
    vocabulary: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five of eight declared labels have no records, or few: the phrases and the verdict are those of three labels."""
    generator, noise = np.random.default_rng(5), KnownNoise("gaussian", 1.0)
    true = np.zeros((8, 2000))
    true[:3, :400] = np.geomspace(60, 2, 400)
    true[3:, :few] = 2.0
    scores = true + generator.normal(size=true.shape)
    every, three = sampling_scores(scores, noise), sampling_scores(scores[:3], noise)
    assert np.array_equal(every.probability[:3], three.probability)
    assert np.array_equal(every.mean[:3], three.mean)
    listed = np.where(true[0] > 0, 0.999, 0.3).tolist()
    for real in (listed, None):
        with_five, without = (sampled(each, real, [False] * 2000) for each in (scores, scores[:3]))
        assert [len(terms) for terms in with_five[:3]] == pytest.approx([len(terms) for terms in without], rel=0.1)
        assert real is None or sum(map(len, with_five[3:])) < 5 * (few + 2)
    checks, divided = [], list[int]()
    monkeypatch.setattr(
        releasing,
        "verdict",
        lambda *every, labels, **more: divided.append(labels) or judged(*every, labels=labels, **more),
    )
    for labels in (8, 3):
        facts = PublicFacts(Unit(), LabelSet(tuple("abcdefgh"[:labels])))
        plan = method(vocabulary).plan(Budget("3", "1e-6"), facts)
        scaled = scores[:labels] * plan.mechanism("density").noise_multiplier
        arrays = {"counts": np.full(2000, 1000.0), "density": scaled}
        checks.append(
            noise_check(DPKPSParameters(terms_per_record=4), arrays, plan, "system", listed=np.full(2000, 1000.0))
        )
    shares = [next(e.value for e in each.entries if e.name == "share_sampled_above_3_std") for each in checks]
    assert shares[0][:3] == pytest.approx(shares[1], abs=0.02)
    assert divided == [3, 3]


def sampled(scores: NDArray[np.float64], listed: Sequence[float] | None, unwanted: Sequence[bool]) -> list[set[int]]:
    """The terms in 200 sequences of each label, of scores with noise of standard deviation 1."""
    chosen = DPKPS(length=3)
    found = sample_sequences(
        chosen,
        scores,
        [200] * len(scores),
        seed=0,
        sampling_seed=0,
        noise=KnownNoise("gaussian", 1.0),
        listed=None if listed is None else np.array(listed),
        unwanted=np.array(unwanted),
    )
    return [set(rows.ravel().tolist()) - {-1} for rows in found]


def test_texts_for_people_have_sure_terms_alone_and_phrases_for_classifiers_uncertain_ones_too() -> None:
    scores = np.array([[40.0, 30, 2, 2, 25, 0], [2.0, 1, 35, 20, 25, 0], [0.5, -1, 1, 0, 0, 0.5]])
    listed, nothing = [1.0, 0.99, 0.99, 0.99, 0.0, 0.3], [False] * 6
    read = sampled(scores, listed, nothing)
    assert read[0] >= {0, 1}
    assert read[1] >= {2, 3}
    assert read[2] == set(), "a label without a sure term has no chance ones in their place"
    assert all(5 not in terms for terms in read)
    assert all(len(terms) >= 3 for terms in sampled(scores, None, nothing)[:2])
    assert sampled(scores, None, nothing)[2]


@pytest.mark.parametrize("listed", [None, [1.0] * 3])
def test_an_unwanted_term_is_used_only_where_texts_are_full_of_it(listed: Sequence[float] | None) -> None:
    scores = np.array([[1000.0, 900.0, 7.0], [1000.0, 900.0, 60.0]])
    assert sampled(scores, listed, [False, False, True]) == [{0, 1}, {0, 1, 2}]
    assert sampled(scores, listed, [False] * 3) == [{0, 1, 2}] * 2


@pytest.mark.parametrize("shortest", [1, 3])
def test_each_text_for_people_has_a_term_with_content_if_its_label_has_one(shortest: int) -> None:
    telling = np.array([is_telling(word) for word in ("know", "want", "looking", "guitar", "put", "strings")])
    scores = np.array([[90.0, 80, 90, 9, 70, 9], [90.0, 80, 70, 0, 60, 0]])

    def of(given: NDArray[np.bool_] | None) -> list[NDArray[np.int64]]:
        chosen = DPKPS(length=4, shortest=shortest)
        noise = KnownNoise("gaussian", 0.0)
        return sample_sequences(
            chosen, scores, [300] * 2, seed=0, sampling_seed=0, noise=noise, listed=np.ones(6), telling=given
        )

    def share(rows: NDArray[np.int64]) -> float:
        return float((telling[rows] & (rows >= 0)).any(axis=1).mean())

    before, found = of(None), of(telling)
    assert share(before[0]) < 0.9
    assert share(found[0]) == 1.0
    assert share(found[1]) == 0.0, "there is none"
    assert {3, 5} <= set(found[0].ravel().tolist())
    assert all(len(words_of(row)) >= min(shortest, 2) for rows in found for row in rows.tolist())


def test_terms_that_were_found_in_the_texts_are_sure(vocabulary: str) -> None:
    rows = [row._replace(text=f"{row.text} zebulon quagmire") for row in ROWS]
    made = release(method(vocabulary, discover_terms=0.3, top_terms=None), rows)
    real = dict(zip(made.terms, made.arrays["real"].tolist(), strict=True))
    assert real.pop("zebulon quagmire", None) == 1.0 or real["zebulon"] == 1.0
    assert real["never"] == real["seen"] == 0.0
    assert all(real[word] == 1.0 for word in WORDS[:12])


def test_unwanted_terms_are_those_of_the_texts_language_unless_they_are_allowed() -> None:
    terms = ["fever", "anal", "Arschloch"]
    assert unwanted_terms(DPKPSParameters(), terms).tolist() == [False, True, False]  # type: ignore[union-attr]
    assert unwanted_terms(DPKPSParameters(stop_words="de"), terms).tolist() == [False, True, True]  # type: ignore[union-attr]
    assert unwanted_terms(DPKPSParameters(allow_words=True), terms) is None
