"""Weights by linear program, and what they mean for each secret."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csc_array, csr_array

from understudy.methods.sec_pe.plan import grouped_inclusion, inclusion_probabilities, largest_weights
from understudy.privacy.events import MixtureEvent
from understudy.privacy.guarantee import SecretBudget
from understudy.privacy.secrets.composition import calibrate, posterior


def incidence(seed: int, records: int = 60, secrets: int = 7, share: float = 0.15) -> NDArray[np.float64]:
    return (np.random.default_rng(seed).random((records, secrets)) < share).astype(np.float64)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.floats(0, 0.5))
def test_the_weights_are_those_of_the_plain_linear_program(seed: int, share: float) -> None:
    held = incidence(seed, share=share)
    weights = largest_weights(csr_array(held))
    plain = linprog(-np.ones(len(held)), A_ub=held.T, b_ub=np.ones(held.shape[1]), bounds=(0, 1), method="highs-ds")
    assert weights.sum() == pytest.approx(-plain.fun, abs=1e-5)
    assert np.all(held.T @ weights <= 1 + 1e-12)
    assert np.all((weights >= 0) & (weights <= 1))


def test_records_without_secrets_weigh_one_and_like_records_weigh_alike() -> None:
    held = np.array([[0, 0], [1, 0], [1, 0], [1, 0], [1, 1], [0, 1], [0, 0]], dtype=float)
    weights = largest_weights(csr_array(held))
    assert weights[0] == weights[6] == 1
    np.testing.assert_allclose(weights[1:4], 1 / 3, rtol=1e-6)
    assert weights.sum() == pytest.approx(4, rel=1e-6)


def test_without_secrets_every_record_weighs_one() -> None:
    np.testing.assert_array_equal(largest_weights(csr_array((4, 0))), np.ones(4))
    np.testing.assert_array_equal(largest_weights(csr_array((4, 3))), np.ones(4))
    assert largest_weights(csr_array((0, 3))).shape == (0,)


def test_how_the_matrix_is_stored_changes_nothing() -> None:
    held = incidence(5)
    rows, columns = np.nonzero(held)
    order = np.random.default_rng(0).permutation(len(rows))
    twice = csr_array(
        (np.full(2 * len(rows), 0.5), (np.tile(rows[order], 2), np.tile(columns[order], 2))), shape=held.shape
    )
    zeros = csr_array(held)
    zeros.data[0] = 0
    without = held.copy()
    without[rows[0], columns[0]] = 0
    for stored, same in ((twice, held), (csc_array(held), held), (zeros, without)):
        before = stored.copy()
        np.testing.assert_array_equal(largest_weights(stored), largest_weights(csr_array(same)))
        rates = np.linspace(0, 1, len(held))
        assert grouped_inclusion(rates, stored) == grouped_inclusion(rates, csr_array(same))
        assert before.nnz == stored.nnz


def test_the_heaviest_records_are_always_drawn() -> None:
    weights = np.array([0.5, 0.25, 0.0, 0.5])
    np.testing.assert_allclose(inclusion_probabilities(weights), [1, 0.5, 0, 1])


def test_weights_of_nothing_draw_nothing() -> None:
    np.testing.assert_array_equal(inclusion_probabilities(np.zeros(3)), np.zeros(3))
    assert inclusion_probabilities(np.empty(0)).shape == (0,)


def test_rates_are_grouped_by_secret_largest_first_and_secrets_keep_their_numbers() -> None:
    held = np.array([[1, 0, 1, 1], [1, 0, 1, 0], [1, 0, 1, 0], [0, 0, 0, 1]], dtype=float)
    groups = grouped_inclusion(np.array([0.25, 0.5, 0.25, 0.0]), csr_array(held))
    assert groups == (((0.5, 1), (0.25, 2)), (), ((0.5, 1), (0.25, 2)), ((0.25, 1),))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_rates_are_rounded_up_to_four_digits_and_never_down(rates: list[float]) -> None:
    (groups,) = grouped_inclusion(np.array(rates), csr_array(np.ones((len(rates), 1))))
    stated = [rate for rate, records in groups for _ in range(records)]
    given_rates = sorted((rate for rate in rates if rate > 0), reverse=True)
    assert len(stated) == len(given_rates)
    for up, rate in zip(stated, given_rates, strict=True):
        assert rate <= up <= min(1, rate * 1.001 + 1e-300)
        assert float(f"{up:.3e}") == up


def test_noise_for_grouped_rates_keeps_the_budget_for_every_secret() -> None:
    held = csr_array(incidence(11, records=400, secrets=20, share=0.05))
    rates = inclusion_probabilities(largest_weights(held))
    budget = SecretBudget("1e-4", "1e-3")
    inclusion = grouped_inclusion(rates, held)
    sigma = calibrate(budget, inclusion)
    for number in range(20):
        exact = tuple(
            (float(rate), 1) for rate in rates[held.tocsc().indices[slice(*held.tocsc().indptr[number : number + 2])]]
        )
        assert posterior([MixtureEvent(sigma, (exact,))], 1e-4) <= 1e-3
