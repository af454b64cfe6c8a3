"""Apply low-rank adapters (LoRA, Hu et al. 2022) to a frozen model: y = W x + scale B A x, optionally one per row.

Each row of a batch may have a separate adapter. This gives per-example gradients: every row gets the same adapter as a
separate leaf of the graph, and one backward pass leaves each row its gradient. It also lets several adapters on one
base share one pass. PEFT cannot do this; its names are kept, so that its users can load adapters from understudy
(``docs/decisions/037``).
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError
from understudy.base.lazy import torch
from understudy.models.causal import CausalModel
from understudy.models.shared_prefix import hidden_states

ALL, ATTENTION = "all", "attention"
_QUERIES_AND_VALUES = {
    *("q_proj", "v_proj", "query", "value", "q_lin", "v_lin", "q", "v"),
    *("c_attn", "query_key_value", "qkv_proj", "qkv", "Wqkv"),
}
"""Names of the layers for queries and values, in the models of transformers."""
DOWN, UP = ".lora_A.weight", ".lora_B.weight"
"""Ends of the names of A and B."""
SCALE = 2.0
"""alpha / rank."""


@dataclass(frozen=True)
class Site:
    """A linear layer to which an adapter is added: its name, and the sizes of its input and output."""

    name: str
    module: Any
    reads: int
    gives: int


def transformer_blocks(network: Any) -> tuple[str, Any]:
    """Return the name and the modules of a transformer's stack of blocks: its longest list of modules."""
    lists = [(name, each) for name, each in network.named_modules() if isinstance(each, torch.nn.ModuleList)]
    if not lists:
        raise ConfigError(
            "The model has no stack of transformer blocks that could be adapted.", "Name a transformer model."
        )
    return max(lists, key=lambda named: len(named[1]))


def find_sites(network: Any, *, targets: Sequence[str], layers: int | None) -> list[Site]:
    """Return the linear layers of a network's last blocks that ``targets`` name.

    Args:
        targets: the last parts of their names (``q_proj``); ``attention`` for those of queries and values, as
            Hu et al. recommend (all if none is known by name); or ``all``.
        layers: how many of the last blocks; None for all.

    Raises ConfigError if a target is in none of these blocks.
    """
    prefix, blocks = transformer_blocks(network)
    first = 0 if layers is None else max(0, len(blocks) - layers)
    there = [
        (f"{prefix}.{number}.{name}", module, sizes)
        for number, block in enumerate(blocks)
        if number >= first
        for name, module in block.named_modules()
        if (sizes := _sizes(module)) is not None
    ]
    known = sorted({name.rpartition(".")[2] for name, _, _ in there})
    chosen = set(targets)
    if ATTENTION in chosen:
        chosen |= set(known) & _QUERIES_AND_VALUES or {ALL}
    if missing := sorted(set(targets) - {*known, ALL, ATTENTION}):
        raise ConfigError(
            f"The model has no linear layers called {', '.join(missing)} in its blocks.",
            f"Choose of {', '.join(known)}, or give `attention` or `all`.",
        )
    return [
        Site(name, module, *sizes)
        for name, module, sizes in there
        if ALL in chosen or name.rpartition(".")[2] in chosen
    ]


def _sizes(module: Any) -> tuple[int, int] | None:
    """Return the sizes of a linear layer; None for any other module."""
    from transformers.pytorch_utils import Conv1D

    if isinstance(module, torch.nn.Linear):
        return module.in_features, module.out_features
    return (int(module.nx), int(module.nf)) if isinstance(module, Conv1D) else None


class Adapters:
    """Low-rank adapters on the sites of a frozen network. They apply within :meth:`active`, in that thread only.

    Several objects may adapt a network, but only one is active at a time.
    """

    def __init__(self, network: Any, sites: Sequence[Site], *, rank: int) -> None:
        self.sites = list(sites)
        self.shapes: dict[str, tuple[int, int]] = {}
        """The shape of every matrix, under its name in PEFT, in order."""
        for site in self.sites:
            self.shapes[f"base_model.model.{site.name}{DOWN}"] = (rank, site.reads)
            self.shapes[f"base_model.model.{site.name}{UP}"] = (site.gives, rank)
        self.rank = rank
        self._dtype = network.dtype
        self._device = network.device
        self._now = threading.local()
        for number, site in enumerate(self.sites):
            site.module.register_forward_hook(self._hook(number))

    def start(self, *, seed: int) -> dict[str, NDArray[np.float32]]:
        """Return the initial matrices: A uniform as in PEFT, B zero, so that the network is unchanged."""
        generator = np.random.default_rng(seed)
        return {
            name: np.zeros(shape, dtype=np.float32)
            if UP in name
            else generator.uniform(-1, 1, size=shape).astype(np.float32) / np.float32(math.sqrt(shape[1]))
            for name, shape in self.shapes.items()
        }

    def tensors(self, matrices: Mapping[str, NDArray[np.float32]]) -> list[Any]:
        """Return the matrices on the device in the network's precision, in order."""
        return [torch.tensor(matrices[name]).to(self._device, self._dtype) for name in self.shapes]

    @contextmanager
    def active(self, tensors: Sequence[Any]) -> Iterator[None]:
        """Make the network compute with ``tensors`` within the block: matrices, or for a batch of R rows stacks
        ``[G, ...]``, each matrix for R / G consecutive rows."""
        before = getattr(self._now, "tensors", None)
        self._now.tensors = tensors
        try:
            yield
        finally:
            self._now.tensors = before

    def _hook(self, number: int) -> Any:
        def adapt(_module: Any, given: tuple[Any, ...], output: Any) -> Any:
            tensors = getattr(self._now, "tensors", None)
            if tensors is None:
                return None
            down, up = tensors[2 * number : 2 * number + 2]
            return output + SCALE * _times(_times(given[0], down), up)

        return adapt


