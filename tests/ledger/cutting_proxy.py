"""A proxy in front of a PostgreSQL server that loses the connection at a chosen statement, or falls silent.

It reads messages of the protocol (https://www.postgresql.org/docs/current/protocol-message-formats.html), so that a
cut is exactly between two of them: a statement that never arrives, or one that is done while its answer is lost.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

import sqlalchemy as sa

_READY, _AUTHENTICATION, _ERROR, _TERMINATE = b"Z", b"R", b"E", b"X"
_REQUEST_ENDS = (b"Q", b"S")  # a simple query; the sync that ends an extended one
_AUTHENTICATED, _FINAL_SASL = 0, 12
_STARTUP, _CANCEL = 196608, 80877102

Moment = Literal["before", "after", "silent"]


@dataclass(frozen=True)
class Cut:
    """At which request the connection is lost, counted from 0 (logging in is one, then one a statement).

    Args:
        moment: ``before``: the server never sees it. ``after``: the server has done it, and its answer is lost.
            ``silent``: the connection stays, and nothing comes.
    """

    request: int
    moment: Moment


class CuttingProxy:
    """Listens on a port of this machine until the context ends; harmless until it is armed."""

    def __init__(self, server: sa.URL) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._seen = 0
        self._cut: Cut | None = None
        self.struck: bytes | None = None

    @property
    def url(self) -> str:
        """The same database through the proxy."""
        host, port = self._listener.getsockname()
        query = {"sslmode": "disable", "gssencmode": "disable"}
        made = self._server.set(host=host, port=port).set(query=query)
        return made.render_as_string(hide_password=False)

    def arm(self, cut: Cut) -> None:
        """Count from here; ``struck`` is then the request that the cut hit."""
        with self._lock:
            self._seen, self._cut, self.struck = 0, cut, None

    def disarm(self) -> None:
        with self._lock:
            self._cut = None

    def __enter__(self) -> CuttingProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # closing alone does not wake the thread that accepts
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, self._connected() as server, contextlib.suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            (length,) = struct.unpack("!i", _exactly(client, 4))
            body = _exactly(client, length - 4)
            (code,) = struct.unpack("!i", body[:4])
            assert code in (_STARTUP, _CANCEL), "encryption is off in the URL"
            self._exchange(client, server, struct.pack("!i", length) + body)
            while True:
                request, last = b"", b""
                while last not in _REQUEST_ENDS:
                    last, message = _message(client)
                    request += message
                    if last == _TERMINATE:
                        server.sendall(request)
                        return
                self._exchange(client, server, request)

    def _exchange(self, client: socket.socket, server: socket.socket, request: bytes) -> None:
        """One request and all of its answer, unless it is the one to be cut."""
        moment = self._moment(request)
        if moment == "silent":
            self._ending.wait()
        if moment is not None and moment != "after":
            raise ConnectionError
        server.sendall(request)
        answer = b""
        while True:
            kind, message = _message(server)
            answer += message
            (code,) = struct.unpack("!i", message[5:9]) if kind == _AUTHENTICATION else (_AUTHENTICATED,)
            if code not in (_AUTHENTICATED, _FINAL_SASL):  # a question of the server while logging in
                client.sendall(answer)
                answer = b""
                server.sendall(_message(client)[1])
            elif kind == _READY:
                break
        if moment == "after":
            raise ConnectionError
        client.sendall(answer)

    def _moment(self, request: bytes) -> Moment | None:
        with self._lock:
            number, self._seen = self._seen, self._seen + 1
            if self._cut is None or number != self._cut.request:
                return None
            self.struck = request
            return self._cut.moment

    def _connected(self) -> socket.socket:
        host, port = self._server.host or self._server.query.get("host") or "localhost", self._server.port or 5432
        if str(host).startswith("/"):
            made = socket.socket(socket.AF_UNIX)
            made.connect(f"{host}/.s.PGSQL.{port}")
            return made
        return socket.create_connection((str(host), port))


def _message(stream: socket.socket) -> tuple[bytes, bytes]:
    """The kind of the next message, and all of it."""
    head = _exactly(stream, 5)
    (length,) = struct.unpack("!i", head[1:])
    return head[:1], head + _exactly(stream, length - 4)


def _exactly(stream: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        if not (more := stream.recv(count - len(found))):
            raise ConnectionError
        found += more
    return found
