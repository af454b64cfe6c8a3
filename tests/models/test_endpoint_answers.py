"""What endpoints call an answer, and parameters that not all of them take."""

from __future__ import annotations

from typing import Any

import pytest
from endpoint_fixtures import ask, chat, clean_environment_fixture, endpoint_fixture, questions  # noqa: F401
from server import FakeEndpoint, Reply, answer, error

from understudy.models.collect import collect
from understudy.models.connection import read_answer


def test_an_answer_cut_at_max_tokens_says_so(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer("Half a", finish_reason="length")
    (completion,) = collect(chat(endpoint), [ask()])
    assert (completion.text, completion.finish_reason) == ("Half a", "length")


@pytest.mark.parametrize(
    "nothing",
    [
        answer(None, finish_reason="length"),
        answer("", finish_reason="length"),
        answer("", reasoning_content="Well, let me think."),
        answer(None, reasoning="Well, let me think."),
        answer("<think>Well, let me", finish_reason="length"),
    ],
)
def test_a_reasoning_that_ran_out_of_tokens_gets_more_once(endpoint: FakeEndpoint, nothing: Reply) -> None:
    endpoint.plan = lambda number, seen: nothing if number == 0 else answer("At last.", usage=(10, 90))
    (completion,) = collect(chat(endpoint), [ask(max_tokens=50)])
    assert (completion.text, completion.finish_reason) == ("At last.", "stop")
    assert (completion.prompt_tokens, completion.completion_tokens) == (20, 95)
    assert [seen.body["max_tokens"] for seen in endpoint.seen] == [50, 200]


@pytest.mark.parametrize(
    ("reply", "tries"), [(answer(None, finish_reason="length", reasoning_content="Hm."), 2), (answer(" \n"), 1)]
)
def test_a_reasoning_without_end_and_an_answer_meant_to_be_empty_are_empty(
    endpoint: FakeEndpoint, reply: Reply, tries: int
) -> None:
    endpoint.plan = lambda number, seen: reply
    model = chat(endpoint)
    (completion,) = collect(model, [ask(max_tokens=50)])
    assert (completion.text, completion.finish_reason, completion.error) == ("", "empty", None)
    assert len(endpoint.seen) == tries
    assert model.dialect.reasons is (tries == 2)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<think>Hm, a < b.\n\n</think>\n\nYes.", "Yes."),
        ("Hm.</think>Yes.", "Yes."),
        ("Yes, I think.", "Yes, I think."),
        ([{"type": "text", "text": "Y"}, {"type": "text", "text": "es."}], "Yes."),
        ([{"type": "text", "text": None}, {"type": "text", "text": "Yes."}], "Yes."),
    ],
)
def test_thoughts_are_no_part_of_the_text(content: Any, text: str) -> None:
    document = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
    assert read_answer(document, most=1000).text == text


def test_at_most_four_stop_strings_are_sent_and_all_are_honoured(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer("one two six three", finish_reason="length")
    model = chat(endpoint)
    (completion,) = collect(model, [ask(stop=("a1", "a2", "a3", "a4", "three", "six"))])
    assert (completion.text, completion.finish_reason) == ("one two ", "stop")
    assert endpoint.seen[0].body["stop"] == ["a1", "a2", "a3", "a4"]
    assert not model.dialect.ignores_stop


def test_an_endpoint_that_ignores_stop_strings_is_noticed(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer("one\ntwo")
    model = chat(endpoint)
    assert collect(model, [ask(stop=("\n",))])[0].text == "one"
    assert model.dialect.ignores_stop


def _strict(refused: dict[str, str]) -> Any:
    def plan(number: int, seen: Any) -> Reply:
        for name, message in refused.items():
            if name in seen.body:
                return error(400, message, param=name, code="unsupported_parameter")
        return answer()

    return plan


def test_max_completion_tokens_is_used_where_max_tokens_is_refused(endpoint: FakeEndpoint) -> None:
    message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    endpoint.plan = _strict({"max_tokens": message})
    model = chat(endpoint, max_concurrency=4, max_retries=0)
    assert {done.finish_reason for done in collect(model, questions(20))} == {"stop"}
    assert len(endpoint.seen) <= 24
    before = len(endpoint.seen)
    collect(model, questions(5))
    assert len(endpoint.seen) == before + 5
    assert endpoint.seen[-1].body["max_completion_tokens"] == 256


@pytest.mark.parametrize("parameter", ["temperature", "top_p", "stop"])
def test_a_refused_parameter_is_left_out_from_then_on(endpoint: FakeEndpoint, parameter: str) -> None:
    endpoint.plan = _strict({parameter: f"Unsupported value: '{parameter}' does not support 0.5 with this model."})
    model = chat(endpoint, max_concurrency=1)
    (completion,) = collect(model, [ask(stop=("\n",))])
    assert completion.finish_reason == "stop"
    collect(model, [ask(stop=("\n",))])
    assert len(endpoint.seen) == 3
    assert model.dialect.left_out == {parameter}


def test_a_refusal_for_another_reason_changes_nothing(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: error(400, "max_tokens is too large: at a temperature like this, stop.")
    model = chat(endpoint)
    assert collect(model, [ask(stop=("\n",))])[0].finish_reason == "failed"
    assert model.dialect.left_out == set()
    assert model.dialect.limit_name == "max_tokens"
    assert len(endpoint.seen) == 1


@pytest.mark.parametrize("tokens", [-(10**9), 10**400, True, 2.5, "7", None])
def test_tokens_that_no_answer_can_have_used_are_not_counted(tokens: Any) -> None:
    """A negative number would lift the caps of the whole run; a huge one fits into no float."""
    usage = {"prompt_tokens": tokens, "completion_tokens": 3}
    assert read_answer({"choices": [{"message": {"content": "Yes."}}], "usage": usage}, most=1000).usage is None
