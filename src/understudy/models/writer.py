"""Provide the writer: low-rank adapters that teach the built-in model one task, a text from a few phrases.

They ship with the package (``writer.safetensors``, made by ``training/``), eight bits per weight and one scale per row,
and are added to the model's weights when it is loaded to write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from understudy.base.lazy import torch

RANK, SCALE = 16, 2.0
KEPT = 0.6
"""The share of the trained change that is added: weights between the plain model's and the trained ones do better on
kinds of text that were not in the training data (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models")."""
LINEAR = (
    *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)
FILE = "writer.safetensors"
_SCALES = ".scales"


def quantised(matrices: Mapping[str, Any]) -> dict[str, Any]:
    """Return each matrix as signed bytes and, under its name with ``.scales``, the float32 scale of each row."""
    made: dict[str, Any] = {}
    for name, matrix in matrices.items():
        largest = matrix.detach().abs().amax(1, keepdim=True).clamp(min=1e-12)
        made[name] = (matrix.detach() / largest * 127).round().to(torch.int8)
        made[name + _SCALES] = (largest / 127).flatten().contiguous()
    return made


def unquantised(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the matrices that ``quantised`` stored, as float32."""
    return {name: kept[name].float() * kept[name + _SCALES][:, None] for name in kept if name + _SCALES in kept}


def _content() -> bytes:
    return resources.files(__package__).joinpath(FILE).read_bytes()


@cache
def fingerprint() -> str:
    """Return the SHA-256 of the shipped file."""
    return hashlib.sha256(_content()).hexdigest()


def fingerprint_with(weights: str) -> str:
    """Return the fingerprint of a model of these weights with the adapters added."""
    return hashlib.sha256(f"{weights}+{KEPT}*{SCALE}*{fingerprint()}".encode()).hexdigest()


def merge(model: Any) -> None:
    """Add the shipped adapters, scaled down, to the weights of the built-in model, in place."""
    from safetensors.torch import load

    read = unquantised(load(_content()))
    with torch.no_grad():
        for number, layer in enumerate(model.model.layers):
            for name in LINEAR:
                weight = layer.get_submodule(name).weight
                change = KEPT * SCALE * read[f"{number}.{name}.up"] @ read[f"{number}.{name}.down"]
                weight += change.to(weight.device, weight.dtype)


@dataclass(frozen=True)
class Judge:
    """Judges, while an answer is written, whether a reader will take it for a sensible text of its kind.

    Each token votes, by a linear function of the model's state behind it, and the mean vote is the logarithm of the
    odds. The function was fitted to what readers said of the writer's own texts around public words (``training/``).

    Args:
        layer: the layer whose states vote.
        weights: ``Float32[H]``, and ``bias`` the vote of a state of zeros.
    """

    layer: int
    weights: Any
    bias: float

    @classmethod
    def shipped(cls, device: str) -> Judge:
        """Return the judge that ships with the adapters."""
        from safetensors.torch import load

        kept = load(_content())
        return cls(int(kept["judge.layer"]), kept["judge.weights"].to(device), float(kept["judge.bias"]))

    def votes(self, states: Sequence[Any]) -> list[float]:
        """Return the vote of the last token of each row; ``states`` are those of each layer, ``Float[B, T, H]``."""
        votes: list[float] = (states[self.layer][:, -1].float() @ self.weights + self.bias).tolist()
        return votes
