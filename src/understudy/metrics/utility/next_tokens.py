"""How well a causal language model foretells the tokens of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understudy.models.machine import single_threaded_inference

if TYPE_CHECKING:
    from understudy.models.causal import CausalModel

_BATCH = 8


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """Texts in tokens, each after the token that begins a text.

    Args:
        start: what every row begins with: the tokenizer's beginning-of-sequence token, without one its end-of-sequence
            token, without either nothing.
        tokens: the whole rows, ``start`` included. Texts are cut; those that leave no token to foretell are left out.
        characters: how many characters of each text are foretold.
    """

    start: tuple[int, ...]
    tokens: tuple[tuple[int, ...], ...]
    characters: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.tokens)


def rows_of(model: CausalModel, texts: Sequence[str], *, tokens: int) -> Rows:
    """The texts' first ``tokens`` tokens each, or as many as the model's window holds."""
    start = tuple(model.begin or sorted(model.ends)[:1])
    most = min(tokens, model.window - len(start))
    first = 0 if start else 1
    cut = [tuple(model.encode(text)[:most]) for text in texts]
    cut = [each for each in cut if len(each) > first]
    return Rows(start, tuple((*start, *each) for each in cut), tuple(len(model.decode(each[first:])) for each in cut))


def predictions(network: Any, rows: Rows, numbers: Sequence[int]) -> tuple[Any, Any, Any]:
    """The logits before each token that is to be foretold, in the rows at ``numbers``.

    Rows are padded at their right end, where a causal model does not look.

    Returns:
        logits ``Float32[T, V]``, the true tokens ``Int64[T]``, and each one's place in ``numbers`` ``Int64[T]``.
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    device = network.device
    padded = pad_sequence([torch.tensor(rows.tokens[number]) for number in numbers], batch_first=True).to(device)
    ends = torch.tensor([len(rows.tokens[number]) for number in numbers], device=device)[:, None]
    places = torch.arange(1, padded.shape[1], device=device)
    wanted = (places >= len(rows.start)) & (places < ends)
    logits = network(input_ids=padded[:, :-1]).logits
    return logits[wanted].float(), padded[:, 1:][wanted], wanted.nonzero()[:, 0]


@dataclass(frozen=True, eq=False)
class Scores:
    """What a model made of N texts.

    Args:
        surprise: each text's negative log-likelihood in nats, ``Float64[N]``.
        right: how many of its tokens had the highest probability of all, ``Int64[N]``.
        tokens: how many there are, ``Int64[N]``.
        characters: and how many characters, ``Int64[N]``.
    """

    surprise: NDArray[np.float64]
    right: NDArray[np.int64]
    tokens: NDArray[np.int64]
    characters: NDArray[np.int64]


def score(network: Any, rows: Rows) -> Scores:
    """Foretell every token of ``rows`` from those before it."""
    import torch

    surprise, right, tokens = (torch.zeros(len(rows), dtype=torch.float64) for _ in range(3))
    by_length = sorted(range(len(rows)), key=lambda number: len(rows.tokens[number]))
    with single_threaded_inference():
        for first in range(0, len(rows), _BATCH):
            numbers = by_length[first : first + _BATCH]
            logits, true, owner = predictions(network, rows, numbers)
            owner = torch.tensor(numbers)[owner.cpu()]
            losses = torch.nn.functional.cross_entropy(logits, true, reduction="none")
            surprise.index_add_(0, owner, losses.cpu().double())
            right.index_add_(0, owner, (logits.argmax(-1) == true).cpu().double())
            tokens.index_add_(0, owner, torch.ones(len(owner), dtype=torch.float64))
    return Scores(
        surprise.numpy(),
        right.long().numpy(),
        tokens.long().numpy(),
        np.asarray(rows.characters, dtype=np.int64),
    )
