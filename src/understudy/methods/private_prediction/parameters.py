"""What a user may choose in private prediction. All of it is part of the release; only where it stops may change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from understudy.decoding.parameters import TextParameters
from understudy.errors import ConfigError
from understudy.parameters import Parameters

MOST_BATCHES = 1_000_000
"""Of all labels together: each is a list of its own in memory, empty or not."""
Clip = Literal["difference", "recenter"]


class StoppingParameters(Parameters):
    """Where a release stops before its tokens are used up."""

    texts_per_batch: int | None = Field(None, ge=1, le=1_000_000)
    """Stop each batch after so many texts; what is left stays paid for (``release --continue``)."""


class PrivatePredictionParameters(TextParameters, StoppingParameters):
    """All parameters of private prediction."""

    clip: Clip = "difference"
    """What is clipped: ``difference`` (of log-probabilities, to the public ones) or ``recenter`` (logits)."""
    clip_range: float | None = Field(None, gt=0, le=1e6)
    """c, or C of differences. Default: 10 with ``recenter``; with ``difference`` the largest that the budget buys."""
    batch_size: int | None = Field(None, ge=1, le=1_000_000)
    """Private texts in a batch as declared (s): the fixed divisor. Default: 255 with ``recenter``, 31 otherwise."""
    batches: int | None = Field(None, ge=1, le=MOST_BATCHES)
    """Batches of each label: a public number, about declared records / labels / batch_size. ``plan`` recommends one."""
    tokens_per_batch: int | None = Field(None, ge=1, le=1_000_000)
    """Private tokens of a batch (r). Default: 256 with ``difference``; with ``recenter`` as many as the budget buys."""
    temperature: float | None = Field(None, gt=0, le=1e6)
    """Temperature of sampling (tau). Default: 2 with ``recenter``, 1 otherwise."""
    top_k: int = Field(20, ge=0, le=10_000_000)
    """Sample among so many tokens that are likeliest without private text (differences: a few more); 0 for all."""
    sparse_vector: bool = False
    """Take the public token where a noisy test finds the batch near to public: pays where most tokens are."""
    threshold: float = Field(0.15, gt=0, le=2)
    """Sparse vector: how far from public, in L1, counts as private (theta)."""
    threshold_noise: float = Field(0.2, gt=0, le=1e6)
    """Sparse vector: scale of the Laplace noise on the threshold (sigma)."""
    public_temperature: float = Field(1.0, ge=1e-6, le=1e6)
    """Sparse vector: temperature of public tokens."""
    text_tokens: int = Field(50, ge=1, le=1_000_000)
    """Tokens of a synthetic text as you expect them; only for the forecast."""

    @property
    def resolved(self) -> ResolvedNumbers:
        """The choices, with the defaults that depend on the clipping.

        Raises:
            ConfigError: if the clip range and the tokens are both left open, which ``recenter`` never does.
        """
        differences = self.clip == "difference"
        tokens = self.tokens_per_batch
        if tokens is None and self.clip_range is None and differences:
            tokens = 256
        return ResolvedNumbers(
            clip_range=10.0 if self.clip_range is None and not differences else self.clip_range,
            batch_size=self.batch_size or (31 if differences else 255),
            tokens=tokens,
            temperature=self.temperature or (1.0 if differences else 2.0),
        )

    @property
    def declared_batches(self) -> int:
        """Batches of each label.

        Raises:
            ConfigError: if they are not declared.
        """
        if self.batches is None:
            raise ConfigError(
                "The number of batches is missing.",
                "Declare it with --batches N, from what you know of the corpus and not from counting it; "
                "`understudy plan` with --expected-records recommends one.",
            )
        return self.batches


@dataclass(frozen=True)
class ResolvedNumbers:
    """The numbers that the mechanism needs; of clip range and tokens one may be left for the budget to say."""

    clip_range: float | None
    batch_size: int
    tokens: int | None
    temperature: float
