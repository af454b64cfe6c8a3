"""Private evolution (Xie et al. 2024, Algorithm 1), the votes left to the caller.

    S_0     <- RANDOM_API
    for t in 0 .. T - 1:
        e       <- embeddings of S_t
        votes   <- vote(e)                              # the only step that may see anything private
        chosen  <- the N_syn of each label with most votes
        S_{t+1} <- chosen, and L - 1 VARIATION_API of each
    return chosen

Everything but ``vote`` is post-processing or public.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError
from understudy.base.labels import in_proportion
from understudy.methods.shared.evolution.parameters import MOST_CANDIDATES, MOST_IN_ALL, EvolutionParameters
from understudy.methods.shared.evolution.variation import TextAPI, require_text
from understudy.models.machine import require_memory

NO_PARENT = -1
KEPT = "kept"
"""What stands in the place of a prompt for a text that was chosen before and is a candidate again."""


@dataclass(frozen=True)
class Population:
    """The candidates of one round.

    Args:
        texts: one per candidate, never blank.
        labels: ``Int32[n]``, indices into the label set.
        parents: ``Int64[n]``, the lineage number of the text it is a variation of; -1 for a new text.
        prompts: what was asked for, in short, without the text: ``variation|style:briefly|words:60|blanks:0.5``.
        first: lineage number of the first candidate.
        failed: ``Int64[labels]``, calls of the language model that failed or gave nothing.
    """

    texts: tuple[str, ...]
    labels: NDArray[np.int32]
    parents: NDArray[np.int64]
    prompts: tuple[str, ...]
    first: int
    failed: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.texts)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All of it as numeric arrays, which is what a run store keeps."""
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
        """The exact inverse of :meth:`to_arrays`."""
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
    """One round of evolution.

    Args:
        population: the candidates.
        votes: ``Float64[n]``, of each candidate: noisy, or of a noisy Release.
        chosen: ``Int64[...]``, indices into the population, label after label, best first; an index may repeat.
    """

    population: Population
    votes: NDArray[np.float64]
    chosen: NDArray[np.int64]

    @property
    def chosen_texts(self) -> tuple[str, ...]:
        return tuple(self.population.texts[index] for index in self.chosen.tolist())

    @property
    def chosen_labels(self) -> NDArray[np.int32]:
        """``Int32[...]``, of the chosen texts."""
        return self.population.labels[self.chosen]

    @property
    def chosen_numbers(self) -> NDArray[np.int64]:
        """``Int64[...]``, lineage numbers of the chosen texts."""
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
"""Returns the stored arrays of this name, or makes them and stores them before anything is done with them."""
Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""``embed(texts) -> Float32[len(texts), d]`` of unit length."""
Vote = Callable[[int, NDArray[np.float32], NDArray[np.int32]], NDArray[np.float64]]
"""``vote(round, Float32[n, d] of unit length, labels Int32[n]) -> Float64[n]``; n may be 0."""

_NEW, _NEXT, _SELECT, _PURPOSES = 0, 1, 3, 4  # what is random in a round, each with a seed of its own


@dataclass(frozen=True)
class Work:
    """What each round takes if no call fails: candidates of all labels, and calls of the language model."""

    candidates: tuple[int, ...]
    calls: tuple[int, ...]


def evolve(
    api: TextAPI, sizes: Sequence[Sequence[int]], *, embed: Embed, vote: Vote, keep: Keep | None = None
) -> Iterator[Round]:
    """Evolve texts; each round is yielded as it ends. The texts that the last one chose are the result.

    A population is stored, as ``population-0``, ``population-1``, ..., before it is voted on, so a resumed run
    votes on the same texts. A label that has no text left, as all calls failed, gets new ones in the next round;
    fewer candidates than wanted are all chosen, and multiply.

    Args:
        sizes: ``sizes[round][label]``, texts to be chosen; see :func:`population_sizes`.
        keep: stores a population; None: nothing is stored.
    """
    before = _nothing(len(sizes[0]))
    for number, wanted in enumerate(sizes):
        candidates = partial(_propose, api, number, before, wanted)
        population = Population.from_arrays(keep(f"population-{number}", candidates) if keep else candidates())
        votes = vote(number, embed(population.texts), population.labels)
        chosen = select(
            votes,
            population.labels,
            sizes=wanted,
            selection=api.parameters.selection,
            threshold=api.parameters.threshold,
            generator=np.random.default_rng([api.writer.seed, _stage(number, _SELECT)]),
        )
        before = Round(population, votes, chosen)
        yield before


def population_sizes(parameters: EvolutionParameters, weights: Sequence[float]) -> list[list[int]]:
    """``sizes[round][label]``: population times labels, shared out by ``weights`` (equal ones: no shares known).

    Args:
        weights: one per label: declared shares, noisy counts, or all equal; [1] without labels.
    """
    return [share_out(parameters.population_at(number) * len(weights), weights) for number in range(parameters.rounds)]


def sizes_within(parameters: EvolutionParameters, counts: Sequence[int]) -> list[list[int]]:
    """``sizes[round][label]``: the population of each label, but no more than ``counts[label]`` are wanted."""
    return [[min(parameters.population_at(number), count) for count in counts] for number in range(parameters.rounds)]


def candidates_per_round(parameters: EvolutionParameters, labels: int) -> Work:
    """The candidates and language model calls of each round, for a label set of this size (at least 1)."""
    return candidates_of(parameters, population_sizes(parameters, [1.0] * labels))


def candidates_of(parameters: EvolutionParameters, wanted: Sequence[Sequence[int]]) -> Work:
    """The same, for ``wanted[round][label]`` texts to be chosen."""
    sizes = [sum(each) for each in wanted]
    new = sizes[0] * parameters.variations
    candidates = [new, *(size * parameters.variations for size in sizes[:-1])]
    calls = [new, *(size * parameters.new_variations for size in sizes[:-1])]
    return Work(tuple(candidates), tuple(calls))


def require_few(parameters: EvolutionParameters, labels: int) -> None:
    """See that no round, and not all rounds together, have more candidates than can be stored; else ConfigError."""
    candidates = candidates_per_round(parameters, labels).candidates
    if max(candidates) > MOST_CANDIDATES or sum(candidates) > MOST_IN_ALL:
        raise ConfigError(
            f"A round would have up to {max(candidates):.3g} candidates, and all together {sum(candidates):.3g}; the "
            f"most are {MOST_CANDIDATES:.0e} and {MOST_IN_ALL:.0e}.",
            "Lower population, variations or rounds.",
        )


def require_room_for(candidates: int, *, dimension: int) -> None:
    """See that the embeddings of a round's candidates can be held, before anything is charged; else ConfigError."""
    require_memory(
        candidates * dimension * _CANDIDATE_BYTES,
        what="The embeddings of a round's candidates",
        cure="Lower population or variations.",
    )


