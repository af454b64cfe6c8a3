"""DP-SGD fine-tuning, and its yardstick without privacy: the same trainer without clipping and noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from understudy.base.parameters import Parameters
from understudy.methods.base import Preparation, Released, ReleaseTools
from understudy.methods.contents import Contents
from understudy.methods.dp_finetune.plan import NAME, TRAINING, DPFinetuneParameters, make_plan
from understudy.methods.public import PublicFacts
from understudy.methods.tuned.method import TunedMethod
from understudy.privacy.events import GaussianEvent, SubsampledGaussianEvent
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.plan import Plan
from understudy.release import Release

if TYPE_CHECKING:
    from understudy.corpus.bounding import BoundedCorpus
    from understudy.methods.dp_finetune.release import Ready


class DPFinetune(TunedMethod, DPFinetuneParameters):
    """A local model tuned on the private texts with DP-SGD; any number of texts are then sampled from it.

    >>> DPFinetune(declared_records=20_000, lora_rank=4).declared
    20000
    """

    name: ClassVar[str] = NAME
    parameters: ClassVar[type[Parameters]] = DPFinetuneParameters
    learns_rows: ClassVar[bool] = True

    def plan(self, budget: Budget | SecretBudget, facts: PublicFacts) -> Plan:
        assert isinstance(budget, Budget), "a method that does not protect secrets is given no other"
        return make_plan(self, budget, facts, name=self.name)

    def prepare(self, corpus: BoundedCorpus, plan: Plan, preparation: Preparation) -> Ready:  # noqa: ARG002
        from understudy.methods.dp_finetune.release import ready, try_out

        found, work = try_out(ready(self, preparation), plan.mechanism(TRAINING), self)
        for line in [*plan.forecast.lines(), *(work.lines() if self.private else ())]:
            preparation.say(line[:1].upper() + line[1:])
        return found

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        from understudy.methods.dp_finetune.release import release  # only here: it reads private records

        return release(self, corpus, plan, tools=tools, private=self.private)

    def contents(self, release: Release) -> Contents:
        return self.held(release, {TRAINING: SubsampledGaussianEvent.kind}, GaussianEvent.kind, {})


class NonPrivateFinetune(DPFinetune):
    """The same training without clipping and noise, to see what privacy costs. NOT PRIVATE: needs
    ``--insecure-no-noise``."""

    name: ClassVar[str] = "nonprivate-finetune"
    private: ClassVar[bool] = False
