"""SecPE, after the privacy boundary: texts evolve against the released centres. No private data; free."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ReleaseError
from understudy.methods.facts import GenerationTools
from understudy.methods.sec_pe.plan import SIZE_SHARE, SecPEParameters, release_names
from understudy.methods.shared.evolution.embeddings import Block, integer_vectors
from understudy.methods.shared.evolution.loop import generate_by_votes
from understudy.methods.shared.evolution.voting import Distance, nearest
from understudy.models.types import Embedder
from understudy.release import Release
from understudy.text.records import SyntheticRecord


def generate(
    parameters: SecPEParameters, release: Release, counts: Sequence[int], *, tools: GenerationTools
) -> Iterator[SyntheticRecord]:
    """Evolve texts for which the released centres vote; yield ``counts[label]`` records of each label."""
    embedder = _same_embedder(release, tools.embedder)
    votes = CentreVotes(release.arrays["centres"], release.arrays["sizes"], distance=parameters.distance)
    return generate_by_votes(parameters, counts, tools=tools, embedder=embedder, vote=votes)


def label_counts(parameters: SecPEParameters, release: Release) -> tuple[list[float], float]:
    """Return, for each label, the sum of its clusters' noisy sizes, and the standard deviation of the noise."""
    sizes, noise = release.arrays["sizes"], release.statement.noise_multiplier(release_names(parameters)[0]) or 0.0
    return sizes.sum(axis=1).tolist(), noise * math.sqrt(sizes.shape[1] / SIZE_SHARE / parameters.releases)


class CentreVotes:
    """The votes of the released centres (``Float32[labels, K, d]``). Each centre votes for the nearest candidate of its
    label; its noisy size (``Float64[labels, K]``, 0 if negative) is the weight of the vote."""

    def __init__(
        self, centres: NDArray[np.float32], sizes: NDArray[np.float64], *, distance: Distance = "cosine"
    ) -> None:
        self._distance = distance
        labels, count, dimension = centres.shape
        flat = centres.reshape(-1, dimension)
        norms = np.linalg.norm(flat, axis=1, keepdims=True)
        known = norms[:, 0] > 0
        self.centres = Block(
            integer_vectors((flat[known] / norms[known]).astype(np.float32)),
            np.repeat(np.arange(labels, dtype=np.int32), count)[known],
            np.zeros(int(known.sum()), dtype=np.int64),
        )
        self._weights = np.maximum(sizes.ravel(), 0.0)[known]

    def __call__(self, _number: int, vectors: NDArray[np.float32], labels: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return ``Float64[n]``: the votes of each candidate."""
        votes = np.zeros(len(vectors))
        if len(vectors):
            (found,) = nearest([self.centres], integer_vectors(vectors), labels, distance=self._distance)
            voted = found[:, 0] >= 0
            np.add.at(votes, found[voted, 0], self._weights[voted])
        return votes


def _same_embedder(release: Release, embedder: Embedder | None) -> Embedder:
    assert embedder is not None, "the run loads what a method needs"
    if embedder.fingerprint != release.statement.public_inputs["embedder"]["sha256"]:
        source = release.statement.public_inputs["embedder"]["source"]
        raise ReleaseError(
            f"The centres of this Release are embeddings of {source}, not of {embedder.model_id}.",
            "Generate with the embedder that it was made with (--embedder).",
        )
    return embedder
