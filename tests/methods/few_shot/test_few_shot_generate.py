"""Texts from exemplars: what a language model is shown, and what becomes of its answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from clinic import FakeChat
from few_shots import TEMPLATE, method

from understudy.base.errors import ModelError
from understudy.methods.facts import GenerationTools
from understudy.methods.shared.decoding.structured import SCHEMA
from understudy.models.types import ChatRequest, Completion
from understudy.release import PublicSchema
from understudy.text.prompts.predicting import PredictionExample
from understudy.text.prompts.template import WritingParameters
from understudy.text.records import Row, Rows, SyntheticRecord
from understudy.text.writing import Writer

EXEMPLARS = ("red one", "red two", "red unusable", "blue one", "blue two", "blue three")
NAMES = ("red", "blue", "green")


class Stored:
    """What generate needs of a Release."""

    def __init__(self, columns: Sequence[str] = (), schema: str = "", exemplars: Sequence[str] = EXEMPLARS) -> None:
        self.schema = PublicSchema("text", "colour", NAMES, tuple(columns))
        self.arrays = {
            "label": np.array([NAMES.index(text.split()[0]) for text in EXEMPLARS], dtype=np.int32),
            "usable": np.array(["unusable" not in text for text in EXEMPLARS]),
        }
        self.strings = {"exemplars": list(exemplars), **({SCHEMA: [schema]} if schema else {})}


def generate(
    chat: FakeChat,
    counts: Sequence[int] = (2, 2, 0),
    *,
    seed: int = 0,
    said: list[str] | None = None,
    stored: Stored | None = None,
    writing: WritingParameters | None = None,
    rows: Rows | None = None,
    **parameters: Any,
) -> list[SyntheticRecord]:
    template = TEMPLATE.model_copy(
        update={
            "prediction": TEMPLATE.prediction.model_copy(update={"examples": (PredictionExample(text="a public one"),)})
        }
    )
    writer = Writer(chat, template, writing or WritingParameters(), labels=NAMES, seed=seed, rows=rows)
    tools = GenerationTools(writer, seed=seed, say=(said if said is not None else []).append)
    return list(method(**parameters).generate(stored or Stored(), counts, tools=tools))  # type: ignore[arg-type]


def replies(*texts: str) -> Callable[[ChatRequest], Completion]:
    waiting = iter(texts)
    return lambda _request: Completion(next(waiting), "stop", 9, 9)


def prompts(chat: FakeChat) -> list[str]:
    return ["\n".join(message.content for message in request.messages) for request in chat.asked]


def test_a_prompt_shows_usable_exemplars_of_its_label_alone() -> None:
    chat = FakeChat(replies(*"abcd"))
    made = generate(chat)
    assert [record.label for record in made] == [0, 0, 1, 1]
    assert [record.text for record in made] == list("abcd")
    for prompt in prompts(chat)[:2]:
        assert "red one" in prompt
        assert "red two" in prompt
    for prompt in prompts(chat):
        assert "unusable" not in prompt
        assert "public" not in prompt
        assert ("red" in prompt) != ("blue" in prompt)
    assert made[0].provenance["exemplars"] in ([0, 1], [1, 0])
    assert made[0].provenance["model"] == "fake:chat"


def test_fewer_exemplars_are_drawn_anew_for_every_prompt_and_another_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.methods.few_shot.generate.EXEMPLARS_PER_PROMPT", 1)
    chats = [FakeChat() for _ in range(3)]
    for chat, seed in zip(chats, (0, 0, 1), strict=True):
        generate(chat, (0, 40, 0), seed=seed)
    shown = [[prompt.count("blue one") + 2 * prompt.count("blue two") for prompt in prompts(chat)] for chat in chats]
    assert shown[0] == shown[1] != shown[2]
    assert set(shown[0]) == {0, 1, 2}
    assert chats[0].keys == chats[1].keys
    assert len(set(chats[0].keys)) == 40, "each is another sample"


def test_a_label_without_exemplars_is_asked_for_with_public_examples_and_it_is_said() -> None:
    said: list[str] = []
    chat = FakeChat(replies("something"))
    (record,) = generate(chat, (0, 0, 1), said=said)
    assert "a public one" in prompts(chat)[0]
    assert record.provenance["exemplars"] == []
    assert said == ["For green there is no usable exemplar: prompts have none (zero-shot)."]
    generate(FakeChat(), (1, 1, 0), said=said)
    assert len(said) == 1


def test_answers_that_are_no_records_are_left_out_and_counted() -> None:
    said: list[str] = []
    schema = json.dumps({"properties": {"year": {"type": "integer"}}})
    good = '{"title": "Rain", "year": 1954}'
    answers = (
        f"Sure!\n```json\n{good}\n```",
        '{"year": 1954, "title": "Rain"}',
        "No.",
        '{"title": "Rain"}',
        '{"title": "Rain", "year": "then"}',
        "",
    )
    stored = Stored(("title", "year"), schema, [f'{{"title": "{text}", "year": 1}}' for text in EXEMPLARS])
    made = generate(FakeChat(replies(*answers)), (6, 0, 0), said=said, stored=stored)
    assert [record.text for record in made] == [good, good, "", "", "", ""]
    assert [record.provenance.get("fault") for record in made] == [None, None, "not JSON", "columns", "schema", None]
    assert said == ["3 of 6 texts are left out, because their answers are invalid (not JSON 1, columns 1, schema 1)."]


def test_of_several_samples_the_first_that_can_be_used_counts() -> None:
    stored = Stored(("title",), "", [f'{{"title": "{text}"}}' for text in EXEMPLARS])
    chat = FakeChat(replies("no", '{"title": "b"}', '{"title": "c"}'))
    (record,) = generate(chat, (1, 0, 0), stored=stored, writing=WritingParameters(samples=3))
    assert record.text == '{"title": "b"}'
    assert "fault" not in record.provenance
    assert len(set(chat.keys)) == 3


@pytest.mark.usefixtures("gate_reads")
def test_a_model_that_never_writes_a_good_text_gets_few_requests() -> None:
    for text in ("Always the same words.", "I'm sorry, but I can't help with that request."):
        chat = FakeChat(lambda _request, text=text: Completion(text, "stop", 9, 9))
        with pytest.raises(ModelError, match=r"1[56] of 16 texts (are nearly the same|refuse)"):
            generate(chat, (50, 50, 0))
        assert len(chat.asked) == 16


def test_the_forecast_counts_a_call_a_sample_and_prompts_with_exemplars() -> None:
    chosen = method(exemplar_tokens=100, exemplars=4)
    asks = chosen.estimate_calls([3, 2], WritingParameters(samples=2), TEMPLATE)
    assert asks.calls == 10
    assert 1600 < asks.characters < 2000


class Numbered:
    """Rows that are numbered within their label."""

    def __init__(self) -> None:
        self.taken = [0] * len(NAMES)

    def take(self, label: int) -> Row:
        self.taken[label] += 1
        return Row((self.taken[label],), f"size: {self.taken[label]}")


def test_a_text_is_asked_to_fit_the_row_that_it_gets() -> None:
    chat = FakeChat(replies(*"abcd"))
    made = generate(chat, rows=Numbered())
    assert [record.columns for record in made] == [(1,), (2,), (1,), (2,)]
    for number, request in enumerate(chat.asked):
        assert request.messages[-1].content.startswith(f"Details: size: {number % 2 + 1}.\n\n")
        assert not [message for message in request.messages[:-1] if "size" in message.content]
