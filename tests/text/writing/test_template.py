"""Prompt templates: the shipped ones, a user's own, placeholders, examples from a file."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest
import yaml

from understudy.base.errors import ConfigError
from understudy.text.prompts.evolving import EvolutionPrompts, fill_in
from understudy.text.prompts.template import Example, PromptTemplate, load_template, with_phrases
from understudy.text.vocabulary.words import kept_phrases

SHIPPED = sorted(
    entry.name.removesuffix(".yaml")
    for entry in resources.files("understudy.text.prompts").joinpath("templates").iterdir()
    if entry.name.endswith(".yaml")
)
PLACEHOLDERS = ("{document_type}", "{phrases}", "{count}", "{label}", "{missing}", "{text}")


def load_shipped(name: str) -> PromptTemplate:
    file = resources.files("understudy.text.prompts").joinpath("templates", f"{name}.yaml")
    return PromptTemplate(**yaml.safe_load(file.read_text("utf-8")))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_template_is_found_by_each_of_its_names_and_its_examples_hold_their_phrases(name: str) -> None:
    template = load_shipped(name)
    assert template.examples
    for example in template.examples:
        assert kept_phrases(example.text, example.phrases) == example.phrases
        assert not any(stop in example.text for stop in template.stop)
    assert template.user_with_label
    for spelling in (template.document_type, *template.names):
        assert load_template(f" {spelling.upper()} ") == template


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_template_names_the_phrases_and_leaves_no_placeholder(name: str) -> None:
    template = load_shipped(name)
    messages = template.messages(["first term", "second"], label="sport", examples=template.examples)
    contents = [message.content for message in messages]
    assert "first term, second" in contents[-1]
    assert "sport" in contents[-1]
    assert "sport" not in template.messages(["first"])[-1].content
    repair = template.repair_messages("A text.", ["second"], ["first term", "second"])[-1].content
    assert "second" in repair
    assert "A text." in repair
    assert not any(mark in content for content in [*contents, repair] for mark in PLACEHOLDERS)


@pytest.mark.parametrize(
    "name", ["clinical_note", "Clinical-Note", " clinical  note", "help-desk_ticket", "DOCTOR'S NOTE"]
)
def test_hyphens_underscores_and_case_do_not_count_in_a_document_type(name: str) -> None:
    assert load_template(name).document_type in ("clinical note", "support ticket")


def test_an_unknown_document_type_fills_the_general_template_with_examples_as_turns() -> None:
    template = load_template("Ship's Log")
    assert template.document_type == "Ship's Log"
    messages = template.messages(["storm"], examples=[Example(phrases=("x", "y"), text="X and y.")])
    assert [message.role for message in messages] == ["system", "user", "assistant", "user"]
    assert "x, y" in messages[1].content
    assert messages[2].content == "X and y."
    assert "Ship's Log" in messages[-1].content


def test_a_template_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "document_type: haiku\nuser: 'A {document_type} on {count}: {phrases}. {other}'\nstop: [END]", "utf-8"
    )
    template = load_template("news", file=path)
    (message,) = template.messages(["snow", "moon"])
    assert message.content == "A haiku on 2: snow, moon. {other}"
    assert (
        template.messages(["snow"], label="x")[-1].content == "A haiku on 1: snow. {other}"
    )  # no pattern with a label
    assert template.stop == ("END",)
    assert "Rewrite this haiku" in template.repair_messages("Old.", ["moon"], ["snow", "moon"])[-1].content


def test_braces_in_phrases_are_not_filled_in() -> None:
    template = PromptTemplate(document_type="note", user="{phrases} {label}")
    assert template.messages(["{label}"], label="{phrases}")[-1].content == "{label} {phrases}"


BAD_EVOLUTION = ("3", "{more: b}", "{styles: briefly}", "{keywords: snow}", "{examples: [{again: b}]}")
BAD_PREDICTION = ("3", "{more: b}", "{chat: {block: x}}", "{chat: {block: '{text}{text}'}}", "{examples: [a]}")


@pytest.mark.parametrize(
    "text",
    [
        *("", "- a", "document_type: x\nuser: a\nstop: b", "user: [", "1: 2", "user: a\nmore: b"),
        *(f"document_type: haiku\nuser: a\nevolution: {block}" for block in BAD_EVOLUTION),
        *(f"document_type: haiku\nuser: a\nprediction: {block}" for block in BAD_PREDICTION),
    ],
)
def test_a_file_that_is_no_template_is_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=r"mine.yaml is not a prompt template.* See docs/prompts.md for its form"):
        load_template("news", file=path)


EXAMPLES = "examples_are_public: true\nexamples:\n- Chest pain, no fever.\n- Nothing known.\n"


def test_examples_without_phrases_get_those_that_they_hold(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(EXAMPLES + "- {text: ' A b. ', phrases: [zeta]}", "utf-8")
    shown = load_template("news", file=path).examples
    examples = with_phrases(shown, ["fever", "chest pain", "pain"], count=2)
    assert [(example.text, example.phrases) for example in examples] == [
        *(("Chest pain, no fever.", ("fever", "chest pain")), ("A b.", ("zeta",)))
    ]
    with pytest.raises(ConfigError, match="No example in the prompt file contains a phrase of the Release"):
        with_phrases(shown[1:2], ["fever"], count=3)


def test_a_file_that_asks_for_nothing_changes_the_template_that_there_is(tmp_path: Path) -> None:
    path, shipped = tmp_path / "mine.yaml", load_template("clinical note")
    path.write_text("settings: {label_in_prompt: true, repair: 2, top_p: 0.5}", "utf-8")
    changed = load_template("clinical note", file=path)
    assert (changed.settings.label_in_prompt, changed.settings.repair, changed.settings.top_p) == (True, 2, 0.5)
    assert changed.model_copy(update={"settings": shipped.settings}) == shipped
    assert changed.sha256 != shipped.sha256
    path.write_text(EXAMPLES, "utf-8")
    changed = load_template("clinical note", file=path)
    assert (changed.user, changed.evolution.random) == (shipped.user, shipped.evolution.random)
    assert [each.text for each in changed.evolution_examples] == ["Chest pain, no fever.", "Nothing known."]
    assert [each.text for each in changed.prediction_examples()] == ["Chest pain, no fever.", "Nothing known."]


@pytest.mark.parametrize(
    "shown",
    [
        "examples: [A note.]",
        "examples: [{text: A note., phrases: [note]}]",
        "rows: [{parts: [A note., b], phrases: [note]}]",
        "dialogues: [{parts: [A note., b], phrases: [note]}]",
        "evolution: {examples: [{text: A note.}]}",
        "prediction: {examples: [{text: A note.}]}",
        "prediction: {records: [{fields: {a: A note.}}]}",
    ],
)
def test_examples_of_a_users_own_must_be_said_to_be_public(tmp_path: Path, shown: str) -> None:
    path = tmp_path / "mine.yaml"
    for more in ("", "\nuser: '{phrases}'\ndocument_type: note"):
        path.write_text(shown + more, "utf-8")
        with pytest.raises(ConfigError, match="`examples_are_public: true`"):
            load_template("news", file=path)
        path.write_text(f"{shown}{more}\nexamples_are_public: true", "utf-8")
        assert load_template("news", file=path).examples_are_public


def test_a_file_that_shows_nothing_of_its_own_need_not_say_so(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("examples: []\nevolution: {system: A poet.}\nsettings: {repair: 1}", "utf-8")
    assert load_template("news", file=path).evolution.system == "A poet."


VALUES = {"label": "sport", "keyword": "a comeback", "style": "briefly", "words": "40", "text": "An [old] {text}."}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_templates_evolution_prompts_name_what_is_wanted(name: str) -> None:
    template = load_shipped(name)
    prompts = template.evolution
    for pattern in (*prompts.random, *prompts.fill, *prompts.rephrase):
        content = template.evolution_messages(pattern, VALUES)[-1].content
        assert all(wish in content for wish in ("sport", "briefly", "40"))
        assert ("a comeback" in content) == ("{keyword}" in pattern)
        assert (VALUES["text"] in content) == (pattern not in prompts.random)
        assert not set("[]{}") & set(content.replace(VALUES["text"], ""))
    assert all("{keyword}" in pattern for pattern in prompts.random)
    assert len(prompts.styles) >= 5


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_templates_evolution_examples_come_twice_in_different_words(name: str) -> None:
    template = load_shipped(name)
    assert len(template.evolution.examples) >= 3
    assert template.evolution_examples == template.evolution.examples
    for example in template.evolution.examples:
        assert example.text
        assert example.again not in ("", example.text)
        assert not any(stop in text for stop in template.stop for text in (example.text, example.again))
    if template.evolution.keywords:
        assert len(template.evolution.keywords_of("")) >= 10


def test_a_part_in_brackets_is_left_out_where_it_would_be_empty() -> None:
    pattern = "Write[ ({label})][ on {keyword} in {style}][ as is][ {unknown}]."
    assert fill_in(pattern, {"label": "x", "keyword": "y", "style": "z"}) == "Write (x) on y in z[ as is][ {unknown}]."
    assert fill_in(pattern, {"label": "", "keyword": "y", "style": ""}) == "Write[ as is][ {unknown}]."
    assert fill_in("{text}", {"text": "[{label}] {text}", "label": ""}) == "[{label}] {text}"


def test_a_template_without_evolution_has_the_general_prompts_and_its_own_examples(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "document_type: haiku\nsystem: A poet.\nuser: '{phrases}'\n"
        "examples: [{phrases: [snow, cold], text: Snow.}]\nexamples_are_public: true",
        "utf-8",
    )
    template = load_template("", file=path)
    assert template.evolution == EvolutionPrompts()
    assert [(each.text, each.keyword) for each in template.evolution_examples] == [("Snow.", "snow")]
    system, question, answer, asked = template.evolution_messages(
        template.evolution.random[0],
        {"style": "briefly", "words": "9", "label": "", "keyword": ""},
        turns=[({"keyword": "snow"}, "Snow.")],
    )
    assert system.content == "A poet."
    assert (question.role, answer.role, answer.content) == ("user", "assistant", "Snow.")
    assert asked.content == "Write a short haiku. Write briefly. Use about 9 words."


def test_an_evolution_block_replaces_only_what_it_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "document_type: haiku\nsystem: A poet.\nuser: '{phrases}'\n"
        "evolution: {system: '', random: 'One[ on {keyword}]', keywords: [snow, moon]}",
        "utf-8",
    )
    template = load_template("", file=path)
    (message,) = template.evolution_messages(template.evolution.random[0], {"keyword": "snow"})
    assert message.content == "One on snow"
    assert template.evolution.keywords_of("any label") == ("snow", "moon")
    assert template.evolution.rephrase == EvolutionPrompts().rephrase


def test_keywords_go_by_the_longest_name_in_the_label() -> None:
    prompts = EvolutionPrompts(keywords={"bars": ["wine"], "wine bars": ["port"], "*": ["staff"]})
    assert prompts.keywords_of("Bars, 4 stars") == ("wine",)
    assert prompts.keywords_of("WINE-BARS") == ("port",)
    assert prompts.keywords_of("barstools") == ("staff",)
    assert EvolutionPrompts().keywords_of("bars") == ()


def test_no_two_shipped_templates_share_a_name() -> None:
    templates = [load_shipped(name) for name in SHIPPED]
    names = [name for template in templates for name in (template.document_type, *template.names)]
    assert len(set(names)) == len(names)
    assert all(name == name.strip().lower() for name in names)
