"""The kinds of classifier by name, and the rule for texts of one label only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ConfigError
from understudy.metrics.sample import Sample
from understudy.metrics.utility.encoder import fit_encoder
from understudy.metrics.utility.linear import Predict, fit_embedding, fit_tfidf
from understudy.metrics.utility.network import fit_network

KINDS = ("tf-idf", "embedding", "network", "coral", "encoder")
"""Logistic regression on TF-IDF, on embeddings; three layers on embeddings, without and with Deep CORAL; an encoder."""


@dataclass(frozen=True)
class Kind:
    """A way to train a classifier.

    Args:
        name: one of :data:`KINDS`.
        fit: from texts and their classes (``Int64[n]``, numbered without gaps, two or more); with a ``seed`` if random.
        embeddings: whether texts need them.
        random: whether there is anything random in it.
    """

    name: str
    fit: Callable[..., Predict]
    embeddings: bool
    random: bool

    def train(self, texts: Sample, *, seed: int) -> tuple[tuple[str, ...], Predict]:
        """The labels in order, and a classifier that answers with their numbers.

        Guarantee
            Training reads ``texts`` and nothing else. A text's answer then depends on that text (its embedding, where
            this kind reads those) alone, bit for bit, not on the texts beside it: so of a count of right answers one
            record moves 1 at most. Not so for the kind ``encoder``.

        Args:
            texts: one or more, with labels. Those of a single label make a classifier that always gives it.
            seed: of the training.
        """
        assert texts.labels is not None
        labels = tuple(sorted(set(texts.labels)))
        if len(labels) == 1:
            return labels, lambda sample: np.zeros(len(sample), dtype=np.int64)
        targets = numbered(texts.labels, labels)
        predict = self.fit(texts, targets, seed=seed) if self.random else self.fit(texts, targets)
        return labels, lambda sample: predict(sample) if len(sample) else np.zeros(0, dtype=np.int64)

    def require(self, *samples: Sample) -> None:
        """See that texts have what this kind reads.

        Raises:
            ConfigError: embeddings are missing.
        """
        if self.embeddings and any(sample.embeddings is None for sample in samples):
            raise ConfigError(
                f"The classifier {self.name!r} works on embeddings, and a table has none.",
                "Name an embedder, or choose the classifier 'tf-idf'.",
            )


def kind_named(name: str, *, recipient: Sample | None = None, encoder: str = "builtin") -> Kind:
    """The kind of that name.

    Args:
        name: one of :data:`KINDS`.
        recipient: for ``coral``, see :func:`understudy.metrics.utility.network.fit_network`.
        encoder: for ``encoder``, see :func:`understudy.metrics.utility.encoder.fit_encoder`.

    Raises:
        ConfigError: there is none, or it needs a recipient and has none.
    """
    if name == "tf-idf":
        return Kind(name, fit_tfidf, embeddings=False, random=False)
    if name == "embedding":
        return Kind(name, fit_embedding, embeddings=True, random=False)
    if name == "network":
        return Kind(name, fit_network, embeddings=True, random=True)
    if name == "encoder":
        return Kind(name, partial(fit_encoder, encoder=encoder), embeddings=False, random=True)
    if name != "coral":
        raise ConfigError(f"There is no classifier {name!r}.", f"Known ones are: {', '.join(KINDS)}.")
    if recipient is None or not len(recipient):
        raise ConfigError(
            "The classifier 'coral' needs unlabelled texts of the recipient.", "Give some, or choose 'network'."
        )
    coral = Kind(name, partial(fit_network, recipient=recipient), embeddings=True, random=True)
    coral.require(recipient)
    return coral


def numbered(labels: tuple[str, ...], order: tuple[str, ...]) -> NDArray[np.int64]:
    """The place of each label in ``order``, ``Int64[len(labels)]``."""
    places = {label: place for place, label in enumerate(order)}
    return np.array([places[label] for label in labels], dtype=np.int64)
