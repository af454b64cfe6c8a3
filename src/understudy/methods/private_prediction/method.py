"""Private prediction: texts decoded token by token from what a model predicts after many private ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from understudy.base.parameters import Parameters
from understudy.methods.base import Method, Needs, Preparation, Released, ReleaseTools
from understudy.methods.contents import Contents, Held
from understudy.methods.private_prediction import generate as generating
from understudy.methods.private_prediction.plan import (
    NAME,
    ROWS,
    TOKENS,
    PrivatePredictionParameters,
    StoppingParameters,
    make_plan,
)
from understudy.methods.public import GenerationTools, PublicFacts
from understudy.privacy.events import ZCDPEvent
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.plan import Plan
from understudy.release import Release
from understudy.text.writing.records import SyntheticRecord

if TYPE_CHECKING:
    from understudy.corpus.bounding import BoundedCorpus

_INT32 = 2**31 - 1


class PrivatePrediction(Method, PrivatePredictionParameters):
    """Synthetic texts straight from a local model's next-token distribution, with differential privacy.

    >>> PrivatePrediction(clip="recenter").resolved.batch_size
    255
    """

    name: ClassVar[str] = NAME
    parameters: ClassVar[type[Parameters]] = PrivatePredictionParameters
    stopping_parameters: ClassVar[frozenset[str]] = frozenset(StoppingParameters.model_fields)
    needs: ClassVar[Needs] = Needs(private_model=True, generation_llm="never", rows=True)

    def plan(self, budget: Budget | SecretBudget, facts: PublicFacts) -> Plan:
        assert isinstance(budget, Budget), "a method that does not protect secrets is given no other"
        return make_plan(self, budget, facts)

    def prepare(self, corpus: BoundedCorpus, plan: Plan, preparation: Preparation) -> None:  # noqa: ARG002
        from understudy.methods.private_prediction.release import all_prompts, try_rows

        _ = self.declared_batches
        try_rows(self, all_prompts(self, preparation))

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        from understudy.methods.private_prediction.release import release  # only here: it reads private records

        return release(self, corpus, plan, tools=tools)

    def available(self, release: Release) -> Sequence[int]:
        return generating.available(release)

    def contents(self, release: Release) -> Contents:
        """The texts, each with its label, batch and number within it, its tokens and how many of them are private."""
        count, labels = len(release.strings.get("texts", ())), release.schema.label_set.size
        numbers = {name: Held("int32", (count,), 0, _INT32) for name in ("batch", "number", "tokens", "private")}
        strings: dict[str, int | None] = {"texts": count}
        if release.schema.record_columns or release.schema.form:
            strings["no records"] = None
        arrays = {"label": Held("int32", (count,), 0, labels - 1), **numbers, "ended": Held("int32", (count,), 0, 1)}
        if columns := generating.columns_shown(release):
            arrays[ROWS] = Held("int32", (count, len(columns)), 0, max(column.size for column in columns) - 1)
        return Contents({TOKENS: ZCDPEvent.kind}, arrays, strings)

    def generate(self, release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:  # noqa: ARG002
        return generating.generate(release, counts)
