"""Aug-PE: private evolution of texts by the votes of private records (Xie et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from understudy.errors import ConfigError
from understudy.evolution.forecast import evolution_calls, harvest_calls, variation_characters
from understudy.evolution.harvest import HarvestParameters
from understudy.evolution.keywords import keywords_of_labels
from understudy.evolution.loop import candidates_per_round, population_sizes, require_room_for
from understudy.methods.aug_pe import generate as generating
from understudy.methods.aug_pe.contents import contents
from understudy.methods.aug_pe.parameters import AugPEParameters
from understudy.methods.aug_pe.plan import NAME, make_plan
from understudy.methods.base import (
    CallEstimate,
    GenerationTools,
    Preparation,
    PublicFacts,
    Released,
    ReleaseTools,
    Traits,
)
from understudy.methods.contents import Contents
from understudy.parameters import Parameters
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan
from understudy.privacy.secrets.budget import SecretBudget
from understudy.prompts.evolving import EvolutionPrompts
from understudy.prompts.parameters import WritingParameters
from understudy.prompts.template import PromptTemplate
from understudy.release import Release
from understudy.vocabulary.terms import BUILT_IN, Vocabulary, load_vocabulary
from understudy.writing.records import SyntheticRecord

if TYPE_CHECKING:
    from understudy.corpus import Corpus
    from understudy.corpus.bounding import BoundedCorpus


class AugPE(Traits, AugPEParameters):
    """Private evolution with differential privacy.

    >>> AugPE(rounds=3).variations
    7
    """

    name: ClassVar[str] = NAME
    parameters: ClassVar[type[Parameters]] = AugPEParameters
    generation_parameters: ClassVar[type[Parameters]] = HarvestParameters
    needs_embedder: ClassVar[bool] = True
    asks_for_candidates: ClassVar[bool] = True
    protects_secrets: ClassVar[bool] = True

    def dump(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    def plan(self, budget: Budget | SecretBudget, facts: PublicFacts) -> Plan:
        vocabulary = self._vocabulary()
        keywords_of_labels(self, EvolutionPrompts(), ())  # a file that cannot be read is known before any charge
        return make_plan(self, budget, facts, vocabulary_size=None if vocabulary is None else len(vocabulary.terms))

    def prepare(self, corpus: Corpus, plan: Plan, preparation: Preparation) -> None:  # noqa: ARG002
        candidates = candidates_per_round(self, preparation.labels).candidates
        require_room_for(max(candidates), dimension=preparation.dimension)

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        from understudy.methods.aug_pe.release import release  # only here: it reads private records

        return release(self, corpus, plan, vocabulary=self._vocabulary(), tools=tools)

    def asks(self, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate) -> CallEstimate:
        sizes = population_sizes(self, [1.0] * len(counts))
        calls = evolution_calls(self, sizes) + harvest_calls(counts, sizes[-1], kind=self.harvest)
        return CallEstimate(calls, variation_characters(self, template, writing.examples_per_prompt))

    def contents(self, release: Release) -> Contents:
        return contents(self, release)

    def generate(self, release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:
        return generating.generate(self, release, counts, tools=tools)

    def _vocabulary(self) -> Vocabulary | None:
        """The public vocabulary of private keywords; None without such."""
        if not self.private_keywords:
            return None
        if self.vocabulary != BUILT_IN and not self.vocabulary_is_public:
            raise ConfigError(
                "A vocabulary of your own must not be made from the private data.",
                "If it is public, say so with --vocabulary-is-public.",
            )
        return load_vocabulary(self.vocabulary, size=self.vocabulary_size)
