"""Aug-PE, the only code that reads private records.

Aug-PE (Xie et al. 2024, arXiv:2403.01749, Algorithm 1), cut at the privacy boundary:

    shares   = noisy label counts, if asked for                                     charge "labels"
    V~       = top terms of noisy counts, if keywords are to come from the data     charge "vocabulary"
    S_1      = new texts of a language model (with keywords of V~)
    for t in 1 .. T:
        votes_t  = each private unit's votes for the nearest texts of S_t + noise   charge "votes-t"
        S_t+1    = the N_syn texts with most noisy votes, and variations of them
    return all S_t, votes_t and what was chosen

Guarantee:
    Unit: a record; an owner; or a secret, whose at most m records are dropped together. Each line with noise is one
    :class:`~understudy.privacy.mechanisms.NoisySum` whose query states its sensitivity
    (:class:`~understudy.methods.aug_pe.votes.VoteHistogram`, :class:`~understudy.methods.aug_pe.sizes.LabelCounts`,
    :class:`~understudy.vocabulary.top_terms.TermCounts`; m times that for a secret).
    The language model sees public text, released text and its own answers. A population is stored before it is voted
    on, and a histogram before it chooses, so a resumed run votes on the same texts and chooses by the same votes.
    Exact votes are never stored.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedCorpus
from understudy.evolution.embeddings import PrivateEmbeddings, integer_vectors
from understudy.evolution.keywords import keywords_of_labels
from understudy.evolution.loop import evolve, population_sizes
from understudy.evolution.population import Round
from understudy.evolution.variation import TextAPI
from understudy.methods.aug_pe.parameters import AugPEParameters
from understudy.methods.aug_pe.plan import LABELS, VOCABULARY, for_unit, keywords_name, vote_noise, votes_name
from understudy.methods.aug_pe.sizes import NOISY, LabelCounts, declared_proportions
from understudy.methods.aug_pe.votes import VoteHistogram
from understudy.methods.base import Arrays, Released, ReleaseTools
from understudy.models.types import Embedder
from understudy.privacy.mechanisms import IntegerSum, NoisySum
from understudy.privacy.plan import Plan
from understudy.vocabulary.matcher import TermMatcher
from understudy.vocabulary.terms import Vocabulary
from understudy.vocabulary.top_terms import TermCounts, top_terms
from understudy.writing.writer import Writer, public_name


def release(
    parameters: AugPEParameters,
    corpus: BoundedCorpus,
    plan: Plan,
    *,
    vocabulary: Vocabulary | None,
    tools: ReleaseTools,
) -> Released:
    """Evolve a population by the private records' votes.

    Args:
        vocabulary: public, for private keywords; None without.
    """
    embedder, writer = tools.embedder, tools.writer
    assert embedder is not None, "the run loads one where needs_embedder says so"
    assert writer is not None, "the run gives one where asks_for_candidates says so"
    noisy = _Noisy(plan, corpus, tools)
    keywords: Sequence[Sequence[str]] = keywords_of_labels(parameters, writer.template.evolution, writer.labels)
    arrays: dict[str, NDArray[Any]] = {}
    public = _public_inputs(parameters, writer, embedder)
    private_terms: list[str] = []
    if vocabulary is not None:
        stored = noisy.terms(vocabulary, parameters)
        private_terms = [vocabulary.terms[index] for index in stored["terms"].tolist()]
        arrays["counts"] = stored["counts"]
        keywords = [private_terms] * tools.labels
        public["vocabulary"] = {"source": vocabulary.source, "sha256": vocabulary.sha256}

    sizes = population_sizes(parameters, _shares(parameters, noisy, tools))
    voters = _Voters(parameters, corpus, embedder, noisy, tools)
    api = TextAPI(writer, parameters, keywords)
    rounds: list[Round] = []
    for each in evolve(api, sizes, embed=embedder.embed, vote=voters, keep=tools.keep):
        rounds.append(each)
        tools.say(_line(len(rounds), parameters.rounds, each))
    return Released(
        {**arrays, **_lineage(rounds)},
        private_terms,
        public,
        _noise_check(rounds, plan, tools.labels),
        strings={
            "texts": [text for each in rounds for text in each.population.texts],
            "prompts": [prompt for each in rounds for prompt in each.population.prompts],
            **({} if private_terms else {keywords_name(label): some for label, some in enumerate(keywords)}),
        },
    )


class _Noisy:
    """Queries of the private corpus, each paid for, drawn and stored once."""

    def __init__(self, plan: Plan, corpus: BoundedCorpus, tools: ReleaseTools) -> None:
        self._multipliers = {charge.name: float(charge.parameters["noise_multiplier"]) for charge in plan.charges}
        self._unit = plan.unit
        self._corpus = corpus
        self._tools = tools

    def sums(self, query: IntegerSum[Any], data: Any) -> NDArray[np.float64]:
        mechanism = NoisySum(for_unit(query, self._unit), "gaussian", self._multipliers[query.name])
        return mechanism.run(data, receipt=self._tools.receipt, source=self._tools.noise)

    def terms(self, vocabulary: Vocabulary, parameters: AugPEParameters) -> Arrays:
        """The privatised vocabulary, as DP-KPS's: indices and noisy counts of the top terms."""

        def draw() -> Arrays:
            matcher = TermMatcher(vocabulary.terms)
            query = TermCounts(matcher, len(vocabulary.terms), parameters.terms_per_record, VOCABULARY)
            counts = self.sums(query, self._corpus)
            chosen = top_terms(counts, parameters.top_terms)
            return {"terms": chosen, "counts": counts[chosen]}

        return self._tools.keep(VOCABULARY, draw)

    def labels(self) -> NDArray[np.float64]:
        """Noisy counts of the labels' records."""
        query = LabelCounts(self._tools.labels, LABELS)
        return self._tools.keep(LABELS, lambda: {"counts": self.sums(query, self._corpus)})["counts"]


