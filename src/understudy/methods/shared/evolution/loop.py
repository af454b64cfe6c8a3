"""Private evolution (Xie et al. 2024, Algorithm 1), with votes by the caller.

    S_0     <- RANDOM_API
    for t in 0 .. T - 1:
        e       <- embeddings of S_t
        votes   <- vote(e)                              # the only step that may see anything private
        chosen  <- the N_syn of each label with most votes
        S_{t+1} <- chosen, and L - 1 VARIATION_API of each
    return chosen

Everything but ``vote`` is post-processing or public. At the end, the requested number of texts is taken from the last
population and variations of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.methods.facts import CallEstimate, GenerationTools
from understudy.methods.shared.evolution.parameters import (
    EvolutionParameters,
    EvolvingParameters,
    evolution_calls,
    sizes_within,
)
from understudy.methods.shared.evolution.variation import TextAPI, keywords_of_labels, require_text
from understudy.models.types import Embedder
from understudy.text.prompts.template import PromptTemplate, WritingParameters
from understudy.text.records import SyntheticRecord
from understudy.text.writing import public_name

NO_PARENT = -1
KEPT = "kept"
"""Stored instead of a prompt for a text that was chosen before and is a candidate again."""


@dataclass(frozen=True)
class Population:
    """The candidates of one round. ``prompts`` summarise what was asked for, without the text:
    ``variation|style:briefly|words:60|blanks:0.5``."""

    texts: tuple[str, ...]  # one per candidate, never blank
    labels: NDArray[np.int32]  # ``Int32[n]``, indices into the label set
    parents: NDArray[np.int64]  # ``Int64[n]``, the lineage number of the text it is a variation of; -1 for a new text
    prompts: tuple[str, ...]
    first: int  # lineage number of the first candidate
    failed: NDArray[np.int64]  # ``Int64[labels]``, calls of the language model that failed or returned nothing

    def __len__(self) -> int:
        return len(self.texts)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as numeric arrays, as a run store needs."""
        return {
            **_encode("texts", self.texts),
            **_encode("prompts", self.prompts),
            "labels": self.labels,
            "parents": self.parents,
            "first": np.array([self.first], dtype=np.int64),
            "failed": self.failed,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Population:
        """Invert :meth:`to_arrays` exactly."""
        return cls(
            texts=_decode("texts", arrays),
            labels=np.asarray(arrays["labels"], dtype=np.int32),
            parents=np.asarray(arrays["parents"], dtype=np.int64),
            prompts=_decode("prompts", arrays),
            first=int(arrays["first"][0]),
            failed=np.asarray(arrays["failed"], dtype=np.int64),
        )


@dataclass(frozen=True)
class Round:
    """One round of evolution: its candidates, their votes, and which of them were chosen."""

    population: Population  # the candidates
    votes: NDArray[np.float64]  # ``Float64[n]``, of each candidate: noisy, or from a noisy Release
    chosen: NDArray[np.int64]  # indices into the population, label after label, best first; an index may repeat

    @property
    def chosen_texts(self) -> tuple[str, ...]:
        return tuple(self.population.texts[index] for index in self.chosen.tolist())

    @property
    def chosen_labels(self) -> NDArray[np.int32]:
        """Return the labels of the chosen texts, ``Int32[...]``."""
        return self.population.labels[self.chosen]

    @property
    def chosen_numbers(self) -> NDArray[np.int64]:
        """Return the lineage numbers of the chosen texts, ``Int64[...]``."""
        return self.chosen + self.population.first


def _encode(name: str, strings: Sequence[str]) -> dict[str, NDArray[Any]]:
    encoded = [string.encode("utf-8", "surrogatepass") for string in strings]
    ends = np.cumsum([0, *(len(each) for each in encoded)], dtype=np.int64)
    return {name: np.frombuffer(b"".join(encoded), dtype=np.uint8), f"{name}_offsets": ends}


def _decode(name: str, arrays: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    encoded, ends = arrays[name].astype(np.uint8).tobytes(), arrays[f"{name}_offsets"].tolist()
    return tuple(encoded[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise(ends))


Arrays = Mapping[str, NDArray[Any]]
Keep = Callable[[str, Callable[[], Arrays]], Arrays]
"""Returns the stored arrays of this name, or makes and stores them before they are used."""
Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""``embed(texts) -> Float32[len(texts), d]`` of unit length."""
Vote = Callable[[int, NDArray[np.float32], NDArray[np.int32]], NDArray[np.float64]]
"""``vote(round, Float32[n, d] of unit length, labels Int32[n]) -> Float64[n]``; n may be 0."""

_NEW, _NEXT, _SELECT, _PURPOSES = 0, 1, 3, 4  # the random parts of a round, each with its own seed


def evolve(
    api: TextAPI, sizes: Sequence[int], *, embed: Embed, vote: Vote, keep: Keep | None = None
) -> Iterator[Round]:
    """Evolve texts; yield each round as it ends. The texts that the last one chose are the result.

    A population is stored, as ``population-0``, ``population-1``, ..., before it is voted on, so a resumed run votes on
    the same texts. A label without texts, since all calls failed, gets new ones in the next round. If there are fewer
    candidates than requested, all are chosen, and their variations add to them in the next round.

    Args:
        sizes: ``sizes[label]``, texts to be chosen in each round.
        keep: stores a population under a name, or returns the stored one; None: nothing is stored.
    """
    none, failed = np.empty(0, dtype=np.int64), np.zeros(len(sizes), dtype=np.int64)
    before = Round(Population((), np.empty(0, dtype=np.int32), none, (), 0, failed), np.empty(0), none)
    for number in range(api.parameters.rounds):
        candidates = partial(_propose, api, number, before, sizes)
        population = Population.from_arrays(keep(f"population-{number}", candidates) if keep else candidates())
        votes = vote(number, embed(population.texts), population.labels)
        generator = np.random.default_rng([api.writer.seed, _stage(number, _SELECT)])
        chosen = select(votes, population.labels, sizes=sizes, parameters=api.parameters, generator=generator)
        before = Round(population, votes, chosen)
        yield before


def evolved(
    evolving: Iterator[Round], rounds: int, *, say: Callable[[str], None], progress: Callable[[str, int, int], None]
) -> list[Round]:
    """Run all rounds of ``evolving`` and return them, reporting each to the user as it ends."""
    found: list[Round] = []
    progress("rounds", 0, rounds)
    for each in evolving:
        found.append(each)
        failed = int(each.population.failed.sum())
        left_out = f", {failed} left out (the language model gave no text)" if failed else ""
        candidates = f"{len(each.population)} candidates{left_out}, {len(each.chosen)} chosen"
        say(f"Round {len(found)} of {rounds}: {candidates}.")
        progress("rounds", len(found), rounds)
    return found


def generate_by_votes(
    parameters: EvolvingParameters, counts: Sequence[int], *, tools: GenerationTools, embedder: Embedder, vote: Vote
) -> Iterator[SyntheticRecord]:
    """Evolve texts with the given ``vote``; yield ``counts[label]`` records of each label. A round chooses
    ``population`` texts of each label, or ``counts[label]`` if that is fewer. Post-processing, costs no privacy."""
    keywords = keywords_of_labels(parameters, tools.writer.template.evolution, tools.writer.labels)
    api = TextAPI(tools.writer, parameters, keywords)
    evolving = evolve(api, sizes_within(parameters, counts), embed=embedder.embed, vote=vote)
    rounds = evolved(evolving, parameters.rounds, say=tools.say, progress=tools.progress)
    return harvest(survivors(rounds), counts, kind=parameters.harvest, api=api)


def _propose(api: TextAPI, number: int, before: Round, wanted: Sequence[int]) -> Arrays:
    """Return the candidates of a round: chosen texts, their variations, and new texts for labels without any. Raises
    NoText if no call gave a text but a later run may get some: a vote on nothing new would be wasted."""
    parameters = api.parameters
    texts, labels, numbers = before.chosen_texts, before.chosen_labels, before.chosen_numbers
    times = parameters.variations - 1  # of each chosen text, without the kept one
    varied = api.variations(texts * times, np.tile(labels, times), stage=_stage(number, _NEXT))
    there = set(labels.tolist())
    missing = [0 if label in there else size * parameters.variations for label, size in enumerate(wanted)]
    new = api.random(missing, stage=_stage(number, _NEW))
    if not (number > 0 and all(prompt == KEPT for prompt in before.population.prompts)):  # the previous round had none
        require_text(varied, new)
    return Population(
        texts=(*texts, *varied.texts, *new.texts),
        labels=np.concatenate([labels, varied.labels, new.labels]),
        parents=np.concatenate([numbers, np.tile(numbers, times)[varied.sources], np.full(len(new.texts), NO_PARENT)]),
        prompts=(*[KEPT] * len(texts), *varied.prompts, *new.prompts),
        first=before.population.first + len(before.population),
        failed=varied.failed + new.failed,
    ).to_arrays()


def _stage(number: int, purpose: int) -> int:
    return number * _PURPOSES + purpose


def select(
    votes: NDArray[np.float64],
    labels: NDArray[np.int32],
    *,
    sizes: Sequence[int],
    parameters: EvolutionParameters,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Choose candidates by their votes. Return their indices, label after label, best first.

    ``rank`` takes the candidates with most votes, once each: all of them if there are too few. ``proportional`` samples
    with replacement, in proportion to ``max(votes - threshold, 0)``, or uniformly if all of a label's are 0. A label
    without candidates gets none.

    ``sizes`` are requested of each label. Ties go to the earlier candidate; only ``proportional`` uses the
    ``generator``.
    """
    weights = np.maximum(votes - parameters.threshold, 0.0)
    chosen = [np.empty(0, dtype=np.int64)]
    for label, size in enumerate(sizes):
        candidates = np.flatnonzero(labels == label)
        if parameters.selection == "proportional" and len(candidates):
            mine = weights[candidates]
            even = np.full(len(mine), 1.0 / len(mine))
            candidates = generator.choice(candidates, size, p=mine / mine.sum() if mine.sum() > 0 else even)
        chosen.append(candidates[np.argsort(-weights[candidates], kind="stable")][:size])
    return np.concatenate(chosen)


_STAGE = 999_999
"""Stage number that no round of an evolution has."""


@dataclass(frozen=True)
class Survivor:
    """A text that the last round chose, with its ``number`` in the lineage and its parent's."""

    text: str
    label: int
    origin: dict[str, Any]


def survivors(rounds: Sequence[Round]) -> list[Survivor]:
    """Return the texts that the last round chose, each once, best first within a label."""
    last, found = rounds[-1].population, []
    for index in dict.fromkeys(rounds[-1].chosen.tolist()):
        origin = {"number": last.first + index, "parent": int(last.parents[index]), "prompt": last.prompts[index]}
        found.append(Survivor(last.texts[index], int(last.labels[index]), origin))
    return found


def harvest(
    survivors: Sequence[Survivor],
    counts: Sequence[int],
    *,
    kind: Literal["population", "variations"],
    api: TextAPI | None,
) -> Iterator[SyntheticRecord]:
    """Yield ``counts[label]`` records of each label; a record has no text if none could be generated.

    A label's survivors come first, best first (unless ``kind`` is ``variations``), then variations of them in turn;
    without an ``api`` there are no variations. With typed columns, a variation is asked to fit a row of values, and its
    record contains that row. Texts evolve without rows: votes and guides do not depend on columns.
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
    """Return one variation of each, except those for which the language model gave no text."""
    labels = np.array([parent.label for parent in parents], dtype=np.int32)
    texts = [parent.text for parent in parents]
    rows = None if api.writer.rows is None else [api.writer.rows.take(parent.label) for parent in parents]
    details = [] if rows is None else [row.details for row in rows]
    answers = api.variations(texts, labels, stage=_STAGE, details=details)
    found, model = [], public_name(api.chat.model_id)
    for text, source, prompt in zip(answers.texts, answers.sources.tolist(), answers.prompts, strict=True):
        number, columns = parents[source].origin["number"], None if rows is None else rows[source].values
        known = {"source": "variation", "parent": number, "prompt": prompt, "model": model}
        found.append(SyntheticRecord(text, parents[source].label, known, columns))
    return found


def estimate_calls(
    parameters: EvolvingParameters,
    counts: Sequence[int],
    writing: WritingParameters,
    template: PromptTemplate,
    *,
    sizes: Sequence[int] | None = None,
) -> CallEstimate:
    """Estimate the calls if none fails. ``sizes`` as of :func:`evolve`; without them, populations are at most
    ``counts``."""
    sizes = sizes or sizes_within(parameters, counts)
    kept = sizes if parameters.harvest == "population" else [0] * len(counts)
    varied = sum(max(0, count - size) for count, size in zip(counts, kept, strict=True))
    prompts = template.evolution
    text = "words " * ((parameters.min_words + parameters.max_words) // 2)
    wish = {"label": "label", "style": (prompts.styles or ("",))[0], "words": "00", "text": text}
    examples = template.evolution_examples[: template.settings.examples_per_prompt]
    turns = [({**wish, "text": each.text}, each.text) for each in examples]
    patterns = prompts.fill if parameters.blank_probability > 0 else prompts.rephrase
    messages = template.evolution_messages(patterns[0], wish, turns=turns)
    return CallEstimate(evolution_calls(parameters, sizes) + varied, sum(len(message.content) for message in messages))
