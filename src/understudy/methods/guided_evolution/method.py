"""Guided evolution: private evolution with one charge and any number of rounds.

Private evolution (Xie et al. 2024) spends budget on votes in every round. Here one released guide votes in all rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from understudy.base.parameters import Parameters
from understudy.methods.additions.guide.addition import GuideAddition
from understudy.methods.additions.guide.guide import choose, guide_of
from understudy.methods.additions.guide.release import release as release_guide
from understudy.methods.base import Method, Needs, needed
from understudy.methods.facts import GenerationTools
from understudy.methods.guided_evolution.plan import NAME, GuidedEvolutionParameters, make_plan
from understudy.methods.release_schema import Contents
from understudy.methods.shared.evolution import loop, variation
from understudy.methods.shared.evolution.parameters import sizes_within
from understudy.release import Release
from understudy.text.records import SyntheticRecord


class GuidedEvolution(Method, GuidedEvolutionParameters):
    """Evolution of texts towards a guide.

    >>> GuidedEvolution(rounds=3).variations
    7
    """

    name: ClassVar[str] = NAME
    generation_parameters: ClassVar[type[Parameters]] = GuidedEvolutionParameters
    needs: ClassVar[Needs] = Needs(embedder=True, generation_embedder=True, generation_llm="always")

    plan = make_plan
    release = staticmethod(release_guide)
    longest_prompts = variation.longest_prompts
    estimate_calls = loop.estimate_calls

    def contents(self, release: Release) -> Contents:
        """Describe the guide, and nothing else."""
        return GuideAddition.contents(Contents({}, {}), release)

    def generate(self, release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:
        """Evolve texts that come ever closer to the guide; yield ``counts[label]`` records of each label."""
        embedder = needed(tools.embedder)
        guide = guide_of(release, embedder, cure="Generate with the embedder that it was made with (--embedder).")
        sizes = sizes_within(self, counts)

        def votes(_number: int, vectors: NDArray[np.float32], labels: NDArray[np.int32]) -> NDArray[np.float64]:
            """Give more votes to texts that the guide chooses earlier, and none to those that it does not choose."""
            found = np.zeros(len(vectors))
            for chosen in choose(guide, vectors, labels.astype(np.int64), sizes).chosen:
                found[chosen] = np.arange(len(chosen), 0, -1)
            return found

        return loop.generate_by_votes(self, counts, tools=tools, embedder=embedder, vote=votes)
