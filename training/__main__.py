"""Trains the writer: low-rank adapters of the built-in model, on pairs of what is asked and a text.

    python -m training --mirrors FOLDER --out FOLDER [--judges FOLDER]

The folder of mirrors holds clones of the sources (missing ones are cloned). Pairs and order follow from the seed; state
is kept every hundred steps, and the same command goes on from there. The last step writes ``writer.safetensors``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from training.pairs import Pair, build
from understudy.models.builtin import CHAT, builtin_path
from understudy.models.types import Message
from understudy.models.weights import load_weights, render
from understudy.models.writer import FIRST_LAYER, LINEAR, RANK, SCALE, quantised

_PEAK, _WARM, _DECAY = 1.5e-3, 40, 0.5  # learning rate, steps up to it, and the part of all steps on the way down
_BATCH, _POOL = 16, 64  # pairs of a step; batches sorted by length together
_KEPT_EVERY = 100


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
    """Put adapters into the model's upper layers; their matrices by name."""
    model.requires_grad_(False)
    matrices: dict[str, Any] = {}
    for number, layer in enumerate(model.model.layers):
        if number >= FIRST_LAYER:
            for name in LINEAR:
                parent, _, last = name.rpartition(".")
                holder = layer.get_submodule(parent)
                adapted = Adapted(getattr(holder, last))
                setattr(holder, last, adapted)
                matrices[f"{number}.{name}.down"], matrices[f"{number}.{name}.up"] = adapted.down, adapted.up
    return matrices


def tokens(pairs: Sequence[Pair], tokenizer: Any, end: int) -> list[tuple[list[int], int]]:
    """Of each pair the tokens, and how many of them are the prompt's."""
    made = []
    for pair in pairs:
        asked = tokenizer(render(tokenizer, [Message("system", pair.asked)]), add_special_tokens=False)["input_ids"]
        answer = tokenizer(pair.text, add_special_tokens=False)["input_ids"]
        made.append((asked + answer + [end], len(asked)))
    return made


def order(examples: Sequence[tuple[list[int], int]], *, steps: int) -> list[list[int]]:
    """Batches of examples of like lengths, in an order of no meaning; the pairs are in one already."""
    pools = [range(at, min(at + _BATCH * _POOL, len(examples))) for at in range(0, len(examples), _BATCH * _POOL)]
    batches: list[list[int]] = []
    generator = torch.Generator().manual_seed(5)
    while len(batches) < steps:
        for pool in pools:
            by_length = sorted(pool, key=lambda place: len(examples[place][0]))
            made = [by_length[at : at + _BATCH] for at in range(0, len(by_length), _BATCH)]
            batches += [made[place] for place in torch.randperm(len(made), generator=generator).tolist()]
    return batches[:steps]


def loss_of(model: Any, batch: Sequence[tuple[list[int], int]]) -> Any:
    """Mean cross entropy of the texts' tokens; rows are padded behind their end, where nothing is looked at."""
    width = max(len(row) for row, _ in batch)
    rows = torch.zeros(len(batch), width, dtype=torch.long)
    wanted = torch.zeros(len(batch), width, dtype=torch.bool)
    for number, (row, asked) in enumerate(batch):
        rows[number, : len(row)] = torch.tensor(row)
        wanted[number, asked - 1 : len(row) - 1] = True
    states = model.model(input_ids=rows[:, :-1], use_cache=False).last_hidden_state
    wanted = wanted[:, :-1]
    return torch.nn.functional.cross_entropy(model.lm_head(states[wanted]), rows[:, 1:][wanted])


def main() -> None:
    """Train, or go on with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirrors", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--judges", type=Path)
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    kept, log = given.out / "state.pt", given.out / "log.jsonl"
    torch.manual_seed(given.seed)
    model, tokenizer, _ = load_weights(builtin_path(CHAT), name="builtin", device="cpu", dtype="float32")
    model.set_attn_implementation("sdpa")
    cached = given.out / "pairs.json"
    if not cached.exists():
        pairs = build(given.mirrors, seed=given.seed, judges=given.judges)
        cached.write_text(json.dumps([[pair.asked, pair.text] for pair in pairs]), "utf-8")
    pairs = [Pair(*each) for each in json.loads(cached.read_text("utf-8"))]
    held, pairs = pairs[:320], pairs[320:]
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    examples, checks = tokens(pairs, tokenizer, end), tokens(held, tokenizer, end)
    matrices = adapt(model)
    optimiser = torch.optim.AdamW(matrices.values(), lr=_PEAK, betas=(0.9, 0.98), weight_decay=0.01)
    step = 0
    if kept.exists():
        state = torch.load(kept)
        step = state["step"]
        optimiser.load_state_dict(state["optimiser"])
        with torch.no_grad():
            for name, matrix in matrices.items():
                matrix.copy_(state["matrices"][name])
    started, seen = time.perf_counter(), 0
    for number, batch in enumerate(order(examples, steps=given.steps)):
        if number < step:
            continue
        left = (given.steps - number) / given.steps
        rate = _PEAK * min(1.0, (number + 1) / _WARM, max(left / _DECAY, 0.02))
        for group in optimiser.param_groups:
            group["lr"] = rate
        loss = loss_of(model, [examples[place] for place in batch])
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(matrices.values(), 1.0)
        optimiser.step()
        seen += sum(len(examples[place][0]) for place in batch)
        if (number + 1) % 10 == 0:
            said = {"step": number + 1, "loss": float(loss), "tokens": seen, "s": time.perf_counter() - started}
            with log.open("a") as file:
                file.write(json.dumps(said) + "\n")
        if (number + 1) % _KEPT_EVERY == 0 or number + 1 == given.steps:
            state = {"step": number + 1, "matrices": matrices, "optimiser": optimiser.state_dict()}
            torch.save(state, kept.with_suffix(".part"))
            kept.with_suffix(".part").replace(kept)
            save_file(quantised(matrices), given.out / "writer.safetensors")
    with torch.no_grad():
        losses = [float(loss_of(model, checks[at : at + _BATCH])) for at in range(0, len(checks), _BATCH)]
    print(f"held-out loss {sum(losses) / len(losses):.3f}, {len(load_file(given.out / 'writer.safetensors'))} tensors")


if __name__ == "__main__":
    main()
