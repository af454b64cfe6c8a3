"""Which part of a base model learns, and the tuned model in a Release."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from understudy.base.errors import ConfigError
from understudy.base.parameters import Ablation, Parameters
from understudy.methods.shared.decoding.prompting import TextParameters
from understudy.models.causal import CausalModel
from understudy.models.lora import ATTENTION
from understudy.models.training import LoRA, Trainable, Weights
from understudy.schema.labels import UNIFORM

MODEL = "private model"
"""The public input that names the base model."""
MOST_NUMBERS = 60_000_000
"""Largest number of trainable values: a checkpoint has three arrays of them, a Release one (240 MB)."""
LARGEST_WEIGHT = 1e4
"""Largest weight in a Release, in absolute value."""
LABELS, LABEL_SHARE = "labels", 0.03
"""The charge of noisy label counts, and its share of the budget (of mu^2 with Gaussian noise)."""
COUNTS = "label_counts"
PROMPTS = frozenset({"prompt_tokens", "prompt_lengths"})
"""Names of a Release's arrays of instructions."""


class DeclaredSize(Parameters):
    """The size of the corpus, as its holder declares it."""

    declared_records: Ablation[int | None] = Field(None, ge=1, le=10**12)
    """Size of the corpus as you declare it (owners, if they are protected); rates, divisors and the number of
    teachers follow from it. Default: ``expected_records``."""

    @property
    def declared(self) -> int:
        """Return the declared size. Raises ConfigError if there is none."""
        if self.declared_records is None:
            raise ConfigError(
                "The size of the corpus is not declared.",
                "Declare it with --expected-records N, from what you know of the corpus and not from counting it: "
                "settings that must not depend on the private records are derived from it.",
            )
        return self.declared_records


class TuningParameters(Parameters):
    """Which part of the model learns."""

    learns: Literal["lora", "all"] = "lora"
    """``lora``: adapters on the frozen model. ``all``: every weight, of a small model."""
    lora_rank: int = Field(4, ge=1, le=1024)
    """Rank of the adapters."""

    adapted: ClassVar[str] = ATTENTION
    """The linear layers that are adapted."""
    blocks: ClassVar[int | None] = None
    """How many of the last blocks are adapted; None for all."""


class SamplingParameters(Parameters):
    """How ``generate`` uses the tuned model. Free."""

    unfinished: Literal["drop", "keep"] = "keep"
    """What to do with a text that did not end within its tokens: ``drop`` samples it again, four times in all."""


class LabelParameters(Parameters):
    """How texts are divided among labels."""

    label_sizes: str = UNIFORM
    """How ``--records`` are divided among labels: ``uniform``, declared proportions ``A=3,B=1``, or ``noisy`` counts
    (cost budget)."""


class TunedParameters(LabelParameters, SamplingParameters, TextParameters, TuningParameters):
    """The parameters of a tuned model: what it learns from, which part learns, how texts are sampled."""

    from_writer: ClassVar[bool] = False
    """Whether the built-in model starts from the trained writer."""


def trainable_of(parameters: TuningParameters, model: CausalModel) -> Trainable:
    """Return the part of the model that is tuned. Raises ConfigError if it has more numbers than fit into a Release."""
    made: Trainable | None = None
    if parameters.learns == "lora":
        made = LoRA(model, rank=parameters.lora_rank, targets=[parameters.adapted], layers=parameters.blocks)
    numbers = made.size if made else sum(weight.numel() for weight in model.network.parameters())
    if numbers > MOST_NUMBERS:
        raise ConfigError(
            f"Training would change {numbers:,} weights of the model; at most {MOST_NUMBERS:,} are possible.",
            "Tune only adapters (--learns lora), or lower their rank (--lora-rank).",
        )
    return made or Weights(model, blocks=None)
