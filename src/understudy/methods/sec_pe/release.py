"""SecPE, the only code that reads private records.

SecPE (Wang et al. 2025), cut at the privacy boundary; the centres are released once, not once per round:

    e_k, n_k   = k-means on a public corpus
    D          = each record of the corpus, sampled with its rate                  fresh for every release
    sums_k     = sum over records of D nearest to e_k of (1, clip(x - e_k)) + noise       charge "clusters"
    size_k     = noisy count;  centre_k = e_k + noisy residual sum / (n_k + size_k)

Guarantee:
    Unit: a secret; neighbours are the corpus with and without all records that contain it, at most m.
    The line with noise is one :class:`~understudy.privacy.mechanisms.SampledSum` over
    :class:`~understudy.methods.sec_pe.clusters.ClusterSums`, which state rates, sensitivity and event. Clusters are
    public: of a public corpus, or (public incidence, by a flag) of the records without secrets, which no secret's
    neighbours differ in. Everything else is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from understudy.base.display import plural
from understudy.base.errors import ConfigError, CorpusError
from understudy.corpus import Corpus, read_corpus
from understudy.corpus.bounding import BoundedCorpus
from understudy.corpus.secrets import Incidence, incidence
from understudy.methods.base import Preparation, Released, ReleaseTools, needed
from understudy.methods.release_schema import Contents, Held
from understudy.methods.sec_pe.clusters import Clusters, ClusterSums, make_clusters, noisy_centres
from understudy.methods.sec_pe.plan import (
    RESIDUAL_CLIP,
    SIZE_SHARE,
    SamplingRates,
    SecPEParameters,
    private_rates,
    public_rates,
    release_names,
    verdict,
)
from understudy.methods.shared.evolution.embeddings import EMBEDDING
from understudy.models.types import Embedder
from understudy.privacy.events import MixtureEvent
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.mechanisms import require_releasable
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import Arrays
from understudy.privacy.unit import Unit
from understudy.privacy.verdict import at_least
from understudy.release import Release
from understudy.schema.labels import LabelSet


def sampling_rates(parameters: SecPEParameters, unit: Unit) -> SamplingRates:
    """Return the rates at which records are sampled; with public incidence, from its file. Reads no private table."""
    if parameters.incidence == "private":
        return private_rates(parameters, unit)
    found = Incidence.read(needed(parameters.incidence_file))
    free = np.ones(found.n_records, dtype=np.bool_)
    free[found.records] = False
    return public_rates(parameters, found.to_csr().T.tocsr(), free, unit, sha256=found.sha256)


def _planned_rates(parameters: SecPEParameters, plan: Plan) -> SamplingRates:
    """Return the sampling rates of the plan. Raises ConfigError if the incidence file changed since."""
    found = sampling_rates(parameters, plan.unit)
    if found.sha256 != plan.charges[0].mechanism.incidence:  # type: ignore[attr-defined]
        raise ConfigError(
            "The incidence file changed while the run was reading it.", "Restore the file that the run began with."
        )
    return found


def prepare(
    parameters: SecPEParameters, corpus: BoundedCorpus, plan: Plan, preparation: Preparation
) -> Clusters | None:
    """Check that the private table has the declared incidence, then make the public clusters; None if a resumed run has
    them. Raises ConfigError or CorpusError."""
    rates = _planned_rates(parameters, plan)
    if parameters.incidence == "public":
        there = incidence(corpus.corpus, needed(preparation.secrets))  # type: ignore[arg-type]
        if there.sha256 != rates.sha256:
            raise CorpusError(
                "The table does not have the incidence of secrets that was declared public.",
                "Make the file with `understudy secrets incidence` from this table, with the same options.",
            )
    labels = preparation.labels
    if not parameters.records_without_secrets_are_public:  # else there is one set of clusters, whatever their labels
        if parameters.public_label and not labels.names:
            raise ConfigError(
                "A label column of the public corpus is given (public_label), but the private table has no labels.",
                "Leave out --public-label, or give the private table labels with --label and --labels.",
            )
        counts = np.zeros(labels.size, dtype=np.int64)
        with open_public(parameters, labels) as public:
            for batch in public.batches():
                counts += np.bincount(batch.labels, minlength=len(counts))
        fewest = int(counts.min() if parameters.public_label else counts.sum())
        if fewest < parameters.clusters:
            raise ConfigError(
                f"The public corpus has {fewest} texts{' of a label' if parameters.public_label else ''}, fewer than "
                f"the {parameters.clusters} clusters.",
                "Lower clusters, or give a larger public corpus.",
            )
    if preparation.resuming:
        return None
    shape = (labels.size, parameters.clusters, 1 + preparation.dimension)
    require_releasable(shape, cure="Lower clusters.")
    return public_clusters(parameters, corpus, rates, preparation)


_LARGEST_COORDINATE = 1e15  # its square, summed over a dimension, is still a float32


def contents(parameters: SecPEParameters, release: Release) -> Contents:
    """Describe, per label, the K public clusters, the noisy sums over them, and the resulting centres."""
    labels = release.schema.label_set.size
    clusters = (labels, parameters.clusters)
    sums = Held("float64", (*clusters, "dimension with size"))
    return Contents(
        dict.fromkeys(release_names(parameters), MixtureEvent.kind),
        {
            "sizes": Held("float64", clusters),
            "centres": Held("float32", (*clusters, "dimension"), -_LARGEST_COORDINATE, _LARGEST_COORDINATE),
            "public_centres": Held("int16", (*clusters, "dimension")),
            "public_sizes": Held("int64", clusters, 1),
            **{f"sums-{number + 1}": sums for number in range(parameters.releases)},
        },
        public_inputs=("embedder",),
    )


def release(parameters: SecPEParameters, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
    """Release the noisy sizes and centres of public clusters; records are sampled as planned."""
    embedder, sampling = needed(tools.embedder), _planned_rates(parameters, plan)

    def clusters_to_keep() -> Arrays:
        made = tools.prepared or public_clusters(parameters, corpus, sampling, tools)
        return {"centres": made.centres, "sizes": made.sizes}

    stored = tools.keep("public-clusters", clusters_to_keep)
    clusters = Clusters(stored["centres"], stored["sizes"])
    tools.say(f"{plural(clusters.shape[1], 'public cluster')} for each of {plural(clusters.shape[0], 'label')}.")

    tools.say(EMBEDDING)
    names = release_names(parameters)
    queries = {name: ClusterSums(plan.query(name), clusters, embedder, RESIDUAL_CLIP, SIZE_SHARE) for name in names}
    releases = [tools.measure(name, queries[name], corpus, rates=sampling.rates).value for name in names]
    sums = np.mean(releases, axis=0)
    noise = plan.mechanism(names[0]).noise_multiplier / math.sqrt(len(releases))
    sizes, centres = noisy_centres(clusters, sums, clip=RESIDUAL_CLIP, size_share=SIZE_SHARE, noise=noise)
    return Released(
        {
            "sizes": sizes,
            "centres": centres.astype(np.float32),
            "public_centres": clusters.centres,
            "public_sizes": clusters.sizes,
            **{f"sums-{number + 1}": each for number, each in enumerate(releases)},
        },
        public_inputs={**_named(parameters), "embedder": {"source": embedder.model_id, "sha256": embedder.fingerprint}},
        noise_check=_noise_check(sizes, noise / math.sqrt(SIZE_SHARE)),
    )


def public_clusters(
    parameters: SecPEParameters, corpus: BoundedCorpus, sampling: SamplingRates, tools: Preparation
) -> Clusters:
    """Make clusters of the public texts before anything is charged, so that failures cost nothing."""
    tools.say("Embedding the public texts and making clusters of them. Ten thousand take minutes on a few cores.")
    embedder = needed(tools.embedder)
    if parameters.records_without_secrets_are_public:
        found = list(_without_secrets(corpus, sampling, embedder))
    else:
        with open_public(parameters, tools.labels) as public:
            found = [(embedder.embed(batch.texts), batch.labels) for batch in public.batches()]
    if not found:
        raise ConfigError("The public corpus is empty.", "Give one with more texts than clusters.")
    vectors, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    known = labels if parameters.public_label else None
    return make_clusters(vectors, known, labels=tools.labels.size, count=parameters.clusters, seed=tools.seed)


def _noise_check(sizes: NDArray[np.float64], noise: float) -> Facts:
    """Return how many sizes are above the noise, from noisy values and public numbers only."""
    above = tuple(int(number) for number in (sizes > 3 * noise).sum(axis=1))
    sampled = at_least(float(sizes.sum()), noise * math.sqrt(sizes.size))
    return Facts(
        (
            Fact("size_noise", round(noise, 3), "noise on the size of a cluster (std, records)"),
            Fact("clusters_above_3_std", above, "clusters whose size is 3 std above the noise"),
        ),
        verdict=verdict(noise, len(sizes), sampled),
    )


def _named(parameters: SecPEParameters) -> dict[str, dict[str, str]]:
    hashes = parameters.file_hashes  # read once: the public corpus may be large
    found = {
        name: {"source": Path(getattr(parameters, field)).name, "sha256": hashes[field]}
        for field, name in _PUBLIC_FILES.items()
        if field in hashes
    }
    if parameters.records_without_secrets_are_public:
        found["public corpus"] = {"source": "the private table's records without secrets, declared public"}
    return found


_PUBLIC_FILES = {
    "public_corpus": "public corpus",
    "incidence_file": "incidence of secrets",
    "secret_budgets": "secret budgets",
}


def open_public(parameters: SecPEParameters, labels: LabelSet) -> Corpus:
    """Read the public corpus, without unusable rows. Raises ConfigError or CorpusError if it cannot be read."""
    assert parameters.public_corpus is not None, "the plan checks it"
    if not Path(parameters.public_corpus).is_file():  # no pattern: the statement has its hash
        raise ConfigError(
            f"There is no public corpus {Path(parameters.public_corpus).name!r}.", "Give the path of one file."
        )
    names = list(labels.names) if parameters.public_label else None
    return read_corpus(
        parameters.public_corpus,
        text=parameters.public_text,
        label=parameters.public_label,
        labels=names,
        label_type="string" if names else None,
        on_bad_row="skip",
    )


def _without_secrets(
    corpus: BoundedCorpus, sampling: SamplingRates, embedder: Embedder
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int32]]]:
    assert sampling.free is not None, "public incidence"
    first = 0
    for batch in corpus.batches():
        rows = np.flatnonzero(sampling.free[first : first + len(batch.texts)])
        first += len(batch.texts)
        if len(rows):
            yield embedder.embed([batch.texts[row] for row in rows.tolist()]), batch.labels[rows]
