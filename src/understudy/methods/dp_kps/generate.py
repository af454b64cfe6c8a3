"""DP-KPS, after the privacy boundary: sample keyphrase sequences from a Release. Free, and repeatable."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice, repeat

import numpy as np
from numpy.typing import NDArray

from understudy.base.display import plural
from understudy.base.errors import ConfigError
from understudy.methods.additions.columns.variables import variables_of
from understudy.methods.dp_kps.lifts import Lifts, SequenceRows
from understudy.methods.dp_kps.plan import (
    COLUMN_DENSITY,
    DENSITY,
    DPKPSParameters,
    discovery_share,
    known_noise,
    phrase_columns,
)
from understudy.methods.facts import CallEstimate, Chooser, GenerationTools
from understudy.methods.shared.vocabulary import REAL, public_vocabulary
from understudy.models.types import Message
from understudy.release import Release
from understudy.release.statement import Statement
from understudy.schema.labels import present_labels
from understudy.text.prompts.template import PromptTemplate, WritingParameters
from understudy.text.records import Seed, SyntheticRecord
from understudy.text.vocabulary.sampling import contrast_weights, sample_independent
from understudy.text.vocabulary.shrinkage import LIKELY, SURE, KnownNoise, Posterior, shrink, sure_terms
from understudy.text.vocabulary.terms import is_telling, is_unwanted
from understudy.text.writing import Writer

_CANDIDATES = 4
"""With a guide: number of sequences sampled for each one that it chooses."""
_FLATTER = 0.8
"""The power to which terms' weights are raised if the labels are topics. Topics are narrow: without this power, the
synthetic texts covered fewer real texts than they did without topics (docs/decisions/071)."""


def generate(
    parameters: DPKPSParameters, release: Release, counts: Sequence[int], *, tools: GenerationTools
) -> Iterator[SyntheticRecord]:
    """Write ``counts[label]`` texts of each label around sequences of terms sampled from the Release; if it has a
    guide, around the sequences that the guide chooses.

    A language model writes texts for people, so it gets only terms that are almost certainly in the private texts.
    Without one, the phrases themselves are the texts: they serve to train classifiers, which learn more if uncertain
    terms are included with a weight (docs/decisions/041).
    """
    written = tools.writer.chat is not None
    times = 1 if tools.chooser is None else _CANDIDATES
    rows, known = None, lifts_of(parameters, release)
    if known is not None and tools.writer.rows is not None:
        columns, lifts = known
        power = 1 + parameters.contrast
        rows = SequenceRows.take(tools.writer.rows, counts, columns, lifts=lifts, power=power)
    sequences = sample_sequences(
        parameters,
        release.arrays[DENSITY],
        [count * times for count in counts],
        seed=int(release.parameters["seed"]),
        sampling_seed=tools.seed,
        noise=released_noise(parameters, release.statement),
        log_lifts=None if rows is None else rows.log_lifts(times),
        flatness=_FLATTER if release.schema.topics else 1.0,
        listed=release.arrays[REAL] if written else None,
        unwanted=unwanted_terms(parameters, release.terms),
        telling=np.array([is_telling(term, parameters.tongue) for term in release.terms]) if written else None,
    )
    tools.say(_purpose(sequences) if written else _FOR_CLASSIFIERS)
    seeds = [
        Seed(tuple(release.terms[term] for term in row if term >= 0) or tools.writer.instead_of_phrases(label), label)
        for label, found in enumerate(sequences)
        for row in found.tolist()
    ]
    if tools.chooser is not None:
        generator = np.random.default_rng([tools.seed, times])
        seeds = evolve_seeds(seeds, counts, chooser=tools.chooser, generator=generator, say=tools.say)
        seeds = seeds if rows is None else rows.shared_out(seeds, release.terms, generator)
    elif rows is not None:
        seeds = rows.beside(seeds)
    return tools.writer.write(seeds)


_FOR_CLASSIFIERS = "Phrases for classifiers: uncertain words are included, weighed by how likely they are real."


def _purpose(sequences: Sequence[NDArray[np.int64]]) -> str:
    """Return a line on what the texts are for, and how many labels have no sure term."""
    said = f"Texts for people: written around words that the private texts contain with a probability of {SURE:.0%}."
    asked = [rows for rows in sequences if len(rows)]
    bare = sum(not (rows >= 0).any() for rows in asked)
    if bare and len(sequences) == 1:
        said += " There is no such word: the table is too small for this budget, so the texts say nothing about it."
    elif bare:
        said += (
            f" {bare} of {len(asked)} labels have no such word, so their texts are written from the label's name: the "
            "table is too small for this budget."
        )
    return said


def longest_prompts(parameters: DPKPSParameters, release: Release, writer: Writer) -> Iterator[tuple[Message, ...]]:
    """Return prompts around the longest terms of the public vocabulary, or the longest terms that can be discovered."""
    terms = public_vocabulary(parameters).terms
    if discovery_share(parameters):
        terms = (*terms, *(f"{number} {'1234567890' * 3} {'1234567890' * 3}" for number in range(parameters.length)))
    return writer.longest_prompts(terms, count=parameters.length)


def estimate_calls(
    parameters: DPKPSParameters, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate
) -> CallEstimate:
    """Estimate one call per record, with prompts around the longest sequences."""
    return CallEstimate.of_phrases(counts, writing, template, length=parameters.length)


def released_noise(parameters: DPKPSParameters, statement: Statement) -> KnownNoise:
    """Return the noise on a term's score in the Release that this statement belongs to."""
    return known_noise(parameters, statement.noise_multiplier(DENSITY))


