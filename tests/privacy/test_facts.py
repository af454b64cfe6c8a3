"""What a plan forecasts and a noise check finds: fields for programs, put into words where they are shown."""

from __future__ import annotations

import json

import pytest

from understudy.privacy.facts import Fact, Facts

FACTS = Facts(
    (
        Fact("noise", 12.3456, "noise standard deviation (records)"),
        Fact("terms", 5000, "terms"),
        Fact("side", "private", "side of the boundary"),
        Fact("texts", (3, 0.12345), "texts"),
    ),
    ("The noise is larger than the signal.",),
)


def test_an_entry_is_found_by_its_name() -> None:
    assert FACTS["terms"] == 5000
    assert FACTS["texts"] == (3, 0.12345)
    assert "noise" in FACTS
    assert "noise standard deviation (records)" not in FACTS
    with pytest.raises(KeyError, match="other"):
        FACTS["other"]


def test_facts_survive_json_exactly() -> None:
    assert Facts.from_json(json.loads(json.dumps(FACTS.to_json()))) == FACTS
    assert Facts.from_json(Facts().to_json()) == Facts()


def test_lines_are_for_people_warnings_last() -> None:
    assert FACTS.lines() == [
        "noise standard deviation (records): 12.35",
        "terms: 5000",
        "side of the boundary: private",
        "texts: 3, 0.1235",
        "Warning: The noise is larger than the signal.",
    ]
    assert Facts().lines() == []


def test_numbers_per_label_are_told_apart_by_the_labels() -> None:
    assert FACTS.lines(("asthma", "flu"))[3] == "texts: 3 for asthma, 0.1235 for flu"


@pytest.mark.parametrize("labels", [("asthma",), ("asthma", "flu", "other")])
def test_numbers_are_not_said_of_labels_that_are_not_theirs(labels: tuple[str, ...]) -> None:
    assert FACTS.lines(labels)[3] == "texts: 3, 0.1235"


def test_the_number_of_the_only_label_stands_alone() -> None:
    assert Fact("texts", (3,), "texts").line(("all",)) == "texts: 3"
