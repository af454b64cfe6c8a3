"""Requests out, answers in: what is asked, in which form, and how much at once."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import aclosing

import pytest
from endpoint_fixtures import ask, chat, clean_environment_fixture, echo, endpoint_fixture, questions  # noqa: F401
from server import FakeEndpoint, answer, models

from understudy.base.errors import ConfigError
from understudy.models.collect import collect
from understudy.models.endpoint import EndpointChat
from understudy.models.types import ChatModel, Message


def test_every_request_gets_its_own_answer(endpoint: FakeEndpoint) -> None:
    endpoint.plan = echo
    model = chat(endpoint)
    assert isinstance(model, ChatModel)
    completions = collect(model, questions(150))
    assert [completion.text for completion in completions] == [f"echo of question {n}" for n in range(150)]
    assert {completion.finish_reason for completion in completions} == {"stop"}
    assert len(endpoint.seen) == 150


def test_no_requests_are_no_connections(endpoint: FakeEndpoint) -> None:
    assert collect(chat(endpoint), []) == []
    assert endpoint.seen == []


def test_the_request_is_sent_as_given(endpoint: FakeEndpoint) -> None:
    request = ask("Hi", max_tokens=7, temperature=0.3, top_p=0.9, stop=("\n",))
    request = type(request)((Message("system", "Be short."), *request.messages), 7, 0.3, 0.9, ("\n",))
    collect(chat(endpoint), [request])
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
    completions = collect(model, questions(4))
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


def test_answers_arrive_in_the_order_of_completion(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer(delay=0.2 if seen.prompt == "question 0" else 0.0)

    async def order() -> list[int]:
        return [index async for index, _ in chat(endpoint).complete(questions(5))]

    assert asyncio.run(order())[-1] == 0


def test_closing_early_leaves_no_task_and_no_connection(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer(delay=0.0 if number == 0 else 30.0)

    async def first_only() -> int:
        async with aclosing(chat(endpoint).complete(questions(50))) as stream:  # type: ignore[type-var]
            async for _ in stream:
                break
        return len(asyncio.all_tasks())

    assert asyncio.run(first_only()) == 1
    assert _soon(lambda: endpoint.open_connections == 0)


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


def test_one_model_works_in_one_event_loop_after_another(endpoint: FakeEndpoint) -> None:
    model = chat(endpoint)
    for _ in range(3):
        assert len(collect(model, questions(3))) == 3


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
    for _ in range(500):
        if condition():  # type: ignore[operator]
            return True
        threading.Event().wait(0.01)
    return False
