"""Votes of private units for their nearest public candidates."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.methods.shared.evolution.embeddings import Block
from understudy.methods.shared.evolution.voting import Distance, nearest
from understudy.methods.shared.specs import VotesSpec
from understudy.privacy.measurement import PlannedQuery
from understudy.privacy.mechanisms import COUNT_GRID

_SAFETY = 1 - 1e-9  # float rounding of a norm is far smaller


@dataclass(frozen=True)
class VoteHistogram(PlannedQuery[Block, VotesSpec]):
    """The votes of the private units for each candidate: the query of one round.

    A record votes for its k nearest candidates of its own label (all of them if there are fewer; none without
    candidates or for a zero vector): a record with m votes adds floor(G / sqrt(m)) to each, G = COUNT_GRID. Where units
    are owners, the c_j votes of all of the owner's records for candidate j, jointly over labels, add floor(G c_j /
    |c|_2): an owner has one whole vote, however many records it has.

    Guarantee:
        Unit: an owner if the spec's ``unit`` is one, else a record (m times that for a secret in m records).
        All records of an owner are in one block.
        Sensitivity: a record's vote depends on the record and the (public) candidates only, since scalar products are
        exact (:mod:`understudy.methods.shared.evolution.voting`); an owner's on its records only. So adding a unit adds
        its own vector. A record's has m coordinates of at most G / sqrt(m), an owner's is G c / |c|_2 rounded down: L2
        norm at most G. Such a vector with s nonzero coordinates has L1 norm at most G sqrt(s); s <= k for a record, k *
        max_records for an owner.
        Votes of a label are not normalised by themselves: an owner of records in l labels would weigh sqrt(l).
        Source: Xie et al. 2024 (Aug-PE), with the owner's joint vote instead of the record's.

    Args:
        candidates: ``Int16[n, d]`` of :func:`~understudy.methods.shared.evolution.embeddings.integer_vectors`; public.
            n may be 0.
    """

    candidates: NDArray[np.int16]
    labels: NDArray[np.int32]  # ``Int32[n]``
    distance: Distance = "cosine"

    @property
    def found(self) -> tuple[int, ...]:
        return (len(self.candidates),)

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        """Return the votes of one batch: ``Int64[n]``. Memory: that of :func:`nearest`; for owners also 24 bytes per
        vote of the block."""
        (chosen,) = nearest([batch], self.candidates, self.labels, distance=self.distance, k=self.spec.nearest)
        cast = chosen >= 0
        histogram = np.zeros(self.shape, dtype=np.int64)
        if self.spec.unit.kind != "owner":
            parts = np.array([0, *(math.isqrt(COUNT_GRID**2 // votes) for votes in range(1, self.spec.nearest + 1))])
            number = cast.sum(axis=1)
            np.add.at(histogram, chosen[cast], np.repeat(parts[number], number))
            return histogram
        size = len(self.candidates)
        owner, unit = np.unique(batch.units, return_inverse=True)
        pairs, counts = np.unique((unit[:, None] * size + chosen)[cast], return_counts=True)
        unit, candidates = np.divmod(pairs, max(1, size))
        norms = np.sqrt(np.bincount(unit, weights=np.square(counts, dtype=np.float64), minlength=len(owner)))
        np.add.at(histogram, candidates, np.floor(COUNT_GRID * _SAFETY * counts / norms[unit]).astype(np.int64))
        return histogram
