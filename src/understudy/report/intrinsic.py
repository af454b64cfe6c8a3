"""What can be said of the synthetic texts alone: no private text goes in, so it may be handed out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from understudy.assess.synthetic import SyntheticText
from understudy.errors import ConfigError
from understudy.metrics.extra import require_evaluate
from understudy.metrics.overview import draw_picture
from understudy.metrics.overview.profiles import profiles
from understudy.metrics.picture import Picture
from understudy.metrics.sample import Sample
from understudy.metrics.value import SYNTHETIC, Figure
from understudy.models.types import Embedder
from understudy.vocabulary.words import split_words

MOST = 2000
"""Texts that are looked at for topics and the map; embedding more would take minutes."""
DRAWS = 100


@dataclass(frozen=True)
class Alone:
    """Figures and the picture of the synthetic table; ``no_map`` says why there is no map, where there is none."""

    figures: tuple[Figure, ...]
    picture: Picture | None
    no_map: str


def summarise(texts: Sequence[SyntheticText], *, embedder: Embedder | None, seed: int) -> Alone:
    """Lengths, labels, topics, a map, and how varied the texts are.

    Args:
        texts: the synthetic table.
        embedder: of topics and the map; None: they go by the words of the texts.
        seed: of everything random.
    """
    if not texts:
        return Alone((), None, "")
    labels = tuple(text.label for text in texts if text.label is not None)
    sample = Sample(tuple(text.text for text in texts), labels if len(labels) == len(texts) else None)
    words = [split_words(text) for text in sample.texts]
    looks = profiles({SYNTHETIC: sample}, {SYNTHETIC: words})
    try:
        require_evaluate()
    except ConfigError as missing:
        return Alone((), Picture(looks, (), ()), f"There is no map: {missing.problem[0].lower()}{missing.problem[1:]}")
    some = sample.at_most(MOST, seed=seed)
    if embedder is not None:
        some = some.with_embeddings(embedder.embed(some.texts))
    picture = replace(draw_picture({SYNTHETIC: some}, seed=seed), profiles=looks)
    return Alone(_variety(sample, words, seed), picture, "")


def _variety(sample: Sample, words: Sequence[Sequence[str]], seed: int) -> tuple[Figure, ...]:
    """Distinct n-grams. (Self-BLEU takes a minute; an evaluation has it.)"""
    from understudy.metrics.fidelity.distinct import distinct_figures

    if len(sample) < 2:
        return ()
    figures = distinct_figures(words, SYNTHETIC, total=sum(map(len, words)), seed=seed, draws=DRAWS)
    return tuple(replace(figure, reads_private=False) for figure in figures)
