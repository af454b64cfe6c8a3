"""The votes of one round: each private unit adds a vector of length 1 to the candidates nearest to its records."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from understudy.evolution.voting import Distance, nearest
from understudy.privacy.unit import Unit

if TYPE_CHECKING:
    from understudy.evolution.embeddings import PrivateEmbeddings

GRID = 1 << 20
"""Integer steps of a whole vote. Parts of it are rounded down, so that no norm grows."""
_SAFETY = 1 - 1e-9  # float rounding of a norm is far smaller


@dataclass(frozen=True)
class VoteHistogram:
    """For each candidate, the votes of the private units: one round's query.

    A record votes for its k nearest candidates of its own label (all of them where there are fewer; none without
    candidates or for a zero vector): a record with m votes adds floor(G / sqrt(m)) to each, G = GRID. Where units are
    owners, the c_j votes of all of the owner's records for candidate j, jointly over labels, add
    floor(G c_j / |c|_2): an owner has one whole vote, whatever it holds.

    Guarantee:
        Unit: an owner where ``unit`` is one, else a record (wrap it in
        :class:`~understudy.privacy.mechanisms.GroupSum` for a secret that several records hold).
        Sensitivity: a record's vote depends on the record and the (public) candidates only, since scalar products are
        exact (:mod:`understudy.evolution.voting`); an owner's on its records only. So adding a unit adds its own
        vector. A record's has m coordinates of at most G / sqrt(m), an owner's is G c / |c|_2 rounded down: L2 norm at
        most G. Such a vector with s nonzero coordinates has L1 norm at most G sqrt(s); s <= k for a record,
        k * max_records for an owner.
        Votes of a label are not normalised by themselves: an owner of records in l labels would weigh sqrt(l).
        Source: Xie et al. 2024 (Aug-PE), with the owner's joint vote in place of the record's.

    Args:
        candidates: ``Int16[n, d]`` of :func:`~understudy.evolution.embeddings.integer_vectors`; public. n may be 0.
        labels: ``Int32[n]``.
        unit: whose votes are normalised together.
        name: of the charge, such as ``votes-3``.
        neighbours: candidates a record votes for (k), 1 or more.
    """

    candidates: NDArray[np.int16]
    labels: NDArray[np.int32]
    unit: Unit
    name: str
    neighbours: int = 1
    distance: Distance = "cosine"

    @classmethod
    def of_size(cls, size: int, *, name: str) -> VoteHistogram:
        """The query for ``size`` candidates that are not known yet, to plan its noise with."""
        return cls(np.zeros((size, 1), dtype=np.int16), np.zeros(size, dtype=np.int32), Unit(), name)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.candidates),)

    @property
    def grid(self) -> float:
        return float(GRID)

    @property
    def l1_sensitivity(self) -> float:
        voters = self.unit.max_records if self.unit.kind == "owner" else 1
        return self.l2_sensitivity * math.sqrt(max(1, min(self.neighbours * voters, len(self.candidates))))

    @property
    def l2_sensitivity(self) -> float:
        return self.grid

    def evaluate(self, data: PrivateEmbeddings) -> NDArray[np.int64]:
        """``Int64[n]``. Memory: what :func:`nearest` takes; for owners also 24 bytes a vote."""
        votes = nearest(data.blocks(), self.candidates, self.labels, distance=self.distance, k=self.neighbours)
        if self.unit.kind == "owner":
            units = (block.units for block in data.blocks())
            return self._by_owner(zip(units, votes, strict=True))
        parts = np.array([0, *(math.isqrt(GRID * GRID // cast) for cast in range(1, self.neighbours + 1))])
        histogram = np.zeros(self.shape, dtype=np.int64)
        for chosen in votes:
            cast = chosen >= 0
            number = cast.sum(axis=1)
            np.add.at(histogram, chosen[cast], np.repeat(parts[number], number))
        return histogram

    def _by_owner(self, votes: Iterable[tuple[NDArray[np.int64], NDArray[np.int32]]]) -> NDArray[np.int64]:
        size = len(self.candidates)
        keys = [np.zeros(0, dtype=np.int64)]  # one number for owner and candidate together
        for units, chosen in votes:
            keys.append((units[:, None] * size + chosen)[chosen >= 0])
        pairs, counts = np.unique(np.concatenate(keys), return_counts=True)
        owners, candidates = np.divmod(pairs, max(1, size))
        norms = np.sqrt(np.bincount(owners, weights=np.square(counts, dtype=np.float64)))
        histogram = np.zeros(self.shape, dtype=np.int64)
        np.add.at(histogram, candidates, np.floor(GRID * _SAFETY * counts / norms[owners]).astype(np.int64))
        return histogram
