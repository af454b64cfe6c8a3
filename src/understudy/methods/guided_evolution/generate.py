"""Guided evolution, after the privacy boundary: texts evolve, and the guide chooses. No private data; free.

Private evolution (Xie et al. 2024) pays for the votes of every round. Here all rounds ask one guide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ModelError
from understudy.methods.guided_evolution.plan import GuidedEvolutionParameters
from understudy.methods.public import GenerationTools
from understudy.methods.shared.evolution.harvest import harvest, survivors
from understudy.methods.shared.evolution.loop import Round, evolve, sizes_within
from understudy.methods.shared.evolution.variation import TextAPI, keywords_of_labels
from understudy.methods.shared.guide.choosing import choose
from understudy.methods.shared.guide.released import guide_of
from understudy.release import Release
from understudy.text.writing.records import SyntheticRecord


def generate(
    parameters: GuidedEvolutionParameters, release: Release, counts: Sequence[int], *, tools: GenerationTools
) -> Iterator[SyntheticRecord]:
    """Evolve ``population`` texts of each label (no more than asked for) towards the guide, and take them out.

    Raises:
        ReleaseError: if the embedder is not the Release's.
        ModelError: if there is no language model.
    """
    if tools.writer.chat is None:
        raise ModelError(
            "guided-evolution evolves texts that a language model writes, and there is none.", "Name one with --llm."
        )
    embedder = tools.embedder
    assert embedder is not None, "the run loads what a method needs"
    guide = guide_of(release, embedder, cure="Generate with the embedder that it was made with (--embedder).")
    keywords = keywords_of_labels(parameters, tools.writer.template.evolution, tools.writer.labels)
    api = TextAPI(tools.writer, parameters, keywords)
    sizes = sizes_within(parameters, counts)

    def votes(number: int, vectors: NDArray[np.float32], labels: NDArray[np.int32]) -> NDArray[np.float64]:
        """The more the earlier the guide chooses a text; none for those that it does not choose."""
        found = np.zeros(len(vectors))
        for chosen in choose(guide, vectors, labels.astype(np.int64), sizes[number]).chosen:
            found[chosen] = np.arange(len(chosen), 0, -1)
        return found

    rounds: list[Round] = []
    tools.progress("rounds", 0, parameters.rounds)
    for each in evolve(api, sizes, embed=embedder.embed, vote=votes):
        rounds.append(each)
        tools.say(
            f"Round {len(rounds)} of {parameters.rounds}: {len(each.population)} candidates, {len(each.chosen)} chosen."
        )
        tools.progress("rounds", len(rounds), parameters.rounds)
    return harvest(survivors(rounds), counts, kind=parameters.harvest, api=api)
