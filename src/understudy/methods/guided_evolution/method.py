"""Guided evolution: private evolution with one charge and any number of rounds."""

from __future__ import annotations

from typing import ClassVar

from understudy.base.parameters import Parameters
from understudy.methods.base import Method, Needs
from understudy.methods.contents import Contents
from understudy.methods.guided_evolution import generate as generating
from understudy.methods.guided_evolution import release as releasing
from understudy.methods.guided_evolution.plan import NAME, GuidedEvolutionParameters, make_plan
from understudy.methods.shared.evolution import harvest, variation
from understudy.release import Release


class GuidedEvolution(Method, GuidedEvolutionParameters):
    """Evolution of texts towards a guide.

    >>> GuidedEvolution(rounds=3).variations
    7
    """

    name: ClassVar[str] = NAME
    parameters: ClassVar[type[Parameters]] = GuidedEvolutionParameters
    generation_parameters: ClassVar[type[Parameters]] = GuidedEvolutionParameters
    needs: ClassVar[Needs] = Needs(embedder="private", generation_embedder=True, generation_llm="always")

    plan = make_plan
    release = staticmethod(releasing.release)
    generate = generating.generate
    longest_prompts = variation.longest_prompts
    estimate_calls = harvest.estimate_calls

    def contents(self, release: Release) -> Contents:
        """The guide, and nothing else."""
        return Contents({}, {}).with_guide(release)
