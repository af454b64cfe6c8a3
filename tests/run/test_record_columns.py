"""A run on records made of several columns spends its budget on what the values say."""

from __future__ import annotations

import csv
from pathlib import Path

from understudy.methods.registry import load_release
from understudy.run.pipeline import release
from understudy.run.settings import run_config


def test_the_private_vocabulary_of_json_records_holds_no_key(tmp_path: Path) -> None:
    with (tmp_path / "notes.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerows([("title", "body"), *[("Chest", "pain at night")] * 5, ("Knee", "pain")])
    (tmp_path / "terms.txt").write_text("title\nbody\nchest\npain\nnight\nknee\n")
    made = release(
        run_config(
            {
                "data": str(tmp_path / "notes.csv"),
                "record_columns": "title,body",
                "vocabulary": str(tmp_path / "terms.txt"),
                "vocabulary_is_public": True,
                "top_terms": 3,
                "length": 2,
                "terms_per_record": 3,
                "bandwidth": 0,
                "epsilon": "10000",
                "delta": "0",
                "noise": "laplace",
                "insecure_noise_seed": 1,
                "output": str(tmp_path / "out"),
            }
        )
    )
    terms = set(load_release(tmp_path / "out" / "release" / "dp-kps.release").terms)
    assert terms == {"chest", "pain", "night"}
    assert made is not None
