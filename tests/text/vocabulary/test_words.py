"""One rule for what a word is, in every script."""

from __future__ import annotations

import string
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from understudy.text.vocabulary.words import _unicode_word, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \t\n.,;–", []),
        ("X-ray of the patient's knee", ["x", "ray", "of", "the", "patient", "s", "knee"]),
        ("snake_case and 3.5mg", ["snake", "case", "and", "3", "5mg"]),
        ("Größe, Übelkeit und Straße", ["größe", "übelkeit", "und", "straße"]),
        ("मरीज़ को बुखार है।", ["मरीज़", "को", "बुखार", "है"]),
        ("ผู้ป่วย 10", ["ผู้ป่วย", "10"]),
        ("сЕРДЦЕ здоровое", ["сердце", "здоровое"]),
        ("İstanbul", ["i̇stanbul"]),
        ("naïve", ["naïve"]),
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
