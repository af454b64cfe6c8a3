"""Topics, the only code that reads private records: k-means with noise, begun at public terms.

    V, e      = public candidate terms and their embeddings; those that the texts use    charge "discovered-terms"
    votes     = each private unit's votes for the nearest of V that its text contains + noise charge "votes"
    c_1..c_C  = k-median of V, weighted by what the noisy votes surely are; C cells, K to 2 K by the number of votes
    for t in 1 .. 4:
        sums_j = sum over records x nearest to c_j of (1, x) + noise                          charge "sums-t"
        c_j    = mean of sums_j and half of the last sums_j, shrunk by what is known of the noise; dead ones next to
                 the largest
        c_1..c_K = the cells, those joined that are alike, then by Ward's criterion            after t = 2
    sizes     = number of records nearest to each c_j + noise                                 charge "sizes"
    names     = the terms of V that are nearest to c_j, and farther from the others

For topics that another Release found, c_1..c_K are given, and only sizes are measured. For a large table, "records" are
those of one Poisson sample for all measurements, under the one charge "topics".

Guarantee:
    Unit: a record; or an owner, of whom at most k records count. Each line with noise is one
    :class:`~understudy.privacy.mechanisms.NoisySum` over a query that states its sensitivity
    (:class:`~understudy.methods.shared.votes.VoteHistogram`, :class:`TopicSums`, :class:`TopicSizes`), joint
    over topics. A record's topic is a public function of its embedding and of centres that were made of values
    released before; centres are stored before records are assigned to them. Everything else is post-processing: names
    are public terms, and a record's text is read only to embed it and to find these terms in it.
    Sample: taken once, stored before a sum is made and found again by a run that is resumed. All that leaves are the
    noisy sums over it, each chosen by those before alone: one event of
    :class:`~understudy.privacy.sample.SubsampledSums`.
    Source: Blum, Dwork, McSherry and Nissim 2005 (k-means by noisy sums); Su, Cao, Li, Bertino and Jin 2016; Ward 1963.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ModelError
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.additions.guide.plan import COUNT_WEIGHT, EmbeddingSumsSpec
from understudy.methods.additions.guide.sums import sums_of
from understudy.methods.additions.topics.centres import (
    Candidates,
    Directions,
    Floats,
    are_said,
    averaged,
    by_size,
    cells_of,
    first_centres,
    first_ones,
    joined,
    merged,
    nearest_centres,
    next_centres,
    require_short,
    terms_of,
)
from understudy.methods.additions.topics.found import called_by, require_embedder
from understudy.methods.additions.topics.labelling import (
    CELL_ROUNDS,
    CELLS,
    CHARGES,
    ROUNDS,
    SIZES,
    TERMS_OF_TOPIC,
    VOTES,
    sums_name,
)
from understudy.methods.additions.topics.plan import (
    CANDIDATES,
    NAME,
    TopicsParameters,
    known_topics,
    listed_terms,
    sample_of,
    verdict,
)
from understudy.methods.base import Preparation, Released, ReleaseTools, needed
from understudy.methods.release_schema import Contents, Held
from understudy.methods.shared.evolution.embeddings import (
    LARGEST_NORM,
    Block,
    PrivateEmbeddings,
    embed_texts,
    integer_vectors,
    private_vectors,
)
from understudy.methods.shared.evolution.voting import scoring
from understudy.methods.shared.queries.discovered_terms import find_terms
from understudy.methods.shared.specs import LabelCountsSpec
from understudy.methods.shared.vocabulary import (
    DISCOVERED,
    FEWEST,
    VocabularyParameters,
    public_vocabulary,
    word_for_word,
)
from understudy.methods.shared.votes import VoteHistogram
from understudy.models.types import Embedder
from understudy.privacy.events import GaussianEvent, SelectionEvent, SubsampledGaussianEvent
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.measurement import PlannedQuery, Query, SampleOf, Spec
from understudy.privacy.mechanisms import COUNT_GRID, NoisySum, require_releasable
from understudy.privacy.plan import Plan
from understudy.privacy.sample import PaidSubsampledSums, SubsampledSums
from understudy.privacy.verdict import at_least
from understudy.release import Release
from understudy.text.vocabulary.terms import BUILT_IN, is_english, is_unwanted, load_vocabulary
from understudy.text.vocabulary.words import TermMatcher

_ENGLISH = TopicsParameters()


def prepare(
    parameters: TopicsParameters,
    corpus: BoundedCorpus,
    plan: Plan,
    preparation: Preparation,
) -> NDArray[np.int16] | None:
    """Embed the public candidate terms; return None if topics are given.

    Raises:
        ConfigError: if the sums are too large.
        ModelError: if the embedder does not answer with one unit vector per term.
        ReleaseError: if given topics were found with another embedder.
    """
    if isinstance(parameters.topics, int):
        return embed_candidates(parameters.topics, preparation, parameters)
    require_embedder(known_topics(parameters.topics)[0], needed(preparation.embedder), preparation.dimension)
    return None


def embed_candidates(
    topics: int, preparation: Preparation, parameters: VocabularyParameters = _ENGLISH
) -> NDArray[np.int16] | None:
    """Embed the public terms (see :func:`prepare`); None if a run resumes."""
    require_releasable((CELLS * topics, 1 + preparation.dimension), cure="Lower --topics.")
    if preparation.resuming:
        return None
    vectors = candidate_vectors(needed(preparation.embedder), parameters)
    Directions.of(vectors[:CANDIDATES])  # so that failures happen before the charge
    return vectors


def candidate_vectors(embedder: Embedder, parameters: VocabularyParameters = _ENGLISH) -> NDArray[np.int16]:
    """Embed the built-in terms, which give the principal directions, and then the terms of the user's list: ``Int16[n,
    d]`` on the grid. Raises ModelError if the vectors are not of length 1."""
    built_in, listed = _built_in(), listed_terms(parameters)
    terms = built_in if listed == built_in else built_in + listed
    vectors = np.asarray(embedder.embed(terms), dtype=np.float32)
    if vectors.ndim != 2 or len(vectors) != len(terms):
        raise ModelError(
            f"The embedder {embedder.model_id!r} does not answer with one vector per term.", "Use another embedder."
        )
    return integer_vectors(vectors)


def _built_in() -> tuple[str, ...]:
    return load_vocabulary().terms[:CANDIDATES]


def contents(parameters: TopicsParameters, release: Release) -> Contents:
    """Describe the centres, the topic of each, and the topics' noisy sizes and terms."""
    topics = len(release.arrays.get("sizes", ()))
    again = isinstance(parameters.topics, str)
    centres = "centres" if again else parameters.topics
    names = (SIZES,) if again else CHARGES
    sampled = sample_of(release.statement.charges)
    of_sample = sampled is not None and tuple(dict(sampled.sums)) == names
    charges = {NAME: SubsampledGaussianEvent.kind} if of_sample else dict.fromkeys(names, GaussianEvent.kind)
    if parameters.discover_terms and not again:
        charges[DISCOVERED] = SelectionEvent.kind
    return Contents(
        charges,
        {
            "centres": Held("int16", (centres, "dimension"), -LARGEST_NORM, LARGEST_NORM),
            "topic": Held("int32", (centres,), 0, topics - 1),
            "sizes": Held("float64", (topics,), -1e15, 1e15),
            "said": Held("int8", (topics,), 0, 1),
        },
        {"terms": topics * TERMS_OF_TOPIC},
        public_inputs=("embedder",),
    )


