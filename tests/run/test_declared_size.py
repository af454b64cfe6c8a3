"""What methods take from the declared size of the corpus, where nobody gives it."""

from __future__ import annotations

from typing import Any

import pytest

from understudy.base.errors import ConfigError
from understudy.run import decided
from understudy.run.job import Job
from understudy.run.settings import run_config

FACTS = {"epsilon": 6, "delta": 1e-6, "label": "kind", "labels": ["a", "b"], "records_per_label": 3}
TAKEN = [
    ("few-shot", "sampling_rate", 10 * 4 * 2 / 3000, 0.01),
    ("private-prediction", "batches", 3000 // (2 * 31), 7),
    ("dp-finetune", "declared_records", 3000, 500),
    ("seq-pate", "declared_records", 3000, 500),
]


def job(method: str, **settings: Any) -> Job:
    return Job(run_config({"method": method, **FACTS, **settings}))


def needed(made: Job) -> None:
    """What a run does before its charge."""
    made.plan()
    getattr(made.method, "declared_batches", None)


@pytest.mark.parametrize(("method", "name", "value", "own"), TAKEN)
def test_the_declared_size_says_what_nobody_gives(
    monkeypatch: pytest.MonkeyPatch, method: str, name: str, value: float, own: float
) -> None:
    made = job(method, expected_records=3000)
    assert made.method.dump()[name] == pytest.approx(value, rel=1e-2)
    assert made.lasting.settings[name] == made.method.dump()[name], "a resumed run must share it"
    assert name.replace("_", " ") in made.fitted_line
    given = job(method, expected_records=3000, **{name: own})
    assert given.method.dump()[name] == own
    assert not given.fitted_line
    with pytest.raises(ConfigError) as caught:
        needed(job(method))
    assert "--expected-records" in caught.value.cure
    monkeypatch.setattr(decided, "settings_begun", lambda _config: {name: own})
    for settings in ({}, {"expected_records": 9000}):
        assert job(method, **settings).method.dump()[name] == own, "a run that began keeps it"


def test_other_methods_take_nothing() -> None:
    assert not job("dp-kps", expected_records=3000).fitted_line
