"""Exact sums over private rows: the formula, the sensitivity, odd rows, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode

from understudy.base.errors import PrivacyError
from understudy.methods.shared.decoding import sums as decoding
from understudy.models.shared_prefix import Rows

GRID, DISTANCE = 2**12, 2**18


@dataclass(frozen=True)
class Given:
    """Contexts whose logits are given: ``Float32[n, V]``, in blocks filled with copies of row 0."""

    rows: torch.Tensor
    rows_at_once: int = 4

    def __len__(self) -> int:
        return len(self.rows)

    def public_logits(self) -> torch.Tensor:
        return self.rows[0].float()

    def blocks(self, candidates: torch.Tensor | None = None) -> Iterator[Rows]:
        for first in range(0, len(self), self.rows_at_once):
            block = self.rows[first : first + self.rows_at_once]
            real = len(block)
            block = torch.cat([block, self.rows[:1].expand(self.rows_at_once - real, -1)])
            yield Rows(first, real, block if candidates is None else block[:, candidates])


def some(rows: int, tokens: int, *, seed: int = 0, spread: float = 4.0) -> torch.Tensor:
    return torch.randn(rows, tokens, generator=torch.Generator().manual_seed(seed)) * spread


def over(rows: torch.Tensor, sums: decoding.TokenSums, *, count: int | None = None, **options: Any) -> decoding.Sums:
    contexts: Any = Given(rows)
    return sums.over(contexts, decoding.public_candidates(contexts.public_logits(), count=count), **options)


def made(clipping: str, clip: float = 3.0) -> decoding.TokenSums:
    return decoding.TokenSums(clipping, clip, GRID)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [None, 100])
@pytest.mark.parametrize("tokens", [300, 70_000])
def test_sums_are_the_papers_formula(count: int | None, tokens: int) -> None:
    rows, clip = some(11, tokens), 5.0
    chosen = slice(None) if count is None else (rows[0] >= rows[0].topk(count).values[-1]).nonzero()[:, 0]
    z = rows[1:, chosen].double()
    phi, phi_public = z.log_softmax(1), rows[0, chosen].double().log_softmax(0)
    found = over(rows, made("recenter", clip), count=count)
    expected = torch.clamp(z - z.amax(1, keepdim=True) + clip, -clip, clip).sum(0) * GRID / clip
    assert np.abs(found.utilities(8) - expected.numpy()).max() <= 10  # half a step per row, and float32
    found = over(rows, made("fixed", clip), count=count)
    assert np.abs(found.utilities(8) - z.clamp(-clip, clip).sum(0).numpy() * GRID / clip).max() <= 10
    found = over(rows, made("difference", clip), count=count)
    expected = (torch.clamp(phi - phi_public, -clip, clip).sum(0) + 8 * phi_public) * GRID / clip
    assert np.abs(found.utilities(8) - expected.numpy()).max() <= 15


@pytest.mark.parametrize("count", [None, 100])
def test_the_distance_is_that_of_mean_and_public_distribution(count: int | None) -> None:
    rows = some(11, 300)
    contexts: Any = Given(rows)
    candidates = decoding.public_candidates(rows[0], count=count)
    shares = (rows if candidates.tokens is None else rows[:, candidates.tokens]).double().softmax(1)
    expected = float((shares[1:].sum(0) - 8 * shares[0]).abs().sum())
    found = decoding.distance_from_public(contexts, candidates, grid=DISTANCE, batch_size=8, divisors=[1] * 10)
    assert found / DISTANCE == pytest.approx(expected, abs=18 * 300 / DISTANCE)


@pytest.mark.parametrize("rows_at_once", [1, 4, 64])
@pytest.mark.parametrize("clipping", ["recenter", "difference", "fixed"])
def test_blocks_and_chunks_change_no_sums(monkeypatch: pytest.MonkeyPatch, clipping: str, rows_at_once: int) -> None:
    rows = some(11, 400)
    candidates = decoding.public_candidates(rows[0], count=120)
    found = [
        made(clipping).over(Given(rows, at_once), candidates)  # type: ignore[arg-type]
        for at_once in (3, rows_at_once)
    ]
    whole = over(rows, made(clipping))
    monkeypatch.setattr("understudy.methods.shared.decoding.sums._CHUNK", 4 * 7)
    for one, other in (found, (whole, over(rows, made(clipping)))):
        assert np.array_equal(one.clipped, other.clipped)
        assert np.array_equal(one.public, other.public)


@pytest.mark.parametrize("tokens", [1, 15, 17, 33, 1001])
@pytest.mark.parametrize("rows_at_once", [2, 5, 16, 37])
def test_a_row_adds_the_same_at_every_place_of_a_block(rows_at_once: int, tokens: int) -> None:
    row, others = some(1, tokens, seed=1)[0], some(rows_at_once - 1, tokens)
    candidates = decoding.Candidates(None, some(1, tokens, seed=2)[0])
    terms = [
        decoding.Softmax(2**20),
        decoding.Difference(3.0, 2**20, candidates.logits.log_softmax(0)),
        decoding.Recentred(3.0, 2**20),
        decoding.Fixed(3.0, 2**20),
    ]
    seen = set()
    for place in range(rows_at_once):
        block: Any = Given(torch.cat([others[:place], row[None], others[place:]]), rows_at_once)
        divisors = [int(number == place) for number in range(rows_at_once)]
        seen.add(tuple(decoding.row_sums(block, candidates, term, divisors=divisors).tobytes() for term in terms))
    assert len(seen) == 1


def test_float32_logits_are_left_as_they_are() -> None:
    rows = some(9, 50)
    before = rows.clone()
    over(rows, made("difference"))
    assert torch.equal(rows, before)


def largest_move(sums: decoding.TokenSums, rows: torch.Tensor, added: torch.Tensor) -> int:
    """How far one more row moves utilities, in L-infinity."""
    without, with_it = over(rows, sums), over(torch.cat([rows, added[None]]), sums)
    return int(np.abs(with_it.utilities(8) - without.utilities(8)).max())


def test_logits_that_are_clipped_above_alone_move_a_sum_by_more_than_its_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin."""
    row = torch.tensor([0.0, -50.0, 50.0, 0.0, 0.0, 0.0])
    assert largest_move(made("fixed"), some(5, 6), row) == GRID

    def above_alone(self: decoding.Fixed, logits: Any, tokens: slice, scale: Any) -> Any:
        return logits.as_they_are(tokens).clamp_(max=self.clip).mul_(scale / self.clip).round_()

    monkeypatch.setattr(decoding.Fixed, "__call__", above_alone)
    assert largest_move(made("fixed"), some(5, 6), row) > GRID


