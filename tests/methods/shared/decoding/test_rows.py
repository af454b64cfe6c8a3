"""Prompts in tokens: what rows share, what is a row's own, what is cut, and the public row."""

from __future__ import annotations

import pytest
from byte_model import BEGIN, ByteModel

from understudy.base.errors import ConfigError, ModelError
from understudy.methods.shared.decoding.prompting import PromptTokens, cut, prompt_tokens
from understudy.models.types import Message
from understudy.text.prompts.predicting import PredictionExample, PredictionPrompt
from understudy.text.prompts.template import PromptTemplate, load_template

SHOT = PredictionExample(text="A shot.")


def memo(*, chat: bool) -> PredictionPrompt:
    return load_template("memo").prediction_prompt(chat=chat, label="work", examples=[SHOT])


def spelled(tokens: PromptTokens, own: list[int]) -> str:
    return bytes(token for token in (*tokens.prefix, *own, *tokens.suffix) if token < 256).decode()


@pytest.mark.parametrize("texts", [(), ("One.",), ("One.", "Two é.")])
def test_a_documents_rows_spell_the_prompt_after_the_token_that_begins_it(texts: tuple[str, ...]) -> None:
    model, prompt = ByteModel(), memo(chat=False)
    tokens = prompt_tokens(prompt, model)
    own = tokens.row(*(tokens.encode(text, prompt=prompt, model=model) for text in texts))
    assert spelled(tokens, own) == prompt.user(texts) + prompt.cue
    assert (tokens.prefix[0], tokens.prefix.count(BEGIN)) == (BEGIN, 1)


@pytest.mark.parametrize("texts", [(), ("One.",), ("One.", "Two é.")])
def test_a_chats_rows_spell_what_the_models_own_template_makes_of_the_chat(texts: tuple[str, ...]) -> None:
    model, prompt = ByteModel(), memo(chat=True)
    tokens = prompt_tokens(prompt, model)
    own = tokens.row(*(tokens.encode(text, prompt=prompt, model=model) for text in texts))
    chat = [Message("system", prompt.system), Message("user", prompt.user(texts))]
    assert spelled(tokens, own) == model.render(chat) + prompt.cue
    assert BEGIN not in tokens.prefix


def test_the_public_row_is_a_row_that_shows_no_text() -> None:
    tokens = prompt_tokens(memo(chat=False), ByteModel())
    assert tokens.row() == []
    assert spelled(tokens, tokens.row()) == memo(chat=False).user(()) + "Text:"


def test_what_rows_share_does_not_depend_on_a_private_text() -> None:
    model, prompt = ByteModel(), memo(chat=True)
    first = prompt_tokens(prompt, model)
    first.encode("A private text.", prompt=prompt, model=model)
    assert prompt_tokens(prompt, model) == first


def test_a_text_is_made_into_tokens_with_the_space_before_it() -> None:
    tokens = prompt_tokens(memo(chat=False), ByteModel())
    assert bytes(tokens.before) == b"\n\nText:"
    assert bytes(tokens.encode(" One.", prompt=memo(chat=False), model=ByteModel())) == b" One."
    assert tokens.after == ()


def test_a_record_follows_the_cue_after_a_space_and_begins_with_its_key() -> None:
    form = {"block": "Film: {text}", "cue": "Film:"}
    template = PromptTemplate(document_type="film", user="x", prediction={"completion_records": form})
    prompt = template.prediction_prompt(chat=False, shape="json", columns=["title"])
    assert bytes(prompt_tokens(prompt, ByteModel()).suffix) == b'\n\nFilm: {"title":'


def test_the_width_is_that_of_the_longest_row_and_is_filled_by_a_cut_text() -> None:
    tokens = prompt_tokens(memo(chat=False), ByteModel())
    text, was_cut = cut(list(b"123456789"), 4)
    assert (bytes(text), was_cut) == (b"1234", True)
    assert cut(list(b"1234"), 4) == (list(b"1234"), False)
    assert len(tokens.row(text)) == tokens.width(4)
    assert len(tokens.row(text, text, text)) == tokens.width(4, texts=3)


@pytest.mark.parametrize("texts", [1, 3])
def test_the_most_that_fits_fills_the_window_and_one_more_token_a_text_does_not(texts: int) -> None:
    tokens = prompt_tokens(memo(chat=True), ByteModel())
    most = tokens.most_fitting(500, new_tokens=50, texts=texts)
    shared = len(tokens.prefix) + len(tokens.suffix) + 50
    assert shared + tokens.width(most, texts=texts) <= 500 < shared + tokens.width(most + 1, texts=texts)
    with pytest.raises(ConfigError, match="leave no room for a private text in the model's window of 200 tokens"):
        tokens.most_fitting(200, new_tokens=50, texts=texts)


def test_a_chat_needs_a_chat_template() -> None:
    with pytest.raises(ConfigError, match="has no chat template"):
        prompt_tokens(memo(chat=True), ByteModel(template=None))


@pytest.mark.parametrize("template", ["<{role}>", "{content}{content}"])
def test_a_chat_template_that_hides_or_repeats_the_users_turn_is_one_error(template: str) -> None:
    with pytest.raises(ModelError, match="does not show a user's turn once"):
        prompt_tokens(memo(chat=True), ByteModel(template=template))
