"""Batches: handed in once, waited for across processes, asked again in part; against a server on this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from batch_server import Batches, echo
from endpoint_fixtures import ask, clean_environment_fixture, questions  # noqa: F401
from server import FakeEndpoint, Reply, answer, error

from understudy.base.errors import ModelError
from understudy.ledger.store.database import AnswerStore, Database, JobStore
from understudy.models import batches
from understudy.models.batches import BatchChat
from understudy.models.collect import CachedChat, collect
from understudy.models.endpoint import EndpointChat
from understudy.models.types import ChatRequest, Completion


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(batches, "LONGEST_POLL_SECONDS", 0.002)


@pytest.fixture
def server() -> Iterator[FakeEndpoint]:
    with FakeEndpoint() as endpoint:
        endpoint.plan = Batches()
        yield endpoint


class Machine:
    """One output folder's store; ``chat()`` is what a new process would load."""

    def __init__(self, folder: Path, server: FakeEndpoint) -> None:
        database = Database(folder / "run.sqlite")
        self.database, self.answers, self.jobs = database, AnswerStore(database), JobStore(database)
        self.server = server
        self.said: list[str] = []

    def batch(self, **options: Any) -> BatchChat:
        options = {"base_url": self.server.base_url, "backoff_seconds": 0.0, **options}
        return BatchChat(endpoint=EndpointChat("small", **options), jobs=self.jobs, say=self.said.append)

    def ask(self, requests: list[ChatRequest], **options: Any) -> list[Completion]:
        return collect(CachedChat(self.batch(**options), self.answers), requests)


@pytest.fixture
def machine(tmp_path: Path, server: FakeEndpoint) -> Iterator[Machine]:
    made = Machine(tmp_path, server)
    yield made
    made.database.close()


def plan_of(machine: Machine) -> Batches:
    assert isinstance(machine.server.plan, Batches)
    return machine.server.plan


def texts(completions: list[Completion]) -> list[str]:
    return [completion.text for completion in completions]


def test_all_requests_go_in_one_file_and_come_back_in_their_order(machine: Machine) -> None:
    assert texts(machine.ask(questions(30))) == [f"echo of question {number}" for number in range(30)]
    plan = plan_of(machine)
    assert len(plan.batches) == 1
    assert plan.direct == []
    assert any("Submitted 30 requests as batch_0" in line for line in machine.said)
    assert texts(machine.ask(questions(30))) == [f"echo of question {number}" for number in range(30)]
    assert len(plan.batches) == 1, "stored answers are not asked for again"
    assert machine.jobs.waiting() == 0