def label_counts(parameters: DPKPSParameters, release: Release) -> tuple[list[float], float]:
    """Return, for each label, the sum of its noisy scores of the likeliest terms, which is proportional to its number
    of records, and the standard deviation of that sum's noise. Further terms would add noise."""
    return label_weights(release.arrays[DENSITY], released_noise(parameters, release.statement))


def label_weights(scores: NDArray[np.float64], noise: KnownNoise) -> tuple[list[float], float]:
    """Return the sum of each label's scores of the likeliest terms, and the standard deviation of its noise."""
    likeliest = scores[:, :_COUNTED]
    return likeliest.sum(axis=1).tolist(), noise.std * math.sqrt(likeliest.shape[1])


_COUNTED = 300
"""Chosen over 100 and over all terms, on trec with 1,000 and dbpedia14 with 3,000 records."""


def lifts_of(parameters: DPKPSParameters, release: Release) -> tuple[tuple[int, ...], Lifts] | None:
    """Return the positions of the columns that phrases depend on, and the lifts of terms under their values; None
    without such columns."""
    multiplier = release.statement.noise_multiplier(COLUMN_DENSITY)
    if multiplier is None:
        return None
    columns = variables_of(release).columns
    places = phrase_columns(parameters, columns)
    noise = known_noise(parameters, multiplier, columns=len(places))
    return places, Lifts.of(release.arrays[COLUMN_DENSITY], [columns[place].size for place in places], noise)


def sampling_scores(found: NDArray[np.float64], noise: KnownNoise) -> Posterior:
    """Return the weights by which terms are sampled, and the probability that each noisy score is real.

    Terms of similar rank in V~ share a posterior, given the noisy scores ``found`` of all labels with records. Labels
    without records share another: their noise must not make the others' terms less likely. Weights are expected scores
    times the probability that they are real: otherwise too many of thousands of slightly likely terms would be sampled.
    Without noise, weights are the scores, and those above 0 are real.
    """
    if noise.std > 0:
        probability, mean, present = np.empty_like(found), np.empty_like(found), with_records(found, noise)
        for rows in filter(np.any, (present, ~present)):
            posterior = shrink(found[rows], noise)
            probability[rows], mean[rows] = posterior.probability, posterior.probability * posterior.mean
        return Posterior(probability, mean)
    return Posterior((found > 0).astype(np.float64), found)


