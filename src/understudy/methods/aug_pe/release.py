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
    :class:`~understudy.privacy.mechanisms.NoisySum` over a query that states its sensitivity
    (:class:`~understudy.methods.shared.votes.VoteHistogram`,
    :class:`~understudy.methods.shared.queries.counts.LabelCounts`,
    :class:`~understudy.methods.shared.queries.counts.TermCounts`; m times that for a secret). The language model sees
    public text, released text and its own answers. A population is stored before it is voted on, and a histogram before
    it chooses, so a resumed run votes on the same texts and chooses by the same votes. Exact votes are never stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.aug_pe.plan import (
    LABELS,
    VOCABULARY,
    AugPEParameters,
    keywords_name,
    public_vocabulary,
    verdict,
    votes_name,
)
from understudy.methods.base import Preparation, Released, ReleaseTools, needed
from understudy.methods.release_schema import Contents, Held
from understudy.methods.shared.evolution.embeddings import PrivateEmbeddings, integer_vectors
from understudy.methods.shared.evolution.loop import Round, evolve, evolved
from understudy.methods.shared.evolution.parameters import candidates_per_round, population_sizes
from understudy.methods.shared.evolution.variation import TextAPI, keywords_of_labels
from understudy.methods.shared.queries.counts import LabelCounts, TermCounts
from understudy.methods.shared.votes import VoteHistogram
from understudy.models.machine import require_memory
from understudy.models.types import Embedder
from understudy.privacy.events import GaussianEvent
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import Arrays
from understudy.privacy.verdict import at_least
from understudy.release import Release
from understudy.schema.labels import NOISY, declared_proportions
from understudy.text.vocabulary.shrinkage import top_terms
from understudy.text.vocabulary.words import TermMatcher
from understudy.text.writing import Writer, public_name


def prepare(parameters: AugPEParameters, corpus: BoundedCorpus, plan: Plan, preparation: Preparation) -> None:
    """Check that the embeddings of a round's candidates fit into memory; else raise ConfigError."""
    require_memory(
        candidates_per_round(parameters, preparation.labels.size) * preparation.dimension * _CANDIDATE_BYTES,
        what="The embeddings of a round's candidates",
        cure="Lower population or variations.",
    )


_CANDIDATE_BYTES = 4 + 2 + 4 + 8  # copies: as embedded, on the grid, as multiplied, and for their mean


def contents(parameters: AugPEParameters, release: Release) -> Contents:
    """Describe the candidates of all rounds: text, prompt, label, lineage, noisy votes, and how often each was
    chosen."""
    count, labels = len(release.strings.get("texts", ())), release.schema.label_set.size
    charges = [votes_name(number + 1) for number in range(parameters.rounds)]
    arrays = {
        "round": Held("int32", (count,), 0, parameters.rounds - 1),
        "label": Held("int32", (count,), 0, labels - 1),
        "parent": Held("int64", (count,), -1, count - 1),
        "votes": Held("float64", (count,)),
        "chosen": Held("int32", (count,), 0, 2**31 - 1),
        "survivors": Held("int64", ("survivors",), 0, count - 1),
        "failed": Held("int64", (parameters.rounds, labels), 0),
    }
    strings: dict[str, int | None] = {"texts": count, "prompts": count}
    if parameters.label_sizes == NOISY:
        charges.append(LABELS)
    if parameters.private_keywords:
        charges.append(VOCABULARY)
        arrays["counts"] = Held("float64", (len(release.terms),))
    else:
        strings |= {keywords_name(label): None for label in range(labels)}
    terms = None if parameters.private_keywords else 0
    return Contents(dict.fromkeys(charges, GaussianEvent.kind), arrays, strings, terms)


