"""Choosing among several answers: the one that keeps most phrases and still reads as a text. Post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from understudy.models.types import Completion
from understudy.vocabulary.words import split_words

_REPETITIVE = 0.6
"""Below this share of distinct words an answer goes round in circles."""


def kept_phrases(text: str, phrases: Sequence[str]) -> tuple[str, ...]:
    """The phrases whose words stand in a row in ``text``, in the sense of :func:`split_words`."""
    words = f" {' '.join(split_words(text))} "
    return tuple(phrase for phrase in phrases if f" {' '.join(split_words(phrase))} " in words)


def missing_phrases(text: str, phrases: Sequence[str]) -> list[str]:
    """The phrases that ``text`` does not hold."""
    kept = kept_phrases(text, phrases)
    return [phrase for phrase in phrases if phrase not in kept]


def is_blank(answer: Completion) -> bool:
    """Whether an answer holds no text."""
    return not answer.text.strip()


def rank(answer: Completion, phrases: Sequence[str]) -> tuple[bool, float, bool]:
    """Answers with text first, then by phrases kept, less what tells a list from a text, then complete before cut.

    A phrase that only follows its neighbour of the prompt ("rain, harvest, prices") counts for nothing, and a text
    that repeats itself loses half: small models like to answer with the list of words that they were given.
    """
    kept = kept_phrases(answer.text, phrases)
    score = max(0, len(kept) - _recited(answer.text, phrases)) / max(len(phrases), 1)
    words = split_words(answer.text)
    if words and len(set(words)) / len(words) < _REPETITIVE:
        score /= 2
    return not is_blank(answer), score, answer.finish_reason == "stop"


def _recited(text: str, phrases: Sequence[str]) -> int:
    """How many phrases stand directly behind the phrase that they follow in the prompt."""
    words = f" {' '.join(split_words(text))} "
    return sum(f" {' '.join(split_words(f'{first} {second}'))} " in words for first, second in pairwise(phrases))
