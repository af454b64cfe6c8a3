"""DP-KPS: private keyphrases seed the prompts of any language model (Nagesh et al. 2025)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from understudy.errors import ConfigError
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
from understudy.methods.dp_kps import generate as generating
from understudy.methods.dp_kps.contents import contents
from understudy.methods.dp_kps.parameters import DPKPSParameters, SequenceParameters, needs_embeddings
from understudy.methods.dp_kps.plan import NAME, make_plan
from understudy.parameters import Parameters
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan
from understudy.privacy.secrets.budget import SecretBudget
from understudy.prompts.parameters import WritingParameters
from understudy.prompts.template import PromptTemplate
from understudy.release import Release
from understudy.vocabulary.terms import BUILT_IN, Vocabulary, load_vocabulary
from understudy.writing.records import Seed, SyntheticRecord

if TYPE_CHECKING:
    from understudy.corpus import Corpus
    from understudy.corpus.bounding import BoundedCorpus


class DPKPS(Traits, DPKPSParameters):
    """Keyphrase seeding with differential privacy.

    >>> DPKPS(bandwidth=0).noise
    'gaussian'
    """

    name: ClassVar[str] = NAME
    parameters: ClassVar[type[Parameters]] = DPKPSParameters
    embeds_private_texts: ClassVar[bool] = False  # the terms of the released vocabulary alone
    generation_parameters: ClassVar[type[Parameters]] = SequenceParameters

    @property
    def needs_embedder(self) -> bool:
        return needs_embeddings(self)

    def dump(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    def plan(self, budget: Budget | SecretBudget, facts: PublicFacts) -> Plan:
        assert isinstance(budget, Budget), "a method that does not protect secrets is given no other"
        return make_plan(
            self,
            budget,
            unit=facts.unit,
            labels=facts.labels,
            vocabulary_size=len(self._vocabulary().terms),
            expected_records=facts.expected_records,
        )

    def prepare(self, corpus: Corpus, plan: Plan, preparation: Preparation) -> None:  # noqa: ARG002
        from understudy.methods.dp_kps.release import check_embeddings

        if preparation.embedder is not None:
            check_embeddings(self, self._vocabulary(), preparation.embedder, preparation.dimension)

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        from understudy.methods.dp_kps.release import release  # only here: it reads private records

        return release(self, corpus, plan, vocabulary=self._vocabulary(), tools=tools)

    def asks(self, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate) -> CallEstimate:
        return CallEstimate.of_phrases(counts, writing, template, length=self.length)

    def contents(self, release: Release) -> Contents:
        return contents(self, release)

    def generate(self, release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:
        sequences = generating.draw_sequences(
            self, release.arrays, counts, seed=int(release.parameters["seed"]), draw_seed=tools.seed
        )
        seeds = [
            Seed(tuple(release.terms[term] for term in row), label)
            for label, rows in enumerate(sequences)
            for row in rows.tolist()
        ]
        return tools.writer.write(seeds)

    def _vocabulary(self) -> Vocabulary:
        own = self.vocabulary != BUILT_IN or self.stop_words not in (None, "none")
        if own and not self.vocabulary_is_public:
            raise ConfigError(
                "A vocabulary or stop word list of your own must not be made from the private data.",
                "If it is public, say so with --vocabulary-is-public.",
            )
        return load_vocabulary(self.vocabulary, size=self.vocabulary_size, stop_words=self.stop_words)
