"""Nearest neighbours in the space of embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.intervals import bootstrap
from understudy.metrics.leakage.figures import OVER, quantile
from understudy.metrics.sample import Sample
from understudy.metrics.value import HOLDOUT, SYNTHETIC, Figure, Metric

QUANTILES = (0.05, 0.5)

NO_EMBEDDINGS = "The texts have no embeddings."

DISTANCE = Metric(
    "distance_to_closest_record",
    "Distance to closest record (DCR)",
    "leakage",
    "A quantile over texts of the Euclidean distance, in [0, 2], from a text's embedding to the nearest real one.",
    "Zhao et al. 2021, arXiv:2102.08369 (CTAB-GAN)",
    "higher",
)
RATIO = Metric(
    "nearest_neighbour_distance_ratio",
    "Nearest-neighbour distance ratio (NNDR)",
    "leakage",
    "A quantile over texts of the distance to the nearest real text over that to the second nearest, in [0, 1]. Near 0 "
    "a text belongs to one real text and to no other; 1 where both distances are 0.",
    "Zhao et al. 2021, arXiv:2102.08369 (CTAB-GAN); Lowe 2004",
    "higher",
)
NEARER = Metric(
    "nearer_to_real_than_holdout",
    "Texts nearer to the real texts than to held out ones",
    "leakage",
    "The share of texts, in [0, 1], whose nearest text among as many real as held out ones is a real one; ties count "
    "half. About one half where the real texts left no mark of their own.",
    "Platzer and Reutterer 2021, arXiv:2104.00635",
    "lower",
)


def measure_neighbours(real: Sample, others: Mapping[str, Sample], *, seed: int, draws: int) -> list[Figure]:
    """Distances and their ratios for each table; and, with held out texts, which the synthetic ones are nearer to.

    Where there are no embeddings, or too few real texts, the figures have no value and a note.
    """
    figures: list[Figure] = []
    for of, texts in others.items():
        distances = _distances(texts, real, 2)
        first, second = distances[:, :1].ravel(), distances[:, 1:].ravel()
        ratios = np.divide(first[: len(second)], second, out=np.ones_like(second), where=second > 0)
        for metric, values, fewest in ((DISTANCE, first, 1), (RATIO, ratios, 2)):
            for level in QUANTILES:
                figure = quantile(metric, values, level, of, seed=seed, draws=draws)
                figures.append(figure if figure.value is not None else replace(figure, note=_why(real, texts, fewest)))
    if SYNTHETIC in others and HOLDOUT in others:
        figures.append(_nearer(real, others[SYNTHETIC], others[HOLDOUT], seed=seed, draws=draws))
    return figures


def _nearer(real: Sample, synthetic: Sample, holdout: Sample, *, seed: int, draws: int) -> Figure:
    size = min(len(real), len(holdout))
    settings = {"reference_texts": size}
    to_real = _distances(synthetic, real.at_most(size, seed=seed), 1).ravel()
    to_holdout = _distances(synthetic, holdout.at_most(size, seed=seed), 1).ravel()
    if not len(to_real) or not len(to_holdout):
        return Figure(NEARER, None, settings=settings, note=_why(holdout, synthetic, 1))
    wins = (to_real < to_holdout) + 0.5 * (to_real == to_holdout)
    interval = bootstrap(lambda rows: float(wins[rows].mean()), len(wins), seed=seed, draws=draws, over=OVER)
    return Figure(NEARER, float(wins.mean()), interval=interval, settings=settings)


def _distances(texts: Sample, reference: Sample, count: int) -> NDArray[np.float64]:
    """``Float64[len(texts), <= count]``: from each text to its nearest reference texts; empty where there are none."""
    from sklearn.neighbors import NearestNeighbors

    count = min(count, len(reference))
    if texts.embeddings is None or reference.embeddings is None or not len(texts) or not count:
        return np.empty((0, 0))
    search = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(reference.embeddings)
    nearest = search.kneighbors(texts.embeddings, return_distance=False)
    vectors, distances = texts.embeddings.astype(np.float64), np.empty(nearest.shape)
    for column in range(count):  # anew, as the search's own rounding tells equal vectors apart
        distances[:, column] = np.linalg.norm(vectors - reference.embeddings[nearest[:, column]], axis=1)
    return np.sort(distances, axis=1)


def _why(reference: Sample, texts: Sample, fewest: int) -> str:
    if not len(texts):
        return "There are no texts."
    if len(reference) < fewest:
        return f"There are fewer than {fewest} texts to be near to."
    return NO_EMBEDDINGS
