"""Populations: what a run store keeps of them, and where texts come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from understudy.ledger.store import RunStore
from understudy.methods.shared.evolution.loop import NO_PARENT, Population, Round

TEXTS = ("plain", "größer 東京 \U0001f600", "lone \ud800 half \udfff", "zero\x00byte\r\n\u2028", "", "é e\u0301")


def make(texts: tuple[str, ...], parents: list[int], *, first: int = 0, labels: int = 2) -> Population:
    return Population(
        texts,
        np.arange(len(texts), dtype=np.int32) % labels,
        np.array(parents, dtype=np.int64),
        tuple(f"random|keyword:{text}" for text in texts),
        first,
        np.arange(labels, dtype=np.int64),
    )


@pytest.mark.parametrize("texts", [TEXTS, (), ("",)])
def test_a_population_comes_back_from_the_run_store_exactly(tmp_path: Path, texts: tuple[str, ...]) -> None:
    made = make(texts, [NO_PARENT] * len(texts), first=12345678901)
    with RunStore.open(tmp_path / "private", noise="system") as store:
        kept = store.keep_once("population-3", made.to_arrays)
    found = Population.from_arrays(kept)
    assert found.texts == made.texts
    assert found.prompts == made.prompts
    assert found.first == made.first
    for name in ("labels", "parents", "failed"):
        expected = getattr(made, name)
        assert getattr(found, name).dtype == expected.dtype
        assert getattr(found, name).tolist() == expected.tolist()


def test_a_rounds_chosen_texts_have_their_labels_and_numbers() -> None:
    each = Round(make(("a", "b", "c"), [-1, -1, -1], first=10), np.zeros(3), np.array([2, 0, 2]))
    assert each.chosen_texts == ("c", "a", "c")
    assert each.chosen_labels.tolist() == [0, 0, 0]
    assert each.chosen_numbers.tolist() == [12, 10, 12]
