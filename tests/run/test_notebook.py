"""What a script or a notebook is told while a run works, and what an interrupted call leaves."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clinic import LABELS, FakeChat, rows, settings
from run_fixtures import UseChat, runs_charged
from word_embedder import WordEmbedder

import understudy as us
from understudy.base import heartbeat
from understudy.methods.shared.evolution.embeddings import EMBEDDING
from understudy.models import catalog
from understudy.models.types import ChatRequest, Completion
from understudy.run import pipeline, progress
from understudy.run.settings import run_config

BUDGET = us.Budget(3, "1e-6")
COLUMNS: dict[str, Any] = {"text": "note", "label": "department", "labels": LABELS}


def test_a_listener_is_told_what_a_terminal_would_show(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []
    with progress.shown(us.Listener(lines.append)) as told:
        told.say("No number is given (--records).")
    assert lines == ["No number is given (records)."]
    with progress.shown() as told:  # a script whose output goes elsewhere
        told.say("One line.\x1b[2J")
        assert told.nobody
    assert capsys.readouterr() == ("", "One line.\\x1b[2J\n")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress.shown() as told:
        told.say("One line.")
        told.progress("rounds", 0, 2)
        told.progress("rounds", 2, 2)
        told.progress("rounds", 0, 2)
        assert not told.nobody


def test_without_a_terminal_there_is_a_line_now_and_then_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(heartbeat, "SECONDS", 15.0)
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: now[0])
    said: list[str] = []
    lines = heartbeat.PlainLines(said.append)
    lines("texts", 0, 2)
    lines("texts", 1, 2)
    assert not said
    lines("texts", 2, 2)
    now[0] = 16.0
    lines("rounds", 0, 3)
    lines("rounds", 1, 3)
    lines("rounds", 2, 3)
    assert said == ["texts: 2 of 2", "rounds: 1 of 3"]


def test_silence_is_broken_by_phase_and_time_alone_and_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [0.0], list[str]()
    monkeypatch.setattr(heartbeat, "SECONDS", 10.0)
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: now[0])
    lines = heartbeat.PlainLines(said.append)
    happens: dict[int, Callable[[], None]] = {
        3: lambda: lines.say("Protecting nobody: a baseline."),
        5: lambda: lines.say("Reading the private records."),
        25: lambda: lines("texts", 5, 48),
        40: lambda: lines.say("Weak: only common themes survive."),
    }

    class Waits:
        count = 0

        def wait(self, seconds: float) -> bool:
            assert seconds > 0
            now[0] += seconds
            self.count += 1
            happens.pop(self.count, lambda: None)()
            return self.count == 50

    lines._beat(Waits())  # type: ignore[arg-type]
    expected = [f"Still reading the private records ({seconds} s)." for seconds in (10, 20, 30, 40, 50, 60, 70, 82)]
    assert said[0] == "Still working (10 s)."
    reading = said.index("Reading the private records.")
    assert [line for line in said[reading:] if "Still reading" in line][:8] == expected
    assert said[-1].startswith("Still working (")
    assert len(said) < 50


def test_signs_of_life_come_while_a_block_works_and_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "SECONDS", 0.01)
    shown, said = threading.Event(), list[str]()
    with progress.plain(lambda line: (said.append(line), shown.set())[0]):
        assert shown.wait(60)
    assert said[0] == "Still working (0 s)."
    count = len(said)
    time.sleep(0.05)
    assert len(said) == count


def test_a_run_names_each_model_before_it_loads_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    chat = FakeChat()
    monkeypatch.setattr(catalog, "load_chat", lambda *_, **__: (said.append("load chat"), chat)[1])
    monkeypatch.setattr(catalog, "load_embedder", lambda _spec: (said.append("load embedder"), WordEmbedder())[1])
    config = run_config(settings(tmp_path, guide=True, llm="hf:./model"))
    assert pipeline.run(config, listener=us.Listener(said.append)).records
    loads = [line for line in said if "load" in line.lower()]
    expected = ["Loading the language model hf:./model.", "load chat", "Loading the embedder builtin.", "load embedder"]
    assert loads == expected
    assert said.index("Reading the private records.") < said.index(EMBEDDING)


def test_a_run_tells_its_texts_beforehand_and_one_by_one(method: us.DPKPS, use_chat: UseChat) -> None:
    use_chat(FakeChat())
    told: list[tuple[str, int, int]] = []
    listener = us.Listener(progress=lambda *each: told.append(each))
    options: dict[str, Any] = {"insecure_noise_seed": 1, "dataset": "v", "samples": 1, **COLUMNS}
    us.run(rows(), method, BUDGET, records_per_label=2, listener=listener, **options)
    assert told == [("texts", done, 4) for done in range(5)]


def interrupting(after: int) -> Callable[[ChatRequest], Completion]:
    """Answers, and a user who interrupts after so many."""
    answered = 0

    def reply(request: ChatRequest) -> Completion:
        nonlocal answered
        if answered == after:
            raise KeyboardInterrupt
        answered += 1
        return Completion(f"A note. {request.messages[-1].content}", "stop", 9, 9)

    return reply


@pytest.mark.parametrize("in_a_loop", [False, True])
def test_an_interrupted_run_says_how_to_resume_or_what_is_lost_and_the_same_call_does(
    tmp_path: Path, method: us.DPKPS, use_chat: UseChat, in_a_loop: bool
) -> None:
    said: list[str] = []
    kept: dict[str, Any] = {"ledger": str(tmp_path / "ledger.sqlite"), "output": tmp_path / "out"}

    def call(**options: Any) -> us.Result:
        given = {
            **COLUMNS,
            "samples": 1,
            "records_per_label": 3,
            "dataset": "v",
            "listener": us.Listener(said.append),
            **options,
        }

        async def cell() -> us.Result:
            return us.run(rows(), method, BUDGET, **given)

        return asyncio.run(cell()) if in_a_loop else us.run(rows(), method, BUDGET, **given)

    resumes = f"Interrupted. The same call resumes: what was made so far is kept in {tmp_path / 'out'}."
    lost = "Interrupted. Without an output folder (output=...) nothing is kept. What was charged stays charged."
    for words, options in ((lost, {"insecure_noise_seed": 1}), (resumes, kept)):
        use_chat(FakeChat(interrupting(after=4)))
        with pytest.raises(KeyboardInterrupt) as caught:
            call(**options)
        assert said[-1] == words
        assert caught.value.__notes__ == [words]
    rest = use_chat(FakeChat())
    assert len(call(**kept).records) == 6
    assert len(rest.asked) == 2
    assert runs_charged(kept["ledger"], "v") == 1
