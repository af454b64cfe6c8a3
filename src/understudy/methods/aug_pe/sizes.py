"""How many texts of each label a population holds: equal, declared, or in proportion to a noisy count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ConfigError

if TYPE_CHECKING:
    from understudy.corpus.bounding import BoundedCorpus

GRID = 1 << 20
UNIFORM, NOISY = "uniform", "noisy"


@dataclass(frozen=True)
class LabelCounts:
    """How many records each label has: an :class:`~understudy.privacy.mechanisms.IntegerSum` of the corpus.

    Guarantee:
        Unit: a record, or an owner whose records are averaged.
        Sensitivity: a record adds 1 to one count, L1 and L2 are 1; an average of such vectors is no longer. In
        integers: a record adds floor(GRID / records of its owner).
    """

    labels: int
    name: str = "labels"

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.labels,)

    @property
    def grid(self) -> float:
        return float(GRID)

    @property
    def l1_sensitivity(self) -> float:
        return float(GRID)

    @property
    def l2_sensitivity(self) -> float:
        return float(GRID)

    def evaluate(self, data: BoundedCorpus) -> NDArray[np.int64]:
        counts = np.zeros(self.labels, dtype=np.int64)
        for batch in data.batches():
            np.add.at(counts, batch.labels, GRID // batch.shares)
        return counts


def declared_proportions(text: str, label_names: Sequence[str]) -> tuple[float, ...] | None:
    """The proportions that ``A=3,B=1`` declares, in the order of the labels; None for ``uniform`` and ``noisy``.

    Raises:
        ConfigError: if it does not give every declared label, and no other, a number of 0 or more.
    """
    if text in (UNIFORM, NOISY):
        return None
    parts = [part.rpartition("=") for part in text.split(",")]
    try:
        given = {name.strip(): float(number) for name, _, number in parts}
    except ValueError:
        given = {}
    usable = len(given) == len(parts) and all(math.isfinite(n) and n >= 0 for n in given.values())
    if not usable or set(given) != set(label_names) or not 0 < sum(given.values()) < math.inf:
        raise ConfigError(
            f"The label proportions {text!r:.80} do not fit the declared labels.",
            "Give `uniform`, `noisy`, or one number a label: A=3,B=1.",
        )
    return tuple(given[name] for name in label_names)
