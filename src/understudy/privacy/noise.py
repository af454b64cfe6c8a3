"""Sample exact integer noise.

Noise added to a released vector is sampled as integers from the discrete Gaussian or
discrete Laplace distribution by OpenDP's exact samplers (Canonne, Kamath and
Steinke 2020), which take their bits from the operating system. It is never seeded.
The exponential mechanism chooses one of several candidates. It is sampled just as exactly, by
OpenDP or, where that is slow, by our own exact sampler (below).
"""

from __future__ import annotations

import secrets
import threading
from decimal import Context, Decimal
from functools import lru_cache
from itertools import count
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import bug
from understudy.privacy.sealed import SYSTEM, NoiseOrigin

M = TypeVar("M")
NoiseKind = Literal["gaussian", "laplace"]
_CHUNK = 100_000
_AT_ONCE = 2**20
_MANY = 4096  # candidates: OpenDP takes 2 ms for so many; the law is the same above


class NoiseSource(Protocol):
    """The source of noise. Releases ask it for sums with their noise, never for noise alone."""

    @property
    def origin(self) -> NoiseOrigin: ...

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        """Return ``size`` independent integers; ``scale`` is sigma (gaussian) or b (laplace), in grid units."""
        ...

    def normal(self, size: int) -> NDArray[np.float64]:
        """Return ``size`` independent standard normal floats: for gradients, as exact integers are too slow."""
        ...

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Toss independent coins: entry i is True with probability ``rates[i]`` (in [0, 1]), never a higher one."""
        ...

    def choose(self, utilities: NDArray[np.int64], *, scale: float) -> int:
        """Return index i with probability proportional to exp(utilities[i] / scale): the exponential mechanism.

        Raises PrivacyError if ``utilities`` is not a vector of 64-bit integers, one or more.
        """
        ...

    def uniform(self, size: int, *, below: int) -> NDArray[np.int64]:
        """Return ``size`` independent integers, each of 0 .. ``below`` - 1 equally likely."""
        ...

    def added(self, exact: NDArray[np.int64], kind: NoiseKind, *, scale: float) -> NDArray[np.int64]:
        """Return ``exact`` plus noise as from :meth:`draw`, independent for every entry."""
        return exact + self.draw(kind, scale=scale, size=exact.size).reshape(exact.shape)

    def added_normal(self, exact: NDArray[np.int64], *, scale: float) -> NDArray[np.int64]:
        """Return ``exact`` plus noise as from :meth:`normal`, times ``scale`` and rounded."""
        noise = self.normal(exact.size).reshape(exact.shape)
        noise *= scale
        return exact + np.rint(noise).astype(np.int64)


class PaidInParts(Generic[M]):
    """A charge that pays for several parts of a run, each of which may be taken once. Safe to use from several
    threads."""

    def __init__(self, mechanism: M, source: NoiseSource) -> None:
        self._mechanism = mechanism
        self._source = source
        self._opened: set[str] = set()
        self._lock = threading.Lock()

    @property
    def repeatable(self) -> bool:
        """Return whether the noise is seeded, and so only repeats if the parts keep their order."""
        return self._source.origin == "seeded"

    def _once(self, part: str) -> None:
        with self._lock:
            if part in self._opened:
                raise bug(f"The charge for {part} would be used twice.", "all of a part comes from one counter")
            self._opened.add(part)


class _SystemCoins:
    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        return _below(np.frombuffer(secrets.token_bytes(8 * len(rates)), dtype=np.uint64), rates)

    def choose(self, utilities: NDArray[np.int64], *, scale: float) -> int:
        """Choose by OpenDP's Gumbel noise or, among many candidates, by :func:`choose_exactly`. Both have the same
        distribution."""
        require_utilities(utilities)
        if len(utilities) > _MANY:
            return choose_exactly(utilities, scale=scale)
        return int(_chooser(scale)(utilities.tolist()))

    def uniform(self, size: int, *, below: int) -> NDArray[np.int64]:
        """Use 64 bits each; values in the last, incomplete round of ``below`` numbers are sampled again."""
        complete = np.uint64(2**64 // below * below - 1)
        drawn = np.zeros(size, dtype=np.uint64)
        missing = np.arange(size)
        while missing.size:
            drawn[missing] = np.frombuffer(secrets.token_bytes(8 * missing.size), dtype=np.uint64)
            missing = missing[drawn[missing] > complete]
        return (drawn % np.uint64(below)).astype(np.int64)


class SystemNoise(_SystemCoins, NoiseSource):
    """Exact discrete noise from the operating system's entropy: the only source with which the guarantee holds."""

    origin: NoiseOrigin = SYSTEM

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        sampler = _sampler(kind, scale)
        chunks = [
            np.asarray(sampler([0] * min(_CHUNK, size - start)), dtype=np.int64) for start in range(0, size, _CHUNK)
        ]
        return np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.int64)

    def normal(self, size: int) -> NDArray[np.float64]:
        """Return standard Gaussian numbers: the Box-Muller transform of the operating system's random bits.

        Only the cosine of each pair is used: both halves together would reveal the radius, whose values are far
        apart in the tail (Jin et al. 2022). It is made from 106 bits, so small ones have all digits; tails end at 12.1.
        """
        numbers = np.empty(size)
        for start in range(0, size, _AT_ONCE):
            part = numbers[start : start + _AT_ONCE]
            bits = np.frombuffer(secrets.token_bytes(24 * len(part)), dtype=np.uint64) >> np.uint64(11)
            high, low, turn = bits.astype(np.float64).reshape(3, -1) * 2.0**-53
            radius = np.sqrt(-2 * np.log(high + (low + 2.0**-53) * 2.0**-53))
            part[:] = radius * np.cos(turn * (2 * np.pi))
        return numbers


