"""Topics as the labels of another method: the option, and the additional content of such a Release."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from understudy.base.parameters import Parameters
from understudy.privacy.events import GaussianEvent

MOST_TOPICS = 1000
TERMS_OF_TOPIC = 10
COLUMN = "topic"
"""The label's column in the synthetic table."""
BESIDE = "topics-"
"""Prefix of the names of charges and stored values if topics are found for another method."""
VOTES, SIZES = "votes", "sizes"
ROUNDS = 4
CELLS, CELL_ROUNDS = 2, 2
"""Cells per topic, at most, and the first rounds that have them: cells are joined into topics for the other rounds."""
TOPIC_CENTRES, TOPIC_SIZES, TOPIC_TERMS = "topic-centres", "topic-sizes", "topic-terms"
"""Arrays and strings of a Release whose labels are topics, all in the labels' order."""


def sums_name(number: int) -> str:
    """Return the name of a round's charge; the first round is 1."""
    return f"sums-{number}"


CHARGES = (VOTES, *(sums_name(number + 1) for number in range(ROUNDS)), SIZES)
CHARGED_BESIDE = {BESIDE + name: GaussianEvent.kind for name in CHARGES}


def _count(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("expected a number")
    return value


TopicCount = Annotated[int, BeforeValidator(_count), Field(ge=1, le=MOST_TOPICS)] | Literal["auto"]
"""A number of topics K, or ``auto``: decided from public facts."""


class LabellingParameters(Parameters):
    """Topics instead of labels."""

    topics: TopicCount | None = None
    """Find this number of topics, which replace labels; ``auto``: as many as the records support, by public facts.
    They take 20 % of the budget (of mu^2), and the embedder reads the private texts (docs/topics.md)."""
