"""Record a run: the values that pass its door, and everything else it does. Replay a second run with these values.

A recorded run is NOT PRIVATE: its noise is seeded, and nothing is charged.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import math
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from understudy.models.collect import closing
from understudy.models.types import ChatModel, ChatRequest, Completion
from understudy.privacy.gradients import DPSGD
from understudy.privacy.measurement import Batches, OpenQuery, Query, Rates
from understudy.privacy.mechanisms import SampledSum
from understudy.privacy.noise import InsecureSeededNoise, NoiseKind
from understudy.privacy.sample import SubsampledSums
from understudy.privacy.sealed import Arrays, SealedValue, charge_of
from understudy.privacy.selection import NoisySelection
from understudy.privacy.subsampled import SubsampledTokens
from understudy.privacy.tokens import PrivateTokens
from understudy.run.door import Measurements
from understudy.run.outputs import OutputFolder
from understudy.run.pipeline import run
from understudy.run.session import Listener, Witness
from understudy.run.settings import RunConfig

_ROUNDING = 1 + 1e-12  # tolerance of norms in floating point


@dataclass(frozen=True)
class Finding:
    """A difference between two runs that got the same released values. Private, because it may quote a record.

    Args:
        kind: ``sensitivity``, ``order``, or what differs: ``request``, ``message``, ``file``, ``outcome``, ...
    """

    kind: str
    detail: str


class _Stop(BaseException):
    """Ends a run that measures something different from the first. No method catches it by mistake."""


@dataclass(frozen=True)
class _Drawn:
    key: str
    exact: NDArray[np.int64]
    result: Any
    names: Sequence[str] | None = None


@dataclass
class Tape:
    """Records the values and actions of one run. Given the tape of the ``first`` run, replays its values.

    Args:
        units: by how many units the table differs from the first one's: a sum may move by so many sensitivities.
    """

    first: Tape | None = None
    units: int = 0
    drawn: list[_Drawn] = field(default_factory=list)
    done: list[tuple[str, str]] = field(default_factory=list)
    answers: dict[str, Completion] = field(default_factory=dict)
    sealed: dict[str, Arrays] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)
    unchecked: set[str] = field(default_factory=set)
    failed: BaseException | None = None

    def did(self, kind: str, detail: str) -> None:
        self.done.append((kind, detail))

    def draw(self, key: str, exact: NDArray[np.int64], make: Callable[[], Any], moved: _Moved) -> Any:
        """Return a noisy value: the next one of the first run or, if this is the first run, the result of ``make``."""
        if self.first is None:
            result = make()
        else:
            before = self.first.drawn[len(self.drawn)] if len(self.drawn) < len(self.first.drawn) else None
            if before is None or before.key != key or before.exact.shape != exact.shape:
                shape = "x".join(map(str, exact.shape))
                self.found.append(Finding("order", f"measurement {len(self.drawn) + 1} is {key} of {shape} numbers"))
                raise _Stop
            self._compare(key, exact - before.exact, moved)
            result = before.result
        self.drawn.append(_Drawn(key, exact.copy(), result))
        return result

    def _compare(self, key: str, difference: NDArray[np.int64], moved: _Moved) -> None:
        if moved.bound is None:
            return
        size = np.abs(difference.astype(np.float64))
        norm = {"l1": size.sum(), "l2": math.sqrt((size**2).sum()), "most": size.max(initial=0.0)}[moved.norm]
        if norm > moved.bound * self.units * _ROUNDING:
            says = f"an exact value moved by {norm:g} in its norm, but {self.units} x {moved.bound:g} is declared"
            self.found.append(Finding("sensitivity", f"{key}: {says}"))

    def findings(self) -> tuple[Finding, ...]:
        """Return the differences from the first run, the first of each kind."""
        assert self.first is not None
        found = list({(each.kind, each.detail.partition(":")[0]): each for each in reversed(self.found)}.values())[::-1]
        stopped = isinstance(self.failed, _Stop)
        if not stopped and len(self.drawn) < len(self.first.drawn):
            found.append(Finding("order", f"{len(self.drawn)} measurements, and {len(self.first.drawn)} before"))
        kinds = dict.fromkeys(kind for kind, _ in (*self.first.done, *self.done))
        before = len(found)
        for kind in kinds:
            pair = [[detail for other, detail in tape.done if other == kind] for tape in (self.first, self)]
            if stopped:
                pair[0] = pair[0][: len(pair[1])]
            if kind in _IN_ANY_ORDER:
                pair = [sorted(each) for each in pair]
            if pair[0] != pair[1]:
                found.append(Finding(kind, _difference(*pair)))
        ordered = [[each for each in tape.done if each[0] not in _IN_ANY_ORDER] for tape in (self.first, self)]
        if not stopped and len(found) == before and ordered[0] != ordered[1]:
            found.append(Finding("order", "the same things, in another order"))
        return tuple(found)


_SHOWN = 300
_IN_ANY_ORDER = {"value", "kept"}  # several threads may make them


def _difference(one: Sequence[str], other: Sequence[str]) -> str:
    place = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    shown = [f"{each[place]!r:.{_SHOWN}}" if place < len(each) else "nothing" for each in (one, other)]
    return f"number {place + 1} of {len(one)} and {len(other)}: {shown[0]} became {shown[1]}"


@dataclass(frozen=True)
class _Moved:
    """How far one unit may move an exact value; None if unknown."""

    bound: float | None
    norm: str


_KNOWN = (DPSGD, PrivateTokens, SubsampledSums, SubsampledTokens)


def _moved(mechanism: Any, kind: NoiseKind | None, scale: float, records: int) -> _Moved:
    """Return it for noise of this ``kind``; None: for a choice by the exponential mechanism."""
    norm = "most" if kind is None else "l2" if kind == "gaussian" else "l1"
    bound: float | None = None
    if isinstance(mechanism, SubsampledSums):
        mechanism = next((each for _, each in mechanism.sums if each.scale == scale), None)
    if isinstance(mechanism, PrivateTokens):
        test = mechanism.test
        of_test = test.grid if test is not None and scale == 2 * test.scale(mechanism.batch_size) else 0
        bound = of_test if kind else mechanism.grid * (scale == mechanism.scale)  # thresholds and public tokens stay
    elif isinstance(mechanism, SubsampledTokens):
        bound = math.sqrt(2) * mechanism.grid if kind else 1
    elif isinstance(mechanism, DPSGD):
        bound = mechanism.sensitivity.l2
    elif kind is not None and (sensitivity := getattr(mechanism, "sensitivity", None)) is not None:
        bound = sensitivity.of(kind) * (records if isinstance(mechanism, SampledSum) else 1)
    return _Moved(bound, norm)


class _Source(InsecureSeededNoise):
    """The noise of one charge. All units are in every sample. Other random decisions are the same for the units that
    remain, since the one that changes is the last."""

    def __init__(self, tape: Tape, charge: str, mechanism: Any, records: int) -> None:
        digest = hashlib.sha256(f"{charge} {len(tape.drawn)}".encode()).digest()
        super().__init__(int.from_bytes(digest[:8]))
        self._tape, self._charge, self._mechanism, self._records, self._asked = tape, charge, mechanism, records, 0

    def _taped(self, what: str, exact: Any, make: Callable[[], Any], kind: NoiseKind | None, scale: float) -> Any:
        moved = _moved(self._mechanism, kind, scale, self._records)
        if moved.bound is None:
            self._tape.unchecked.add(self._charge)
        return self._tape.draw(f"{self._charge} ({what}, scale {scale:g})", exact, make, moved)

    def added(self, exact: NDArray[np.int64], kind: NoiseKind, *, scale: float) -> NDArray[np.int64]:
        made = partial(super().added, exact, kind, scale=scale)
        found: NDArray[np.int64] = self._taped(kind, exact, made, kind, scale)
        return found

    def added_normal(self, exact: NDArray[np.int64], *, scale: float) -> NDArray[np.int64]:
        made = partial(super().added_normal, exact, scale=scale)
        found: NDArray[np.int64] = self._taped("normal", exact, made, "gaussian", scale)
        return found

    def choose(self, utilities: NDArray[np.int64], *, scale: float) -> int:
        made = partial(super().choose, utilities, scale=scale)
        return int(self._taped("choice", utilities, made, None, scale))

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.asarray(rates > 0, dtype=np.bool_)

    def uniform(self, size: int, *, below: int) -> NDArray[np.int64]:
        self._asked += 1
        return np.random.default_rng(self._asked).integers(0, below, size=size, dtype=np.int64)


@dataclass(frozen=True, repr=False)
class _Union:
    """A query over unlisted names, as one over the names of both runs."""

    query: OpenQuery
    tape: Tape
    charge: str

    @property
    def most(self) -> int:
        return self.query.most

    def sums(self, data: Any) -> Iterator[tuple[list[str], NDArray[np.int64]]]:
        own = {name: total for names, sums in self.query.sums(data) for name, total in zip(names, sums, strict=True)}
        first = self.tape.first
        place = len(self.tape.drawn)
        if first is not None and place < len(first.drawn) and (listed := first.drawn[place].names) is not None:
            before = first.drawn[place]
            known = dict(zip(listed, zip(before.exact.tolist(), before.result.tolist(), strict=True), strict=True))
            names = sorted(own.keys() | known.keys())
            unseen = (0, -(2**60))  # which is below every threshold
            exact, result = np.array([known.get(name, unseen) for name in names], dtype=np.int64).reshape(-1, 2).T
            # the first run, as if with these names
            first.drawn[place] = replace(before, exact=exact, result=result, names=names)
        names = sorted(own) if first is None else names
        yield names, np.array([own.get(name, 0) for name in names], dtype=np.int64)
        if first is None:
            self.tape.drawn[place] = replace(self.tape.drawn[place], names=names)
        else:
            first.drawn[place] = before


class _Door(Measurements):
    """The door between private records and released values, with every value recorded or replayed."""

    tape: Tape

    def _source(self, name: str) -> _Source:
        return _Source(self.tape, name, self.plan.mechanism(name), self.plan.unit.max_records)

    def measure(
        self, name: str, query: Query[Any] | OpenQuery, data: Batches[Any], *, rates: Rates | None = None
    ) -> SealedValue:
        self.tape.did("measurement", name)
        taped: Query[Any] | OpenQuery = query
        if isinstance(query, OpenQuery) and isinstance(self.plan.mechanism(name), NoisySelection):
            taped = _Union(query, self.tape, name)
        through = _door(replace(self, noise=self._source(name)), self.tape)
        return Measurements.measure(through, name, taped, data, rates=rates)

    def open(self, name: str) -> Any:
        self.tape.did("measurement", f"{name}, in parts")
        mechanism = self.receipt.pay(name)
        if not isinstance(mechanism, _KNOWN):
            self.tape.unchecked.add(name)
        given = mechanism.open(self._source(name))
        self.opened.add(name)
        return given

    def _sealed(self, name: str, make: Callable[[], Arrays]) -> SealedValue:
        mechanism, first = self.plan.mechanism(charge_of(name)), self.tape.first
        if isinstance(mechanism, SubsampledSums) and name == f"{charge_of(name)}/sample":
            return super()._sealed(name, make)  # exact, and private: the units in the sample

        def taped() -> Arrays:
            made = make()
            if charge_of(name) in self.tape.unchecked and first is not None and name in first.sealed:
                return first.sealed[name]  # noise that was not requested here
            return made

        found = super()._sealed(name, taped)
        self.tape.sealed[name] = found.arrays
        self.tape.did("value", f"{name} {_digest(found.arrays)}")
        return found

    def keep(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        found = super().keep(name, make)
        self.tape.did("kept", f"{name} {_digest(found)}")
        return found


def _door(made: Measurements, tape: Tape) -> _Door:
    door = _Door(**{name: getattr(made, name) for name in Measurements.__dataclass_fields__})
    object.__setattr__(door, "tape", tape)
    return door


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    whole = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        whole.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
    return whole.hexdigest()[:16]


@dataclass(frozen=True)
class _Eyes(Witness):
    tape: Tape

    def door(self, door: Measurements) -> Measurements:
        self.tape.did("plan", json.dumps([charge.to_json() for charge in door.plan.charges], sort_keys=True))
        return _door(door, self.tape)

    def chat(self, chat: ChatModel) -> ChatModel:
        return _Heard(chat, self.tape)


class _Heard:
    """A language model whose requests are recorded; it repeats the first run's answers."""

    def __init__(self, chat: ChatModel, tape: Tape) -> None:
        self._chat, self._tape, self.model_id = chat, tape, chat.model_id
        self.room = getattr(chat, "room", None)

    async def complete(self, requests: Sequence[ChatRequest]) -> AsyncIterator[tuple[int, Completion]]:
        for request in requests:
            self._tape.did("request", json.dumps(asdict(request)))
        keys = [request.key(self.model_id) for request in requests]
        answers = {} if self._tape.first is None else dict(self._tape.first.answers)
        asked = [place for place, key in enumerate(keys) if key not in answers]
        if asked:
            stream = self._chat.complete([requests[place] for place in asked])
            async with closing(stream):
                async for place, completion in stream:
                    answers[keys[asked[place]]] = completion
        self._tape.answers |= {key: answers[key] for key in keys if key in answers}
        for place, key in enumerate(keys):
            if key in answers:
                yield place, answers[key]


