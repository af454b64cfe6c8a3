"""Clipped sums of per-example LoRA gradients: ours and four other ways, each beside a plain step.

A plain step is the gradient of the same block's mean loss: one adapter for all rows, one backward pass, nothing
clipped. Each turn of a way stands right behind a plain step. One core, as a release takes for a block.

ours          every row has the matrices as leaves of its own
hooks         products of stored inputs and output gradients per row: Opacus, if it can be imported, else the same here
vmap          torch.func: vmap(grad(...)) with the adapter as an argument
ghost         norms by Gram matrices, then a backward pass with clip factors as loss weights (Li et al. 2022)
book-keeping  norms by Gram matrices, then the sum from stored inputs and output gradients (Bu et al. 2023)
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch

from benchmarks.measuring import by_turns, in_own_process, rounded, say
from benchmarks.results import Row
from understudy.methods.shared.queries.gradients import clipped_sum
from understudy.models.catalog import load_causal
from understudy.models.causal import CausalModel
from understudy.models.lora import ALL, SCALE, UP
from understudy.models.training import Block, LoRA, Shapes, TokenRow, random_rows, row_losses
from understudy.privacy.gradients import DPSGD

SEED = 0
RANK, ROWS, PROMPT, TARGET = 8, 8, 16, 48
NAMES = ("ours", "hooks", "vmap", "ghost", "book-keeping")
MB = 2**20


class Linears(torch.nn.ModuleList):  # type: ignore[misc]
    """The matrices of adapters as linear layers, applied while ``on``; ``learning`` are those that learn."""

    def __init__(self, lora: LoRA, matrices: Sequence[Any], learning: Sequence[int]) -> None:
        super().__init__()
        self.on = False
        for number, matrix in enumerate(matrices):
            linear = torch.nn.Linear(*reversed(matrix.shape), bias=False, device=matrix.device, dtype=matrix.dtype)
            linear.weight.data.copy_(matrix)
            self.append(linear.requires_grad_(number in learning))
        self.learning = [self[number] for number in learning]
        for number, site in enumerate(lora.adapters.sites):
            site.module.register_forward_hook(partial(self._adapt, self[2 * number], self[2 * number + 1]))

    def _adapt(self, down: Any, up: Any, _module: Any, given: tuple[Any, ...], output: Any) -> Any:
        return output + SCALE * up(down(given[0])) if self.on else None


class Ways:
    """Each of NAMES gives the sum over a block's rows of gradients clipped to ``clip``, ``Float32[P]``.

    Attributes:
        alone: the gradient of each row, computed with no other beside it: ``Float32[R, P]``.
        held: bytes that the last one held for its sum, once the backward pass was done.
    """

    def __init__(self, model: CausalModel) -> None:
        self.lora = LoRA(model, rank=RANK, targets=[ALL], layers=None)
        generator = torch.Generator().manual_seed(SEED)
        named = self.lora.named(torch.randn(self.lora.size, generator=generator).mul(0.02).numpy())
        self.lora.load(self.lora.joined(named))
        self.matrices = self.lora.adapters.tensors(named)
        self.learning = [number for number, name in enumerate(named) if UP in name]
        shapes = Shapes(PROMPT, TARGET, ROWS)
        rows = random_rows(model, shapes, targets=[TARGET] * ROWS, prompts=[shapes.prompt] * ROWS, seed=SEED)
        rows = [TokenRow(row.prompt, row.target[number % 8 :]) for number, row in enumerate(rows)]
        self.block = shapes.block(rows, device=model.device)
        self.linears = Linears(self.lora, self.matrices, self.learning)
        for linear in self.linears.learning:
            linear.register_forward_hook(self._watch)
        self._seen: Callable[[Any, Any, Any], None] | None = None
        try:
            from opacus import GradSampleModule

            linears = Linears(self.lora, self.matrices, self.learning)
            self.opacus: Any = GradSampleModule(linears, loss_reduction="sum")
        except ImportError:
            self.opacus = None
        b = self.block
        blocks = [Block(b.tokens[[row]], b.first[[row]], b.counts[[row]], b.width) for row in range(ROWS)]
        self.alone = torch.stack([self._mean_gradient(block) for block in blocks])
        self.held, self.clip = 0, float(self.alone.norm(dim=1).median())

    def run(self, name: str) -> Any:
        return getattr(self, name.replace("-", ""))()

    def _losses(self, leaves: Sequence[Any], block: Block) -> Any:
        """Of each row, with ``leaves`` for the matrices that learn."""
        matrices = list(self.matrices)
        for number, leaf in zip(self.learning, leaves, strict=True):
            matrices[number] = leaf
        with self.lora.adapters.active(matrices):
            return row_losses(self.lora.causal, self.lora.network, block)

    def _losses_through(self, linears: Linears) -> Any:
        linears.on = True
        losses = row_losses(self.lora.causal, self.lora.network, self.block)
        linears.on = False
        return losses

    def _factors(self, squares: Any) -> Any:
        return self.clip / squares.sqrt().clamp(min=self.clip)

    def _clipped(self, parts: Sequence[Any]) -> Any:
        """The sum, from gradients per row."""
        self.held = sum(part.nbytes for part in parts)
        factors = self._factors(sum(part.flatten(1).float().square().sum(1) for part in parts))
        return flat([torch.einsum("n,n...->...", factors.to(part), part) for part in parts])

    def _mean_gradient(self, block: Block) -> Any:
        leaves = [self.matrices[number].detach().requires_grad_() for number in self.learning]
        return flat(torch.autograd.grad(self._losses(leaves, block).mean(), leaves))

    def loop(self) -> Any:
        """From gradients that were computed row by row."""
        return self._clipped([self.alone])

    def plain(self) -> Any:
        return self._mean_gradient(self.block)

    def ours(self) -> Any:
        gradients = self.lora.gradients(self.block)
        self.held = gradients.nbytes
        total = clipped_sum(gradients, len(gradients), clipping_norm=self.clip, grid=DPSGD.grid) / DPSGD.grid
        return torch.from_numpy(total * self.clip)

    def hooks(self) -> Any:
        if self.opacus is None:
            kept: dict[Any, Any] = {}
            self._watched(lambda linear, *pair: kept.update({linear: pair}), again=False)
            pairs = [kept[linear] for linear in self.linears.learning]
            return self._clipped([torch.einsum("nti,ntj->nij", gradient, given) for given, gradient in pairs])
        linears = self.opacus._module
        self._losses_through(linears).sum().backward()
        total = self._clipped([linear.weight.grad_sample for linear in linears.learning])
        for linear in linears.learning:
            linear.weight.grad = linear.weight.grad_sample = None
        return total

    def vmap(self) -> Any:
        def loss(leaves: Any, tokens: Any, first: Any, count: Any) -> Any:
            return self._losses(leaves, Block(tokens[None], first[None], count[None], self.block.width))[0]

        leaves = [self.matrices[number] for number in self.learning]
        gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0, 0), randomness="error")
        return self._clipped(gradients(leaves, self.block.tokens, self.block.first, self.block.counts))

    def ghost(self) -> Any:
        squares: list[Any] = []
        losses = self._watched(lambda _linear, *pair: squares.append(squared_norms(*pair)), again=True)
        self.held, factors = 0, self._factors(sum(squares))
        return flat(torch.autograd.grad((losses * factors).sum(), [each.weight for each in self.linears.learning]))

    def bookkeeping(self) -> Any:
        kept: dict[Any, Any] = {}
        self._watched(lambda linear, *pair: kept.update({linear: (*pair, squared_norms(*pair))}), again=False)
        factors = self._factors(sum(squares for _, _, squares in kept.values()))[:, None, None]
        self.held = sum(given.nbytes + gradient.nbytes for given, gradient, _ in kept.values())
        found = [kept[linear] for linear in self.linears.learning]
        return flat([(factors.to(g) * g).flatten(0, 1).T @ given.flatten(0, 1) for given, g, _ in found])

    def _watched(self, seen: Callable[[Any, Any, Any], None], *, again: bool) -> Any:
        """Losses; ``seen`` got each layer's input and output gradient in a backward pass without matrices' gradients.

        Args:
            again: whether a second backward pass follows.
        """
        self._seen, self._first = seen, []
        losses = self._losses_through(self.linears)
        torch.autograd.grad(losses.sum(), self._first, retain_graph=again)
        self._seen = None
        return losses

    def _watch(self, linear: Any, given: tuple[Any, ...], output: Any) -> None:
        if self._seen is not None:
            output.register_hook(lambda gradient: self._seen and self._seen(linear, given[0].detach(), gradient))
            if not given[0].requires_grad:  # all other matrices that learn lie between these and the losses
                self._first.append(output)


def squared_norms(given: Any, gradient: Any) -> Any:
    """Of each row's gradient of a matrix, by the Gram matrices of its tokens."""
    grams = (given @ given.transpose(1, 2)).float() * (gradient @ gradient.transpose(1, 2)).float()
    return grams.sum((1, 2)).clamp(min=0)


