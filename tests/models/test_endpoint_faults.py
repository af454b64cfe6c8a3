"""Every fault that an endpoint can show: answered in the end, or one clear failure."""

from __future__ import annotations

import asyncio
import random
import socket
from dataclasses import replace
from email.utils import formatdate
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from endpoint_fixtures import ask, by_prompt, chat, clean_environment_fixture, echo, endpoint_fixture, questions  # noqa: F401
from server import FakeEndpoint, Reply, answer, error
from test_cached import MemoryStore

from understudy.base.errors import ModelError
from understudy.models import limits
from understudy.models.collect import CachedChat, collect
from understudy.models.endpoint import PLAIN, EndpointChat
from understudy.models.limits import LONGEST_WAIT, Pace, backoff, retry_after

FAULTS = {
    "429 with Retry-After": error(429, retry_after="0"),
    "429": error(429),
    "408": error(408),
    "409": error(409),
    "500": error(500),
    "502 with a page": Reply(b"<html>Bad gateway</html>", status=502, headers={"Content-Type": "text/html"}),
    "503": error(503, retry_after="0"),
    "dropped before the answer": answer(drop="before"),
    "dropped in the middle": answer("A long answer." * 100, drop="middle"),
    "an error in hex": Reply(b"zz", status=500, headers={"Content-Type": "text/plain; charset=hex"}),
    "an error with status 200": Reply(b'{"error": {"message": "busy"}}'),
}

