"""Invisible characters make no difference, in a text or in a secret, whether they are read as nothing or as blanks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.corpus import read_corpus
from understudy.corpus.secrets import SecretFinder, make_detectors, records_per_secret, secret_finder
from understudy.corpus.spelling import fold, pieces, readings, tidy

INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\u200b\u200c\u200d\u200e\u200f\u202a\u202e"
    "\u2060\u2061\u2064\u2065\u2066\u206f\u3164\ufe00\ufe0e\ufe0f\ufeff\uffa0\ufff0\ufff8\U0001bca0\U0001d173\U000e0001"
    "\U000e0041\U000e0100\U000e01ef\U000e0fff\u2800\ufffc\x00\x01\x07\x08\x0e\x1b\x1f\x7f\x80\x9f"
)
ids = [f"U+{ord(each):04X}" for each in INVISIBLE]


def find(text: str, *strings: str, detectors: tuple[str, ...] = ()) -> set[str]:
    return SecretFinder(strings, detectors=make_detectors(detectors)).find(text)


@pytest.mark.parametrize("invisible", INVISIBLE, ids=ids)
def test_an_invisible_character_hides_no_secret(invisible: str) -> None:
    for text in (f"Mr. Smi{invisible}th.", f"S{invisible * 3}mith", f"x{invisible}Smith", f"Smith{invisible}Jones"):
        assert find(text, "Smith") == {"smith"}
    for text in (f"Ann{invisible}Smith", f"Ann {invisible}Smith", f"A{invisible}nn Smi{invisible}th"):
        assert find(text, "Ann Smith") == {"ann smith"}
    assert find(f"Bob{invisible}An{invisible}n{invisible}Sm{invisible}ith!", "Ann Smith") == {"ann smith"}  # mixed


@pytest.mark.parametrize("invisible", INVISIBLE, ids=ids)
def test_an_invisible_character_in_a_secret_hides_it_from_no_text(invisible: str) -> None:
    (key,) = SecretFinder([f"Ann{invisible}Smith"]).numbered
    for text in ("Ann Smith", "AnnSmith", f"Ann{invisible}Smith", f"A{invisible}nnSmith", "Ann\u200bSmith"):
        assert find(text, f"Ann{invisible}Smith") == {key}


@pytest.mark.parametrize("invisible", INVISIBLE, ids=ids)
def test_an_invisible_character_hides_nothing_from_detectors(invisible: str) -> None:
    found = find(f"to ann{invisible}@exa{invisible}mple.org", detectors=("email",))
    assert "ann@example.org" in found
    assert "ann@example.org" in find(f"ann@example.org{invisible}Next", detectors=("email",))
    for card in (f"4111{invisible}1111{invisible}1111{invisible}1111", f"41{invisible}11 1111 1111 1111"):
        assert "4111111111111111" in find(card, detectors=("credit_card",))
    assert "4111111111111111" in find(f"4111{invisible}111111111111", f"41111111{invisible}11111111",
                                      detectors=("credit_card",))  # fmt: skip


def test_two_words_with_a_blank_between_them_are_not_one_word() -> None:
    assert find("Ann Smith", "AnnSmith") == set()
    assert find("Ann S\u200bmith", "AnnSmith") == set()
    assert find("AnnSmi\u200bth", "Ann Smith") == set()
    assert find("Annu\u200bal", "Annual", "Ann") == {"annual"}


def test_a_secrets_column_counts_strings_that_look_alike_as_held_together() -> None:
    rows = [
        {"note": "one", "who": ["Smi\u200bth"]},
        {"note": "Mr. Smith", "who": []},
        {"note": "two", "who": ["Smith"]},
    ]
    corpus = read_corpus(rows, text="note", secrets="who")
    counts = records_per_secret(corpus, secret_finder(corpus))
    assert counts == {"smi th": 3, "smith": 3}


@given(st.text(st.sampled_from("ab \u200b\u00ad"), max_size=10), st.text(st.sampled_from("ab "), max_size=6))
def test_every_way_to_read_each_invisible_character_is_searched(text: str, secret: str) -> None:
    finder = SecretFinder([secret])
    expected = set()
    texts = [""]
    for character in text:
        options = ("", " ") if character in "\u200b\u00ad" else (character,)
        texts = [each + option for each in texts for option in options]
    for each in texts:
        expected |= SecretFinder([secret]).find(each)
    found = finder.find(text)
    assert found >= expected
    if fold(secret) in found:  # and nothing that stands in no reading, but for what begins or ends at a joint
        squeezed = "".join(text.replace("\u200b", "").replace("\u00ad", "").split())
        assert "".join(secret.split()) in squeezed


@given(st.text(st.sampled_from([*INVISIBLE, "a", "B", " ", "\u0301", "\uac00", "\u1100"]), max_size=12))
def test_folding_twice_changes_nothing_with_invisible_characters(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert tidy(tidy(text)) == tidy(text)
    assert "".join(pieces(fold(text))) == fold(text)
    assert not any(character in INVISIBLE for character in fold(text))


def test_a_text_without_invisible_characters_is_read_once() -> None:
    assert readings("Ann Smith\n\t") == ("Ann Smith\n\t",)
    assert readings("Zoë") == ("Zoë",)
    assert readings("a\u00adb") == ("a\u00adb", "ab", "a b")
