"""Small releases of private prediction in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from doors import MemoryStore, door_of
from numpy.typing import NDArray
from script_model import ScriptModel
from tiny_corpora import LABELS, RECORD, Row, bounded

from understudy.methods.base import Preparation, Released, ReleaseTools
from understudy.methods.facts import PublicFacts
from understudy.methods.private_prediction.method import PrivatePrediction
from understudy.privacy.guarantee import Budget
from understudy.privacy.noise import NoiseSource
from understudy.privacy.plan import Plan, Receipt
from understudy.privacy.sealed import Arrays, Seal, SealedValue
from understudy.privacy.unit import Unit
from understudy.schema.labels import LabelSet
from understudy.text.prompts.predicting import CompletionForm, CompletionRecordsForm, PredictionPrompts
from understudy.text.prompts.template import Prompts, PromptTemplate, WritingParameters

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
NAMES = LabelSet(tuple("abc"[:LABELS]))
ODD_TABLES: dict[str, Sequence[Row]] = {
    "none": [],
    "one record": [Row("alone", 1)],
    "an empty label": [Row(f"text {number}", number % 2) for number in range(12)],
    "empty texts": [Row("", 0), Row(" \n\n ", 0), Row("", 2)],
    "odd characters": [Row("\u0000", 0), Row("\U0001f600\u2028", 0)],
    "one long text": [Row("word " * 900, 0)],
    "an end in the text": [Row("T:\n\nT:", number % LABELS) for number in range(9)],
    "the same text": [Row("again", 0)] * 25,
    "many": ROWS,
}


class Scripted(NoiseSource):
    """Takes the greatest utility. Counts, and dies at the ``dies_at``-th choice.

    Adds ``threshold`` to each threshold of a sparse vector, and nothing to distances. ``thresholds`` counts the runs.
    """

    origin = "none"

    def __init__(self, dies_at: int | None = None, threshold: int = 0) -> None:
        self.dies_at, self.threshold = dies_at, threshold
        self.choices = self.thresholds = 0
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
            first = scale == min(self._scales)
            self.thresholds += first
        return np.full(size, self.threshold if first else 0, dtype=np.int64)

    def include(self, rates: Any) -> Any:
        raise AssertionError("nothing is sampled")

    def uniform(self, size: int, *, below: int) -> Any:
        raise AssertionError("nothing is sampled")


class Died(BaseException):
    """As a killed process: nothing of the run goes on."""


class Store(MemoryStore):
    """What is kept of a run, by several threads. ``dies`` says at which new value and where in it the process dies."""

    def __init__(self) -> None:
        super().__init__()
        self.dies: tuple[int, str] | None = None
        self.calls = 0
        self.dead = False
        self.drawn: list[str] = []
        self._numbers: dict[str, int] = {}
        self._lock = threading.RLock()

    @property
    def kept(self) -> dict[str, Arrays]:
        return self.arrays

    def live(self, dies: tuple[int, str] | None = None) -> None:
        """Begin the process anew."""
        self.dies, self.calls, self.dead = dies, 0, False

    def sealed(self, name: str) -> SealedValue | None:
        with self._lock:
            if name in self.arrays:
                return super().sealed(name)
            self.calls += 1
            self._numbers[name] = self.calls
        self._die(name, "before the draw")
        return None

    def keep(self, name: str, arrays: Arrays, *, seal: Seal | None = None) -> None:
        self._die(name, "before it is stored")
        with self._lock:
            super().keep(name, {key: np.array(value) for key, value in arrays.items()}, seal=seal)
            self.drawn.append(name)
        self._die(name, "before it is confirmed")

    def _die(self, name: str, place: str) -> None:
        self.dead |= self.dies == (self._numbers[name], place)
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
    return chosen.plan(budget, PublicFacts(unit, NAMES))


def prepare(chosen: PrivatePrediction, model: Any = None, columns: Sequence[str] = (), max_tokens: int = 8) -> None:
    """As a run does before anything is charged."""
    preparation = Preparation(
        NAMES, 0, model=model or ScriptModel(), prompts=prompts(max_tokens), record_columns=tuple(columns)
    )
    chosen.prepare(bounded(ROWS), plan_of(chosen), preparation)


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
    store: MemoryStore | None = None,
    receipt: Receipt | None = None,
    told: Told | None = None,
    columns: Sequence[str] = (),
    max_tokens: int = 8,
) -> Released:
    plan = plan_of(chosen, unit=unit, budget=budget)
    told = told or Told()
    tools = ReleaseTools(
        labels=NAMES,
        seed=0,
        door=door_of(plan, noise or Scripted(), store=Store() if store is None else store, receipt=receipt),
        model=model or ScriptModel(),
        prompts=prompts(max_tokens),
        record_columns=tuple(columns),
        say=told.said.append,
        note=told.diary.append,
    )
    return chosen.release(bounded(rows, plan.unit), plan, tools)
