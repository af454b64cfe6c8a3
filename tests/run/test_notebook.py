"""What a script or a notebook is told while a run works, and what an interrupted call leaves."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clinic import LABELS, FakeChat, rows
from run_fixtures import runs_charged

import understudy as us
from understudy.models.types import ChatRequest, Completion
from understudy.run import progress

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
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    said: list[str] = []
    lines = progress.PlainLines(said.append)
    lines("texts", 0, 2)
    lines("texts", 1, 2)
    assert not said
    lines("texts", 2, 2)
    now[0] = 16.0
    lines("rounds", 0, 3)
    lines("rounds", 1, 3)
    lines("rounds", 2, 3)
    assert said == ["texts: 2 of 2", "rounds: 1 of 3"]


def test_a_run_tells_its_texts_beforehand_and_one_by_one(
    method: us.DPKPS, use_chat: Callable[[FakeChat], FakeChat]
) -> None:
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
    tmp_path: Path, method: us.DPKPS, use_chat: Callable[[FakeChat], FakeChat], in_a_loop: bool
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
