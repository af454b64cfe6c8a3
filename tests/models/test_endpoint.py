"""Requests out, answers in: what is asked, in which form, and how much at once."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from endpoint_fixtures import ask, chat, clean_environment_fixture, echo, endpoint_fixture, questions  # noqa: F401
from server import FakeEndpoint, Reply, answer, error, models
from test_cached import FakeChat

from understudy.base.errors import ConfigError
from understudy.models.collect import collect
from understudy.models.connection import read_answer
from understudy.models.endpoint import EndpointChat, ProbeReport, probe
from understudy.models.types import Message


def test_every_request_gets_its_own_answer(endpoint: FakeEndpoint) -> None:
    endpoint.plan = echo
    model = chat(endpoint)
    assert collect(model, []) == []
    assert endpoint.seen == []
    completions = collect(model, questions(150))
    assert [completion.text for completion in completions] == [f"echo of question {n}" for n in range(150)]
    assert {completion.finish_reason for completion in completions} == {"stop"}
    assert len(endpoint.seen) == 150


def test_the_request_is_sent_as_given(endpoint: FakeEndpoint) -> None:
    request = ask("Hi", max_tokens=7, temperature=0.3, top_p=0.9, stop=("\n",))
    request = type(request)((Message("system", "Be short."), *request.messages), 7, 0.3, 0.9, ("\n",))
    model = chat(endpoint)
    model.dialect.plain = True
    collect(model, [request])
    (seen,) = endpoint.seen
    assert (seen.method, seen.path) == ("POST", "/v1/chat/completions")
    assert seen.body == {
        "model": "small",
        "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}],
        "max_tokens": 7,
        "temperature": 0.3,
        "top_p": 0.9,
        "stop": ["\n"],
    }


def test_the_tokens_of_each_answer_and_of_all_are_counted(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer(usage=(7, 3))
    model = chat(endpoint, price_per_million_input=1.0, price_per_million_output=10.0)
    completions = [*collect(model, questions(3)), *collect(model, questions(1))]  # one event loop after another
    assert [(done.prompt_tokens, done.completion_tokens) for done in completions] == [(7, 3)] * 4
    assert model.budget.used.tokens == 40
    assert model.budget.cost(model.budget.used) == pytest.approx(28e-6 + 120e-6)


def test_never_more_requests_in_flight_than_allowed(endpoint: FakeEndpoint) -> None:
    most = 0

    def plan(number: int, seen: object) -> object:
        nonlocal most
        most = max(most, endpoint.open_connections)
        return answer(delay=0.01)

    endpoint.plan = plan  # type: ignore[assignment]
    collect(chat(endpoint, max_concurrency=5), questions(40))
    assert most == 5


def test_cancelling_leaves_no_task_and_no_connection(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer(delay=30.0)

    async def cancelled() -> int:
        async def consume() -> None:
            async for _ in chat(endpoint).complete(questions(50)):
                pass

        task = asyncio.create_task(consume())
        while len(endpoint.seen) < 50:
            await asyncio.sleep(0.01)
        for _ in range(2):  # the first one waits for the answers in flight
            task.cancel()
            await asyncio.sleep(0.05)
        with pytest.raises(asyncio.CancelledError):
            await task
        return len(asyncio.all_tasks())

    assert asyncio.run(cancelled()) == 1
    assert _soon(lambda: endpoint.open_connections == 0)


def test_prompts_and_answers_are_not_logged(endpoint: FakeEndpoint, caplog: pytest.LogCaptureFixture) -> None:
    endpoint.plan = lambda number, seen: answer("an answer to keep")
    with caplog.at_level(logging.DEBUG):
        collect(chat(endpoint), [ask("a prompt to keep")])
    assert "to keep" not in caplog.text


def test_the_list_of_models_is_offered_or_not(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: models("small", "large")
    assert asyncio.run(chat(endpoint).list_models()) == ["small", "large"]
    endpoint.plan = lambda number, seen: answer()
    assert asyncio.run(chat(endpoint).list_models()) is None


@pytest.mark.parametrize(
    "options",
    [
        {"max_concurrency": 0},
        {"timeout": 0},
        {"max_retries": -1},
        {"backoff_seconds": -1.0},
        {"spending_cap": 0},
        {"spending_cap": -1.0},
        {"spending_cap": 1.0},
        {"spending_cap": 1.0, "price_per_million_input": 1.0},
        {"base_url": "localhost:8000"},
        {"base_url": "http://user:secret@localhost/v1"},
    ],
)
def test_a_bad_parameter_is_one_clear_error(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as caught:
        EndpointChat("m", **{"base_url": "http://localhost/v1", **options})  # type: ignore[arg-type]
    assert caught.value.cure
    assert "secret" not in str(caught.value)


def _soon(condition: object) -> bool:
    for _ in range(6000):
        if condition():  # type: ignore[operator]
            return True
        threading.Event().wait(0.01)
    return False


def good(number: int, seen: Any) -> Reply:
    if seen.method == "GET":
        return replace(models("small", "large"), headers={"Content-Type": "text/plain"})
    if "from 1 to 20" in seen.prompt:
        return answer("1 2 3 4 5 6 ")
    if seen.body["max_tokens"] == 8:
        return answer("1 2 3 4", finish_reason="length", usage=(9, 8))
    return answer("Hello.")


def test_a_good_endpoint_passes_everything(endpoint: FakeEndpoint) -> None:
    endpoint.plan = good
    model = chat(endpoint)
    report = probe(model)
    assert report.seconds is not None
    found = replace(report, seconds=None)
    passed = {"honours_max_tokens": True, "honours_stop": True, "repeatable": True, "takes_system_message": True}
    assert found == ProbeReport(
        model.model_id, reachable=True, answers=True, listed=True, reports_usage=True, reasons=False, **passed
    )


def test_a_poor_endpoint_is_found_out(endpoint: FakeEndpoint) -> None:
    def poor(number: int, seen: Any) -> Reply:
        if seen.method == "GET":
            return models("another")
        if "temperature" in seen.body:
            return error(400, "Unsupported value: temperature", param="temperature")
        if seen.body["messages"][0]["role"] == "system":
            return error(400, "no system messages")
        return answer(f"<think>Hm.</think>{number} and 7 and many words more than were asked for here", usage=None)

    endpoint.plan = poor
    model = chat(endpoint)
    found = replace(probe(model), seconds=None)
    failed = {"honours_max_tokens": False, "repeatable": False, "takes_system_message": False}
    more: dict[str, Any] = {**failed, "listed": False, "reports_usage": False, "reasons": True}
    assert found == ProbeReport(model.model_id, reachable=True, answers=True, left_out=("temperature",), **more)


@pytest.mark.parametrize(("status", "why"), [(401, "key"), (500, "HTTP 500")])
def test_an_endpoint_that_refuses_is_reachable_and_says_why(endpoint: FakeEndpoint, status: int, why: str) -> None:
    endpoint.plan = lambda number, seen: error(status)
    report = probe(chat(endpoint, max_retries=0))
    assert (report.reachable, report.answers, report.listed) == (True, False, None)
    assert why in (report.problem or "")


def test_nobody_there_is_reported_not_raised() -> None:
    with socket.socket() as deaf:  # kept, so that nobody else listens there meanwhile
        deaf.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}/v1"
        report = probe(EndpointChat("m", base_url=address, backoff_seconds=0.0))
    assert (report.reachable, report.answers) == (False, False)
    assert "does not answer" in (report.problem or "")


def test_any_chat_model_can_be_probed() -> None:
    report = probe(FakeChat())
    assert report.answers
    assert report.repeatable
    assert report.listed is None
    assert report.reasons is None


# -- what endpoints call an answer, and parameters that not all of them take ------------------------------------------


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
def test_endless_reasoning_and_empty_answers_are_empty(endpoint: FakeEndpoint, reply: Reply, tries: int) -> None:
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
    model.dialect.plain = True
    (completion,) = collect(model, [ask(stop=("a1", "a2", "a3", "a4", "three", "six"))])
    assert (completion.text, completion.finish_reason) == ("one two ", "stop")
    assert endpoint.seen[0].body["stop"] == ["a1", "a2", "a3", "a4"]
    assert not model.dialect.ignores_stop


def test_an_endpoint_that_ignores_stop_strings_is_noticed(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer("one\ntwo")
    model = chat(endpoint)
    assert collect(model, [ask(stop=("\n",))])[0].text == "one"
    assert not model.dialect.ignores_stop  # none was sent before the first whole answer
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


def test_closing_early_leaves_no_task_and_no_connection(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer(delay=0.0 if number == 0 else 30.0)

    async def first_only() -> int:
        async with aclosing(chat(endpoint).complete(questions(50))) as stream:  # type: ignore[type-var]
            async for _ in stream:
                break
        return len(asyncio.all_tasks())

    assert asyncio.run(first_only()) == 1
    assert _soon(lambda: endpoint.open_connections == 0)
