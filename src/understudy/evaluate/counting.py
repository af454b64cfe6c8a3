"""The counts behind charged metrics, and what they say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError
from understudy.corpus.bounding import BoundedBatch
from understudy.evaluate.metrics.fidelity.texts import LABEL_SHARE
from understudy.evaluate.metrics.intervals import quantile_ends
from understudy.evaluate.metrics.utility.classifiers import ACCURACY
from understudy.evaluate.metrics.value import REAL, SYNTHETIC, Interval, Metric, MetricValue, Setting
from understudy.privacy.measurement import Query
from understudy.privacy.mechanisms import Sensitivity
from understudy.privacy.unit import Unit

LENGTH_EDGES = (0, 5, 10, 15, 20, 30, 40, 60, 80, 120, 160, 240, 320, 640)
"""Words; public. The last bin is open."""

NAME = "metrics"
LARGEST_GRID = 2.0**28
"""Counts of 2^35 owners still fit into 64-bit integers."""

RECORDS = Metric(
    "records",
    "Records",
    "fidelity",
    "How many units (records, or owners) the real table has: the sum of its noisy label counts.",
    "post-processing of the released counts",
    "none",
)
LENGTH_SHARE = Metric(
    "length_share",
    "Share of a length",
    "fidelity",
    "Share of the texts that have so many words, in [0, 1].",
    "post-processing of the released counts",
    "same",
)
_RESAMPLES = 2000
_MOST_RECORDS = 2**53  # of a total that is all noise, which may be more than any integer that is sampled

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
        np.add.at(counts, self.labels + length_bins(batch.said), weights)
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


def charged_values(
    counts: NDArray[np.float64],
    *,
    labels: Sequence[str],
    classifiers: Sequence[str],
    training_texts: int,
    noise_scale: float,
    seed: int,
) -> tuple[MetricValue, ...]:
    """What noisy counts say: shares of labels and lengths, and the accuracy of classifiers of synthetic texts.

    Shares are ratios of noisy sums, brought into [0, 1]. Intervals take the noise as known and, for shares, the records
    as a random sample: counts are sampled again around the released ones.

    Args:
        counts: ``Float64`` in the order of :class:`~understudy.evaluate.counting.MetricCounts`.
        labels: the label set; empty without labels.
        classifiers: their names, in order.
        training_texts: how many synthetic texts they were trained on.
        noise_scale: b of the Laplace noise on each count.
        seed: of the intervals.
    """
    cells = max(1, len(labels))
    of_labels, rest = counts[:cells], counts[cells:]
    of_lengths, of_right = rest[: len(LENGTH_EDGES)], rest[len(LENGTH_EDGES) :]
    ratio = _Ratios(noise_scale, seed)
    values = [_value(RECORDS, *ratio.total(of_labels), {})]
    values += [
        _value(LABEL_SHARE, *ratio.share(of_labels, place), {"label": label})
        for place, label in enumerate(labels if len(labels) > 1 else ())
    ]
    edges = [*LENGTH_EDGES[1:], None]
    for place, (low, high) in enumerate(zip(LENGTH_EDGES, edges, strict=True)):
        words = f"{low} or more" if high is None else f"{low} to {high - 1}"
        values.append(_value(LENGTH_SHARE, *ratio.share(of_lengths, place), {"words": words}))
    for place, name in enumerate(classifiers):
        right = of_right[place * cells : (place + 1) * cells]
        settings = {"classifier": name}
        values.append(_value(ACCURACY, *ratio.between(right, of_labels), settings, of=SYNTHETIC, size=training_texts))
    return tuple(values)


class _Ratios:
    """Shares of noisy counts with intervals."""

    def __init__(self, scale: float, seed: int) -> None:
        self._scale = scale
        self._generator = np.random.default_rng(seed)

    def total(self, counts: NDArray[np.float64]) -> tuple[float, Interval]:
        """The sum of all counts."""
        total = float(counts.sum())
        return max(total, 0.0), _interval(np.maximum(total + self._noise(len(counts)), 0))

    def share(self, counts: NDArray[np.float64], place: int) -> tuple[float, Interval]:
        """One count over the sum of all."""
        noise = self._noise(1)
        return self._ratio(float(counts[place]), float(counts.sum()), noise, noise + self._noise(len(counts) - 1))

    def between(self, part: NDArray[np.float64], whole: NDArray[np.float64]) -> tuple[float, Interval]:
        """The sum of some counts over that of others, of which they count a part."""
        noises = self._noise(len(part)), self._noise(len(whole))
        return self._ratio(float(part.sum()), float(whole.sum()), *noises)

    def _ratio(
        self, hits: float, total: float, noise: NDArray[np.float64], noise_of_total: NDArray[np.float64]
    ) -> tuple[float, Interval]:
        """Hits over total, in [0, 1]; the interval is of what might as well have come out."""
        value = min(max(hits / total, 0.0), 1.0) if total > 0 else 0.0
        again = self._generator.binomial(min(max(0, round(total)), _MOST_RECORDS), value, size=_RESAMPLES) + noise
        return value, _interval(_divide(again, total + noise_of_total))

    def _noise(self, terms: int) -> NDArray[np.float64]:
        """That of a sum of so many counts, ``Float64[resamples]``: Laplace, the difference of two exponentials."""
        up, down = (self._generator.gamma(terms, self._scale, size=_RESAMPLES) for _ in range(2))
        noise: NDArray[np.float64] = up - down
        return noise


def _divide(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0).clip(0, 1)


def _interval(values: NDArray[np.float64]) -> Interval:
    return Interval(*quantile_ends(values), "noise of the release and sampling of the records")


def _value(
    metric: Metric,
    value: float,
    interval: Interval,
    settings: Mapping[str, Setting],
    of: str = REAL,
    size: int | None = None,
) -> MetricValue:
    note = "Released with a charge."
    return MetricValue(metric, value, of, interval, settings, note, reads_private=False, sample_size=size)
