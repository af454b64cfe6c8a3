"""Small invented corpora in memory, and an embedder that needs no model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedCorpus
from understudy.privacy.unit import Unit


class Row(NamedTuple):
    """A record."""

    text: str
    label: int = 0
    owner: str = "somebody"


@dataclass(frozen=True)
class _Batch:
    texts: Sequence[str]
    labels: NDArray[np.int32]
    owners: Sequence[str] | None


@dataclass(frozen=True)
class _Table:
    """Rows in one batch."""

    rows: Sequence[Row]

    def batches(self) -> Iterator[_Batch]:
        texts, labels, owners = zip(*self.rows, strict=True) if self.rows else ((), (), ())
        yield _Batch(texts, np.array(labels, dtype=np.int32), owners)


def corpus(rows: Sequence[Row], unit: Unit) -> BoundedCorpus:
    """The rows as a run sees them."""
    return BoundedCorpus(_Table(rows), unit, b"a key of the dataset")
