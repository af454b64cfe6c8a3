"""Trains the writer: low-rank adapters of the built-in model, on pairs of what is asked and a text.

    python -m training --mirrors FOLDER --out FOLDER [--judges FOLDER]
    python -m training --mirrors FOLDER --out FOLDER --start WRITER --round 2 --steps 120 --batch 48 --rate 6e-4

The folder of mirrors holds clones of the sources (missing ones are cloned). Pairs and order follow from the seed; state
is kept every 50 steps, and the same command goes on from there. The last step writes ``writer.safetensors``. The second
command goes on from adapters that were made before, with the sources that came in later.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from training.pairs import Pair, build
from understudy.models.builtin import CHAT, builtin_path
from understudy.models.machine import best_device
from understudy.models.types import Message
from understudy.models.weights import load_weights, render
from understudy.models.writer import LINEAR, RANK, SCALE, quantised, unquantised

_WARM, _DECAY = 40, 0.5  # steps up to the learning rate (a tenth of few), and the part of all steps on the way down
_POOL = 16  # batches sorted by length together
_ROWS = 16  # that a CPU takes at once; more need gigabytes each
_KEPT_EVERY = 50

Example = tuple[NDArray[np.uint16], int]
"""A pair in tokens, and how many of them are the prompt's."""


class Adapted(torch.nn.Module):
    """A frozen linear layer with its adapter: y = W x + scale B A x."""

    def __init__(self, linear: Any) -> None:
        super().__init__()
        self.linear = linear
        self.down = torch.nn.Parameter(torch.empty(RANK, linear.in_features))
        self.up = torch.nn.Parameter(torch.zeros(linear.out_features, RANK))
        torch.nn.init.kaiming_uniform_(self.down, a=5**0.5)

    def forward(self, rows: Any) -> Any:
        return self.linear(rows) + SCALE * ((rows @ self.down.T) @ self.up.T)


def adapt(model: Any) -> dict[str, Any]:
    """Put adapters into the model; their matrices by name."""
    model.requires_grad_(False)
    matrices: dict[str, Any] = {}
    for number, layer in enumerate(model.model.layers):
        for name in LINEAR:
            parent, _, last = name.rpartition(".")
            holder = layer.get_submodule(parent)
            adapted = Adapted(getattr(holder, last)).to(model.device)
            setattr(holder, last, adapted)
            matrices[f"{number}.{name}.down"], matrices[f"{number}.{name}.up"] = adapted.down, adapted.up
    return matrices


def tokens(pairs: Sequence[Pair], tokenizer: Any) -> list[Example]:
    """Of each pair the tokens, and how many of them are the prompt's."""
    asked = [render(tokenizer, [Message("system", pair.asked)]) for pair in pairs]
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    prompts = tokenizer(asked, add_special_tokens=False)["input_ids"]
    answers = tokenizer([pair.text for pair in pairs], add_special_tokens=False)["input_ids"]
    rows = zip(prompts, answers, strict=True)
    return [(np.array([*prompt, *answer, end], dtype=np.uint16), len(prompt)) for prompt, answer in rows]


def save_examples(path: Path, **parts: Sequence[Example]) -> None:
    """Keep lists of examples in one file."""
    arrays = {name: np.concatenate([row for row, _ in part]) for name, part in parts.items()}
    sizes = {f"{name} sizes": np.array([(len(row), asked) for row, asked in part]) for name, part in parts.items()}
    np.savez_compressed(path, **arrays, **sizes)


def load_examples(path: Path, name: str) -> list[Example]:
    """One of the lists that were kept."""
    with np.load(path) as kept:
        sizes, flat = kept[f"{name} sizes"], kept[name]
    return list(zip(np.split(flat, np.cumsum(sizes[:-1, 0])), sizes[:, 1].tolist(), strict=True))


def order(examples: Sequence[Example], *, steps: int, batch: int) -> list[list[int]]:
    """Batches of examples of like lengths, in an order of no meaning; the pairs are in one already."""
    pools = [range(at, min(at + batch * _POOL, len(examples))) for at in range(0, len(examples), batch * _POOL)]
    batches: list[list[int]] = []
    generator = torch.Generator().manual_seed(5)
    while len(batches) < steps:
        for pool in pools:
            by_length = sorted(pool, key=lambda place: len(examples[place][0]))
            made = [by_length[at : at + batch] for at in range(0, len(by_length), batch)]
            batches += [made[place] for place in torch.randperm(len(made), generator=generator).tolist()]
    return batches[:steps]


