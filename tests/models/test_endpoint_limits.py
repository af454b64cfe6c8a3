"""How much of an answer is read, how long nobody is waited for, and what is said meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import logging
from typing import Any

import openai
import pytest
from endpoint_fixtures import ask, by_prompt, chat, clean_environment_fixture, echo, endpoint_fixture, questions  # noqa: F401
from server import FakeEndpoint, Reply, answer, error

from understudy.base.errors import ModelError
from understudy.models import endpoint as endpoints
from understudy.models import limits
from understudy.models.collect import collect
from understudy.models.connection import BodyTooLong, open_client
from understudy.models.limits import CHARACTERS_PER_TOKEN, LEAST_BODY_BYTES, LEAST_CHARACTERS, Breaker


def test_an_answer_of_megabytes_is_not_read_and_fails(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer("x" * 2_000_000) if seen.prompt == "question 1" else echo(number, seen)
    completions = collect(chat(endpoint), questions(3))
    assert [completion.finish_reason for completion in completions] == ["stop", "failed", "stop"]
    assert "its answer is longer than 1,048,576 bytes" in (completions[1].error or "")
    assert len(endpoint.seen) == 3, "it would cost as much again"


def test_an_answer_that_is_longer_than_its_tokens_allow_is_cut(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer("word " * 20_000)
    small, large = collect(chat(endpoint), [ask("a", max_tokens=4), ask("b", max_tokens=160)])
    assert (len(small.text), small.finish_reason) == (LEAST_CHARACTERS, "length")
    assert (len(large.text), large.finish_reason) == (160 * CHARACTERS_PER_TOKEN, "length")


def test_the_bounds_grow_with_the_tokens(endpoint: FakeEndpoint) -> None:
    long = "word " * (LEAST_BODY_BYTES // 4)
    endpoint.plan = lambda number, seen: answer(long)
    (completion,) = collect(chat(endpoint), [ask(max_tokens=60_000)])
    assert completion.text == long


def test_a_compressed_answer_is_not_unpacked(endpoint: FakeEndpoint) -> None:
    body = gzip.compress(answer("x" * 50_000_000).body)
    endpoint.plan = lambda number, seen: Reply(body, headers={"Content-Encoding": "gzip"})
    (completion,) = collect(chat(endpoint), questions(1))
    assert "compresses its answers" in (completion.error or "")
    assert {seen.headers["accept-encoding"] for seen in endpoint.seen} == {"identity"}


def test_what_a_content_filter_withheld_is_no_text(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer("The begin", finish_reason="content_filter")
    (completion,) = collect(chat(endpoint), questions(1))
    assert (completion.text, completion.finish_reason) == ("", "filtered")
    assert len(endpoint.seen) == 1


@pytest.mark.parametrize("reply", [answer(drop="before"), error(500), error(502), Reply(b"<html>")])
@pytest.mark.parametrize("concurrency", [1, 8])
def test_an_endpoint_that_never_answered_is_given_up_after_three_tries_of_what_was_sent(
    endpoint: FakeEndpoint, reply: Reply, concurrency: int
) -> None:
    endpoint.plan = lambda number, seen: reply
    done: list[int] = []
    with pytest.raises(ModelError, match="does not answer"):
        collect(chat(endpoint, max_concurrency=concurrency), questions(40), progress=done.append)
    assert len(endpoint.seen) <= 4 * concurrency
    assert not any(done), "none was answered"


def test_an_endpoint_that_has_answered_is_waited_for(endpoint: FakeEndpoint) -> None:
    """Also by the next call of the same client, which begins with failures."""
    model = chat(endpoint, max_concurrency=2)
    collect(model, questions(1))
    endpoint.plan = by_prompt(*[error(500)] * 5)
    assert [completion.text for completion in collect(model, questions(4))] == [
        f"echo of question {n}" for n in range(4)
    ]


def test_an_endpoint_that_says_it_is_starting_is_waited_for_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(limits.time, "monotonic", lambda: now)
    breaker = Breaker(requests_at_once=1, tries=7)
    for _ in range(100):
        breaker.broken("it is not ready", starting=True)
    now += limits.STARTING_SECONDS
    with pytest.raises(ModelError, match="it is not ready"):
        breaker.broken("it is not ready", starting=True)


def test_a_busy_endpoint_is_not_taken_for_a_dead_one(endpoint: FakeEndpoint) -> None:
    endpoint.plan = by_prompt(*[error(429, retry_after="0")] * 6)
    assert all(completion.text for completion in collect(chat(endpoint, max_concurrency=2), questions(4)))


def test_progress_counts_texts_and_not_questions(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: error(400) if seen.prompt == "question 1" else echo(number, seen)
    done: list[int] = []
    collect(chat(endpoint, max_concurrency=1), questions(4), progress=done.append)
    assert done == [1, 1, 2, 3]


def test_an_endpoint_that_is_silent_is_said_to_be(endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "SILENT_SECONDS", 0.05)
    said: list[str] = []
    endpoint.plan = lambda number, seen: answer(delay=0.5)
    collect(chat(endpoint, say=said.append, timeout=9), questions(3))
    assert said[0].startswith(f"No answer from 127.0.0.1:{endpoint.port} for ")
    assert said[0].endswith("requests waiting: 3 (each try for up to 9 s).")
    assert 1 < len(said) < 6, "each time that the silence has doubled"


def test_an_endpoint_that_answers_is_not_said_to_be_silent(
    endpoint: FakeEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "understudy"):
        collect(chat(endpoint), questions(20))
    assert not caplog.records


def test_the_bound_on_a_body_is_that_of_the_client(endpoint: FakeEndpoint) -> None:
    async def fetch(most: int) -> Any:
        async with open_client(endpoint.base_url, None, most_bytes=most) as client:
            return await client.post("/chat/completions", cast_to=object, body={})

    size = len(answer().body)
    assert asyncio.run(fetch(size))["object"] == "chat.completion"
    with pytest.raises((openai.APIConnectionError, BodyTooLong)):
        asyncio.run(fetch(size - 1))
