"""SecPE: secret-protected evolution (Wang et al. 2025)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from understudy.errors import ConfigError
from understudy.evolution.forecast import evolution_calls, harvest_calls, variation_characters
from understudy.evolution.keywords import keywords_of_labels
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
from understudy.methods.sec_pe import generate as generating
from understudy.methods.sec_pe.contents import contents
from understudy.methods.sec_pe.parameters import FreeParameters, SecPEParameters
from understudy.methods.sec_pe.plan import (
    NAME,
    Drawing,
    make_plan,
    private_drawing,
    public_drawing,
    release_names,
    require_planned,
)
from understudy.methods.sec_pe.stricter import read_stricter
from understudy.parameters import Parameters
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import require_releasable
from understudy.privacy.plan import Plan
from understudy.privacy.secrets.budget import SecretBudget
from understudy.privacy.unit import Unit
from understudy.prompts.evolving import EvolutionPrompts
from understudy.prompts.parameters import WritingParameters
from understudy.prompts.template import PromptTemplate
from understudy.release import Release
from understudy.writing.records import SyntheticRecord

if TYPE_CHECKING:
    from understudy.corpus import Corpus
    from understudy.corpus.bounding import BoundedCorpus
    from understudy.corpus.secrets import Incidence, SecretFinder
    from understudy.methods.sec_pe.clusters import Clusters


class SecPE(Traits, SecPEParameters):
    """Evolution against noisy centres, with the secrets of a corpus protected.

    >>> SecPE(clusters=50).incidence
    'private'
    """

    name: ClassVar[str] = NAME
    parameters: ClassVar[type[Parameters]] = SecPEParameters
    generation_parameters: ClassVar[type[Parameters]] = FreeParameters
    needs_embedder: ClassVar[bool] = True
    generates_with_embedder: ClassVar[bool] = True
    generates_with_llm: ClassVar[bool] = True
    protects_secrets: ClassVar[bool] = True

    def dump(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    def plan(self, budget: Budget | SecretBudget, facts: PublicFacts) -> Plan:
        if not isinstance(budget, SecretBudget):
            raise ConfigError(
                "sec-pe promises secret protection, not (epsilon, delta).",
                "Give --secret-prior P and --secret-posterior R, or choose --method aug-pe.",
            )
        if self.public_corpus is None and not self.records_without_secrets_are_public:
            raise ConfigError(
                "sec-pe counts the private records in clusters of a public corpus, and there is none.",
                "Name one: --public-corpus FILE --public-corpus-is-public.",
            )
        keywords_of_labels(self, EvolutionPrompts(), ())  # a file that cannot be read is known before any charge
        drawing = self._drawing(facts.unit)
        stricter = read_stricter(self.secret_budgets, len(drawing.inclusion))
        return make_plan(self, budget, facts, drawing, stricter=stricter)

    def check_secrets(self, corpus: Corpus, finder: SecretFinder, plan: Plan) -> None:
        from understudy.corpus.secrets import check_incidence
        from understudy.methods.sec_pe.release import check_public_corpus

        if self.incidence == "public":
            found = self._incidence()
            require_planned(found.sha256, plan)
            check_incidence(corpus, finder, found)
        check_public_corpus(self, corpus)

    def prepare(self, corpus: Corpus, plan: Plan, preparation: Preparation) -> Clusters:
        from understudy.corpus.bounding import BoundedCorpus
        from understudy.methods.sec_pe.release import public_clusters

        numbers = preparation.labels * self.clusters * (1 + preparation.dimension)
        require_releasable(release_names(self)[0], numbers, cure="Lower clusters.")
        records = BoundedCorpus(corpus, plan.unit, b"")  # no hash is asked for: its key comes with the charge
        return public_clusters(self, records, self._drawing(plan.unit), preparation)

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        from understudy.methods.sec_pe.release import release  # only here: it reads private records

        drawing = self._drawing(plan.unit)
        require_planned(drawing.sha256, plan)
        return release(self, corpus, plan, drawing=drawing, tools=tools)

    def asks(self, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate) -> CallEstimate:
        sizes = [[min(self.population_at(number), count) for count in counts] for number in range(self.rounds)]
        calls = evolution_calls(self, sizes) + harvest_calls(counts, sizes[-1], kind=self.harvest)
        return CallEstimate(calls, variation_characters(self, template, writing.examples_per_prompt))

    def contents(self, release: Release) -> Contents:
        return contents(self, release)

    def generate(self, release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:
        return generating.generate(self, release, counts, tools=tools)

    def _drawing(self, unit: Unit) -> Drawing:
        if self.incidence == "private":
            return private_drawing(self, unit)
        found = self._incidence()
        free = np.ones(found.n_records, dtype=np.bool_)
        free[found.records] = False
        return public_drawing(self, found.to_csr().T.tocsr(), free, unit, sha256=found.sha256)

    def _incidence(self) -> Incidence:
        """The public incidence: no private table is read."""
        from understudy.corpus.secrets import Incidence

        assert self.incidence_file is not None, "the parameters see to it"
        return Incidence.read(self.incidence_file)
