"""A whole run with the built-in models, where they are in the cache (``make models``)."""

from __future__ import annotations

from pathlib import Path

import pytest
from clinic import settings
from run_fixtures import run, runs_charged

from understudy.models.builtin import BUILTIN, is_pulled

pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(not all(map(is_pulled, BUILTIN)), reason="needs: understudy models pull builtin"),
]


def test_a_run_with_the_embedded_models_writes_texts_and_repeats_them_from_its_store(tmp_path: Path) -> None:
    few = {"records_per_label": 1, "guide_candidates": 2, "max_tokens": 12}
    values = settings(tmp_path, llm="builtin", guide=True, document_type="note", **few)
    first = run(values)
    assert first.missing == 0
    assert all(len(record.text.split()) > 2 for record in first.records)
    assert first.statement.public_inputs["embedder"]["sha256"]
    assert run(values).columns == first.columns
    assert runs_charged(values["ledger"]) == 1
