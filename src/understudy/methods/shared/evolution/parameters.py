"""What a user may choose in private evolution, whichever method votes, and how much work it makes. All of it is public
or post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from understudy.base.errors import ConfigError
from understudy.base.labels import in_proportion
from understudy.base.parameters import Gone, GoneOnes, Parameters, public_file


def _by_round(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(","))
    several = tuple(value) if isinstance(value, list | tuple) else (value,)
    if any(isinstance(each, bool) for each in several):
        raise ValueError("expected a number")
    return several


def _one_or_several(kind: str) -> WithJsonSchema:
    several = {"type": "array", "items": {"type": kind}, "minItems": 1}
    return WithJsonSchema({"anyOf": [{"type": kind}, {"type": "string"}, several]})


T = TypeVar("T")

MOST_CANDIDATES = 1_000_000
"""Of a round: their texts are stored together, in one value of the run's store."""
MOST_IN_ALL = 5_000_000
"""Candidates of all rounds: a Release holds all their texts."""

_Size = Annotated[int, Field(ge=1, le=MOST_CANDIDATES)]
_Probability = Annotated[float, Field(ge=0, le=1)]
Sizes = Annotated[tuple[_Size, ...], BeforeValidator(_by_round), Field(min_length=1), _one_or_several("integer")]
"""A size of each round; one string holds several, separated by commas. The last one repeats."""
Probabilities = Annotated[
    tuple[_Probability, ...], BeforeValidator(_by_round), Field(min_length=1), _one_or_several("number")
]
"""A probability of each round, likewise."""


class EvolutionParameters(Parameters):
    """How texts evolve."""

    rounds: int = Field(10, ge=1, le=1000)
    """Rounds of voting (T)."""
    population: Sizes = (100,)
    """Texts of each label that a round chooses (N_syn); one size, or one per round, separated by commas."""
    variations: int = Field(7, ge=1, le=1000)
    """Candidates that come of each chosen text (L): itself and L - 1 variations of it."""
    selection: Literal["rank", "proportional"] = "rank"
    """Whether the texts with most votes are chosen, or texts are sampled in proportion to their votes."""
    threshold: float = Field(0.0, ge=0, le=1e12)
    """Taken off every noisy vote; what falls below 0 counts as 0."""
    blank_probability: Probabilities = (0.5,)
    """Share of a text's words that a variation has to fill in; one, or one per round. 0: asks for other words."""
    min_words: int = Field(25, ge=1, le=100_000)
    """Fewest words that a prompt asks for."""
    max_words: int = Field(100, ge=1, le=100_000)
    """Most words that a prompt asks for."""
    keywords: str | None = public_file(None)
    """A file of keywords for new texts, one per line, or YAML with a list for each label. Default: the template's."""
    keywords_are_public: bool = False
    """Your word that the keywords do not come from the private data."""

    gone: ClassVar[GoneOnes] = {
        "initial_candidates": Gone(None, "the first round has population times variations candidates of each label"),
        "keep_selected": Gone(True, "a chosen text is always a candidate again"),
        "lookahead": Gone(0, "a candidate is judged by its own embedding"),
        "words_spread": Gone(20.0, "a variation is asked for its parent's number of words, give or take 20"),
        "temperatures": Gone(None, "--llm-temperature holds in all rounds"),
    }

    @model_validator(mode="after")
    def _something_new(self) -> Self:
        if self.variations < 2 and self.rounds > 1:
            raise ValueError("variations counts the kept text, so it is at least 2")
        return self

    @model_validator(mode="after")
    def _words_in_order(self) -> Self:
        if self.min_words > self.max_words:
            raise ValueError("min_words is above max_words")
        return self

    def population_at(self, round_number: int) -> int:
        """Texts of each label that a round (from 0) chooses."""
        return _at(self.population, round_number)

    def blank_probability_at(self, round_number: int) -> float:
        """For the variations that a round (from 0) votes on."""
        return _at(self.blank_probability, round_number)


def _at(schedule: tuple[T, ...], round_number: int) -> T:
    return schedule[min(round_number, len(schedule) - 1)]


class HarvestParameters(Parameters):
    """How texts are taken out of a Release: post-processing, free, changeable at every ``generate``."""

    harvest: Literal["population", "variations"] = "population"
    """``population``: the evolved texts first, then variations of them. ``variations``: variations only."""


class EvolvingParameters(EvolutionParameters, HarvestParameters):
    """Of a method that evolves texts when it generates."""


def population_sizes(parameters: EvolutionParameters, weights: Sequence[float]) -> list[list[int]]:
    """``sizes[round][label]``: population times labels, shared out by ``weights``, one per label ([1] without)."""
    return [share_out(parameters.population_at(number) * len(weights), weights) for number in range(parameters.rounds)]


def sizes_within(parameters: EvolutionParameters, counts: Sequence[int]) -> list[list[int]]:
    """``sizes[round][label]``: the population of each label, but no more than ``counts[label]``."""
    return [[min(parameters.population_at(number), count) for count in counts] for number in range(parameters.rounds)]


def candidates_per_round(parameters: EvolutionParameters, labels: int) -> list[int]:
    """The candidates of each round if no call of the language model fails, for so many labels (at least 1)."""
    sizes = [parameters.population_at(number) * labels for number in range(parameters.rounds)]
    return [size * parameters.variations for size in (sizes[0], *sizes[:-1])]


def largest_round(parameters: EvolutionParameters, labels: int) -> int:
    """The candidates of the largest round. Raises ConfigError if there are more than can be stored."""
    candidates = candidates_per_round(parameters, labels)
    if max(candidates) > MOST_CANDIDATES or sum(candidates) > MOST_IN_ALL:
        raise ConfigError(
            f"A round would have up to {max(candidates):.3g} candidates, and all together {sum(candidates):.3g}; the "
            f"most are {MOST_CANDIDATES:.0e} and {MOST_IN_ALL:.0e}.",
            "Lower population, variations or rounds.",
        )
    return max(candidates)


def evolution_calls(parameters: EvolutionParameters, sizes: Sequence[Sequence[int]]) -> int:
    """Calls of the language model in the rounds that choose ``sizes[round][label]`` texts, if none fails."""
    varied = sum(map(sum, sizes[:-1]))
    return sum(sizes[0]) * parameters.variations + varied * (parameters.variations - 1)


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
