"""One rule for what a word is, in every script."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from understudy.text.vocabulary.words import TermMatcher, _unicode_word, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" \t\n.,;–", []),
        ("X-ray of the patient's knee", ["x", "ray", "of", "the", "patient", "s", "knee"]),
        ("snake_case and 3.5mg", ["snake", "case", "and", "3", "5mg"]),
        ("Größe, Übelkeit und Straße", ["größe", "übelkeit", "und", "straße"]),
        ("मरीज़ को बुखार है।", ["मरीज़", "को", "बुखार", "है"]),
        ("сЕРДЦЕ здоровое", ["сердце", "здоровое"]),
        ("İstanbul", ["i̇stanbul"]),
        ("a\u200bb", ["a", "b"]),
        ("👍 fine", ["fine"]),
        ("οδός", ["οδόσ"]),
        ("\u0301alone", ["alone"]),
    ],
)
def test_words_are_runs_of_letters_digits_and_marks(text: str, words: list[str]) -> None:
    normal = [unicodedata.normalize("NFC", word) for word in words]
    assert split_words(text) == normal


@given(st.text(max_size=40))
@example("e\u0301tude")
@example("मरीज़")
@example("Ǆ J\u030c")
def test_composed_and_decomposed_texts_have_the_same_words(text: str) -> None:
    forms = [split_words(unicodedata.normalize(form, text)) for form in ("NFC", "NFD")]
    assert forms[0] == forms[1]


@given(st.text(max_size=30))
@example("J\u030c")
@example("İİ")
@example("ΟΔΟΣ")
def test_a_word_is_made_of_itself(word: str) -> None:
    """Splitting is idempotent: what a vocabulary holds as a word is found as that word."""
    words = split_words(word)
    assert split_words(" ".join(words)) == words


@pytest.mark.parametrize(("upper", "lower"), [("ΟΔΟΣ", "οδος"), ("ΟΔΟΣ.ΑΛΛΟ", "οδος αλλο"), ("ǰ", "J\u030c")])
def test_case_does_not_matter_whatever_stands_around_a_word(upper: str, lower: str) -> None:
    assert split_words(upper) == split_words(lower)


@given(st.text(alphabet=string.printable, max_size=60))
def test_the_fast_path_for_ascii_agrees_with_the_rule(text: str) -> None:
    assert split_words(text) == _unicode_word().findall(text.lower())


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_line_break_parts_words(first: str, second: str) -> None:
    """So a text's words do not depend on what another text holds, nor on whether that is ASCII."""
    apart = split_words(first) + split_words(second)
    assert sorted(split_words(first + "\n" + second)) == sorted(apart)


def test_no_combining_mark_lies_outside_the_planes_that_are_searched() -> None:
    from understudy.text.vocabulary.words import _WHERE_MARKS_ARE

    marks = {c for c in range(0x110000) if unicodedata.category(chr(c)).startswith("M")}
    assert all(any(mark in codes for codes in _WHERE_MARKS_ARE) for mark in marks)


# -- matching: word-exact, longest first, against a slow reference ----------------------------------------------------


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
        (["x ray"], "X-ray x_ray x  ray xray", [0, 0, 0]),
        (["a b", "b c"], "a b c", [0]),
        (["a b c", "b"], "a b d", [1]),
        (["größe"], "GRO\u0308ßE", [0]),
        (["बुखार"], "उसे बुखार है", [0]),
        (["καρδιάς"], "ΤΗΣ ΚΑΡΔΙΆΣ", [0]),
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
