"""Shared phrases against slow definitions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from understudy.evaluate.metrics.leakage import Phrases, normal_words

Texts = Sequence[Sequence[str]]

TEXTS = st.lists(st.lists(st.sampled_from("abc"), max_size=12), max_size=6)


def slow_ngrams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]


def slow_longest(real: Texts, words: Sequence[str]) -> int:
    lengths = range(1, len(words) + 1)
    return max(
        (n for n in lengths if any(set(slow_ngrams(words, n)) & set(slow_ngrams(text, n)) for text in real)), default=0
    )


def slow_covered(real: Texts, words: Sequence[str], n: int) -> int:
    inside = set()
    for size in range(n, len(words) + 1):
        for at, phrase in enumerate(slow_ngrams(words, size)):
            if any(phrase in slow_ngrams(text, size) for text in real):
                inside |= set(range(at, at + size))
    return len(inside)


@given(real=TEXTS, others=TEXTS)
@example(real=[], others=[["a"]])
@example(real=[["a"]], others=[])
@example(real=[], others=[])
@example(real=[[]], others=[[]])
@example(real=["abcdefghijkl"], others=["abcdefghijkl", "xabcdefghijky"])
@example(real=[["a"] * 12], others=[["a"] * 11, ["a"] * 12])
def test_the_longest_shared_phrase_is_that_of_the_definition(real: Texts, others: Texts) -> None:
    assert Phrases(real, others).longest().tolist() == [slow_longest(real, words) for words in others]


@given(real=TEXTS, others=TEXTS, n=st.integers(1, 5))
def test_covered_words_are_those_of_the_definition(real: Texts, others: Texts, n: int) -> None:
    covered, words = Phrases(real, others).covered(n)
    assert covered.tolist() == [slow_covered(real, text, n) for text in others]
    assert words.tolist() == [len(text) for text in others]


@given(real=TEXTS, others=TEXTS, n=st.integers(1, 7))
@example(real=[["a", "b"], ["a", "b"]], others=[["a", "b", "a"]], n=2)
@example(real=[["a"]], others=[["a", "b", "c", "a", "b", "c", "a"]], n=6)
def test_ngrams_are_counted_as_defined(real: Texts, others: Texts, n: int) -> None:
    in_any, in_one, all_of_them = Phrases(real, others).ngrams(n)
    holders = [
        [sum(ngram in slow_ngrams(text, n) for text in real) for ngram in slow_ngrams(words, n)] for words in others
    ]
    assert in_any.tolist() == [sum(count > 0 for count in counts) for counts in holders]
    assert in_one.tolist() == [sum(count == 1 for count in counts) for counts in holders]
    assert all_of_them.tolist() == [len(counts) for counts in holders]


def test_a_phrase_does_not_cross_the_end_of_a_text() -> None:
    real, others = [["a", "b"], ["c", "d"]], [["a", "b", "c", "d"]]
    assert Phrases(real, others).longest().tolist() == [2]
    assert Phrases(others, real).ngrams(3)[2].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't  PANIC, Zoë!", ["don", "t", "panic", "zoë"]),
        ("snake_case x-ray", ["snake", "case", "x", "ray"]),
        ("我爱北京。", ["我", "爱", "北", "京"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("...  \n", []),
        ("", []),
    ],
)
def test_words_have_no_case_and_no_punctuation_and_need_no_blanks(text: str, words: list[str]) -> None:
    assert normal_words(text) == words
