"""What is shareable names files and models, not where they lie; flags win over the configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import understudy as us
from understudy.cli.options import given
from understudy.methods.registry import load_release
from understudy.text.writing.writer import public_name


def test_a_release_names_the_vocabulary_file_and_not_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "home-of-somebody"
    folder.mkdir()
    (folder / "terms.txt").write_text("fever\ncough\nrash\n", "utf-8")
    corpus = us.read_corpus([{"note": "fever and cough"}], text="note")
    method = us.DPKPS(vocabulary=str(folder / "terms.txt"), vocabulary_is_public=True, top_terms=3, length=2)
    made = us.release(
        corpus, method, us.Budget(1, "1e-6"), dataset="d", ledger=str(tmp_path / "l.sqlite"), output=tmp_path / "out"
    )
    assert made.parameters["vocabulary"] == "terms.txt"
    loaded = load_release(tmp_path / "out" / "release" / "dp-kps.release")
    assert "home-of-somebody" not in json.dumps([dict(loaded.parameters), loaded.statement.to_json()])
    assert len(us.generate(loaded, llm="none", records=4).records) == 4


@pytest.mark.parametrize(
    ("model_id", "shown"),
    [
        ("openai:m@https://inner.example:8000/v1", "openai:m"),
        ("builtin:smollm2@0123", "builtin:smollm2"),
        ("hf:/srv/models/tiny@0123", "hf:tiny"),
        ("hf:ORG/NAME@0123", "hf:ORG/NAME"),
    ],
)
def test_provenance_names_a_model_without_its_address_or_folder(model_id: str, shown: str) -> None:
    assert public_name(model_id) == shown


def test_a_flag_for_the_number_of_records_replaces_the_other_way_to_say_it(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("records_per_label: 5\n", "utf-8")
    assert given({"records": 3, "records_per_label": None}, str(config)) == {"records": 3}
