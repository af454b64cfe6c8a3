"""Answers without text and content filters that come as HTTP 200: never final at once, and never a dead end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from clinic import FakeChat, flags, settings
from evolution_fixtures import embedder, evolving, varied  # noqa: F401
from run_fixtures import Said, runs_charged

from understudy.models.types import ChatRequest, Completion

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
    tmp_path: Path, understudy: Callable[..., Said], use_chat: Callable[[FakeChat], FakeChat], blank: Completion
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
    other = understudy("generate", str(release), "--llm", "fake", "--records", "2", "--output", str(tmp_path / "more"))
    assert other.code == 0


def test_a_prompt_that_is_always_withheld_is_asked_for_three_times_and_then_stays_without_text(
    tmp_path: Path, understudy: Callable[..., Said], use_chat: Callable[[FakeChat], FakeChat]
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
        said = understudy("run", *words)
        assert said.code == 0
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
    tmp_path: Path, understudy: Callable[..., Said], use_chat: Callable[[FakeChat], FakeChat], blank: Completion
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


def test_a_run_whose_calls_all_fail_says_why(
    tmp_path: Path, understudy: Callable[..., Said], use_chat: Callable[[FakeChat], FakeChat]
) -> None:
    use_chat(FakeChat(lambda request: Completion("", "failed", error="the endpoint answered HTTP 429")))
    said = understudy("run", *flags(settings(tmp_path, llm="fake", document_type="note")))
    assert said.code == 6
    assert "wrote no text at all: the endpoint answered HTTP 429." in said.err
