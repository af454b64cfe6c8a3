"""Prompts in the tokens of the built-in model itself, where it is in the cache (``make models``)."""

from __future__ import annotations

import json

import pytest

from understudy.methods.shared.decoding.ending import Ending
from understudy.methods.shared.decoding.prompting import prompt_tokens
from understudy.models.builtin import CHAT, is_pulled
from understudy.models.catalog import load_causal
from understudy.models.causal import CausalModel
from understudy.models.types import Message
from understudy.text.prompts.predicting import Shape
from understudy.text.prompts.template import load_template

pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(not is_pulled(CHAT), reason="needs: understudy models pull builtin"),
]
TEXT = "Ferry Service to Return. The council voted – 7 to 2 – for a daily ferry 🚢."
RECORD = {"title": "Night Train to Häuser", "year": 1939, "text": 'A "1939" film.'}


@pytest.fixture(scope="module")
def model() -> CausalModel:
    return load_causal("builtin", device="cpu", dtype="float32")


@pytest.mark.parametrize("texts", [(), (TEXT,)])
def test_a_chats_rows_are_the_tokens_that_the_whole_chat_has(model: CausalModel, texts: tuple[str, ...]) -> None:
    prompt = load_template("news").prediction_prompt(chat=True, label="World")
    tokens = prompt_tokens(prompt, model)
    own = tokens.row(*(tokens.encode(text, prompt=prompt, model=model) for text in texts))
    chat = [Message("system", prompt.system), Message("user", prompt.user(texts))]
    assert [*tokens.prefix, *own, *tokens.suffix] == model.encode(model.render(chat) + prompt.cue)


@pytest.mark.parametrize("shape", ["text", "json"])
def test_a_documents_rows_are_the_tokens_that_the_whole_document_has(model: CausalModel, shape: Shape) -> None:
    columns, text = ((), TEXT) if shape == "text" else (tuple(RECORD), json.dumps(RECORD))
    prompt = load_template("film").prediction_prompt(chat=False, shape=shape, columns=columns)
    tokens = prompt_tokens(prompt, model)
    own = tokens.row(tokens.encode(text, prompt=prompt, model=model))
    whole = model.encode(prompt.user([text]) + prompt.cue + prompt.opening)
    assert [*tokens.prefix, *own, *tokens.suffix] == [*model.begin, *whole]


def test_a_text_comes_back_from_its_tokens(model: CausalModel) -> None:
    ending = Ending.of(load_template("news").prediction_prompt(chat=False), most_tokens=100)
    drawn = ending.read([*model.encode(f" {TEXT}"), *model.encode("\n\nText: Another")], model)
    assert (drawn.text, drawn.ended) == (TEXT, "stop")


def test_a_records_keys_can_be_written_between_its_values(model: CausalModel) -> None:
    prompt = load_template("film").prediction_prompt(chat=False, shape="json", columns=tuple(RECORD))
    text = Ending.of(prompt, most_tokens=100).open(model)
    written = taken = 0
    for value in (' "Night Train to Häuser"', " 1939,", ' "A \\"1939\\" film."'):
        for part in (value, None):
            tokens = model.encode(text.next if part is None else part)
            written += len(tokens) if part is None else 0
            taken += len(tokens)
            for token in tokens:
                text.take(token)
    assert (json.loads(text.text), text.ended) == (RECORD, "closed")
    assert written >= taken / 4
