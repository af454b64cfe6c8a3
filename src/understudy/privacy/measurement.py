"""From private records to one noisy value: what a query adds per batch, the loop over batches, and the noise.

A query says what *one batch* adds, as exact integers that may be added in any order, on any machine. The loop is here,
once for all queries; so is the check that what is summed is what was paid for.
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
"""The rate of every record, or ``Float64[n]``, one per record of the corpus, in its order."""


class Query(Protocol[Batch_contra]):
    """A sum of one integer vector per unit.

    ``sensitivity`` bounds how far one unit moves the finished integers, after all rounding. Entries must fit: no sum
    over a corpus leaves the 64-bit integers.
    """

    @property
    def sensitivity(self) -> Sensitivity: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def partial_shape(self) -> tuple[int, ...]:
        return self.shape

    def of_batch(self, batch: Batch_contra) -> NDArray[np.int64]:
        """What one batch adds: ``Int64[partial_shape]``. Private: only :func:`exact_sum` may call it."""
        ...

    def finish(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """``Int64[shape]`` from what all batches add: an exact function of the whole sum, mostly the identity. Where
        it is another, ``sensitivity`` is that of its result."""
        return sums


@dataclass(frozen=True)
class PlannedQuery(Query[Batch_contra], Generic[Batch_contra, Spec]):
    """A query that is built from the spec of its charge (:meth:`~understudy.privacy.plan.Plan.query`), so that the two
    cannot disagree: it states no sensitivity itself, and of its shape what its data are found to have.

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
        """The sizes of the last dimensions, where data tell them: :func:`measure` sees that they are as planned."""
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
    """A sum of one integer vector per unit, over names that nobody listed.

    A unit adds :func:`~understudy.privacy.selection.weight_of` m to each of the m names of its set, m at most ``most``;
    which these are depends on the unit alone.
    """

    @property
    def most(self) -> int: ...

    def sums(self, data: Any) -> Iterator[tuple[list[str], NDArray[np.int64]]]:
        """Each name that occurs, once, with its exact sum, some at a time, in the order of names. Private: only
        :func:`select` may call it."""
        ...


class Batches(Protocol[Batch_co]):
    """Private records, read batch by batch, as often as is asked. All records of an owner that must be seen together
    are in one batch."""

    def batches(self) -> Iterator[Batch_co]: ...


class Engine(Protocol):
    """Where parts are worked on. What workers give back is private like what they read."""

    @property
    def workers(self) -> int: ...

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """``function`` of each item, in the items' order; a few items are taken ahead.

        Both are pickled, and an item may be worked on again after a worker died, so that ``function`` must give the
        same each time.

        Raises:
            UnderstudyError: the first of those that ``function`` raised.
            EngineError: ``function`` raised something else, whose message is kept back, or workers died at an item
                again and again.
        """
        ...

    def ask(self, probe: Callable[[], R], *, always: bool = False) -> R:
        """The answer that every kind of worker gives; EngineError if two differ.

        ``always``: workers that join later must give it too before they work.
        """
        ...


class Divided(Protocol):
    """Records that are worked on in disjoint parts, which together are all of them."""

    @property
    def engine(self) -> Engine | None:
        """Where; None: here, in one part."""
        ...

    def map(self, function: Callable[[Any], R]) -> Iterator[R]:
        """``function`` of every part, which is :class:`Batches`, in the parts' order."""
        ...


def is_divided(data: Any) -> TypeGuard[Divided]:
    """Whether the records are worked on in parts."""
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

    Only what has paid for ``mechanism`` may call it.

    Args:
        records_per_unit: how many vectors one unit adds at most: m for a secret, 1 for records and owners.
        rates: with which records are sampled, for a :class:`~understudy.privacy.mechanisms.SampledSum`.

    Raises PrivacyError if the query is not what the mechanism was planned for: a larger sensitivity, another grid or
    shape, other rates; or it answers with another type or shape than it states.
    """
    moved = query.sensitivity.times(records_per_unit)
    planned = len(query.shape) == len(mechanism.shape) and all(
        size in (None, found) for size, found in zip(mechanism.shape, query.shape, strict=True)
    )
    if not planned or not moved.within(mechanism.sensitivity, mechanism.noise):
        raise bug(
            "A query is not the one that was planned: its sensitivity, grid or shape is another.",
            "plan each sum with the sensitivity that its query states",
        )
    if isinstance(mechanism, SampledSum) != (rates is not None):
        raise bug(
            "Only a sum over sampled records has rates, and it needs them.",
            "give the rates to the sums that were planned with some",
        )
    if isinstance(mechanism, SampledSum):
        assert rates is not None
        rates = float(rates) if np.ndim(rates) == 0 else np.asarray(rates, dtype=np.float64)
        if not np.all((np.asarray(rates) >= 0) & (np.asarray(rates) <= 1)):
            raise bug("Records would be sampled with a rate that is no probability.", "its rates must lie in [0, 1]")
        if not isinstance(rates, float) and mechanism.incidence is None:
            raise bug(
                "Records would be sampled with rates of their own, and the plan states one for all.",
                "rates per record follow from an incidence that the plan names",
            )
        if isinstance(rates, float) and {rate for secret in mechanism.inclusion for rate, _ in secret} != {rates}:
            raise bug(
                "Records would be sampled with another rate than the event states.",
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

    Only what has paid for ``mechanism`` may call it.

    Returns:
        ``value``: ``Float64[k]``, noisy sums in units of 1.0; ``names``: their names (:func:`encode_names`), in order.

    Raises PrivacyError if the query is not what the mechanism was planned for, or gives a name twice.
    """
    if query.most > mechanism.most:
        raise bug("A query lets a unit have more names than were planned.", "plan it with the number that it states")
    names, values, last = list[str](), [np.zeros(0)], ""
    for found, sums in query.sums(data):
        if not all(map(lt, [last, *found], found)):
            raise bug("A query gave a name twice, or in another order.", "it gives each once, in the order of names")
        noisy = source.added(_checked(sums, (len(found),)), "gaussian", scale=mechanism.scale)
        above = np.flatnonzero(noisy > mechanism.threshold)
        names += [found[place] for place in above.tolist()]
        values.append(noisy[above] / mechanism.sensitivity.grid)
        last = found[-1] if found else last
    return {"value": np.concatenate(values), "names": encode_names(names)}