def with_records(scores: NDArray[np.float64], noise: KnownNoise) -> NDArray[np.bool_]:
    """Return ``Bool[labels]``: which labels have records, by their noisy scores."""
    return np.array(present_labels(*label_weights(scores, noise)))


def sample_sequences(
    parameters: DPKPSParameters,
    scores: NDArray[np.float64],
    counts: Sequence[int],
    *,
    seed: int,
    sampling_seed: int,
    noise: KnownNoise,
    log_lifts: Sequence[Callable[[slice], NDArray[np.float32]]] | None = None,
    flatness: float = 1.0,
    listed: NDArray[np.float64] | None = None,
    unwanted: NDArray[np.bool_] | None = None,
    telling: NDArray[np.bool_] | None = None,
) -> list[NDArray[np.int64]]:
    """Sample, per label, ``Int64[counts[label], length]`` of distinct term indices, padded with -1.

    Args:
        scores: ``Float64[labels, N]``: the score of each term under each label, with this ``noise``.
        seed: the Release's seed.
        sampling_seed: seed of these sequences.
        log_lifts: per label, a function that returns ``Float32[sequences, N]`` for some of its sequences: what the
            values of their typed columns add to the logarithms of the terms' weights.
        flatness: power to which the weights are raised before that.
        listed: ``Float64[N]``: the probability that a term is in the texts, by its count. If given, only sure terms are
            sampled, and a label without any has empty sequences. If None, uncertain terms are sampled too.
        unwanted: ``Bool[N]``: terms that are sampled only for labels whose texts are full of them.
        telling: ``Bool[N]``: terms with content. If given, each sequence has one, if its label has any.
    """
    if parameters.length > scores.shape[1]:
        raise ConfigError("Sequences cannot have more terms than the Release's vocabulary.", "Lower length.")
    generator = np.random.default_rng([sampling_seed, seed])
    found = sampling_scores(scores, noise)
    weights = contrast_weights(found.mean, contrast=parameters.contrast) ** flatness
    real, fewest = found.probability > LIKELY, 1
    if listed is not None:
        real, fewest = sure_terms(found, listed, with_records(scores, noise)), 0
        weights = np.where(real, weights, 0.0)
    if unwanted is not None:
        least = _FULL * 2 / parameters.terms_per_record * found.mean.sum(axis=1, keepdims=True) + _SURELY * noise.std
        real, weights = (np.where(unwanted & (scores < least), 0, each) for each in (real, weights))
    sequences = []
    sizes = real.sum(axis=1).tolist()
    for row, count, terms, lifts in zip(weights, counts, sizes, log_lifts or repeat(None, len(counts)), strict=True):
        length = min(parameters.length, max(terms, fewest))
        if length == 0:
            sequences.append(np.full((count, parameters.length), -1))
            continue
        rows = sample_independent(row, length=length, count=count, generator=generator, log_lifts=lifts)
        rows = cut_to_lengths(rows, shortest=parameters.shortest, generator=generator)
        if telling is not None and (row[telling] > 0).any():
            bare = np.flatnonzero(~(telling[rows] & (rows >= 0)).any(axis=1))
            some = sample_independent(row * telling, length=1, count=count, generator=generator, log_lifts=lifts)
            rows[bare, (rows[bare] >= 0).sum(axis=1) - 1] = some[bare, 0]
        sequences.append(np.pad(rows, ((0, 0), (0, parameters.length - length)), constant_values=-1))
    return sequences


_FULL, _SURELY = 0.01, 6.0
"""The smallest share of a label's texts at which an unwanted term is used, and how many standard deviations of noise
are subtracted from its score first. A term with the share f of a label's weight is in the share f m of texts with m
terms each, which is taken for half of ``terms_per_record``."""


