"""Queries that count too much, for whatever must notice: measures of how far a unit moves a sum, and audits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedBatch, BoundedCorpus
from understudy.methods.shared.queries.discovered_terms import UnlistedTerms
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.unit import Unit


def not_shared(kind: Any) -> Any:
    """A query to which each of an owner's records counts fully."""

    def of_batch(query: Any, batch: BoundedBatch) -> NDArray[np.int64]:
        found: NDArray[np.int64] = kind.of_batch(query, replace(batch, shares=np.ones_like(batch.shares)))
        return found

    return type(kind.__name__, (kind,), {"of_batch": of_batch})


class Unweighted(UnlistedTerms):
    """Every term weighs 1."""

    @property
    def _weights(self) -> Any:  # type: ignore[override]
        return np.full(self.most + 1, COUNT_GRID)


class OwnersAsRecords(UnlistedTerms):
    """Each record of an owner has a set of its own."""

    def _files_of(self, part: BoundedCorpus) -> list[Path]:
        return super()._files_of(replace(part, unit=Unit()))
