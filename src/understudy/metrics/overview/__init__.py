"""Drawing a :class:`~understudy.metrics.picture.Picture` of tables: their lengths, labels, topics and a map."""

from __future__ import annotations

from collections.abc import Mapping

from understudy.metrics.extra import require_evaluate
from understudy.metrics.overview.places import draw_map
from understudy.metrics.overview.profiles import profiles
from understudy.metrics.overview.threads import one_core
from understudy.metrics.overview.topics import find_topics
from understudy.metrics.overview.vectors import with_vectors
from understudy.metrics.picture import Picture
from understudy.metrics.sample import Sample
from understudy.vocabulary.words import split_words

__all__ = ["draw_picture"]


def draw_picture(tables: Mapping[str, Sample], *, points: int = 1500, topics: int = 12, seed: int) -> Picture:
    """What the tables look like, side by side. Nothing but these tables goes in: of a public table it is public.

    Topics and map come from the tables' embeddings or, where a table has none, from the words of all.

    Args:
        tables: by name, in the order in which they are shown.
        points: the most texts on the map; each table has the same share of it, drawn at random.
        topics: the most topics; with few texts there is one for every ten.
        seed: of the points, of k-means and of the map. The same seed draws the same picture on the same machine.

    Raises:
        ConfigError: if the extra ``evaluate`` is missing.
    """
    require_evaluate()
    words = {name: [split_words(text) for text in table.texts] for name, table in tables.items()}
    with one_core():
        placed = with_vectors(tables, words, seed=seed)
        found, drawn = find_topics(placed, words, topics, seed=seed), draw_map(placed, points, seed=seed)
    return Picture(profiles(tables, words), found, drawn)
