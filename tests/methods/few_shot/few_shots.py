"""Small few-shot releases in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from doors import MemoryStore, door_of
from echo_model import EchoModel
from predictions import NAMES, ROWS, TEMPLATE
from tiny_corpora import RECORD, Row, bounded

from understudy.methods.base import Released, ReleaseTools
from understudy.methods.facts import PublicFacts
from understudy.methods.few_shot.method import FewShot
from understudy.privacy.guarantee import Budget
from understudy.privacy.noise import InsecureNoNoise, NoiseSource
from understudy.privacy.plan import Plan, Receipt
from understudy.privacy.sealed import Arrays, Seal, SealedValue
from understudy.privacy.unit import Unit
from understudy.text.prompts.template import Prompts, WritingParameters

BUDGET = Budget(6, "1e-6")


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


class Store(MemoryStore):
    """What is kept of a run; ``crash_after`` so many new values the process dies."""

    def __init__(self, crash_after: int | None = None) -> None:
        super().__init__()
        self.crash_after = crash_after

    @property
    def kept(self) -> dict[str, Arrays]:
        return self.arrays

    def sealed(self, name: str) -> SealedValue | None:
        if name not in self.arrays and self.crash_after == 0:
            raise KeyboardInterrupt
        return super().sealed(name)

    def keep(self, name: str, arrays: Arrays, *, seal: Seal | None = None) -> None:
        if self.crash_after == 0:
            raise KeyboardInterrupt
        super().keep(name, {key: np.array(value) for key, value in arrays.items()}, seal=seal)
        if self.crash_after is not None:
            self.crash_after -= 1

    def tokens(self, label: int) -> int:
        """How many are stored of a label."""
        return sum(len(each["tokens"]) for name, each in self.kept.items() if name.startswith(f"tokens/{label}/"))


def plan_of(chosen: FewShot, *, unit: Unit = RECORD, budget: Budget = BUDGET) -> Plan:
    return chosen.plan(budget, PublicFacts(unit, NAMES))


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
        labels=NAMES,
        seed=0,
        door=door_of(plan, noise or InsecureNoNoise(), store=Store() if store is None else store, receipt=receipt),
        model=model or EchoModel(),
        prompts=Prompts(WritingParameters(max_tokens=8), TEMPLATE),
        record_columns=tuple(columns),
        say=(said if said is not None else []).append,
    )
    return chosen.release(bounded(rows, plan.unit), plan, tools)
