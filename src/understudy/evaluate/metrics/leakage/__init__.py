"""Does it leak: what of the real texts stands in the synthetic ones, each value beside that of texts never used.

A low value is no proof: it says that one way of looking found nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from understudy.evaluate.metrics import require_evaluate
from understudy.evaluate.metrics.intervals import NO_TEXTS, chance_of_none, mean_of_choices, quantile, ratio
from understudy.evaluate.metrics.leakage.near import measure_near_duplicates, measure_neighbours
from understudy.evaluate.metrics.leakage.phrases import Ints, Phrases, normal_words
from understudy.evaluate.metrics.leakage.replay import measure_replay
from understudy.evaluate.metrics.leakage.rows import measure_rows
from understudy.evaluate.metrics.sample import Sample, words_of
from understudy.evaluate.metrics.value import HOLDOUT, SYNTHETIC, Metric, MetricValue

__all__ = ["measure_leakage"]

COPIED = 8
"""Words of a span from which on it counts as copied; Chowdhery et al. 2022 look for 8-grams."""

NGRAMS = (5, 13)
"""A phrase of everyday length, and one hardly found twice by chance: that of Brown et al. 2020, appendix C."""

_WORDS = "Words are compared without case and punctuation; of scripts that write no blanks, characters."

LONGEST = Metric(
    "longest_copied_span",
    "Longest copied span (words)",
    "leakage",
    "The most words in a row that one text shares with any real text. Where the tables differ in size, also its "
    f"expectation in as many texts as the smaller one has. {_WORDS}",
    "Lee et al. 2022, arXiv:2107.06499 (exact substrings)",
    "lower",
)
TYPICAL = Metric(
    "copied_span",
    "Copied span of a text (words)",
    "leakage",
    f"A quantile over texts of the most words in a row that a text shares with any real text. {_WORDS}",
    "Lee et al. 2022, arXiv:2107.06499 (exact substrings)",
    "lower",
)
COVERED = Metric(
    "copied_words",
    f"Words in copied spans of {COPIED} or more",
    "leakage",
    f"The share of all words, in [0, 1], that lie in spans of {COPIED} or more words which stand in one real text.",
    "Lee et al. 2022, arXiv:2107.06499; span length of Chowdhery et al. 2022, arXiv:2204.02311",
    "lower",
)
CONTAINED = Metric(
    "ngram_containment",
    "n-grams found in real texts",
    "leakage",
    f"The share of n-grams, in [0, 1], that stand in any real text; each occurrence counts. {_WORDS}",
    "Broder 1997 (containment); n of 13 from Brown et al. 2020, arXiv:2005.14165",
    "lower",
)
UNIQUE = Metric(
    "unique_ngram_containment",
    "n-grams found in exactly one real text",
    "leakage",
    "The share of n-grams, in [0, 1], that stand in one real text and in no other: phrases that are not common "
    "property but one record's own.",
    "Carlini et al. 2021, arXiv:2012.07805, definition 2 (eidetic memorisation with k = 1)",
    "lower",
)


def measure_copying(
    real: Sequence[Sequence[str]], others: Mapping[str, Sequence[Sequence[str]]], *, seed: int, resamples: int
) -> list[MetricValue]:
    """Copied spans and n-grams.

    Args:
        real: the words of each real text.
        others: the words of each text, by the name of the table.
        seed, resamples: of the bootstrap.
    """
    values: list[MetricValue] = []
    sampling = {"seed": seed, "resamples": resamples}
    smallest = min(len(texts) for texts in others.values())
    for of, texts in others.items():
        phrases = Phrases(real, texts)
        longest = phrases.longest()
        values += [_maximum(longest, size, of) for size in dict.fromkeys((len(longest), smallest))]
        values.append(quantile(TYPICAL, longest, 0.95, of, none=NO_TEXTS, **sampling))
        covered, words = phrases.covered(COPIED)
        values.append(ratio(COVERED, covered, words, of, {"n": COPIED}, none="There are no words.", **sampling))
        for n in NGRAMS:
            in_any, in_one, all_of_them = phrases.ngrams(n)
            none = f"No text has {n} words."
            for metric, found in ((CONTAINED, in_any), (UNIQUE, in_one)):
                values.append(ratio(metric, found, all_of_them, of, {"n": n}, none=none, **sampling))
    return values


def _maximum(longest: Ints, size: int, of: str) -> MetricValue:
    """The maximum of ``size`` texts at random, on average; a maximum has no interval."""
    settings = {"texts": size}
    if size == 0:
        return MetricValue(LONGEST, None, of, settings=settings, note=NO_TEXTS)
    lengths = np.sort(longest)
    up_to = chance_of_none(np.arange(len(lengths))[::-1], len(lengths), size)  # P(maximum <= lengths[i])
    mean = float(lengths @ np.diff(up_to, prepend=0.0)) if size < len(lengths) else float(lengths[-1])
    return MetricValue(LONGEST, mean, of, settings=settings, note=mean_of_choices(size, len(lengths)))


def measure_leakage(
    real: Sample,
    synthetic: Sample,
    *,
    holdout: Sample | None,
    public: Sequence[str] = (),
    detectors: Sequence[str],
    seed: int,
    resamples: int = 200,
) -> tuple[MetricValue, ...]:
    """Every value for the synthetic texts (``of="synthetic"``) and for held out ones (``of="holdout"``), in pairs.

    Held out texts were never used and yet share phrases, neighbours and names with the real ones: what they share is
    no leak. Shares and quantiles do not depend on a table's size; maxima and counts are given for its own size and
    for that of the smaller table.

    Args:
        real: the private texts.
        synthetic: what was made of them.
        holdout: real texts that were not used; None where there are none.
        public: public inputs that the synthetic texts may have strings from: example texts, vocabulary terms.
        detectors: of personal data; see :func:`~understudy.corpus.secrets.make_detectors`.
        seed: of the bootstrap, MinHash and subsamples.
        resamples: of the bootstrap.

    Raises:
        ConfigError: a detector is unknown, or an extra is missing.
    """
    require_evaluate()
    tables = {SYNTHETIC: synthetic} if holdout is None else {SYNTHETIC: synthetic, HOLDOUT: holdout}
    texts = {of: table.texts for of, table in tables.items()}
    replayed = measure_replay(real.texts, texts, public=public, detectors=detectors)
    real_words = words_of(real.texts, normal_words)
    words = {of: words_of(table, normal_words) for of, table in texts.items()}
    return (
        *measure_copying(real_words, words, seed=seed, resamples=resamples),
        *measure_rows(real, tables),
        *measure_near_duplicates(real_words, words, seed=seed),
        *measure_neighbours(real, tables, seed=seed, resamples=resamples),
        *replayed,
    )