class InsecureSeededNoise(NoiseSource):
    """Repeatable noise for tests (``insecure_noise_seed``). NOT PRIVATE: anyone who knows the seed can subtract it.

    >>> InsecureSeededNoise(0).draw("gaussian", scale=1e6, size=3).dtype
    dtype('int64')
    """

    origin: NoiseOrigin = "seeded"

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        draw = self._generator.normal if kind == "gaussian" else self._generator.laplace
        return np.rint(draw(0.0, scale, size)).astype(np.int64)

    def normal(self, size: int) -> NDArray[np.float64]:
        return self._generator.standard_normal(size)

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        return _below(self._generator.integers(0, 2**64, size=len(rates), dtype=np.uint64), rates)

    def choose(self, utilities: NDArray[np.int64], *, scale: float) -> int:
        require_utilities(utilities)
        return int(np.argmax(utilities / scale + self._generator.gumbel(size=len(utilities))))

    def uniform(self, size: int, *, below: int) -> NDArray[np.int64]:
        return self._generator.integers(0, below, size=size, dtype=np.int64)


class InsecureNoNoise(_SystemCoins, NoiseSource):
    """No noise at all (``--insecure-no-noise``), to see how much quality the budget costs. NOT PRIVATE.

    Choices stay random: always taking the most likely token would not give a usable text.

    >>> InsecureNoNoise().draw("laplace", scale=1e6, size=3)
    array([0, 0, 0])
    """

    origin: NoiseOrigin = "none"

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:  # noqa: ARG002
        return np.zeros(size, dtype=np.int64)

    def normal(self, size: int) -> NDArray[np.float64]:
        return np.zeros(size)


def require_utilities(utilities: NDArray[np.int64]) -> None:
    """Check that the utilities are a non-empty vector of 64-bit integers. Raises PrivacyError if they are not."""
    if utilities.dtype != np.int64 or utilities.ndim != 1 or not utilities.size:
        raise bug(
            "The utilities to choose by are empty, or not a vector of 64-bit integers.",
            "it must pass integer utilities of at least one candidate",
        )


def _below(bits: NDArray[np.uint64], rates: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether each 64-bit integer is below its rate, as a fraction of 2^64 rounded down."""
    certain = rates >= 1
    limits = np.where(certain, 0.0, rates * 2.0**64).astype(np.uint64)
    return np.asarray((bits < limits) | certain, dtype=np.bool_)


@lru_cache(maxsize=64)
def _sampler(kind: NoiseKind, scale: float) -> Any:
    from opendp.measurements import make_gaussian, make_laplace
    from opendp.metrics import l1_distance, l2_distance

    if kind == "gaussian":
        return make_gaussian(_integers(), l2_distance(T="f64"), scale=scale)
    return make_laplace(_integers(), l1_distance(T="i64"), scale=scale)


def _integers() -> Any:
    """Return OpenDP's domain of 64-bit integer vectors without its ``prelude``, which takes a second to import."""
    from opendp.domains import atom_domain, vector_domain
    from opendp.mod import enable_features

    enable_features("contrib")
    return vector_domain(atom_domain(T="i64"))


@lru_cache(maxsize=64)
def _chooser(scale: float) -> Any:
    """Return OpenDP's noisy max under zCDP: Gumbel noise, so the exponential mechanism (under pure DP it differs)."""
    from opendp.measurements import make_noisy_max
    from opendp.measures import zero_concentrated_divergence
    from opendp.metrics import linf_distance

    return make_noisy_max(_integers(), linf_distance(T="i64"), zero_concentrated_divergence(), scale=scale)


_SPARE = 1 + 2**-30  # the float exponentials below are within 2^-42; it costs one proposal in 2^30


def choose_exactly(utilities: NDArray[np.int64], *, scale: float) -> int:
    """Return index i with probability proportional to exp(utilities[i] / scale).

    Guarantee:
        Law: exactly the exponential mechanism's, for any 64-bit utilities and the exact value of the float ``scale``.
        So its cost is that of the mechanism: utilities that each move by at most D between neighbours give a bounded
        range of 2 D / scale, which is (D / scale)^2 / 2 zCDP. Nothing is added for rounding.
        Why: with d_i = max_j utilities[j] - utilities[i], i is proposed in proportion to an integer c_i, at least
        N exp(-d_i / scale), and accepted with probability N exp(-d_i / scale) / c_i <= 1; else the sampler restarts.
        The product is N exp(-d_i / scale) whatever c_i is: an inexact c_i only changes how often a proposal is
        refused (about K / N of the time).
        Bounds: d_i is exact, in unsigned 64 bits. Floating point is used for c_i alone: d_i / scale has a relative
        error of 2^-52, so its exponential, where it is not below exp(-745), one of 2^-42 (numpy's exp errs by 4 units
        in the last place at most). _SPARE covers 2^12 times that, and the added 1 covers whatever underflows.
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
    """Return True with probability exactly ``one`` exp(-``deficit`` / ``scale``) / ``weight``, which is at most 1.

    A uniform number is compared with the chance, in as many digits as needed. It starts with 64 bits of the number and
    30 decimal digits of the chance, whose error is then below 10^-27: division and the exponential round to half a unit
    in the last digit, and the effect of an error in the exponent is bounded since the chance times
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
