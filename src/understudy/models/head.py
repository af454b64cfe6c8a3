"""From hidden states to next-token logits, for some tokens of the vocabulary only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_VECTOR = 16  # float32 numbers in the widest register


@dataclass(frozen=True)
class Head:
    """``cap * tanh((hidden @ weight.T + bias) * scale / cap)``; most models have weights alone.

    Args:
        weight: ``Float[K, H]``.
        bias: ``Float[K]``, or None.
        scale: multiplies the logits.
        cap: bounds them softly; None for no bound.
        filled: tokens at the end that are there to fill up whole vectors of the processor, and are left out of the
            result: what is left over after those is computed in another way, and a row's last bits would depend on its
            place among others.
    """

    weight: Any
    bias: Any | None = None
    scale: float = 1.0
    cap: float | None = None
    filled: int = 0

    def of(self, tokens: Any | None) -> Head:
        """The head for the tokens ``Int64[K]`` alone, in that order; for all without a copy."""
        if tokens is None:
            return self
        from torch.nn.functional import pad

        filled = -len(tokens) % _VECTOR
        tokens = pad(tokens, (0, filled))
        bias = None if self.bias is None else self.bias[tokens]
        return Head(self.weight[tokens], bias, self.scale, self.cap, filled)

    def __call__(self, hidden: Any) -> Any:
        """Logits ``Float[R, K]`` of the hidden states ``Float[R, H]``."""
        from torch.nn.functional import linear

        logits = linear(hidden, self.weight, self.bias)
        if self.scale != 1.0:
            logits = logits * self.scale
        if self.cap is not None:
            logits = (logits / self.cap).tanh() * self.cap
        return logits[:, : logits.shape[1] - self.filled]


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