_CANDIDATE_BYTES = 4 + 2 + 4 + 8  # as embedded, on the grid, as multiplied, and as their mean is taken


def _propose(api: TextAPI, number: int, before: Round, wanted: Sequence[int]) -> Arrays:
    """The candidates of a round: chosen texts, their variations, and new texts for labels without any.

    Raises NoText: no call gave a text, and another run may get some: a vote on nothing new would be wasted.
    """
    parameters = api.parameters
    texts, labels, numbers = before.chosen_texts, before.chosen_labels, before.chosen_numbers
    times = parameters.new_variations
    varied = api.variations(texts * times, np.tile(labels, times), round_number=number, stage=_stage(number, _NEXT))
    there = set(labels.tolist())
    missing = [0 if label in there else size * parameters.variations for label, size in enumerate(wanted)]
    new = api.random(missing, stage=_stage(number, _NEW))
    if not (number > 0 and all(prompt == KEPT for prompt in before.population.prompts)):  # the round before had none
        require_text(varied, new)
    return Population(
        texts=(*texts, *varied.texts, *new.texts),
        labels=np.concatenate([labels, varied.labels, new.labels]),
        parents=np.concatenate([numbers, np.tile(numbers, times)[varied.sources], np.full(len(new.texts), NO_PARENT)]),
        prompts=(*[KEPT] * len(texts), *varied.prompts, *new.prompts),
        first=before.population.first + len(before.population),
        failed=varied.failed + new.failed,
    ).to_arrays()


def _nothing(labels: int) -> Round:
    """What stands before the first round."""
    no_numbers = np.empty(0, dtype=np.int64)
    empty = Population((), np.empty(0, dtype=np.int32), no_numbers, (), 0, np.zeros(labels, dtype=np.int64))
    return Round(empty, np.empty(0, dtype=np.float64), no_numbers)


def _stage(number: int, purpose: int) -> int:
    return number * _PURPOSES + purpose


def select(
    votes: NDArray[np.float64],
    labels: NDArray[np.int32],
    *,
    sizes: Sequence[int],
    selection: Literal["rank", "proportional"],
    threshold: float,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Indices of the chosen candidates, label after label, best first.

    ``rank`` takes the candidates with most votes, once each: all of them where there are fewer than wanted.
    ``proportional`` samples with replacement, in proportion to ``max(votes - threshold, 0)``, or uniformly where
    all of a label's are 0. A label without candidates gets none.

    Args:
        sizes: wanted of each label.
        threshold: taken off every vote; what falls below 0 counts as 0. Ties go to the earlier candidate.
        generator: used by ``proportional`` alone.
    """
    weights = np.maximum(votes - threshold, 0.0)
    chosen = [np.empty(0, dtype=np.int64)]
    for label, size in enumerate(sizes):
        candidates = np.flatnonzero(labels == label)
        if selection == "proportional" and len(candidates):
            candidates = generator.choice(candidates, size, p=_shares(weights[candidates]))
        chosen.append(candidates[np.argsort(-weights[candidates], kind="stable")][:size])
    return np.concatenate(chosen)


def share_out(total: int, weights: Sequence[float]) -> list[int]:
    """``total`` in proportion to ``weights`` (largest remainder), but never 0: the largest shares give one up.

    Weights below 0, as noisy counts may be, count as 0; all 0: equal shares. The sum is ``total``, or the number
    of weights where that is more.

    >>> share_out(10, [6, 3, 0])
    [6, 3, 1]
    """
    shares = np.array(in_proportion(total, weights), dtype=np.int64)
    for empty in np.flatnonzero(shares == 0):
        largest = int(np.argmax(shares))
        shares[largest] -= shares[largest] > 1
        shares[empty] = 1
    return [int(share) for share in shares]


def _shares(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weights by their sum; uniform where all are 0."""
    total = weights.sum()
    shares: NDArray[np.float64] = weights / total if total > 0 else np.full(len(weights), 1.0 / len(weights))
    return shares
