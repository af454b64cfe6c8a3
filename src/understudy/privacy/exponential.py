"""The exponential mechanism over many candidates: exact, and as fast as exponentials and a sum of so many floats.

OpenDP's noisy max draws noise for every candidate digit by digit, which takes longer than the model where a whole
vocabulary may be drawn. Here one candidate is proposed by integer weights that floating point made, and one exact
coin makes up for all that floating point did: rejection sampling (von Neumann 1951). See docs/decisions/018.
"""

from __future__ import annotations

import secrets
from decimal import Context, Decimal
from itertools import count

import numpy as np
from numpy.typing import NDArray

_SPARE = 1 + 2**-30  # the float exponentials below are within 2^-42; it costs one proposal in 2^30


def choose_exactly(utilities: NDArray[np.int64], *, scale: float) -> int:
    """An index, i with probability proportional to exp(utilities[i] / scale).

    Guarantee:
        Law: the exponential mechanism's, exactly, for any 64-bit utilities and the very float that ``scale`` is. So
        its cost is that of the mechanism: utilities that each move by at most D between neighbours give a bounded
        range of 2 D / scale, which is (D / scale)^2 / 2 zCDP. Nothing is added for rounding.
        Why: with d_i = max_j utilities[j] - utilities[i], i is proposed in proportion to an integer c_i, at least
        N exp(-d_i / scale), and taken with probability N exp(-d_i / scale) / c_i <= 1, else all begins again. The
        product is N exp(-d_i / scale) whatever c_i is: an inexact c_i changes how often a proposal is refused
        (about K / N of the time), and nothing else.
        Bounds: d_i is exact, in unsigned 64 bits. Floating point is used for c_i alone: d_i / scale has a relative
        error of 2^-52, so its exponential, where it is not below exp(-745), one of 2^-42 (numpy's exp errs by 4 units
        in the last place at most); _SPARE covers 2^12 times that, and the 1 that is added all that underflows.
        Noise: ``secrets``, so the operating system's, with no state to share or to copy at a fork: an integer below
        sum_i c_i, all sums being exact in 64 bits, and the bits of the coin.
        Source: McSherry and Talwar 2007; Rogers and Steinke 2021 (bounded range).

    Args:
        utilities: ``Int64[K]``, one or more.
        scale: > 0, finite.
    """
    deficits = utilities.max().view(np.uint64) - utilities.view(np.uint64)  # modulo 2^64, within which they lie
    one = 2 ** (61 - len(utilities).bit_length())  # N: the sum of all weights is below 2^62
    with np.errstate(under="ignore"):
        weights = (np.exp(deficits / -scale) * (one * _SPARE)).astype(np.int64) + 1
    reach = np.cumsum(weights)
    while True:
        index = int(np.searchsorted(reach, secrets.randbelow(int(reach[-1])), side="right"))
        if _coin(int(deficits[index]), scale, one, int(weights[index])):
            return index


def _coin(deficit: int, scale: float, one: int, weight: int) -> bool:
    """True with probability ``one`` exp(-``deficit`` / ``scale``) / ``weight``, which must be at most 1; exactly.

    A uniform number is compared with the chance, of both as many digits as it takes: 64 bits of the one and 30 decimal
    digits of the other at first, where the chance's error is below 10^-27: dividing and the exponential round to half
    a unit in the last digit, and what an error of the exponent does is bounded since the chance times
    ``deficit`` / ``scale`` is at most ln(2^60) = 42.
    """
    drawn = 0
    for round_ in count(1):
        context = Context(prec=30 * round_, traps=[])
        drawn = drawn << 64 | secrets.randbits(64)
        exponential = context.exp(-context.divide(Decimal(deficit), Decimal(scale)))
        share = context.divide(Decimal(one << 64 * round_), Decimal(weight))
        limit = int(context.multiply(exponential, share))  # 2^(64 round) times the chance, to within 2
        if abs(drawn - limit) > 2:
            return drawn < limit
    raise AssertionError  # pragma: no cover - count does not end
