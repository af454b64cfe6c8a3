"""Requests per second of the endpoint client against a local server that takes 50 ms for each answer.

    python -m benchmarks.chat_client

The server is a process of its own. At 64 requests in flight nothing can do better than 64 / 0.05 = 1,280
requests/s. The floor is a bare client: asyncio streams, the body encoded beforehand, the answer not parsed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from understudy.ledger.store.database import AnswerStore, Database
from understudy.models.collect import CachedChat, collect
from understudy.models.connection import Dialect
from understudy.models.endpoint import EndpointChat
from understudy.models.types import ChatModel, ChatRequest, Message

SERVER = Path(__file__).parent.parent / "tests" / "models" / "server.py"
GOAL = 500.0
PROMPT = "Write a short record that mentions heart failure, fatigue and ankle swelling, like these examples. " * 6


@contextmanager
def server(delay: float) -> Iterator[int]:
    """The port of a server that answers after ``delay`` seconds."""
    command = [sys.executable, str(SERVER), "--delay", str(delay)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


async def bare_client(port: int, requests: Sequence[ChatRequest], at_once: int) -> None:
    """POST every request over kept-alive connections with nothing but asyncio's streams."""
    dialect = Dialect()
    bodies = [json.dumps(dialect.body("m", request, max_tokens=256)).encode() for request in requests]
    pending = iter(bodies)

    async def work() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for body in pending:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
        writer.close()

    await asyncio.gather(*(work() for _ in range(at_once)))


async def sdk_alone(port: int, requests: Sequence[ChatRequest], at_once: int) -> None:
    """What the SDK does by itself: ``chat.completions.create`` with its own models and headers."""
    import openai

    dialect = Dialect()
    pending = iter(requests)
    limits = {"api_key": "none", "base_url": f"http://127.0.0.1:{port}/v1", "max_retries": 0}
    async with openai.AsyncOpenAI(**limits) as client:  # type: ignore[arg-type]

        async def work() -> None:
            for request in pending:
                await client.chat.completions.create(**dialect.body("m", request, max_tokens=256))

        await asyncio.gather(*(work() for _ in range(at_once)))


def through(model: ChatModel, requests: Sequence[ChatRequest]) -> None:
    completions = collect(model, requests)
    assert {completion.finish_reason for completion in completions} == {"stop"}
    assert len(completions) == len(requests)


def measure(name: str, run: Callable[[], object], count: int, floor: float | None) -> float:
    """Print and return requests per second."""
    start, cpu = time.perf_counter(), time.process_time()
    run()
    rate = count / (time.perf_counter() - start)
    busy = (time.process_time() - cpu) / count * 1000
    ratio = "" if floor is None else f"   {rate / floor:4.2f} of the floor"
    print(f"{name:34} {rate:7.0f} requests/s   {busy:5.2f} ms CPU each{ratio}", flush=True)
    return rate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--at-once", type=int, default=64, help="requests in flight")
    parser.add_argument("--delay", type=float, default=0.05, help="seconds that an answer takes")
    arguments = parser.parse_args()
    count, at_once = arguments.requests, arguments.at_once
    requests = [ChatRequest((Message("user", PROMPT),), sample=sample) for sample in range(count)]
    load = f"load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load average unknown"
    print(f"{count} requests, {at_once} in flight, {arguments.delay * 1000:g} ms each; {os.cpu_count()} cores, {load}")
    print(f"{'ceiling':34} {at_once / arguments.delay:7.0f} requests/s")
    with server(arguments.delay) as port, tempfile.TemporaryDirectory() as folder:
        model = EndpointChat("m", base_url=f"http://127.0.0.1:{port}/v1", max_concurrency=at_once)
        database = Database(Path(folder) / "run.sqlite")
        cached = CachedChat(model, AnswerStore(database))
        collect(model, requests[:at_once])  # imports, once
        floor = measure("bare asyncio client", lambda: asyncio.run(bare_client(port, requests, at_once)), count, None)
        measure("openai SDK alone", lambda: asyncio.run(sdk_alone(port, requests, at_once)), count, floor)
        ours = measure("EndpointChat", lambda: through(model, requests), count, floor)
        stored = measure("EndpointChat, answers stored", lambda: through(cached, requests), count, floor)
        measure("the same again, from the store", lambda: through(cached, requests), count, floor)
        database.close()
    print(f"goal {GOAL:.0f} requests/s: {'met' if min(ours, stored) >= GOAL else 'missed'}")
    return 0 if min(ours, stored) >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
