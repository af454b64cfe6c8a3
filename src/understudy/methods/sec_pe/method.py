"""SecPE: secret-protected evolution (Wang et al. 2025)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from understudy.base.errors import ConfigError
from understudy.base.parameters import Parameters
from understudy.methods.base import Method, Needs, Preparation, Released, ReleaseTools, needed
from understudy.methods.contents import Contents, Held
from understudy.methods.public import GenerationTools, PublicFacts
from understudy.methods.sec_pe import generate as generating
from understudy.methods.sec_pe.plan import (
    NAME,
    FreeParameters,
    SamplingRates,
    SecPEParameters,
    make_plan,
    private_rates,
    public_rates,
    read_per_secret_budgets,
    release_names,
    require_planned,
)
from understudy.methods.shared.evolution import harvest, variation
from understudy.methods.shared.evolution.variation import keywords_of_labels
from understudy.privacy.events import MixtureEvent
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.mechanisms import require_releasable
from understudy.privacy.plan import Plan
from understudy.privacy.unit import Unit
from understudy.release import Release
from understudy.text.prompts.evolving import EvolutionPrompts
from understudy.text.writing.records import SyntheticRecord

if TYPE_CHECKING:
    from understudy.corpus.bounding import BoundedCorpus
    from understudy.corpus.secrets import Incidence
    from understudy.methods.sec_pe.clusters import Clusters

_LARGEST_COORDINATE = 1e15  # its square, summed over a dimension, is still a float32


class SecPE(Method, SecPEParameters):
    """Evolution against noisy centres, with the secrets of a corpus protected.

    >>> SecPE(clusters=50).incidence
    'private'
    """

    name: ClassVar[str] = NAME
    parameters: ClassVar[type[Parameters]] = SecPEParameters
    generation_parameters: ClassVar[type[Parameters]] = FreeParameters
    protects_secrets: ClassVar[bool] = True
    needs: ClassVar[Needs] = Needs(embedder="private", generation_embedder=True, generation_llm="always")

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
        sampling = self._sampling(facts.unit)
        per_secret = read_per_secret_budgets(self.secret_budgets, len(sampling.inclusion))
        return make_plan(self, budget, facts, sampling, per_secret=per_secret)

    def prepare(self, corpus: BoundedCorpus, plan: Plan, preparation: Preparation) -> Clusters | None:
        from understudy.corpus.secrets import check_incidence
        from understudy.methods.sec_pe.release import check_public_corpus, public_clusters

        if self.incidence == "public":
            found = self._incidence()
            require_planned(found.sha256, plan)
            check_incidence(corpus.corpus, needed(preparation.secrets), found)  # type: ignore[arg-type]
        check_public_corpus(self, preparation.labels)
        if preparation.resuming:
            return None
        shape = (preparation.labels.size, self.clusters, 1 + preparation.dimension)
        require_releasable(shape, cure="Lower clusters.")
        return public_clusters(self, corpus, self._sampling(plan.unit), preparation)

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        from understudy.methods.sec_pe.release import release  # only here: it reads private records

        sampling = self._sampling(plan.unit)
        require_planned(sampling.sha256, plan)
        return release(self, corpus, plan, sampling=sampling, tools=tools)

    longest_prompts = variation.longest_prompts
    estimate_calls = harvest.estimate_calls

    def contents(self, release: Release) -> Contents:
        """Per label K public clusters, the noisy sums of what private records say about them, and their centres."""
        labels = release.schema.label_set.size
        clusters = (labels, self.clusters)
        sums = Held("float64", (*clusters, "dimension with size"))
        return Contents(
            dict.fromkeys(release_names(self), MixtureEvent.kind),
            {
                "sizes": Held("float64", clusters),
                "centres": Held("float32", (*clusters, "dimension"), -_LARGEST_COORDINATE, _LARGEST_COORDINATE),
                "public_centres": Held("int16", (*clusters, "dimension")),
                "public_sizes": Held("int64", clusters, 1),
                **{f"sums-{number + 1}": sums for number in range(self.releases)},
            },
            public_inputs=("embedder",),
        )

    def generate(self, release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:
        return generating.generate(self, release, counts, tools=tools)

    def _sampling(self, unit: Unit) -> SamplingRates:
        if self.incidence == "private":
            return private_rates(self, unit)
        found = self._incidence()
        free = np.ones(found.n_records, dtype=np.bool_)
        free[found.records] = False
        return public_rates(self, found.to_csr().T.tocsr(), free, unit, sha256=found.sha256)

    def _incidence(self) -> Incidence:
        """The public incidence: no private table is read."""
        from understudy.corpus.secrets import Incidence

        return Incidence.read(needed(self.incidence_file))
