"""Public texts as odd as a private one may be: a model that fails on them would fail a run that is paid for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from understudy.errors import ModelError

if TYPE_CHECKING:
    from understudy.models.causal import CausalModel
    from understudy.models.types import Embedder

ODD_TEXTS = ("", " ", "\n", "\x00", "\u0301", "\U0010ffff", "\U0001f642", "a" * 50_000, "a text " * 10_000, "[{<|")
_PLAIN = "a public text"
T = TypeVar("T")
_CURE = "Use another model: of a private text like that it would fail after the charge."


def require_embeds_all(embedder: Embedder) -> int:
    """See that an embedder answers whatever it is given, before anything is charged; its dimension.

    Raises:
        ModelError: it fails on an odd text or on none, or does not answer with one vector per text, all of one
            dimension, of which that of a plain text has length 1.
    """
    texts = [_PLAIN, *ODD_TEXTS]
    vectors, none = _tried(lambda: (np.asarray(embedder.embed(texts)), np.asarray(embedder.embed([]))), embedder)
    if vectors.ndim != 2 or len(vectors) != len(texts) or none.shape != (0, vectors.shape[1]):
        raise ModelError(
            f"The embedder {embedder.model_id!r} does not answer with one vector a text, all of one dimension.",
            "Use another embedder.",
        )
    if not abs(float(np.linalg.norm(vectors[0])) - 1) < 0.01:  # NaN is not near to 1 either
        raise ModelError(
            f"The embedder {embedder.model_id!r} does not answer with unit vectors.",
            "Use an embedder that normalises its vectors.",
        )
    return int(vectors.shape[1])


def require_encodes_all(model: CausalModel) -> None:
    """See that a model's tokenizer takes whatever it is given, before anything is charged.

    Raises:
        ModelError: it fails on an odd text.
    """
    _tried(lambda: [model.encode(text) for text in ODD_TEXTS], model)


def _tried(use: Callable[[], T], model: Embedder | CausalModel) -> T:
    try:
        return use()
    except Exception as error:  # libraries raise whatever they like
        raise ModelError(
            f"The model {model.model_id!r} fails on an odd public text ({type(error).__name__}).", _CURE
        ) from None
