"""What counts as a phrase that no list has."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.methods.shared.queries.discovered_terms import LONGEST_TEXT, LONGEST_WORD, PhraseFinder
from understudy.text.vocabulary.terms import load_stop_words

LISTED, STOP_WORDS = frozenset({"card", "exchange", "rate"}), load_stop_words(None)


def finder() -> PhraseFinder:
    return PhraseFinder(LISTED, STOP_WORDS)


def found(text: str) -> set[str]:
    made = finder()
    return set(made.names(made.find([text])[1]).to_pylist())


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("the exchange rate", {"exchange rate"}),
        ("Verify my identity", {"verify", "identity"}),
        ("CARD", set()),
        ("card, rate. exchange", set()),
        ("rate (card) exchange; card\nrate", set()),
        ("heart failure", {"heart", "failure", "heart failure"}),
        ("in 2024 or 7", set()),
        ("costs 2.5 card", {"costs"}),
        ("room b12, file DE-4711 of Meyer2 \u0663\u0664", {"room", "file", "de", "file de"}),
        ("covid-19", {"covid"}),
        ("my card - card", set()),
        ("didn't card", set()),
        ("x card y", set()),
        ("Größe card", {"größe", "größe card"}),
        (f"card {'w' * (LONGEST_WORD + 1)} card", set()),
        ("", set()),
    ],
)
def test_a_phrase_is_of_words_in_a_row_that_no_list_has(text: str, phrases: set[str]) -> None:
    assert found(text) == phrases


def test_phrases_come_as_often_as_they_stand_and_by_their_text() -> None:
    made = finder()
    places, codes, hashes = made.find(["virtual", "", "my virtual card, virtual"])
    names = made.names(codes).to_pylist()
    assert sorted(zip(places.tolist(), names, strict=True)) == [
        *[(0, "virtual")],
        *[(2, "virtual"), (2, "virtual"), (2, "virtual card")],
    ]
    again = finder().find(["other words first", "virtual card"])[2]
    assert set(again.tolist()) >= {int(hashes[names.index(name)]) for name in ("virtual", "virtual card")}


def test_codes_have_the_order_of_their_names() -> None:
    made = finder()
    found = made.find(["zebra apple, apple10 zebra, apple zebra1 0, apple1 é ß", "apple zebra, numéro 10, 10 apples"])[
        1
    ]
    codes = np.unique(found)
    codes = codes[made.in_order(codes)]
    names = made.names(codes).to_pylist()
    assert names == sorted(set(names))
    assert made.codes(names).tolist() == codes.tolist()


def test_of_a_text_without_end_the_beginning_is_read() -> None:
    assert found(f"virtual {' ' * LONGEST_TEXT} disposable") == {"virtual"}


def test_a_finder_does_not_show_what_it_read() -> None:
    made = finder()
    made.find(["virtual"])
    assert "virtual" not in f"{made} {made!r}"
