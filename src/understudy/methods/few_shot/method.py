"""Few-shot: private exemplars, decoded token by token, which prompt any language model (Tang et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from understudy.base.parameters import Parameters
from understudy.methods.base import Chats, Method, Needs, Preparation, Released, ReleaseTools
from understudy.methods.contents import Contents, Held
from understudy.methods.few_shot import generate as generating
from understudy.methods.few_shot.plan import (
    EXEMPLARS_PER_PROMPT,
    NAME,
    TOKENS,
    FewShotParameters,
    StoppingParameters,
    make_plan,
)
from understudy.methods.public import CallEstimate, GenerationTools, PublicFacts
from understudy.methods.shared.decoding.structured import SCHEMA, JSONSchema, text_check
from understudy.privacy.events import SubsampledGaussianEvent, SubsampledPureEvent
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.plan import Plan
from understudy.release import Release
from understudy.text.prompts.template import PromptTemplate, WritingParameters
from understudy.text.writing.records import SyntheticRecord
from understudy.text.writing.writer import Writer

if TYPE_CHECKING:
    from understudy.corpus.bounding import BoundedCorpus

_CHARACTERS_PER_TOKEN = 4


class FewShot(Method, FewShotParameters):
    """A few synthetic exemplars of each label with differential privacy, which prompt any language model.

    >>> FewShot(sampling_rate=0.01).subsets
    10
    """

    name: ClassVar[str] = NAME
    parameters: ClassVar[type[Parameters]] = FewShotParameters
    stopping_parameters: ClassVar[frozenset[str]] = frozenset(StoppingParameters.model_fields)
    needs: ClassVar[Needs] = Needs(private_model=True, generation_llm="always")

    def plan(self, budget: Budget | SecretBudget, facts: PublicFacts) -> Plan:
        assert isinstance(budget, Budget), "a method that does not protect secrets is given no other"
        return make_plan(self, budget, facts)

    def prepare(self, corpus: BoundedCorpus, plan: Plan, preparation: Preparation) -> None:  # noqa: ARG002
        from understudy.methods.few_shot.release import exemplar_prompts, try_rows

        try_rows(self, plan.mechanism(TOKENS), exemplar_prompts(self, preparation))

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        from understudy.methods.few_shot.release import release  # only here: it reads private records

        return release(self, corpus, plan, tools=tools)

    def longest_prompts(self, release: Release, writer: Writer) -> Chats:
        schema = None if self.json_schema is None else JSONSchema(self.json_schema)
        prompts = generating.Prompting(writer, text_check(release.schema.form, release.schema.record_columns, schema))
        wanted = (generating.Wanted(label, ()) for label in range(release.schema.label_set.size))
        return (prompts.request(each, (), None).messages for each in wanted)

    def estimate_calls(
        self, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate
    ) -> CallEstimate:
        shown = ["x" * (_CHARACTERS_PER_TOKEN * self.exemplar_tokens)] * min(EXEMPLARS_PER_PROMPT, self.exemplars)
        messages = template.prediction_prompt(chat=True, examples=()).messages(shown)
        return CallEstimate(sum(counts) * writing.samples, sum(len(message.content) for message in messages))

    def contents(self, release: Release) -> Contents:
        """The exemplars, each with its label, its noisy tokens, whether it ended by itself and is shown."""
        count, labels = len(release.strings.get("exemplars", ())), release.schema.label_set.size
        strings: dict[str, int | None] = {"exemplars": count}
        if release.schema.record_columns and SCHEMA in release.strings:
            strings[SCHEMA] = 1
        return Contents(
            {TOKENS: (SubsampledGaussianEvent if self.noise == "gaussian" else SubsampledPureEvent).kind},
            {
                "label": Held("int32", (count,), 0, labels - 1),
                "noisy_tokens": Held("int32", (count,), 0, self.tokens),
                "finished": Held("bool", (count,)),
                "usable": Held("bool", (count,)),
            },
            strings,
        )

    def generate(self, release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:
        return generating.generate(release, counts, tools=tools)
