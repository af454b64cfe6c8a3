"""Transcripts of texts that have parts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.base.errors import ConfigError
from understudy.schema.transcript import PLAIN, TOOL, Part, TextForm, json_line, text_columns

DIALOGUE = TextForm(roles=("customer", "agent", "Frau Öz"))
TICKET = TextForm(fields=("subject", "message", "answer"))
PIECES = st.sampled_from(
    [
        *("customer", "agent", "Frau Öz", "subject", "Message", "answer", "AGENT"),
        *(*':\n\r\\ \tx\u2028\x0b\x85{"', ": ", "\r\n", "**", "__", "# ", "> "),
    ]
)
CONTENTS = st.one_of(st.lists(PIECES, max_size=12).map("".join), st.text(max_size=30))


SAID = st.lists(
    st.tuples(st.sampled_from(DIALOGUE.roles), CONTENTS).map(lambda said: Part(*said)), min_size=1, max_size=6
)


@given(SAID)
def test_a_dialogue_is_read_from_its_transcript_whatever_its_turns_say(parts: list[Part]) -> None:
    assert DIALOGUE.parse(DIALOGUE.render(parts)) == tuple(parts)


@given(st.lists(CONTENTS, min_size=3, max_size=3))
def test_fields_are_read_from_their_transcript_whatever_they_say(contents: list[str]) -> None:
    parts = tuple(map(Part, TICKET.fields, contents))
    assert TICKET.parse(TICKET.render(parts)) == parts
    assert TICKET.contents(TICKET.render(parts)) == "\n".join(contents)


@given(SAID, CONTENTS)
def test_what_a_model_wrote_is_read_once_and_for_all(parts: list[Part], said: str) -> None:
    found = DIALOGUE.read(f"{said}\n{DIALOGUE.render(parts)}")
    if found is not None:
        assert DIALOGUE.read(found) == found
        assert all(part.content.strip() for part in DIALOGUE.parse(found) or ())


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


# -- acts, and calls of tools -----------------------------------------------------------------------------------------

BOOKING = TextForm(
    roles=("user", "assistant", "assistant (junior)"),
    acts=("ask", "confirm order", "Ärger"),
    tools=("search", "book_table", "s.e-arch"),
)
MARKS = [" (ask)", "(other)", " (confirm order):", " calls ", "search", " returns", "returns:", "user", "()"]
SPOKEN = st.one_of(CONTENTS, st.lists(st.one_of(PIECES, st.sampled_from(MARKS)), max_size=12).map("".join))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), SPOKEN),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SPOKEN, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(SPOKEN, JSON, max_size=3).map(lambda value: json.dumps(value, ensure_ascii=False))


@st.composite
def bookings(draw: st.DrawFn) -> list[Part]:
    """Dialogues in which whatever is called is answered, but perhaps at the end."""
    parts: list[Part] = []
    for _ in range(draw(st.integers(1, 4))):
        role = draw(st.sampled_from(BOOKING.roles))
        parts.append(Part(role, draw(SPOKEN), draw(st.sampled_from(("", *BOOKING.acts)))))
        called = draw(st.lists(st.sampled_from(BOOKING.tools), max_size=3))
        parts += [Part(role, draw(ARGUMENTS), tool=tool) for tool in called]
        parts += [Part(TOOL, draw(SPOKEN), tool=tool) for tool in called]
    while parts[-1].answers and draw(st.booleans()):
        parts = [part for place, part in enumerate(parts) if not all(each.answers for each in parts[place:])]
    return parts


@given(bookings())
def test_acts_and_calls_are_read_from_a_transcript_whatever_is_said(parts: list[Part]) -> None:
    text = BOOKING.render(parts)
    assert BOOKING.parse(text) == tuple(parts)
    assert BOOKING.tell(text)["turns"] == len(BOOKING.messages(text))
    for turns in range(1, 6):
        assert BOOKING.parse(BOOKING.shortened(text, turns)), "what is left is a dialogue"


@given(bookings(), SPOKEN)
def test_what_a_model_wrote_with_calls_is_read_once_and_for_all(parts: list[Part], said: str) -> None:
    found = BOOKING.read(f"{said}\n{BOOKING.render(parts)}")
    if found is not None:
        assert BOOKING.read(found) == found
        assert BOOKING.parse(found)


def another_spelling(value: Any, draw: Callable[[Any], Any]) -> Any:
    """The same JSON: keys in another order, some that have no value, whole numbers as floats."""
    if isinstance(value, dict):
        pairs = [(key, another_spelling(each, draw)) for key, each in value.items()]
        added = {f"none {number}": None for number in range(draw(st.integers(0, 2)))}
        return dict(draw(st.permutations([*pairs, *((key, each) for key, each in added.items() if key not in value)])))
    if isinstance(value, list):
        return [another_spelling(each, draw) for each in value]
    is_whole = type(value) is int and abs(value) <= 2**53
    return float(value) if is_whole and draw(st.booleans()) else value


@given(ARGUMENTS, st.data())
def test_arguments_have_one_spelling(arguments: str, data: st.DataObject) -> None:
    line = json_line(arguments)
    assert line is not None
    assert json_line(line) == line
    assert json_line(json.dumps(another_spelling(json.loads(arguments), data.draw), indent=1)) == line
    text = f"user: Hello.\nassistant calls search: {line}"
    assert BOOKING.read(text) == text
    changed = json.loads(line) | {"another": "x"}
    assert (json_line(json.dumps(changed)) == line) == (json.loads(line) == changed)


def test_arguments_that_say_something_else_are_spelled_otherwise() -> None:
    values = ("[1, 2]", "[2, 1]", "[1, null, 2]", '"1"', "1", "true", "{}", "1.5", "9007199254740993", "1e+300")
    lines = ["{}", *(f'{{"a": {value}}}' for value in values)]
    assert [json_line(line) for line in lines] == lines
    assert json_line('{"b": {"z": -0.0, "y": [{"x": null}]}, "a": 9007199254740992.0}') == (
        '{"a": 9007199254740992, "b": {"y": [{}], "z": 0}}'
    )


WITH_CALLS = """Sure:

