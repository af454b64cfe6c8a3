"""Texts that must be JSON: asked for with the schema, read out of answers, asked for again, never written otherwise."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clinic import settings
from run_fixtures import runs_charged
from server import FakeEndpoint, Reply, Seen, answer, error

from understudy.base.errors import ConfigError
from understudy.methods.shared.decoding.structured import JSONSchema, ObjectForm
from understudy.models.catalog import load_chat
from understudy.models.collect import collect
from understudy.models.types import ChatRequest, Completion, Message
from understudy.run import pipeline as running
from understudy.run.settings import run_config
from understudy.text.prompts.template import WritingParameters, load_template
from understudy.text.records import Seed
from understudy.text.writing import MOST_TRIES, Form, Writer

pytest.importorskip("jsonschema")
SCHEMA = {
    "type": "object",
    "properties": {
        "subject": {"type": "string"},
        "urgent": {"type": "boolean"},
        "stars": {"type": "integer", "minimum": 2},
        "kind": {"enum": ["question", "complaint"]},
        "message": {"type": "string"},
    },
    "required": ["subject", "message"],
    "additionalProperties": False,
}
GOOD = {"subject": "Refund", "urgent": True, "message": "Please {refund} me."}


@pytest.fixture
def form(tmp_path: Path) -> ObjectForm:
    return object_form(tmp_path, SCHEMA)


def object_form(folder: Path, schema: Any) -> ObjectForm:
    (folder / "schema.json").write_text(json.dumps(schema))
    return ObjectForm(JSONSchema(folder / "schema.json"))


class Answers:
    """Says one thing after another; the last one from then on."""

    model_id = "fake:answers"

    def __init__(self, *texts: str) -> None:
        self.texts, self.asked = list(texts), list[ChatRequest]()

    async def complete(self, requests: Sequence[ChatRequest]) -> AsyncIterator[tuple[int, Completion]]:
        for index, request in enumerate(requests):
            self.asked.append(request)
            yield index, Completion(self.texts.pop(0) if len(self.texts) > 1 else self.texts[0], "stop")


def writer(chat: Any, form: ObjectForm) -> Writer:
    made = Form("JSON", lambda answer: form.read(answer.text), form.example, schema=form.schema.text)
    return Writer(chat, load_template("support ticket"), WritingParameters(), form=made)


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps(GOOD),
        f"```json\n{json.dumps(GOOD, indent=1)}\n```",
        f"Here it is:\n{json.dumps(GOOD)}\nI hope it helps.",
    ],
)
def test_an_object_is_read_out_of_an_answer(form: ObjectForm, answer: str) -> None:
    assert form.read(answer) == json.dumps(GOOD)


@pytest.mark.parametrize(
    "answer",
    [
        *("", "no JSON", "{", "}{", "[1]", "{'subject': 'x'}", '{"subject": 1, "message": "m"}', '{"subject": "s"}'),
        *('{"subject": "s", "message": "m", "more": 1}', '{"subject": "s", "message": "m"} {"a": 1}', "{" * 10_000),
        *('{"subject": "s", "subject": "t", "message": "m"}', '{"subject": "s", "message": "\\ud800"}'),
        '{"subject": "s", "message": "m", "stars": NaN}',
    ],
    ids=lambda each: str(each)[:30],
)
def test_what_does_not_fit_is_not_read(form: ObjectForm, answer: str) -> None:
    assert form.read(answer) is None


def test_an_example_has_the_text_in_its_last_string(form: ObjectForm) -> None:
    shown = form.example("A whole text.", ["phrase", "other"])
    assert shown is not None
    assert json.loads(shown) == {
        **{"subject": "phrase", "urgent": False, "stars": 2, "kind": "question", "message": "A whole text."}
    }


@pytest.mark.parametrize(
    "part", [{"type": "string", "pattern": "^[0-9]+$"}, {"$ref": "#/$defs/x"}, {"type": ["string"]}]
)
def test_a_schema_that_asks_for_more_than_types_has_no_example(tmp_path: Path, part: Any) -> None:
    schema = {**SCHEMA, "properties": {**SCHEMA["properties"], "message": part}, "$defs": {"x": {"const": 5}}}  # type: ignore[dict-item]
    assert object_form(tmp_path, schema).example("A text.", ["phrase"]) is None


def test_the_prompt_shows_the_schema_and_objects_and_asks_for_it(form: ObjectForm) -> None:
    chat = Answers(json.dumps(GOOD))
    (record,) = writer(chat, form).write([Seed(("refund",), 0)])
    (request,) = chat.asked
    assert record.text == json.dumps(GOOD)
    assert record.provenance["asked"] == 1
    assert request.schema == form.schema.text
    assert form.schema.text in request.messages[-1].content
    assert request.stop == ()
    shown = [message.content for message in request.messages if message.role == "assistant"]
    assert len(shown) == 3
    assert all(form.read(text) == text for text in shown)


def test_what_does_not_fit_is_asked_for_again_and_what_never_fits_is_not_written(form: ObjectForm) -> None:
    chat = Answers("no", '{"subject": 5}', json.dumps(GOOD))
    (record,) = writer(chat, form).write([Seed(("refund",), 0)])
    assert record.text == json.dumps(GOOD)
    assert record.provenance["asked"] == len(chat.asked) == 3
    assert len({request.sample for request in chat.asked}) == 3
    chat = Answers("no JSON at all")
    (record,) = writer(chat, form).write([Seed(("refund",), 0)])
    assert record.text == ""
    assert len(chat.asked) == 1 + MOST_TRIES


def test_schema_and_phrases_are_part_of_a_request_s_key() -> None:
    request = ChatRequest((Message("user", "a"),))
    assert request.key("m") != replace(request, schema="{}").key("m")
    assert request.key("m") != replace(request, phrases=("a",)).key("m")


@pytest.mark.parametrize("knows", [True, False])
def test_an_endpoint_is_asked_for_the_schema_as_long_as_it_knows_how(form: ObjectForm, knows: bool) -> None:
    def plan(_number: int, seen: Seen) -> Reply:
        if "response_format" in seen.body and not knows:
            return error(400, "Unsupported parameter: 'response_format'", param="response_format")
        return answer(json.dumps(GOOD))

    with FakeEndpoint(plan) as endpoint:
        chat = load_chat("openai:test", base_url=endpoint.base_url, seed=0, max_concurrency=1)
        requests = [ChatRequest((Message("user", str(number)),), schema=form.schema.text) for number in range(3)]
        assert [form.read(each.text) for each in collect(chat, requests)] == [json.dumps(GOOD)] * 3
        asked = [seen.body.get("response_format") for seen in endpoint.seen]
    if knows:
        assert [each["json_schema"]["schema"] for each in asked] == [SCHEMA] * 3
    else:
        assert [each is None for each in asked] == [False, True, True, True]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"llm": "none"}, "no language model is prompted"),
        ({"method": "aug-pe", "llm": "openai:x"}, "no language model is prompted"),
        ({"json_schema": "no-such-file.json", "llm": "openai:x"}, "cannot be read"),
    ],
)
def test_a_schema_that_cannot_be_kept_is_told_before_anything_is_charged(
    tmp_path: Path, form: ObjectForm, changes: dict[str, Any], problem: str, use_chat: Any
) -> None:
    use_chat(Answers("no"))
    values = settings(tmp_path, **{"json_schema": str(tmp_path / "schema.json"), **changes})
    if changes.get("method"):
        values = {name: each for name, each in values.items() if name not in ("top_terms", "length")}
    with pytest.raises(ConfigError, match=problem):
        running.run(run_config(values))
    assert not runs_charged(values["ledger"])
