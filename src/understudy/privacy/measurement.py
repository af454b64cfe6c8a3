"""Turn private records into one noisy value: sum a query over batches and add the noise.

A query computes what *one batch* adds, as exact integers that may be added in any order, on any machine. This module
contains the loop for all queries, and the check that the sum is the one that was paid for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import lt
from typing import Any, Generic, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import PrivacyError, ResumeError, bug
from understudy.privacy.mechanisms import NoisySum, QuerySpec, SampledSum, Sensitivity, SubsampledSum
from understudy.privacy.noise import NoiseSource
from understudy.privacy.sealed import encode_names
from understudy.privacy.selection import NoisySelection

Batch_contra = TypeVar("Batch_contra", contravariant=True)
Batch_co = TypeVar("Batch_co", covariant=True)
Spec = TypeVar("Spec", bound=QuerySpec)
T = TypeVar("T")
R = TypeVar("R")
Rates = float | NDArray[np.float64]
"""One rate for every record, or ``Float64[n]``: one per record of the corpus, in its order."""


class Query(Protocol[Batch_contra]):
    """A sum of one integer vector per unit.

    ``sensitivity`` bounds how far one unit moves the finished integers, after all rounding. Entries must be so small
    that no sum over a corpus leaves the 64-bit integers.
    """

    @property
    def sensitivity(self) -> Sensitivity: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def partial_shape(self) -> tuple[int, ...]:
        return self.shape

    def of_batch(self, batch: Batch_contra) -> NDArray[np.int64]:
        """Return the sum over one batch: ``Int64[partial_shape]``. Private: only :func:`exact_sum` may call it."""
        ...

    def finish(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return ``Int64[shape]`` from the sum over all batches: an exact function of it, mostly the identity. If it is
        not the identity, ``sensitivity`` is that of its result."""
        return sums


@dataclass(frozen=True)
class PlannedQuery(Query[Batch_contra], Generic[Batch_contra, Spec]):
    """A query built from the spec of its charge (:meth:`~understudy.privacy.plan.Plan.query`), so that the two cannot
    disagree. The sensitivity is the spec's; only dimensions that the spec leaves open come from the data.

    >>> from types import SimpleNamespace
    >>> spec = SimpleNamespace(sensitivity=Sensitivity.of_counts(1, grid=1), shape=(2, None))
    >>> class Numbers(PlannedQuery):
    ...     found = (3,)
    >>> Numbers(spec).shape
    (2, 3)
    """

    spec: Spec

    @property
    def found(self) -> tuple[int, ...]:
        """Return the sizes of the last dimensions if they depend on the data; :func:`measure` checks them."""
        return ()

    @property
    def sensitivity(self) -> Sensitivity:
        return self.spec.sensitivity

    @property
    def shape(self) -> tuple[int, ...]:
        planned: Any = self.spec.shape
        return (*planned[: len(planned) - len(self.found)], *self.found)


@runtime_checkable
class OpenQuery(Protocol):
    """A sum of one integer vector per unit, over names that come from the data.

    A unit adds :func:`~understudy.privacy.selection.weight_of` m to each of the m names of its set, m at most ``most``.
    The set depends only on the unit.
    """

    @property
    def most(self) -> int: ...

    def sums(self, data: Any) -> Iterator[tuple[list[str], NDArray[np.int64]]]:
        """Yield each name that occurs, once, with its exact sum, in chunks and in the order of names. Private: only
        :func:`select` may call it."""
        ...


class Batches(Protocol[Batch_co]):
    """Private records that can be read batch by batch, any number of times. Records of an owner that must be seen
    together are in one batch."""

    def batches(self) -> Iterator[Batch_co]: ...


