"""Answers of a chat model: asked for many times, the best of several chosen, and what of one is taken as a text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from understudy.base.errors import ModelError
from understudy.models.collect import collect
from understudy.models.types import ChatModel, ChatRequest, Completion, Message
from understudy.text.vocabulary.words import kept_phrases, split_words


class NoText(ModelError):
    """A language model answered many questions and wrote no text to any of them."""


class Asker:
    """Asks the chat model, each time for another sample, and tells how many texts are in."""

    def __init__(self, chat: ChatModel, progress: Callable[[int, int], None], *, expected: int) -> None:
        self.chat = chat
        self._progress = progress
        self._expected = expected
        self._done = 0
        self._times: Counter[tuple[Message, ...]] = Counter()
        self._problems: Counter[str] = Counter()

    def ask(self, requests: Sequence[ChatRequest], *, again: bool = False) -> list[Completion]:
        """The answers to ``requests``; ``again`` marks those that were not expected."""
        numbered = [replace(request, sample=request.sample + self._count(request)) for request in requests]
        self._expected += len(requests) if again else 0
        before = self._done
        if not before:
            self._progress(0, self._expected)
        answers = collect(self.chat, numbered, progress=lambda done: self._progress(before + done, self._expected))
        self._done += sum(not answer.blank for answer in answers)
        self._problems.update(answer.error for answer in answers if answer.blank and answer.error)
        return answers

    def require_text(self) -> None:
        """See that one answer at least had a text, where asking again later may give one.

        Raises:
            NoText: none had; names the most frequent reason.
        """
        if self._problems and not self._done:
            problem = self._problems.most_common(1)[0][0]
            raise NoText(f"The language model wrote no text at all: {problem}.", "Repeat the same command later.")

    def _count(self, request: ChatRequest) -> int:
        self._times[request.messages] += 1
        return self._times[request.messages] - 1


_REPETITIVE = 0.6
"""Below this share of distinct words an answer goes round in circles."""
_COPIED = 5
"""Words in a row that tell a copy from the prompt's examples."""


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
    return not answer.blank, score, answer.finish_reason == "stop"


def _recited(words: Sequence[str], phrases: Sequence[str]) -> int:
    """How many phrases stand directly behind the phrase that they follow in the prompt."""
    text = f" {' '.join(words)} "
    return sum(f" {' '.join(split_words(f'{first} {second}'))} " in text for first, second in pairwise(phrases))


def _runs(words: Sequence[str]) -> set[tuple[str, ...]]:
    """All runs of ``_COPIED`` words."""
    return {tuple(words[start : start + _COPIED]) for start in range(len(words) - _COPIED + 1)}


_INSIDE = r"[^.!?…。！？]*+"
_MARKS = r"[.!?…]++[\"'”’)\]]*+"
_SENTENCE = re.compile(rf".{_INSIDE}(?:{_MARKS}(?!\s|\Z){_INSIDE})*+(?:{_MARKS}|[。！？]|\Z)\s*+", re.DOTALL)
"""Ends with marks before white space, with a full-width mark, or with the text. Nothing is read twice: an answer may be
as long as an endpoint likes, and all dots."""
_ENDS = (".", "!", "?", "…", "。", "！", "？", '"', "'", "”", "’", ")", "]")


def tidy(answer: Completion) -> str:
    """The text of an answer, up to where it begins to go round in circles or breaks off.

    Small models repeat whole sentences without end: the text ends before the first repeated one (of three words
    or more). An answer that was cut at its longest ends with its last whole sentence, if there is one. Halves of
    surrogate pairs, which UTF-8 cannot hold, become U+FFFD. Empty if nothing is left.
    """
    if answer.blank:
        return ""
    text = answer.text.strip().encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    kept, seen = [], set[tuple[str, ...]]()
    for sentence in _SENTENCE.findall(text):
        words = tuple(split_words(sentence))
        if len(words) >= 3 and words in seen:
            break
        seen.add(words)
        kept.append(sentence)
    if answer.finish_reason == "length" and len(kept) > 1 and not kept[-1].rstrip().endswith(_ENDS):
        kept.pop()
    return "".join(kept).strip()
