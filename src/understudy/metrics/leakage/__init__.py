"""Does it leak: what of the real texts stands in the synthetic ones, each measured beside that of texts never used.

A low measured is no proof: it says that one way of looking found nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from understudy.metrics import require_evaluate
from understudy.metrics.leakage.copying import measure_copying
from understudy.metrics.leakage.near import measure_near_duplicates, measure_neighbours
from understudy.metrics.leakage.phrases import normal_words
from understudy.metrics.leakage.replay import measure_replay
from understudy.metrics.sample import Sample
from understudy.metrics.value import HOLDOUT, SYNTHETIC, MetricValue

__all__ = ["measure_leakage"]


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
    real_words = [normal_words(text) for text in real.texts]
    words = {of: [normal_words(text) for text in table] for of, table in texts.items()}
    return (
        *measure_copying(real_words, words, seed=seed, resamples=resamples),
        *measure_near_duplicates(real_words, words, seed=seed),
        *measure_neighbours(real, tables, seed=seed, resamples=resamples),
        *replayed,
    )
