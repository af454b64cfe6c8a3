"""Whole runs through batches: the forecast, a kill in the midst, and what goes in the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from batch_server import Batches
from clinic import FakeChat, flags, settings
from evolution_fixtures import embedder, evolving, varied  # noqa: F401
from run_fixtures import Command, UseChat, runs_charged
from server import FakeEndpoint, Reply, Seen, error

import understudy as us
from understudy.models import batches
from understudy.models.types import ChatRequest, Completion

QUICK = (
    "import understudy.models.batches as b; b.POLL_SECONDS = 0.01; b.LONGEST_POLL_SECONDS = 0.02; "
    "from understudy.cli import main; main()"
)


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Batches:
    monkeypatch.setattr(batches, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(batches, "LONGEST_POLL_SECONDS", 0.002)
    return Batches()


@pytest.fixture
def server(plan: Batches) -> Iterator[FakeEndpoint]:
    with FakeEndpoint(plan) as endpoint:
        yield endpoint


def batched(folder: Path, server: FakeEndpoint, **changes: Any) -> dict[str, Any]:
    return settings(folder, llm="openai:small", base_url=server.base_url, llm_batch=True, **changes)


def test_a_run_hands_in_all_at_once(tmp_path: Path, understudy: Command, server: FakeEndpoint, plan: Batches) -> None:
    said = understudy("run", *flags(batched(tmp_path, server)), code=0)
    assert [len(batch["lines"]) for batch in plan.batches.values()] == [8]
    assert len(plan.direct) == 1, "one question before the charge, so that a wrong address is known"
    assert "Submitted 8 requests as batch_0; answers come within 24 hours." in said.err


def test_a_run_that_is_killed_while_it_waits_goes_on_with_the_same_batch(
    tmp_path: Path, server: FakeEndpoint, plan: Batches
) -> None:
    plan.held = True
    waiting = threading.Event()

    def look(seen: Seen) -> None:
        if seen.method == "GET" and seen.path.startswith("/v1/batches/"):
            waiting.set()

    plan.before = look
    command = [sys.executable, "-c", QUICK, "run", *flags(batched(tmp_path, server, guide=False, accept_all=True))]
    around = {**os.environ, "UNDERSTUDY_LEDGER": ""}
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=around) as process:
        assert waiting.wait(300)
        process.kill()
        process.communicate()
    plan.held = False
    done = subprocess.run(command, capture_output=True, text=True, env=around, check=False)
    assert done.returncode == 0, done.stderr
    assert "Going on to wait for 8 requests submitted before." in done.stderr
    assert set(plan.asked.values()) == {1}
    assert len(plan.batches) == 1


@pytest.mark.parametrize("refused", [True, False])
def test_a_run_may_change_to_ordinary_requests_and_is_told_what_that_costs(
    tmp_path: Path, understudy: Command, server: FakeEndpoint, plan: Batches, refused: bool
) -> None:
    """What waits in a batch is paid again, and a batch that was refused costs nothing."""
    if refused:
        plan.status, plan.errors = "failed", []
    else:
        plan.before = lambda seen: error(401) if seen.path.startswith("/v1/batches/") else None
    assert understudy("run", *flags(batched(tmp_path, server))).code != 0
    said = understudy("run", *flags(batched(tmp_path, server) | {"llm_batch": False}), code=0)
    again = "Batches with 8 requests are waiting. Without --llm-batch these are sent, and paid for, again."
    assert (again in said.err) is not refused
    assert ("requests are waiting" in said.err) is not refused


def test_what_the_first_question_taught_is_known_to_the_batch(
    tmp_path: Path, understudy: Command, server: FakeEndpoint, plan: Batches
) -> None:
    def refuse(seen: Seen) -> Reply | None:
        if seen.path == "/v1/chat/completions" and "max_tokens" in seen.body:
            return error(400, "Use 'max_completion_tokens' instead.", code="unsupported_parameter")
        return None

    plan.before = refuse
    assert understudy("run", *flags(batched(tmp_path, server))).code == 0
    (batch,) = plan.batches.values()
    assert all("max_completion_tokens" in line["body"] for line in batch["lines"])


def test_the_extra_body_is_the_same_in_flags_yaml_and_python(
    tmp_path: Path, understudy: Command, server: FakeEndpoint, plan: Batches
) -> None:
    values = settings(tmp_path, llm="vllm:small", base_url=server.base_url, llm_extra_body='{"top_k": 4}')
    assert understudy("run", *flags(values)).code == 0
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(values | {"llm_extra_body": {"top_k": 4}}), "utf-8")
    assert understudy("run", "--config", str(file)).code == 0, "the same settings, so it resumes"
    said = understudy("run", "--config", str(file), "--llm-extra-body", '{"top_k": 5}')
    assert "llm_extra_body" in said.err
    made = us.load_release(tmp_path / "out" / "release" / "dp-kps.release")
    us.generate(made, llm="vllm:small", base_url=server.base_url, llm_extra_body={"top_k": 4}, records=2)
    sent = [seen.body for seen in server.seen if seen.path == "/v1/chat/completions"]
    assert len(sent) >= 10
    assert {body["top_k"] for body in sent} == {4}


def test_the_forecast_says_half_the_price_and_the_wait_of_all_rounds(tmp_path: Path, understudy: Command) -> None:
    values = {"llm": "openai:small", "price_input": 1.0, "price_output": 2.0, "expected_records": 900}
    words = flags(settings(tmp_path, **values))
    whole, half = (
        {
            each["name"]: each["value"]
            for each in json.loads(understudy("plan", *words, *more).out)["generation"]["entries"]
        }
        for more in (("--json",), ("--llm-batch", "--json"))
    )
    assert half["money"] == pytest.approx(whole["money"] / 2)
    assert ("batch_hours" not in whole, half["batch_hours"]) == (True, 24)
    assert "halved for batches" in understudy("plan", *words, "--llm-batch").out
    evolving = (
        "--method aug-pe --rounds 3 --label d --labels a,b --epsilon 4 --delta 1e-6 --llm openai:small --llm-batch"
    )
    assert "4 batches one after another, each within a day" in understudy("plan", *evolving.split()).out


def test_a_model_without_batches_is_refused_before_anything(tmp_path: Path, understudy: Command) -> None:
    for llm in ("builtin", "ollama:small", "gemini:small", "none"):
        said = understudy("run", *flags(settings(tmp_path, llm=llm)), "--llm-batch")
        assert said.code != 0
        assert "has no batch interface" in said.err
    assert not (tmp_path / "out").exists()


# -- answers without text and content filters that come as HTTP 200: never final at once, and never a dead end --------

BLANKS = [Completion("", "filtered", 9, 9), Completion(" \n", "stop", 9, 9), Completion("", "empty", 9, 9)]


class Outage:
    """Answers without text while it lasts."""

    def __init__(self, blank: Completion, answer: Callable[[ChatRequest], Completion]) -> None:
        self.lasts = True
        self._blank, self._answer = blank, answer

    def __call__(self, request: ChatRequest) -> Completion:
        return self._blank if self.lasts else self._answer(request)


def note(request: ChatRequest) -> Completion:
    return Completion(f"A note: {request.messages[-1].content}", "stop", 9, 9)


@pytest.mark.parametrize("blank", BLANKS)
def test_after_an_endpoint_recovered_the_same_command_asks_again_and_charges_nothing(
    tmp_path: Path, understudy: Command, use_chat: UseChat, blank: Completion
) -> None:
    outage = Outage(blank, note)
    chat = use_chat(FakeChat(outage))
    words = flags(settings(tmp_path, llm="fake", document_type="note"))
    for _ in range(4):
        before = len(chat.asked)
        said = understudy("run", *words)
        release = tmp_path / "out" / "release" / "dp-kps.release"
        assert said.code == 6
        assert "wrote no text at all" in said.err
        assert f"understudy generate {release}" in said.err
        assert len(chat.asked) > before
    outage.lasts = False
    assert understudy("run", *words).code == 0
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    understudy("generate", str(release), "--llm", "fake", "--records", "2", "--output", str(tmp_path / "more"), code=0)


def test_a_prompt_that_is_always_withheld_is_asked_for_three_times_and_then_stays_without_text(
    tmp_path: Path, understudy: Command, use_chat: UseChat
) -> None:
    first: list[str] = []

    def reply(request: ChatRequest) -> Completion:
        first.append(request.messages[-1].content)
        return BLANKS[0] if request.messages[-1].content == first[0] else note(request)

    chat = use_chat(FakeChat(reply))
    words = flags(settings(tmp_path, llm="fake", document_type="note", samples=1))
    asked = []
    for _ in range(5):
        before = len(chat.asked)
        said = understudy("run", *words, code=0)
        withheld = first[: settings(tmp_path)["records_per_label"] * 2].count(first[0])  # two seeds may be alike
        assert (
            f"{withheld} text{'s' * (withheld > 1)} could not be generated. The same command asks again, 3 times in all"
            in said.err
        )
        asked.append(len(chat.asked) - before)
    both = 2 if withheld == 1 else asked[1]
    assert asked[1:] == [both, both, 0, 0], "the question, and once more at once, as for every text that did not come"


@pytest.mark.usefixtures("embedder")
@pytest.mark.parametrize("blank", BLANKS[:1])
def test_a_charged_evolution_does_not_go_on_without_a_text(
    tmp_path: Path, understudy: Command, use_chat: UseChat, blank: Completion
) -> None:
    outage = Outage(blank, varied)
    use_chat(FakeChat(outage))
    words = flags(evolving(tmp_path))
    for _ in range(4):
        said = understudy("run", *words)
        assert (said.code, "wrote no text at all" in said.err) == (6, True)
    outage.lasts = False
    assert understudy("run", *words).code == 0
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_a_run_whose_calls_all_fail_says_why(tmp_path: Path, understudy: Command, use_chat: UseChat) -> None:
    use_chat(FakeChat(lambda request: Completion("", "failed", error="the endpoint answered HTTP 429")))
    said = understudy("run", *flags(settings(tmp_path, llm="fake", document_type="note")), code=6)
    assert "wrote no text at all: the endpoint answered HTTP 429." in said.err
