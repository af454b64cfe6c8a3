"""What counts as a phrase that no list has."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.text.vocabulary.phrases import LONGEST_WORD, PhraseFinder, Unlisted, in_pieces
from understudy.text.vocabulary.terms import load_stop_words

UNLISTED = Unlisted(["card", "heart failure", "exchange", "rate"], stop_words=load_stop_words(None))


def found(text: str, unlisted: Unlisted = UNLISTED) -> set[str]:
    finder = PhraseFinder(unlisted)
    return set(finder.names(finder.find([text]).code).to_pylist())


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("the exchange rate", {"exchange rate"}),
        ("Verify my identity", {"verify", "identity", "verify my identity"}),
        ("CARD", set()),
        ("card, rate. exchange", set()),
        ("rate (card) exchange; card\nrate", set()),
        ("heart failure", {"heart", "failure"}),
        ("in 2024 or 7", {"2024", "2024 or 7"}),
        ("costs 2.5 card", {"costs", "costs 2", "costs 2 5", "2 5", "2 5 card", "5 card"}),
        ("covid-19", {"covid", "19", "covid 19"}),
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
    finder = PhraseFinder(UNLISTED)
    hits = finder.find(["virtual", "", "my virtual card, virtual"])
    names = finder.names(hits.code).to_pylist()
    assert sorted(zip(hits.place.tolist(), names, strict=True)) == [
        *[(0, "virtual")],
        *[(2, "virtual"), (2, "virtual"), (2, "virtual card")],
    ]
    again = PhraseFinder(UNLISTED).find(["other words first", "virtual card"])
    assert set(again.hash.tolist()) >= {int(hits.hash[names.index(name)]) for name in ("virtual", "virtual card")}


def test_codes_have_the_order_of_their_names() -> None:
    finder = PhraseFinder(UNLISTED)
    hits = finder.find(["zebra apple, apple10 zebra, apple zebra1 0, apple1 é ß", "apple zebra, numéro 10, 10 apples"])
    codes = np.unique(hits.code)
    names = finder.names(codes[finder.in_order(codes)]).to_pylist()
    assert names == sorted(set(names))
    assert finder.codes(names).tolist() == codes[finder.in_order(codes)].tolist()


def test_texts_are_taken_a_few_at_a_time() -> None:
    texts = ["x" * 400_000] * 5 + ["y"] * 9000
    pieces = list(in_pieces(texts))
    assert [text for piece in pieces for text in texts[piece]] == texts
    assert max(sum(map(len, texts[piece])) for piece in pieces) <= 1 << 20
    assert list(in_pieces([])) == []
