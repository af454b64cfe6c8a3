"""A method that draws one charge in many parts, by several threads, and can be continued; its Release is its texts."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from secrets import randbits
from typing import Any, ClassVar

import numpy as np
from clinic import settings
from pydantic import Field

import understudy as us
from understudy.base.errors import ReleaseError
from understudy.base.parameters import Parameters
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.base import Method, Needs, Released, ReleaseTools
from understudy.methods.facts import GenerationTools, PublicFacts
from understudy.methods.registry import GROUP
from understudy.privacy.events import PureEvent
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import Declared
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.sealed import Arrays
from understudy.text.records import SyntheticRecord

CHARGE = "tokens"
BATCHES = 2


class Parts(Declared):
    """A mechanism that gives its parts itself."""

    def open(self, _source: Any) -> None:
        """Paid."""


class FreeParameters(Parameters):
    """Nothing is free: the Release holds the texts."""


class PartParameters(FreeParameters):
    """How many parts are drawn."""

    texts_per_batch: int = Field(2, ge=1)
    """Where the release stops: parts of each batch."""
    paid: int = Field(4, ge=1)
    """How many parts of each batch the charge pays for."""
    threads: int = Field(4, ge=1)
    """How many batches are drawn at once."""


class Drawing:
    """The steps of a part that tests watch."""

    @staticmethod
    def draw(name: str) -> Arrays:
        """No two draws are alike."""
        return {"token": np.array([randbits(62)], dtype=np.int64)}

    @staticmethod
    def use(name: str, value: int) -> str:
        """What is shown of a part."""
        return f"text {value}"


class InParts(Method, PartParameters):
    """Draws ``tokens/LABEL/BATCH/NUMBER``; the parts of a batch one after the other, the batches at once."""

    name: ClassVar[str] = "in-parts"
    parameters: ClassVar[type[Parameters]] = PartParameters
    generation_parameters: ClassVar[type[Parameters]] = FreeParameters
    needs: ClassVar[Needs] = Needs(holds_texts=True)
    stopping_parameters: ClassVar[frozenset[str]] = frozenset({"texts_per_batch"})

    def dump(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"threads"})

    def plan(self, budget: Budget, facts: PublicFacts) -> Plan:
        charge = Charge(CHARGE, Parts(PureEvent(float(budget.epsilon) * (1 - 1e-9))), f"{self.paid} parts")
        return Plan(self.name, facts.unit, Budget(budget.epsilon, 0), (charge,))

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        read = sum(len(batch.texts) for batch in corpus.batches())
        assert read >= 0
        tools.open(CHARGE)

        def batch(place: tuple[int, int]) -> list[str]:
            names = [
                f"{CHARGE}/{place[0]}/{place[1]}/{number}" for number in range(min(self.texts_per_batch, self.paid))
            ]
            return [self._part(name, tools) for name in names]

        places = [(label, number) for label in range(tools.labels.size) for number in range(BATCHES)]
        pool = ThreadPoolExecutor(self.threads)
        try:
            texts = dict(zip(places, pool.map(batch, places), strict=True))
        finally:
            pool.shutdown(cancel_futures=True)
        if self.texts_per_batch > self.paid:
            tools.say(f"All that was paid for is used: {self.paid} texts of each batch.")
        strings = {
            f"label {label}": [text for (of, _), found in texts.items() if of == label for text in found]
            for label in range(tools.labels.size)
        }
        return Released({"labels": np.arange(tools.labels.size)}, strings=strings)

    def _part(self, name: str, tools: ReleaseTools) -> str:
        kept = tools.seal(name, lambda: Drawing.draw(name))
        return Drawing.use(name, int(kept.arrays["token"][0]))

    def available(self, release: us.Release) -> Sequence[int]:
        return [len(release.strings[f"label {label}"]) for label in range(len(release.arrays["labels"]))]

    def generate(
        self, release: us.Release, counts: Sequence[int], *, tools: GenerationTools
    ) -> Iterator[SyntheticRecord]:
        available = self.available(release)
        for label, count in enumerate(counts):
            if count > available[label]:
                raise ReleaseError(f"The Release holds {available[label]} texts of a label.", "Ask for fewer.")
            yield from (SyntheticRecord(text, label, {}) for text in release.strings[f"label {label}"][:count])


class AllAtOnce(InParts):
    """The same without a stopping parameter."""

    name: ClassVar[str] = "all-at-once"
    stopping_parameters: ClassVar[frozenset[str]] = frozenset()


class WithModel(InParts):
    """The same, and it wants a local model that reads private text."""

    name: ClassVar[str] = "with-model"
    needs: ClassVar[Needs] = Needs(private_model=True, holds_texts=True)

    seen: ClassVar[list[ReleaseTools]] = []

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        self.seen.append(tools)
        return super().release(corpus, plan, tools)


METHODS = (InParts, AllAtOnce, WithModel)


def install(setattr_: Callable[[Any, str, Any], None] = setattr) -> None:
    """Let these methods be installed, beside dp-kps."""
    import understudy.methods.registry as registry

    module = types.ModuleType("parts_package")
    for method in METHODS:
        setattr(module, method.__name__, method)
    sys.modules["parts_package"] = module
    points = [EntryPoint(method.name, f"parts_package:{method.__name__}", GROUP) for method in METHODS]
    points.append(EntryPoint("dp-kps", "understudy.methods.dp_kps.method:DPKPS", GROUP))
    setattr_(registry, "entry_points", lambda group: EntryPoints(points).select(group=group))


def parts(folder: Path, **changes: Any) -> dict[str, Any]:
    """The settings of a release in ``folder``; a change to None takes one out."""
    own = {"vocabulary", "vocabulary_is_public", "top_terms", "length", "llm", "records_per_label"}
    values = {name: value for name, value in settings(folder).items() if name not in own}
    made = {**values, "method": InParts.name, "delta": "0", **changes}
    return {name: value for name, value in made.items() if value is not None}
