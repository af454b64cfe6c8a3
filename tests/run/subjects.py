"""Texts about three subjects, an embedder that tells these apart, and a table of the texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from clinic import write_csv
from evolution_fixtures import WordEmbedder
from numpy.typing import NDArray

from understudy.ledger import Ledger

SUBJECTS = ("engine wheel tyre brake gear", "flight airport ticket luggage seat", "recipe flour oven butter bread")


class Places(WordEmbedder):
    """Texts of a subject lie near each other, and near the subject's words; all else lies anywhere."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = super().embed(texts).astype(np.float64)
        for place, text in enumerate(texts):
            for number, subject in enumerate(SUBJECTS):
                if set(subject.split()) & set(text.lower().split()):
                    vectors[place] = 0.25 * vectors[place] + np.eye(vectors.shape[1])[number]
        vectors[:, :] += 0.4 * np.eye(vectors.shape[1])[5]
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def texts(count: int = 1500) -> list[str]:
    """Of three subjects: the first as often as the two others together."""
    generator, subjects = np.random.default_rng(0), [SUBJECTS[0], *SUBJECTS]
    return [
        f"about {' '.join(generator.choice(subjects[number % 4].split(), 2))} number {number}"
        for number in range(count)
    ]


def table(folder: Path, lines: Sequence[str], owner: Callable[[int], str] = str) -> dict[str, Any]:
    """A table of these texts, and the settings to read it with; a ledger too."""
    made = [{"note": line, "clinician": owner(number)} for number, line in enumerate(lines)]
    write_csv(folder / "notes.csv", made, ("note", "clinician"))
    if not (folder / "ledger.sqlite").exists():
        Ledger.create(folder / "ledger.sqlite").close()
    return {"text": "note", "ledger": str(folder / "ledger.sqlite"), "dataset": "notes"}
