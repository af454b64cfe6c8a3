"""Small releases of private prediction in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from script_model import ScriptModel
from tiny_corpora import LABELS, RECORD, Row, bounded

from understudy.methods.base import Arrays, PublicFacts, Released, ReleaseTools
from understudy.methods.private_prediction.method import PrivatePrediction
from understudy.privacy.guarantee import Budget
from understudy.privacy.noise import NoiseSource
from understudy.privacy.plan import Plan, Receipt
from understudy.privacy.unit import Unit
from understudy.prompts.parameters import WritingParameters
from understudy.prompts.predicting import CompletionForm, CompletionRecordsForm, PredictionPrompts
from understudy.prompts.template import Prompts, PromptTemplate

BUDGET = Budget(100, "1e-6")
TEMPLATE = PromptTemplate(
    document_type="note",
    user="-",
    prediction=PredictionPrompts(
        completion=CompletionForm(before="Notes.", block="T:{text}", cue="T:"),
        completion_records=CompletionRecordsForm(before="", block="T:{text}", cue="T:"),
    ),
)
ROWS = [Row(f"text {number}", number % LABELS, f"owner {number % 7}") for number in range(30)]
NAMES = tuple("abc"[:LABELS])


class Scripted:
    """Takes the greatest utility; the test's noise is none. Counts, and dies at the ``dies_at``-th choice.

    ``thresholds`` counts the noise drawn for thresholds: the runs of the test that begin.
    """

    origin = "none"

    def __init__(self, dies_at: int | None = None) -> None:
        self.dies_at = dies_at
        self.choices = self.public = self.thresholds = 0
        self._scales: set[float] = set()
        self._lock = threading.Lock()

    def choose(self, utilities: NDArray[np.int64], *, scale: float) -> int:
        with self._lock:
            self.choices += 1
            if self.choices == self.dies_at:
                raise KeyboardInterrupt
        return int(utilities.argmax())

    def draw(self, kind: str, *, scale: float, size: int) -> NDArray[np.int64]:
        with self._lock:
            self._scales.add(scale)
            self.thresholds += scale == min(self._scales)
        return np.zeros(size, dtype=np.int64)

    def include(self, rates: Any) -> Any:
        raise AssertionError("nothing is sampled")

    def uniform(self, size: int, *, below: int) -> Any:
        raise AssertionError("nothing is sampled")


class Died(BaseException):
    """As a killed process: nothing of the run goes on."""


@dataclass
class Store:
    """What is kept of a run, by several threads. ``dies`` says at which call and where in it the process dies."""

    kept: dict[str, Arrays] = field(default_factory=dict)
    dies: tuple[int, str] | None = None
    calls: int = 0
    drawn: list[str] = field(default_factory=list)
    lock: Any = field(default_factory=threading.RLock)

    dead: bool = False

    def live(self, dies: tuple[int, str] | None = None) -> None:
        """Begin the process anew."""
        self.dies, self.calls, self.dead = dies, 0, False

    def __call__(self, name: str, draw: Callable[[], Arrays]) -> Arrays:
        with self.lock:
            if name in self.kept:
                return self.kept[name]
            self.calls += 1
            call = self.calls
        self._die(call, "before the draw")
        arrays = {key: np.array(value) for key, value in draw().items()}
        self._die(call, "before it is stored")
        with self.lock:
            assert name not in self.kept
            self.kept[name] = arrays
            self.drawn.append(name)
        self._die(call, "before it is confirmed")
        return arrays

    def _die(self, call: int, place: str) -> None:
        self.dead |= self.dies == (call, place)
        if self.dead:
            raise Died

    def spent(self, batch: str) -> tuple[int, int]:
        """Private tokens and runs of the test in the stored texts of ``LABEL/BATCH``."""
        found = [value for name, value in self.kept.items() if name.startswith(f"tokens/{batch}/")]
        return sum(int(each["private"].sum()) for each in found), sum(int(each["runs"]) for each in found)


def method(**parameters: Any) -> PrivatePrediction:
    """Small: two batches a label of five texts each, and twelve private tokens."""
    small: dict[str, Any] = {
        "batches": 2,
        "batch_size": 5,
        "tokens_per_batch": 12,
        "private_text_tokens": 16,
        "prompt_form": "completion",
    }
    return PrivatePrediction(**{**small, **parameters})


def prompts(max_tokens: int = 8) -> Prompts:
    return Prompts(WritingParameters(max_tokens=max_tokens), TEMPLATE)


def plan_of(chosen: PrivatePrediction, *, unit: Unit = RECORD, budget: Budget = BUDGET) -> Plan:
    return chosen.plan(budget, PublicFacts(unit, LABELS))


@dataclass
class Told:
    """What a release said, and wrote in its diary."""

    said: list[str] = field(default_factory=list)
    diary: list[Any] = field(default_factory=list)


def release(
    chosen: PrivatePrediction,
    rows: Sequence[Row] = ROWS,
    *,
    unit: Unit = RECORD,
    budget: Budget = BUDGET,
    model: Any = None,
    noise: NoiseSource | None = None,
    store: Callable[[str, Callable[[], Arrays]], Arrays] | None = None,
    receipt: Receipt | None = None,
    told: Told | None = None,
    columns: Sequence[str] = (),
    max_tokens: int = 8,
) -> Released:
    plan = plan_of(chosen, unit=unit, budget=budget)
    told = told or Told()
    tools = ReleaseTools(
        labels=LABELS,
        label_names=NAMES,
        receipt=receipt or Receipt("run", plan.charges),
        noise=noise or Scripted(),
        keep=store if store is not None else Store(),
        embedder=None,
        seed=0,
        model=model or ScriptModel(),
        prompts=prompts(max_tokens),
        record_columns=tuple(columns),
        say=told.said.append,
        diary=told.diary.append,
    )
    return chosen.release(bounded(rows, plan.unit), plan, tools)
