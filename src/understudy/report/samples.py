"""A few synthetic texts of each label: the same ones for the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from understudy.report.table import SyntheticText

LABELS_SHOWN = 40


@dataclass(frozen=True)
class Samples:
    """Some of a label's texts, and how many it has in all."""

    label: str | None
    texts: tuple[SyntheticText, ...]
    count: int


def samples_of(texts: Sequence[SyntheticText], *, seed: int, each: int = 3) -> tuple[Samples, ...]:
    """``each`` texts of each label at random, in the table's order; at most ``LABELS_SHOWN`` labels, by name."""
    labels = sorted({text.label for text in texts}, key=lambda label: label or "")
    generator, found = np.random.default_rng(seed), []
    for label in labels[:LABELS_SHOWN]:
        own = [text for text in texts if text.label == label]
        chosen = np.sort(generator.choice(len(own), size=min(each, len(own)), replace=False))
        found.append(Samples(label, tuple(own[place] for place in chosen), len(own)))
    return tuple(found)