UNREADABLE = {
    "malformed JSON": Reply(b'{"choices": [{'),
    "a page instead of JSON": Reply(b"<html>hello</html>", headers={"Content-Type": "text/html"}),
    **{
        f"text in {codec}": Reply(b"a-" + b"b" * 20_000, headers={"Content-Type": f"text/plain; charset={codec}"})
        for codec in ("hex", "zlib_codec", "rot13", "undefined", "punycode")  # none of text, and one that takes long
    },
    "not UTF-8": Reply(b'{"choices": "\xff\xfe"}'),
    "a JSON list": Reply(b"[]"),
    "brackets without end": Reply(b"[" * 900_000),
    "choices that nest": Reply(b'{"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "null": Reply(b"null"),
    "no choices": Reply(b'{"choices": []}'),
    "no message": Reply(b'{"choices": [{}]}'),
    "a number as text": Reply(b'{"choices": [{"message": {"content": 3}}]}'),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_tried_again_until_the_answer_comes(endpoint: FakeEndpoint, name: str) -> None:
    endpoint.plan = by_prompt(FAULTS[name], FAULTS[name])
    completions = collect(chat(endpoint), questions(10))
    assert [completion.text for completion in completions] == [f"echo of question {n}" for n in range(10)]
    assert len(endpoint.seen) == 30


@pytest.mark.parametrize("name", FAULTS)
def test_after_the_last_try_the_request_has_failed(endpoint: FakeEndpoint, name: str) -> None:
    endpoint.plan = lambda number, seen: FAULTS[name] if seen.prompt == "question 1" else echo(number, seen)
    completions = collect(chat(endpoint, max_retries=2), questions(3))
    assert [completion.finish_reason for completion in completions] == ["stop", "failed", "stop"]
    assert completions[1].text == ""
    assert "3 tries" in (completions[1].error or "")
    assert len(endpoint.seen) == 5


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_answer_that_cannot_be_read_is_paid_for_once(endpoint: FakeEndpoint, name: str) -> None:
    endpoint.plan = lambda number, seen: UNREADABLE[name] if seen.prompt == "question 1" else echo(number, seen)
    completions = collect(chat(endpoint, max_concurrency=1), questions(3))
    assert [completion.finish_reason for completion in completions] == ["stop", "failed", "stop"]
    assert completions[1].error == "the answer was not a chat completion"
    assert len(endpoint.seen) == 3


def test_an_answer_that_never_comes_is_a_failure(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer(delay=30.0)
    (completion,) = collect(chat(endpoint, timeout=0.1, max_retries=1), questions(1))
    assert completion.finish_reason == "failed"
    assert "0.1 seconds" in (completion.error or "")


def test_under_all_faults_mixed_every_index_is_answered_once(endpoint: FakeEndpoint) -> None:
    chance, faults = random.Random(7), [*FAULTS.values(), answer(delay=30.0)]
    met = {each.messages[0].content: chance.choices(faults, k=chance.choice((0, 0, 1, 2))) for each in questions(200)}
    endpoint.plan = lambda number, seen: met[seen.prompt].pop() if met[seen.prompt] else echo(number, seen)
    completions = collect(chat(endpoint, timeout=0.5, max_retries=30, max_concurrency=32), questions(200))
    assert not any(met.values())
    assert [completion.text for completion in completions] == [f"echo of question {n}" for n in range(200)]


def test_a_refused_request_fails_alone_and_is_not_tried_again(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: (
        error(400, f"the prompt {seen.prompt} is too long") if seen.prompt == "question 1" else echo(number, seen)
    )
    completions = collect(chat(endpoint, max_concurrency=1), questions(3))
    assert [completion.finish_reason for completion in completions] == ["stop", "failed", "stop"]
    assert completions[1].error == "the endpoint refused the request (HTTP 400)"
    assert len(endpoint.seen) == 3


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (error(401, "bad key sk-123"), "key"),
        (error(403), "key"),
        (error(404), "model"),
        (error(405), "model"),
        (error(402), "credit"),
        (error(429, code="insufficient_quota"), "credit"),
        (Reply(status=302, headers={"Location": "/elsewhere"}), "redirects"),
    ],
)
def test_what_nothing_will_cure_ends_the_run_at_once(endpoint: FakeEndpoint, reply: Reply, problem: str) -> None:
    others = [f"question {number}" for number in (1, 2, 3)]  # which are answered after the end
    endpoint.plan = lambda number, seen: replace(reply, delay=0.1) if seen.prompt in others else reply
    with pytest.raises(ModelError, match=problem) as caught:
        collect(chat(endpoint, max_concurrency=4), questions(100))
    assert caught.value.cure
    assert "sk-123" not in str(caught.value)
    assert len(endpoint.seen) <= 4 + 1, "what was in flight, and one plain question"


@pytest.mark.parametrize("reply", [error(400), error(500), Reply(b"{")])
def test_too_many_failures_in_a_row_end_the_run(endpoint: FakeEndpoint, reply: Reply) -> None:
    endpoint.plan = lambda number, seen: reply
    with pytest.raises(ModelError, match="does not answer"):
        collect(chat(endpoint, max_concurrency=4, max_retries=0), questions(500))
    assert len(endpoint.seen) <= 20 + 3 + 1, "twenty, what was in flight, and one plain question"


def test_many_failures_with_answers_between_them_do_not_end_the_run(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: echo(number, seen) if number % 10 == 0 else error(400)
    completions = collect(chat(endpoint, max_concurrency=1), questions(60))
    assert sum(completion.finish_reason == "failed" for completion in completions) == 54


@pytest.mark.parametrize("count", [1, 3, 100])
def test_an_unreachable_endpoint_is_an_error_in_seconds(count: int) -> None:
    with socket.socket() as deaf:  # kept, so that nobody else listens there meanwhile
        deaf.bind(("127.0.0.1", 0))
        model = EndpointChat("m", base_url=f"http://127.0.0.1:{deaf.getsockname()[1]}/v1", backoff_seconds=0.01)
        with pytest.raises(ModelError, match="does not answer"):
            collect(model, questions(count))


def test_errors_quote_neither_prompt_nor_answer(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: error([400, 500][number % 2], f"cannot take {seen.prompt}")
    completions = collect(chat(endpoint, max_retries=1), [ask("a private word")] * 6)
    assert all(completion.error and "private" not in completion.error for completion in completions)


def test_retry_after_is_honoured_by_all_workers(endpoint: FakeEndpoint) -> None:
    times: list[float] = []

    def plan(number: int, seen: object) -> Reply:
        times.append(monotonic())
        return error(429, retry_after="0.3") if number == 0 else answer()

    endpoint.plan = plan
    assert len(collect(chat(endpoint, max_concurrency=1), questions(3))) == 3
    assert times[1] - times[0] >= 0.3


def test_retry_after_is_seconds_or_a_date_and_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "time", SimpleNamespace(time=lambda: 1e9))
    assert retry_after("2.5") == 2.5
    assert retry_after("Mon, 01 Jan 2026 00:00:00 +99999999999999") == 0.0
    assert retry_after("Mon, 01 Jan 99999999999999 00:00:00 GMT") == 0.0
    assert retry_after(formatdate(1e9 + 30, usegmt=True)) == 30
    assert retry_after(formatdate(1e9 - 30, usegmt=True)) == 0.0
    assert retry_after("1e9") == LONGEST_WAIT
    assert [retry_after(header) for header in (None, "", "-1", "nan", "soon")] == [0.0] * 5


def test_the_wait_between_tries_doubles_up_to_a_bound() -> None:
    for tries in range(1, 40):
        longest = min(LONGEST_WAIT, 0.5 * 2 ** (tries - 1))
        assert 0.5 * longest <= backoff(tries, 0.5) <= longest


def test_concurrency_halves_once_for_a_burst_and_grows_again() -> None:
    pace = Pace(64)
    sent_at = monotonic()
    for _ in range(64):
        pace.slow_down(sent_at)
    assert pace.limit == 32
    pace.slow_down(monotonic())
    assert pace.limit == 16
    for _ in range(40):
        pace.speed_up()
    assert 17 <= pace.limit <= 18
    for _ in range(5000):
        pace.speed_up()
    assert pace.limit == 64
    for _ in range(20):
        pace.slow_down(monotonic())
    assert pace.limit == 1


def test_a_server_that_answers_one_after_another_is_not_asked_for_more_than_it_can_answer_in_time() -> None:
    def settled(seconds_each: float, *, serial: bool) -> int:
        """The concurrency after many answers; a serial server answers the last of n requests after n times."""
        pace = Pace(64, begin=4, timeout=120)
        for answered in range(500):
            pace.speed_up(seconds_each * (min(answered + 1, pace.limit) if serial else 1))
        return pace.limit

    for seconds_each in (0.1, 1, 3, 6, 10, 20):
        assert settled(seconds_each, serial=True) * seconds_each <= 120
        assert settled(seconds_each, serial=False) == 64, "as many as it takes"


# -- a refused text costs that text; an endpoint that refuses everything ends the run; no answer is paid for twice ----


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
    assert len(endpoint.seen) <= 5 * 20 + 8, (
        "twenty in a row, which each answer may begin again, and what was in flight"
    )
    endpoint.plan = echo
    collect(CachedChat(chat(endpoint), store), questions(30))
    assert [asked(endpoint).count(prompt) for prompt in slow] == [1] * 4


def test_an_interrupt_waits_for_the_answers_in_flight_and_sends_nothing_more(endpoint: FakeEndpoint) -> None:
    store, said = MemoryStore(), list[str]()
    endpoint.plan = lambda number, seen: answer(until=lambda: bool(said))
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


@pytest.mark.parametrize("kind", ["text/html", "text/plain; charset=hex", "application/octet-stream", ""])
def test_json_under_another_content_type_is_an_answer(endpoint: FakeEndpoint, kind: str) -> None:
    endpoint.plan = lambda number, seen: Reply(echo(number, seen).body, headers={"Content-Type": kind})
    assert [completion.text for completion in collect(chat(endpoint), questions(1))] == ["echo of question 0"]
    assert len(endpoint.seen) == 1


def test_answers_before_the_end_of_a_run_are_yielded_first(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: error(402) if number == 5 else echo(number, seen)
    done: list[int] = []
    with pytest.raises(ModelError):
        collect(chat(endpoint, max_concurrency=1), questions(10), progress=done.append)
    assert done == [1, 2, 3, 4, 5]