def unwanted_terms(parameters: DPKPSParameters, terms: Sequence[str]) -> NDArray[np.bool_] | None:
    """Return ``Bool[N]``: which terms are in a public list of obscenities; None if these are allowed."""
    if parameters.allow_words:
        return None
    return np.array([is_unwanted(term, parameters.tongue) for term in terms], dtype=np.bool_)


def cut_to_lengths(sequences: NDArray[np.int64], *, shortest: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Cut each sequence to a random length between ``shortest`` (if it has that many terms) and its own; pad with -1.
    Terms were sampled one after another, so the remaining part is distributed as a shorter sequence."""
    count, length = sequences.shape
    lengths = generator.integers(min(shortest, length), length + 1, size=(count, 1))
    return np.where(np.arange(length) < lengths, sequences, -1)


AGREE = 0.8
"""No sequence is varied once this share of them matches their label (chosen on trec, banking77, ag_news)."""
_VARIATIONS = 3
_ROUNDS = 3


def evolve_seeds(
    pool: Sequence[Seed],
    counts: Sequence[int],
    *,
    chooser: Chooser,
    generator: np.random.Generator,
    say: Callable[[str], None] = lambda _line: None,
) -> list[Seed]:
    """Return ``counts[label]`` seeds of each label; if there are fewer different ones, they are repeated in turn.

        pool   <- sampled sequences, several for each that is wanted
        kept   <- those of the pool that the guide chooses
        if fewer than AGREE of the pool match their label, for each round:
            varied <- kept sequences, one term of each swapped for a term of another sequence of the pool
            kept   <- those of kept and varied that the guide chooses

    If nearly all sequences match their label already, swaps only make them similar to each other: on ag_news, three
    rounds cost a TF-IDF classifier three points; on trec, they gained an embedding classifier up to twelve.

    Private evolution (Xie et al. 2024) asks the private records to vote in every round. Here they voted once: the guide
    answers any number of times.
    """
    by_label = [[seed for seed in pool if seed.label == label and seed.phrases] for label in range(len(counts))]
    kept = _chosen(pool, counts, chooser)
    agreement = chooser.agreement([_text(seed) for seed in pool], [seed.label for seed in pool])
    rounds = _ROUNDS if agreement < AGREE else 0
    swapped = f"terms were swapped in {plural(rounds, 'round')}" if rounds else "no terms were swapped"
    say(f"The guide chose {len(kept)} of {len(pool)} sequences ({agreement:.0%} match their label); {swapped}.")
    for _ in range(rounds):
        kept = _chosen([*kept, *_varied(kept, by_label, generator)], counts, chooser)
    found = [[seed for seed in kept if seed.label == label] for label in range(len(counts))]
    return [seed for some, count in zip(found, counts, strict=True) for seed in islice(cycle(some), count)]


def _chosen(seeds: Sequence[Seed], counts: Sequence[int], chooser: Chooser) -> list[Seed]:
    distinct = list({(seed.label, frozenset(seed.phrases)): seed for seed in seeds}.values())
    found = chooser.choose([_text(seed) for seed in distinct], [seed.label for seed in distinct], counts)
    return [distinct[index] for chosen in found for index in chosen]


def _text(seed: Seed) -> str:
    return ", ".join(seed.phrases)


def _varied(kept: Sequence[Seed], pools: Sequence[Sequence[Seed]], generator: np.random.Generator) -> Iterator[Seed]:
    """Return each seed a few times, with one of its terms swapped for a term of another seed of its label."""
    for seed in kept:
        pool = pools[seed.label]
        for _ in range(_VARIATIONS if seed.phrases else 0):
            other = pool[int(generator.integers(len(pool)))].phrases
            new = other[int(generator.integers(len(other)))]
            if new not in seed.phrases:
                phrases = list(seed.phrases)
                phrases[int(generator.integers(len(phrases)))] = new
                yield Seed(tuple(phrases), seed.label)
