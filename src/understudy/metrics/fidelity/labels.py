"""How often each label occurs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.fidelity.subsamples import over_subsamples
from understudy.metrics.intervals import of_share
from understudy.metrics.value import SYNTHETIC, Figure, Metric

LABEL_DISTANCE = Metric(
    name="label_distance",
    title="Label distance",
    family="fidelity",
    definition="Total variation distance of the label proportions: half the sum of their differences, in [0, 1].",
    source="Levin, Peres and Wilmer 2009, proposition 4.2",
    better="lower",
)
LABEL_SHARE = Metric(
    name="label_share",
    title="Label share",
    family="fidelity",
    definition="Share of the table's texts with this label, in [0, 1].",
    source="Wilson 1927 (interval)",
    better="same",
)


def total_variation(a: NDArray[np.int64], b: NDArray[np.int64], labels: int) -> float:
    """Half the summed differences of the shares of ``labels`` labels, by number, in two tables that are not empty."""
    shares = [np.bincount(each, minlength=labels) / len(each) for each in (a, b)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def label_distance_figures(
    real: Sequence[str], other: Sequence[str], *, of: str, seed: int, draws: int
) -> tuple[Figure, ...]:
    """The distance of the label proportions, with an interval from subsamples of both tables."""
    names, numbers = np.unique([*real, *other], return_inverse=True)
    ours, theirs = numbers[: len(real)], numbers[len(real) :]
    return (
        over_subsamples(
            LABEL_DISTANCE,
            lambda one, two: total_variation(ours[one], theirs[two], len(names)),
            (len(ours), len(theirs)),
            of,
            seed=seed,
            draws=draws,
            high=1.0,
        ),
    )


def label_share_figures(labels: Sequence[str], of: str, *, names: Sequence[str]) -> tuple[Figure, ...]:
    """The share of each of ``names`` in one table that is not empty.

    Synthetic shares are private only where the synthetic table does not have the label: its name then comes from
    another table.
    """
    counts = Counter(labels)
    return tuple(
        Figure(
            LABEL_SHARE,
            counts[name] / len(labels),
            of,
            of_share(counts[name], len(labels)),
            settings={"label": name},
            reads_private=of != SYNTHETIC or name not in counts,
        )
        for name in names
    )
