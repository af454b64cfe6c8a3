"""A refused text costs that text; an endpoint that refuses everything ends the run; no answer is paid for twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from endpoint_fixtures import chat, clean_environment_fixture, echo, endpoint_fixture, questions  # noqa: F401
from server import FakeEndpoint, Reply, answer, error
from test_cached import MemoryStore

from understudy.base.errors import ModelError
from understudy.models.collect import CachedChat, collect
from understudy.models.endpoint import PLAIN

PLAIN_PROMPT = PLAIN.messages[-1].content
REDIRECT = Reply(status=302, headers={"Location": "/elsewhere"})
REFUSALS = [error(400), error(401), error(403), error(404), error(405), REDIRECT]


def refused(seen: Any) -> bool:
    """Whether a filter minds the prompt: 7 of 20."""
    return seen.prompt in {f"question {number}" for number in (0, 1, 2, 3, 7, 11, 19)}


def asked(endpoint: FakeEndpoint) -> list[str]:
    return [seen.prompt for seen in endpoint.seen if seen.prompt != PLAIN_PROMPT]


@pytest.mark.parametrize("at_once", [1, 64])
@pytest.mark.parametrize("refusal", REFUSALS)
def test_refused_prompts_cost_their_texts_alone_in_this_run_and_the_next(
    endpoint: FakeEndpoint, refusal: Reply, at_once: int
) -> None:
    endpoint.plan = lambda number, seen: refusal if refused(seen) else echo(number, seen)
    store = MemoryStore()
    for _ in range(2):  # the second one asks for nothing but what is refused
        model = CachedChat(chat(endpoint, max_concurrency=at_once), store)
        completions = collect(model, questions(20))
        assert sum(completion.finish_reason == "failed" for completion in completions) == 7
        assert sum(completion.text.startswith("echo of") for completion in completions) == 13
    assert len(asked(endpoint)) == 20 + 7, "no answer was paid for twice"


@pytest.mark.parametrize("refusal", REFUSALS[1:])
def test_a_key_that_is_withdrawn_ends_the_run_after_several_refusals(endpoint: FakeEndpoint, refusal: Reply) -> None:
    endpoint.plan = lambda number, seen: refusal if number >= 5 else echo(number, seen)
    with pytest.raises(ModelError, match=r"key|model|redirects"):
        collect(chat(endpoint, max_concurrency=1), questions(100))
    assert len(asked(endpoint)) == 5 + 3
    assert len(endpoint.seen) == 5 + 3 + 1


def test_a_filter_that_minds_most_prompts_is_seldom_asked_about(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: echo(number, seen) if seen.prompt == PLAIN_PROMPT else error(403)
    completions = collect(chat(endpoint, max_concurrency=8), questions(200))
    assert {completion.error for completion in completions} == {"the endpoint refused the request (HTTP 403)"}
    assert len(endpoint.seen) - 200 <= 8


STOPS = {
    "a refused key": error(401),
    "no credit": error(402),
    "nobody there": answer(drop="before"),
    "an error": error(500),
    "no chat completions": Reply(b"<html>"),
}


@pytest.mark.parametrize("name", STOPS)
def test_whatever_ends_a_run_the_answers_in_flight_are_stored_first(endpoint: FakeEndpoint, name: str) -> None:
    slow = [f"question {number}" for number in range(4)]
    endpoint.plan = lambda number, seen: answer("A text.", delay=0.4) if seen.prompt in slow else STOPS[name]
    store = MemoryStore()
    with pytest.raises(ModelError):
        collect(CachedChat(chat(endpoint, max_concurrency=8, max_retries=0), store), questions(500))
    assert len(store.items) == 4
    assert len(endpoint.seen) <= 60, "nothing more was sent"
    endpoint.plan = echo
    collect(CachedChat(chat(endpoint), store), questions(30))
    assert [asked(endpoint).count(prompt) for prompt in slow] == [1] * 4


def test_an_interrupt_waits_for_the_answers_in_flight_and_sends_nothing_more(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer(delay=0.3)
    store, said = MemoryStore(), list[str]()
    model = CachedChat(chat(endpoint, max_concurrency=4, say=said.append), store)

    async def consume() -> None:
        async for _ in model.complete(questions(50)):
            pass

    async def interrupted() -> None:
        task = asyncio.create_task(consume())
        while len(endpoint.seen) < 4:
            await asyncio.sleep(0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(interrupted())
    assert (len(store.items), len(endpoint.seen)) == (4, 4)
    assert said == ["Waiting for 4 answers in flight; interrupt again to lose them."]


def test_a_resumed_run_may_ask_the_model_at_another_address(endpoint: FakeEndpoint) -> None:
    store = MemoryStore()
    collect(CachedChat(chat(endpoint), store), questions(5))
    with FakeEndpoint(echo) as elsewhere:
        completions = collect(CachedChat(chat(elsewhere), store), questions(6))
        assert (asked(elsewhere), len(completions)) == (["question 5"], 6)
        collect(CachedChat(chat(elsewhere, provider="vllm"), store), questions(1))
        assert len(elsewhere.seen) == 2, "another model's answers are its own"


def test_answers_that_were_stored_with_their_address_are_found(endpoint: FakeEndpoint) -> None:
    store, model = MemoryStore(), chat(endpoint)
    collect(CachedChat(model, store), questions(2))
    kept = dict(zip([ask.key(model.model_id, address=True) for ask in questions(2)], store.items.values(), strict=True))
    assert not kept.keys() & store.items.keys()
    store.items = kept
    assert all(completion.text for completion in collect(CachedChat(model, store), questions(2)))
    assert len(endpoint.seen) == 2


@pytest.mark.parametrize("kind", ["text/html", "text/plain; charset=hex", "application/octet-stream", ""])
def test_json_under_another_content_type_is_an_answer(endpoint: FakeEndpoint, kind: str) -> None:
    endpoint.plan = lambda number, seen: Reply(echo(number, seen).body, headers={"Content-Type": kind})
    assert [completion.text for completion in collect(chat(endpoint), questions(1))] == ["echo of question 0"]
    assert len(endpoint.seen) == 1
