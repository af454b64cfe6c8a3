"""Which test texts a classifier of synthetic texts labels right, each for itself: what can be counted privately."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ConfigError
from understudy.evaluation.sample import Sample
from understudy.evaluation.utility.kinds import kind_named


def correct_predictions(synthetic: Sample, test: Sample, *, kind: str = "tf-idf", seed: int = 0) -> NDArray[np.bool_]:
    """Train on ``synthetic`` and tell which texts of ``test`` get their own label, ``Bool[len(test)]``.

    Guarantee
        Training reads ``synthetic`` alone: it is post-processing of a release. Whether a text is right then depends on
        that text, its embedding and its label alone, bit for bit, not on the other test texts
        (:class:`understudy.evaluation.utility.exact.ExactLinear`): one record more changes the number of right ones by
        at most 1, an owner of k records by at most k. Embeddings must be as independent of one another, as those of
        :class:`understudy.models.embedder.SentenceEmbedder` are.

    Args:
        synthetic: labelled texts.
        test: labelled texts, usually private; may be empty.
        kind: ``tf-idf``, ``embedding`` or ``network``.
        seed: of the training.

    Raises:
        ConfigError: another kind, a table without labels, nothing to train on, or no embeddings where they are needed.
    """
    chosen = kind_named(kind)
    if synthetic.labels is None or test.labels is None or not len(synthetic):
        raise ConfigError(
            "A classifier is trained on labelled synthetic texts and tested on labelled texts.",
            "Give both tables with the column of their labels.",
        )
    chosen.require(synthetic, test)
    labels, predict = chosen.train(synthetic, seed=seed)
    predicted = predict(test).tolist() if len(test) else []
    right = (labels[each] == label for each, label in zip(predicted, test.labels, strict=True))
    return np.fromiter(right, dtype=np.bool_, count=len(test))
