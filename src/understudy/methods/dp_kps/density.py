"""The density sketches: per label, a noisy sum of what each record says about the privatised vocabulary.

Three queries, all jointly over labels (a record touches its label's row only, an owner's records are averaged over all
labels, so the bounds below hold for the whole matrix). The plan states their sensitivities; here is why they hold:

* :class:`TermDensity`: kernel density of single terms (bandwidth h > 0);
* :class:`~understudy.methods.shared.queries.counts.TermHistogram`: the same at h = 0, where the kernel is the identity;
* :class:`SequenceDensity`: kernel density of sequences of m terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedBatch
from understudy.methods.dp_kps.plan import density_sensitivity, sequence_sensitivity
from understudy.methods.dp_kps.sequences import WEIGHT_GRID, integer_features
from understudy.methods.shared.queries.counts import TermRows, weights_of_terms
from understudy.privacy.measurement import Query
from understudy.privacy.mechanisms import Sensitivity
from understudy.privacy.noise import NoiseKind

Number = TypeVar("Number", bound=np.generic)
_CHUNK_NUMBERS = 1 << 24
_SAFETY = 1 - 1e-9  # float rounding of a norm is far smaller


@dataclass(frozen=True)
class TermDensity(Query[BoundedBatch]):
    """Kernel density of terms: per label the sum over records of a vector of summed term features.

    The vector of a record is v = sum of the integer features of its terms, scaled *onto* the sensitivity ball: by
    floor(G B / |v|), B the bound of one term's features. The paper averages (scales by 1/m), which leaves |v| well
    inside the ball, since features of different terms are nearly orthogonal; scaling by the norm is as private and
    has up to sqrt(m) times the signal (docs/decisions/003).

    Guarantee:
        Unit: a record, or an owner whose records are averaged jointly over labels.
        Sensitivity: with gaussian noise |.| is the L2 norm and B = GRID sqrt(I); with laplace noise |.| is the L1 norm
        and B = GRID sqrt(2) I. Either way a record's integer vector has norm at most G B (G = WEIGHT_GRID), whatever it
        holds; no terms, or a zero vector, add nothing. Norms are those of the rounded features, computed exactly.
        Source: LSQ (Wagner et al. 2023); KPS (Nagesh et al. 2025, arXiv:2502.13193).
    """

    rows: TermRows
    labels: int
    features: NDArray[np.int32]
    noise: NoiseKind

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.labels, self.features.shape[1])

    @property
    def partial_shape(self) -> tuple[int, int]:
        return (self.labels, len(self.features))

    @property
    def sensitivity(self) -> Sensitivity:
        return density_sensitivity(self.noise, self.features.shape[1] // 2)

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        """A histogram of terms, in which phi is linear."""
        rows = self.rows.of(batch)
        norms, bound = self._norms(rows), self.sensitivity.of(self.noise) / WEIGHT_GRID
        scale = np.divide(bound, norms * batch.shares, out=np.zeros(len(rows)), where=norms > 0)
        weights = np.floor(WEIGHT_GRID * _SAFETY * scale).astype(np.int64)
        return weights_of_terms(self.partial_shape, rows, batch.labels, weights)

    def finish(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        return sums @ self.features.astype(np.int64)

    @cached_property
    def _padded(self) -> NDArray[np.int32]:
        """With a row of zeros, where -1 points to."""
        return np.pad(self.features, ((0, 1), (0, 0)))

    def _norms(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """L2 (gaussian) or L1 (laplace) norm of each row's summed features: of integers, so exact up to the root."""
        padded = self._padded
        norms = [np.zeros(0)]
        for chunk in _chunks(rows, max(1, _CHUNK_NUMBERS // (rows.shape[1] * padded.shape[1]))):
            sums = padded[chunk].sum(axis=1, dtype=np.float64)
            norms.append(np.sqrt((sums**2).sum(axis=1)) if self.noise == "gaussian" else np.abs(sums).sum(axis=1))
        return np.concatenate(norms)


@dataclass(frozen=True)
class SequenceDensity(Query[BoundedBatch]):
    """Kernel density of sequences of m terms (structure K_m of the iterative method).

    A record gives one canonical tuple, its first m distinct terms in V~; a record with fewer gives nothing.

    Guarantee:
        Unit: a record, or an owner whose records are averaged jointly over labels.
        Sensitivity: one feature vector per record, of L2 norm at most GRID sqrt(I) and L1 norm at most GRID sqrt(2) I.
        Source: KPS (Nagesh et al. 2025, arXiv:2502.13193).
    """

    rows: TermRows
    labels: int
    phases: NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.labels, 2 * int(self.phases.shape[2]))

    @property
    def sensitivity(self) -> Sensitivity:
        return sequence_sensitivity(int(self.phases.shape[2]))

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        total = np.zeros(self.shape, dtype=np.int64)
        rows, length = self.rows.of(batch), len(self.phases)
        complete = rows[:, length - 1] >= 0
        for tuples, label, weight in zip(
            _chunks(rows[complete, :length]),
            _chunks(batch.labels[complete]),
            _chunks(WEIGHT_GRID // batch.shares[complete]),
            strict=True,
        ):
            phase = self.phases[np.arange(length), tuples].sum(axis=1)
            np.add.at(total, label, integer_features(phase).astype(np.int64) * weight[:, None])
        return total


def _chunks(rows: NDArray[Number], size: int = 512) -> list[NDArray[Number]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
