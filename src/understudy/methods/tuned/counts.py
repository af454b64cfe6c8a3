"""How records are shared out over labels, where that is not evenly. Only a release imports this."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from understudy.base.labels import NOISY, declared_proportions
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.base import ReleaseTools
from understudy.methods.shared.queries.counts import LabelCounts
from understudy.methods.tuned.model import COUNTS


def label_counts(
    label_sizes: str, charge: str, corpus: BoundedCorpus, tools: ReleaseTools
) -> dict[str, NDArray[np.float64]]:
    """The Release's array of counts: noisy ones under ``charge``, or declared proportions; none for equal shares."""
    if label_sizes == NOISY:
        return {COUNTS: tools.measure(charge, LabelCounts(tools.labels.size), corpus).value}
    declared = declared_proportions(label_sizes, tools.labels.names)
    return {} if declared is None else {COUNTS: np.array(declared)}
