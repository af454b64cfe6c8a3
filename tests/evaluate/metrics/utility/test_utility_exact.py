"""Exact sums in a linear layer."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from understudy.evaluate.metrics.utility.linear import ExactLinear


def unit_rows(count: int, width: int, *, seed: int, dtype: type = np.float32) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, width))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(dtype)


@pytest.mark.parametrize("size", [1e-6, 1.0, 300.0])
@pytest.mark.parametrize("reach", [0.5, 1.0, 37.0])
def test_it_is_the_linear_layer_up_to_its_grid(size: float, reach: float) -> None:
    generator = np.random.default_rng(0)
    weights, bias = size * generator.normal(size=(384, 5)), generator.normal(size=5)
    rows = reach * unit_rows(50, 384, seed=1)
    layer = ExactLinear.rounded(weights, bias, reach=reach)
    scale = reach * np.linalg.norm(weights, axis=0).max()
    assert np.abs(layer(rows) - (rows @ weights + bias)).max() < 2e-5 * scale


def test_every_sum_is_the_exact_one_and_within_what_float64_holds() -> None:
    weights = np.random.default_rng(0).normal(size=(384, 3)).astype(np.float32)
    rows = unit_rows(20, 384, seed=1)
    layer = ExactLinear.rounded(weights, np.zeros(3), reach=1.0)
    steps = [[int(each) for each in row] for row in np.rint(rows.astype(float) * layer.row_step)]
    columns = [[int(each) for each in column] for column in layer.weights.T]
    sums = [[sum(x * w for x, w in zip(row, column, strict=True)) for column in columns] for row in steps]
    worst = max(sum(abs(x * w) for x, w in zip(row, column, strict=True)) for row in steps for column in columns)
    assert worst < 2**53
    expected = [[float(Fraction(each) / Fraction(layer.row_step * layer.weight_step)) for each in row] for row in sums]
    assert layer(rows).tolist() == expected


def test_a_row_alone_has_the_result_that_it_has_among_others_bit_for_bit() -> None:
    weights, bias = np.random.default_rng(0).normal(size=(384, 14)), np.random.default_rng(1).normal(size=14)
    layer = ExactLinear.rounded(weights, bias, reach=1.0)
    rows = unit_rows(257, 384, seed=2)
    assert np.array_equal(np.concatenate([layer(row[None]) for row in rows]), layer(rows))


def test_sparse_rows_have_the_results_of_dense_ones() -> None:
    rows = unit_rows(40, 90, seed=0, dtype=np.float64) * (np.random.default_rng(1).random((40, 90)) < 0.1)
    layer = ExactLinear.rounded(np.random.default_rng(2).normal(size=(90, 4)), np.arange(4.0), reach=1.0)
    assert np.array_equal(layer(sparse.csr_matrix(rows)), layer(rows))
    assert np.array_equal(layer(sparse.csr_array(rows)), layer(rows))


def test_no_result_is_longer_than_its_reach() -> None:
    layer = ExactLinear.rounded(np.random.default_rng(2).normal(size=(6, 4)), np.ones(4), reach=2.0)
    assert np.linalg.norm(layer(2 * unit_rows(2000, 6, seed=0)), axis=1).max() <= layer.reach


def test_a_row_that_is_too_long_or_no_number_leaves_the_others_as_they_are() -> None:
    layer = ExactLinear.rounded(np.random.default_rng(0).normal(size=(384, 5)), np.zeros(5), reach=1.0)
    rows = unit_rows(30, 384, seed=2)
    expected = layer(rows)
    for odd in (1e30, -np.inf, np.nan):
        beside = np.vstack([rows[:7], np.full((1, 384), odd), rows[7:]])
        found = layer(beside)
        assert np.array_equal(np.delete(found, 7, axis=0), expected)
        assert np.array_equal(layer(beside[7:8]), found[7:8], equal_nan=True)
    long = rows * np.float32(1e9)
    assert np.array_equal(layer(long), np.concatenate([layer(row[None]) for row in long]))
