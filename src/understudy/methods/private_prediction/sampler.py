"""One text, decoded token by token for a batch of private texts (Amin et al. 2024, Algorithm 1; InvisibleInk 2025).

until the text ends:
    z_pub      = next-token logits without private text                                       public
    candidates = the k tokens likeliest by z_pub (differences: those within 2C/s of the k-th)  public
    d          = distance of the batch's mean distribution from the public one + noise        with a sparse vector
    token      = d near: sampled from softmax(z_pub)                                          costs no token
                 else:   sampled from softmax(sum of clipped logits / (s tau))                one private token
        then what must follow by the public form of a record (its next key)                       no sampling
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from understudy.base.errors import ModelError
from understudy.methods.private_prediction.plan import Clip
from understudy.methods.shared.decoding.ending import OpenText
from understudy.methods.shared.decoding.sums import TokenSums, public_candidates
from understudy.models.contexts import Contexts
from understudy.privacy.tokens import BatchTokens, PrivateTokens

_PUBLIC_GRID = 2**20  # integer steps of a public log-probability; free to choose


@dataclass
class DecodedText:
    """A text's tokens, which of them are private, and how it ended: by itself, or for want of tokens."""

    tokens: list[int] = field(default_factory=list)
    private: list[bool] = field(default_factory=list)
    ended: bool = False


@dataclass(frozen=True)
class TokenSampler:
    """How one token is sampled, with the numbers of the mechanism.

    Args:
        top_k: candidates, 0 for the whole vocabulary.
        encode: text into tokens: what must follow, such as a record's next key, is written without sampling.
    """

    clip: Clip
    mechanism: PrivateTokens
    top_k: int
    encode: Callable[[str], Sequence[int]]

    @property
    def sums(self) -> TokenSums:
        """What is summed over the private rows."""
        made, distance_grid = self.mechanism, None if self.mechanism.test is None else self.mechanism.distance_grid
        return TokenSums(self.clip, made.clip, made.grid, distance_grid)

    @property
    def margin(self) -> float:
        """How far below the k-th public logit a candidate may lie: as far as one row can lift it (InvisibleInk)."""
        return 2 * self.mechanism.clip / self.mechanism.batch_size if self.clip == "difference" else 0.0

    def text(
        self,
        contexts: Contexts,
        divisors: Sequence[int],
        tokens: BatchTokens,
        text: OpenText,
        check: Callable[[], None] = lambda: None,
        *,
        behind: Sequence[int] = (),
    ) -> DecodedText:
        """Decode until ``text`` has ended, or no private token is left where one is due.

        Args:
            contexts: the batch's rows; row 0 public. They are taken back to the prompt first.
            divisors: of the private rows: of how many rows of its unit each is one.
            check: called before each token; it raises where the run is being stopped.
            behind: public or released tokens that all rows go on with before the text begins.
        """
        contexts.rewind()
        for token in behind:
            contexts.step(token)
        decoded, sums_of_rows, batch_size = DecodedText(), self.sums, self.mechanism.batch_size
        while text.ended is None:
            check()
            try:
                public = contexts.public_logits(whole=not self.top_k)
            except ModelError:
                if decoded.tokens:
                    break  # this too is an outcome of what was paid for, tests included: stored, not decoded again
                raise
            candidates = public_candidates(public, count=self.top_k or None, margin=self.margin)
            sums = sums_of_rows.over(contexts, candidates, divisors)
            private = not tokens.can_test or tokens.is_private(sums.distance(batch_size))
            if private and tokens.left == 0:
                break
            place = tokens.choose(sums.utilities(batch_size)) if private else self._public(candidates.logits, tokens)
            self._write(candidates.token(place), private, decoded, contexts, text)
            if text.ended is None:
                for token in self.encode(text.next):
                    self._write(token, False, decoded, contexts, text)
        decoded.ended = text.ended not in (None, "length")
        return decoded

    def _write(self, token: int, private: bool, decoded: DecodedText, contexts: Contexts, text: OpenText) -> None:
        if text.ended is None:
            decoded.tokens.append(token)
            decoded.private.append(private)
            if not text.take(token):
                contexts.step(token)

    def _public(self, logits: Any, tokens: BatchTokens) -> int:
        utilities = np.rint((logits - logits.max()).double().cpu().numpy() * _PUBLIC_GRID).astype(np.int64)
        return tokens.choose_public(utilities, scale=_PUBLIC_GRID)
