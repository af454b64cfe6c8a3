"""Prompts for predicting texts: pieces, shapes, labels, examples, and the prompt without private texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_template import SHIPPED, load_shipped

from understudy.models.types import Message
from understudy.text.prompts.predicting import (
    PredictionExample,
    PredictionPrompt,
    PredictionPrompts,
    Shape,
    shown_examples,
)
from understudy.text.prompts.template import PromptTemplate, load_template

SHOTS = (PredictionExample(text="First shot.", label="sport"), PredictionExample(text="Second shot."))
COLUMNS = ("title", "year")
RECORD = '{"title": "Rain", "year": 1954}'


def whole(prompt: PredictionPrompt, *texts: str) -> str:
    return prompt.user(texts) + prompt.cue + prompt.opening


def test_a_chat_shows_the_instruction_the_public_then_the_private_texts_and_asks_for_another() -> None:
    prompt = load_template("memo").prediction_prompt(chat=True, label="work", examples=SHOTS)
    assert prompt.user(["Private one.", "Private two."]) == (
        "Here are texts of type memo about work.\n\nText: First shot.\n\nText: Second shot.\n\n"
        "Text: Private one.\n\nText: Private two.\n\nPlease give me another one."
    )
    assert (prompt.cue, prompt.opening, prompt.stop) == ("Text:", "", ("\n\n",))
    assert prompt.system == load_template("memo").system


def test_a_document_ends_with_the_cue_and_has_no_system_message() -> None:
    prompt = load_template("memo").prediction_prompt(chat=False, examples=SHOTS[:1])
    assert whole(prompt, "Private.") == "Here are texts of type memo.\n\nText: First shot.\n\nText: Private.\n\nText:"
    assert prompt.system == ""


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("shape", ["text", "json"])
@pytest.mark.parametrize("name", SHIPPED)
def test_the_public_prompt_is_the_prompt_with_the_private_texts_left_out(name: str, shape: Shape, chat: bool) -> None:
    template = load_shipped(name)
    columns = () if shape == "text" else COLUMNS
    prompt = template.prediction_prompt(chat=chat, label="sport", shape=shape, columns=columns)
    private = RECORD if columns else "A private text."
    shown, public = whole(prompt, private), whole(prompt)
    assert shown.replace(prompt.shown(private).join(prompt.block), "") == public
    assert "sport" in public
    assert template.document_type in public
    assert all(name in public for name in columns)
    if shape == "text":
        assert all(each.text in public for each in template.evolution_examples)
        assert not set("[]{}") & set(public)


def test_a_record_begins_with_its_first_key() -> None:
    template = load_template("log entry")
    as_json = template.prediction_prompt(chat=False, shape="json", columns=COLUMNS, schema='{"type": "object"}')
    assert whole(as_json, RECORD) == (
        'Here are records of type log entry, with the fields "title", "year". They follow this JSON schema: '
        f'{{"type": "object"}}\n\n{RECORD}\n\n{{"title":'
    )


def test_blank_lines_in_a_text_go_where_they_would_end_one() -> None:
    template = load_template("memo")
    assert template.prediction_prompt(chat=False).shown(" One.\n\n \r\nTwo.\nThree. ") == "One.\nTwo.\nThree."
    block = PredictionPrompts(completion={"stop": "\n###"})
    kept = template.model_copy(update={"prediction": block}).prediction_prompt(chat=False)
    assert kept.shown(" One.\n\nTwo. ") == "One.\n\nTwo."


def test_braces_and_brackets_in_texts_and_labels_stay_as_they_are() -> None:
    prompt = load_template("memo").prediction_prompt(chat=True, label="[x {columns}]", examples=())
    assert prompt.user(["{label} [about {label}]"]) == (
        "Here are texts of type memo about [x {columns}].\n\n"
        "Text: {label} [about {label}]\n\nPlease give me another one."
    )


def test_a_block_may_name_the_label_of_each_shown_text() -> None:
    form = {"before": "Memos.", "block": "[Kind: {label}\n]Text: {text}", "cue": "[Kind: {label}\n]Text:"}
    template = PromptTemplate(document_type="memo", user="x", prediction={"completion": form})
    prompt = template.prediction_prompt(chat=False, label="work", examples=SHOTS)
    assert whole(prompt, "Private.") == (
        "Memos.\n\nKind: sport\nText: First shot.\n\nText: Second shot.\n\n"
        "Kind: work\nText: Private.\n\nKind: work\nText:"
    )


def test_examples_of_the_label_are_shown_before_others() -> None:
    examples = [PredictionExample(text=str(number), label="ab"[number % 2]) for number in range(5)]
    assert [each.text for each in shown_examples(examples, "B", most=3)] == ["0", "1", "3"]
    assert [each.text for each in shown_examples(examples, "", most=2)] == ["0", "1"]
    assert shown_examples(examples, "a") == tuple(examples)
    prompt = load_template("news").prediction_prompt(chat=False, label="Sports", most_examples=1)
    assert "Late Goal" in prompt.before
    assert prompt.before.count("Text:") == 1


def test_public_records_are_shown_where_they_have_the_columns() -> None:
    template = load_template("film record")
    prompt = template.prediction_prompt(chat=False, shape="json", columns=("year", "title"))
    assert '{"year": 1934, "title": "The Winter Ferry"}\n\n' in prompt.before
    assert "{" not in template.prediction_prompt(chat=False, shape="json", columns=("year", "price")).before
    questions = load_template("film question")
    for column, count in (("director", 4), ("genre", 4), ("studio", 0)):
        before = questions.prediction_prompt(chat=False, shape="json", columns=("text", column)).before
        assert before.count(f'"{column}": ') == count


@pytest.mark.parametrize("name", ["film_record", "film_question"])
def test_the_phrase_of_a_shipped_extraction_pair_stands_in_its_sentence(name: str) -> None:
    records = load_shipped(name).prediction.records
    assert len(records) >= 3
    for record in records:
        fields = record.fields
        if name == "film_question":
            assert all(str(value) in fields["text"] for value in fields.values())
        else:
            assert fields["title"] in fields["text"]
            assert record.label == fields["label"]


def test_exemplars_are_earlier_answers_of_any_chat_model_that_is_asked_for_another_one() -> None:
    template = load_template("memo")
    prompt = template.prediction_prompt(chat=True, label="work")
    first = Message("user", "Please give me a text of type memo about work. Answer with the text only.")
    again = Message("user", "Please give me another one.")
    system = Message("system", template.system)
    answers = [Message("assistant", text) for text in ("A.", "B.")]
    assert prompt.messages(["A.", "B."]) == (system, first, answers[0], again, answers[1], again)
    assert prompt.messages([]) == (system, first)


def test_exemplars_that_are_records_are_asked_for_by_their_fields() -> None:
    prompt = load_template("memo").prediction_prompt(chat=True, shape="json", columns=COLUMNS, schema="{}")
    ask, shown, _ = prompt.messages([RECORD])
    assert all(name in ask.content for name in (*COLUMNS, "follows this JSON schema: {}"))
    assert shown.content == RECORD


def test_a_prediction_block_replaces_only_what_it_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "document_type: haiku\nsystem: A poet.\nuser: '{phrases}'\n"
        "prediction: {system: '', chat: {after: 'One more[ on {label}].'}, examples: [{text: Snow.}]}\n"
        "examples_are_public: true",
        "utf-8",
    )
    template = load_template("", file=path)
    prompt = template.prediction_prompt(chat=True, label="rain")
    assert (prompt.system, prompt.after, prompt.cue) == ("", "\n\nOne more on rain.", "Text:")
    assert prompt.before.endswith("\n\nText: Snow.")
    assert template.prediction_prompt(chat=False) == PromptTemplate(
        document_type="haiku", user="x", prediction={"examples": [{"text": "Snow."}]}
    ).prediction_prompt(chat=False)


def test_general_prompts_for_predicting_leave_a_templates_hash_as_it_was() -> None:
    plain = PromptTemplate(document_type="haiku", user="x")
    assert plain.sha256 == PromptTemplate(document_type="haiku", user="x", prediction={}).sha256
    assert plain.sha256 != PromptTemplate(document_type="haiku", user="x", prediction={"system": "y"}).sha256
