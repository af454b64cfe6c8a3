"""Exact integer noise.

Noise added to a released vector is drawn as integers from the discrete Gaussian or
discrete Laplace distribution by OpenDP's exact samplers (Canonne, Kamath and
Steinke 2020), which take their bits from the operating system. It is never seeded.
"""

from __future__ import annotations

import secrets
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

NoiseKind = Literal["gaussian", "laplace"]
_CHUNK = 100_000


class NoiseSource(Protocol):
    """Where noise comes from. ``private`` is False for sources that void the guarantee."""

    @property
    def private(self) -> bool: ...

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        """``size`` independent integers; ``scale`` is sigma (gaussian) or b (laplace), in grid units."""
        ...

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Independent coins: entry i is True with probability ``rates[i]`` (in [0, 1]), never with a higher one."""
        ...


class SystemNoise:
    """Exact discrete noise from the operating system's entropy: the only source that keeps the promise."""

    private = True

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        sampler = _sampler(kind, scale)
        chunks = [
            np.asarray(sampler([0] * min(_CHUNK, size - start)), dtype=np.int64) for start in range(0, size, _CHUNK)
        ]
        return np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.int64)

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        return _below(np.frombuffer(secrets.token_bytes(8 * len(rates)), dtype=np.uint64), rates)


class InsecureSeededNoise:
    """Repeatable noise for tests (``--insecure-noise-seed``). NOT PRIVATE: who knows the seed can subtract it."""

    private = False

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        draw = self._generator.normal if kind == "gaussian" else self._generator.laplace
        return np.rint(draw(0.0, scale, size)).astype(np.int64)

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        return _below(self._generator.integers(0, 2**64, size=len(rates), dtype=np.uint64), rates)


class InsecureNoNoise:
    """No noise at all (``--insecure-no-noise``), to see what the budget costs. NOT PRIVATE."""

    private = False

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:  # noqa: ARG002
        return np.zeros(size, dtype=np.int64)

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        return SystemNoise().include(rates)


def _below(bits: NDArray[np.uint64], rates: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each 64-bit integer is below its rate, as a fraction of 2^64 rounded down."""
    certain = rates >= 1
    limits = np.where(certain, 0.0, rates * 2.0**64).astype(np.uint64)
    return np.asarray((bits < limits) | certain, dtype=np.bool_)


def _sampler(kind: NoiseKind, scale: float) -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    integers = dp.vector_domain(dp.atom_domain(T="i64"))
    if kind == "gaussian":
        return dp.m.make_gaussian(integers, dp.l2_distance(T="f64"), scale=scale)
    return dp.m.make_laplace(integers, dp.l1_distance(T="i64"), scale=scale)
