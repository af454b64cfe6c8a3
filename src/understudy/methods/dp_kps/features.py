"""Random Fourier features of term sequences, rounded onto an integer grid.

For a sequence of m unit vectors x_1..x_m and bandwidth h,

    phi(x) = [cos(p_i), sin(p_i)], i = 1..I,   p_i = sum_b a_ib . x_b,   a_ib ~ sqrt(2)/(h sqrt(m)) N(0, I_d)

so that phi(x) . phi(y) / I estimates exp(-|x - y|^2 / (h^2 m)) for the concatenations
(LSQ, Wagner et al. 2023; Rahimi and Recht 2007), and |phi(x)|_2 = sqrt(I) exactly. Phases
add over blocks, so everything is computed from one table of phases per block.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

GRID = 1 << 10
"""Integer steps of 1.0 in a feature. Truncation towards zero, so that no norm grows."""


WEIGHT_GRID = 1 << 20
"""Integer steps of a record's weight of 1. Weights are rounded down, so that no norm grows."""


@dataclass(frozen=True)
class Frequencies:
    """The random frequencies of one structure: public, sampled from a public seed.

    Args:
        seed: public; any int.
        length: terms per sequence (m), 1 or more.
        count: number of frequencies (I).
        bandwidth: h, greater than 0.
        dimension: of an embedding (d).
    """

    seed: int
    length: int
    count: int
    bandwidth: float
    dimension: int

    def block(self, position: int) -> NDArray[np.float32]:
        """``Float32[I, d]``: the frequencies that the term at ``position`` (from 0) is multiplied with."""
        generator = np.random.Generator(np.random.PCG64([self.seed, self.length, position]))
        normal = generator.standard_normal((self.count, self.dimension))
        return (normal * (math.sqrt(2 / self.length) / self.bandwidth)).astype(np.float32)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the frequencies, kept in the Release: another NumPy must sample the same ones."""
        whole = hashlib.sha256()
        for position in range(self.length):
            whole.update(self.block(position).tobytes())
        return whole.digest()

    def phases(self, embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
        """``Float32[m, N, I]``: of each term at each position. Phases of a sequence add up."""
        return np.stack([embeddings @ self.block(position).T for position in range(self.length)])


def integer_features(phases: NDArray[np.float32]) -> NDArray[np.int32]:
    """``Int32[n, 2 I]``: GRID * [cos, sin] of ``Float32[n, I]`` phases, truncated towards zero.

    The L2 norm of a row is at most GRID sqrt(I), the L1 norm at most GRID sqrt(2) I: truncation only lowers them.
    """
    exact = np.concatenate([np.cos(phases), np.sin(phases)], axis=1, dtype=np.float64)
    return np.trunc(exact * (GRID * (1 - 2.0**-20))).astype(np.int32)  # float32 cos^2 + sin^2 may pass 1 by 2^-23
