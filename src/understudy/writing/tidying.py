"""What is left of an answer of a language model when it is taken as a text."""

from __future__ import annotations

import re

from understudy.models.types import Completion
from understudy.vocabulary.words import split_words
from understudy.writing.selection import is_blank

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
    if is_blank(answer):
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
