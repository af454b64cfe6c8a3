"""What is left of an answer when it is taken as a text."""

from __future__ import annotations

import pytest

from understudy.models.types import Completion
from understudy.text.writing.writer import tidy


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("  Good soup. Cold bread!\n", "Good soup. Cold bread!"),
        ("", ""),
        (" \n ", ""),
        ("No end at all", "No end at all"),
        ("I liked the soup. It was hot. I liked the soup! It was hot.", "I liked the soup. It was hot."),
        ("Very nice. Very nice. Go there.", "Very nice. Very nice. Go there."),  # short ones may come twice
        ("He paid 3.50 for it. Dr. Who paid.", "He paid 3.50 for it. Dr. Who paid."),
        ("一杯很好的茶。一杯很好的茶。", "一杯很好的茶。一杯很好的茶。"),
        ("a\ud800b", "a\ufffdb"),
        ("One line\nand another.\nThird.", "One line\nand another.\nThird."),
    ],
)
def test_a_text_ends_where_it_begins_to_repeat_itself(text: str, left: str) -> None:
    assert tidy(Completion(text, "stop")) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Good soup. Cold bread and", "Good soup."),
        ("Good soup. Cold bread.", "Good soup. Cold bread."),
        ('He said "fine." Then we', 'He said "fine."'),
        ("No end at all", "No end at all"),
    ],
)
def test_an_answer_that_was_cut_ends_with_its_last_whole_sentence(text: str, left: str) -> None:
    assert tidy(Completion(text, "length")) == left
    assert tidy(Completion(text, "stop")) == text


def test_a_failed_answer_leaves_nothing() -> None:
    assert tidy(Completion("", "failed", error="x")) == ""
    assert tidy(Completion("", "empty")) == ""
