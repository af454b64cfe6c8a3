"""Teach the writer what readers prefer: of two of its own texts around one seed, the sensible one.

Direct preference optimisation (Rafailov et al. 2023, equation 7) on mean log-probabilities, so that short texts are not
preferred for their length, with a part of the likelihood of the sensible text beside it. The new adapters are added to
those of a trained writer.

    python -m training.prefer WRITER.safetensors OUT.safetensors
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from training.__main__ import Example, adapt, tokens
from training.judge import Judged, load_judged
from training.pairs import Pair
from understudy.models.builtin import CHAT, builtin_path
from understudy.models.weights import load_weights
from understudy.models.writer import KEPT, merge, quantised

_FIRST = 12  # layer with adapters: what makes sense is not decided in the first ones
_BETA, _PLAIN = 4.0, 0.2  # of the preference, and the weight of the likelihood beside it
_PEAK, _WARM, _DECAY = 2e-4, 10, 0.6  # learning rate, steps up to it, and the part of all steps on the way down
_BATCH, _EACH = 16, 2  # pairs of a step, and pairs of a seed


def preferences(judged: Sequence[Judged], draw: random.Random) -> list[tuple[Judged, Judged]]:
    """Return pairs of a sensible and a senseless text of the same seed, a few of each."""
    pairs: list[tuple[Judged, Judged]] = []
    for _, answers in groupby(judged, key=lambda each: each.seed):
        texts = list(answers)
        own = list(product((each for each in texts if each.sensible), (each for each in texts if not each.sensible)))
        pairs += draw.sample(own, min(_EACH, len(own)))
    draw.shuffle(pairs)
    return pairs


def log_probabilities(model: Any, batch: Sequence[Example]) -> Any:
    """Return the mean log-probability of each text's tokens, ``Float32[B]``."""
    rows = torch.zeros(len(batch), max(len(row) for row, _ in batch), dtype=torch.long)
    wanted = torch.zeros(rows.shape, dtype=torch.bool)
    for number, (row, asked) in enumerate(batch):
        rows[number, : len(row)] = torch.from_numpy(row.astype(np.int64))
        wanted[number, asked - 1 : len(row) - 1] = True
    states = model.model(input_ids=rows[:, :-1], use_cache=False).last_hidden_state
    wanted = wanted[:, :-1]
    losses = torch.nn.functional.cross_entropy(model.lm_head(states[wanted]), rows[:, 1:][wanted], reduction="none")
    owner = wanted.nonzero()[:, 0]
    return -torch.zeros(len(batch)).index_add(0, owner, losses) / wanted.sum(1)


def joined(trained: dict[str, Any], matrices: dict[str, Any]) -> dict[str, Any]:
    """Return the adapters of a trained writer with further ones, which count whole, behind them."""
    both = {
        name: trained[name].float() * trained[f"{name}.scales"][:, None]
        for name in trained
        if name + ".scales" in trained
    }
    for name in (each.removesuffix(".up") for each in matrices if each.endswith(".up")):
        up, down = matrices[f"{name}.up"].detach() / KEPT, matrices[f"{name}.down"].detach()
        both[f"{name}.up"] = torch.cat([both[f"{name}.up"], up], 1)
        both[f"{name}.down"] = torch.cat([both[f"{name}.down"], down])
    for name in (each.removesuffix(".up") for each in both if each.endswith(".up")):
        size = both[f"{name}.up"].norm(dim=0)  # to the rows of the other matrix, each of which has a scale of its own
        both[f"{name}.up"] = both[f"{name}.up"] / size
        both[f"{name}.down"] = both[f"{name}.down"] * size[:, None]
    return quantised(both)


def main() -> None:
    """Train on all pairs once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("writer", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pairs", type=int)
    given = parser.parse_args()
    torch.manual_seed(1)
    draw = random.Random(1)
    model, tokenizer, _ = load_weights(builtin_path(CHAT), name="builtin", device="cpu", dtype="float32")
    merge(model)
    model.set_attn_implementation("sdpa")
    matrices = adapt(model, _FIRST)
    preferred = preferences(load_judged(), draw)[: given.pairs]
    good, bad = (tokens([Pair(two[side].prompt, two[side].text) for two in preferred], tokenizer) for side in (0, 1))
    order = sorted(range(len(preferred)), key=lambda place: len(good[place][0]) + len(bad[place][0]))
    batches = [order[at : at + _BATCH] for at in range(0, len(order), _BATCH)]
    draw.shuffle(batches)
    optimiser = torch.optim.AdamW(matrices.values(), lr=_PEAK, betas=(0.9, 0.98), weight_decay=0.01)
    started, seen = time.perf_counter(), []
    with torch.no_grad():  # the adapters are zero yet: this is the reference
        references = [
            log_probabilities(model, [*(good[at] for at in batch), *(bad[at] for at in batch)]) for batch in batches
        ]
    for number, (batch, reference) in enumerate(zip(batches, references, strict=True)):
        left = (len(batches) - number) / len(batches)
        for group in optimiser.param_groups:
            group["lr"] = _PEAK * min(1.0, (number + 1) / _WARM, max(left / _DECAY, 0.05))
        found = log_probabilities(model, [*(good[at] for at in batch), *(bad[at] for at in batch)])
        better, worse = (found - reference).chunk(2)
        plain = found.chunk(2)[0]
        loss = -torch.nn.functional.logsigmoid(_BETA * (better - worse)).mean() - _PLAIN * plain.mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(matrices.values(), 1.0)
        optimiser.step()
        seen.append([loss.item(), (better > worse).float().mean().item(), better.mean().item(), worse.mean().item()])
        if (number + 1) % 10 == 0:
            loss_now, right, up, down = np.mean(seen[-10:], 0)
            spent = time.perf_counter() - started
            print(
                f"{number + 1}/{len(batches)} loss {loss_now:.3f} right {right:.2f} {up:+.3f} {down:+.3f} {spent:.0f}s",
                flush=True,
            )
            save_file(joined(load_file(given.writer), matrices), given.out)
    save_file(joined(load_file(given.writer), matrices), given.out)


if __name__ == "__main__":
    main()
