"""From hidden states to next-token logits, for some tokens of the vocabulary only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Head:
    """``cap * tanh((hidden @ weight.T + bias) * scale / cap)``; most models have weights alone.

    Args:
        weight: ``Float[K, H]``.
        bias: ``Float[K]``, or None.
        scale: multiplies the logits.
        cap: bounds them softly; None for no bound.
    """

    weight: Any
    bias: Any | None = None
    scale: float = 1.0
    cap: float | None = None

    def of(self, tokens: Any | None) -> Head:
        """The head for the tokens ``Int64[K]`` alone, in that order; for all without a copy."""
        if tokens is None:
            return self
        bias = None if self.bias is None else self.bias[tokens]
        return Head(self.weight[tokens], bias, self.scale, self.cap)

    def __call__(self, hidden: Any) -> Any:
        """Logits ``Float[R, K]`` of the hidden states ``Float[R, H]``."""
        from torch.nn.functional import linear

        logits = linear(hidden, self.weight, self.bias)
        if self.scale != 1.0:
            logits = logits * self.scale
        if self.cap is not None:
            logits = (logits / self.cap).tanh() * self.cap
        return logits


def find_head(model: Any, *, vocabulary: int) -> Head | None:
    """The model's head over the first ``vocabulary`` tokens, tried against its own logits; None where they differ.

    None means that this model makes its logits in a way not known here: they must then come from the whole model.
    """
    import torch

    layer, config = model.get_output_embeddings(), model.config.get_text_config()
    if getattr(layer, "weight", None) is None:
        return None
    bias = getattr(layer, "bias", None)
    head = Head(
        layer.weight.detach()[:vocabulary],
        None if bias is None else bias.detach()[:vocabulary],
        float(getattr(config, "logit_scale", None) or 1.0) / float(getattr(config, "logits_scaling", None) or 1.0),
        getattr(config, "final_logit_softcapping", None),
    )
    tokens = torch.arange(8, device=model.device)[None] % vocabulary
    with torch.inference_mode():
        expected = model(input_ids=tokens).logits[0, :, :vocabulary].float()
        found = head(hidden_states(model, input_ids=tokens)[0]).float()
    tolerance = 4 * torch.finfo(model.dtype).eps * float(expected.abs().max())
    if not tolerance < float("inf"):  # not finite: nothing to compare
        return None
    return head if torch.allclose(found, expected, rtol=0.0, atol=tolerance) else None


def hidden_states(model: Any, **inputs: Any) -> Any:
    """The states ``Float[B, L, H]`` that the head reads."""
    return model.get_decoder()(**inputs).last_hidden_state
