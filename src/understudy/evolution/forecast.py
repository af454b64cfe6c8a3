"""What an evolution will ask of a language model, before it asks."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.evolution.loop import candidates_of
from understudy.evolution.parameters import EvolutionParameters
from understudy.prompts.template import PromptTemplate

_A_WORD = "words "


def evolution_calls(parameters: EvolutionParameters, sizes: Sequence[Sequence[int]]) -> int:
    """Calls of the language model in the rounds that choose ``sizes[round][label]`` texts, if none fails."""
    return sum(candidates_of(parameters, sizes).calls)


def harvest_calls(counts: Sequence[int], population: Sequence[int], *, kind: str) -> int:
    """Calls for the variations that make up ``counts`` records of populations of these sizes."""
    if kind == "variations":
        return sum(counts)
    return sum(max(0, count - size) for count, size in zip(counts, population, strict=True))


def variation_characters(parameters: EvolutionParameters, template: PromptTemplate, examples: int) -> int:
    """Characters of a prompt for a variation, about."""
    prompts = template.evolution
    text = _A_WORD * ((parameters.min_words + parameters.max_words) // 2)
    wish = {"label": "label", "style": (prompts.styles or ("",))[0], "words": "00", "text": text}
    turns = [({**wish, "text": each.text}, each.text) for each in template.evolution_examples[:examples]]
    patterns = prompts.fill if parameters.blank_probability_at(0) > 0 else prompts.rephrase
    return sum(len(message.content) for message in template.evolution_messages(patterns[0], wish, turns=turns))
