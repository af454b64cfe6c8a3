"""Sampling sequences: against slow references, in distribution and term by term."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from understudy.methods.dp_kps.generate import cut_to_lengths
from understudy.text.vocabulary.sampling import contrast_weights, label_share, sample_independent

ALPHA = 1e-6


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_contrast_is_the_printed_formula() -> None:
    scores = np.array([[4.0, 1.0, -2.0, 0.0], [4.0, 3.0, 5.0, 0.0]])
    share = label_share(scores)
    assert np.allclose(share, [[0.5, 0.25, 0.0, 0.0], [0.5, 0.75, 1.0, 0.0]])
    for contrast in (0.0, 1.0, 2.0, 0.5):
        found = contrast_weights(scores, contrast=contrast)
        exact = np.maximum(scores, 0) * share**contrast
        assert np.allclose(found, exact / exact.max(axis=1, keepdims=True))


def test_a_label_of_negative_scores_is_given_equal_weights_and_is_sampled_to_the_end() -> None:
    weights = contrast_weights(np.array([[-1.0, -2.0, -3.0], [1.0, 0.0, -1.0]]))
    assert np.array_equal(weights, [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    sampled = sample_independent(weights[0], length=3, count=2_000, generator=generator())
    assert stats.chisquare(np.bincount(sampled[:, 0])).pvalue > ALPHA


def successive(weights: NDArray[np.float64], length: int) -> dict[tuple[int, ...], float]:
    """Probability of every ordered draw without replacement, term by term."""
    chances = {}
    for order in itertools.permutations(range(len(weights)), length):
        left, chance = float(weights.sum()), 1.0
        for term in order:
            chance *= float(weights[term]) / left
            left -= float(weights[term])
        chances[order] = chance
    return chances


def sample_p_value(sampled: NDArray[np.int64], weights: NDArray[np.float64]) -> float:
    chances = successive(weights, sampled.shape[1])
    found = dict.fromkeys(chances, 0)
    for row in sampled.tolist():
        found[tuple(row)] += 1
    likely = [order for order, chance in chances.items() if chance * len(sampled) >= 5]
    expected = np.array([chances[order] for order in likely] + [sum(chances.values()) - sum(map(chances.get, likely))])  # type: ignore[arg-type]
    observed = np.array([found[order] for order in likely] + [len(sampled) - sum(found[order] for order in likely)])
    used = expected > 1e-9
    return float(stats.chisquare(observed[used], expected[used] / expected[used].sum() * observed[used].sum()).pvalue)


WEIGHTS = np.array([8.0, 4.0, 1.0, 0.5, 2.0])


@pytest.mark.parametrize("length", [1, 2, 3])
def test_independent_draws_are_successive_draws_without_replacement(length: int) -> None:
    sampled = sample_independent(WEIGHTS, length=length, count=20_000, generator=generator())
    assert sample_p_value(sampled, WEIGHTS) > ALPHA
    assert sample_p_value(sampled, WEIGHTS**1.3) < ALPHA  # the test would see a wrong exponent


def test_all_terms_of_a_tiny_vocabulary_can_be_sampled() -> None:
    sampled = sample_independent(np.array([1.0, 0.0, 0.0]), length=3, count=50, generator=generator())
    assert all(sorted(row) == [0, 1, 2] for row in sampled.tolist())
    assert np.all(sampled[:, 0] == 0)


def test_lengths_are_uniform_and_what_is_left_is_the_beginning() -> None:
    whole = sample_independent(WEIGHTS, length=5, count=8_000, generator=generator())
    cut = cut_to_lengths(whole, shortest=2, generator=generator())
    lengths = (cut >= 0).sum(axis=1)
    assert stats.chisquare(np.bincount(lengths, minlength=6)[2:]).pvalue > ALPHA
    assert lengths.min() == 2
    for row, full, length in zip(cut.tolist(), whole.tolist(), lengths.tolist(), strict=True):
        assert row == full[:length] + [-1] * (5 - length)
    assert np.array_equal(cut_to_lengths(whole, shortest=9, generator=generator()), whole)
