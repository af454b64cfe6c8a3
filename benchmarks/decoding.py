"""Private decoding beside plain decoding: generated tokens a second, the built-in model, by turns in one process.

Ours: a whole step of private prediction (all rows one token on, public candidates, clipped sums, distance, draw from
the system's randomness) of s private rows and the public one, prompts of 160 tokens. Plain: a loop that decodes the
same s sequences with the same model, prompts and a transformers KV cache, takes the likeliest token, and does nothing
else: with all threads on one batch, or one thread each on as many batches as ours has in flight, whichever is faster.
The last two columns set each turn of ours against one of the latter right before it: by the clock, and by processor
time, which other work on the machine disturbs least.

python benchmarks/decoding.py [--sizes 16 64 256] [--repetitions 3] [--steps 4]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from understudy.decoding.sums import TokenSums, public_candidates
from understudy.models.catalog import load_causal
from understudy.models.causal import CausalModel
from understudy.models.contexts import Contexts
from understudy.models.machine import worker_count
from understudy.privacy.noise import SystemNoise

PREFIX, WIDTH = 60, 100
TAU, CLIP = 2.0, {"recenter": 10.0, "difference": 2.0}
DISTANCE_GRID = 2**18


def prompts(model: CausalModel, rows: int) -> tuple[list[int], list[list[int]]]:
    """A shared prefix, and rows of random tokens of random lengths, the longest of WIDTH."""
    random = np.random.default_rng(0)
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

    def run(self, steps: int, clipping: str, count: int | None, distance: bool) -> None:
        clip = CLIP[clipping]
        sums = TokenSums(clipping, clip, distance_grid=DISTANCE_GRID if distance else None)  # type: ignore[arg-type]
        margin = 2 * clip / self.size if clipping == "difference" else 0.0
        self.contexts.rewind()
        for _ in range(steps):
            candidates = public_candidates(self.contexts.public_logits(whole=count is None), count=count, margin=margin)
            found = sums.over(self.contexts, candidates)
            if distance:
                found.distance(self.size)
            index = self.noise.choose(found.utilities(self.size), scale=sums.grid * self.size * TAU / clip)
            self.contexts.step(candidates.token(index))


class Plain:
    """s sequences in one batch, padded on the left, greedy."""

    def __init__(self, model: CausalModel, size: int) -> None:
        prefix, rows = prompts(model, size)
        self.model = model.network
        longest = PREFIX + WIDTH
        padding = [longest - PREFIX - len(row) for row in rows]
        tokens = torch.tensor([[0] * pad + prefix + row for pad, row in zip(padding, rows, strict=True)])
        self.mask = (torch.arange(longest) >= torch.tensor(padding)[:, None]).long()
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
        with torch.inference_mode():
            tokens, mask, position = self.first, self.mask, self.position[:, -1:]
            for _ in range(steps):
                mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
                position = position + 1
                tokens = self.forward(tokens[:, None], position, mask)
        self.cache.crop(-steps)


def seconds(works: Sequence[Callable[[], None]], pool: ThreadPoolExecutor) -> NDArray[np.float64]:
    """By the clock, and of processor time, until all have ended side by side in the pool."""
    started = np.array([time.perf_counter(), time.process_time()])
    for future in [pool.submit(work) for work in works]:
        future.result()
    taken: NDArray[np.float64] = np.array([time.perf_counter(), time.process_time()]) - started
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--candidates", type=int, nargs="+", default=[1024, 0], help="0 for the whole vocabulary")
    arguments = parser.parse_args()
    model, steps = load_causal("builtin"), arguments.steps
    threads = worker_count(model.device)
    one = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(threads,))
    many = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    names = "s|R|batches in flight|candidates|clip|distance|ours, tokens/s|plain|ratio|beside, by clock|by CPU time"
    print("| " + " | ".join(names.split("|")) + " |")
    print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    ways = [(count, clip, far) for count in arguments.candidates for clip in CLIP for far in (False, True)]
    for size in arguments.sizes:
        most = min(threads, model.batches_in_flight(size + 1, PREFIX + WIDTH + steps))
        private = [future.result() for future in [many.submit(Private, model, size, steps) for _ in range(most)]]
        plain = [future.result() for future in [many.submit(Plain, model, size) for _ in range(most)]]
        for flight in sorted({1, most}, reverse=True):
            times: dict[Any, list[NDArray[np.float64]]] = {name: [] for name in (*ways, "threads", "batches")}
            pairs: dict[Any, list[NDArray[np.float64]]] = {name: [] for name in ways}
            for repetition in range(arguments.repetitions + 1):
                for name, taken in times.items():
                    if name == "threads":  # one batch, all threads: as often as there are batches
                        took = seconds([partial(plain[0].run, steps)], one) * flight
                    elif name == "batches":
                        took = seconds([partial(each.run, steps) for each in plain[:flight]], many)
                    else:
                        count, clip, far = name
                        beside = seconds([partial(each.run, steps) for each in plain[:flight]], many)
                        took = seconds(
                            [partial(each.run, steps, clip, count or None, far) for each in private[:flight]], many
                        )
                        pairs[name].append(beside / took)
                    if repetition:  # the first turn warms up
                        taken.append(took)
            median = {name: np.median(taken, axis=0) / (flight * size * steps) for name, taken in times.items()}
            clock = min(median["threads"][0], median["batches"][0])
            for name in ways:
                count, clip, far = name
                cells = (
                    size,
                    private[0].contexts.rows_at_once,
                    flight,
                    count or "all",
                    clip,
                    "yes" if far else "no",
                    f"{1 / median[name][0]:.0f}",
                    f"{1 / clock:.0f}",
                    f"{clock / median[name][0]:.2f}",
                    *(f"{ratio:.2f}" for ratio in np.median(pairs[name][1:], axis=0)),
                )
                print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
