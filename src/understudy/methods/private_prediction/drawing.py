"""One text, drawn token by token for a batch of private texts (Amin et al. 2024, Algorithm 1; InvisibleInk 2025).

until the text ends:
    z_pub      = next-token logits without private text                                       public
    candidates = the k tokens likeliest by z_pub (differences: those within 2C/s of the k-th)  public
    d          = distance of the batch's mean distribution from the public one + noise        with a sparse vector
    token      = d near: drawn from softmax(z_pub)                                            costs no token
                 else:   drawn from softmax(sum of clipped logits / (s tau))                  one private token
        then what must follow by the public form of a record (its next key)                       no draw
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from understudy.decoding.candidates import public_candidates
from understudy.decoding.ending import OpenText
from understudy.decoding.sums import TokenSums
from understudy.errors import ModelError
from understudy.methods.private_prediction.parameters import Clip
from understudy.models.contexts import Contexts
from understudy.privacy.noise import NoiseSource
from understudy.privacy.tokens import BatchTokens, PrivateTokens

_PUBLIC_GRID = 2**20  # integer steps of a public log-probability; free to choose


@dataclass
class Drawn:
    """A text's tokens, which of them are private, and how it ended: by itself, or for want of tokens."""

    tokens: list[int] = field(default_factory=list)
    private: list[bool] = field(default_factory=list)
    ended: bool = False


@dataclass(frozen=True)
class Draw:
    """How one token is drawn.

    Args:
        clip: what is clipped.
        mechanism: what is charged; its numbers are the draw's.
        top_k: candidates, 0 for the whole vocabulary.
        public_temperature: of tokens that a test found public.
        noise: for public tokens, which cost nothing.
        encode: text into tokens: what must follow, such as a record's next key, is written without a draw.
    """

    clip: Clip
    mechanism: PrivateTokens
    top_k: int
    public_temperature: float
    noise: NoiseSource
    encode: Callable[[str], Sequence[int]]

    @property
    def sums(self) -> TokenSums:
        """What is summed over the private rows."""
        test = self.mechanism.test
        return TokenSums(
            self.clip,
            self.mechanism.clip,
            self.mechanism.grid,
            None if test is None else self.mechanism.distance_grid,
        )

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
    ) -> Drawn:
        """Draw until ``text`` has ended, or no private token is left where one is due.

        Args:
            contexts: the batch's rows; row 0 public. They are taken back to the prompt first.
            divisors: of the private rows: of how many rows of its unit each is one.
            tokens: the batch's private tokens.
            text: empty.
            check: called before each token; it raises where the run is being stopped.
        """
        contexts.rewind()
        drawn, sums_of_rows, batch_size = Drawn(), self.sums, self.mechanism.batch_size
        while text.ended is None:
            check()
            try:
                public = contexts.public_logits(whole=not self.top_k)
            except ModelError:
                if drawn.tokens:
                    break  # this too is an outcome of what was paid for, tests included: stored, not drawn again
                raise
            candidates = public_candidates(public, count=self.top_k or None, margin=self.margin)
            sums = sums_of_rows.over(contexts, candidates, divisors)
            private = not tokens.can_test or tokens.is_private(sums.distance(batch_size))
            if private and tokens.left == 0:
                break
            if private:
                place = tokens.draw(sums.utilities(batch_size))
            else:
                place = self._public(candidates.logits)
            self._write(candidates.token(place), private, drawn, contexts, text)
            if text.ended is None:
                for token in self.encode(text.next):
                    self._write(token, False, drawn, contexts, text)
        drawn.ended = text.ended not in (None, "length")
        return drawn

    def _write(self, token: int, private: bool, drawn: Drawn, contexts: Contexts, text: OpenText) -> None:
        if text.ended is None:
            drawn.tokens.append(token)
            drawn.private.append(private)
            if not text.take(token):
                contexts.step(token)

    def _public(self, logits: Any) -> int:
        utilities = np.rint((logits - logits.max()).double().cpu().numpy() * _PUBLIC_GRID).astype(np.int64)
        return self.noise.choose(utilities, scale=_PUBLIC_GRID * self.public_temperature)
