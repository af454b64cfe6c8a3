"""Aug-PE: private evolution of texts by the votes of private records (Xie et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from understudy.base.errors import ConfigError
from understudy.base.labels import NOISY
from understudy.base.parameters import Parameters
from understudy.methods.aug_pe import generate as generating
from understudy.methods.aug_pe.plan import (
    LABELS,
    NAME,
    VOCABULARY,
    AugPEParameters,
    keywords_name,
    make_plan,
    votes_name,
)
from understudy.methods.base import Chats, Method, Needs, Preparation, Released, ReleaseTools
from understudy.methods.contents import Contents, Held
from understudy.methods.public import CallEstimate, GenerationTools, PublicFacts
from understudy.methods.shared.evolution.harvest import (
    HarvestParameters,
    evolution_calls,
    harvest_calls,
    variation_characters,
)
from understudy.methods.shared.evolution.loop import candidates_per_round, population_sizes, require_room_for
from understudy.methods.shared.evolution.variation import keywords_of_labels, longest_prompts
from understudy.privacy.events import GaussianEvent
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.plan import Plan
from understudy.release import Release
from understudy.text.prompts.evolving import EvolutionPrompts
from understudy.text.prompts.template import PromptTemplate, WritingParameters
from understudy.text.vocabulary.terms import BUILT_IN, Vocabulary, load_vocabulary
from understudy.text.writing.records import SyntheticRecord
from understudy.text.writing.writer import Writer

if TYPE_CHECKING:
    from understudy.corpus.bounding import BoundedCorpus


_INT32 = 2**31 - 1


class AugPE(Method, AugPEParameters):
    """Private evolution with differential privacy.

    >>> AugPE(rounds=3).variations
    7
    """

    name: ClassVar[str] = NAME
    parameters: ClassVar[type[Parameters]] = AugPEParameters
    generation_parameters: ClassVar[type[Parameters]] = HarvestParameters
    protects_secrets: ClassVar[bool] = True
    needs: ClassVar[Needs] = Needs(embedder="private", candidates=True)

    def plan(self, budget: Budget | SecretBudget, facts: PublicFacts) -> Plan:
        vocabulary = self._vocabulary()
        keywords_of_labels(self, EvolutionPrompts(), ())  # a file that cannot be read is known before any charge
        return make_plan(self, budget, facts, vocabulary_size=None if vocabulary is None else len(vocabulary.terms))

    def prepare(self, corpus: BoundedCorpus, plan: Plan, preparation: Preparation) -> None:  # noqa: ARG002
        candidates = candidates_per_round(self, preparation.labels.size).candidates
        require_room_for(max(candidates), dimension=preparation.dimension)

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        from understudy.methods.aug_pe.release import release  # only here: it reads private records

        return release(self, corpus, plan, vocabulary=self._vocabulary(), tools=tools)

    def longest_prompts(self, release: Release, writer: Writer) -> Chats:
        vocabulary = self._vocabulary()
        keywords = [] if vocabulary is None else [vocabulary.terms] * release.schema.label_set.size
        return longest_prompts(self, release, writer, keywords=keywords)

    def estimate_calls(
        self, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate
    ) -> CallEstimate:
        sizes = population_sizes(self, [1.0] * len(counts))
        calls = evolution_calls(self, sizes) + harvest_calls(counts, sizes[-1], kind=self.harvest)
        return CallEstimate(calls, variation_characters(self, template, writing.examples_per_prompt))

    def contents(self, release: Release) -> Contents:
        """The candidates of all rounds: text, prompt, label, lineage, noisy votes, times chosen."""
        count, labels = len(release.strings.get("texts", ())), release.schema.label_set.size
        charges = [votes_name(number + 1) for number in range(self.rounds)]
        arrays = {
            "round": Held("int32", (count,), 0, self.rounds - 1),
            "label": Held("int32", (count,), 0, labels - 1),
            "parent": Held("int64", (count,), -1, count - 1),
            "votes": Held("float64", (count,)),
            "chosen": Held("int32", (count,), 0, _INT32),
            "survivors": Held("int64", ("survivors",), 0, count - 1),
            "failed": Held("int64", (self.rounds, labels), 0),
        }
        strings: dict[str, int | None] = {"texts": count, "prompts": count}
        if self.label_sizes == NOISY:
            charges.append(LABELS)
        if self.private_keywords:
            charges.append(VOCABULARY)
            arrays["counts"] = Held("float64", (len(release.terms),))
        else:
            strings |= {keywords_name(label): None for label in range(labels)}
        return Contents(
            dict.fromkeys(charges, GaussianEvent.kind), arrays, strings, terms=None if self.private_keywords else 0
        )

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
        return load_vocabulary(self.vocabulary)
