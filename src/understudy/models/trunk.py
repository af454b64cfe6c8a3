"""A model cut below its last blocks: the trunk, computed once for all that adapts the blocks above it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from understudy.base.errors import ConfigError
from understudy.models.contexts import hidden_states
from understudy.models.lora import transformer_blocks

if TYPE_CHECKING:
    from understudy.models.causal import CausalModel


class Trunk:
    """A network in two parts: the blocks below, and the last ``layers`` with the final norm.

    Both share their weights, and forward hooks on their layers, with the network. Several threads may compute.

    Args:
        causal: its head reads the states of its network.
        layers: how many of the last blocks are above the cut; None for all.

    Raises:
        ConfigError: the network has no head of its own or gives other states when it is cut.
    """

    def __init__(self, causal: CausalModel, *, layers: int | None) -> None:
        self._causal, network = causal, causal.network
        self._name, blocks = transformer_blocks(network)
        self.layers = len(blocks) if layers is None else min(layers, len(blocks))
        self._now = threading.local()
        first = len(blocks) - self.layers
        plural = _gives_tuple(network, blocks[0])

        def part(replaced: range, forward: Callable[[Any], Any]) -> Any:
            def shaped(states: Any, *_args: Any, **_named: Any) -> Any:
                found = forward(states)
                return (found,) if plural else found

            made = [_with_forward(block, shaped) if at in replaced else block for at, block in enumerate(blocks)]
            return _with_blocks(network, self._name, made)

        self._below = part(range(first, len(blocks)), self._keep)
        self._above = part(range(first), lambda _states: self._now.states)
        self._require_same(causal)

    def __reduce__(self) -> tuple[Any, tuple[CausalModel]]:
        """A copy in another process is made of the model there."""
        return partial(Trunk, layers=self.layers), (self._causal,)

    def below(self, tokens: Any) -> Any:
        """What the trunk gives for ``Int64[R, L]``: the states ``Float[R, L, H]`` that the last blocks read."""
        self._now.kept = None
        hidden_states(self._below, input_ids=tokens, use_cache=False)
        kept, self._now.kept = self._now.kept, None
        return kept

    def above(self, tokens: Any, states: Any) -> Any:
        """The states that the head reads, ``Float[R, L, H]``, from those of :meth:`below`."""
        self._now.states = states
        try:
            return hidden_states(self._above, input_ids=tokens, use_cache=False)
        finally:
            self._now.states = None

    def _keep(self, states: Any) -> Any:
        if self._now.kept is None:
            self._now.kept = states
        return states

    def _require_same(self, causal: CausalModel) -> None:
        import torch

        tokens = torch.arange(8, device=causal.network.device)[None] % causal.vocabulary
        same = causal.head is not None
        if same:
            with torch.inference_mode():
                whole = hidden_states(causal.network, input_ids=tokens, use_cache=False)
                same = torch.equal(self.above(tokens, self.below(tokens)), whole)
        if not same:
            raise ConfigError(
                f"The blocks of {causal.model_id} cannot be computed apart from the trunk below them.",
                "Use a model of another family (Llama, Qwen, Gemma, Mistral, GPT-2 and the like).",
            )


def _gives_tuple(network: Any, block: Any) -> bool:
    """Whether a block's output is a tuple whose first part are the states."""
    import torch

    found: list[Any] = []
    hook = block.register_forward_hook(lambda _module, _given, output: found.append(output))
    try:
        with torch.inference_mode():
            hidden_states(network, input_ids=torch.zeros((1, 1), dtype=torch.long, device=network.device))
    finally:
        hook.remove()
    return isinstance(found[0], tuple)


def _with_forward(block: Any, forward: Callable[..., Any]) -> Any:
    """A copy of ``block``, with all its attributes, that computes ``forward`` instead."""
    made = copy.copy(block)
    object.__setattr__(made, "forward", forward)
    return made


def _with_blocks(network: Any, name: str, blocks: list[Any]) -> Any:
    """A network of the same modules, but for the blocks."""
    import torch

    made = copy.copy(network)
    parent = made
    *path, last = name.split(".")
    for each in path:
        object.__setattr__(parent, "_modules", dict(parent._modules))
        parent._modules[each] = parent = copy.copy(parent._modules[each])
    object.__setattr__(parent, "_modules", dict(parent._modules))
    parent._modules[last] = torch.nn.ModuleList(blocks)
    return made
