"""A copy of a causal language model, tuned on a few texts: its last blocks learn, all else is shared."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy.errors import ConfigError
from understudy.metrics.utility.next_tokens import Rows, predictions


@dataclass(frozen=True)
class Recipe:
    """How a model is tuned: AdamW, its rate falling to 0 in a line, gradients clipped to norm 1.

    Args:
        texts: most texts to tune on.
        tokens: most tokens of a text, from its beginning.
        epochs: how often each text is seen.
        blocks: how many of the model's last blocks learn.
        batch: texts a step.
        rate: the first step's learning rate.

    Raises:
        ConfigError: one of them is not positive.
    """

    texts: int = 200
    tokens: int = 64
    epochs: int = 2
    blocks: int = 6
    batch: int = 8
    rate: float = 3e-4

    def __post_init__(self) -> None:
        if min(self.texts, self.tokens, self.epochs, self.blocks, self.batch) < 1 or not 0 < self.rate < 1:
            raise ConfigError(
                "A language model is tuned on at least one text, token, epoch, block and text a step, at a rate "
                "between 0 and 1.",
                "Give positive numbers, or leave them out.",
            )


def tuned(network: Any, rows: Rows, recipe: Recipe, *, seed: int) -> Any:
    """A copy of ``network`` tuned to foretell ``rows``; the frozen weights are one and the same.

    Without dropout, and with the learning weights in float32 whatever the network computes in, so that the outcome
    depends on nothing but the arguments and the device.

    Args:
        network: a transformers causal model in evaluation mode whose weights are frozen.
        rows: at least one.
        recipe: how.
        seed: of the order of texts.
    """
    import torch

    frozen = {id(weight) for weight in network.parameters()}
    frozen -= {id(weight) for weight in _last_blocks(network, recipe.blocks).parameters()}
    copy = deepcopy(network, {id(weight): weight for weight in network.parameters() if id(weight) in frozen})
    learning = [weight.requires_grad_() for weight in _last_blocks(copy, recipe.blocks).parameters()]
    masters = [weight.detach().float().clone() for weight in learning]
    generator = np.random.default_rng(seed)
    steps = [
        order[first : first + recipe.batch].tolist()
        for order in (generator.permutation(len(rows)) for _ in range(recipe.epochs))
        for first in range(0, len(rows), recipe.batch)
    ]
    optimizer = torch.optim.AdamW(masters, lr=recipe.rate)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / len(steps))
    for numbers in steps:
        logits, true, _ = predictions(copy, rows, numbers)
        gradients = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, true), learning)
        for master, gradient in zip(masters, gradients, strict=True):
            master.grad = gradient.float()
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        decay.step()
        with torch.no_grad():
            for weight, master in zip(learning, masters, strict=True):
                weight.copy_(master)
    return copy


def _last_blocks(network: Any, count: int) -> Any:
    """The last of the blocks that a transformer stacks, in the longest list of modules that it has."""
    import torch

    lists = (module for module in network.modules() if isinstance(module, torch.nn.ModuleList))
    return max(lists, key=len)[-count:]
