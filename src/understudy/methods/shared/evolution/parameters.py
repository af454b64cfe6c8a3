"""What a user may choose in private evolution, whichever method votes. All of it is public or post-processing."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

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

    @property
    def new_variations(self) -> int:
        """Variations of each chosen text, the kept one left out."""
        return self.variations - 1

    def population_at(self, round_number: int) -> int:
        """Texts of each label that a round (from 0) chooses."""
        return _at(self.population, round_number)

    def blank_probability_at(self, round_number: int) -> float:
        """For the variations that a round (from 0) votes on."""
        return _at(self.blank_probability, round_number)


def _at(schedule: tuple[T, ...], round_number: int) -> T:
    return schedule[min(round_number, len(schedule) - 1)]
