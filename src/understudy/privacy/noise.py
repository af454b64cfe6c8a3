"""Exact integer noise.

Noise added to a released vector is drawn as integers from the discrete Gaussian or
discrete Laplace distribution by OpenDP's exact samplers (Canonne, Kamath and
Steinke 2020), which take their bits from the operating system. It is never seeded.
One of several candidates is chosen by the exponential mechanism, drawn as exactly: by
OpenDP, or where that is slow by :mod:`understudy.privacy.exponential`.
"""

from __future__ import annotations

import secrets
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from understudy.errors import PrivacyError
from understudy.privacy.exponential import choose_exactly
from understudy.privacy.sealed import SYSTEM, NoiseOrigin

NoiseKind = Literal["gaussian", "laplace"]
_CHUNK = 100_000
_MANY = 4096  # candidates: OpenDP takes 2 ms for so many; the law is the same above


class NoiseSource(Protocol):
    """Where noise comes from."""

    @property
    def origin(self) -> NoiseOrigin: ...

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        """``size`` independent integers; ``scale`` is sigma (gaussian) or b (laplace), in grid units."""
        ...

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Independent coins: entry i is True with probability ``rates[i]`` (in [0, 1]), never with a higher one."""
        ...

    def choose(self, utilities: NDArray[np.int64], *, scale: float) -> int:
        """An index, i with probability proportional to exp(utilities[i] / scale): the exponential mechanism.

        Raises:
            PrivacyError: if ``utilities`` is not a vector of 64-bit integers, one or more.
        """
        ...

    def uniform(self, size: int, *, below: int) -> NDArray[np.int64]:
        """``size`` independent integers, each of 0 .. ``below`` - 1 equally likely."""
        ...


class SystemNoise:
    """Exact discrete noise from the operating system's entropy: the only source that keeps the promise."""

    origin: NoiseOrigin = SYSTEM

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        sampler = _sampler(kind, scale)
        chunks = [
            np.asarray(sampler([0] * min(_CHUNK, size - start)), dtype=np.int64) for start in range(0, size, _CHUNK)
        ]
        return np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.int64)

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        return _below(np.frombuffer(secrets.token_bytes(8 * len(rates)), dtype=np.uint64), rates)

    def choose(self, utilities: NDArray[np.int64], *, scale: float) -> int:
        """By OpenDP's Gumbel noise, compared exactly digit by digit; among many by :func:`choose_exactly`: one law."""
        require_utilities(utilities)
        if len(utilities) > _MANY:
            return choose_exactly(utilities, scale=scale)
        return int(_chooser(scale)(utilities.tolist()))

    def uniform(self, size: int, *, below: int) -> NDArray[np.int64]:
        """64 bits each; those that the last, incomplete round of ``below`` numbers would use are drawn again."""
        complete = np.uint64(2**64 // below * below - 1)
        drawn = np.zeros(size, dtype=np.uint64)
        missing = np.arange(size)
        while missing.size:
            drawn[missing] = np.frombuffer(secrets.token_bytes(8 * missing.size), dtype=np.uint64)
            missing = missing[drawn[missing] > complete]
        return (drawn % np.uint64(below)).astype(np.int64)


class InsecureSeededNoise:
    """Repeatable noise for tests (``--insecure-noise-seed``). NOT PRIVATE: who knows the seed can subtract it."""

    origin: NoiseOrigin = "seeded"

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        draw = self._generator.normal if kind == "gaussian" else self._generator.laplace
        return np.rint(draw(0.0, scale, size)).astype(np.int64)

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        return _below(self._generator.integers(0, 2**64, size=len(rates), dtype=np.uint64), rates)

    def choose(self, utilities: NDArray[np.int64], *, scale: float) -> int:
        require_utilities(utilities)
        return int(np.argmax(utilities / scale + self._generator.gumbel(size=len(utilities))))

    def uniform(self, size: int, *, below: int) -> NDArray[np.int64]:
        return self._generator.integers(0, below, size=size, dtype=np.int64)


class InsecureNoNoise:
    """No noise at all (``--insecure-no-noise``), to see what the budget costs. NOT PRIVATE."""

    origin: NoiseOrigin = "none"

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:  # noqa: ARG002
        return np.zeros(size, dtype=np.int64)

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        return SystemNoise().include(rates)

    def choose(self, utilities: NDArray[np.int64], *, scale: float) -> int:
        """With its randomness: the draw is what makes the text, and the most likely token again and again is none."""
        return SystemNoise().choose(utilities, scale=scale)

    def uniform(self, size: int, *, below: int) -> NDArray[np.int64]:
        return SystemNoise().uniform(size, below=below)


def require_utilities(utilities: NDArray[np.int64]) -> None:
    """See that there is a vector of 64-bit integers to choose from.

    Raises:
        PrivacyError: if there is not.
    """
    if utilities.dtype != np.int64 or utilities.ndim != 1 or not utilities.size:
        raise PrivacyError(
            "There is nothing to choose from, or its utilities are no vector of 64-bit integers.",
            "This is a fault of the method: it sums integers over one candidate or more.",
        )


def _below(bits: NDArray[np.uint64], rates: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each 64-bit integer is below its rate, as a fraction of 2^64 rounded down."""
    certain = rates >= 1
    limits = np.where(certain, 0.0, rates * 2.0**64).astype(np.uint64)
    return np.asarray((bits < limits) | certain, dtype=np.bool_)


@lru_cache(maxsize=64)
def _sampler(kind: NoiseKind, scale: float) -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    integers = dp.vector_domain(dp.atom_domain(T="i64"))
    if kind == "gaussian":
        return dp.m.make_gaussian(integers, dp.l2_distance(T="f64"), scale=scale)
    return dp.m.make_laplace(integers, dp.l1_distance(T="i64"), scale=scale)


@lru_cache(maxsize=64)
def _chooser(scale: float) -> Any:
    """OpenDP's noisy max under zCDP: Gumbel noise, which is the exponential mechanism (under pure DP it is another)."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    integers = dp.vector_domain(dp.atom_domain(T="i64"))
    return dp.m.make_noisy_max(integers, dp.linf_distance(T="i64"), dp.zero_concentrated_divergence(), scale=scale)
