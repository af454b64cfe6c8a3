"""DP-SGD fine-tuning, and its yardstick without privacy: the same trainer without clipping and noise."""

from __future__ import annotations

from typing import ClassVar

from understudy.methods.dp_finetune import release as releasing
from understudy.methods.dp_finetune.plan import NAME, TRAINING, YARDSTICK, DPFinetuneParameters, make_plan
from understudy.methods.facts import PublicFacts
from understudy.methods.release_schema import Contents
from understudy.methods.tuned.method import TunedMethod
from understudy.privacy.events import GaussianEvent, SubsampledGaussianEvent
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan
from understudy.release import Release


class DPFinetune(TunedMethod, DPFinetuneParameters):
    """A local model tuned on the private texts with DP-SGD; any number of texts are then sampled from it.

    >>> DPFinetune(declared_records=20_000, lora_rank=4).declared
    20000
    """

    name: ClassVar[str] = NAME
    learns_rows: ClassVar[bool] = True

    prepare = releasing.prepare
    release = releasing.release

    def plan(self, budget: Budget, facts: PublicFacts) -> Plan:
        return make_plan(self, budget, facts, name=self.name)

    def contents(self, release: Release) -> Contents:
        return self.held(release, {TRAINING: SubsampledGaussianEvent.kind}, GaussianEvent.kind, {})


class NonPrivateFinetune(DPFinetune):
    """The same training without clipping and noise, to measure what privacy costs. NOT PRIVATE: needs
    ``--insecure-no-noise``."""

    name: ClassVar[str] = YARDSTICK
    private: ClassVar[bool] = False