class Engine(Protocol):
    """The workers that process parts. Their results are as private as the records that they read."""

    @property
    def workers(self) -> int: ...

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Call ``function`` with each item on a worker; yield the results in the items' order. A few items are read
        ahead.

        Function and items are pickled. An item may be processed again after a worker died, so ``function`` must return
        the same result each time.

        Raises:
            UnderstudyError: the first of those that ``function`` raised.
            EngineError: ``function`` raised something else, whose message is withheld, or workers died repeatedly at
                one item.
        """
        ...

    def ask(self, probe: Callable[[], R], *, always: bool = False) -> R:
        """Call ``probe`` on every kind of worker and return their answer. Raises EngineError if two answers differ.

        ``always``: workers that join later must give the same answer before they work.
        """
        ...


class Divided(Protocol):
    """Records that are processed in disjoint parts, which together contain all of them."""

    @property
    def engine(self) -> Engine | None:
        """Return the engine; None if this process handles all records as one part."""
        ...

    def map(self, function: Callable[[Any], R]) -> Iterator[R]:
        """Call ``function`` with every part (a :class:`Batches`), and yield its results in the parts' order."""
        ...


def is_divided(data: Any) -> TypeGuard[Divided]:
    """Return whether the records are processed in parts."""
    return hasattr(data, "engine") and hasattr(data, "map")  # isinstance with a protocol takes longer than a small sum


def measure(
    mechanism: NoisySum | SampledSum | SubsampledSum,
    query: Query[Any],
    data: Batches[Any],
    *,
    source: NoiseSource,
    records_per_unit: int = 1,
    rates: Rates | None = None,
) -> NDArray[np.float64]:
    """Sum the query over the records and add the noise: ``Float64[query.shape]``, in units of 1.0.

    Only code that has paid for ``mechanism`` may call it.

    Args:
        records_per_unit: the most vectors that one unit adds: m for a secret, 1 for records and owners.
        rates: at which records are sampled, for a :class:`~understudy.privacy.mechanisms.SampledSum`.

    Raises PrivacyError if the query is not the planned one (its sensitivity is larger, or its grid, shape or rates
    differ), or if its answers do not have the type and shape that it states.
    """
    moved = query.sensitivity.times(records_per_unit)
    planned = len(query.shape) == len(mechanism.shape) and all(
        size in (None, found) for size, found in zip(mechanism.shape, query.shape, strict=True)
    )
    if not planned or not moved.within(mechanism.sensitivity, mechanism.noise):
        raise bug(
            "A query is not the one that was planned: its sensitivity, grid or shape differs.",
            "plan each sum with the sensitivity that its query states",
        )
    if isinstance(mechanism, SampledSum) != (rates is not None):
        raise bug(
            "Sampling rates were given for a sum without sampling, or are missing for one with sampling.",
            "pass rates exactly for the sums that are planned as a SampledSum",
        )
    if isinstance(mechanism, SampledSum):
        assert rates is not None
        rates = float(rates) if np.ndim(rates) == 0 else np.asarray(rates, dtype=np.float64)
        if not np.all((np.asarray(rates) >= 0) & (np.asarray(rates) <= 1)):
            raise bug("Records would be sampled with a rate that is not a probability.", "its rates must be in [0, 1]")
        if not isinstance(rates, float) and mechanism.incidence is None:
            raise bug(
                "Records would be sampled with different rates, but the plan states one rate for all.",
                "rates per record follow from an incidence that the plan names",
            )
        if isinstance(rates, float) and {rate for secret in mechanism.inclusion for rate, _ in secret} != {rates}:
            raise bug(
                "Records would be sampled with a different rate than the event states.",
                "its sampler and its event disagree",
            )
        data = _Sampled(data, rates, source)
    if isinstance(mechanism, SubsampledSum):
        if records_per_unit != 1:
            raise bug("The records of a secret would be sampled one by one.", "sampled units are records or owners")
        data = _SampledUnits(data, mechanism.rate, source)
    return mechanism.with_noise(exact_sum(query, data), source)


def select(
    mechanism: NoisySelection, query: OpenQuery, data: Batches[Any], *, source: NoiseSource
) -> dict[str, NDArray[Any]]:
    """Sum the query over the records, add the noise, and keep what is above the threshold.

    Only code that has paid for ``mechanism`` may call it.

    Returns:
        ``value``: ``Float64[k]``, noisy sums in units of 1.0; ``names``: their names (:func:`encode_names`), in order.

    Raises PrivacyError if the query lets a unit have more names than planned, or yields a name twice or out of order.
    """
    if query.most > mechanism.most:
        raise bug("A query lets a unit have more names than were planned.", "plan it with the number that it states")
    names, values, last = list[str](), [np.zeros(0)], ""
    for found, sums in query.sums(data):
        if not all(map(lt, [last, *found], found)):
            raise bug("A query yielded a name twice, or out of order.", "it yields each once, in the order of names")
        noisy = source.added(_checked(sums, (len(found),)), "gaussian", scale=mechanism.scale)
        above = np.flatnonzero(noisy > mechanism.threshold)
        names += [found[place] for place in above.tolist()]
        values.append(noisy[above] / mechanism.sensitivity.grid)
        last = found[-1] if found else last
    return {"value": np.concatenate(values), "names": encode_names(names)}


