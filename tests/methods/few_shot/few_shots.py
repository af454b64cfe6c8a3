"""Small few-shot releases in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from echo_model import EchoModel
from tiny_corpora import LABELS, RECORD, Row, bounded

from understudy.methods.base import Arrays, PublicFacts, Released, ReleaseTools
from understudy.methods.few_shot.method import FewShot
from understudy.privacy.guarantee import Budget
from understudy.privacy.noise import InsecureNoNoise, NoiseSource
from understudy.privacy.plan import Plan, Receipt
from understudy.privacy.unit import Unit
from understudy.prompts.parameters import WritingParameters
from understudy.prompts.predicting import CompletionForm, CompletionRecordsForm, PredictionPrompts
from understudy.prompts.template import Prompts, PromptTemplate

BUDGET = Budget(6, "1e-6")
TEMPLATE = PromptTemplate(
    document_type="note",
    user="-",
    prediction=PredictionPrompts(
        completion=CompletionForm(before="Notes.", block="T:{text}", cue="T:"),
        completion_records=CompletionRecordsForm(before="", block="T:{text}", cue="T:"),
    ),
)
ROWS = [Row(f"text {number}", number % LABELS, f"owner {number % 7}") for number in range(30)]


def method(**parameters: Any) -> FewShot:
    small: dict[str, Any] = {
        "sampling_rate": 0.5,
        "subsets": 3,
        "examples_per_subset": 2,
        "tokens": 24,
        "exemplars": 3,
        "exemplar_tokens": 6,
        "candidates": 30,
        "private_text_tokens": 12,
        "prompt_form": "completion",
    }
    return FewShot(**{**small, **parameters})


@dataclass
class Store:
    """What is kept of a run; ``crash_after`` so many new values the process dies."""

    kept: dict[str, Arrays] = field(default_factory=dict)
    crash_after: int | None = None
    lock: Any = field(default_factory=threading.Lock)

    def __call__(self, name: str, draw: Callable[[], Arrays]) -> Arrays:
        with self.lock:
            if name not in self.kept:
                if self.crash_after == 0:
                    raise KeyboardInterrupt
                self.kept[name] = {key: np.array(value) for key, value in draw().items()}
                if self.crash_after is not None:
                    self.crash_after -= 1
            return self.kept[name]

    def tokens(self, label: int) -> int:
        """How many are stored of a label."""
        return sum(len(each["tokens"]) for name, each in self.kept.items() if name.startswith(f"tokens/{label}/"))


def plan_of(chosen: FewShot, *, unit: Unit = RECORD, budget: Budget = BUDGET) -> Plan:
    return chosen.plan(budget, PublicFacts(unit, LABELS))


def release(
    chosen: FewShot,
    rows: Sequence[Row] = ROWS,
    *,
    unit: Unit = RECORD,
    model: Any = None,
    noise: NoiseSource | None = None,
    store: Store | None = None,
    receipt: Receipt | None = None,
    said: list[str] | None = None,
    columns: Sequence[str] = (),
) -> Released:
    plan = plan_of(chosen, unit=unit)
    tools = ReleaseTools(
        labels=LABELS,
        label_names=tuple("abc"[:LABELS]),
        receipt=receipt or Receipt("run", plan.charges),
        noise=noise or InsecureNoNoise(),
        keep=store if store is not None else Store(),
        embedder=None,
        seed=0,
        model=model or EchoModel(),
        prompts=Prompts(WritingParameters(max_tokens=8), TEMPLATE),
        record_columns=tuple(columns),
        say=(said if said is not None else []).append,
    )
    return chosen.release(bounded(rows, plan.unit), plan, tools)