class _Lines(logging.Handler):
    def __init__(self, tape: Tape) -> None:
        super().__init__(logging.INFO)
        self._tape = tape

    def emit(self, record: logging.LogRecord) -> None:
        self._tape.did("log", f"{record.name}: {record.getMessage()}")


def watch(config: RunConfig, output: OutputFolder, tape: Tape) -> None:
    """Make the run that ``config`` describes, and record on ``tape`` everything that it does."""
    listener = Listener(
        lambda line: tape.did("message", line),
        lambda what, done, total: tape.did("progress", f"{what} {done} of {total}"),
    )
    out, error, lines = io.StringIO(), io.StringIO(), _Lines(tape)
    logging.getLogger().addHandler(lines)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(error),
            warnings.catch_warnings(record=True) as warned,
            patch("time.perf_counter", lambda: 0.0),  # how long something took is not compared
        ):
            warnings.simplefilter("always")
            try:
                run(config, listener=listener, witness=_Eyes(tape))
            except (Exception, SystemExit, _Stop) as problem:
                tape.failed = problem
    finally:
        logging.getLogger().removeHandler(lines)
    for each in warned:
        tape.did("warning", f"{each.category.__name__}: {each.message}")
    if isinstance(tape.failed, _Stop):
        return
    tape.did("outcome", "ended" if tape.failed is None else f"{type(tape.failed).__name__}: {tape.failed}")
    tape.did("standard output", out.getvalue())
    tape.did("standard error", error.getvalue())
    for path in sorted(output.root.rglob("*")):
        if path != output.private and output.private not in path.parents:
            content = hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else "folder"
            tape.did("file", f"{path.relative_to(output.root)} {content}")
