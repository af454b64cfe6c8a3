"""DP-KPS as published: its plan, its kernel densities, and the sequences that are sampled from them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doors import MemoryStore, door_of
from hypothesis import given
from hypothesis import strategies as st
from tiny_corpora import LABELS, RECORD, WORDS, HashEmbedder, Row, bounded

from understudy.base.errors import ConfigError, ModelError, ReleaseError
from understudy.methods.base import Preparation, Released, ReleaseTools
from understudy.methods.dp_kde.generate import Frequencies, density_scores, integer_features, sample_sequences
from understudy.methods.dp_kde.method import DPKDE
from understudy.methods.dp_kde.plan import GRID, densities, score_noise
from understudy.methods.facts import PublicFacts
from understudy.privacy.guarantee import Budget, gaussian_noise_multiplier
from understudy.privacy.noise import InsecureNoNoise, NoiseSource, SystemNoise
from understudy.privacy.plan import Plan
from understudy.schema.labels import LabelSet

BUDGET = Budget(6, "1e-6")
NAMES = LabelSet(tuple("abc"[:LABELS]))
# Each label has four words of its own, of which a record has three that follow one another in a ring.
ROWS = [Row(" ".join(WORDS[4 * (n % LABELS) + (n + step) % 4] for step in range(3)), n % LABELS) for n in range(60)]
TEXTS = HashEmbedder(32)


def plan(budget: Budget = BUDGET, **parameters: Any) -> Plan:
    return DPKDE(**parameters).plan(budget, PublicFacts(RECORD, NAMES, expected_records=10_000))


@pytest.fixture
def vocabulary(tmp_path: Path) -> str:
    (tmp_path / "terms.txt").write_text("\n".join([*WORDS, "never", "seen"]), "utf-8")
    return str(tmp_path / "terms.txt")


def method(vocabulary: str, **parameters: Any) -> DPKDE:
    small = {"top_terms": 12, "terms_per_record": 4, "length": 3, "stop_words": "none", "features": 3000}
    return DPKDE(vocabulary=vocabulary, vocabulary_is_public=True, **{**small, **parameters})


def release(chosen: DPKDE, noise: NoiseSource | None = None, rows: Any = ROWS, store: Any = None) -> Released:
    made = chosen.plan(BUDGET, PublicFacts(RECORD, NAMES))
    door = door_of(made, noise or InsecureNoNoise(), store=store)
    return chosen.release(bounded(rows), made, ReleaseTools(labels=NAMES, door=door, seed=0, embedder=TEXTS))


def sequences(chosen: DPKDE, made: Released, count: int = 2_000, sampling_seed: int = 0) -> list[list[list[str]]]:
    counts = [count] * LABELS
    sampled = sample_sequences(chosen, made.arrays, counts, seed=0, sampling_seed=sampling_seed)
    return [[[made.terms[term] for term in row] for row in rows.tolist()] for rows in sampled]


# -- the plan ---------------------------------------------------------------------------------------------------------


@given(
    epsilon=st.floats(0.05, 100),
    part=st.floats(0.01, 0.99),
    noise=st.sampled_from(["gaussian", "laplace"]),
    mode=st.sampled_from(["independent", "iterative"]),
    ensemble=st.sampled_from(["linear", "logarithmic"]),
)
def test_the_charges_compose_to_the_budget_and_no_more(
    epsilon: float, part: float, noise: str, mode: str, ensemble: str
) -> None:
    made = plan(
        Budget(epsilon, "1e-6"), noise=noise, mode=mode, ensemble=ensemble, vocabulary_epsilon=epsilon * part
    )  # the plan itself refuses what spends more
    used = sum(1 / charge.mechanism.noise_multiplier ** (1 if noise == "laplace" else 2) for charge in made.charges)
    whole = epsilon if noise == "laplace" else gaussian_noise_multiplier(epsilon, 1e-6) ** -2
    assert used == pytest.approx(whole, rel=1e-4)
    assert (made.budget.delta == 0) is (noise == "laplace")


def test_epsilons_given_apart_are_those_of_the_paper() -> None:
    """Pure epsilons to the letter; of a Gaussian budget each has about the noise that it would have alone."""
    pure = [
        1 / c.mechanism.noise_multiplier for c in plan(Budget(15, 0), noise="laplace", vocabulary_epsilon=5).charges
    ]
    assert pure == pytest.approx([5, 10])
    counts, density = plan(Budget(15, 0), noise="laplace", vocabulary_epsilon=5).charges
    assert counts.mechanism.scale / counts.mechanism.sensitivity.grid == pytest.approx(10 / 5)  # S / epsilon_voc
    assert density.mechanism.scale / density.mechanism.sensitivity.grid == pytest.approx(math.sqrt(2) * 2000 / 10)
    for whole, first in ((6, 1), (15, 5)):
        found = [c.mechanism.noise_multiplier for c in plan(Budget(whole, "1e-6"), vocabulary_epsilon=first).charges]
        alone = [gaussian_noise_multiplier(epsilon, 1e-6) for epsilon in (first, whole - first)]
        assert np.allclose(found, alone, rtol=0.25)


@pytest.mark.parametrize(
    ("ensemble", "length", "sizes"),
    [("logarithmic", 10, [1, 2, 4, 8, 10]), ("logarithmic", 8, [1, 2, 4, 8]), ("linear", 4, [1, 2, 3, 4])],
)
def test_an_ensemble_has_the_structures_of_the_paper(ensemble: Any, length: int, sizes: list[int]) -> None:
    chosen = DPKDE(mode="iterative", ensemble=ensemble, length=length)
    assert list(densities(chosen)) == sizes
    assert [charge.name for charge in plan(**chosen.dump()).charges][1:] == [f"density-{size}" for size in sizes]


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"vocabulary_epsilon": 6}, "leaves nothing"),
        ({"mode": "iterative", "length": 11}, "Sequences of 11 terms are impossible"),
        ({"top_terms": 9}, "distinct terms"),
        ({"vocabulary": "mine.txt"}, "must not be made from the private data"),
    ],
)
def test_what_cannot_be_planned_is_refused(parameters: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        plan(**parameters)


# -- features ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 5])
def test_features_estimate_the_kernel_of_concatenations_scaled_by_the_root_of_their_length(length: int) -> None:
    vectors, frequencies = TEXTS.embed([*WORDS]), Frequencies(3, 40_000, 0.9, 32)
    phases = frequencies.phases(vectors, length)
    draw = np.random.default_rng(0)
    some = np.stack([draw.permutation(12)[:length] for _ in range(6)])
    some[1:, 0] = some[0, 0]  # some are near one another
    features = integer_features(phases[np.arange(length), some].sum(axis=1, dtype=np.uint16)) / GRID
    distances = [
        [sum(((vectors[a] - vectors[b]) ** 2).sum() for a, b in zip(x, y, strict=True)) for y in some] for x in some
    ]
    assert np.allclose(features @ features.T / 40_000, np.exp(-np.array(distances) / (0.9**2 * length)), atol=0.02)


@given(st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=50))
def test_no_feature_vector_is_longer_than_its_bound(phases: list[int]) -> None:
    features = integer_features(np.array([phases], dtype=np.uint16)).astype(float)
    assert np.square(features).sum() <= GRID**2 * len(phases)
    assert np.abs(features).sum() <= GRID * math.sqrt(2) * len(phases)


# -- release and sequences --------------------------------------------------------------------------------------------


def test_without_noise_scores_are_the_kernel_density_of_averaged_terms(vocabulary: str) -> None:
    made = release(method(vocabulary, features=20_000, bandwidth=0.9))
    vectors = TEXTS.embed(made.terms)
    exact = np.zeros((LABELS, 12))
    for row in ROWS:
        held = [made.terms.index(word) for word in row.text.split()]
        exact[row.label] += np.exp(-((vectors[:, None] - vectors[held]) ** 2).sum(axis=2) / 0.9**2).mean(axis=1)
    found = density_scores(made.arrays["density-1"], Frequencies(0, 20_000, 0.9, 32), made.arrays["embeddings"])
    assert np.allclose(found, exact, atol=0.7)


@pytest.mark.parametrize("mode", ["independent", "iterative"])
def test_terms_are_sampled_in_proportion_to_their_density(vocabulary: str, mode: Any) -> None:
    chosen = method(vocabulary, mode=mode, bandwidth=0.1, length=1)
    made = release(chosen, rows=[*ROWS, *[Row(WORDS[0])] * 20])
    first = [row[0] for row in sequences(chosen, made, 4_000)[0]]
    share = (20 * 3 / 4 / 3 + 20) / 40  # of the label's weight
    assert first.count(WORDS[0]) / 4_000 == pytest.approx(share, abs=0.06)
    assert set(first) <= set(made.terms)


@pytest.mark.parametrize("ensemble", ["linear", "logarithmic"])
def test_iterative_sequences_go_on_as_the_records_do(vocabulary: str, ensemble: Any) -> None:
    """In a ring of four words a record's second word is known from its first; independent terms know nothing of it."""
    chosen = method(vocabulary, mode="iterative", ensemble=ensemble, bandwidth=0.2, terms_per_record=3)
    ring = {tuple(row.text.split()[:2]) for row in ROWS}
    follow = [tuple(row[:2]) in ring for rows in sequences(chosen, release(chosen), 200) for row in rows]
    assert np.mean(follow) > 0.9
    alone = method(vocabulary, bandwidth=0.2)
    assert np.mean([tuple(row[:2]) in ring for rows in sequences(alone, release(alone), 200) for row in rows]) < 0.6


