"""Populations and where each text comes from.

Every candidate of a run has a number, its place in the whole lineage: those of the first round come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_PARENT = -1
KEPT = "kept"
"""What stands in the place of a prompt for a text that was chosen before and is a candidate again."""


@dataclass(frozen=True)
class Population:
    """The candidates of one round.

    Args:
        texts: one a candidate, never blank.
        labels: ``Int32[n]``, indices into the label set.
        parents: ``Int64[n]``, the lineage number of the text it is a variation of; -1 for a new text.
        prompts: what was asked for, in short, without the text: ``variation|style:briefly|words:60|blanks:0.5``.
        first: lineage number of the first candidate.
        failed: ``Int64[labels]``, calls of the language model that failed or gave nothing.
    """

    texts: tuple[str, ...]
    labels: NDArray[np.int32]
    parents: NDArray[np.int64]
    prompts: tuple[str, ...]
    first: int
    failed: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.texts)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All of it as numeric arrays, which is what a run store keeps."""
        return {
            **_encode("texts", self.texts),
            **_encode("prompts", self.prompts),
            "labels": self.labels,
            "parents": self.parents,
            "first": np.array([self.first], dtype=np.int64),
            "failed": self.failed,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Population:
        """The exact inverse of :meth:`to_arrays`."""
        return cls(
            texts=_decode("texts", arrays),
            labels=np.asarray(arrays["labels"], dtype=np.int32),
            parents=np.asarray(arrays["parents"], dtype=np.int64),
            prompts=_decode("prompts", arrays),
            first=int(arrays["first"][0]),
            failed=np.asarray(arrays["failed"], dtype=np.int64),
        )


@dataclass(frozen=True)
class Round:
    """One round of evolution.

    Args:
        population: the candidates.
        votes: ``Float64[n]``, of each candidate: noisy, or of a noisy Release.
        chosen: ``Int64[...]``, indices into the population, label after label, best first; an index may repeat.
    """

    population: Population
    votes: NDArray[np.float64]
    chosen: NDArray[np.int64]

    @property
    def chosen_texts(self) -> tuple[str, ...]:
        return tuple(self.population.texts[index] for index in self.chosen.tolist())

    @property
    def chosen_labels(self) -> NDArray[np.int32]:
        """``Int32[...]``, of the chosen texts."""
        return self.population.labels[self.chosen]

    @property
    def chosen_numbers(self) -> NDArray[np.int64]:
        """``Int64[...]``, lineage numbers of the chosen texts."""
        return self.chosen + self.population.first


def _encode(name: str, strings: Sequence[str]) -> dict[str, NDArray[Any]]:
    encoded = [string.encode("utf-8", "surrogatepass") for string in strings]
    ends = np.cumsum([0, *(len(each) for each in encoded)], dtype=np.int64)
    return {name: np.frombuffer(b"".join(encoded), dtype=np.uint8), f"{name}_offsets": ends}


def _decode(name: str, arrays: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    encoded, ends = arrays[name].astype(np.uint8).tobytes(), arrays[f"{name}_offsets"].tolist()
    return tuple(encoded[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise(ends))
