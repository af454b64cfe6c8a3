"""SecPE: secret-protected evolution (Wang et al. 2025)."""

from __future__ import annotations

from typing import ClassVar

from understudy.base.errors import ConfigError
from understudy.base.parameters import Parameters
from understudy.methods.base import Method, Needs
from understudy.methods.facts import PublicFacts
from understudy.methods.sec_pe import generate as generating
from understudy.methods.sec_pe import release as releasing
from understudy.methods.sec_pe.plan import NAME, FreeParameters, SecPEParameters, make_plan, read_per_secret_budgets
from understudy.methods.shared.evolution import loop, variation
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.plan import Plan


class SecPE(Method, SecPEParameters):
    """Evolution against noisy centres, with the secrets of a corpus protected.

    >>> SecPE(clusters=50).incidence
    'private'
    """

    name: ClassVar[str] = NAME
    generation_parameters: ClassVar[type[Parameters]] = FreeParameters
    protects_secrets: ClassVar[bool] = True
    needs: ClassVar[Needs] = Needs(embedder=True, generation_embedder=True, generation_llm="always")

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
        sampling = releasing.sampling_rates(self, facts.unit)
        per_secret = read_per_secret_budgets(self.secret_budgets, len(sampling.inclusion))
        return make_plan(self, budget, facts, sampling, per_secret=per_secret)

    prepare = releasing.prepare
    release = releasing.release
    contents = releasing.contents
    longest_prompts = variation.longest_prompts
    estimate_calls = loop.estimate_calls
    generate = generating.generate
    label_counts = generating.label_counts