**User (Ask):** A table for two?
__Assistant__ calls SEARCH : {"seats":2,  "city": null}
**search returns:** ["Alma",
"Nido"]
Assistant (confirm order): Alma it is."""


def test_acts_and_tools_are_read_in_any_case_and_in_bold() -> None:
    assert BOOKING.read(WITH_CALLS) == (
        'user (ask): A table for two?\nassistant calls search: {"seats": 2}\n'
        'search returns: ["Alma",\n"Nido"]\nassistant (confirm order): Alma it is.'
    )


CALLED = "user: Hello.\nassistant calls search: "


@pytest.mark.parametrize(
    "answer",
    [
        "user (shout): Hello.",
        "user (ask) (ask): Hello.\nassistant (shout): Yes.",
        "user (): Hello.",
        "user: Hello.\nassistant calls fly: {}",
        "user: Hello.\nsearch returns: x",
        "search returns: x",
        "user: Hello.\nassistant (ask) calls search: {}",
        *(
            CALLED + arguments
            for arguments in (
                *("a table\nsearch returns: x", "[1]", '"x"', '{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}'),
                *('{"a":' * 100 + "1" + "}" * 100, "[" * 100_000),
            )
        ),
        *(
            f"{CALLED}{{}}\n{after}"
            for after in (
                "book_table returns: x",
                "assistant: No answer.",
                "user calls search: {}",
                "assistant calls search: {}\nsearch returns: x",
                "search returns: x\nsearch returns: x",
            )
        ),
    ],
    ids=range(20),
)
def test_what_is_not_declared_called_or_answered_as_it_should_be_is_no_transcript(answer: str) -> None:
    assert BOOKING.read(answer) is None
    assert BOOKING.read(answer, complete=False) is None


def test_a_dialogue_that_breaks_off_ends_with_what_is_whole() -> None:
    asked = "user: Both?\nassistant calls search: {}\nassistant calls book_table: {}"
    assert BOOKING.read(f"{asked}\nsearch returns: x\nbook_table returns: y\nassistant: I f", cut=True) == (
        f"{asked}\nsearch returns: x\nbook_table returns: y"
    )
    assert BOOKING.read(f"{asked}\nsearch returns: x\nbook_table retu", cut=True) == asked
    assert BOOKING.read(f"{asked}\nsearch returns: x\nbook_table returns: y", cut=True) == asked
    assert BOOKING.read('user: Both?\nassistant calls search: {"a', cut=True) == "user: Both?"
    whole = f"{asked}\nsearch returns: x\nbook_table returns: y\nassistant: Done."
    assert [BOOKING.shortened(whole, turns).count("\n") + 1 for turns in range(1, 7)] == [1, 3, 3, 5, 6, 6]


def test_a_turn_that_says_nothing_may_call_and_a_tool_may_answer_nothing() -> None:
    text = 'user calls search: {"city": "A \\"B\\"", "when": [1, true, {"x": "y"}]}\nsearch returns:'
    assert BOOKING.read(text) == text
    call = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": text.split(": ", 1)[1]}}
    call["function"]["arguments"] = text.partition(": ")[2].partition("\n")[0]  # type: ignore[index]
    assert BOOKING.messages(text) == [
        {"role": "user", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "", "tool_call_id": "call_1", "name": "search"},
    ]
    assert BOOKING.contents(text) == 'A "B"\n1\ny\n'
    assert BOOKING.contents(text, everything=True) == 'city\nA "B"\nwhen\n1\ntrue\nx\ny\n'
    assert BOOKING.each(text, str.upper) == text


def test_acts_and_tools_are_counted() -> None:
    found = BOOKING.read(WITH_CALLS)
    assert found is not None
    told = {"turns": 4, "begins": "user", "ends": "confirm order", "turns.ask": 1, "calls.search": 1}
    told["turns.confirm order"] = 1
    assert BOOKING.tell(found) == {**dict.fromkeys(BOOKING.told, 0), **told}
    assert BOOKING.tell("user (ask): Well?\nassistant: Yes.")["ends"] is None


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"acts": ("ask",)}, "without roles"),
        ({"tools": ("search",)}, "without roles"),
        ({"fields": ("a", "b"), "acts": ("ask",)}, "without roles"),
        ({"roles": ("a",), "acts": ("",)}, "no printable name"),
        ({"roles": ("a",), "acts": ("x", "X")}, "same name"),
        ({"roles": ("a",), "acts": ("x:y",)}, "cannot be used in a transcript"),
        ({"roles": ("a",), "acts": ("x (y)",)}, "cannot be used in a transcript"),
        ({"roles": ("a",), "acts": ("x\ny",)}, "no printable name"),
        ({"roles": ("a",), "acts": tuple(map(str, range(65)))}, "more than 64"),
        ({"roles": ("a", "a (x)"), "acts": ("x",)}, "would be ambiguous"),
        ({"roles": ("a",), "tools": ("x y",)}, "not allowed for functions"),
        ({"roles": ("a",), "tools": ("",)}, "not allowed for functions"),
        ({"roles": ("a",), "tools": ("x" * 65,)}, "not allowed for functions"),
        ({"roles": ("a",), "tools": ("x", "X")}, "same name"),
        ({"roles": ("a", "Tool"), "tools": ("x",)}, "roles"),
        ({"roles": ("a", "a calls x"), "tools": ("x",)}, "would be ambiguous"),
        ({"roles": ("a", "X returns"), "tools": ("x",)}, "would be ambiguous"),
    ],
)
def test_acts_and_tools_that_cannot_be_told_apart_are_refused(names: dict[str, tuple[str, ...]], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TextForm(**names)


def test_a_role_that_is_spelled_like_a_call_is_a_role() -> None:
    form = TextForm(roles=("agent", "agent calls in", "agent (late)"), acts=("ask",), tools=("search",))
    parts = (Part("agent calls in", "x"), Part("agent (late)", "y", "ask"), Part("agent", "{}", tool="search"))
    assert form.parse(form.render(parts)) == parts
    assert form.read(form.render(parts)) == form.render(parts)


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
