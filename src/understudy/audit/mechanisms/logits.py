"""Contexts of a language model that says what it is told: logits for the real sums over private rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from understudy.decoding.sums import Candidates
from understudy.models.contexts import Rows

SURE = 99.0
"""A logit beside which others do not count."""


class Told:
    """Logits ``Float32[rows, K]``, row 0 public, in place of :class:`~understudy.models.contexts.Contexts`."""

    def __init__(self, rows: ArrayLike) -> None:
        import torch

        self.logits = torch.tensor(np.asarray(rows, dtype=np.float32))

    @property
    def rows_at_once(self) -> int:
        return len(self.logits)

    def __len__(self) -> int:
        return len(self.logits)

    def blocks(self, candidates: Any | None = None) -> Iterator[Rows]:  # noqa: ARG002 - all tokens are candidates
        yield Rows(0, len(self.logits), self.logits)

    @property
    def candidates(self) -> Candidates:
        """The whole vocabulary."""
        return Candidates(None, self.logits[0])
