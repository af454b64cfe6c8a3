"""Exact integer sums over the private rows, from which a token is sampled; made on the device that has the logits.

Every row's values are rounded to an integer grid before anything is added. So a sum, and its sensitivity, are exact in
any order, with any chunks and threads, and on any device. Rows are read block by block, tokens chunk by
chunk: no tensor grows with the number of rows times the vocabulary, and only the sums leave the device.

A row whose logits are not finite counts as one with equal logits, so every bound holds for it too. That a row's
logits do not depend on other rows is up to :class:`understudy.models.shared_prefix.Contexts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import bug
from understudy.base.lazy import torch
from understudy.models.machine import single_threaded_inference
from understudy.models.shared_prefix import Contexts


@dataclass(frozen=True)
class Candidates:
    """A public set of tokens with the logits of the public context for them, on the device."""

    tokens: Any | None  # ``Int64[K]``, ascending; None for the whole vocabulary
    logits: Any  # ``Float32[K]``, finite

    def __len__(self) -> int:
        return int(self.logits.shape[0])

    def token(self, index: int) -> int:
        """Return the token of the candidate ``index``."""
        return index if self.tokens is None else int(self.tokens[index])


def public_candidates(logits: Any, *, count: int | None, margin: float = 0.0) -> Candidates:
    """Return the public context's likeliest next tokens.

    Args:
        logits: the public context's, ``Float32[V]`` on the device.
        count: k; None, or the vocabulary's size and more, for all tokens.
        margin: nats below the k-th largest public logit down to which tokens belong too: ``2 C / s`` is the extension
            of the top k that InvisibleInk publishes for clipped differences; one private row of s can lift a token by
            this much. All rows together can lift a token by up to ``2 C``, so it is a choice, free since public, and no
            bound.

    Returns:
        All tokens with a logit of at least the k-th largest less ``margin``: k, or more.
    """
    if count is None or count >= len(logits):
        return Candidates(None, logits)
    least = logits.topk(count, sorted=False).values.min()
    tokens = (logits >= least - margin).nonzero()[:, 0]
    return Candidates(tokens, logits[tokens])


Clipping = Literal["recenter", "difference", "fixed"]

_CHUNK = 2**18  # rows times tokens; a chunk in float32, 1 MiB, stays within a core's cache
_VECTOR = 16  # float32 numbers in the widest register
_EXACT = 2**24  # float32 holds every integer up to here
_LARGEST_PUBLIC = 2.0**42  # times any batch size and added to any sum of rows it is a 64-bit integer
_FINEST = 2**20  # float32's rounding of c * (grid / c) does not exceed a grid up to here
_BELOW = 1.0 - 2.0**-20  # more than float32 errs in exp(z) / sum of exp(z): floors add up to no more than the grid


class _Logits:
    """A block's logits ``[R, K]``, and what its rows' values share.

    K is filled up to whole vectors of the processor with logits of minus infinity: a remainder would be computed
    differently, so that a row's last bits would depend on its place in the block.
    """

    def __init__(self, logits: Any) -> None:
        top = logits.amax(1, keepdim=True).float()  # infinite or nan wherever one logit is +inf or nan
        broken = ~top.isfinite()
        if bool(broken.any()):
            logits, top = logits.masked_fill(broken, 0.0), top.masked_fill(broken, 0.0)
        if logits.shape[1] % _VECTOR:
            logits = torch.nn.functional.pad(logits, (0, -logits.shape[1] % _VECTOR), value=float("-inf"))
        self._logits, self._top = logits, top

    def below_top(self, tokens: slice) -> Any:
        """Return ``z_i - max_j z_j`` of a chunk, ``Float32[R, k]``; at most 0, and never NaN."""
        return self._logits[:, tokens].float() - self._top  # a copy, which terms may change in place

    def as_they_are(self, tokens: slice) -> Any:
        """Return ``z_i`` of a chunk, ``Float32[R, k]``; never NaN."""
        return self._logits[:, tokens].to(torch.float32, copy=True)

    @cached_property
    def mass(self) -> Any:
        """Return ``sum_j exp(z_j - max_j z_j)``, ``Float64[R, 1]``."""
        parts = (self.below_top(tokens).exp_() for tokens in self.chunks())
        return sum(part.sum(1, keepdim=True, dtype=torch.float64) for part in parts)

    @cached_property
    def log_mass(self) -> Any:
        """Return ``log(mass)``, ``Float32[R, 1]``."""
        return self.mass.repeat(1, _VECTOR).log()[:, :1].float()

    def chunks(self) -> Iterator[slice]:
        rows, size = self._logits.shape
        most = max(1, _CHUNK // rows // _VECTOR) * _VECTOR
        return (slice(start, min(start + most, size)) for start in range(0, size, most))


@dataclass(frozen=True)
class Recentred:
    """Clipped logits ``max(-c, z_i - max_j z_j + c)``, in steps of ``c / scale`` (``Float32[R, 1]``): ``[R, k]``.

    Guarantee
        Every entry is an integer in ``[-scale, scale]``: a row of scale ``grid`` changes each entry of a sum by at most
        ``grid`` (L-infinity).
    """

    clip: float
    grid: int

    def __call__(self, logits: _Logits, tokens: slice, scale: Any) -> Any:
        values = logits.below_top(tokens).add_(self.clip).clamp_(min=-self.clip)
        return values.mul_(scale / self.clip).round_()


@dataclass(frozen=True)
class Fixed:
    """Logits ``z_i`` clipped to ``[-c, c]`` (the baseline of Amin et al., appendix B.1), in steps of ``c / scale``.

    Guarantee
        As of :class:`Recentred`: every entry is an integer in ``[-scale, scale]``.
    """

    clip: float
    grid: int

    def __call__(self, logits: _Logits, tokens: slice, scale: Any) -> Any:
        return logits.as_they_are(tokens).clamp_(-self.clip, self.clip).mul_(scale / self.clip).round_()


@dataclass(frozen=True)
class Difference:
    """Differences of log-probabilities ``phi_i - phi_pub,i`` clipped to ``[-c, c]``, in steps of ``c / scale``; phi is
    the log-softmax, ``public`` is phi_pub.

    Guarantee
        Every entry is an integer in ``[-scale, scale]``: a row of scale ``grid`` changes each entry of a sum by at most
        ``grid`` (L-infinity).
    """

    clip: float
    grid: int
    public: Any

    def __call__(self, logits: _Logits, tokens: slice, scale: Any) -> Any:
        values = logits.below_top(tokens).sub_(logits.log_mass)
        public = self.public[tokens]
        values[:, : len(public)].sub_(public)
        return values.clamp_(-self.clip, self.clip).mul_(scale / self.clip).round_()


@dataclass(frozen=True)
class Softmax:
    """Probabilities ``softmax(z)_i`` of the unclipped logits, rounded down, in steps of ``1 / scale``.

    Guarantee
        Entries are integers of at least 0 that add up to ``scale`` at most: a row of scale ``grid`` moves a sum by
        ``grid`` at most in L1.
    """

    grid: int

    def __call__(self, logits: _Logits, tokens: slice, scale: Any) -> Any:
        return logits.below_top(tokens).exp_().mul_((scale * _BELOW / logits.mass).float()).floor_()


Term = Recentred | Fixed | Difference | Softmax
"""Computes the integers (in float32) that one row adds to a sum; ``grid`` bounds those of a row with divisor 1."""


def row_sums(contexts: Contexts, candidates: Candidates, term: Term, *, divisors: Sequence[int]) -> NDArray[np.int64]:
    """Sum a term over the rows of ``contexts``, after their last token: ``Int64[K]``.

    Args:
        divisors: one per row, including the public row 0: 1 for the only row of its owner, k for each of an owner's k
            rows (which are scaled to ``grid // k``, so that together they stay within ``grid``), 0 to leave a row out.
            Raises PrivacyError if there is not one per row.
    """
    if not 1 <= term.grid <= _FINEST:
        raise ValueError(f"expected 1 <= grid <= {_FINEST}, got {term.grid}")
    if len(divisors) != len(contexts) or min(divisors) < 0:
        raise bug("Every row of a sum needs a divisor of 0 or more.")
    device, size, at_once = candidates.logits.device, len(candidates), contexts.rows_at_once
    filled = [*divisors, *[0] * (-len(divisors) % at_once)]
    steps = [term.grid // divisor if divisor else 0 for divisor in filled]
    scale = torch.tensor(steps, device=device).float()[:, None]
    with single_threaded_inference():
        total = torch.zeros(size + -size % _VECTOR, dtype=torch.int64, device=device)
        for block in contexts.blocks(candidates.tokens):
            logits = _Logits(block.logits)
            for tokens in logits.chunks():
                values = term(logits, tokens, scale[block.first : block.first + at_once])
                exact = values.split(_EXACT // term.grid)  # few enough rows at a time
                total[tokens] += sum(part.sum(0).long() for part in exact)
        found: NDArray[np.int64] = total[:size].cpu().numpy()
        return found


@dataclass(frozen=True)
class Sums:
    """The sums over the private rows for one token, in steps of their grids.

    Args:
        public: ``Int64[K]`` on the same grid, to which the mean of ``clipped`` is added: the public log-probabilities
            for ``difference``, 0 for the others.
    """

    clipped: NDArray[np.int64]  # ``Int64[K]``, the sum of clipped logits or of clipped log-probability differences
    public: NDArray[np.int64]

    def utilities(self, batch_size: int) -> NDArray[np.int64]:
        """Return ``clipped + s * public``, ``Int64[K]``: s times what the paper calls the mean logits."""
        return self.clipped + batch_size * self.public


@dataclass(frozen=True)
class TokenSums:
    """Computes the sums of private prediction for one token.

    Guarantee
        Adding or removing a row of divisor 1, or all rows of an owner of k rows of divisor k, moves ``utilities`` by
        at most ``grid`` in L-infinity, exactly: integers, no noise here.
    """

    clipping: Clipping
    clip: float  # c (or C), in nats; above 0
    grid: int = 2**12  # integer steps of c

    def __post_init__(self) -> None:
        if not self.clip > 0:
            raise ValueError(f"expected clip > 0, got {self.clip}")

    def over(self, contexts: Contexts, candidates: Candidates, divisors: Sequence[int] | None = None) -> Sums:
        """Return the sums over the private rows 1, 2, ... of ``contexts`` after their last token; row 0 is public.

        ``divisors``: one per private row, k if its owner has k rows; default 1 for all. Raises PrivacyError if there is
        not one per row, or one is below 1.
        """
        divisors = [1] * (len(contexts) - 1) if divisors is None else divisors
        if any(divisor < 1 for divisor in divisors):
            raise bug("A private row has a divisor below 1; it must be its owner's number of rows.")
        public = candidates.logits.log_softmax(-1)
        terms: dict[Clipping, Term] = {
            "recenter": Recentred(self.clip, self.grid),
            "fixed": Fixed(self.clip, self.grid),
            "difference": Difference(self.clip, self.grid, public),
        }
        clipped = row_sums(contexts, candidates, terms[self.clipping], divisors=[0, *divisors])
        if self.clipping != "difference":
            return Sums(clipped, np.zeros_like(clipped))
        steps = (public.double() * (self.grid / self.clip)).clamp(-_LARGEST_PUBLIC, _LARGEST_PUBLIC)
        return Sums(clipped, steps.round().long().cpu().numpy())


def softmax_sum(contexts: Contexts, candidates: Candidates, *, grid: int, divisors: Sequence[int]) -> NDArray[np.int64]:
    """Sum the rows' probabilities of the candidates as integers, ``sum_rows floor(softmax(z)_i * (grid // divisor))``:
    ``Int64[K]``."""
    return row_sums(contexts, candidates, Softmax(grid), divisors=divisors)


def distance_from_public(
    contexts: Contexts, candidates: Candidates, *, grid: int, batch_size: int, divisors: Sequence[int]
) -> int:
    """Return ``sum_i |S_i - s P_i|``, s times the L1 distance between the rows' mean distribution and the public one,
    in steps of ``grid``.

    Guarantee
        A row of divisor 1, or an owner's k rows of divisor k, move it by at most ``grid``, as they move the sum S of
        the rows' distributions by that in L1. The divisor is the declared s: with the number of rows that are there, a
        row would move the weights of all others. Logits are not clipped first: that would move further.
    """
    shares = softmax_sum(contexts, candidates, grid=grid, divisors=[0, *divisors])
    public = (candidates.logits.double().softmax(-1) * grid).floor().long().cpu().numpy()
    return int(np.abs(shares - batch_size * public).sum())


def vote_sum(contexts: Contexts, candidates: Candidates, *, divisors: Sequence[int]) -> NDArray[np.int64]:
    """Count, for each candidate, the rows (with a divisor other than 0) that find it likeliest: ``Int64[K]``.

    Guarantee
        A row has one vote: equal logits count for the first. Broken rows vote for the first candidate.
    """
    total = torch.zeros(len(candidates), dtype=torch.int64, device=candidates.logits.device)
    counted = torch.tensor(list(divisors), device=total.device) != 0
    with single_threaded_inference():
        for block in contexts.blocks(candidates.tokens):
            rows = block.logits[: block.real].float().nan_to_num(nan=float("-inf"))
            likeliest = rows.argmax(1)[counted[block.first : block.first + block.real]]
            total += torch.bincount(likeliest, minlength=len(candidates))
    found: NDArray[np.int64] = total.cpu().numpy()
    return found
