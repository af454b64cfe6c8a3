"""A small OpenAI-compatible endpoint on the loopback interface, with faults on demand.

Tests run it in a thread (:class:`FakeEndpoint`); the benchmark runs this file as a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Seen:
    """A request as it came in; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any

    @property
    def prompt(self) -> str:
        """The last message."""
        return str(self.body["messages"][-1]["content"])


@dataclass(frozen=True)
class Reply:
    """What to send back. ``drop`` ends the connection ``"before"`` a byte or in the ``"middle"`` of the body."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    drop: str = ""
    until: Callable[[], bool] | None = None  # held back before that


def answer(
    text: str | None = "An answer.",
    *,
    finish_reason: str = "stop",
    usage: tuple[int, int] | None = (10, 5),
    delay: float = 0.0,
    drop: str = "",
    until: Callable[[], bool] | None = None,
    **message: Any,
) -> Reply:
    """A chat completion."""
    said = {"role": "assistant", "content": text, **message}
    document: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "test"}
    document["choices"] = [{"index": 0, "message": said, "finish_reason": finish_reason}]
    if usage is not None:
        document["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return Reply(json.dumps(document).encode(), delay=delay, drop=drop, until=until)


def error(status: int, message: str = "No.", *, retry_after: str | None = None, **fields: Any) -> Reply:
    """An HTTP error with OpenAI's error body."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return Reply(json.dumps({"error": {"message": message, **fields}}).encode(), status=status, headers=headers)


def models(*names: str) -> Reply:
    """The answer to ``GET /models``."""
    return Reply(json.dumps({"object": "list", "data": [{"id": name} for name in names]}).encode())


Plan = Callable[[int, Seen], Reply]


class _Connection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive and Content-Length, which is all that the client speaks."""

    def __init__(self, respond: Callable[[Seen], Reply], connections: set[asyncio.Transport]) -> None:
        self._respond = respond
        self._connections = connections
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        method, path, _ = first.split(" ")
        sent = rest[:length]
        body = None if not length else json.loads(sent) if "json" in headers.get("content-type", "") else sent
        reply = self._respond(Seen(method, path, headers, body))
        if reply.delay:
            asyncio.get_running_loop().call_later(reply.delay, self._send, reply)
        else:
            self._send(reply)

    def _send(self, reply: Reply) -> None:
        if self._transport.is_closing():
            return
        if reply.until is not None and not reply.until():
            asyncio.get_running_loop().call_later(0.005, self._send, reply)
            return
        if reply.drop == "before":
            self._transport.abort()
            return
        headers = {"Content-Type": "application/json", "Content-Length": str(len(reply.body)), **reply.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {reply.status} Status\r\n{lines}\r\n".encode("latin-1")
        if reply.drop == "middle":
            self._transport.write(head + reply.body[: len(reply.body) // 2])
            self._transport.close()
            return
        self._transport.write(head + reply.body)


class FakeEndpoint:
    """A server in a thread; ``plan(number of the request, request)`` decides each reply.

    ``seen`` holds every request in the order of arrival and ``most_at_once`` the largest number of
    open connections.
    """

    def __init__(self, plan: Plan | None = None, *, certificate: ssl.SSLContext | None = None) -> None:
        self.plan: Plan = plan or (lambda number, seen: answer())
        self.seen: list[Seen] = []
        self.port = 0
        self._certificate = certificate
        self._connections: set[asyncio.Transport] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()

    @property
    def base_url(self) -> str:
        return f"{'https' if self._certificate else 'http'}://127.0.0.1:{self.port}/v1"

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def respond(self, seen: Seen) -> Reply:
        self.seen.append(seen)
        return self.plan(len(self.seen) - 1, seen)

    async def serve(self, port: int = 0) -> asyncio.Server:
        server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self.respond, self._connections), "127.0.0.1", port, ssl=self._certificate
        )
        self.port = server.sockets[0].getsockname()[1]
        return server

    def _run(self) -> None:
        server = self._loop.run_until_complete(self.serve())
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for transport in list(self._connections):
            transport.abort()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def __enter__(self) -> FakeEndpoint:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


async def _main(delay: float) -> None:
    reply = answer("A short synthetic record about nothing in particular. " * 4, usage=(120, 60), delay=delay)
    endpoint = FakeEndpoint()
    endpoint.respond = lambda seen: reply  # type: ignore[method-assign]
    server = await endpoint.serve()
    print(endpoint.port, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Answer every chat request after a delay; prints its port.")
    parser.add_argument("--delay", type=float, default=0.05, help="seconds")
    asyncio.run(_main(parser.parse_args().delay))
