"""Drawing the next token of every row, from uniforms that belong to the request and not to the batch."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUCLEUS = 1024  # tokens sorted at first; a flatter distribution than that sorts them all


def request_uniforms(seed: int, key: str, *, count: int) -> NDArray[np.float64]:
    """``Float64[count]`` in [0, 1): the draws of one request, whatever batch it lands in.

    They come from ``seed`` and the request's canonical ``key``, which counts its sample number in. They steer
    public sampling only: no privacy noise ever comes from here.
    """
    digest = hashlib.sha256(f"{seed}:{key}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "big")).random(count)


def choose_tokens(logits: Any, *, temperature: Any, top_p: Any, uniform: Any) -> Any:
    """The next token of each row, by inverting the cumulative distribution at ``uniform``.

    Args:
        logits: ``Float[B, V]`` tensor.
        temperature: ``Float32[B]``; 0 takes the likeliest token.
        top_p: ``Float32[B]`` in (0, 1]: draw from the smallest set of likeliest tokens with this much mass.
        uniform: ``Float32[B]`` in [0, 1].

    Returns:
        ``Int64[B]`` tensor.
    """
    import torch

    likeliest = logits.argmax(-1)
    if bool((temperature == 0).all()):
        return likeliest
    masses = (logits.float() / temperature.clamp(min=1e-4)[:, None]).softmax(-1)
    tokens = None
    if bool((top_p < 1).any()):
        ordered, tokens = masses.topk(min(_NUCLEUS, masses.shape[-1]))
        if bool((ordered.sum(-1) < top_p).any()):
            ordered, tokens = masses.sort(-1, descending=True)
        masses = ordered.where(ordered.cumsum(-1) - ordered < top_p[:, None], 0)
    cumulated = masses.cumsum(-1)
    total = cumulated[:, -1]
    target = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    picked = torch.searchsorted(cumulated, target[:, None], right=True)
    drawn = (picked if tokens is None else tokens.gather(1, picked))[:, 0]
    return torch.where(temperature == 0, likeliest, drawn)
