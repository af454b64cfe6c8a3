"""Label proportions, lengths and accuracy on private records, as counts that a mechanism can release."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedBatch
from understudy.errors import ConfigError
from understudy.privacy.measurement import Query
from understudy.privacy.mechanisms import Sensitivity
from understudy.privacy.unit import Unit

LENGTH_EDGES = (0, 5, 10, 15, 20, 30, 40, 60, 80, 120, 160, 240, 320, 640)
"""Words; public. The last bin is open."""

NAME = "metrics"
LARGEST_GRID = 2.0**28
"""Counts of 2^35 owners still fit into 64-bit integers."""

Right = Callable[[BoundedBatch], NDArray[np.bool_]]
"""Which records of a batch a classifier labels right, ``Bool[n]``: each told from that record alone."""


@dataclass(frozen=True, repr=False)
class MetricCounts(Query[BoundedBatch]):
    """The counts behind the charged metrics, one block after another: labels, lengths, and for every classifier the
    records of each label that it labels right.

    Guarantee:
        Unit: one record, or one owner, whose records are averaged: each weighs 1/(number of the owner's records used).
        Sensitivity: a record adds at most 1 to each block, in one cell; so L1 at most the number of blocks and L2 at
        most its root, for a record and (the triangle inequality) for an average of an owner's records. Exactly so:
        weights are integers, in steps of 1/lcm(1..k).
        Conditions: a classifier reads released texts only, and tells each record from that record alone.

    Args:
        labels: size of the label set, 1 without labels.
        classifiers: by name, which records are labelled right.
        unit: the privacy unit.

    Raises:
        ConfigError: if an owner may have so many records that their averages are not counted exactly.
    """

    labels: int
    classifiers: Mapping[str, Right]
    unit: Unit

    def __post_init__(self) -> None:
        if self.grid > LARGEST_GRID:
            raise ConfigError(
                f"Averages over up to {self.unit.max_records} records of an owner are too fine to be counted exactly.",
                "Use at most 22 records of an owner (--max-records-per-owner).",
            )

    @property
    def blocks(self) -> int:
        return 2 + len(self.classifiers)

    @property
    def shape(self) -> tuple[int]:
        return (self.labels * (1 + len(self.classifiers)) + len(LENGTH_EDGES),)

    @property
    def grid(self) -> float:
        return float(math.lcm(*range(1, self.unit.max_records + 1)))

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_counts(self.blocks, grid=self.grid)

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        """In steps of 1/``grid``."""
        counts = np.zeros(self.shape, dtype=np.int64)
        weights = int(self.grid) // batch.shares
        np.add.at(counts, batch.labels, weights)
        np.add.at(counts, self.labels + length_bins(batch.texts), weights)
        start = self.labels + len(LENGTH_EDGES)
        for right in self.classifiers.values():
            chosen = right(batch)
            np.add.at(counts, start + batch.labels[chosen], weights[chosen])
            start += self.labels
        return counts


def length_bins(texts: Sequence[str]) -> NDArray[np.int64]:
    """The place of each text's number of words (split at white space) among the edges, ``Int64[len(texts)]``."""
    words = np.array([len(text.split()) for text in texts], dtype=np.int64)
    return np.searchsorted(np.array(LENGTH_EDGES), words, side="right").astype(np.int64) - 1
