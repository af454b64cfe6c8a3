"""New texts and variations: what is asked for, and what becomes of the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted import EMPTY, FAILED, ScriptedChat, make_api, template_of, with_seed

from understudy.base.errors import ConfigError, ModelError
from understudy.methods.shared.evolution.parameters import EvolutionParameters
from understudy.methods.shared.evolution.variation import keywords_of_labels, with_blanks
from understudy.models.types import Completion
from understudy.run.settings import RUN_GROUPS
from understudy.text.prompts.evolving import EvolutionPrompts
from understudy.text.prompts.template import Example, load_template

TEXT = "The soup was cold, and nobody's waiter came."
NO_LABELS = np.zeros(1, dtype=np.int32)


def test_new_texts_are_asked_for_by_label_with_keyword_style_and_words() -> None:
    chat = ScriptedChat()
    template = template_of(random="{label}/{keyword}/{style}/{words}", styles=("briefly",))
    api = make_api(chat, template=template, keywords=[["wine"], ["shoes"]], min_words=30, max_words=30)
    answers = api.random([1, 2], stage=0)
    assert chat.prompts == ["bars/wine/briefly/30", *["shops/shoes/briefly/30"] * 2]
    assert answers.labels.tolist() == [0, 1, 1]
    assert answers.labels.dtype == np.int32
    assert answers.sources.tolist() == [-1, -1, -1]
    assert answers.prompts[0] == "random|keyword:wine|style:briefly|words:30"
    assert len(set(answers.texts)) == 3  # equal prompts are different samples
    assert answers.failed.tolist() == [0, 0]


def test_the_words_of_new_texts_are_spread_over_the_range() -> None:
    chat = ScriptedChat()
    api = make_api(chat, labels=(), template=template_of(random="{words}"), min_words=10, max_words=12)
    api.random([60], stage=0)
    assert set(chat.prompts) == {"10", "11", "12"}


def test_a_variation_fills_in_blanks() -> None:
    chat = ScriptedChat()
    api = make_api(chat, template=template_of(fill="{label}: {text}"), blank_probability=1)
    answers = api.variations([TEXT], NO_LABELS, stage=0)
    assert chat.prompts == ["bars: _ _ _ _, _ _ _ _."]
    assert answers.sources.tolist() == [0]
    assert answers.prompts == ("variation|blanks:1",)  # the prompt names neither style nor words


def test_without_blanks_a_variation_says_it_in_other_words() -> None:
    chat = ScriptedChat()
    api = make_api(chat, template=template_of(rephrase="Again: {text}"), blank_probability=0)
    answers = api.variations([TEXT], NO_LABELS, stage=0)
    assert chat.prompts == [f"Again: {TEXT}"]
    assert answers.prompts == ("variation|blanks:0",)
    assert TEXT not in make_api(ScriptedChat()).variations([TEXT], NO_LABELS, stage=0).prompts[0]


def test_of_several_prompts_each_call_takes_one_by_lot_and_only_what_it_names_is_noted() -> None:
    chat = ScriptedChat()
    patterns = ["Again: {text}", "Again, on {keyword}: {text}"]
    template = template_of(rephrase=patterns, styles=("briefly",))
    api = make_api(chat, template=template, keywords=[["wine"], []], blank_probability=0)
    answers = api.variations(["x"] * 60, np.zeros(60, dtype=np.int32), stage=0)
    assert set(zip(chat.prompts, answers.prompts, strict=True)) == {
        ("Again: x", "variation|prompt:1|blanks:0"),
        ("Again, on wine: x", "variation|prompt:2|keyword:wine|blanks:0"),
    }
    assert 15 < chat.prompts.count("Again: x") < 45


def test_about_half_of_the_words_become_blanks_and_nothing_else_changes() -> None:
    text = " ".join(f"word{number}," for number in range(2000))
    blanked = with_blanks(text, 0.5, np.random.default_rng(0)).split()
    assert len(blanked) == 2000
    assert all(each.endswith(",") for each in blanked)
    assert 900 < sum(each == "_," for each in blanked) < 1100
    assert with_blanks(" A\n b\t", 0.0, np.random.default_rng(0)) == " A\n b\t"


def test_the_words_asked_for_follow_the_parent_within_the_range() -> None:
    chat = ScriptedChat()
    settings = {"template": template_of(rephrase="{words}"), "blank_probability": 0, "min_words": 3}
    api = make_api(chat, **settings, max_words=8)
    api.variations(["word " * 200, ""], np.zeros(2, dtype=np.int32), stage=0)
    assert chat.prompts[0] == "8"
    assert 3 <= int(chat.prompts[1]) <= 8
    spread = make_api(other := ScriptedChat(), **settings, max_words=1000)
    spread.variations(["word " * 100] * 200, np.zeros(200, dtype=np.int32), stage=0)
    wanted = np.array([int(prompt) for prompt in other.prompts])
    assert wanted.mean() == pytest.approx(100, abs=6)
    assert 16 < wanted.std() < 24


def test_examples_are_earlier_turns_blanked_like_the_text_or_said_again() -> None:
    shown = [{"text": "Old text here.", "again": "Here is it again.", "keyword": "age", "label": "shops"}]
    template = template_of(random="{label}/{keyword}", fill="{text}", rephrase="{text}", examples=shown)
    chat = ScriptedChat()
    api = make_api(chat, template=template, blank_probability=1)
    api.random([1, 0], stage=0)
    api.variations([TEXT], NO_LABELS, stage=1)
    make_api(chat, template=template, blank_probability=0).variations([TEXT], NO_LABELS, stage=2)
    turns = [[message.content for message in request.messages if message.role != "system"] for request in chat.asked]
    assert turns[0] == ["shops/age", "Old text here.", "bars/"]
    assert turns[1] == ["_ _ _.", "Old text here.", "_ _ _ _, _ _ _ _."]
    assert turns[2] == ["Old text here.", "Here is it again.", TEXT]


def test_without_labels_no_prompt_names_one() -> None:
    chat = ScriptedChat()
    template = template_of(random="A text[ ({label})].", examples=[{"text": "T", "label": "L"}])
    make_api(chat, labels=(), template=template).random([2], stage=0)
    for request in chat.asked:
        assert [message.content for message in request.messages if message.role == "user"] == ["A text."] * 2


def test_examples_of_the_user_replace_the_templates_and_take_turns() -> None:
    chat = ScriptedChat()
    examples = tuple(Example(phrases=(f"key{n}",), text=f"Own {n}.") for n in range(3))
    own = load_template("note").model_copy(update={"examples": examples, "evolution": EvolutionPrompts()})
    api = make_api(chat, template=own, writing={"examples_per_prompt": 2})
    api.random([2, 0], stage=0)
    shown = [[message.content for message in request.messages if message.role == "assistant"] for request in chat.asked]
    assert shown == [["Own 0.", "Own 1."], ["Own 2.", "Own 0."]]
    assert "key0" in chat.asked[0].messages[1].content
    other = make_api(chat := ScriptedChat(), template=own, writing={"examples_per_prompt": 0})
    other.random([1, 0], stage=0)
    assert [message.role for message in chat.asked[0].messages] == ["system", "user"]


def test_the_settings_reach_the_request() -> None:
    chat = ScriptedChat()
    api = make_api(chat, writing={"max_tokens": 77, "top_p": 0.5, "llm_temperature": 0.9})
    for number in range(3):
        api.random([1, 0], stage=number)
    assert {request.temperature for request in chat.asked} == {0.9}
    assert {(request.max_tokens, request.top_p) for request in chat.asked} == {(77, 0.5)}


def test_failed_and_blank_answers_are_left_out_and_counted_by_label() -> None:
    answers = iter(["One.", FAILED, " \n", "Four.", Completion("", "empty"), "A _ is left."])
    api = make_api(ScriptedChat(lambda _request: next(answers)))  # answers come last first
    found = api.random([4, 2], stage=0)
    assert found.texts == ("Four.", "One.")
    assert found.labels.tolist() == [0, 1]
    assert found.failed.tolist() == [3, 1]
    assert len(found.prompts) == len(found.sources) == 2


def test_sources_name_the_text_that_each_variation_is_of() -> None:
    chat = ScriptedChat(lambda request: FAILED if "two" in request.messages[-1].content else "Fine.")
    api = make_api(chat, blank_probability=0)
    found = api.variations(["one", "two", "three"], np.array([0, 1, 1], dtype=np.int32), stage=9)
    assert found.sources.tolist() == [0, 2]
    assert found.labels.tolist() == [0, 1]
    assert found.failed.tolist() == [0, 1]


def test_what_is_asked_for_depends_on_seed_and_stage_but_not_on_what_fails() -> None:
    def prompts(reply: str | Completion, *, seed: int = 0, stage: int = 4) -> list[str]:
        chat = ScriptedChat(lambda _request: reply)
        api = with_seed(make_api(chat, keywords=[["a", "b", "c"], ["d"]]), seed)
        api.random([5, 5], stage=stage)
        api.variations([TEXT] * 5, np.zeros(5, dtype=np.int32), stage=stage)
        return chat.prompts

    assert prompts("Fine.") == prompts(EMPTY)
    assert prompts("Fine.") != prompts("Fine.", seed=1)
    assert prompts("Fine.") != prompts("Fine.", stage=5)


def test_equal_prompts_of_other_stages_and_seeds_are_other_samples() -> None:
    chat = ScriptedChat()
    api = make_api(chat, labels=(), template=template_of(random="Same."))
    for seed in (0, 1):
        for stage in (0, 1):
            with_seed(api, seed).random([2], stage=stage)
    assert len({request.key("m") for request in chat.asked}) == 8
    api.random([2], stage=0)
    assert chat.asked[-2:] == chat.asked[:2]  # the same call again asks for the same


def test_evolution_without_a_language_model_is_one_error() -> None:
    with pytest.raises(ModelError, match=r"Evolution needs a language model.* llm"):
        make_api(None)


def test_a_model_that_fails_throughout_is_an_error_and_not_an_empty_population() -> None:
    with pytest.raises(ModelError, match="does not answer: no answer"):
        make_api(ScriptedChat(lambda _request: FAILED)).random([2], stage=0)


# -- what a user may choose -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [("population", 0), ("population", "10,5"), ("population", 2.5), ("blank_probability", -1), ("min_words", 200)],
)
def test_what_cannot_be_is_one_error_of_its_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        EvolutionParameters(**{name: value})


def test_no_name_clashes_with_the_runs_own() -> None:
    taken = {name for group in RUN_GROUPS for name in group.model_fields}
    assert not taken & set(EvolutionParameters.model_fields)


def test_keywords_come_from_the_template_by_label() -> None:
    found = keywords_of_labels(EvolutionParameters(), load_template("review").evolution, ["Hotels & Travel", "Banks"])
    assert "car rental" in found[0]
    assert "service" in found[1]
    assert keywords_of_labels(EvolutionParameters(), EvolutionPrompts(), []) == ((),)


def test_keywords_of_a_file_replace_the_templates(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("soup\r\n\n waiter \n", "utf-8")
    (tmp_path / "words.yaml").write_text("bars: [wine]\nsmoky bars: [whisky]\n'*': [staff]", "utf-8")
    prompts = load_template("review").evolution

    def read(name: str, labels: list[str]) -> tuple[tuple[str, ...], ...]:
        parameters = EvolutionParameters(keywords=str(tmp_path / name), keywords_are_public=True)
        assert "keywords" in parameters.file_hashes
        return keywords_of_labels(parameters, prompts, labels)

    assert read("words.txt", ["a", "b"]) == (("soup", "waiter"),) * 2
    assert read("words.yaml", ["Bars 5.0", "Smoky Bars", "Shops"]) == (("wine",), ("whisky",), ("staff",))


def test_keywords_of_a_file_need_the_users_word_that_they_are_public(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="keywords_are_public"):
        keywords_of_labels(EvolutionParameters(keywords=str(tmp_path / "words.txt")), EvolutionPrompts(), [])


@pytest.mark.parametrize(("name", "text"), [("a.txt", "\n \n"), ("a.yaml", "3"), ("a.yaml", "bars: 3"), ("a.yaml", "")])
def test_a_file_without_keywords_is_one_error(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    parameters = EvolutionParameters(keywords=str(tmp_path / name), keywords_are_public=True)
    with pytest.raises(ConfigError, match=f"{name} contains no keywords"):
        keywords_of_labels(parameters, EvolutionPrompts(), [])
