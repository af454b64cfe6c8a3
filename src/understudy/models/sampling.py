"""Drawing the next token of every row, from uniforms that belong to the request and not to the batch."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUCLEI = (256, 4096)  # how many tokens are sorted at first; a flatter distribution has all of them sorted


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

    tokens = torch.empty(len(logits), dtype=torch.long, device=logits.device)
    greedy = temperature == 0
    if bool(greedy.any()):
        tokens[greedy] = logits[greedy].argmax(-1)
    whole = ~greedy & (top_p >= 1)
    if bool(whole.any()):
        tokens[whole] = _invert(_masses(logits[whole], temperature[whole]), uniform[whole])
    nucleus = ~greedy & (top_p < 1)
    if bool(nucleus.any()):
        masses = _masses(logits[nucleus], temperature[nucleus])
        tokens[nucleus] = _from_nucleus(masses, top_p[nucleus], uniform[nucleus])
    return tokens


def _masses(logits: Any, temperature: Any) -> Any:
    return (logits.float() / temperature.clamp(min=1e-4)[:, None]).softmax(-1)


def _from_nucleus(masses: Any, top_p: Any, uniform: Any) -> Any:
    """A token of each row's nucleus. Most nuclei are small, so few rows need many tokens sorted."""
    import torch

    drawn = torch.empty(len(masses), dtype=torch.long, device=masses.device)
    rows = torch.arange(len(masses), device=masses.device)
    for width in (*_NUCLEI, masses.shape[-1]):
        ordered, tokens = masses[rows].topk(min(width, masses.shape[-1]))
        places = _invert(_cut(ordered, top_p[rows]), uniform[rows])
        drawn[rows] = tokens.gather(1, places[:, None])[:, 0]
        rows = rows[ordered.sum(-1) < top_p[rows]]
        if len(rows) == 0:
            break
    return drawn


def _cut(ordered: Any, top_p: Any) -> Any:
    """Masses in descending order, with 0 for what lies beyond the first ``top_p`` of them."""
    return ordered.where(ordered.cumsum(-1) - ordered < top_p[:, None], 0)


def _invert(masses: Any, uniform: Any) -> Any:
    """Where each row's cumulative mass first passes ``uniform`` of the whole; never a place without mass."""
    import torch

    cumulated = masses.cumsum(-1)
    total = cumulated[:, -1]
    target = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulated, target[:, None], right=True)[:, 0]
