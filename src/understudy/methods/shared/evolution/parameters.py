"""Parameters of private evolution for any method that votes, and the work that they cause. All public or
post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from understudy.base.errors import ConfigError
from understudy.base.parameters import Parameters, public_file
from understudy.schema.labels import in_proportion

MOST_CANDIDATES = 1_000_000
"""Largest number of candidates of a round: their texts are stored together, in one value of the run's store."""
MOST_IN_ALL = 5_000_000
"""Largest number of candidates of all rounds: a Release contains all their texts."""


class EvolutionParameters(Parameters):
    """How texts evolve."""

    rounds: int = Field(10, ge=1, le=1000)
    """Rounds of voting (T)."""
    population: int = Field(100, ge=1, le=MOST_CANDIDATES)
    """Texts of each label that a round chooses (N_syn)."""
    variations: int = Field(7, ge=1, le=1000)
    """Candidates made from each chosen text (L): itself and L - 1 variations of it."""
    selection: Literal["rank", "proportional"] = "rank"
    """Whether the texts with most votes are chosen, or texts are sampled in proportion to their votes."""
    threshold: float = Field(0.0, ge=0, le=1e12)
    """Subtracted from every noisy vote; results below 0 count as 0."""
    blank_probability: float = Field(0.5, ge=0, le=1)
    """Share of a text's words that a variation has to fill in. 0: ask for other words instead."""
    min_words: int = Field(25, ge=1, le=100_000)
    """Fewest words that a prompt asks for."""
    max_words: int = Field(100, ge=1, le=100_000)
    """Most words that a prompt asks for."""
    keywords: str | None = public_file(None)
    """A file of keywords for new texts, one per line, or YAML with a list for each label. Default: the template's."""
    keywords_are_public: bool = False
    """Confirms that the keywords do not come from the private data."""

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


class HarvestParameters(Parameters):
    """How texts are taken from a Release: post-processing, free; may change at every ``generate``."""

    harvest: Literal["population", "variations"] = "population"
    """``population``: the evolved texts first, then variations of them. ``variations``: variations only."""


class EvolvingParameters(EvolutionParameters, HarvestParameters):
    """Parameters of a method that evolves texts when it generates."""


def population_sizes(parameters: EvolutionParameters, weights: Sequence[float]) -> list[int]:
    """Return how many texts of each label a round chooses: population times the number of labels, divided in proportion
    to ``weights`` (default: equally)."""
    return share_out(parameters.population * len(weights), weights)


def sizes_within(parameters: EvolutionParameters, counts: Sequence[int]) -> list[int]:
    """Return the population of each label, limited to ``counts[label]``."""
    return [min(parameters.population, count) for count in counts]


def candidates_per_round(parameters: EvolutionParameters, labels: int) -> int:
    """Return the number of candidates in a round if no call fails. Raises ConfigError if there are more than can be
    stored."""
    candidates = parameters.population * labels * parameters.variations
    if candidates > MOST_CANDIDATES or candidates * parameters.rounds > MOST_IN_ALL:
        raise ConfigError(
            f"A round would have up to {candidates:.3g} candidates, and all together "
            f"{candidates * parameters.rounds:.3g}; the limits are {MOST_CANDIDATES:.0e} and {MOST_IN_ALL:.0e}.",
            "Lower population, variations or rounds.",
        )
    return candidates


def evolution_calls(parameters: EvolutionParameters, sizes: Sequence[int]) -> int:
    """Return the language model's calls in all rounds, each of which chooses ``sizes[label]`` texts, if none fails."""
    return sum(sizes) * (parameters.variations + (parameters.rounds - 1) * (parameters.variations - 1))


def share_out(total: int, weights: Sequence[float]) -> list[int]:
    """Divide ``total`` in proportion to ``weights`` by largest remainder, with at least 1 for each: one is taken from
    the largest for each that would get 0.

    Weights below 0, as noisy counts may be, count as 0; all 0: equal shares. The sum is ``total``, or the number of
    weights if that is larger.

    >>> share_out(10, [6, 3, 0])
    [6, 3, 1]
    """
    shares = np.array(in_proportion(total, weights), dtype=np.int64)
    for empty in np.flatnonzero(shares == 0):
        largest = int(np.argmax(shares))
        shares[largest] -= shares[largest] > 1
        shares[empty] = 1
    return [int(share) for share in shares]
