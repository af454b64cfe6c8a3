"""Every benchmark by its name. What it needs is imported when it is run."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Benchmark:
    """What can be run.

    Attributes:
        module: has ``options(parser)``, which adds its own; ``run(options)``, which yields rows; and ``SEED``.
    """

    name: str
    module: str
    summary: str

    def load(self) -> Any:
        """The module."""
        return import_module(f"benchmarks.{self.module}")


BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("scaling", "scaling", "releases that need no language model, by the number of records"),
        Benchmark("settings", "settings", "a dp-kps release, one setting changed at a time"),
        Benchmark("profile", "profiling", "where the processor's time goes in a release"),
        Benchmark("ratios", "ratios", "each costly step compared with the least possible work"),
        Benchmark("voting", "voting", "votes for the nearest candidates, by the number of records"),
        Benchmark("decoding", "decoding", "a step of private prediction compared with plain decoding"),
        Benchmark("gradients", "gradients", "clipped per-example gradients, ours and four other ways"),
        Benchmark("engines", "engines", "the same sums on one core, on two processes and on Ray"),
        Benchmark("chat-memory", "chat_memory", "memory of a local chat model, by the number of prompts answered"),
    )
}
