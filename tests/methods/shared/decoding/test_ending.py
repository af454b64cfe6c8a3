"""Where a text that is decoded token by token ends, and what must follow a value of a record."""

from __future__ import annotations

import json

import pytest
from byte_model import END, ByteModel

from understudy.methods.shared.decoding.ending import Ended, Ending, OpenText
from understudy.text.prompts.template import load_template

COLUMNS = ("title", "year", "cast")


def text_ending(*stop: str, most: int = 100) -> Ending:
    return Ending(stop=stop, opening="", most_tokens=most)


def record_ending(columns: tuple[str, ...] = COLUMNS, *, shape: str = "json", most: int = 200) -> Ending:
    prompt = load_template("film").prediction_prompt(chat=False, shape=shape, columns=columns, examples=())
    return Ending.of(prompt, most_tokens=most)


def drawn(ending: Ending, text: str | bytes, *, end: bool = False) -> OpenText:
    tokens = list(text.encode() if isinstance(text, str) else text)
    return ending.read([*tokens, *([END] if end else [])], ByteModel())


def test_a_token_that_ends_texts_ends_it() -> None:
    text = drawn(text_ending("\n\n"), " One. Two\n", end=True)
    assert (text.text, text.ended) == ("One. Two", "token")


@pytest.mark.parametrize(
    ("stop", "text", "kept"),
    [
        (("\n\n",), "One.\nTwo.\n\nThree.", "One.\nTwo."),
        (("###", "\n\n"), "One.##\n\n###", "One.##"),
        (("Ende é", "é!"), "One é! Ende é", "One"),
        (("x",), "\nOne.x", "One."),
        (("\n\n",), "\n\n\nOne.\n\nTwo.", "One."),
    ],
)
def test_the_first_stop_string_after_the_beginning_is_cut(stop: tuple[str, ...], text: str, kept: str) -> None:
    found = drawn(text_ending(*stop), text)
    assert (found.text, found.ended) == (kept, "stop")


def test_a_stop_string_counts_also_where_one_token_holds_more_than_it() -> None:
    class Pieces(ByteModel):
        def decode(self, tokens: list[int]) -> str:  # type: ignore[override]
            return "".join([" One", ".\n\nTw", "o"][token] for token in tokens)

    assert text_ending("\n\n").read([0, 1, 2], Pieces()).text == "One."


def test_the_most_tokens_end_it_and_an_ending_token_is_not_one_of_them() -> None:
    assert drawn(text_ending(most=3), "abcd").ended == "length"
    assert drawn(text_ending(most=3), "abcd").text == "abc"
    assert drawn(text_ending(most=4), "abc", end=True).ended == "token"
    assert drawn(text_ending(most=4), "abc").ended is None


def test_no_token_is_taken_after_the_end() -> None:
    text = text_ending("x").read(b"ax\xffbcd", ByteModel())
    assert text.text == "a"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("é", "é"),
        ("a漢字😀b", "a漢字😀b"),
        (b"a\xc3", "a"),
        (b"a\xf0\x9f\x98", "a"),
        (b"a\xc3b", "a\ufffdb"),
        (b"a\x80\x80\x80\x80\x80\x80b", "a" + "\ufffd" * 6 + "b"),
        ("a\ufffdb\ufffd c", "a\ufffdb\ufffd c"),
    ],
)
@pytest.mark.parametrize("end", [True, False])
def test_characters_of_several_tokens_come_whole_or_are_dropped(data: str | bytes, text: str, end: bool) -> None:
    size = len(data.encode() if isinstance(data, str) else data)
    found = drawn(text_ending(most=size + end), data, end=end)
    assert (found.text, found.ended) == (text, "token" if end else "length")


def test_a_text_is_the_same_token_by_token_as_at_once() -> None:
    data = 'Zoë said: "12 € – 漢字".\r\nA\ttab 😀😀, e\u0301.'.encode()
    assert drawn(text_ending(most=1000), data, end=True).text == data.decode()


def test_each_token_is_decoded_a_few_times_however_long_the_text() -> None:
    model = ByteModel()
    text_ending("\n\n", "###", most=5000).read(("é1" * 2000).encode(), model)
    assert model.decoded < 12 * 6000


@pytest.mark.parametrize(
    ("written", "record"),
    [
        (' "Rain"} and more', {"title": "Rain"}),
        (' "}{[\\"\\\\"} ]', {"title": '}{["\\'}),
        (' [{"a": "]"}, {}], "year": {"b": []}}}', {"title": [{"a": "]"}, {}], "year": {"b": []}}),
        (' "é😀"}', {"title": "é😀"}),
        (" 1}", {"title": 1}),
    ],
)
def test_a_json_record_ends_where_its_object_closes(written: str, record: object) -> None:
    found = drawn(record_ending(), written)
    assert (json.loads(found.text), found.ended) == (record, "closed")


def test_a_json_record_may_end_otherwise() -> None:
    endings: list[tuple[str, bool, Ended | None]] = [
        (' "a', True, "token"),
        (' "a\n\nb', False, "stop"),
        (' "a', False, None),
    ]
    for written, end, ended in endings:
        assert drawn(record_ending(), written, end=end).ended == ended


@pytest.mark.parametrize(
    ("written", "following"),
    [
        (' "Ra', ""),
        (' "Ra\\"', ""),
        (' "Rain"', ', "year":'),
        (' "Rain", "', 'year":'),
        (' "Rain","', 'year":'),
        (' "Rain";', ""),
        (' "Rain", "year":', ""),
        (' "Rain", "year": 19,', ' "cast":'),
        (' [",", {"a": 1}]', ', "year":'),
        (' "Rain", "year": 19, "cast": [1]', "}"),
        (' "Rain", "year": 19, "cast": [1], "more": 2', ""),
    ],
)
def test_after_a_value_the_next_key_must_follow_unless_something_else_does(written: str, following: str) -> None:
    assert drawn(record_ending(), written).next == following


def test_with_what_must_follow_written_only_the_values_are_drawn() -> None:
    values = [' "Rain"', " 1954,", ' ["A", "B"]']
    model = ByteModel()
    text = record_ending().open(model)
    for value in values:
        for token in model.encode(value):
            text.take(token)
            assert bool(text.next) <= (token == model.encode(value)[-1])
        for token in model.encode(text.next):
            text.take(token)
    assert text.ended == "closed"
    assert text.next == ""
    assert json.loads(text.text) == {"title": "Rain", "year": 1954, "cast": ["A", "B"]}


def test_a_texts_next_is_never_known() -> None:
    assert drawn(text_ending(), '{"title": "Rain"').next == ""
