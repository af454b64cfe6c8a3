"""Which strings are in a text: boundaries, overlap, spellings."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.corpus.secrets import SecretFinder, make_detectors
from understudy.corpus.spelling import fold, pieces, tidy

WORDS = st.text("ab \n.-", max_size=12)


def find(text: str, *strings: str, detectors: tuple[str, ...] = ()) -> list[str]:
    return sorted(SecretFinder(strings, detectors=make_detectors(detectors)).find(text))


@pytest.mark.parametrize("text", ["Ann", "Ann's", "to Ann.", "(ann)", "x_ann", "ANN-Marie", "Hello,Ann", "ann\u2019s"])
def test_a_string_is_found_where_no_letter_or_digit_touches_it(text: str) -> None:
    assert find(text, "Ann") == ["ann"]


@pytest.mark.parametrize("text", ["Annual", "Joann", "Ann2", "2ann", "an n", "Annä", "Ann\u0302e", ""])
def test_a_string_is_not_found_inside_a_word(text: str) -> None:
    assert find(text, "Ann") == []


def test_secrets_that_overlap_are_all_found() -> None:
    assert find("Ann Smith Jones", "Ann", "Ann Smith", "Smith Jones", "Jones", "Ann Jones") == [
        "ann",
        "ann smith",
        "jones",
        "smith jones",
    ]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("ann\n\t SMITH", "Ann Smith"),
        ("Ann\u00a0Smith", "Ann  Smith"),
        ("\uff21\uff4e\uff4e", "Ann"),  # full width
        ("STRASSE", "Straße"),
        ("O\u2019Brien", "O'Brien"),
        ("Anne\u2011Marie", "anne-marie"),
        ("Sea\u0301n", "Se\u00e1n"),
        ("An\u00adn", "Ann"),  # a soft hyphen
        ("Bob\u200bAnn", "Ann"),  # a space of no width
        ("no. \u0661\u0662\u0663", "123"),  # Arabic digits
        ("see C++ code", "c++"),
        ("tel+44 12", "+44"),
        ("(ref: #7/b)", "#7/B"),
    ],
)
def test_spellings_of_a_secret_count_as_equal(text: str, secret: str) -> None:
    assert find(text, secret) == [fold(secret)]


@pytest.mark.parametrize(("text", "secret"), [("田中さんは", "田中"), ("김철수는", "김철수"), ("นายสมชายมา", "สมชาย")])
def test_scripts_without_spaces_have_no_words_to_be_inside_of(text: str, secret: str) -> None:
    assert find(text, secret) == [secret]


def test_a_vowel_sign_belongs_to_its_word() -> None:
    assert find("राम", "रा") == []
    assert find("राम गया", "राम") == ["राम"]


def test_a_string_without_letter_or_digit_is_no_secret() -> None:
    finder = SecretFinder(["-", " ", "\u200d", "?!"], listed=["--"])
    assert (finder.numbered, finder.find("- ?! --"), finder.key("-")) == ((), set(), "")


def test_a_listed_number_and_one_that_a_detector_finds_are_one_secret() -> None:
    assert find("card 4111-1111-1111-1111", "4111 1111 1111 1111", detectors=("credit_card",)) == ["4111111111111111"]
    assert find("card 4111 1111 1111 1111", "4111 1111 1111 1111", detectors=("credit_card",)) == ["4111111111111111"]
    assert find("0044 20 7946 0123", "+44 (0)20 7946 0123", detectors=("phone",)) == ["+442079460123"]


def test_numbers_follow_the_order_of_the_strings() -> None:
    assert SecretFinder(["b", "A", " ", "B", "c"], listed=["0"]).numbered == ("b", "a", "c")


def test_a_finder_shows_nothing() -> None:
    finder = SecretFinder(["Planted"], listed=["Other"])
    assert f"{finder} {finder!r}" == "SecretFinder() SecretFinder()"


@given(st.text(max_size=40))
def test_folding_twice_changes_nothing_and_pieces_make_the_text_again(text: str) -> None:
    folded = fold(text)
    assert fold(folded) == folded
    assert tidy(tidy(text)) == tidy(text)
    assert "".join(pieces(folded)) == folded


@given(st.lists(WORDS, max_size=6), WORDS)
def test_the_finder_agrees_with_a_search_at_every_place(strings: list[str], text: str) -> None:
    def stands_at(secret: str, start: int) -> bool:
        inside = [folded[max(place - 1, 0) : place + 1] for place in (start, start + len(secret))]
        return folded.startswith(secret, start) and not any(len(two) == 2 and two.isalpha() for two in inside)

    folded = fold(text)
    secrets = {fold(string) for string in strings if re.search("[ab]", string)}
    assert SecretFinder(strings).find(text) == {
        secret for secret in secrets if any(stands_at(secret, start) for start in range(len(folded)))
    }


@given(st.text(min_size=1, max_size=15), st.sampled_from(["", " ", "\n", "(", "'", "\u2003"]))
def test_a_secret_between_things_that_are_no_words_is_always_found(secret: str, around: str) -> None:
    finder = SecretFinder([secret])
    assert finder.find(around + secret + around) >= set(finder.numbered)


def test_a_hundred_thousand_strings_with_long_runs_are_searched_without_a_search_for_each() -> None:
    strings = [f"word{i} tail{i % 7}" for i in range(100_000)]
    finder = SecretFinder(strings)
    text = " ".join(f"word{i} tail{i % 7} other" for i in range(0, 100_000, 100))
    assert len(finder.find(text * 3)) == 1000
