"""Choosing among several answers: the one that keeps most phrases and still reads as a text. Post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from understudy.models.types import Completion, Message
from understudy.vocabulary.words import kept_phrases, split_words

_REPETITIVE = 0.6
"""Below this share of distinct words an answer goes round in circles."""
_COPIED = 5
"""Words in a row that tell a copy from the prompt's examples."""


def is_blank(answer: Completion) -> bool:
    """Whether an answer holds no text."""
    return answer.blank


def rank(answer: Completion, phrases: Sequence[str], prompt: Sequence[Message] = ()) -> tuple[bool, float, bool]:
    """Answers with text first, then by phrases kept, less what tells a poor text, then complete before cut.

    Small models recite the words that they were given ("rain, harvest, prices"), go round in circles, or copy from
    the examples of the prompt. A phrase directly behind its neighbour in the prompt counts for nothing; a
    repetitive or copied text loses half.
    """
    kept = kept_phrases(answer.text, phrases)
    words = split_words(answer.text)
    score = max(0, len(kept) - _recited(words, phrases)) / max(len(phrases), 1)
    if words and len(set(words)) / len(words) < _REPETITIVE:
        score /= 2
    if any(_runs(words) & _runs(split_words(turn.content)) for turn in prompt if turn.role == "assistant"):
        score /= 2
    return not is_blank(answer), score, answer.finish_reason == "stop"


def _recited(words: Sequence[str], phrases: Sequence[str]) -> int:
    """How many phrases stand directly behind the phrase that they follow in the prompt."""
    text = f" {' '.join(words)} "
    return sum(f" {' '.join(split_words(f'{first} {second}'))} " in text for first, second in pairwise(phrases))


def _runs(words: Sequence[str]) -> set[tuple[str, ...]]:
    """All runs of ``_COPIED`` words."""
    return {tuple(words[start : start + _COPIED]) for start in range(len(words) - _COPIED + 1)}