@pytest.mark.parametrize("mode", ["independent", "iterative"])
@pytest.mark.parametrize("rows", [[], [Row("", 0)], [Row("junk", 1)], ROWS])
def test_every_label_runs_to_the_end_with_distinct_terms(vocabulary: str, mode: Any, rows: Any) -> None:
    chosen = method(vocabulary, mode=mode, features=30, contrast=1)
    made = release(chosen, SystemNoise(), rows)
    sampled = sequences(chosen, made, 50)
    assert [len(some) for some in sampled] == [50] * LABELS
    assert all(len(set(row)) == 3 for some in sampled for row in some)
    assert sampled == sequences(chosen, made, 50)
    assert sampled != sequences(chosen, made, 50, sampling_seed=1)


def test_contrast_and_temperature_sharpen(vocabulary: str) -> None:
    chosen = method(vocabulary, bandwidth=1, length=1)
    made = release(chosen)

    def own(**free: Any) -> float:
        sampled = sequences(chosen.model_copy(update=free), made)
        return float(
            np.mean([row[0] in WORDS[4 * label : 4 * label + 4] for label in range(LABELS) for row in sampled[label]])
        )

    assert own() < min(own(contrast=2.0), own(temperature=0.3))


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_noise_on_a_density_is_what_the_plan_says(vocabulary: str, noise: Any) -> None:
    """Two thirds or three halves of it would fail."""
    chosen = method(vocabulary, noise=noise, features=400, bandwidth=0.1)
    made = chosen.plan(BUDGET, PublicFacts(RECORD, NAMES))
    found = [release(chosen, SystemNoise(), rows=[]).arrays for _ in range(12)]
    scores = [density_scores(each["density-1"], Frequencies(0, 400, 0.1, 32), each["embeddings"]) for each in found]
    ratio = np.std(scores) / score_noise(chosen, made.mechanism("density-1").noise_multiplier)
    assert 0.82 < ratio < 1.22


