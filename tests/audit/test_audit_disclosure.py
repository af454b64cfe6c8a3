"""The test of disclosure on the texts of every method, beside texts that are copies of private ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import write_csv
from test_audit_replay import settings  # noqa: F401
from test_nothing_fails_after_the_charge import METHODS
from test_two_worlds import corpus

from understudy.evaluate.metrics.disclosure import FALSE_ALARMS, measure_disclosure
from understudy.evaluate.metrics.leakage import Phrases
from understudy.evaluate.metrics.sample import normal_words
from understudy.run import pipeline
from understudy.run.settings import run_config


@pytest.mark.parametrize("method", METHODS)
def test_no_method_of_ours_tells_used_records_from_others(
    method: str,
    settings: Callable[..., dict[str, Any]],  # noqa: F811
    tmp_path: Path,
) -> None:
    rows = corpus(0, 160)
    for number, row in enumerate(rows):
        row["note"] += f" Write to pat{number}@clinic.example."
    random.shuffle(rows)
    used, unused = rows[:80], rows[80:]
    data = write_csv(tmp_path / "used.csv", used, [*rows[0]])
    many = {} if method == "private-prediction" else {"records_per_label": 30}
    many |= dict.fromkeys(METHODS[method].keys() & {"population"}, 30)
    values = settings(method=method, data=str(data), **many)
    made = pipeline.run(run_config(values))
    texts = [record.text for record in made.records]
    assert texts

    def by_chance(texts: list[str]) -> float | None:
        records = [normal_words(row["note"]) for row in (*used, *unused)]
        near = Phrases([normal_words(text) for text in texts], records).longest().astype(np.float64)
        found, _ = measure_disclosure(near[:80], near[80:], by="words in a row", seed=0, promised=None)
        print(f"DISCLOSURE {method}: {len(texts)} texts, {found.value}")
        return found.value

    chance, copied = by_chance(texts), by_chance([*texts, *(row["note"] for row in used[:20])])
    assert chance is not None
    assert copied is not None
    assert copied <= FALSE_ALARMS
    assert chance > 1e-4  # a test that alarms by chance once in a hundred tables would fail too often
