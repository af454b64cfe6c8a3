"""YAML files are read as their writers mean them."""

from __future__ import annotations

import pytest

from understudy.base.files import UnreadableText
from understudy.base.parameters import Parameters
from understudy.base.yaml_text import load_yaml


def test_yes_and_no_are_words_and_true_and_false_are_not() -> None:
    assert load_yaml("labels: [yes, No, on, OFF]") == {"labels": ["yes", "No", "on", "OFF"]}
    assert load_yaml("labels: [true, False]\nno: 1") == {"labels": [True, False], "no": 1}
    assert load_yaml("a: 2024-03-01\nb: 0.5\nc: ~\nd: null")["c"] is None


@pytest.mark.parametrize(("said", "meant"), [("yes", True), ("no", False), ("on", True), ("off", False)])
def test_a_parameter_that_is_true_or_false_takes_yes_and_no(said: str, meant: bool) -> None:
    class Switch(Parameters):
        fresh: bool = not meant

    assert Switch(**load_yaml(f"fresh: {said}")).fresh is meant


@pytest.mark.parametrize("text", ["a: 1\na: 2", "b:\n  a: [1]\n  a: [2]", "[{a: 1, 'a': 2}]"])
def test_a_name_that_stands_twice_is_refused(text: str) -> None:
    with pytest.raises(UnreadableText, match="stands twice, again at line"):
        load_yaml(text)


def test_what_is_merged_may_be_overridden() -> None:
    assert load_yaml("x: &x {a: 1}\ny:\n  <<: *x\n  a: 2\nz: {a: 3}")["y"] == {"a": 2}


@pytest.mark.parametrize(
    "text", ["a: *secret", "secret: [", "!secret a", "\tsecret: 1", "secret: b: c", "a: \x00secret"]
)
def test_what_is_no_yaml_is_refused_without_a_word_of_it(text: str) -> None:
    with pytest.raises(UnreadableText) as caught:
        load_yaml(text)
    assert "secret" not in str(caught.value)
