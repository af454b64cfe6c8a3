"""Fine-tune a causal model: token rows, trainable weights, per-example gradients, the optimiser.

**Shapes.** A row's gradient must depend only on that row. So rows are computed in blocks of one public number of
rows and of one of few public widths; a row's width depends only on its length, and blocks are filled up with
rows without targets. :func:`require_separate_gradients` tests on the device that this is enough.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, PrivacyError
from understudy.base.lazy import torch
from understudy.models.causal import CausalModel
from understudy.models.lora import UP, Adapters, find_sites, transformer_blocks
from understudy.models.machine import one_core, worker_pool
from understudy.models.shared_prefix import Head, hidden_states

_STEP = 16
"""Widths are multiples of this: whole registers of processors, and few shapes."""


@dataclass(frozen=True, eq=False, repr=False)
class TokenRow:
    """A prompt and a text after it, as tokens. Private if the text is; its ``repr`` shows nothing."""

    prompt: Sequence[int]  # read, not learnt
    target: NDArray[np.int32]  # learnt: Int32[T]


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """A block of rows, padded to one shape, on the device."""

    tokens: Any  # Int64[R, L]; padding is at the right, where a causal model does not look
    first: Any  # Int64[R], the place of each row's first target, 1 or more
    counts: Any  # Int64[R], how many targets each has; 0 for one that fills up
    width: int  # most targets of a row: R x width places are predicted

    @classmethod
    def of(cls, rows: Sequence[TokenRow], *, width: int, prompt: int, size: int, device: str) -> Block:
        """Make a block of ``size`` rows from ``rows`` and empty ones. ``prompt`` is the length of the longest prompt, 1
        or more."""
        tokens = np.zeros((size, prompt + width), dtype=np.int64)
        first, counts = np.ones(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        for number, row in enumerate(rows):
            start, end = len(row.prompt), len(row.prompt) + len(row.target)
            tokens[number, :start], tokens[number, start:end] = row.prompt, row.target
            first[number], counts[number] = start, len(row.target)
        on_device = [torch.from_numpy(each).to(device) for each in (tokens, first, counts)]
        return cls(on_device[0], on_device[1], on_device[2], width)

    @classmethod
    def around(cls, rows: Sequence[TokenRow], *, device: str) -> Block:
        """Make a block of ``rows`` only, in the smallest shape. Use it only for results that may depend on the other
        rows."""
        width, prompt = max(len(row.target) for row in rows), max(len(row.prompt) for row in rows)
        return cls.of(rows, width=width, prompt=prompt, size=len(rows), device=device)

    @property
    def places(self) -> Any:
        """Return the places of the targets, ``Int64[R, width]``; beyond a row's targets, any place in the row."""
        return (self.first[:, None] + torch.arange(self.width, device=self.tokens.device)).clamp(
            max=self.tokens.shape[1] - 1
        )

    @property
    def targets(self) -> Any:
        """Return the target tokens at :attr:`places`, ``Int64[R, width]``."""
        return self.tokens.gather(1, self.places)

    @property
    def wanted(self) -> Any:
        """Return which of the :attr:`places` have a target, ``Bool[R, width]``."""
        return torch.arange(self.width, device=self.tokens.device) < self.counts[:, None]


def target_logits(causal: CausalModel, network: Any, block: Block) -> Any:
    """Return the network's logits at each target's place, ``Float[R, width, V]``; meaningless without a target.

    The last token is read too, though its output is not used: with one token less, a row would not be whole registers,
    and its last bits would depend on its place in the block.
    """
    if causal.head is not None and network is causal.network:
        return logits_of(causal.head, hidden_states(network, input_ids=block.tokens, use_cache=False), block)
    logits = network(input_ids=block.tokens, use_cache=False).logits[..., : causal.vocabulary]
    return logits.gather(1, (block.places - 1)[:, :, None].expand(-1, -1, logits.shape[2]))


def logits_of(head: Head, states: Any, block: Block) -> Any:
    """Compute the logits at the targets' places from the states ``Float[R, L, H]`` that the head reads."""
    states = states.gather(1, (block.places - 1)[:, :, None].expand(-1, -1, states.shape[2]))
    return head(states.flatten(0, 1)).unflatten(0, block.places.shape)


