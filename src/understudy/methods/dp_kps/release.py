"""DP-KPS, the only code that reads private records.

KPS (Nagesh et al. 2025, arXiv:2502.13193), cut at the privacy boundary:

    counts  = [ weights of records that hold v among their first S terms : v in V ] + noise   charge "vocabulary"
    found   = [ names not in V, weights summed, + noise, above the threshold ]         charge "discovered-terms"
    V~      = found, and the terms that are likely in many records, given the noise, or the N largest counts
    sums_c  = [ the same weights over records of label c : v in V~ ] + noise          charge "density"
    sums_a  = [ the same over records with the cell a of a typed column ] + noise     charge "column-density"

Guarantee:
    Unit: a record, or an owner of whom at most k records are averaged (:mod:`understudy.corpus.bounding`).
    Each line with noise is one :class:`~understudy.privacy.mechanisms.NoisySum` over a query that states its
    sensitivity (:class:`~understudy.methods.shared.queries.counts.TermHistogram`,
    :class:`~understudy.methods.shared.queries.counts.ColumnTermHistogram`);
    "found" is a :class:`~understudy.privacy.selection.NoisySelection` over
    :class:`~understudy.methods.shared.queries.discovered_terms.UnlistedTerms`.
    The sums are joint over labels, and over the cells of all columns, so no parallel composition is needed. Everything
    else is post-processing of the noisy counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, ReleaseError
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.additions.columns.variables import has_columns, variables_of
from understudy.methods.base import Released, ReleaseTools
from understudy.methods.dp_kps.generate import label_weights, sampling_scores
from understudy.methods.dp_kps.lifts import Lifts
from understudy.methods.dp_kps.plan import (
    COLUMN_DENSITY,
    DENSITY,
    MOST_DISCOVERED,
    VOCABULARY,
    DPKPSParameters,
    fewest_terms,
    known_noise,
    phrase_columns,
    records_per_term,
    score_noise,
    verdict,
)
from understudy.methods.release_schema import Contents, Held
from understudy.methods.shared.queries.counts import ColumnTermHistogram, TermHistogram
from understudy.methods.shared.queries.discovered_terms import find_terms
from understudy.methods.shared.vocabulary import DISCOVERED, FEWEST, REAL, public_vocabulary, word_for_word
from understudy.privacy.events import GaussianEvent, PureEvent, SelectionEvent
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import NoiseOrigin
from understudy.privacy.verdict import at_least
from understudy.release import Release
from understudy.schema.labels import present_labels
from understudy.text.vocabulary.sampling import contrast_weights
from understudy.text.vocabulary.shrinkage import KnownNoise, likely_terms, noise_floor, shrink, top_terms
from understudy.text.vocabulary.terms import BUILT_IN, is_english
from understudy.text.vocabulary.words import TermMatcher


def contents(parameters: DPKPSParameters, release: Release) -> Contents:
    """Describe the noisy counts of N terms: over all records, by label, and by the cells of columns."""
    terms = len(release.terms)
    arrays = {
        "counts": Held("float64", (terms,)),
        REAL: Held("float64", (terms,), 0, 1),
        DENSITY: Held("float64", (release.schema.label_set.size, terms)),
    }
    discovered = any(charge.name == DISCOVERED for charge in release.statement.charges)
    if discovered:
        arrays[DISCOVERED] = Held("float64", ("discovered terms",))
    beside = not release.schema.record_columns and has_columns(release)
    typed = variables_of(release).columns if beside else ()
    try:
        sizes = [typed[place].size for place in phrase_columns(parameters, typed)]
    except ConfigError:
        problem = "The phrases of this Release depend on columns that it does not have."
        raise ReleaseError(problem, "Ask the sender for a new copy.") from None
    by_cell = {COLUMN_DENSITY: Held("float64", (sum(sizes), terms))} if sizes else {}
    kind = GaussianEvent.kind if parameters.noise == "gaussian" else PureEvent.kind
    charges = dict.fromkeys((VOCABULARY, DENSITY, *by_cell), kind)
    return Contents(charges | ({DISCOVERED: SelectionEvent.kind} if discovered else {}), arrays | by_cell, terms=None)


def release(parameters: DPKPSParameters, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
    """Release the terms of a public vocabulary that the records use, by noisy counts, and noisy weights of each term
    under each label (and, if typed columns are declared, under each of their values)."""
    vocabulary = public_vocabulary(parameters)
    tools.require_same(VOCABULARY, vocabulary.sha256)
    read = None if parameters.vocabulary != BUILT_IN or parameters.not_english else is_english
    all_terms = TermHistogram(plan.query(VOCABULARY), TermMatcher(vocabulary.terms), read)
    measured = tools.measure(VOCABULARY, all_terms, corpus)
    counts, origin = measured.value, measured.seal.noise
    noise = KnownNoise(parameters.noise, 0.0 if origin == "none" else plan.mechanism(VOCABULARY).noise_std)
    found, fewest = shrink(counts, noise), fewest_terms(parameters)
    if parameters.top_terms is None:
        chosen = tools.keep("terms", lambda: {"chosen": likely_terms(found, fewest=fewest)})["chosen"]
    else:
        chosen = top_terms(counts, parameters.top_terms)
    terms = [vocabulary.terms[index] for index in chosen.tolist()]
    arrays: dict[str, NDArray[Any]] = {"counts": counts[chosen], REAL: found.probability[chosen]}
    notes: tuple[str, ...] = ()
    if any(charge.name == DISCOVERED for charge in plan.charges):
        names, values = find_terms(vocabulary.terms, parameters.stop_words, corpus, plan, tools, most=MOST_DISCOVERED)
        terms = names + terms  # surely real, so they rank first
        real = np.concatenate([np.ones(len(names)), arrays[REAL]])
        arrays = {"counts": np.concatenate([values, arrays["counts"]]), REAL: real, DISCOVERED: values}
        notes = (word_for_word(plan),)
    public = {"vocabulary": vocabulary.public_input}

    matcher = TermMatcher(terms)
    arrays[DENSITY] = tools.measure(DENSITY, TermHistogram(plan.query(DENSITY), matcher), corpus).value
    check = noise_check(parameters, arrays, plan, origin, listed=counts)
    if any(charge.name == COLUMN_DENSITY for charge in plan.charges):
        places = phrase_columns(parameters, tools.columns)
        by_cell = ColumnTermHistogram(plan.query(COLUMN_DENSITY), matcher, columns=places)
        arrays[COLUMN_DENSITY] = tools.measure(COLUMN_DENSITY, by_cell, corpus).value
        multiplier = 0.0 if origin == "none" else plan.mechanism(COLUMN_DENSITY).noise_multiplier
        noise_of_cell = known_noise(parameters, multiplier, columns=len(places))
        lifts = Lifts.of(arrays[COLUMN_DENSITY], by_cell.spec.blocks, noise_of_cell)
        spreads = zip(places, lifts.spreads, strict=True)
        named = ", ".join(f"{tools.columns[place].name} {spread:.2f}" for place, spread in spreads)
        check += Facts((Fact("column_lifts", named, "how much phrases depend on each column (0: not at all)"),))
    return Released(arrays, terms, public, check, notes)


SIGNIFICANT = 3.0
"""A score counts as signal above this many standard deviations of its noise."""
_COMMON = 1000
"""Terms at the head of the list that have weight together in any texts of its language."""


def noise_check(
    parameters: DPKPSParameters,
    arrays: Mapping[str, NDArray[Any]],
    plan: Plan,
    origin: NoiseOrigin,
    *,
    listed: NDArray[np.float64],
) -> Facts:
    """Return how many values are above the noise, and a verdict on the release, which uses the total noisy weight of
    the records instead of their number. A term with the share f of a label's weight occurs in the share f m of its
    texts, if each has m terms; m is assumed to be half of S.

    The vocabulary's floor is the level that noise alone reaches for about one of all public terms; a score's floor is
    three standard deviations. If hardly any term is above the floor, and the most frequent terms of the list have no
    weight together, the verdict says so, whatever the other values.

    Args:
        listed: the noisy counts of the whole public list, its most frequent terms first.
    """
    units = f"{plan.unit.kind}s"
    std = plan.mechanism(VOCABULARY).noise_std
    floor = noise_floor(std, listed.size)
    discovered = len(arrays.get(DISCOVERED, ()))
    counts = arrays["counts"][discovered:]
    above = int((counts > floor).sum())
    title = f"weight that a term needs to count as real ({units} with no other term)"
    entries = [
        Fact("vocabulary_terms", len(counts), "vocabulary terms released"),
        Fact("vocabulary_noise_floor", round(floor, 2), title),
        Fact("vocabulary_terms_above_floor", above, "vocabulary terms that count as real"),
    ]
    if DISCOVERED in arrays:
        entries.append(Fact("discovered_terms", discovered, "discovered terms (in no list)"))
    multiplier = plan.mechanism(DENSITY).noise_multiplier
    noise, values = score_noise(parameters, multiplier), arrays[DENSITY]
    strong = values > SIGNIFICANT * noise
    known = known_noise(parameters, 0.0 if origin == "none" else multiplier)
    sampled_by = contrast_weights(sampling_scores(values, known).mean, contrast=parameters.contrast)
    share = (sampled_by * strong).sum(axis=1) / sampled_by.sum(axis=1)
    shares = tuple(round(float(number), 2) for number in share)
    alone = f"noise on a term's weight under a label (standard deviation; {units} with no other term)"
    entries += [
        Fact("density_score_noise", round(noise, 3), alone),
        Fact(
            "scores_above_3_std",
            tuple(map(int, strong.sum(axis=1))),
            "reliable terms per label (above 3 standard deviations of it)",
        ),
        Fact("share_sampled_above_3_std", shares, "share of the terms in phrases that are reliable"),
    ]
    weight = at_least(float(values.sum()), noise * math.sqrt(values.size))
    records = 2 * weight * records_per_term(parameters) / parameters.terms_per_record
    weights, deviation = label_weights(values, known)
    others = [each for each, there in zip(weights, present_labels(weights, deviation), strict=True) if not there]
    labels = len(values) - (0 if at_least(sum(others), deviation * math.sqrt(len(others))) else len(others))
    found = verdict(parameters, noise, std, labels=labels, records=records, units=units).in_times(records)
    common = listed[:_COMMON]
    said = at_least(float(common.sum()), std * math.sqrt(common.size))
    if not said and above + discovered < min(FEWEST, listed.size / 10):
        found = found.unsaid(parameters.tongue, expected=plan.forecast.verdict)
    return Facts(tuple(entries), verdict=found)
