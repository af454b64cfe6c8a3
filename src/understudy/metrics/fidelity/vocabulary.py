"""Which words texts are made of, and how often each is used."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.metrics.fidelity.divergence import jensen_shannon
from understudy.metrics.fidelity.subsamples import over_subsamples
from understudy.metrics.value import Figure, Metric

VOCABULARY = Metric(
    name="vocabulary_divergence",
    title="Vocabulary divergence",
    family="fidelity",
    definition=(
        "Jensen-Shannon divergence, in bits, of how often each word is used; in [0, 1]. Larger for fewer texts, so all "
        "tables are cut to one size."
    ),
    source="Lin 1991, equation 4.1",
    better="lower",
)


def vocabulary_figures(
    real: Sequence[Sequence[str]], other: Sequence[Sequence[str]], *, of: str, seed: int, draws: int
) -> tuple[Figure, ...]:
    """The divergence of two tables' words, given text by text, with an interval from subsamples of both."""
    from sklearn.feature_extraction.text import CountVectorizer

    if not (any(real) and any(other)):
        return (Figure(VOCABULARY, None, of, note="A table has no words."),)
    counts = CountVectorizer(analyzer=list).fit_transform([*real, *other])
    ours, theirs = counts[: len(real)], counts[len(real) :]
    return (
        over_subsamples(
            VOCABULARY,
            lambda one, two: float(jensen_shannon(one @ ours, two @ theirs)),
            (len(real), len(other)),
            of,
            seed=seed,
            draws=draws,
            high=1.0,
        ),
    )