class _Voters:
    """The private records: in every round each unit votes for the candidates nearest to its records.

    Their embeddings are made when the first vote is drawn (a resumed run may have none left to draw) and removed
    at the end.
    """

    def __init__(
        self,
        parameters: AugPEParameters,
        corpus: BoundedCorpus,
        embedder: Embedder,
        noisy: _Noisy,
        tools: ReleaseTools,
    ) -> None:
        self._parameters = parameters
        self._corpus = corpus
        self._embedder = embedder
        self._noisy = noisy
        self._tools = tools

    def __call__(self, number: int, vectors: NDArray[np.float32], labels: NDArray[np.int32]) -> NDArray[np.float64]:
        """``Float64[n]``: the noisy votes of round ``number`` (from 0)."""
        query = VoteHistogram(
            integer_vectors(vectors),
            labels,
            self._corpus.unit,
            votes_name(number + 1),
            self._parameters.nearest,
            self._parameters.distance,
        )

        def draw() -> Arrays:
            records, start = self._embeddings, time.perf_counter()
            votes = self._noisy.sums(query, records)
            self._tools.diary({"charge": query.name, "seconds": time.perf_counter() - start})
            return {"votes": votes}

        return self._tools.keep(query.name, draw)["votes"]

    @cached_property
    def _embeddings(self) -> PrivateEmbeddings:
        self._tools.say("Embedding the private texts: minutes for ten thousand on a few cores.")
        batches = ((batch.texts, batch.labels, batch.units) for batch in self._corpus.batches())
        return PrivateEmbeddings.build(batches, self._embedder, folder=self._tools.scratch, key=self._tools.run_key)


def _public_inputs(parameters: AugPEParameters, writer: Writer, embedder: Embedder) -> dict[str, dict[str, str]]:
    """What was fixed before a private record was read, for the statement."""
    assert writer.chat is not None, "a run without one is refused"
    found = {
        "embedder": {"source": embedder.model_id, "sha256": embedder.fingerprint},
        "language model": {"source": public_name(writer.chat.model_id)},
        "prompts": {"source": f"for a {writer.template.document_type}", "sha256": writer.template.sha256},
    }
    if writer.examples:
        shown = json.dumps([example.model_dump(mode="json") for example in writer.examples]).encode()
        found["examples"] = {"source": "examples of your own", "sha256": hashlib.sha256(shown).hexdigest()}
    if parameters.keywords is not None:
        found["keywords"] = {"source": PurePath(parameters.keywords).name, "sha256": parameters.file_hashes["keywords"]}
    return found


def _shares(parameters: AugPEParameters, noisy: _Noisy, tools: ReleaseTools) -> Sequence[float]:
    """How the population is shared out over the labels."""
    declared = declared_proportions(parameters.label_sizes, tools.label_names)
    if declared is not None:
        return declared
    if parameters.label_sizes == NOISY:
        return [float(count) for count in noisy.labels()]
    return [1.0] * tools.labels


def _line(number: int, rounds: int, each: Round) -> str:
    failed = int(each.population.failed.sum())
    left_out = f", {failed} left out (the language model gave no text)" if failed else ""
    return f"Round {number} of {rounds}: {len(each.population)} candidates{left_out}, {len(each.chosen)} chosen."


def _lineage(rounds: Sequence[Round]) -> dict[str, NDArray[Any]]:
    """Every round, its candidates one behind the other as in ``strings``: round, label, parent, votes, chosen."""
    populations = [each.population for each in rounds]
    chosen = [np.bincount(each.chosen, minlength=len(each.population)) for each in rounds]
    return {
        "round": np.repeat(np.arange(len(rounds), dtype=np.int32), [len(each) for each in populations]),
        "label": np.concatenate([each.labels for each in populations]),
        "parent": np.concatenate([each.parents for each in populations]),
        "votes": np.concatenate([each.votes for each in rounds]),
        "chosen": np.concatenate(chosen).astype(np.int32),
        "survivors": rounds[-1].chosen_numbers,
        "failed": np.stack([each.failed for each in populations]),
    }


def _noise_check(rounds: Sequence[Round], plan: Plan, labels: int) -> dict[str, Any]:
    """How much of the votes stands above the noise: noisy values and public numbers only."""
    votes = [charge for charge in plan.charges if charge.name.startswith("votes-")]
    noise = vote_noise(float(votes[-1].parameters["noise_multiplier"]), plan.unit)
    last = rounds[-1]
    above = [int(np.sum(last.votes[last.population.labels == label] > 3 * noise)) for label in range(labels)]
    check: dict[str, Any] = {
        "noise on the votes of a candidate (std, votes)": round(noise, 3),
        "candidates of the last round whose votes stand 3 std above the noise, by label": above,
    }
    if not all(above):
        check["warning"] = (
            "In the last round the votes of some labels are all noise: their texts are those that the language model "
            "happened to write. Spend more epsilon, or use fewer rounds or candidates."
        )
    return check