def test_a_file_has_no_more_requests_than_a_batch_may(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MOST_REQUESTS", 4)
    assert len(machine.ask(questions(10))) == 10
    assert [len(batch["lines"]) for batch in plan_of(machine).batches.values()] == [4, 4, 2]
    monkeypatch.setattr(batches, "MOST_BYTES", 600)
    machine.ask([ask("x" * 200 + str(number)) for number in range(3)])
    assert [len(batch["lines"]) for batch in plan_of(machine).batches.values()][3:] == [1, 1, 1]


def killed_at(machine: Machine, path: str, *, after: bool) -> None:
    """Ask, and die when ``path`` is asked for: before or after the server has done it."""
    plan = plan_of(machine)

    async def run() -> None:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        done = False

        def fault(seen: Any) -> Reply | None:
            nonlocal done
            if done or f"{seen.method} {seen.path}" != path:
                return None
            done = True
            if after:
                plan.before = lambda _seen: None
                plan(0, seen)
            assert task is not None
            loop.call_soon_threadsafe(task.cancel)
            return Reply(delay=30)

        plan.before = fault
        async for _ in CachedChat(machine.batch(), machine.answers).complete(questions(5)):
            pass

    with pytest.raises((asyncio.CancelledError, KeyboardInterrupt)):
        asyncio.run(run())
    plan.before = lambda _seen: None


@pytest.mark.parametrize(
    ("path", "after"),
    [
        ("POST /v1/files", False),
        ("POST /v1/files", True),
        ("POST /v1/batches", False),
        ("POST /v1/batches", True),
        ("GET /v1/batches/batch_0", False),
        ("GET /v1/files/batch_0-output_file_id/content", False),
    ],
)
def test_a_run_that_is_killed_anywhere_hands_nothing_in_twice(machine: Machine, path: str, after: bool) -> None:
    killed_at(machine, path, after=after)
    assert texts(machine.ask(questions(5))) == [f"echo of question {number}" for number in range(5)]
    assert set(plan_of(machine).asked.values()) == {1}
    assert len(plan_of(machine).batches) == 1


def test_a_resumed_run_waits_for_what_is_open_and_hands_in_the_rest(machine: Machine) -> None:
    killed_at(machine, "GET /v1/batches/batch_0", after=False)
    assert len(machine.ask(questions(8))) == 8
    assert [len(batch["lines"]) for batch in plan_of(machine).batches.values()] == [5, 3]
    assert "Going on to wait for 5 requests submitted before." in machine.said


def test_a_batch_whose_beginning_was_not_heard_of_is_not_begun_again(machine: Machine) -> None:
    """The connection breaks behind the request: it may have begun, and the list says so."""
    plan = plan_of(machine)

    def fault(seen: Any) -> Reply | None:
        if seen.method == "POST" and seen.path == "/v1/batches":
            plan.before = lambda _seen: None
            reply = plan(0, seen)
            return Reply(reply.body, drop="middle")
        return None

    plan.before = fault
    assert len(machine.ask(questions(3))) == 3
    assert len(plan.batches) == 1


@pytest.mark.parametrize(("status", "reply"), [("completed", error(500)), ("expired", None)])
def test_only_what_failed_or_was_not_reached_is_asked_again(machine: Machine, status: str, reply: Reply | None) -> None:
    plan = plan_of(machine)
    plan.status = status
    plan.answering = lambda body, times: (
        reply if times < 2 and body["messages"][-1]["content"] > "question 2" else echo(body, 0)
    )
    assert texts(machine.ask(questions(6))) == [f"echo of question {number}" for number in range(6)]
    assert [len(batch["lines"]) for batch in plan.batches.values()] == [6, 3, 3]


def test_what_fails_in_three_batches_is_given_up_and_may_be_asked_by_the_next_command(machine: Machine) -> None:
    plan = plan_of(machine)
    plan.answering = lambda body, times: error(500)
    (failed,) = machine.ask(questions(1))
    assert failed.finish_reason == "failed"
    assert failed.error == "the endpoint answered HTTP 500 (the last of 3 tries)"
    plan.answering = echo
    assert texts(machine.ask(questions(1))) == ["echo of question 0"]


def test_an_answer_without_text_is_asked_for_again_by_the_next_command(machine: Machine) -> None:
    plan = plan_of(machine)
    plan.answering = lambda body, times: (
        answer("") if times < 1 and "0" in body["messages"][-1]["content"] else echo(body, 0)
    )
    assert texts(machine.ask(questions(2))) == ["", "echo of question 1"]
    assert texts(machine.ask(questions(2))) == ["echo of question 0", "echo of question 1"]


def test_a_refused_parameter_is_learnt_from_all_requests_at_once(machine: Machine) -> None:
    plan = plan_of(machine)

    def refuse(body: dict[str, Any], times: int) -> Reply:
        if "max_tokens" in body:
            return error(400, "Use 'max_completion_tokens' instead.", param="max_tokens", code="unsupported_parameter")
        for name in ("temperature", "top_p"):
            if name in body:
                return error(400, f"Unsupported value: {name}", param=name, code="unsupported_value")
        return echo(body, times)

    plan.answering = refuse
    assert texts(machine.ask(questions(4))) == [f"echo of question {number}" for number in range(4)]
    assert [len(batch["lines"]) for batch in plan.batches.values()] == [4, 4, 4, 4]
    plan.answering = lambda body, times: error(400, "The prompt is too long.")
    (failed,) = machine.ask([ask("long")])
    assert failed.error == "the endpoint answered HTTP 400"


def test_a_reasoning_model_gets_more_tokens_once(machine: Machine) -> None:
    plan = plan_of(machine)
    plan.answering = lambda body, times: (
        answer("There.") if body["max_tokens"] > 100 else answer("", finish_reason="length", usage=(5, 60))
    )
    (completion,) = machine.ask([ask(max_tokens=60)])
    assert completion.text == "There."
    assert completion.completion_tokens == 65
    assert [batch["lines"][0]["body"]["max_tokens"] for batch in plan.batches.values()] == [60, 240]


def test_a_batch_that_is_refused_as_a_whole_ends_the_run_and_costs_nothing(machine: Machine) -> None:
    plan = plan_of(machine)
    plan.status, plan.errors = "failed", [{"code": "token_limit_exceeded", "message": "You said question 1"}]
    with pytest.raises(ModelError, match="token_limit_exceeded") as caught:
        machine.ask(questions(3))
    assert "question" not in str(caught.value)
    plan.status = "completed"
    assert len(machine.ask(questions(3))) == 3


def test_lines_that_are_no_answers_are_left_out(machine: Machine) -> None:
    plan = plan_of(machine)
    finish = plan._finish

    def spoil(batch: dict[str, Any]) -> None:
        finish(batch)
        name = batch.get("output_file_id")
        if name and len(plan.batches) == 1:
            lines = plan.files[name].splitlines()
            plan.files[name] = b"\n".join([b"\xff{", b"[]", b'{"custom_id": 3}', b"1" * 5000, *lines[:-1]])

    plan._finish = spoil  # type: ignore[method-assign]
    assert texts(machine.ask(questions(4))) == [f"echo of question {number}" for number in range(4)]
    assert [len(batch["lines"]) for batch in plan.batches.values()] == [4, 1]


def test_a_passing_fault_while_waiting_is_waited_out(machine: Machine) -> None:
    plan = plan_of(machine)
    faults = iter([error(500), error(503), Reply(drop="before"), error(429), Reply(b"no json")])
    plan.before = lambda seen: next(faults, None) if seen.path.startswith("/v1/batches/") else None
    assert len(machine.ask(questions(2))) == 2
    assert len(plan.batches) == 1


def test_a_refused_key_ends_the_run_keeps_what_was_handed_in_and_uses_up_no_tries(machine: Machine) -> None:
    plan = plan_of(machine)
    for path in ("/v1/files", "/v1/files", "/v1/files", "/v1/files", "/v1/batches/batch_0"):
        plan.before = lambda seen, path=path: error(401) if seen.path == path else None
        with pytest.raises(ModelError, match="key"):
            machine.ask(questions(2))
    plan.before = lambda _seen: None
    assert len(machine.ask(questions(2))) == 2
    assert len(plan.batches) == 1


def test_a_batch_is_waited_for_at_another_address_and_under_any_content_type(machine: Machine) -> None:
    plan = plan_of(machine)
    killed_at(machine, "GET /v1/batches/batch_0", after=False)

    def as_text(number: int, seen: Any) -> Reply:
        return replace(plan(number, seen), headers={"Content-Type": "text/plain"})

    with FakeEndpoint(as_text) as elsewhere:
        assert len(machine.ask(questions(6), base_url=elsewhere.base_url)) == 6
    assert [len(batch["lines"]) for batch in plan.batches.values()] == [5, 1]


def test_a_cap_hands_in_what_fits_and_then_ends(machine: Machine) -> None:
    with pytest.raises(ModelError, match="spending cap"):
        machine.ask(
            [ask(f"q{number}", max_tokens=100) for number in range(5)],
            spending_cap=250,
            price_per_million_input=1e6,
            price_per_million_output=1e6,
        )
    assert [len(batch["lines"]) for batch in plan_of(machine).batches.values()] == [2]
    assert len(machine.ask([ask(f"q{number}", max_tokens=100) for number in range(5)])) == 5
    assert set(plan_of(machine).asked.values()) == {1}


def test_a_key_and_a_prompt_go_to_the_endpoint_alone(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "local-key")
    machine.ask(questions(2), api_key_env="MY_KEY")
    for seen in machine.server.seen:
        assert seen.headers["authorization"] == "Bearer local-key"
        assert not any(name.startswith("x-") or name.startswith("openai") for name in seen.headers)
    uploaded = plan_of(machine).files["file-0"].splitlines()
    assert json.loads(uploaded[0]).keys() == {"custom_id", "method", "url", "body"}