def release(parameters: TopicsParameters, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
    """Find the topics of the private records, or count given ones."""
    if isinstance(parameters.topics, str):
        return _counted(parameters.topics, corpus, plan, tools)
    found = find(parameters.topics, corpus, plan, tools, parameters=parameters)
    notes = (word_for_word(plan),) if parameters.discover_terms else ()
    return Released(
        {"centres": found.centres, "topic": found.topic, "sizes": found.sizes, "said": found.said},
        public_inputs={"vocabulary": found.vocabulary, "embedder": found.embedder},
        noise_check=found.check,
        notes=notes,
        strings={"terms": found.terms},
    )


@dataclass(frozen=True)
class Found:
    """Topics, the largest first, made of released values and public terms.

    Args:
        centres: ``Int16[K, d]``.
        topic: the topic of each centre, ``Int32[K]``.
        said: whether records surely voted for a term of each topic, ``Int8[K]``; if not, its terms are chance.
        sizes, terms: noisy numbers of records, and TERMS_OF_TOPIC terms of each topic, concatenated.
        vocabulary, embedder: for the statement.
    """

    centres: NDArray[np.int16]
    topic: NDArray[np.int32]
    sizes: NDArray[np.float64]
    said: NDArray[np.int8]
    terms: Sequence[str]
    vocabulary: Mapping[str, str]
    embedder: Mapping[str, str]
    check: Facts


def find(
    topics: int,
    corpus: BoundedCorpus,
    plan: Plan,
    tools: ReleaseTools,
    *,
    parameters: TopicsParameters = _ENGLISH,
    beside: str = "",
) -> Found:
    """Find the topics of the private records.

    Args:
        tools: ``prepared`` are the embeddings of the public candidates, or None.
        beside: prefix of the charges' names if topics are another method's labels. Then each centre is a topic, none is
            merged, and their number is K.
    """
    embedder, vocabulary = needed(tools.embedder), public_vocabulary(parameters)
    tools.require_same(f"{beside}vocabulary", vocabulary.sha256)

    def embedded() -> dict[str, NDArray[np.int16]]:
        return {"values": candidate_vectors(embedder, parameters) if tools.prepared is None else tools.prepared}

    def kept(name: str, made: NDArray[np.int16]) -> NDArray[np.int16]:
        """Return centres that a resumed run finds unchanged."""
        return tools.keep(beside + name, lambda: {"values": made})["values"]

    known = tools.keep(f"{beside}candidates", embedded)["values"]
    directions, built_in, listed = Directions.of(known[:CANDIDATES]), _built_in(), listed_terms(parameters)
    names: list[str] = []
    if parameters.discover_terms:
        names, _ = find_terms(listed, parameters.stop_words, corpus, plan, tools, most=CANDIDATES, longest=1)
    terms, vectors = listed, known[len(known) - len(listed) :]
    if names:
        made = private_vectors(embed_texts(embedder, names, known.shape[1]))
        terms, vectors = (*terms, *names), np.concatenate([vectors, kept("found", made)])
    elif not listed:  # nothing was found: the run goes to its end, and its verdict says so
        terms, vectors = built_in, known
    english = parameters.vocabulary == BUILT_IN and not parameters.discover_terms
    voters = _Voters(corpus, plan, tools, beside, NearestSaid(tuple(terms), vectors, english) if listed else None)
    places = np.arange(len(vectors), dtype=np.int32) * bool(listed)  # terms of the texts alone are all in texts
    voting = VoteHistogram(voters.query(VOTES), vectors, places, distance="centred")
    votes, noise = voters.measure(VOTES, voting)
    candidates = Candidates.of(vectors, votes, noise)
    generator = np.random.default_rng([tools.seed, 0x70])
    cells = cells_of(votes, voters.planned(sums_name(1)).noise_multiplier, topics)
    centres = kept("centres-0", first_centres(candidates, cells))
    before: tuple[Floats, float] | None = None
    for number in range(1, ROUNDS + 1):
        sums, noise = voters.measure(sums_name(number), TopicSums(voters.query(sums_name(number)), centres))
        measured = sums[: len(centres)], noise  # the other planned rows have no cell: they are noise alone
        sums, noise = averaged(measured, before) if before and len(before[0]) == len(centres) else measured
        before = measured
        made = next_centres(sums, noise, directions, generator, last=number == ROUNDS, twins=not beside)
        if number == CELL_ROUNDS:
            made = joined(made, sums[:, 0] / COUNT_WEIGHT, topics)
        centres = kept(f"centres-{number}", made)
        tools.progress("rounds", number, ROUNDS)
    counts, noise = voters.measure(SIZES, TopicSizes(voters.query(SIZES), centres))
    if beside:
        order = np.argsort(-counts, kind="stable")
        centres, counts = centres[order], counts[order]
        topic, sizes = np.arange(topics, dtype=np.int32), counts
    else:
        topic, sizes = merged(centres, counts)
    unwanted = None
    if not parameters.allow_words:
        unwanted = np.array([is_unwanted(term, parameters.tongue) for term in terms], dtype=np.bool_)
    named = terms_of(centres, counts, topic, candidates, terms, unwanted=unwanted)
    while not beside and len(set(called := called_by(named))) < len(called):  # the same name means the same value
        first = np.array([called.index(each) for each in called])
        topic, sizes = by_size(first[topic], centres, counts)
        named = terms_of(centres, counts, topic, candidates, terms, unwanted=unwanted)
    said = are_said(centres, counts, topic, candidates)
    said &= np.array([bool(named[first]) for first in range(0, len(named), TERMS_OF_TOPIC)], dtype=np.int8)
    few = not parameters.discover_terms and votes.sum() < _FEW_VOTES * counts.sum()
    if few or (parameters.discover_terms and len(names) < FEWEST):
        said[:] = 0
    check = _noise_check(sizes, noise, voters, counts)
    if not said.any() and check.verdict:
        check = replace(check, verdict=check.verdict.unsaid(parameters.tongue, expected=plan.forecast.verdict))
    return Found(
        centres,
        topic,
        sizes,
        said,
        named,
        {"source": vocabulary.source if listed else f"none ({parameters.tongue})", "sha256": vocabulary.sha256},
        {"source": embedder.model_id, "sha256": embedder.fingerprint},
        check,
    )


_FEW_VOTES = 0.3
"""Share of all records: if fewer vote, the vocabulary hardly fits the texts."""


@dataclass(frozen=True, repr=False)
class NearestSaid:
    """Return the number of the term for which each text votes: of the public or released terms that it contains, the
    one nearest to it, so that a term with votes is in a text; -1 for a text without a term.

    Args:
        vectors: ``Int16[n, d]``, of ``terms``.
        english: whether only texts vote of which half the words are in the built-in list, since words of another
            language may look like its terms.
    """

    terms: Sequence[str]
    vectors: NDArray[np.int16]
    english: bool

    @cached_property
    def _matcher(self) -> TermMatcher:
        return TermMatcher(self.terms)

    def __call__(self, said: Sequence[str], vectors: NDArray[np.int16]) -> NDArray[np.int32]:
        """Return ``Int32[n]``, -1 to the last term."""
        scores, less = scoring(self.vectors, "centred")
        found = np.full(len(said), -1, dtype=np.int32)
        for place, text in enumerate(said):
            if (terms := sorted({*self._matcher.find(text)})) and (not self.english or is_english(text)):
                own = scores[terms] @ vectors[place].astype(np.float32)  # exact: see `nearest`
                found[place] = terms[int((own if less is None else own - less[terms]).argmax())]
        return found


def _counted(file: str, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
    """Count the records of this table that are nearest to released topics, with noise."""
    embedder, (known, digest) = needed(tools.embedder), known_topics(file)
    require_embedder(known, embedder, tools.dimension)  # the file may have changed by now
    centres, topic = known.arrays["centres"], known.arrays["topic"]
    voters = _Voters(corpus, plan, tools)
    measured, noise = voters.measure(SIZES, TopicSizes(voters.query(SIZES), centres))
    counts = np.where(first_ones(centres), measured, 0.0)
    sizes = np.zeros(len(known.arrays["sizes"]))
    np.add.at(sizes, topic, counts)
    return Released(
        {"centres": centres, "topic": topic, "sizes": sizes, "said": known.arrays["said"]},
        public_inputs={
            "topics": {"source": Path(file).name, "sha256": digest},
            "embedder": {"source": embedder.model_id, "sha256": embedder.fingerprint},
        },
        noise_check=_noise_check(sizes, noise, voters),
        notes=(OF_ANOTHER_TABLE,),
        strings={"terms": known.strings["terms"]},
    )


OF_ANOTHER_TABLE = (
    "Centres and terms of the topics were found in another table, under the promise of the named Release; this "
    "promise is about the number of records of each topic here."
)


@dataclass(frozen=True, repr=False)
class _Voters:
    """The private records, or a sample of them, and the sums that are planned over them."""

    corpus: BoundedCorpus
    plan: Plan
    tools: ReleaseTools
    beside: str = ""
    label: NearestSaid | None = None

    @cached_property
    def sample(self) -> SubsampledSums | None:
        return None if self.beside else sample_of(self.plan.charges)

    @property
    def rate(self) -> float:
        return self.sample.rate if self.sample else 1.0

    def planned(self, name: str) -> NoisySum:
        found: NoisySum = dict(self.sample.sums)[name] if self.sample else self.plan.mechanism(self.beside + name)
        return found

    def query(self, name: str) -> Any:
        """Return the planned query of this name."""
        return self.plan.query(self.beside + name)

    def measure(self, name: str, query: Query[Block]) -> tuple[Floats, float]:
        """Return the noisy sum, in records that are read, and the standard deviation of its noise."""
        if self.sample is None:
            sealed = self.tools.measure(self.beside + name, query, self._vectors)
        else:
            paid, vectors = self._paid, self._vectors
            sealed = self.tools.seal(f"{NAME}/{name}", lambda: {"value": paid.measure(name, query, vectors)})
        return sealed.value, 0.0 if sealed.seal.noise == "none" else self.planned(name).noise_std

    @cached_property
    def _paid(self) -> PaidSubsampledSums:
        paid: PaidSubsampledSums = self.tools.open(NAME)
        return paid

    @cached_property
    def _vectors(self) -> PrivateEmbeddings:
        """Return embeddings of the records that are read: all, or the sample, sealed like values made from it."""
        tools, key = self.tools, self.tools.scratch.name
        read: BoundedCorpus | SampleOf = self.corpus
        if self.sample is not None:
            read = self._paid.sample(self.corpus, lambda make: tools.seal(f"{NAME}/sample", make).arrays)
            key += f" {hashlib.sha256(read.kept['units'].tobytes()).hexdigest()}"
        folder = tools.scratch / "topics" if self.beside else tools.scratch  # labels are in the file, and change later
        return PrivateEmbeddings(read, needed(tools.embedder), folder, key, say=tools.say, label=self.label)


def _noise_check(sizes: Floats, noise: float, voters: _Voters, counts: Floats | None = None) -> Facts:
    """Return how many topics are above the noise, from noisy values and public numbers only.

    Args:
        counts: of topics found by this run, which get a verdict, in records of the table.
    """
    judged, rate = None, voters.rate
    if counts is not None:
        records = at_least(float(counts.sum()), noise * math.sqrt(len(counts)))
        multiplier = voters.planned(sums_name(1)).noise_multiplier
        judged = verdict(multiplier / rate, len(counts), records / rate)
    title = f"noise on the size of a topic (std, {voters.plan.unit.kind}s)"
    facts = (
        Fact("topics", len(sizes), f"{NAME} found"),
        Fact("topics_above_3_std", int((sizes > 3 * noise).sum()), "topics whose size is 3 std above the noise"),
        Fact("size_noise", round(noise / rate, 2), title),
    )
    return Facts(facts, verdict=judged)


@dataclass(frozen=True)
class TopicLabels:
    """Gives each text a label: the number of its nearest released topic, or 0 (the largest) if it has no vector of
    length 1. Depends on the text and on public values only.

    Args:
        centres: ``Int16[K, d]``, released.
    """

    embedder: Embedder
    centres: NDArray[np.int16]

    def __call__(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """Return ``Int32[n]``."""
        vectors = private_vectors(embed_texts(self.embedder, texts, self.centres.shape[1]))
        found = nearest_centres(self.centres, vectors)
        return np.maximum(found, 0).astype(np.int32)


@dataclass(frozen=True)
class _Nearest(PlannedQuery[Block, Spec]):
    """A sum over the records, each at its nearest centre.

    Args:
        centres: ``Int16[K, d]``, of norm at most LARGEST_NORM; made of values that were released before.
    """

    centres: NDArray[np.int16]

    def __post_init__(self) -> None:
        require_short(self.centres)

    def _found(self, batch: Block) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Return, for records with a vector, the centre of each, and how many such records its unit has."""
        centres = nearest_centres(self.centres, batch.vectors)
        known = centres >= 0
        _, unit, records = np.unique(batch.units[known], return_inverse=True, return_counts=True)
        return centres[known], records[unit], known


@dataclass(frozen=True)
class TopicSums(_Nearest[EmbeddingSumsSpec]):
    """For each centre, the sum over its records of ``(w, sqrt(1 - w^2) x)``, w = COUNT_WEIGHT, |x| = 1: ``[rows, 1 +
    d]``. Of the planned rows, those after the last centre are 0.

    Guarantee:
        Unit: a record; or an owner, all of whose records are in one block and are averaged, jointly over topics.
        Sensitivity: a record adds one vector, to the row of its own topic, of L2 norm at most sqrt(w^2 + (1 - w^2)) =
        1, GRID in integers: each coordinate is rounded towards zero. Of s records of an owner each adds a vector of
        norm at most GRID / s, whatever its topic: by the triangle inequality all together are no longer than GRID. A
        record without a vector adds nothing. Which topic a record has depends on its vector and the centres alone:
        scalar products are exact (:mod:`understudy.methods.shared.evolution.voting`), and a vector's length is the root
        of an exact integer. Nothing is divided by how many records a topic has.
        Source: Blum et al. 2005, with the count and the sum as one vector.
    """

    @property
    def found(self) -> tuple[int, ...]:
        return (1 + self.centres.shape[1],)

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        """Return the sums of one batch: ``Int64[K, 1 + d]``."""
        centres, shares, known = self._found(batch)
        return sums_of(batch.vectors[known].astype(np.int64), centres, shares, shape=self.shape)


@dataclass(frozen=True)
class TopicSizes(_Nearest[LabelCountsSpec]):
    """The number of records of each topic.

    Guarantee:
        Unit: a record; or an owner, all of whose records are in one block and are averaged.
        Sensitivity: a record adds 1 to one count, L1 and L2 are 1; an average of such vectors is no longer. In
        integers: a record adds floor(COUNT_GRID / records of its owner). Topics as of :class:`TopicSums`.
    """

    @property
    def found(self) -> tuple[int, ...]:
        return (len(self.centres),)

    def of_batch(self, batch: Block) -> NDArray[np.int64]:
        """Return the counts of one batch: ``Int64[K]``."""
        sizes = np.zeros(self.shape, dtype=np.int64)
        centres, shares, _ = self._found(batch)
        np.add.at(sizes, centres, COUNT_GRID // shares)
        return sizes
