"""An evaluation's file: read as written, or refused in words."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from understudy.base.errors import ConfigError
from understudy.evaluate.metrics.overview import Histogram, Overview, Point, Profile, Topic
from understudy.evaluate.metrics.results import Evaluation, load_evaluation, result_json
from understudy.evaluate.metrics.value import Interval, Metric, MetricValue

METRIC = Metric("utility", "m", "M", "What it is.", "somebody", "higher")
OVERVIEW = Overview(
    {"real": Profile(2, Histogram((0.0, 5.0, 9.0), (1, 1)), {"a": 2})},
    (Topic(("heart",), {"real": 1.0}),),
    (Point(0.5, 0.25, "real", "a", "a text with \u2028 in it"),),
)
MADE = Evaluation(
    (
        MetricValue(METRIC, 0.5, interval=Interval(0.25, 0.75, "t over 3 seeds"), settings={"classifier": "tf-idf"}),
        MetricValue(METRIC, None, "holdout", note="Too few texts.", reads_private=False),
    ),
    OVERVIEW,
    {"seed": 0},
)


@pytest.mark.parametrize("made", [MADE, Evaluation((), None, {})])
def test_an_evaluation_is_read_as_it_was_written(tmp_path: Path, made: Evaluation) -> None:
    made.save(tmp_path / "evaluation.json")
    assert load_evaluation(tmp_path / "evaluation.json") == made


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_it_is_for_its_owner_s_eyes(tmp_path: Path) -> None:
    MADE.save(tmp_path / "evaluation.json")
    assert (tmp_path / "evaluation.json").stat().st_mode & 0o777 == 0o600


def test_what_is_no_number_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        Evaluation((MetricValue(METRIC, float("nan")),), None, {}).save(tmp_path / "evaluation.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "null", "{", "\udc80"),
        *({"version": 2}, {"settings": "many"}, {"values": [{"metric": "unknown"}]}, {"overview": {"profiles": []}}),
        {"table_sha256": 1},
    ],
)
def test_what_is_no_evaluation_or_a_damaged_one_is_refused_in_words(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "evaluation.json"
    text = content if isinstance(content, str) else json.dumps({**result_json(MADE), **content})
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match="cannot be read"):
        load_evaluation(path)
