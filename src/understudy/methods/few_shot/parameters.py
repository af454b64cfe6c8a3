"""What a user may choose in few-shot: in the exemplars (part of the release), and in the prompts that show them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from understudy.decoding.parameters import TextParameters
from understudy.errors import ConfigError
from understudy.parameters import Parameters
from understudy.privacy.subsampled import SubsetNoise


class StoppingParameters(Parameters):
    """Where a release stops before its tokens are used up."""

    exemplars: int = Field(4, ge=1, le=1000)
    """Exemplars of each label; tokens that they leave stay paid for (``release --continue`` with more exemplars)."""


class ShowingParameters(Parameters):
    """How ``generate`` uses the exemplars. Free."""

    exemplars_per_prompt: int = Field(4, ge=1, le=50)
    """Exemplars that a prompt of ``generate`` shows, at most."""


class FewShotParameters(TextParameters, StoppingParameters, ShowingParameters):
    """All parameters of few-shot."""

    sampling_rate: float | None = Field(None, ge=1e-9, le=1)
    """Probability with which each record is drawn for a token (q); public, never computed from the private data."""
    subsets: int = Field(10, ge=1, le=500)
    """Subsets into which the drawn records fall, each a prompt of its own (M)."""
    examples_per_subset: int = Field(4, ge=1, le=100)
    """Private records that a subset's prompt shows at most (N)."""
    tokens: int = Field(400, ge=1, le=1_000_000)
    """Noisy tokens that are paid for, of each label: they buy tokens / exemplar_tokens exemplars or more."""
    exemplar_tokens: int = Field(100, ge=1, le=10_000)
    """Most tokens of an exemplar."""
    candidates: int = Field(100, ge=2, le=10_000)
    """A token is one of so many that are likeliest without private records (K)."""
    noise: SubsetNoise = "gaussian"
    """``gaussian`` on the mean probabilities, or ``votes``: each subset votes for a token, the exponential mechanism
    counts."""
    unfinished: Literal["drop", "keep"] = "keep"
    """What to do with an exemplar that did not end within its tokens."""

    @property
    def declared_rate(self) -> float:
        """q.

        Raises:
            ConfigError: if it is not declared.
        """
        if self.sampling_rate is None:
            raise ConfigError(
                "The sampling rate is missing.",
                "Declare it with --sampling-rate Q, from what you know of the corpus and not from counting it; "
                "`understudy plan` with --expected-records recommends one.",
            )
        return self.sampling_rate