def distribution(row: torch.Tensor) -> NDArray[np.int64]:
    """What a row alone adds to a sum of softmaxes."""
    contexts: Any = Given(row[None], 1)
    return decoding.softmax_sum(contexts, decoding.Candidates(None, row), grid=DISTANCE, divisors=[1])


ODD = [0.0, 1.0, -1.0, 40.0, -300.0, 3e38, -3e38, float("inf"), float("-inf"), float("nan")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("clipping", ["recenter", "difference", "fixed"])
@given(row=arrays(np.float32, 6, elements=st.sampled_from(ODD) | st.floats(-30, 30, width=32)))
def test_no_row_moves_a_sum_by_more_than_its_grid(clipping: str, dtype: torch.dtype, row: NDArray[np.float32]) -> None:
    assert largest_move(made(clipping), some(5, 6).to(dtype), torch.from_numpy(row).to(dtype)) <= GRID
    assert distribution(torch.from_numpy(row).to(dtype)).sum() <= DISTANCE


def test_a_row_that_pushes_one_token_moves_the_sums_by_the_whole_grid() -> None:
    row = torch.full((6,), -50.0)
    row[2] = 50.0
    assert largest_move(made("recenter"), some(5, 6), row) == GRID
    assert largest_move(made("difference"), some(5, 6), row) == GRID


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("clipping", ["recenter", "difference", "fixed"])
def test_a_row_with_broken_logits_counts_as_one_of_equal_logits(clipping: str, bad: float) -> None:
    rows, equal = some(6, 50), some(6, 50)
    rows[3, 7], equal[3] = bad, 0.0
    assert np.array_equal(over(rows, made(clipping)).clipped, over(equal, made(clipping)).clipped)
    assert np.array_equal(distribution(rows[3]), distribution(equal[3]))


@pytest.mark.parametrize("spread", [0.0, 1e-3, 1.0, 10.0])
@pytest.mark.parametrize("tokens", [3, 1000, 200_000])
def test_a_rows_distribution_adds_up_to_its_grid_at_most(tokens: int, spread: float) -> None:
    rows = some(6, tokens, seed=tokens, spread=spread)
    for row in rows:
        shares = distribution(row)
        assert DISTANCE - tokens - 1 <= shares.sum() <= DISTANCE
        assert shares.min() >= 0


def test_rounding_to_the_nearest_oversteps_the_grid_and_is_caught() -> None:
    @dataclass(frozen=True)
    class Nearest(decoding.Softmax):
        def __call__(self, logits: Any, tokens: slice, scale: Any) -> Any:
            return logits.below_top(tokens).exp_().mul_((scale / logits.mass).float()).round_()

    contexts: Any = Given(torch.zeros(2, 3 * 2**14))  # a share of 5.33 steps each; and of 10.67 on the next grid
    candidates = decoding.public_candidates(contexts.public_logits(), count=None)
    sums = [
        decoding.row_sums(contexts, candidates, kind(2**19), divisors=[0, 1]).sum()
        for kind in (Nearest, decoding.Softmax)
    ]
    assert sums[0] > 2**19 >= sums[1]


@pytest.mark.parametrize("clipping", ["recenter", "difference", "fixed"])
def test_an_owners_rows_together_move_no_more_than_one_record(clipping: str) -> None:
    rows, sums = some(5, 6), made(clipping)
    row = torch.full((3, 6), -50.0)
    row[:, 2] = 50.0
    without = over(rows, sums, divisors=[1] * 4)
    with_them = over(torch.cat([rows, row]), sums, divisors=[1] * 4 + [3] * 3)
    assert GRID - 3 <= np.abs(with_them.utilities(8) - without.utilities(8)).max() <= GRID
    whole = over(torch.cat([rows, row]), sums)
    assert np.abs(whole.utilities(8) - without.utilities(8)).max() > GRID  # undivided they move more: caught


def test_a_difference_falls_back_to_the_public_distribution() -> None:
    rows = some(1, 50)
    utilities = over(rows, made("difference", 2.0)).utilities(16)
    assert np.allclose(utilities / (16 * GRID / 2.0), rows[0].log_softmax(0).numpy(), atol=1e-3)


@pytest.mark.parametrize("divisors", [[], [1] * 3, [1, 1, 1, 0], [1, 1, 1, -1]])
def test_rows_without_their_divisor_are_refused(divisors: list[int]) -> None:
    with pytest.raises(PrivacyError, match="divi"):
        over(some(5, 6), made("recenter"), divisors=divisors)


@pytest.mark.parametrize(
    "sums", [lambda: made("recenter", 0.0), lambda: over(some(3, 6), decoding.TokenSums("recenter", 1, 2**21))]
)
def test_what_cannot_be_exact_is_refused(sums: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        sums()


def test_votes_are_one_a_row() -> None:
    rows = torch.zeros(7, 5)
    rows[[1, 2, 3], [4, 4, 2]] = 1.0
    rows[5] = float("nan")
    contexts: Any = Given(rows)
    candidates = decoding.public_candidates(contexts.public_logits(), count=None)
    found = decoding.vote_sum(contexts, candidates, divisors=[0, 1, 1, 1, 1, 1, 0])
    assert found.tolist() == [2, 0, 1, 0, 2]


def test_a_softmax_sum_counts_the_rows_it_is_told_to() -> None:
    contexts: Any = Given(some(7, 30))
    candidates = decoding.public_candidates(contexts.public_logits(), count=10)
    found = decoding.softmax_sum(contexts, candidates, grid=DISTANCE, divisors=[1, 0, 0, 0, 0, 0, 0])
    assert np.array_equal(found, distribution(candidates.logits))


def test_candidates_are_the_publics_top_k_and_what_is_near() -> None:
    logits = torch.tensor([0.0, 5.0, 3.0, 4.9, 2.95, 1.0])
    assert decoding.public_candidates(logits, count=3).tokens.tolist() == [1, 2, 3]  # type: ignore[union-attr]
    near = decoding.public_candidates(logits, count=3, margin=0.1)
    assert near.tokens.tolist() == [1, 2, 3, 4]  # type: ignore[union-attr]
    assert near.logits.tolist() == logits[[1, 2, 3, 4]].tolist()
    assert (len(near), near.token(3)) == (4, 4)
    for count in (None, 6, 100):
        every = decoding.public_candidates(logits, count=count)
        assert (every.tokens, len(every), every.token(5)) == (None, 6, 5)


class Largest(TorchDispatchMode):
    """Notes the most elements of any tensor that an operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for each in found if isinstance(found, (list, tuple)) else [found]:
            if isinstance(each, torch.Tensor) and each._base is None:
                self.elements = max(self.elements, each.numel())
        return found


def test_no_tensor_grows_with_rows_times_vocabulary() -> None:
    """What a step makes on the way is one block's chunk, however many rows and tokens there are."""

    def elements(rows: int, tokens: int) -> int:
        given, candidates = Given(some(rows, tokens), 8), decoding.Candidates(None, some(1, tokens)[0])
        blocks = [(block.first, block.real, block.logits) for block in given.blocks()]
        with Largest() as largest:
            Recorded = type("Recorded", (Given,), {"blocks": lambda *_: (Rows(*block) for block in blocks)})
            made("difference").over(Recorded(given.rows, 8), candidates)
        return largest.elements

    assert elements(64, 50_000) == elements(8, 50_000) < 8 * 50_000