def flat(parts: Sequence[Any]) -> Any:
    return torch.cat([part.flatten() for part in parts]).float()


def kept_bytes(ways: Ways, name: str) -> tuple[int, Any]:
    """What the graph keeps for the backward pass beyond the model, each storage once; and what ``name`` gives."""
    known = {each.untyped_storage().data_ptr() for each in ways.lora.network.parameters()}
    kept: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    # torch.func takes no such hooks
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor) if name != "vmap" else nullcontext():
        found = ways.run(name)
    return sum(storage.nbytes() for place, storage in kept.items() if place not in known), found


def measure(name: str, *, model: str, device: str, dtype: str | None, repetitions: int) -> Row:
    """One way beside a plain step, and what either keeps in memory."""
    torch.set_num_threads(1)
    ways = Ways(load_causal(model, device=device, dtype=dtype))
    plain, true = kept_bytes(ways, "plain")[0], ways.loop()
    kept, found = kept_bytes(ways, name)

    return {
        "way": name,
        "numbers": ways.lora.size,
        **by_turns(partial(ways.run, name), partial(ways.run, "plain"), repetitions=repetitions, device=device),
        "floor": "a plain step: one adapter, nothing clipped",
        "floor_kept_mb": rounded(plain / MB),
        "kept_more_mb": rounded((kept - plain) / MB) if kept else None,
        "held_mb": rounded(ways.held / MB),
        "error": rounded(float((found.cpu() - true.cpu()).norm() / true.norm())),
        "rows": ROWS,
    }


def run(options: Namespace) -> Iterator[Row]:
    for name in options.ways:
        say(name)
        yield in_own_process(
            measure,
            name,
            model=options.model,
            device=options.device,
            dtype=options.dtype,
            repetitions=options.repetitions,
        )


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--ways", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--model", default="builtin")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], help="default: as a release takes it")
    parser.add_argument("--repetitions", type=int, default=3)
