"""DP-KPS, the only code that reads private records.

KPS (Nagesh et al. 2024), sections 3.1 to 3.3, cut at the privacy boundary:

    counts  = [ records that hold v among their first S terms : v in V ] + noise      charge "vocabulary"
    V~      = the N terms with the largest counts
    sums_c  = sum over records of label c of  phi(terms of the record in V~) + noise  charge "density"
              (or, for every structure K_m, of phi(first m terms))                    charges "sequences-m"

Guarantee:
    Unit: a record, or an owner of whom at most k records are averaged (:mod:`understudy.corpus.bounding`).
    Each line with noise is one :class:`~understudy.privacy.mechanisms.NoisySum`, whose query states its sensitivity
    (:class:`~understudy.vocabulary.top_terms.TermCounts`, :mod:`understudy.methods.dp_kps.density`). The sums are
    joint over labels, so no parallel composition is needed. Everything else is post-processing: V~ of the noisy
    counts, its embeddings and features of V~ and public models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.dp_kps.density import SequenceDensity, TermDensity, TermHistogram, TermRows
from understudy.methods.dp_kps.features import Frequencies, integer_features
from understudy.methods.dp_kps.parameters import DPKPSParameters, needs_embeddings
from understudy.methods.dp_kps.plan import sketch_names
from understudy.models.types import Embedder
from understudy.privacy.mechanisms import IntegerSum, NoisySum
from understudy.privacy.noise import NoiseSource
from understudy.privacy.plan import Receipt
from understudy.vocabulary.matcher import TermMatcher
from understudy.vocabulary.terms import Vocabulary
from understudy.vocabulary.top_terms import TermCounts, top_terms

Arrays = Mapping[str, NDArray[Any]]
Keep = Callable[[str, Callable[[], Arrays]], Arrays]
"""Returns the stored noisy value of this name, or draws it and stores it before anyone sees it."""


@dataclass(frozen=True)
class NoisyRelease:
    """What :func:`release` hands on: all of it noised and paid for, or public."""

    terms: list[str]
    arrays: dict[str, NDArray[Any]]


def release(
    parameters: DPKPSParameters,
    corpus: BoundedCorpus,
    *,
    labels: int,
    vocabulary: Vocabulary,
    embedder: Embedder | None,
    noise_multipliers: Mapping[str, float],
    receipt: Receipt,
    noise: NoiseSource,
    keep: Keep,
    seed: int,
) -> NoisyRelease:
    """Release the privatised vocabulary and the density sketches over it.

    Args:
        embedder: public; None only for the exact histogram (independent mode, bandwidth 0).
        noise_multipliers: by release, from the plan.
        seed: of the random frequencies; public.
    """

    def noisy(query: IntegerSum[BoundedCorpus]) -> NDArray[np.float64]:
        mechanism = NoisySum(query, parameters.noise, noise_multipliers[query.name])
        return mechanism.run(corpus, receipt=receipt, source=noise)

    def noisy_vocabulary() -> Arrays:
        query = TermCounts(TermMatcher(vocabulary.terms), len(vocabulary.terms), parameters.terms_per_record)
        counts = noisy(query)
        chosen = top_terms(counts, parameters.top_terms)
        return {"terms": chosen, "counts": counts[chosen]}

    stored = keep("vocabulary", noisy_vocabulary)
    terms = [vocabulary.terms[index] for index in stored["terms"].tolist()]
    arrays: dict[str, NDArray[Any]] = {"counts": stored["counts"]}
    if embedder is not None:
        arrays["embeddings"] = keep("embeddings", lambda: {"embeddings": embedder.embed(terms)})["embeddings"]

    rows = TermRows(TermMatcher(terms), parameters.terms_per_record)
    for name, length in sketch_names(parameters).items():
        embeddings = arrays.get("embeddings")
        frequencies = None
        if embeddings is not None and needs_embeddings(parameters):
            frequencies = Frequencies(seed, length, parameters.features, parameters.bandwidth, embeddings.shape[1])
            arrays[f"frequencies-{length}"] = np.frombuffer(frequencies.digest, dtype=np.uint8)
        query = _density_query(parameters, rows, labels, name, frequencies, embeddings, len(terms))
        arrays[name] = keep(name, lambda query=query: {"sums": noisy(query)})["sums"]  # type: ignore[misc]
    return NoisyRelease(terms, arrays)


def _density_query(
    parameters: DPKPSParameters,
    rows: TermRows,
    labels: int,
    name: str,
    frequencies: Frequencies | None,
    embeddings: NDArray[np.float32] | None,
    terms: int,
) -> IntegerSum[BoundedCorpus]:
    if frequencies is None or embeddings is None:
        return TermHistogram(rows, labels, terms, parameters.noise, name)
    phases = frequencies.phases(embeddings)
    if parameters.mode == "independent":
        return TermDensity(rows, labels, integer_features(phases[0]), parameters.noise, name)
    return SequenceDensity(rows, labels, phases, name)
