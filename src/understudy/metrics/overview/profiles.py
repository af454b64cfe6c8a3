"""How long the texts of tables are, and how many have which label."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from understudy.metrics.picture import Histogram, Profile
from understudy.metrics.sample import Sample

_BINS = 24


def profiles(tables: Mapping[str, Sample], words: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, Profile]:
    """Each table's numbers. Lengths are counted in bins of a whole number of words, the same for all tables.

    The bins reach just beyond the 99th percentile of all tables together: the few longer texts are in none.
    """
    lengths = {name: np.array([len(text) for text in words[name]], dtype=np.int64) for name in tables}
    pooled = np.concatenate([*lengths.values(), np.zeros(1, dtype=np.int64)])
    far = math.ceil(np.quantile(pooled, 0.99)) + 1
    width = math.ceil(far / _BINS)
    edges = np.arange(0, far + width, width)
    return {
        name: Profile(
            len(table),
            Histogram(
                tuple(map(float, edges)),
                tuple(int(count) for count in np.histogram(lengths[name][lengths[name] < edges[-1]], edges)[0]),
            ),
            dict(sorted(Counter(table.labels or ()).items())),
        )
        for name, table in tables.items()
    }
