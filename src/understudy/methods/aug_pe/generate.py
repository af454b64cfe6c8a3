"""Aug-PE, after the privacy boundary: take texts from the evolved population. Free, and repeatable."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from understudy.methods.aug_pe.plan import (
    AugPEParameters,
    keywords_name,
    public_vocabulary,
    votes_name,
)
from understudy.methods.facts import CallEstimate, GenerationTools
from understudy.methods.shared.evolution import loop, variation
from understudy.methods.shared.evolution.loop import Survivor, harvest
from understudy.methods.shared.evolution.parameters import EvolvingParameters, population_sizes
from understudy.methods.shared.evolution.variation import TextAPI
from understudy.models.types import Message
from understudy.release import Release
from understudy.text.prompts.template import PromptTemplate, WritingParameters
from understudy.text.records import SyntheticRecord
from understudy.text.writing import Writer


def generate(
    parameters: AugPEParameters, release: Release, counts: Sequence[int], *, tools: GenerationTools
) -> Iterator[SyntheticRecord]:
    """Return the evolved texts, and variations of them if more are requested (none without a language model)."""
    keywords = [keywords_of(release, label) for label in range(len(counts))]
    api = None if tools.writer.chat is None else TextAPI(tools.writer, parameters, keywords)
    return harvest(survivors(release), counts, kind=parameters.harvest, api=api)


def longest_prompts(parameters: AugPEParameters, release: Release, writer: Writer) -> Iterator[tuple[Message, ...]]:
    """Return prompts with the longest possible keywords."""
    vocabulary = public_vocabulary(parameters)
    keywords = [] if vocabulary is None else [vocabulary.terms] * release.schema.label_set.size
    return variation.longest_prompts(parameters, release, writer, keywords=keywords)


def estimate_calls(
    parameters: AugPEParameters, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate
) -> CallEstimate:
    """Estimate the calls of the language model in the release and in generating texts."""
    sizes = population_sizes(parameters, [1.0] * len(counts))
    return loop.estimate_calls(parameters.part(EvolvingParameters), counts, writing, template, sizes=sizes)


def label_counts(parameters: AugPEParameters, release: Release) -> tuple[list[float], float]:
    """Return each label's mean number of votes per round, which is in proportion to its records."""
    votes, labels = release.arrays["votes"], release.schema.label_set.size
    counts = np.bincount(release.arrays["label"], weights=votes, minlength=labels) / parameters.rounds
    noise = (release.statement.noise_multiplier(votes_name(1)) or 0.0) * release.statement.unit.vectors
    return counts.tolist(), noise * math.sqrt(len(votes) / labels) / parameters.rounds


def keywords_of(release: Release, label: int) -> Sequence[str]:
    """Return the keywords of a label's prompts: terms of the privatised vocabulary, or public keywords."""
    return release.terms or release.strings[keywords_name(label)]


def survivors(release: Release) -> list[Survivor]:
    """Return the texts that the last round chose, each once, best first within a label."""
    texts, prompts = release.strings.get("texts", ()), release.strings.get("prompts", ())
    labels, parents, rounds = (release.arrays[name] for name in ("label", "parent", "round"))
    found = []
    for number in dict.fromkeys(release.arrays["survivors"].tolist()):
        lineage = {"number": number, "parent": int(parents[number]), "round": int(rounds[number]) + 1}
        origin = {**lineage, "prompt": prompts[number]}
        found.append(Survivor(texts[number], int(labels[number]), origin))
    return found