def token_losses(causal: CausalModel, network: Any, block: Block) -> Any:
    """Return the negative log-likelihood of each target, ``Float32[R, width]`` in nats; 0 without a target."""
    return losses_of(target_logits(causal, network, block), block)


def losses_of(logits: Any, block: Block) -> Any:
    """Return the losses, given the :func:`target_logits`."""
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), block.targets.flatten(), reduction="none")
    return losses.view_as(block.targets) * block.wanted


def row_losses(causal: CausalModel, network: Any, block: Block) -> Any:
    """Return the mean of each row's losses, ``Float32[R]``; 0 for a row without targets."""
    return token_losses(causal, network, block).sum(1) / block.counts.clamp(min=1)


class LoRA:
    """A model's trainable weights as one vector of P numbers: low-rank adapters; the model itself does not change.

    Several threads may compute gradients. Arguments as in :mod:`understudy.models.lora`.

    Only B is trained, and A keeps its initial value (FFA-LoRA, Sun et al. 2024): half as many numbers to put noise on,
    the adapter is linear in them, and noise on A is not multiplied by noise on B.

    Raises ConfigError if the model has no such layers.
    """

    def __init__(self, causal: CausalModel, *, rank: int, targets: Sequence[str], layers: int | None) -> None:
        self.causal = causal
        self._again = partial(LoRA, rank=rank, targets=targets, layers=layers)
        self.network = causal.network.requires_grad_(False)
        self.adapters = Adapters(self.network, find_sites(self.network, targets=targets, layers=layers), rank=rank)
        self._learning = {name: shape for name, shape in self.adapters.shapes.items() if UP in name}
        self._matrices = self.adapters.start(seed=0)
        self._tensors: list[Any] = []

    def __reduce__(self) -> tuple[Any, tuple[CausalModel]]:
        return self._again, (self.causal,)  # made of the model there, without weights that were loaded

    @property
    def size(self) -> int:
        """Return P, the number of trainable weights."""
        return sum(rows * columns for rows, columns in self._learning.values())

    def start(self) -> NDArray[np.float32]:
        """Return the initial weights, ``Float32[P]``: public."""
        return np.concatenate([self._matrices[name].ravel() for name in self._learning])

    def named(self, weights: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Return ``weights`` as matrices by name: A and B of all adapters, as PEFT names them."""
        return {**self._matrices, **split(weights, self._learning)}

    def joined(self, matrices: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Convert matrices from :meth:`named` back to one vector. Raises ConfigError if they belong to another
        model."""
        found = _fitting(matrices, self.adapters.shapes)
        self._matrices |= {name: matrix for name, matrix in found.items() if name not in self._learning}
        return np.concatenate([found[name].ravel() for name in self._learning])

    def load(self, weights: NDArray[np.float32]) -> None:
        self._tensors = self.adapters.tensors(self.named(weights))

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make :attr:`network` compute with the loaded weights within the block, in this thread."""
        with self.adapters.active(self._tensors):
            yield

    def gradients(self, block: Block) -> Any:
        """Return the gradient of each row's mean loss, ``Float32[R, P]`` on the device. Every row has separate leaves
        for B: one backward pass gives each row its gradient."""
        rows = len(block.tokens)
        found = self._derived(
            lambda: row_losses(self.causal, self.network, block).sum(), leaf=lambda b: b.expand(rows, *b.shape)
        )
        return torch.cat([each.flatten(1) for each in found], dim=1).float()

    def gradient(self, loss: Callable[[], Any]) -> Any:
        """Return the gradient of ``loss``, which uses :attr:`network`: ``Float32[P]`` on the device."""
        return torch.cat([each.flatten().float() for each in self._derived(loss, leaf=lambda b: b.detach())])

    def _derived(self, loss: Callable[[], Any], *, leaf: Callable[[Any], Any]) -> Sequence[Any]:
        """Return the gradients of ``loss`` with respect to the results of ``leaf`` for each B."""
        tensors = dict(zip(self.adapters.shapes, self._tensors, strict=True))
        leaves = {name: leaf(tensors[name]).requires_grad_() for name in self._learning}
        with torch.enable_grad(), self.adapters.active([*{**tensors, **leaves}.values()]):
            found: Sequence[Any] = torch.autograd.grad(loss(), list(leaves.values()))
        return found

    def stacked(self, weights: Any) -> list[Any]:
        """Split ``Float[G, P]`` (on the device) into the stacked matrices of G adapters, for
        :meth:`~understudy.models.lora.Adapters.active`; all share A."""
        parts = weights.split([rows * columns for rows, columns in self._learning.values()], dim=1)
        learning = dict(zip(self._learning, parts, strict=True))
        frozen = dict(zip(self.adapters.shapes, self.adapters.tensors(self._matrices), strict=True))
        return [
            learning[name].unflatten(1, shape).to(frozen[name]) if name in learning else frozen[name]
            for name, shape in self.adapters.shapes.items()
        ]


class Weights:
    """All weights of a model's last ``blocks`` (None: of the whole model) as trainable weights, with the interface of
    :class:`LoRA`.

    The network is a copy that shares its frozen weights with the model. Per-example gradients take a backward pass per
    row.
    """

    def __init__(self, causal: CausalModel, *, blocks: int | None) -> None:
        self.causal = causal
        source = causal.network.requires_grad_(False)
        learning = source if blocks is None else transformer_blocks(source)[1][-blocks:]
        learnt = {id(weight) for weight in learning.parameters()}
        frozen = {id(weight): weight for weight in source.parameters() if id(weight) not in learnt}
        self.network = deepcopy(source, frozen)
        names = [name for name, weight in source.named_parameters() if id(weight) in learnt]
        self._parameters = {name: self.network.get_parameter(name).requires_grad_() for name in names}

    @property
    def size(self) -> int:
        return sum(weight.numel() for weight in self._parameters.values())

    @property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(weight.shape) for name, weight in self._parameters.items()}

    def start(self) -> NDArray[np.float32]:
        parts = [weight.detach().float().flatten().cpu().numpy() for weight in self._parameters.values()]
        return np.concatenate(parts)

    def named(self, weights: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        return split(weights, self._shapes)

    def joined(self, matrices: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        return np.concatenate([each.ravel() for each in _fitting(matrices, self._shapes).values()])

    def load(self, weights: NDArray[np.float32]) -> None:
        with torch.no_grad():
            for parameter, each in zip(self._parameters.values(), self.named(weights).values(), strict=True):
                parameter.copy_(torch.tensor(each))

    @contextmanager
    def active(self) -> Iterator[None]:
        yield

    def gradients(self, block: Block) -> Any:
        def of(row: slice) -> Any:
            one = Block(block.tokens[row], block.first[row], block.counts[row], block.width)
            return self.gradient(lambda: row_losses(self.causal, self.network, one)[0])

        return torch.stack([of(slice(number, number + 1)) for number in range(len(block.tokens))])

    def gradient(self, loss: Callable[[], Any]) -> Any:
        parts = torch.autograd.grad(loss(), list(self._parameters.values()), materialize_grads=True)
        return torch.cat([each.flatten().float() for each in parts])


Trainable = LoRA | Weights


def split(weights: NDArray[np.float32], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float32]]:
    """Split one vector into matrices by name."""
    parts = np.split(weights, np.cumsum([math.prod(shape) for shape in shapes.values()])[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def _fitting(
    matrices: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, NDArray[np.float32]]:
    """Return the matrices in the order of ``shapes``. Raises ConfigError if they are of a different model."""
    if {name: matrix.shape for name, matrix in matrices.items()} != dict(shapes):
        raise ConfigError(
            "The tuned weights do not fit the model: its layers or sizes differ.",
            "Name the base model that it was tuned on (--private-model).",
        )
    return {name: np.asarray(matrices[name], dtype=np.float32) for name in shapes}


@dataclass(frozen=True)
class LearningRate:
    """A learning-rate schedule: the rate rises over the first ``warmup`` steps, then falls linearly to 0."""

    peak: float
    steps: int
    warmup: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.peak <= 1:
            raise ConfigError(f"Expected a learning rate in (0, 1], got {self.peak}.", "Give one such as 1e-3.")

    def at(self, step: int) -> float:
        rising = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        return self.peak * min(rising, 1 - step / self.steps)


class AdamW:
    """Torch's AdamW on one vector of weights, ``Float32[P]``, with its state as arrays."""

    def __init__(
        self, weights: NDArray[np.float32], rate: LearningRate, *, device: str = "cpu", weight_decay: float = 0.0
    ) -> None:
        self._weights = torch.tensor(weights, device=device)
        self._rate = rate
        self._optimizer = torch.optim.AdamW([self._weights], lr=rate.peak, weight_decay=weight_decay)
        self.taken = 0

    @property
    def weights(self) -> NDArray[np.float32]:
        """Return the present weights."""
        found: NDArray[np.float32] = self._weights.cpu().numpy().copy()
        return found

    def step(self, gradient: Any) -> None:
        """Take one step down ``gradient``, ``Float[P]``, a tensor or an array."""
        self._optimizer.param_groups[0]["lr"] = self._rate.at(self.taken)
        self._weights.grad = torch.as_tensor(gradient).to(self._weights)
        self._optimizer.step()
        self.taken += 1

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything that a resumed trainer needs."""
        moments = self._optimizer.state.get(self._weights, {})  # none before the first step
        nothing = self._weights * 0
        return {
            "weights": self.weights,
            "first_moment": moments.get("exp_avg", nothing).cpu().numpy().copy(),
            "second_moment": moments.get("exp_avg_sq", nothing).cpu().numpy().copy(),
            "step": np.array(self.taken, dtype=np.int64),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Resume from the result of :meth:`state`."""
        self.taken = int(state["step"])
        self._weights.copy_(torch.tensor(state["weights"]))
        self._optimizer.state[self._weights] = {
            "step": torch.tensor(float(self.taken)),
            "exp_avg": torch.tensor(state["first_moment"]).to(self._weights),
            "exp_avg_sq": torch.tensor(state["second_moment"]).to(self._weights),
        }


def _whole(tokens: int) -> int:
    return -(-tokens // _STEP) * _STEP


@dataclass(frozen=True)
class Shapes:
    """The fixed block shapes (rows, tokens) to which rows are padded before a model computes them; they are public."""

    prompt: int  # tokens of the longest prompt, 1 or more
    target: int  # most targets of a row
    rows: int  # of a block

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Return a few widths of targets, such that whole rows are multiples of 16 tokens long and the last one fits
        the longest target: each is 16 tokens longer than the one before, or about a fifth."""
        whole, longest = _whole(self.prompt + 1), _whole(self.prompt + self.target)
        found = []
        while whole < longest:
            found.append(whole - self.prompt)
            whole += max(_STEP, _whole(whole // 5))
        return (*found, longest - self.prompt)

    @property
    def longest(self) -> int:
        """Return the tokens of the longest row."""
        return self.prompt + self.widths[-1]

    def width_of(self, row: TokenRow) -> int:
        """Return the width of a row: a function of its length only."""
        return next(width for width in self.widths if len(row.target) <= width)

    def blocks(self, rows: Iterable[TokenRow], *, device: str) -> Iterator[tuple[Block, int]]:
        """Yield all rows in blocks, and how many of a block's rows are real."""
        waiting: dict[int, list[TokenRow]] = {}
        for row in rows:
            same = waiting.setdefault(self.width_of(row), [])
            same.append(row)
            if len(same) == self.rows:
                yield self.block(same, device=device), len(same)
                same.clear()
        for same in waiting.values():
            if same:
                yield self.block(same, device=device), len(same)

    def block(self, rows: Sequence[TokenRow], *, device: str) -> Block:
        """Make one block of rows of the same width."""
        width = self.width_of(rows[0])
        return Block.of(rows, width=width, prompt=self.prompt, size=self.rows, device=device)


def random_rows(
    causal: CausalModel, shapes: Shapes, *, targets: Sequence[int], prompts: Sequence[int], seed: int
) -> list[TokenRow]:
    """Return public rows of random tokens, with the given prompt and target lengths."""
    generator = np.random.default_rng(seed)
    return [
        TokenRow(
            generator.integers(causal.vocabulary, size=max(1, min(prompt, shapes.prompt))).tolist(),
            generator.integers(causal.vocabulary, size=max(0, min(target, shapes.target))).astype(np.int32),
        )
        for prompt, target in zip(prompts, targets, strict=True)
    ]


def row_norms(gradients: Any) -> Any:
    """Return the L2 norm of each row of ``Float32[R, P]``, ``Float64[R]``. Always call it with whole blocks: the order
    of a row's summation may depend on the number of rows."""
    return torch.linalg.vector_norm(gradients, dim=1, dtype=torch.float64)


_AWAY = 0.05
_COPIED = 4  # rows: the cost must not grow with the square of a block


def require_separate_gradients(trainable: Trainable, shapes: Shapes) -> None:
    """Test on this device, in every shape, that other rows do not change a row's gradient or its norm by a bit;
    PrivacyError if they do.

    It uses random weights (initial zeros would hide differences) and the threads that training will use.
    Each block of random rows of several lengths is computed once more in reverse order, with half of the rows replaced
    and empty ones at its end. Of the rows that stay, all in small blocks and four in others fill a block with their
    copies, which tests them at every place.
    """
    if shapes.rows == 1:
        return
    generator, start = np.random.default_rng(3), trainable.start()
    trainable.load((start + _AWAY * generator.standard_normal(len(start))).astype(np.float32))
    device, size = trainable.causal.device, shapes.rows

    def stays(width: int) -> bool:
        """Return whether a row's gradients do not depend on the other rows of its block.

        Every second row of two blocks is the same, and the others differ.
        """

        def computed(block: list[TokenRow]) -> tuple[Any, Any]:
            filled = Block.of(block, width=width, prompt=shapes.prompt, size=size, device=device)
            gradients = trainable.gradients(filled)
            return gradients, row_norms(gradients)

        def same(block: list[TokenRow], numbers: Iterable[int], places: Iterable[int]) -> bool:
            found = computed(block)  # row by row below: no more copies of what may be large
            pairs = list(zip(numbers, places, strict=True))
            return all(
                torch.equal(one[at], its[number]) for one, its in zip(found, first, strict=True) for number, at in pairs
            )

        shorter = max((each for each in shapes.widths if each < width), default=0) + 1
        lengths = np.linspace(width, shorter, size).round().astype(int).tolist()
        prompts = np.linspace(1, shapes.prompt, size).round().astype(int).tolist()
        rows = random_rows(trainable.causal, shapes, targets=lengths, prompts=prompts, seed=width)
        others = random_rows(trainable.causal, shapes, targets=lengths[::-1], prompts=prompts, seed=width + 1)
        kept, first = rows[::2], [each[::2].clone() for each in computed(rows)]
        turned = [*others[: (size - len(kept)) // 2], *kept[::-1]]
        copied = range(0, len(kept), -(-len(kept) // _COPIED))
        return same(turned, range(len(kept)), range(len(turned) - 1, len(turned) - 1 - len(kept), -1)) and all(
            same([kept[number]] * size, [number] * size, range(size)) for number in copied
        )

    with worker_pool(device) as pool:
        separate = all(pool.map(stays, shapes.widths))
    trainable.load(start)
    if not separate:
        raise PrivacyError(
            f"The gradients of {trainable.causal.model_id} for one text change with the other texts on this "
            "device, so the influence of one record would have no bound.",
            "Take a rank that is a multiple of 4 (--lora-rank); or set UNDERSTUDY_DTYPE=float32, or "
            "UNDERSTUDY_DEVICE to another device.",
        )


@dataclass(frozen=True)
class Cost:
    """The measured time and memory of a block of rows of medium length on this machine."""

    seconds: float  # per row
    bytes_per_row: int  # that the backward pass keeps


def measure_cost(trainable: Trainable, shapes: Shapes, *, target: int) -> Cost:
    """Time gradients of random public rows with ``target`` targets, on one core as workers compute them; the second of
    two blocks counts."""
    kept = 0

    def count(tensor: Any) -> Any:
        nonlocal kept
        kept += tensor.nbytes
        return tensor

    target = max(1, min(target, shapes.target))
    size = shapes.rows
    rows = random_rows(trainable.causal, shapes, targets=[target] * size, prompts=[shapes.prompt] * size, seed=2)
    block = shapes.block(rows, device=trainable.causal.device)
    with one_core():
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            trainable.gradients(block)
        start = time.perf_counter()
        trainable.gradients(block)
        if trainable.causal.device != "cpu":
            torch.cuda.synchronize()
    return Cost((time.perf_counter() - start) / shapes.rows, kept // shapes.rows)
