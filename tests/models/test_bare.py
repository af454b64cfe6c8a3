"""What is clearly not text goes, whatever may be a text stays, and no stop string cuts a thought."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from endpoint_fixtures import ask, chat, clean_environment_fixture, endpoint_fixture  # noqa: F401
from server import FakeEndpoint, Reply, Seen, answer

from understudy.models.bare import without_thoughts, without_wrapping
from understudy.models.collect import collect
from understudy.models.connection import read_answer
from understudy.models.local import Prompt, _Row

TEXT = "Our router lost its connection, and it's the third time."
PROMPT = "Write one short document in natural sentences. Use all of these words: router, time."


def bare(content: str) -> str:
    return without_wrapping(without_thoughts(content)[0], PROMPT)[0]


@pytest.mark.parametrize(
    "content",
    [
        f"<thinking>The user wants it.</thinking>\n\n{TEXT}",
        f"<THOUGHT>One.\n\nTwo.</thought>\n{TEXT}",
        f"<reasoning>Hm.</reasoning>{TEXT}",
        f'<think time="3">Hm.</Think>{TEXT}',
        f"<seed:think>Hm.</seed:think>{TEXT}",
        f"[THINK]Hm.[/THINK]{TEXT}",
        f"◁think▷Hm.◁/think▷{TEXT}",
        f"Opened in the prompt.\n\n</thinking>{TEXT}",
        f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>{TEXT}<|return|>",
        f"analysisThe user wants it.assistantfinal{TEXT}",
        f"<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>{TEXT}<|END_RESPONSE|>",
        f"{TEXT}<|im_end|>\n<|im_start|>user\nAnd more",
        f"<s> {TEXT}</s> And more",
        f"<|start_header_id|>assistant<|end_header_id|>\n\n{TEXT}<|eot_id|>",
        f"{TEXT}<end_of_turn>\n<start_of_turn>user",
        f"<｜Assistant｜>{TEXT}<｜end▁of▁sentence｜>",
        f"```text\n{TEXT}\n```",
        f"```\n{TEXT}",
        f"<answer>{TEXT}</answer>",
        f'"{TEXT}"',
        f"„{TEXT}“",
        f"{PROMPT}\n{TEXT}",
        f"Sure! Here is the text you asked for:\n\n{TEXT}\n\nLet me know if you need anything else!",
        f"Certainly! Here's a short ticket that uses all of the words:\n\n```\n{TEXT}\n```\n\nHope it helps.",
        f"**Here is the rewritten text:**\n---\n{TEXT}\n---\nFeel free to ask.",
        f"Okay, here's a realistic hotel review: {TEXT}",
        f"Natürlich! Hier ist der Text:\n\n{TEXT}",
        f"{TEXT}\n\n(Note: this text contains all of the words.)",
    ],
)
def test_what_is_clearly_not_text_is_removed(content: str) -> None:
    assert bare(content) == TEXT


@pytest.mark.parametrize(
    "text",
    [
        "Sure, here is my address:\n12 Elm Street",
        "Sure, here is the order number you requested:\n123",
        "Okay, here is what happened: it broke.",
        "Sure! Here is our offer:\n\nTwo nights.",
        "Sure.\n\nI will come.",
        "Here is the error message:\n\nError 404",
        "Here is the ticket number: 55",
        "Here are the texts I received:\n\nPay now",
        "Here is a summary of the problem: it broke",
        "I cannot log in.\n\nPlease let me know if you need anything else!",
        "Would you like me to create a ticket?",
        "Run this:\n```\nls\n```\nThen restart.",
        "```\nls\n```\nThis fails each time.",
        "```\nls\n```\nor\n```\ndir\n```",
        "It costs <s>20</s> 10.",  # HTML
        "A prompt ends with `<|im_end|>` there.",
        "f <| x |> g",
        "Analysis of the assistant final exam",
        "[thinking] To be or not to be",
        "We met the <thought> police at </reasoning>.",
        "<ticket>\n  <body>Broken</body>\n</ticket>",
        '"Dune" by Herbert and "Emma"',
        "Write one short document in natural sentences, he said.",
    ],
)
def test_what_may_be_a_text_stays(text: str) -> None:
    assert bare(text) == text


@pytest.mark.parametrize(
    "content",
    [
        *(
            "<think>Hm.\n\nSo",
            "<Thinking>Hm",
            "<thought>Hm",
            "[THINK]Hm",
            "◁think▷Hm",
            "<|channel|>analysis<|message|>H",
        ),
        *("Sure! Here is the text you asked for:", PROMPT),
    ],
)
def test_an_answer_that_never_came_to_its_text_is_empty(content: str) -> None:
    assert bare(content) == ""


@pytest.mark.parametrize(
    "run", ["<think>", "\n<thought>", "<|channel|>", "```\n", "here is a text ", "</s>", "`", "\n---"]
)
def test_an_odd_answer_is_read_once(run: str) -> None:
    """A pattern that reads it again from each place would take minutes."""
    for before in ("", "x", "Sure! Here is a text:\n"):
        bare(before + run * (200_000 // len(run)))


def test_json_is_left_as_it_is() -> None:
    content = '<think>Hm.</think>"Here is a text: {}"</s>'
    document = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
    assert read_answer(document, ask(schema="{}"), most=1000).text == '"Here is a text: {}"'


# -- stop strings -----------------------------------------------------------------------------------------------------


def honours_stop(content: str, **message: Any) -> Any:
    """A server that ends the whole answer, thoughts included, at the first stop string."""

    def plan(number: int, seen: Seen) -> Reply:
        ends = [content.index(stop) for stop in seen.body.get("stop", ()) if stop in content]
        return answer(content[: min(ends, default=len(content))], **message)

    return plan


@pytest.mark.parametrize(
    "before",
    [
        *("<think>\nOkay.\n\nNow.\n</think>\n\n", "Okay.\n\nNow.\n</think>\n\n", "[THINK]Okay.\n\nNow.[/THINK]"),
        *("Sure! Here is the text you asked for:\n\n", "```\n\n"),
    ],
)
def test_no_stop_string_cuts_what_comes_before_the_text(endpoint: FakeEndpoint, before: str) -> None:
    endpoint.plan = honours_stop(f"{before}{TEXT}\n\nMore.")
    model = chat(endpoint, max_concurrency=2)
    completions = collect(model, [ask(f"question {number}", stop=("\n\n",)) for number in range(6)])
    assert {(done.text, done.finish_reason) for done in completions} == {(TEXT, "stop")}
    assert not any("stop" in seen.body for seen in endpoint.seen)
    assert len(endpoint.seen) == 6


def test_a_model_that_begins_to_think_later_gets_a_second_try_without_stop(endpoint: FakeEndpoint) -> None:
    thinks = honours_stop(f"<think>Okay.\n\nNow.</think>{TEXT}")
    endpoint.plan = lambda number, seen: answer(TEXT) if number == 0 else thinks(number, seen)
    model = chat(endpoint, max_concurrency=1)
    completions = collect(model, [ask(f"question {number}", stop=("\n\n",)) for number in range(3)])
    assert [done.text for done in completions] == [TEXT] * 3
    assert ["stop" in seen.body for seen in endpoint.seen] == [False, True, False, False]
    assert model.dialect.reasons


class Bytes:
    @staticmethod
    def decode(tokens: list[int], *, skip_special_tokens: bool) -> str:
        return bytes(tokens).decode()


@pytest.mark.parametrize(("chats", "text"), [(True, "Yes."), (False, "<think>A")])
def test_a_local_model_that_chats_is_not_stopped_while_it_thinks(chats: bool, text: str) -> None:
    row = _Row(Prompt([1], 0.0, 1.0, ("\n\n",), np.zeros(99), chats=chats))
    for token in b"<think>A\n\nB</think>Yes.\n\nMore":
        if row.reason is None:
            row.take(token, None, Bytes(), frozenset())
    assert (row.completion(Bytes()).text, row.reason) == (text, "stop")


# -- the warning ------------------------------------------------------------------------------------------------------
