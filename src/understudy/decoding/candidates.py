"""The tokens a draw may take: chosen by the public context alone, so any choice is free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Candidates:
    """A public set of tokens and the public context's logits for them, on the device.

    Args:
        tokens: ``Int64[K]``, ascending; None for the whole vocabulary.
        logits: ``Float32[K]``, finite.
    """

    tokens: Any | None
    logits: Any

    def __len__(self) -> int:
        return int(self.logits.shape[0])

    def token(self, index: int) -> int:
        """The token of the candidate ``index``."""
        return index if self.tokens is None else int(self.tokens[index])

    def first(self) -> int:
        """The token that the public context finds likeliest, the first of equals."""
        return self.token(int(self.logits.argmax()))


def public_candidates(logits: Any, *, count: int | None, margin: float = 0.0) -> Candidates:
    """The public context's likeliest next tokens.

    Args:
        logits: the public context's, ``Float32[V]`` on the device.
        count: k; None, or the vocabulary's size and more, for all tokens.
        margin: nats below the k-th largest public logit down to which tokens belong too: ``2 C / s`` is the extension
            of the top k that InvisibleInk publishes for clipped differences, and what one private row of s can lift
            by. All rows together can lift a token by up to ``2 C``, so it is a choice, free since public, and no bound.

    Returns:
        All tokens with a logit of at least the k-th largest less ``margin``: k, or more.
    """
    if count is None or count >= len(logits):
        return Candidates(None, logits)
    least = logits.topk(count, sorted=False).values.min()
    tokens = (logits >= least - margin).nonzero()[:, 0]
    return Candidates(tokens, logits[tokens])
