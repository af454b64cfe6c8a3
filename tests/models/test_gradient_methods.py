"""Ours and four other ways to clipped sums of per-example gradients, as the benchmark runs them, agree with a loop."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from understudy.models.catalog import load_causal

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.gradients import NAMES, ROWS, Ways


@pytest.fixture(scope="module")
def ways(llama: Path) -> Ways:
    return Ways(load_causal(f"hf:{llama}", device="cpu", dtype="float32"))


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # of torch's vmap
@pytest.mark.parametrize("name", NAMES)
def test_a_way_gives_the_clipped_sum_of_a_loop_over_rows(ways: Ways, name: str) -> None:
    true = ways.loop()
    assert float((ways.run(name) - true).norm()) < 1e-5 * float(true.norm())


def test_some_rows_are_clipped_and_some_are_not(ways: Ways) -> None:
    norms = ways.alone.norm(dim=1)
    assert 0 < int((norms > ways.clip).sum()) < ROWS
    assert not torch.allclose(ways.alone.sum(0), ways.loop(), rtol=1e-2)
