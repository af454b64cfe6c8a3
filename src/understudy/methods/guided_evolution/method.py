"""Guided evolution: private evolution with one charge and any number of rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from understudy.base.parameters import Parameters
from understudy.methods.base import Chats, Method, Needs, Released, ReleaseTools
from understudy.methods.contents import Contents
from understudy.methods.guided_evolution import generate as generating
from understudy.methods.guided_evolution.plan import NAME, GuidedEvolutionParameters, make_plan
from understudy.methods.public import CallEstimate, GenerationTools, PublicFacts
from understudy.methods.shared.evolution.harvest import calls_within, variation_characters
from understudy.methods.shared.evolution.variation import keywords_of_labels, longest_prompts
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.plan import Plan
from understudy.release import Release
from understudy.text.prompts.evolving import EvolutionPrompts
from understudy.text.prompts.parameters import WritingParameters
from understudy.text.prompts.template import PromptTemplate
from understudy.text.writing.records import SyntheticRecord
from understudy.text.writing.writer import Writer

if TYPE_CHECKING:
    from understudy.corpus.bounding import BoundedCorpus


class GuidedEvolution(Method, GuidedEvolutionParameters):
    """Evolution of texts towards a guide.

    >>> GuidedEvolution(rounds=3).variations
    7
    """

    name: ClassVar[str] = NAME
    parameters: ClassVar[type[Parameters]] = GuidedEvolutionParameters
    generation_parameters: ClassVar[type[Parameters]] = GuidedEvolutionParameters
    needs: ClassVar[Needs] = Needs(embedder="private", generation_embedder=True, generation_llm="always")

    def plan(self, budget: Budget | SecretBudget, facts: PublicFacts) -> Plan:
        assert isinstance(budget, Budget), "a method that does not protect secrets is given no other"
        keywords_of_labels(self, EvolutionPrompts(), ())  # a file that cannot be read is known before any charge
        return make_plan(self, budget, facts)

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        from understudy.methods.guided_evolution.release import release  # only here: it reads private records

        return release(corpus, plan, tools)

    def longest_prompts(self, release: Release, writer: Writer) -> Chats:  # noqa: ARG002
        return longest_prompts(self, writer)

    def estimate_calls(
        self, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate
    ) -> CallEstimate:
        calls = calls_within(self, counts, kind=self.harvest)
        return CallEstimate(calls, variation_characters(self, template, writing.examples_per_prompt))

    def contents(self, release: Release) -> Contents:
        """The guide, and nothing else."""
        return Contents({}, {}).with_guide(release)

    def generate(self, release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:
        return generating.generate(self, release, counts, tools=tools)
