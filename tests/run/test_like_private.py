"""``like_private``: labels have the sizes that the private table has, by noisy counts that are released anyway."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import LABELS, rows, settings, write_csv
from run_fixtures import run, runs_charged
from sample_releases import SAMPLES, with_guide

import understudy as us
from understudy.base.errors import ConfigError
from understudy.methods.additions.guide.guide import guide_counts
from understudy.methods.additions.registry import own_parameters
from understudy.methods.registry import make_method, method_names
from understudy.schema.labels import in_proportion, like_counts

SEEDED = {"insecure_noise_seed": 1, "records_per_label": None}


def uneven(folder: Path, **changes: Any) -> dict[str, Any]:
    """1,600 notes of the first department, 400 of the second."""
    first, second = ([row for row in rows(3200) if row["department"] == label] for label in LABELS)
    write_csv(folder / "notes.csv", [*first, *second[:400]])
    return settings(folder, **{**SEEDED, "records": 100, "guide": False, "top_terms": 16, **changes})


def sizes(values: dict[str, Any]) -> list[int]:
    found = Counter(run(values).columns["department"])
    return [found[label] for label in LABELS]


def test_labels_follow_the_released_counts_only_where_that_is_asked_for(tmp_path: Path) -> None:
    assert sizes(uneven(tmp_path, output=str(tmp_path / "a"))) == [50, 50]
    like = sizes(uneven(tmp_path, output=str(tmp_path / "b"), like_private=True))
    assert sum(like) == 100
    assert like == pytest.approx([80, 20], abs=4)


@pytest.mark.usefixtures("embedder")
def test_they_follow_a_guide_where_there_is_one(tmp_path: Path) -> None:
    values = uneven(tmp_path, like_private=True, guide=True)
    assert sizes(values) == pytest.approx([80, 20], abs=2)
    made = us.generate(str(tmp_path / "out" / "release" / "dp-kps.release"), llm="none", like_private=True)
    assert Counter(made.columns["department"])[LABELS[0]] == pytest.approx(80, abs=2), "of the number that is decided"


def test_without_labels_there_is_nothing_to_do(tmp_path: Path) -> None:
    found = run(uneven(tmp_path, like_private=True, label=None, labels=None))
    assert len(found.records) == 100


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"records": None, "records_per_label": 3}, "share a total number of records"),
        ({"method": "few-shot", "sampling_rate": 0.1, "llm": "builtin"}, "guide"),
        ({"method": "dp-finetune", "declared_records": 2000, "llm": "builtin"}, "label_sizes noisy"),
    ],
)
def test_what_cannot_be_had_is_refused_before_the_charge(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    values = uneven(tmp_path, like_private=True, insecure_noise_seed=None, **changes)
    if "method" in changes:
        for name in ("vocabulary", "vocabulary_is_public", "top_terms", "length"):
            del values[name]
    with pytest.raises(ConfigError) as caught:
        run(values)
    assert problem in str(caught.value)
    assert runs_charged(tmp_path / "ledger.sqlite") == 0


@pytest.mark.parametrize("name", SAMPLES)
def test_a_method_says_rightly_whether_its_releases_tell(name: str) -> None:
    made = SAMPLES[name]()
    method = make_method(made.method, own_parameters(made))
    found = guide_counts(made) or method.label_counts(made)
    assert (found is not None) == (method.counts_labels or "guide" in made.arrays)
    if found is not None:
        counts, std = found
        assert len(counts) == made.schema.label_set.size
        assert std >= 0
        still = replace(made.statement, sealed=None)
        assert (guide_counts(replace(made, statement=still)) or method.label_counts(replace(made, statement=still)))[
            1
        ] == 0


def test_the_methods_whose_releases_tell_are_those_that_the_docs_name() -> None:
    needed = {"dp-finetune": {"declared_records": 9}, "seq-pate": {"declared_records": 9}, "sec-pe": {}}
    telling = {name for name in method_names() if make_method(name, needed.get(name, {})).counts_labels}
    assert telling == {"aug-pe", "dp-kps", "sec-pe"}
    assert make_method("seq-pate", {"declared_records": 9, "label_sizes": "noisy"}).counts_labels
    assert guide_counts(with_guide(SAMPLES["dp-kps"]())) == ([30.0, 20.0], 10.0)


def test_shares_of_noisy_counts_sum_up_and_are_nearer_to_the_true_ones_than_raw_ones() -> None:
    draw, true = np.random.default_rng(2), np.array([600.0, 300.0, 250.0, 150.0, 90.0, 10.0])

    def distance(shares: list[int]) -> float:
        assert sum(shares) == 997
        assert min(shares) >= 0
        return float(np.abs(np.array(shares) / 997 - true / true.sum()).sum() / 2)

    for std, better in ((5.0, 1.1), (250.0, 1.0), (1000.0, 0.65)):
        noisy = true + std * draw.normal(size=(400, 6))
        ours = np.mean([distance(like_counts(997, counts.tolist(), std)) for counts in noisy])
        raw = np.mean([distance(in_proportion(997, counts.tolist())) for counts in noisy])
        assert ours < better * raw
    assert like_counts(7, [-5.0, -9.0], 1.0) == [4, 3]