def exact_sum(query: Query[Any], data: Batches[Any]) -> NDArray[np.int64]:
    """Return the exact sum, ``Int64[query.shape]``. Private. Parts, order and machines do not change integer sums.

    Raises PrivacyError if the query or a worker answers with a different type or shape than stated, or if the sum
    leaves the 64-bit integers.

    >>> from types import SimpleNamespace
    >>> class Numbers(Query):
    ...     sensitivity, shape = Sensitivity.of_counts(1, grid=1), (2,)
    ...
    ...     def of_batch(self, batch):
    ...         return np.bincount(batch, minlength=2)
    >>> exact_sum(Numbers(), SimpleNamespace(batches=lambda: iter([[0, 1], [1]])))
    array([1, 2])
    """
    if not is_divided(data):
        return _checked(query.finish(_sum_of_part(query, data)), query.shape)
    total = np.zeros(query.partial_shape, dtype=np.int64)
    for sums in data.map(partial(_sum_of_part, query)):
        total = _added(total, sums)
    return _checked(query.finish(total), query.shape)


def _sum_of_part(query: Query[Any], part: Batches[Any]) -> NDArray[np.int64]:
    total = np.zeros(query.partial_shape, dtype=np.int64)
    for batch in part.batches():
        total = _added(total, query.of_batch(batch))
    return total