def exact_sum(query: Query[Any], data: Batches[Any]) -> NDArray[np.int64]:
    """The exact sum, ``Int64[query.shape]``. Private. Integers: in whatever parts, order and places they are added.

    Raises PrivacyError if the query, or a worker, answers with another type or shape than it states, or the sum leaves
    the 64-bit integers.

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
    """Their sum, in which nothing is broadcast and nothing wraps."""
    added = np.add(total, _checked(sums, total.shape), out=np.empty_like(total))
    if (((total ^ added) & (sums ^ added)) < 0).any():  # both have another sign than what they add up to
        raise bug(
            "A sum does not fit into 64-bit integers.", "a query states entries that fit, whatever the data holds"
        )
    return added


def _checked(sums: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.int64]:
    if not isinstance(sums, np.ndarray) or sums.dtype != np.int64 or sums.shape != shape:
        raise bug(
            "A query answered with the wrong type or shape.",
            "a query returns int64 sums of its stated shape whatever the data holds",
        )
    return sums


@dataclass(frozen=True, repr=False)
class _Sampled:
    """The records of a Poisson sample: one coin per record, in order, tossed afresh in every pass.

    Coins are tossed in this process. Workers of an engine get sampled records alone, a batch at a time.
    """

    _data: Batches[Any]
    _rates: Rates
    _source: NoiseSource

    @property
    def engine(self) -> Engine | None:
        return self._data.engine if is_divided(self._data) else None

    def map(self, function: Callable[[Batches[Any]], R]) -> Iterator[R]:
        """As :meth:`Divided.map`, in one pass."""
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
    """A Poisson sample of the units: one coin for all records of each, tossed where it is first met."""

    def batches(self) -> Iterator[Any]:
        return _together(batch.only(included) for batch, included in self.tossed() if included.any())

    def tossed(self) -> Iterator[tuple[Any, NDArray[np.bool_]]]:
        """Each batch, and which of its records are sampled."""
        tossed, coins = 0, np.zeros(1024, dtype=np.bool_)
        for batch in self._data.batches():
            met = np.unique(batch.units[(batch.units < 0) | (batch.units >= tossed)])
            new = len(met)
            if not np.array_equal(met, np.arange(tossed, tossed + new)):
                raise bug("Two units might share a coin.", "batches number units from 0, as they are first met")
            if tossed + new > len(coins):
                coins = np.concatenate([coins, np.zeros(len(coins) + new, dtype=np.bool_)])
            coins[tossed : tossed + new] = self._source.include(self._of(tossed, new))
            tossed += new
            yield batch, coins[batch.units]


def take_sample(data: Batches[Any], rate: float, source: NoiseSource) -> dict[str, NDArray[Any]]:
    """A Poisson sample of the units, to be stored: their numbers in order, and a hash of their records, by which they
    are known again. Private. Only what has paid for its use may call it."""
    units, records = [np.zeros(0, dtype=np.int64)], 0
    for batch, included in _SampledUnits(data, rate, source).tossed():
        units.append(batch.units[included])
        records += _sum_of_hashes(batch.only(included)) if included.any() else 0
    return {"units": np.unique(np.concatenate(units)), "records": _as_bytes(records)}


@dataclass(frozen=True, repr=False)
class SampleOf:
    """The records of a sample that was taken before. Private; its ``repr`` shows nothing.

    Units have their numbers from the order of the rows: every pass sees at its end that it read the records of that
    sample, so that rows in another order are not another sample. Raises ResumeError there: they are others.

    Args:
        kept: what :func:`take_sample` gave.
    """

    data: Batches[Any]
    kept: Mapping[str, NDArray[Any]]

    @property
    def workers(self) -> Engine | None:
        """Who may work on sampled batches; the table is read here."""
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
                "The rows are in another order than when this run took its sample of them.",
                "Give the files as they were then, or use --fresh to start over (which charges the budget again).",
            )


def _sum_of_hashes(batch: Any) -> int:
    """A sum of hashes of each record's unit and text: the same in batches of any size."""
    pairs = (f"{unit} {text}" for unit, text in zip(batch.units.tolist(), batch.texts, strict=True))
    return sum(int.from_bytes(hashlib.sha256(pair.encode("utf-8", "surrogatepass")).digest()) for pair in pairs)


def _as_bytes(total: int) -> NDArray[np.uint8]:
    return np.frombuffer((total % 2**256).to_bytes(32), dtype=np.uint8)


def _together(batches: Iterable[Any]) -> Iterator[Any]:
    """What is sampled of several batches is handed on together, up to _TEXTS or _CHARACTERS: models are slow with few
    texts at a time."""
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
        "The corpus does not hold as many records as there are inclusion probabilities.",
        "Make the incidence file again from the corpus as it is now.",
    )