def _times(rows: Any, matrix: Any) -> Any:
    """Multiply ``rows``, ``[R, L, in]``, by the transpose of one matrix, or of G: each for R / G consecutive rows."""
    if matrix.ndim == 2 or len(matrix) == len(rows):
        return rows @ matrix.transpose(-1, -2)
    groups = rows.unflatten(0, (len(matrix), -1))
    return (groups.flatten(1, 2) @ matrix.transpose(-1, -2)).unflatten(1, groups.shape[1:3]).flatten(0, 1)


class Trunk:
    """A network divided into its lower blocks and its last ``layers`` (with the final norm).

    Both share their weights, and forward hooks on their layers, with the network. Several threads may compute. Without
    ``layers`` all blocks are above the cut.

    Raises ConfigError if the network has no separate head or gives different states when it is cut.
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

            made = list(blocks)
            for at in replaced:
                made[at] = copy.copy(blocks[at])
                object.__setattr__(made[at], "forward", shaped)
            return _with_blocks(network, self._name, made)

        self._below = part(range(first, len(blocks)), self._keep)
        self._above = part(range(first), lambda _states: self._now.states)
        if causal.head is None or not self._is_whole():
            raise ConfigError(
                f"The blocks of {causal.model_id} cannot be computed apart from the trunk below them.",
                "Use a model of another family (Llama, Qwen, Gemma, Mistral, GPT-2 and the like).",
            )

    def __reduce__(self) -> tuple[Any, tuple[CausalModel]]:
        return partial(Trunk, layers=self.layers), (self._causal,)

    def below(self, tokens: Any) -> Any:
        """Return the trunk's output for ``Int64[R, L]``: the states ``Float[R, L, H]`` that the last blocks read."""
        self._now.kept = None
        hidden_states(self._below, input_ids=tokens, use_cache=False)
        kept, self._now.kept = self._now.kept, None
        return kept

    def above(self, tokens: Any, states: Any) -> Any:
        """Return the states that the head reads, ``Float[R, L, H]``, from those of :meth:`below`."""
        self._now.states = states
        try:
            return hidden_states(self._above, input_ids=tokens, use_cache=False)
        finally:
            self._now.states = None

    def _keep(self, states: Any) -> Any:
        if self._now.kept is None:
            self._now.kept = states
        return states

    def _is_whole(self) -> bool:
        network = self._causal.network
        tokens = torch.arange(8, device=network.device)[None] % self._causal.vocabulary
        with torch.inference_mode():
            whole = hidden_states(network, input_ids=tokens, use_cache=False)
            return bool(torch.equal(self.above(tokens, self.below(tokens)), whole))


def _gives_tuple(network: Any, block: Any) -> bool:
    """Return whether a block's output is a tuple whose first part is the states."""
    found: list[Any] = []
    hook = block.register_forward_hook(lambda _module, _given, output: found.append(output))
    try:
        with torch.inference_mode():
            hidden_states(network, input_ids=torch.zeros((1, 1), dtype=torch.long, device=network.device))
    finally:
        hook.remove()
    return isinstance(found[0], tuple)


def _with_blocks(network: Any, name: str, blocks: list[Any]) -> Any:
    """Return a network of the same modules, except the blocks."""
    made = copy.copy(network)
    parent = made
    *path, last = name.split(".")
    for each in path:
        object.__setattr__(parent, "_modules", dict(parent._modules))
        parent._modules[each] = parent = copy.copy(parent._modules[each])
    object.__setattr__(parent, "_modules", dict(parent._modules))
    parent._modules[last] = torch.nn.ModuleList(blocks)
    return made
