"""DP-KPS, the only code that reads private records.

KPS (Nagesh et al. 2025, arXiv:2502.13193), cut at the privacy boundary:

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

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedCorpus
from understudy.errors import ModelError
from understudy.methods.base import Arrays, Released, ReleaseTools
from understudy.methods.dp_kps.density import SequenceDensity, TermDensity, TermHistogram, TermRows
from understudy.methods.dp_kps.features import Frequencies, integer_features
from understudy.methods.dp_kps.noise_check import noise_check
from understudy.methods.dp_kps.parameters import DPKPSParameters, needs_embeddings
from understudy.methods.dp_kps.plan import require_room, sketch_names
from understudy.models.types import Embedder
from understudy.privacy.mechanisms import IntegerSum, NoisySum
from understudy.privacy.plan import Plan
from understudy.vocabulary.matcher import TermMatcher
from understudy.vocabulary.terms import Vocabulary
from understudy.vocabulary.top_terms import TermCounts, top_terms


def release(
    parameters: DPKPSParameters,
    corpus: BoundedCorpus,
    plan: Plan,
    *,
    vocabulary: Vocabulary,
    tools: ReleaseTools,
) -> Released:
    """Release the privatised vocabulary and the density sketches over it.

    Args:
        vocabulary: public.
    """
    multipliers = {charge.name: float(charge.parameters["noise_multiplier"]) for charge in plan.charges}

    def noisy(query: IntegerSum[BoundedCorpus]) -> NDArray[np.float64]:
        mechanism = NoisySum(query, parameters.noise, multipliers[query.name])
        return mechanism.run(corpus, receipt=tools.receipt, source=tools.noise)

    def noisy_vocabulary() -> Arrays:
        matcher = TermMatcher(vocabulary.terms)
        counts = noisy(TermCounts(matcher, len(vocabulary.terms), parameters.terms_per_record))
        chosen = top_terms(counts, parameters.top_terms)
        return {"terms": chosen, "counts": counts[chosen]}

    stored = tools.keep("vocabulary", noisy_vocabulary)
    terms = [vocabulary.terms[index] for index in stored["terms"].tolist()]
    arrays: dict[str, NDArray[Any]] = {"counts": stored["counts"]}
    public = {"vocabulary": {"source": vocabulary.source, "sha256": vocabulary.sha256}}
    if needs_embeddings(parameters):
        embedder = tools.embedder
        assert embedder is not None, "the run loads one where needs_embedder says so"
        arrays["embeddings"] = tools.keep("embeddings", lambda: {"values": _unit_vectors(embedder, terms)})["values"]
        public["embedder"] = {"source": embedder.model_id, "sha256": embedder.fingerprint}

    rows = TermRows(TermMatcher(terms), parameters.terms_per_record)
    for name, length in sketch_names(parameters).items():
        query: IntegerSum[BoundedCorpus]
        if not needs_embeddings(parameters):
            query = TermHistogram(rows, tools.labels, len(terms), parameters.noise)
        else:
            embeddings = arrays["embeddings"]
            frequencies = Frequencies(
                tools.seed, length, parameters.features, parameters.bandwidth, embeddings.shape[1]
            )
            arrays[f"frequencies-{length}"] = np.frombuffer(frequencies.digest, dtype=np.uint8)
            phases = frequencies.phases(embeddings)
            if parameters.mode == "independent":
                query = TermDensity(rows, tools.labels, integer_features(phases[0]), parameters.noise)
            else:
                query = SequenceDensity(rows, tools.labels, phases, name)
        arrays[name] = tools.keep(name, lambda query=query: {"sums": noisy(query)})["sums"]  # type: ignore[misc]
    return Released(
        arrays,
        terms,
        public,
        noise_check(
            parameters,
            arrays,
            multipliers,
            units=f"{plan.unit.kind}s",
            vocabulary_size=len(vocabulary.terms),
            seed=tools.seed,
        ),
    )


def check_embeddings(parameters: DPKPSParameters, vocabulary: Vocabulary, embedder: Embedder, dimension: int) -> None:
    """See, before anything is charged, that terms of the public vocabulary can be embedded, and N of them held.

    Raises:
        ConfigError: if there is no room for them.
        ModelError: if the embedder does not answer with one unit vector per term.
    """
    require_room(parameters, dimension)
    _unit_vectors(embedder, vocabulary.terms[:_TRIED])


_TRIED = 256


def _unit_vectors(embedder: Embedder, terms: Sequence[str]) -> NDArray[np.float32]:
    """Embeddings that the sensitivity bounds of the features can be trusted with: NaN has no cosine.

    Raises:
        ModelError: if the embedder does not answer with one unit vector per term.
    """
    vectors = np.asarray(embedder.embed(terms), dtype=np.float32)
    lengths = np.linalg.norm(vectors, axis=-1)
    if vectors.ndim != 2 or len(vectors) != len(terms) or not np.all(np.abs(lengths - 1) < 0.01):
        raise ModelError(
            f"The embedder {embedder.model_id!r} does not answer with one unit vector a term.",
            "Use an embedder that normalises its vectors.",
        )
    return vectors
