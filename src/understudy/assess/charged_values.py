"""Figures from released counts: post-processing, fit to be shared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.assess.counting import LENGTH_EDGES
from understudy.metrics.fidelity.labels import LABEL_SHARE
from understudy.metrics.intervals import LEVEL
from understudy.metrics.utility.scores import ACCURACY
from understudy.metrics.value import REAL, SYNTHETIC, Figure, Interval, Metric, Setting

RECORDS = Metric(
    name="records",
    title="Records",
    family="fidelity",
    definition="How many units (records, or owners) the real table has: the sum of its noisy label counts.",
    source="post-processing of the released counts",
    better="none",
)
LENGTH_SHARE = Metric(
    name="length_share",
    title="Share of a length",
    family="fidelity",
    definition="Share of the texts that have so many words, in [0, 1].",
    source="post-processing of the released counts",
    better="same",
)
_DRAWS = 2000
_MOST_RECORDS = 2**53  # of a total that is all noise, which may be more than any integer that is drawn


def charged_figures(
    counts: NDArray[np.float64],
    *,
    labels: Sequence[str],
    classifiers: Sequence[str],
    training_texts: int,
    noise_scale: float,
    seed: int,
) -> tuple[Figure, ...]:
    """What noisy counts say: shares of labels and lengths, and the accuracy of classifiers of synthetic texts.

    Shares are ratios of noisy sums, brought into [0, 1]. Intervals take the noise as known and, for shares, the records
    as a random sample: counts are drawn again around the released ones.

    Args:
        counts: ``Float64`` in the order of :class:`~understudy.assess.counting.MetricCounts`.
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
    figures = [_figure(RECORDS, *ratio.total(of_labels), {})]
    figures += [
        _figure(LABEL_SHARE, *ratio.share(of_labels, place), {"label": label})
        for place, label in enumerate(labels if len(labels) > 1 else ())
    ]
    edges = [*LENGTH_EDGES[1:], None]
    for place, (low, high) in enumerate(zip(LENGTH_EDGES, edges, strict=True)):
        words = f"{low} or more" if high is None else f"{low} to {high - 1}"
        figures.append(_figure(LENGTH_SHARE, *ratio.share(of_lengths, place), {"words": words}))
    for place, name in enumerate(classifiers):
        right = of_right[place * cells : (place + 1) * cells]
        settings: dict[str, Setting] = {"classifier": name, "training texts": training_texts}
        figures.append(_figure(ACCURACY, *ratio.between(right, of_labels), settings, of=SYNTHETIC))
    return tuple(figures)


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
        again = self._generator.binomial(min(max(0, round(total)), _MOST_RECORDS), value, size=_DRAWS) + noise
        return value, _interval(_divide(again, total + noise_of_total))

    def _noise(self, terms: int) -> NDArray[np.float64]:
        """That of a sum of so many counts, ``Float64[draws]``."""
        up, down = (self._generator.gamma(terms, self._scale, size=_DRAWS) for _ in range(2))
        drawn: NDArray[np.float64] = up - down  # a Laplace variable is the difference of two exponential ones
        return drawn


def _divide(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0).clip(0, 1)


def _interval(values: NDArray[np.float64]) -> Interval:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high), "noise of the release and sampling of the records", LEVEL)


def _figure(metric: Metric, value: float, interval: Interval, settings: dict[str, Setting], of: str = REAL) -> Figure:
    return Figure(metric, value, of, interval, settings, "Released with a charge.", reads_private=False)
