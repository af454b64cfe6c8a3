"""The gate names what is wrong with a text, and lets what people write pass."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from understudy.base.errors import ModelError
from understudy.models.types import Message
from understudy.text.gate import ENGLISH, OPEN, Earlier, Fault, Gate, Reading, language_of
from understudy.text.records import SyntheticRecord

pytestmark = pytest.mark.usefixtures("gate_reads")
PROMPT = (Message("user", "Write one short message in natural sentences. Use all of these words: refund, invoice."),)
FAILING: list[tuple[str, Fault]] = [
    ("I'm sorry, but I can't help with that request.", "refusal"),
    ("I am sorry, but I am unable to assist with this.", "refusal"),
    ("Sorry, I cannot generate content on this topic.", "refusal"),
    ("I cannot fulfill your request.", "refusal"),
    ("I won't write this text, as it may be harmful.", "refusal"),
    ("As an AI language model, I have no invoice and no refund.", "refusal"),
    ("Es tut mir leid, aber ich kann dir dabei nicht helfen.", "refusal"),
    ("Je suis désolé, mais je ne peux pas écrire ce texte.", "refusal"),
    ("Lo siento, pero no puedo ayudar con eso.", "refusal"),
    ("Okay, the user wants a message with refund and invoice.", "preamble"),
    ("Here is a short message that mentions the refund: I want my refund.", "preamble"),
    ("This message includes all the required words: refund and invoice.", "preamble"),
    ("A refund and an invoice, incorporating the given keywords, are here.", "preamble"),
    ("<think>The invoice and the refund", "preamble"),
    ("Message: Write one short message in natural sentences. Use all of these words: refund, invoice.", "echo"),
    ("Refund, invoice, late fee.", "echo"),
    ("The invoice came. " + "A special treat, " * 40, "repetition"),
    ("My invoice is wrong. Enjoy the day. Enjoy the city. Enjoy the night. Enjoy the street. Enjoy it.", "repetition"),
    ("My invoice has the code " + "5262888" * 8 + ", is that right?", "repetition"),
    ("The invoice was very very very very very very late.", "repetition"),
    ("Refund", "length"),
    ("Our router lost its connection after the update, please send a new one soon.", "phrases"),
    ("Ich habe die Rechnung (invoice) zweimal bezahlt und möchte mein Geld bald zurück haben.", "language"),
    ("La facture (invoice) est fausse, et je voudrais être remboursé avant la fin du mois.", "language"),
    ("I paid the invoice twice and now I want a", "unfinished"),
    ("I paid the invoice twice, because", "unfinished"),
    ("I paid the invoice twice,", "unfinished"),
]
PASSING = (
    "I paid the invoice twice. When will I get my refund?",
    "Sorry, I can't find my invoice in the app",
    "Unfortunately I can't complete the refund form, it asks for a number that I do not have.",
    "Sure, here is my address for the refund. Please hurry.",
    "no refunds so far, three invoices, what should i do",
    "Here's my story with the invoice: I paid, and nobody noticed.",
    "It was very, very late when the invoice came, and it was wrong again.",
    "what is the refund for",
    "Thanks to señor García for the refund of the invoice from São Paulo.",
)


@pytest.mark.parametrize(("text", "fault"), FAILING)
def test_what_is_wrong_with_a_text_is_named(text: str, fault: Fault) -> None:
    assert ENGLISH.fault(text, phrases=("refund", "invoice", "late fee"), prompt=PROMPT) == fault


@pytest.mark.parametrize("text", PASSING)
def test_what_people_write_passes(text: str) -> None:
    assert ENGLISH.fault(text, phrases=("refund", "invoice"), prompt=PROMPT) is None


def test_a_text_that_its_model_did_not_end_is_unfinished() -> None:
    assert OPEN.fault("I paid the invoice twice and nobody saw", finish="length") == "unfinished"
    assert OPEN.fault("I paid the invoice twice and nobody saw", finish="stop") is None


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("de", "Ich habe die Rechnung zweimal bezahlt und möchte mein Geld bald zurück haben."),
        ("fr", "La facture est fausse, et je voudrais être remboursé avant la fin du mois."),
        ("es", "La factura está mal y quiero que me devuelvan el dinero antes de fin de mes."),
        ("tr", "Faturayı iki kez ödedim ve paramı ay sonundan önce geri almak istiyorum."),
        ("en", "I paid the invoice twice and I want my money back before the end of the month."),
    ],
)
def test_a_text_passes_in_its_own_language_and_in_no_other(language: str, text: str) -> None:
    assert language_of(text) == language
    assert Gate(frozenset({language})).fault(text) is None
    assert Gate(frozenset({"fi"})).fault(text) == "language"
    assert OPEN.fault(text) is None


def test_texts_that_differ_by_a_number_or_a_word_are_nearly_the_same() -> None:
    earlier = Earlier()
    first = "The router of customer 17 lost its connection after the last update, and he asks for a new one this week."
    assert earlier.takes(first)
    assert not earlier.takes(first.replace("17", "23"))
    assert not earlier.takes(first.replace("week.", "month."))
    assert earlier.takes("The router is fine, but the customer asks for a new cable and wants it this week.")
    assert earlier.takes("Thank you!")
    assert not earlier.takes("Thank you")


def test_a_line_with_which_most_texts_begin_is_none_of_theirs() -> None:
    texts = [f"Bitteschön:\n{text}" for text in PASSING[:5]]
    records = [SyntheticRecord(text, 0, {}) for text in texts]
    sifted, reading = OPEN.sift(records, lambda text: text)
    assert reading.faults == {"opening": 5}
    assert [record.text for record in sifted] == [""] * 5
    kept, _ = Gate(accept_all=True).sift(records, lambda text: text)
    assert [record.text for record in kept] == texts
    in_parts, _ = OPEN.sift(records, lambda text: text.partition("\n")[2])
    assert [record.text for record in in_parts] == texts, "turns and fields may begin alike"


@pytest.mark.parametrize(("failed", "stops"), [(0, False), (33, False), (34, True), (100, True)])
def test_a_model_is_to_blame_where_more_than_a_third_fail(failed: int, stops: bool) -> None:
    reading = Reading.of([*["phrases"] * failed, *[None] * (100 - failed)])  # type: ignore[list-item]
    Gate(accept_all=True).require(reading)
    said = pytest.raises(ModelError, match=f"{failed} of 100 texts keep none of their phrases: the model seems to")
    with said if stops else nullcontext():
        OPEN.require(reading)
