"""What a notebook shows, what it is told while a run works, and what an interrupted call leaves."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from clinic import LABELS, FakeChat, rows
from run_fixtures import runs_charged

import understudy as us
from understudy.evaluate.metrics.value import Metric, MetricValue
from understudy.models.types import ChatRequest, Completion
from understudy.report.page import Reports
from understudy.run import progress

BUDGET = us.Budget(3, "1e-6")
EVIL = "<script>alert('x')</script> <img src=x onerror=y> &amp; \x1b[2J"
COLUMNS: dict[str, Any] = {"text": "note", "label": "department", "labels": LABELS}


class Page(HTMLParser):
    """The tags, attributes and words of some HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.words += data


def shown(value: Any) -> Page:
    """What a notebook shows of a value; nothing in it runs, and it fetches nothing."""
    page = Page(value._repr_html_())
    assert not {"script", "img", "link", "style", "object"} & set(page.tags)
    harmless = {"style", "scope", "value", "max", "title", "sandbox", "srcdoc", "open"}
    assert {name for name, _ in page.attributes} <= harmless
    assert "\x1b" not in page.words
    return page


def test_a_plan_shows_its_charges_and_what_they_buy(method: us.DPKPS) -> None:
    made = us.plan(method, BUDGET, label="ward", labels=[EVIL, "b"], expected_records=1000, records_per_label=3)
    words = shown(made).words
    assert "Plan of dp-kps" in words
    assert "No private record was read." in words
    assert all(charge.name in words for charge in made.plan.charges)
    assert "synthetic records: 6" in words


def test_a_result_a_release_and_a_statement_show_themselves_and_run_nothing(method: us.DPKPS) -> None:
    table = [{"note": row["note"], "ward": EVIL} for row in rows()]
    options: dict[str, Any] = {"text": "note", "label": "ward", "labels": [EVIL, "b"], "dataset": EVIL[:8]}
    result = us.run(table, method, BUDGET, llm="none", records=9, insecure_noise_seed=1, **options)
    result = replace(result, records=[replace(result.records[0], text=EVIL + "x" * 400), *result.records], missing=2)
    words = shown(result).words
    assert "10 synthetic records of dp-kps, NOT PRIVATE" in words
    assert "<script>alert('x')</script>" in words
    assert "xxx..." in words
    assert "and 5 more" in words
    assert "2 texts could not be generated" in words
    words = shown(result.release).words
    assert "Release of dp-kps" in words
    assert "nobody: NOT PRIVATE" in words
    page = shown(result.statement)
    assert "NOT PRIVATE." in page.words
    assert page.tags.count("h4") >= 3
    assert "What is not covered" in page.words
    assert "**" not in page.words


def test_an_evaluation_shows_that_it_is_private() -> None:
    metric = Metric("utility", "accuracy", "Accuracy", EVIL, "nowhere", "higher")
    values = (
        MetricValue(metric, 0.75),
        MetricValue(replace(metric, name="pii_left_out", title="Left out"), None, EVIL),
    )
    page = shown(us.Evaluation(values, None, {}))
    assert page.tags.count("details") == 1
    words = page.words
    assert "no epsilon covers these numbers" in words
    assert "0.75" in words
    assert "Left out" not in words


def test_a_report_opens_inline_in_a_frame_of_its_own(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text('<!doctype html><p>"Hello" <script>own()</script></p>', "utf-8")
    reports = Reports([us.ReportPaths(page, tmp_path / "inside.html"), us.ReportPaths(tmp_path / "gone.html", None)])
    found = shown(reports)
    assert found.tags.count("iframe") == 1
    attributes = dict(found.attributes)
    assert attributes["srcdoc"] == page.read_text("utf-8")
    assert attributes["sandbox"] == "allow-scripts"  # and not allow-same-origin: it reaches nothing of the notebook
    assert "The internal one stays in" in found.words
    assert "There is no report at" in found.words


@pytest.mark.parametrize(
    ("done", "total", "seconds", "words"),
    [(0, 9, 5, ""), (9, 9, 5, ""), (3, 9, 0.1, ""), (3, 9, 10, "0:20 left"), (1, 101, 100, "2:46:40 left")],
)
def test_the_time_left_is_told_at_the_pace_so_far(done: int, total: int, seconds: float, words: str) -> None:
    assert progress.left(done, total, seconds) == words


class Handle:
    """What ``IPython.display.display(..., display_id=True)`` gives back."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def __call__(self, picture: Any, *, display_id: bool) -> Handle:
        self.update(picture)
        return self

    def update(self, picture: Any) -> None:
        self.shown.append(picture._repr_html_())


def test_in_a_notebook_lines_and_bars_are_one_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress._notebook() is None, "outside of one"
    handle = Handle()
    monkeypatch.setattr(progress, "_notebook", lambda: handle)
    with progress.shown():
        pass
    assert not handle.shown, "nothing of a call that says nothing"
    with progress.shown() as told:
        told.say(f"Beginning. {EVIL}")
        for done in range(4):
            told.progress("texts", done, 3)
        told.progress("rounds", 0, 0)
    assert "<progress" not in handle.shown[0]
    assert "script>alert" not in handle.shown[0].replace("&lt;script&gt;alert", "")
    last = Page(handle.shown[-1])
    assert last.tags.count("progress") == 2
    assert "3 of 3" in last.words
    assert "Beginning." in last.words


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
