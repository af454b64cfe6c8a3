"""A guide for any method: it chooses among the texts that are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from understudy.base.parameters import Parameters
from understudy.methods.additions.base import Addition, NoisyCounts, Releasing, Use, Writing
from understudy.methods.additions.guide.chooser import GuidedChooser
from understudy.methods.additions.guide.guide import guide_counts
from understudy.methods.additions.guide.plan import (
    GUIDE,
    GUIDE_SHARE,
    NO_EMBEDDER,
    ChoosingParameters,
    GuideParameters,
    candidates_of,
    plan_with_guide,
)
from understudy.methods.additions.guide.release import release
from understudy.methods.base import Method, Preparation
from understudy.methods.facts import PublicFacts
from understudy.methods.release_schema import Contents, Held
from understudy.models.catalog import embedder_here
from understudy.models.machine import require_memory
from understudy.privacy.events import GaussianEvent, SubsampledGaussianEvent
from understudy.privacy.mechanisms import require_releasable
from understudy.privacy.plan import Plan
from understudy.release import Release
from understudy.text.records import SyntheticRecord

_FEWER = "Declare fewer labels."
_BYTES = 8 * 4
"""Bytes per number: a batch's sum, all batches' sum, the noise and the noisy sum."""


@dataclass(frozen=True)
class GuideAddition(Addition):
    """The guide as an addition to any method's Release."""

    name: ClassVar[str] = GUIDE
    parameters: ClassVar[type[Parameters]] = GuideParameters
    writing: ClassVar[type[Parameters]] = ChoosingParameters
    embeds: ClassVar[bool] = True

    @classmethod
    def of(cls, settings: Parameters, _facts: PublicFacts) -> Self | None:
        return cls() if settings.part(GuideParameters).guide else None

    def plan(self, facts: PublicFacts, plan_rest: Callable[[Any], Plan], budget: Any) -> Plan:
        labels, expected = facts.labels.size, facts.expected_records
        return plan_with_guide(
            plan_rest, budget, share=GUIDE_SHARE, labels=labels, expected_records=expected, unit=facts.unit
        )

    def prepare(self, preparation: Preparation) -> Self:
        shape = preparation.labels.size, 1 + preparation.dimension
        require_releasable(shape, cure=_FEWER)
        require_memory(math.prod(shape) * _BYTES, what="The sums of the guide", cure=_FEWER)
        return self

    def release(self, at: Releasing, plan: Plan) -> Releasing:
        made = release(at.corpus, plan, at.tools)
        return replace(at, released=at.released | replace(made, noise_check=replace(made.noise_check, verdict=None)))

    def made_each(self, wanted: Any, method: Method) -> int:
        return candidates_of(wanted, guided=method.guided)

    @property
    def stored(self) -> dict[str, Any]:
        return {"guide": True}

    @classmethod
    def is_in(cls, release: Release) -> bool:
        return bool(release.parameters.get("guide"))

    @classmethod
    def check(cls, release: Release) -> None:
        GuideParameters(guide=release.parameters["guide"])

    @classmethod
    def contents(cls, contents: Contents, release: Release) -> Contents:
        """Describe the sums per label, over all records or over a sample."""
        events = [charge.event for charge in release.statement.charges if charge.name == GUIDE]
        sampled = any(isinstance(event, SubsampledGaussianEvent) for event in events)
        return contents.joined(
            {GUIDE: (SubsampledGaussianEvent if sampled else GaussianEvent).kind},
            {GUIDE: Held("float64", (release.schema.label_set.size, "embedding with count"))},
            public_inputs=("embedder",),
        )

    @classmethod
    def label_counts(cls, release: Release) -> NoisyCounts | None:
        return guide_counts(release)

    @classmethod
    def use(cls, release: Release, writing: Writing) -> Use | None:
        """Return the guide's part in generating; None if the guide is to be ignored or its embedder is not
        installed."""
        wanted = writing.wanted
        if wanted.guide_candidates == 0:
            return None
        if wanted.guide_candidates is None and not embedder_here(writing.embedder_name):
            writing.say(f"The guide of this Release is not used: {NO_EMBEDDER}.")
            return None
        chooser = GuidedChooser.of(release, writing.embedder(), say=writing.say, progress=writing.progress)
        return _Guiding(chooser=chooser, made=candidates_of(wanted, guided=writing.method.guided))


@dataclass(frozen=True, kw_only=True)
class _Guiding(Use):
    """Chooses, by the guide, among ``made`` texts for each requested one."""

    chooser: GuidedChooser
    made: int

    def candidates(self, counts: Sequence[int], held: Sequence[int] | None) -> list[int]:
        more = [count * self.made for count in counts]
        if held is None:
            return more
        return [max(want, min(count, there)) for want, count, there in zip(counts, more, held, strict=True)]

    def chosen(self, records: Sequence[SyntheticRecord], counts: Sequence[int]) -> list[SyntheticRecord]:
        return self.chooser.choose_records(records, counts)