def _added(total: NDArray[np.int64], sums: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of both arrays, without broadcasting or wraparound."""
    added = np.add(total, _checked(sums, total.shape), out=np.empty_like(total))
    if (((total ^ added) & (sums ^ added)) < 0).any():  # both have the opposite sign of their sum
        raise bug("A sum does not fit into 64-bit integers.", "a query's entries must fit, whatever the data contains")
    return added


def _checked(sums: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.int64]:
    if not isinstance(sums, np.ndarray) or sums.dtype != np.int64 or sums.shape != shape:
        raise bug(
            "A query answered with the wrong type or shape.",
            "a query returns int64 sums of its stated shape, whatever the data contains",
        )
    return sums


@dataclass(frozen=True, repr=False)
class _Sampled:
    """The records of a Poisson sample. Each record is included independently, decided anew in every pass.

    This process samples. Workers of an engine only get sampled records, a batch at a time.
    """

    _data: Batches[Any]
    _rates: Rates
    _source: NoiseSource

    @property
    def engine(self) -> Engine | None:
        return self._data.engine if is_divided(self._data) else None

    def map(self, function: Callable[[Batches[Any]], R]) -> Iterator[R]:
        """Map as :meth:`Divided.map`, in one pass."""
        if self.engine is None:
            yield function(self)
        else:
            yield from self.engine.map(partial(_of_batch, function), self.batches())

    def batches(self) -> Iterator[Any]:
        first = 0
        for batch in self._data.batches():
            included = self._source.include(self._of(first, len(batch.texts)))
            first += len(batch.texts)
            if included.any():
                yield batch.only(included)
        if not isinstance(self._rates, float) and first != len(self._rates):
            raise _other_corpus()

    def _of(self, first: int, count: int) -> NDArray[np.float64]:
        if isinstance(self._rates, float):
            return np.full(count, self._rates)
        if first + count > len(self._rates):
            raise _other_corpus()
        return self._rates[first : first + count]


_TEXTS, _CHARACTERS = 1024, 1 << 22


@dataclass(frozen=True, repr=False)
class _SampledUnits(_Sampled):
    """A Poisson sample of the privacy units: when a unit's first record is read, one random decision includes all of
    its records or none."""

    def batches(self) -> Iterator[Any]:
        return _together(batch.only(included) for batch, included in self.tossed() if included.any())

    def tossed(self) -> Iterator[tuple[Any, NDArray[np.bool_]]]:
        """Yield each batch, and which of its records are sampled."""
        tossed, coins = 0, np.zeros(1024, dtype=np.bool_)
        for batch in self._data.batches():
            met = np.unique(batch.units[(batch.units < 0) | (batch.units >= tossed)])
            new = len(met)
            if not np.array_equal(met, np.arange(tossed, tossed + new)):
                raise bug(
                    "Two units might be sampled by the same random decision.",
                    "batches number units from 0, in order of first occurrence",
                )
            if tossed + new > len(coins):
                coins = np.concatenate([coins, np.zeros(len(coins) + new, dtype=np.bool_)])
            coins[tossed : tossed + new] = self._source.include(self._of(tossed, new))
            tossed += new
            yield batch, coins[batch.units]


def take_sample(data: Batches[Any], rate: float, source: NoiseSource) -> dict[str, NDArray[Any]]:
    """Return a Poisson sample of the privacy units, to be stored: the numbers of the sampled units in order, and a hash
    that identifies their records. Private. Only code that has paid for the sample may call it."""
    units, records = [np.zeros(0, dtype=np.int64)], 0
    for batch, included in _SampledUnits(data, rate, source).tossed():
        units.append(batch.units[included])
        records += _sum_of_hashes(batch.only(included)) if included.any() else 0
    return {"units": np.unique(np.concatenate(units)), "records": _as_bytes(records)}


@dataclass(frozen=True, repr=False)
class SampleOf:
    """The records of a stored sample. Private; its ``repr`` shows nothing.

    Units are numbered by the order of the rows. Reordered rows would give a different sample, so every pass checks at
    its end that it read the records of the stored one. Raises ResumeError there if they differ.

    Args:
        kept: the result of :func:`take_sample`.
    """

    data: Batches[Any]
    kept: Mapping[str, NDArray[Any]]

    @property
    def workers(self) -> Engine | None:
        """Return the engine for sampled batches; this process reads the table."""
        return self.data.engine if is_divided(self.data) else None

    def batches(self) -> Iterator[Any]:
        return _together(self._sampled())

    def _sampled(self) -> Iterator[Any]:
        records = 0
        for batch in self.data.batches():
            included = np.isin(batch.units, self.kept["units"])
            if included.any():
                only = batch.only(included)
                records += _sum_of_hashes(only)
                yield only
        if not np.array_equal(_as_bytes(records), self.kept["records"]):
            raise ResumeError(
                "The order of the rows has changed since this run took its sample of them.",
                "Give the files as they were then, or use --fresh to start over (which charges the budget again).",
            )


def _sum_of_hashes(batch: Any) -> int:
    """Return a sum of hashes of each record's unit and text: the same for batches of any size."""
    pairs = (f"{unit} {text}" for unit, text in zip(batch.units.tolist(), batch.texts, strict=True))
    return sum(int.from_bytes(hashlib.sha256(pair.encode("utf-8", "surrogatepass")).digest()) for pair in pairs)


def _as_bytes(total: int) -> NDArray[np.uint8]:
    return np.frombuffer((total % 2**256).to_bytes(32), dtype=np.uint8)


def _together(batches: Iterable[Any]) -> Iterator[Any]:
    """Merge the sampled records of several batches, up to _TEXTS or _CHARACTERS: models are slow with few texts at a
    time."""
    held: list[Any] = []
    for batch in batches:
        held.append(batch)
        texts = [text for each in held for text in each.texts]
        if len(texts) >= _TEXTS or sum(map(len, texts)) >= _CHARACTERS:
            yield held[0].with_those_of(held[1:])
            held = []
    if held:
        yield held[0].with_those_of(held[1:])


@dataclass(frozen=True, repr=False)
class _OneBatch:
    batch: Any

    def batches(self) -> Iterator[Any]:
        yield self.batch


def _of_batch(function: Callable[[Batches[Any]], R], batch: Any) -> R:
    return function(_OneBatch(batch))


def _other_corpus() -> PrivacyError:
    return PrivacyError(
        "The number of records in the corpus differs from the number of inclusion probabilities.",
        "Make the incidence file again from the corpus as it is now.",
    )
