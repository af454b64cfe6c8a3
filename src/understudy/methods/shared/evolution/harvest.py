"""From an evolved population to as many texts as are asked for. Post-processing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from understudy.base.parameters import Parameters
from understudy.methods.public import CallEstimate
from understudy.methods.shared.evolution.loop import Round, candidates_of, sizes_within
from understudy.methods.shared.evolution.parameters import EvolutionParameters
from understudy.methods.shared.evolution.variation import TextAPI
from understudy.text.prompts.template import PromptTemplate, WritingParameters
from understudy.text.writing.records import SyntheticRecord
from understudy.text.writing.writer import public_name

_STAGE = 999_999
"""No round of an evolution has it."""


class HarvestParameters(Parameters):
    """How texts are taken out of a Release: post-processing, free, changeable at every ``generate``."""

    harvest: Literal["population", "variations"] = "population"
    """``population``: the evolved texts first, then variations of them. ``variations``: variations only."""


@dataclass(frozen=True)
class Survivor:
    """A text that the last round chose.

    Args:
        number: its place in the lineage.
        origin: what is known of where it comes from, for the provenance.
    """

    text: str
    label: int
    number: int
    origin: dict[str, Any]


def survivors(rounds: Sequence[Round]) -> list[Survivor]:
    """The texts that the last round chose, each once, best first within a label."""
    last = rounds[-1]
    found: dict[int, Survivor] = {}
    for index in last.chosen.tolist():
        number = last.population.first + index
        origin = {
            "number": number,
            "parent": int(last.population.parents[index]),
            "prompt": last.population.prompts[index],
        }
        text, label = last.population.texts[index], int(last.population.labels[index])
        found.setdefault(number, Survivor(text, label, number, origin))
    return list(found.values())


def harvest(
    survivors: Sequence[Survivor],
    counts: Sequence[int],
    *,
    kind: Literal["population", "variations"],
    api: TextAPI | None,
) -> Iterator[SyntheticRecord]:
    """``counts[label]`` records of each label, without a text where none could be had.

    A label's survivors come first, best first (unless ``kind`` is ``variations``), then variations of them, all in
    turn; without an ``api`` there are none. Where there are typed columns, each variation is asked to fit a row, which
    it keeps. Texts evolve without rows: a vote or a guide says nothing of columns.
    """
    pools = [[survivor for survivor in survivors if survivor.label == label] for label in range(len(counts))]
    taken = [pool[:count] if kind == "population" else [] for pool, count in zip(pools, counts, strict=True)]
    parents = [
        pool[number % len(pool)]
        for pool, count, some in zip(pools, counts, taken, strict=True)
        if pool and api is not None
        for number in range(count - len(some))
    ]
    varied = _variations(parents, api) if api is not None and parents else []
    for label, (count, some) in enumerate(zip(counts, taken, strict=True)):
        yield from (SyntheticRecord(each.text, label, {"source": "population", **each.origin}) for each in some)
        new = [record for record in varied if record.label == label]
        yield from new
        for _ in range(count - len(some) - len(new)):
            yield SyntheticRecord("", label, {"source": "none"})


def _variations(parents: Sequence[Survivor], api: TextAPI) -> list[SyntheticRecord]:
    """One variation of each, those left out that the language model gave no text for."""
    chat = api.writer.chat
    assert chat is not None, "a TextAPI has one"
    labels = np.array([parent.label for parent in parents], dtype=np.int32)
    texts = [parent.text for parent in parents]
    rows = None if api.writer.rows is None else [api.writer.rows.take(parent.label) for parent in parents]
    details = [] if rows is None else [row.details for row in rows]
    answers = api.variations(texts, labels, round_number=api.parameters.rounds, stage=_STAGE, details=details)
    return [
        SyntheticRecord(
            text,
            parents[source].label,
            {
                "source": "variation",
                "parent": parents[source].number,
                "prompt": prompt,
                "model": public_name(chat.model_id),
            },
            None if rows is None else rows[source].values,
        )
        for text, source, prompt in zip(answers.texts, answers.sources.tolist(), answers.prompts, strict=True)
    ]


_A_WORD = "words "


def evolution_calls(parameters: EvolutionParameters, sizes: Sequence[Sequence[int]]) -> int:
    """Calls of the language model in the rounds that choose ``sizes[round][label]`` texts, if none fails."""
    return sum(candidates_of(parameters, sizes).calls)


def harvest_calls(counts: Sequence[int], population: Sequence[int], *, kind: str) -> int:
    """Calls for the variations that make up ``counts`` records of populations of these sizes."""
    if kind == "variations":
        return sum(counts)
    return sum(max(0, count - size) for count, size in zip(counts, population, strict=True))


class EvolvingParameters(EvolutionParameters, HarvestParameters):
    """Of a method that evolves texts when it generates."""


def estimate_calls(
    parameters: EvolvingParameters, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate
) -> CallEstimate:
    """Of an evolution that makes no larger populations than ``counts``, if no call fails."""
    sizes = sizes_within(parameters, counts)
    calls = evolution_calls(parameters, sizes) + harvest_calls(counts, sizes[-1], kind=parameters.harvest)
    return CallEstimate(calls, variation_characters(parameters, template, writing.examples_per_prompt))


def variation_characters(parameters: EvolutionParameters, template: PromptTemplate, examples: int) -> int:
    """Characters of a prompt for a variation, about."""
    prompts = template.evolution
    text = _A_WORD * ((parameters.min_words + parameters.max_words) // 2)
    wish = {"label": "label", "style": (prompts.styles or ("",))[0], "words": "00", "text": text}
    turns = [({**wish, "text": each.text}, each.text) for each in template.evolution_examples[:examples]]
    patterns = prompts.fill if parameters.blank_probability_at(0) > 0 else prompts.rephrase
    return sum(len(message.content) for message in template.evolution_messages(patterns[0], wish, turns=turns))