def loss_of(model: Any, batch: Sequence[Example]) -> Any:
    """Sum of the cross entropies of the texts' tokens; rows are padded behind their end, where nothing is looked at.

    In bfloat16 where the machine has it, the adapters' own numbers in float32.
    """
    width = max(len(row) for row, _ in batch)
    rows = torch.zeros(len(batch), width, dtype=torch.long)
    wanted = torch.zeros(len(batch), width, dtype=torch.bool)
    for number, (row, asked) in enumerate(batch):
        rows[number, : len(row)] = torch.from_numpy(row.astype(np.int64))
        wanted[number, asked - 1 : len(row) - 1] = True
    device = model.device
    rows, wanted = rows.to(device), wanted[:, :-1].to(device)
    fast = device.type == "cuda" or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    with torch.autocast(device.type, torch.bfloat16, enabled=fast):
        states = model.model(input_ids=rows[:, :-1], use_cache=False).last_hidden_state
        logits = model.lm_head(states[wanted])
    return torch.nn.functional.cross_entropy(logits.float(), rows[:, 1:][wanted], reduction="sum")


def parts(batch: Sequence[Example], device: Any) -> list[Sequence[Example]]:
    """The batch in as many rows as the machine takes at once."""
    rows = len(batch) if device.type == "cuda" else _ROWS
    return [batch[at : at + rows] for at in range(0, len(batch), rows)]


def weight_of(batch: Sequence[Example]) -> int:
    """How many tokens of the batch are a text's."""
    return sum(len(row) - asked for row, asked in batch)


def held_out_loss(model: Any, checks: Sequence[Example]) -> float:
    """Mean over the tokens of pairs of pieces that were not trained on."""
    by_length = sorted(checks, key=lambda check: len(check[0]))
    with torch.no_grad():
        return sum(float(loss_of(model, part)) for part in parts(by_length, model.device)) / weight_of(checks)


def main() -> None:
    """Train, or go on with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirrors", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--judges", type=Path)
    parser.add_argument("--start", type=Path, help="adapters to go on from")
    parser.add_argument("--round", type=int, default=1, help="the sources added last, and a part of the earlier ones")
    parser.add_argument("--steps", type=int, default=1250)
    parser.add_argument("--batch", type=int, default=256, help="pairs of a step")
    parser.add_argument("--rate", type=float, default=1.5e-3, help="the highest learning rate")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    kept, log = given.out / "state.pt", given.out / "log.jsonl"
    torch.manual_seed(given.seed)
    model, tokenizer, _ = load_weights(builtin_path(CHAT), name="builtin", device=best_device(), dtype="float32")
    model.set_attn_implementation("sdpa")
    cached = given.out / "pairs.npz"
    if not cached.exists():
        pairs, held = build(given.mirrors, seed=given.seed, judges=given.judges, added=given.round)
        save_examples(cached, pairs=tokens(pairs, tokenizer), held=tokens(held, tokenizer))
    examples, checks = load_examples(cached, "pairs"), load_examples(cached, "held")
    matrices = adapt(model)
    if given.start is not None:
        with torch.no_grad():
            for name, matrix in unquantised(load_file(given.start)).items():
                matrices[name].copy_(matrix)
    optimiser = torch.optim.AdamW(matrices.values(), lr=given.rate, betas=(0.9, 0.98), weight_decay=0.01)
    step = 0
    if kept.exists():
        state = torch.load(kept, map_location=model.device)
        step = state["step"]
        optimiser.load_state_dict(state["optimiser"])
        with torch.no_grad():
            for name, matrix in matrices.items():
                matrix.copy_(state["matrices"][name])
    started, seen = time.perf_counter(), 0
    warm = min(_WARM, given.steps / 10)
    for number, batch in enumerate(order(examples, steps=given.steps, batch=given.batch)):
        if number < step:
            continue
        left = (given.steps - number) / given.steps
        rate = given.rate * min(1.0, (number + 1) / warm, max(left / _DECAY, 0.02))
        for group in optimiser.param_groups:
            group["lr"] = rate
        chosen = [examples[place] for place in batch]
        optimiser.zero_grad()
        mean = 0.0
        for part in parts(chosen, model.device):
            loss = loss_of(model, part) / weight_of(chosen)
            loss.backward()
            mean += loss.item()
        torch.nn.utils.clip_grad_norm_(matrices.values(), 1.0)
        optimiser.step()
        seen += sum(len(examples[place][0]) for place in batch)
        if (number + 1) % 10 == 0:
            spent = time.perf_counter() - started
            said = {"step": number + 1, "loss": mean, "tokens": seen, "s": spent}
            if (number + 1) % _KEPT_EVERY == 0:
                said["held out"] = held_out_loss(model, checks)
            with log.open("a") as file:
                file.write(json.dumps(said) + "\n")
        if (number + 1) % _KEPT_EVERY == 0 or number + 1 == given.steps:
            state = {"step": number + 1, "matrices": matrices, "optimiser": optimiser.state_dict()}
            torch.save(state, kept.with_suffix(".part"))
            kept.with_suffix(".part").replace(kept)
            save_file(quantised(matrices), given.out / "writer.safetensors")
    print(
        f"held-out loss {held_out_loss(model, checks):.3f}, {len(load_file(given.out / 'writer.safetensors'))} tensors"
    )


if __name__ == "__main__":
    main()
