"""Few-shot: private exemplars, drawn token by token, which prompt any language model (Tang et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from understudy.errors import ConfigError
from understudy.methods.base import CallEstimate, GenerationTools, PublicFacts, Released, ReleaseTools, Traits
from understudy.methods.contents import Contents
from understudy.methods.few_shot import generate as generating
from understudy.methods.few_shot.asking import build_exemplar_prompts, try_rows
from understudy.methods.few_shot.contents import contents
from understudy.methods.few_shot.parameters import FewShotParameters, ShowingParameters, StoppingParameters
from understudy.methods.few_shot.plan import NAME, make_plan
from understudy.parameters import Parameters
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan
from understudy.privacy.secrets.budget import SecretBudget
from understudy.prompts.parameters import WritingParameters
from understudy.prompts.template import PromptTemplate
from understudy.release import Release
from understudy.writing.records import SyntheticRecord

if TYPE_CHECKING:
    from understudy.corpus.bounding import BoundedCorpus
    from understudy.models.causal import CausalModel
    from understudy.prompts.template import Prompts

_CHARACTERS_PER_TOKEN = 4


class FewShot(Traits, FewShotParameters):
    """A few synthetic exemplars of each label with differential privacy, which prompt any language model.

    >>> FewShot(sampling_rate=0.01).subsets
    10
    """

    name: ClassVar[str] = NAME
    parameters: ClassVar[type[Parameters]] = FewShotParameters
    generation_parameters: ClassVar[type[Parameters]] = ShowingParameters
    needs_embedder: ClassVar[bool] = False
    needs_private_model: ClassVar[bool] = True
    generates_with_llm: ClassVar[bool] = True
    stopping_parameters: ClassVar[frozenset[str]] = frozenset(StoppingParameters.model_fields)

    def dump(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    def plan(self, budget: Budget | SecretBudget, facts: PublicFacts) -> Plan:
        if isinstance(budget, SecretBudget):
            raise ConfigError(
                "few-shot promises (epsilon, delta), not secret protection.",
                "Give --epsilon and --delta, or choose --method sec-pe or aug-pe.",
            )
        return make_plan(self, budget, facts)

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        from understudy.methods.few_shot.release import release  # only here: it reads private records

        return release(self, corpus, plan, tools=tools)

    def check_prompts(
        self,
        model: CausalModel,
        prompts: Prompts,
        *,
        label_names: Sequence[str],
        record_columns: Sequence[str],
    ) -> None:
        try_rows(
            self, build_exemplar_prompts(self, prompts, model, label_names=label_names, record_columns=record_columns)
        )

    def asks(self, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate) -> CallEstimate:
        shown = ["x" * (_CHARACTERS_PER_TOKEN * self.exemplar_tokens)] * min(self.exemplars_per_prompt, self.exemplars)
        messages = template.prediction_prompt(chat=True, examples=()).messages(shown)
        return CallEstimate(sum(counts) * writing.samples, sum(len(message.content) for message in messages))

    def contents(self, release: Release) -> Contents:
        return contents(self, release)

    def generate(self, release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:
        return generating.generate(self, release, counts, tools=tools)
