"""Which candidates are nearest to each private record: exactly, and fast.

**Exact, hence batch invariant.** A record's vote must not depend on the other records of its block, or one record's
influence has no bound. Floating-point products do depend on them: another block size, thread count, kernel or device
adds the same numbers in a different order. Here the order cannot matter. Vectors x, y are integers of norm at most 2^12
(:mod:`understudy.methods.shared.evolution.embeddings`). Any sum of x_i y_i over any set of coordinates is an integer,
by Cauchy-Schwarz of magnitude at most |x| |y| <= 2^24; float32 represents every such integer. So no product, no partial
sum and no fused step of a float32 matrix product is ever rounded, and the result is the exact scalar product on any
device. Equal scores go to the candidate of lowest index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.base.lazy import torch
from understudy.methods.shared.evolution.embeddings import STEPS, Block

Distance = Literal["centred", "cosine", "l2"]
_SCORES = 1 << 23  # scores computed at once: 32 MiB, much of which stays near the processor


def nearest(
    blocks: Iterable[Block],
    candidates: NDArray[np.int16],
    candidate_labels: NDArray[np.int32],
    *,
    distance: Distance = "cosine",
    k: int = 1,
    device: str | None = None,
) -> Iterator[NDArray[np.int32]]:
    """Yield, for each block, ``Int32[rows, k]``: each record's k nearest candidates with its label, nearest first.

    If a label has fewer than k candidates, all of them are named and padded with -1. If it has none, or for a zero
    vector, which is near to nothing, all are -1. Memory: a block, the candidates in float32, 32 MiB.

    Args:
        blocks: records as integer vectors of norm at most 4096, and their labels.
        candidates: ``Int16[n, d]``, likewise.
        candidate_labels: ``Int32[n]``.
        distance: ``cosine``: the largest x . y (candidates have length 1 up to rounding). ``l2``: the largest x . y -
            |y|^2 / 2 on the rounded vectors. ``centred``: the largest cosine between x - m and y - m, m the mean of the
            label's candidates, so that generic texts do not win by being near to everybody. In all three, a record's
            score is an exact integer minus a number that depends on the candidate only, rounded once.
        device: a torch device; by default CUDA if torch sees one, else NumPy. The answer is the same.
    """
    on = device or _accelerator()
    scratch = np.empty(max(_SCORES, len(candidates)), dtype=np.float32)
    groups: dict[int, tuple[NDArray[np.int32], _NumpyGroup | _TorchGroup]] = {}

    def group_of(label: int) -> tuple[NDArray[np.int32], _NumpyGroup | _TorchGroup]:
        if label not in groups:
            members = np.flatnonzero(candidate_labels == label).astype(np.int32)
            mine, most = candidates[members], min(k, len(members))
            made = _NumpyGroup(mine, most, distance, scratch) if on is None else _TorchGroup(mine, most, distance, on)
            groups[label] = members, made
        return groups[label]

    for block in blocks:
        found = np.full((len(block.labels), k), -1, dtype=np.int32)
        somewhere = np.any(block.vectors, axis=1)
        for label in np.intersect1d(block.labels[somewhere], candidate_labels).tolist():
            members, group = group_of(label)
            rows = np.flatnonzero((block.labels == label) & somewhere)
            at_once = max(1, _SCORES // len(members))
            for some in (rows[start : start + at_once] for start in range(0, len(rows), at_once)):
                best = group.best(block.vectors[some])
                found[some, : best.shape[1]] = members[best]
        yield found


@lru_cache(maxsize=1)
def _accelerator() -> str | None:
    if find_spec("torch") is None:
        return None
    return "cuda" if torch.cuda.is_available() else None


class _NumpyGroup:
    """The candidates of one label, in main memory. ``scratch`` is shared with other groups: one product's scores."""

    def __init__(self, candidates: NDArray[np.int16], k: int, distance: Distance, scratch: NDArray[np.float32]) -> None:
        vectors, self._offsets = scoring(candidates, distance)
        self._columns = vectors.T
        self._k = k
        self._scratch = scratch

    def best(self, rows: NDArray[np.int16]) -> NDArray[np.int64]:
        """Return ``Int64[r, k]``: the k best candidates of each row, best first, equal ones by index."""
        shape = len(rows), self._columns.shape[1]
        scores = self._scratch[: shape[0] * shape[1]].reshape(shape)
        np.matmul(rows.astype(np.float32), self._columns, out=scores)
        if self._offsets is not None:
            scores -= self._offsets
        best = np.empty((len(rows), self._k), dtype=np.int64)
        for place in range(self._k):
            if place:
                np.put_along_axis(scores, best[:, place - 1 : place], -np.inf, axis=1)
            best[:, place] = scores.argmax(axis=1)
        return best


class _TorchGroup:
    """The candidates of one label, on a torch device, where they stay.

    TF32 and the like round their inputs to 11 bits: if the process allows them, float64 is used, which they do not
    affect. The result is the same. torch's argmax, as NumPy's, takes the first of equals.
    """

    def __init__(self, candidates: NDArray[np.int16], k: int, distance: Distance, device: str) -> None:
        self._device = torch.device(device)
        self._type = torch.float32 if _full_precision() else torch.float64
        vectors, offsets = scoring(candidates, distance)
        self._columns = self._moved(vectors).T
        self._offsets = None if offsets is None else torch.from_numpy(offsets).to(self._device)
        self._k = k

    def _moved(self, vectors: NDArray[np.int16] | NDArray[np.float32]) -> Any:
        return torch.from_numpy(vectors).to(self._device).to(self._type)

    def best(self, rows: NDArray[np.int16]) -> NDArray[np.int64]:
        with torch.inference_mode(), torch.autocast(self._device.type, enabled=False):
            scores = torch.mm(self._moved(rows), self._columns).to(torch.float32)
            if self._offsets is not None:
                scores -= self._offsets
            places: list[Any] = []
            for place in range(self._k):
                if place:
                    scores.scatter_(1, places[-1], -np.inf)
                places.append(scores.argmax(dim=1, keepdim=True))
            best: NDArray[np.int64] = torch.cat(places, dim=1).cpu().numpy()
        return best


def scoring(
    candidates: NDArray[np.int16], distance: Distance
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Return the vectors to multiply with, integers of norm at most 2^12, and the numbers to subtract from scores."""
    vectors = candidates.astype(np.float32)
    if distance == "cosine":
        return vectors, None
    if distance == "l2":
        squares = np.square(candidates, dtype=np.int32).sum(axis=1, dtype=np.int64)
        return vectors, np.asarray(squares / 2, dtype=np.float32)  # at most 24 bits, halved: exact
    mean = candidates.mean(axis=0)
    vectors -= mean.astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    vectors *= (STEPS / np.maximum(lengths, 1.0))[:, None]
    np.trunc(vectors, out=vectors)  # toward zero, so that no norm grows
    return vectors, np.einsum("ij,j->i", vectors, mean).astype(np.float32)


def _full_precision() -> bool:
    try:
        return bool(torch.get_float32_matmul_precision() == "highest")
    except RuntimeError:  # set in torch's newer way, which the older query does not support
        return False
