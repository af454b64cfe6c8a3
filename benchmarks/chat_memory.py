"""What a local chat model holds after so many prompts, call by call as a run asks: does it keep what it needs no more?

Each way of the C library's allocator is tried in a process of its own; the model loaded and idle is the floor.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

import numpy as np

from benchmarks import corpora
from benchmarks.measuring import ONE_THREAD, anonymous_mb, in_own_process, measured, rounded, say
from benchmarks.results import Row
from understudy.models.types import ChatRequest, Message

SEED = corpora.SEED
AS_IT_IS, KEPT = "as it is: given back after each batch", "all kept"
WAYS: dict[str, dict[str, str]] = {
    AS_IT_IS: {},
    KEPT: {},
    "all kept, one arena for all threads": {"MALLOC_ARENA_MAX": "1"},
    "all kept, blocks from 128 KiB mapped one by one": {"MALLOC_MMAP_THRESHOLD_": "131072"},
}
"""The environment of each, as glibc reads it."""


def requests(count: int, words: int, answer: int, *, seed: int) -> list[ChatRequest]:
    """Prompts of ``words`` / 2 to ``words`` words, as an evolving text is asked for."""
    source = np.random.default_rng(seed)
    drawn = [text for some, _ in corpora.texts(count * (words // 20 + 1), seed=seed) for text in some]
    pool = " ".join(drawn).split()
    found = []
    for number in range(count):
        length = int(source.integers(words // 2, words + 1))
        first = int(source.integers(0, len(pool) - length))
        asked = f"Rewrite this text, number {number}: {' '.join(pool[first : first + length])}"
        found.append(ChatRequest((Message("user", asked),), max_tokens=answer, temperature=1.0, top_p=1.0))
    return found


def measure_one(way: str, calls: int, count: int, words: int, answer: int) -> Row:
    """``calls`` calls of ``count`` prompts each; to be called in a process of its own."""
    from understudy.models import local
    from understudy.models.catalog import load_chat

    if way != AS_IT_IS:
        local.give_back_memory = lambda: None
    chat = load_chat("builtin")
    loaded, after = anonymous_mb(), []

    async def ask(number: int) -> int:
        wanted = requests(count, words, answer, seed=SEED + number)
        return len([each async for each in chat.complete(wanted)])

    with measured() as used:
        for number in range(calls):
            asyncio.run(ask(number))
            after.append(rounded(anonymous_mb()))
    return {"loaded_mb": rounded(loaded), "after_each_call_mb": after, **used.figures()}


def run(options: Namespace) -> Iterator[Row]:
    for name in options.ways:
        found = in_own_process(
            measure_one,
            name,
            options.calls,
            options.prompts,
            options.words,
            options.answer_tokens,
            environment={**ONE_THREAD, **WAYS[name]},
        )
        say(f"{name}: {found['anonymous_mb']} MiB at most, {found['after_each_call_mb'][-1]} in the end")
        yield {"way": name, "floor": "the model, loaded", "floor_mb": found["loaded_mb"], **found}


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=32, help="in each call")
    parser.add_argument("--words", type=int, default=200, help="of the longest prompt")
    parser.add_argument("--answer-tokens", type=int, default=40)
