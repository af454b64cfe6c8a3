"""The tables that a classifier is trained on: synthetic ones, as many real texts, all real texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.sample import Sample
from understudy.metrics.value import REAL

REAL_ALL = "real (all)"
"""Whose figure it is where a classifier is trained on all real texts."""


@dataclass(frozen=True)
class TrainingTable:
    """Texts to train on.

    Args:
        of: whose figures come of it.
        texts: all of them.
        counts: None, or how many texts of each label a training takes, anew with each seed.
    """

    of: str
    texts: Sample
    counts: Mapping[str, int] | None = None

    def draw(self, seed: int) -> Sample:
        """The texts of one training: all, or ``counts`` of each label without replacement (or all there are)."""
        if self.counts is None or self.texts.labels is None:
            return self.texts
        generator = np.random.default_rng(seed)
        labels = np.array(self.texts.labels, dtype=object)
        rows: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        for label, count in sorted(self.counts.items()):
            there = np.flatnonzero(labels == label)
            rows.append(generator.permutation(there)[:count])
        return self.texts.take(np.concatenate(rows))


def training_tables(real: Sample | None, synthetic: Mapping[str, Sample]) -> list[TrainingTable]:
    """The synthetic tables; as many real texts as the first of them has, label by label; all real texts."""
    tables = [TrainingTable(name, texts) for name, texts in synthetic.items()]
    if real is None:
        return tables
    first = next(iter(synthetic.values()), None)
    if first is not None and first.labels is not None:
        tables.append(TrainingTable(REAL, real, Counter(first.labels)))
    return [*tables, TrainingTable(REAL_ALL, real)]
