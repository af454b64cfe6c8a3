"""Matching: word-exact, longest first, against a slow reference."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from understudy.text.vocabulary.matcher import TermMatcher
from understudy.text.vocabulary.words import split_words


def slow_find(terms: Sequence[str], text: str) -> list[int]:
    """The rule read aloud: at every word try every term, take the longest, go on behind it."""
    words = split_words(text)
    found: list[int] = []
    position = 0
    while position < len(words):
        best, length = None, 0
        for index, term in enumerate(terms):
            parts = split_words(term)
            if parts and words[position : position + len(parts)] == parts and len(parts) > length:
                best, length = index, len(parts)
        if best is not None:
            found.append(best)
        position += max(length, 1)
    return found


WORD = st.sampled_from(["a", "b", "c", "A", "é", "e\u0301", "ß", "x-ray"])
TERMS = st.lists(st.lists(WORD, max_size=4).map(" ".join), max_size=8)
TEXTS = st.lists(st.one_of(WORD, st.sampled_from([",", "zzz", "  "])), max_size=14).map(" ".join)


@given(terms=TERMS, text=TEXTS)
@example(terms=["a b c", "b c a b", "a"], text="a b c a b")
@example(terms=["a b", "a"], text="a a b a")
@example(terms=["a b", "a b c", "a"], text="a b c a b")
@example(terms=["", "  ", "a"], text="a")
def test_matching_agrees_with_the_slow_reference(terms: list[str], text: str) -> None:
    assert TermMatcher(terms).find(text) == slow_find(terms, text)


@given(terms=TERMS, text=TEXTS, limit=st.integers(1, 5))
def test_the_first_distinct_terms_are_those_of_the_reference(terms: list[str], text: str, limit: int) -> None:
    found = TermMatcher(terms).first_distinct(text, limit)
    assert found == list(dict.fromkeys(slow_find(terms, text)))[:limit]
    assert len(set(found)) == len(found) <= limit


@given(terms=TERMS, limit=st.integers(1, 5), text=st.text(max_size=60))
def test_any_text_at_all_gives_at_most_limit_terms(terms: list[str], limit: int, text: str) -> None:
    found = TermMatcher(terms).first_distinct(text, limit)
    assert len(set(found)) == len(found) <= limit


@pytest.mark.parametrize(
    ("terms", "text", "found"),
    [
        (["heart", "heart attack", "attack"], "Heart attack, then another attack of the heart", [1, 2, 0]),
        (["chest pain", "pain"], "chest pains", []),
        (["art"], "heart", []),
        (["x ray"], "X-ray x_ray x  ray xray", [0, 0, 0]),
        (["a b", "b c"], "a b c", [0]),
        (["a b c", "b"], "a b d", [1]),
        (["Herz", "herz"], "HERZ", [0]),
        (["größe"], "GRO\u0308ßE", [0]),
        (["बुखार"], "उसे बुखार है", [0]),
        (["καρδιάς"], "ΤΗΣ ΚΑΡΔΙΆΣ", [0]),
        ([], "anything", []),
        (["a"], "", []),
    ],
)
def test_matches_are_word_exact_and_the_longest_wins(terms: list[str], text: str, found: list[int]) -> None:
    assert TermMatcher(terms).find(text) == found


def test_a_very_long_text_is_matched_to_its_end_and_bounded_by_the_limit() -> None:
    text = "noise " * 200_000 + "signal"
    matcher = TermMatcher(["signal"])
    assert matcher.find(text) == [0]
    assert matcher.first_distinct("signal " * 200_000, 10) == [0]