def test_a_resumed_release_draws_nothing_again(vocabulary: str) -> None:
    chosen, store = method(vocabulary, mode="iterative", features=30), MemoryStore()
    first = release(chosen, SystemNoise(), store=store)
    again = release(chosen, SystemNoise(), store=store)
    assert set(store.seals) == {"vocabulary", "density-1", "density-2", "density-3"}
    assert all(np.array_equal(first.arrays[name], again.arrays[name]) for name in first.arrays)


def test_a_release_that_cannot_be_sampled_from_says_so(vocabulary: str) -> None:
    chosen = method(vocabulary, mode="iterative", features=30)
    made = release(chosen)
    with pytest.raises(ConfigError, match="sequences of up to 3 terms"):
        sequences(chosen.model_copy(update={"length": 4}), made)
    made.arrays["frequencies"] = np.zeros(32, dtype=np.uint8)  # type: ignore[index]
    with pytest.raises(ReleaseError, match="cannot be sampled again by this NumPy"):
        sequences(chosen, made)


def test_an_embedder_without_unit_vectors_is_refused_before_the_charge(vocabulary: str) -> None:
    class Long(HashEmbedder):
        def embed(self, texts: Any) -> Any:
            return 2 * super().embed(texts)

    class NoNumber(HashEmbedder):
        def embed(self, texts: Any) -> Any:
            return super().embed(texts) * np.nan

    chosen, ready = method(vocabulary), Preparation(NAMES, 0, TEXTS)
    made = chosen.plan(BUDGET, PublicFacts(RECORD, NAMES))
    chosen.prepare(bounded([]), made, ready)
    for bad in (Long(), NoNumber()):
        with pytest.raises(ModelError, match="one vector of length 1 per term"):
            chosen.prepare(bounded([]), made, replace(ready, embedder=bad))
    huge = method(vocabulary, features=100_000, mode="iterative", length=100, terms_per_record=100, top_terms=10**7)
    with pytest.raises(ConfigError, match=r"random features|One noisy value"):
        huge.prepare(bounded([]), made, ready)
