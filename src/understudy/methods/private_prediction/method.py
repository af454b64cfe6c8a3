"""Private prediction: texts drawn token by token from what a model predicts after many private ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from understudy.decoding.prompting import build_prompts
from understudy.methods.base import GenerationTools, PublicFacts, Released, ReleaseTools, Traits
from understudy.methods.contents import Contents
from understudy.methods.private_prediction import generate as generating
from understudy.methods.private_prediction.contents import contents
from understudy.methods.private_prediction.parameters import PrivatePredictionParameters
from understudy.methods.private_prediction.plan import NAME, make_plan
from understudy.parameters import Parameters
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan

if TYPE_CHECKING:
    from understudy.corpus.bounding import BoundedCorpus
    from understudy.models.causal import CausalModel
    from understudy.prompts.template import Prompts
    from understudy.release import Release
    from understudy.writing.records import SyntheticRecord


class PrivatePrediction(Traits, PrivatePredictionParameters):
    """Synthetic texts straight from a local model's next-token distribution, with differential privacy.

    >>> PrivatePrediction(clip="recenter").settled.batch_size
    255
    """

    name: ClassVar[str] = NAME
    parameters: ClassVar[type[Parameters]] = PrivatePredictionParameters
    generation_parameters: ClassVar[type[Parameters]] = Parameters
    needs_embedder: ClassVar[bool] = False
    needs_private_model: ClassVar[bool] = True
    exports: ClassVar[bool] = True
    stopping_parameters: ClassVar[frozenset[str]] = frozenset({"texts_per_batch"})

    def dump(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    def plan(self, budget: Budget, facts: PublicFacts) -> Plan:
        return make_plan(self, budget, facts)

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        from understudy.methods.private_prediction.release import release  # only here: it reads private records

        return release(self, corpus, plan, tools=tools)

    def check_prompts(
        self,
        model: CausalModel,
        prompts: Prompts,
        *,
        label_names: Sequence[str],
        record_columns: Sequence[str],
    ) -> None:
        _ = self.declared_batches
        asked = build_prompts(self, prompts, model, label_names=label_names, record_columns=record_columns)
        rows_at_once = model.rows_at_once(self.settled.batch_size)
        for label in {each.shape: each for each in asked.labels}.values():
            rows = label.contexts((), rows_at_once=rows_at_once, candidates=self.top_k or None)  # tries their promise
            rows.public_logits()

    def available(self, release: Release) -> Sequence[int]:
        return generating.available(release)

    def contents(self, release: Release) -> Contents:
        return contents(release)

    def generate(self, release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:  # noqa: ARG002
        return generating.generate(release, counts)