def release(parameters: AugPEParameters, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
    """Evolve a population by the private records' votes."""
    embedder, writer, labels = needed(tools.embedder), needed(tools.writer), tools.labels
    shares: Sequence[float] = declared_proportions(parameters.label_sizes, labels.names) or [1.0] * labels.size
    if parameters.label_sizes == NOISY:
        shares = tools.measure(LABELS, LabelCounts(plan.query(LABELS)), corpus).value.tolist()

    keywords: Sequence[Sequence[str]] = keywords_of_labels(parameters, writer.template.evolution, writer.labels)
    public = _public_inputs(parameters, writer, embedder)
    counts: dict[str, NDArray[Any]] = {}
    terms: list[str] = []
    if (vocabulary := public_vocabulary(parameters)) is not None:
        tools.require_same(VOCABULARY, vocabulary.sha256)
        query = TermCounts(plan.query(VOCABULARY), TermMatcher(vocabulary.terms))
        noisy = tools.measure(VOCABULARY, query, corpus).value
        chosen = top_terms(noisy, parameters.top_terms)
        terms, counts["counts"] = [vocabulary.terms[index] for index in chosen.tolist()], noisy[chosen]
        keywords = [terms] * labels.size
        public["vocabulary"] = vocabulary.public_input

    voters = PrivateEmbeddings(corpus, embedder, tools.scratch, tools.scratch.name, say=tools.say)

    def votes(number: int, vectors: NDArray[np.float32], labels: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return each private unit's votes for the nearest candidates, with noise."""
        candidates = integer_vectors(vectors)
        name = votes_name(number + 1)
        histogram = VoteHistogram(plan.query(name), candidates, labels, parameters.distance)
        return tools.measure(name, histogram, voters).value

    api = TextAPI(writer, parameters, keywords)
    model, models = public_name(api.chat.model_id), list[str]()

    def keep(name: str, make: Callable[[], Arrays]) -> Arrays:
        """Return a population with its author's name: a resumed run may have another language model."""
        found = tools.keep(name, lambda: {**make(), "model": np.frombuffer(model.encode(), dtype=np.uint8)})
        models.append(bytes(found["model"]).decode())
        return found

    sizes = population_sizes(parameters, shares)
    evolving = evolve(api, sizes, embed=embedder.embed, vote=votes, keep=keep)
    rounds = evolved(evolving, parameters.rounds, say=tools.say, progress=tools.progress)
    public["language model"] = {"source": _writers(models)}
    return Released(
        {**counts, **_lineage(rounds)},
        terms,
        public,
        _noise_check(parameters, rounds, plan, labels.size),
        strings={
            "texts": [text for each in rounds for text in each.population.texts],
            "prompts": [prompt for each in rounds for prompt in each.population.prompts],
            **({} if terms else {keywords_name(label): some for label, some in enumerate(keywords)}),
        },
    )


def _public_inputs(parameters: AugPEParameters, writer: Writer, embedder: Embedder) -> dict[str, dict[str, str]]:
    """Return what was fixed before a private record was read, for the statement."""
    template = writer.template
    shown = ", with your examples" if template.examples_are_public else ""
    found = {
        "embedder": {"source": embedder.model_id, "sha256": embedder.fingerprint},
        "prompts": {"source": f"for a {template.document_type}{shown}", "sha256": template.sha256},
    }
    if parameters.keywords is not None:
        found["keywords"] = {"source": PurePath(parameters.keywords).name, "sha256": parameters.file_hashes["keywords"]}
    return found


def _writers(models: Sequence[str]) -> str:
    rounds = {each: [str(at + 1) for at, model in enumerate(models) if model == each] for each in models}
    named = [f"{each} (rounds {', '.join(numbers)})" for each, numbers in rounds.items()]
    return models[0] if len(named) == 1 else "; ".join(named)


def _lineage(rounds: Sequence[Round]) -> dict[str, NDArray[Any]]:
    """Return all rounds, with candidates in the order of ``strings``: round, label, parent, votes, chosen."""
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


def _noise_check(parameters: AugPEParameters, rounds: Sequence[Round], plan: Plan, labels: int) -> Facts:
    """Return how much of the votes is above the noise, from noisy values and public numbers only."""
    mechanism, last = plan.mechanism(votes_name(len(rounds))), rounds[-1]
    noise = mechanism.noise_std
    above = tuple(int(np.sum(last.votes[last.population.labels == label] > 3 * noise)) for label in range(labels))
    votes = at_least(float(last.votes.sum()), noise * math.sqrt(len(last.votes)))
    return Facts(
        (
            Fact("vote_noise", round(noise, 3), "noise on the votes for a candidate (std, votes)"),
            Fact("candidates_above_3_std", above, "candidates of the last round with votes 3 std above the noise"),
        ),
        verdict=verdict(parameters, mechanism, labels, votes / math.sqrt(parameters.nearest)),
    )
