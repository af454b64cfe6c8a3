"""What a user may choose: schedules, contradictions, names that clash with nobody's, keywords from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from understudy.base.errors import ConfigError
from understudy.methods.shared.evolution.parameters import EvolutionParameters
from understudy.methods.shared.evolution.variation import keywords_of_labels
from understudy.run.settings import RUN_GROUPS
from understudy.text.prompts.evolving import EvolutionPrompts
from understudy.text.prompts.template import load_template


@pytest.mark.parametrize("given", ["2000,500, 100", [2000, 500, 100], (2000, 500, 100)])
def test_a_schedule_has_a_size_a_round_and_the_last_repeats(given: Any) -> None:
    parameters = EvolutionParameters(population=given)
    assert [parameters.population_at(number) for number in range(5)] == [2000, 500, 100, 100, 100]
    assert EvolutionParameters(**parameters.model_dump(mode="json")) == parameters


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("population", ""),
        ("population", 0),
        ("population", ()),
        ("population", "10,x"),
        ("population", 2.5),
        ("blank_probability", "0.5,-1"),
        ("min_words", 200),
    ],
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
    with pytest.raises(ConfigError, match=f"{name} holds no keywords"):
        keywords_of_labels(parameters, EvolutionPrompts(), [])
