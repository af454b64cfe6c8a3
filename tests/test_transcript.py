"""Transcripts of texts that have parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.errors import ConfigError
from understudy.transcript import PLAIN, TextForm, text_columns

DIALOGUE = TextForm(roles=("customer", "agent", "Frau Öz"))
TICKET = TextForm(fields=("subject", "message", "answer"))
PIECES = st.sampled_from(
    [
        *("customer", "agent", "Frau Öz", "subject", "Message", "answer", "AGENT"),
        *(
            ":",
            ": ",
            "\n",
            "\r",
            "\r\n",
            "\\",
            " ",
            "\t",
            "**",
            "__",
            "# ",
            "> ",
            "x",
            "\u2028",
            "\x0b",
            "\x85",
            "{",
            '"',
        ),
    ]
)
CONTENTS = st.one_of(st.lists(PIECES, max_size=12).map("".join), st.text(max_size=30))


@given(st.lists(st.tuples(st.sampled_from(DIALOGUE.roles), CONTENTS), min_size=1, max_size=6))
def test_a_dialogue_is_read_from_its_transcript_whatever_its_turns_say(parts: list[tuple[str, str]]) -> None:
    assert DIALOGUE.parse(DIALOGUE.render(parts)) == tuple(parts)


@given(st.lists(CONTENTS, min_size=3, max_size=3))
def test_fields_are_read_from_their_transcript_whatever_they_say(contents: list[str]) -> None:
    parts = tuple(zip(TICKET.fields, contents, strict=True))
    assert TICKET.parse(TICKET.render(parts)) == parts
    assert TICKET.contents(TICKET.render(parts)) == "\n".join(contents)


@given(st.lists(st.tuples(st.sampled_from(DIALOGUE.roles), CONTENTS), min_size=1, max_size=6), CONTENTS)
def test_what_a_model_wrote_is_read_once_and_for_all(parts: list[tuple[str, str]], said: str) -> None:
    found = DIALOGUE.read(f"{said}\n{DIALOGUE.render(parts)}")
    if found is not None:
        assert DIALOGUE.read(found) == found
        assert all(content.strip() for _, content in DIALOGUE.parse(found) or ())


def test_names_are_read_in_any_case_and_in_bold() -> None:
    answer = (
        "Sure, here it is:\n\n**Customer:** My phone is broken.\nAGENT : Since *when*?\n\nfrau öz: It never worked.\n"
    )
    assert DIALOGUE.read(answer) == "customer: My phone is broken.\nagent: Since *when*?\nFrau Öz: It never worked."


def test_what_an_asked_model_says_behind_a_blank_line_is_no_part_of_the_text() -> None:
    answer = "subject: A\n\nmessage: B\n\nstill B\n\nanswer: C\nD\n \nNote: I used all words."
    found = TICKET.read(answer)
    assert found == "subject: A\nmessage: B\n\nstill B\nanswer: C\nD"
    assert "Note:" in (TICKET.read(answer, complete=False) or "")


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "no part at all",
        "subject: A\nmessage: B",
        "message: B\nsubject: A\nanswer: C",
        "subject: A\nmessage: B\nanswer:",
        "subject: A\nmessage: B\nanswer: C\nanswer: D",
    ],
)
def test_fields_that_are_missing_or_in_another_order_are_no_transcript(answer: str) -> None:
    assert TICKET.read(answer) is None


def test_an_empty_field_is_missing_in_the_table() -> None:
    assert TICKET.cells("", "subject: A\nmessage: B\nC\nanswer:") == {"subject": "A", "message": "B\nC", "answer": None}


def test_turns_are_objects_in_the_table() -> None:
    assert DIALOGUE.cells("messages", "agent: Hello") == {"messages": [{"role": "agent", "content": "Hello"}]}


def test_a_plain_text_is_its_own_transcript() -> None:
    assert not PLAIN
    assert PLAIN.contents("agent: hello") == "agent: hello"
    assert PLAIN.each("hello", str.upper) == "HELLO"
    assert DIALOGUE.each("agent: hello", str.upper) == "agent: HELLO"


@pytest.mark.parametrize(
    "names", [("a", "A"), ("a:b", "c"), ("", "b"), (" a", "b"), ("*a", "b"), ("\\a", "b"), ("a\nb", "c")]
)
def test_names_that_cannot_be_told_apart_in_a_transcript_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        TextForm(roles=names)
    with pytest.raises(ConfigError):
        TextForm(fields=names)


def test_columns_are_named_with_commas_or_in_a_list() -> None:
    assert text_columns("subject, message") == text_columns(["subject", "message"]) == ("subject", "message")
    assert text_columns(None) == ()
