"""Private decoding beside plain decoding: tokens per second of the built-in model, by turns in one process.

Ours: a whole step of private prediction (all rows one token on, public candidates, clipped sums, a token
sampled by the system's randomness) of s private rows and the public one, prompts of 160 tokens. Plain: a loop that
decodes the same s sequences with the same model, prompts and a transformers KV cache, takes the likeliest token, and
does nothing else; one thread each on as many batches as ours has in flight. Each turn of ours stands right behind one
of the plain loop.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measuring import by_turns, in_own_process, peak_mb, rounded, say
from benchmarks.results import Row
from understudy.methods.shared.decoding.sums import TokenSums, public_candidates
from understudy.models.catalog import load_causal
from understudy.models.causal import CausalModel
from understudy.models.machine import worker_count, worker_pool
from understudy.models.shared_prefix import Contexts
from understudy.privacy.noise import SystemNoise

SEED = 0
PREFIX, WIDTH = 60, 100
TAU, CLIP = 2.0, {"recenter": 10.0, "difference": 2.0}


def prompts(model: CausalModel, rows: int) -> tuple[list[int], list[list[int]]]:
    """A shared prefix, and rows of random tokens of random lengths, the longest of WIDTH."""
    random = np.random.default_rng(SEED)
    lengths = [WIDTH, *random.integers(WIDTH // 2, WIDTH + 1, rows - 1)]
    return (
        random.integers(100, model.vocabulary, PREFIX).tolist(),
        [random.integers(100, model.vocabulary, length).tolist() for length in lengths],
    )


class Private:
    """s private rows and the public one in our contexts."""

    def __init__(self, model: CausalModel, size: int, steps: int) -> None:
        prefix, rows = prompts(model, size + 1)
        self.size, self.noise = size, SystemNoise()
        self.contexts: Contexts = model.contexts(
            rows, prefix=prefix, width=WIDTH, tokens=steps, rows_at_once=model.rows_at_once(size)
        )

    def run(self, steps: int, clipping: str, count: int | None) -> None:
        clip = CLIP[clipping]
        sums = TokenSums(clipping, clip)  # type: ignore[arg-type]
        margin = 2 * clip / self.size if clipping == "difference" else 0.0
        self.contexts.rewind()
        for _ in range(steps):
            candidates = public_candidates(self.contexts.public_logits(whole=count is None), count=count, margin=margin)
            found = sums.over(self.contexts, candidates)
            index = self.noise.choose(found.utilities(self.size), scale=sums.grid * self.size * TAU / clip)
            self.contexts.step(candidates.token(index))


class Plain:
    """s sequences in one batch, padded on the left, greedy."""

    def __init__(self, model: CausalModel, size: int) -> None:
        import torch
        from transformers import DynamicCache

        prefix, rows = prompts(model, size)
        self.model = model.network
        longest = PREFIX + WIDTH
        padding = [longest - PREFIX - len(row) for row in rows]
        tokens = torch.tensor([[0] * pad + prefix + row for pad, row in zip(padding, rows, strict=True)])
        tokens = tokens.to(model.device)
        self.mask = (torch.arange(longest) >= torch.tensor(padding)[:, None]).long().to(model.device)
        self.position = (self.mask.cumsum(1) - 1).clamp(min=0)
        self.cache = DynamicCache(config=self.model.config)
        with torch.inference_mode():
            self.first = self.forward(tokens, self.position, self.mask)

    def forward(self, tokens: Any, position: Any, mask: Any) -> Any:
        output = self.model(
            input_ids=tokens,
            position_ids=position,
            attention_mask=mask,
            past_key_values=self.cache,
            logits_to_keep=1,
        )
        return output.logits[:, -1].max(-1).indices  # five times as fast as argmax in bfloat16

    def run(self, steps: int) -> None:
        import torch

        with torch.inference_mode():
            tokens, mask, position = self.first, self.mask, self.position[:, -1:]
            for _ in range(steps):
                mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
                position = position + 1
                tokens = self.forward(tokens[:, None], position, mask)
        self.cache.crop(-steps)


def measure(size: int, count: int, *, clipping: str, flight: int, steps: int, repetitions: int) -> Row:
    """Ours beside the plain loop, with ``flight`` batches at once (0: as many as the tool has).

    Args:
        size: private rows (s).
        count: candidates; 0 for the whole vocabulary.
    """
    model = load_causal("builtin")
    most = min(worker_count(model.device), model.batches_in_flight(size + 1, PREFIX + WIDTH + steps))
    flight = min(flight or most, most)
    with worker_pool(model.device) as pool:
        private = [future.result() for future in [pool.submit(Private, model, size, steps) for _ in range(flight)]]
        plain = [future.result() for future in [pool.submit(Plain, model, size) for _ in range(flight)]]
        ours = [partial(each.run, steps, clipping, count or None) for each in private]
        found = by_turns(
            partial(_together, ours, pool),
            partial(_together, [partial(each.run, steps) for each in plain], pool),
            repetitions=repetitions,
            device=model.device,
        )
    tokens = flight * size * steps
    return {
        "rows": size,
        "candidates": count or "all",
        "clipping": clipping,
        "batches_in_flight": flight,
        **found,
        "floor": "plain greedy decoding of as many sequences",
        "processor_ms_per_row_and_token": rounded(1000 * (found["seconds"] or 0) / tokens),
        "peak_mb": rounded(peak_mb()),
    }


def _together(works: Sequence[Callable[[], None]], pool: ThreadPoolExecutor) -> None:
    for future in [pool.submit(work) for work in works]:
        future.result()


def run(options: Namespace) -> Iterator[Row]:
    for size in options.sizes:
        for count in options.candidates:
            say(f"{size} rows, {count or 'all'} candidates")
            yield in_own_process(
                measure,
                size,
                count,
                clipping=options.clipping,
                flight=options.flight,
                steps=options.steps,
                repetitions=options.repetitions,
            )


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--candidates", type=int, nargs="+", default=[20, 0], help="0 for the whole vocabulary")
    parser.add_argument("--clipping", choices=CLIP, default="difference")
    parser.add_argument("--flight", type=int, default=0, help="batches at once; 0 for as many as the tool has")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
