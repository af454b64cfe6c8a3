"""The connection to an endpoint: which key goes to which address, certificates, proxies, headers."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import AsyncIterator
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from understudy.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

HOSTED = "https://api.openai.com/v1"
"""Where a model lives when no base URL is given."""

CONNECT_SECONDS = 5.0

_SENT_HEADERS = frozenset((b"host", b"accept", b"connection", b"content-type", b"content-length", b"user-agent"))
"""Everything that leaves the process besides the key: the SDK adds the operating system and, from its own
environment variables, an organisation, a project and custom headers, which are not for a foreign endpoint."""


def clean_base_url(base_url: str | None) -> str:
    """The base URL without its last slash; the hosted one for None.

    Raises:
        ConfigError: not an http(s) address, or one with a password in it.
    """
    if base_url is None:
        return HOSTED
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("The base URL is not an http or https address.", "Give one like http://localhost:8000/v1.")
    if "@" in parts.netloc:
        raise ConfigError(
            "The base URL carries a user name or password.",
            "Leave it out and name an environment variable that holds the key with --api-key-env.",
        )
    return base_url.rstrip("/")


def find_key(base_url: str, api_key_env: str | None) -> str | None:
    """The key for ``base_url``, or None to send none.

    OPENAI_API_KEY is read without being named for the hosted address only.

    Raises:
        ModelError: the environment variable is not set, or holds nothing that could be a key.
    """
    variable = api_key_env or ("OPENAI_API_KEY" if base_url == HOSTED else None)
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ModelError(
            f"The environment variable {variable} with the endpoint's key is not set.",
            "Set it, or give a --base-url that needs no key.",
        )
    if not (key.isascii() and key.isprintable()):
        raise ModelError(
            f"The environment variable {variable} does not hold a key.",
            "A key has only letters, digits and punctuation.",
        )
    return key


class BodyTooLong(Exception):
    """A response is longer than is read, or its length cannot be told before it is unpacked."""


def open_client(base_url: str, key: str | None, *, most_bytes: int) -> AsyncOpenAI:
    """A client that retries nothing, follows no redirect and sends only what :data:`_SENT_HEADERS` names.

    It reads responses as they were sent, uncompressed, up to ``most_bytes``.

    Certificates are checked against SSL_CERT_FILE, REQUESTS_CA_BUNDLE or SSL_CERT_DIR, whichever is set
    first, and requests go through HTTP(S)_PROXY unless NO_PROXY names the host.

    Raises:
        ModelError: the CA bundle cannot be read.
    """
    import openai

    _quiet_loggers()
    authorization = [] if key is None else [(b"Authorization", b"Bearer " + key.encode("ascii"))]

    async def send_only_ours(request: Any) -> None:
        kept = [(name, value) for name, value in request.headers.raw if name.lower() in _SENT_HEADERS]
        request.headers = type(request.headers)([*kept, (b"Accept-Encoding", b"identity"), *authorization])

    async def read_so_much(response: Any) -> None:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise BodyTooLong("the endpoint compresses its answers, which was not asked for")
        response.encoding = "utf-8"  # as JSON is: a stranger would name a codec that takes minutes, or is none of text
        response.stream = _bounded(response, most_bytes)

    timeout = openai.Timeout(None, connect=CONNECT_SECONDS)
    http_client = openai.DefaultAsyncHttpxClient(
        verify=_certificates(),
        timeout=timeout,
        follow_redirects=False,
        event_hooks={"request": [send_only_ours], "response": [read_so_much]},
    )
    return openai.AsyncOpenAI(
        api_key="set by send_only_ours", base_url=base_url, timeout=timeout, max_retries=0, http_client=http_client
    )


def _bounded(response: Any, most: int) -> Any:
    """The response's stream, which breaks off beyond ``most`` bytes."""
    stream = response.stream
    library = import_module(type(response).__module__.partition(".")[0])  # the HTTP library that the SDK brought

    class Bounded(library.AsyncByteStream):  # type: ignore[name-defined,misc]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            there = 0
            async for piece in stream:
                there += len(piece)
                if there > most:
                    raise BodyTooLong(f"its answer is longer than {most:,} bytes")
                yield piece

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()


def _certificates() -> ssl.SSLContext | bool:
    bundle = os.environ.get("SSL_CERT_FILE") or os.environ.get("REQUESTS_CA_BUNDLE")
    directory = os.environ.get("SSL_CERT_DIR")
    if not bundle and not directory:
        return True
    try:
        if bundle and os.path.isdir(bundle):  # noqa: PTH112 - REQUESTS_CA_BUNDLE may be a folder
            return ssl.create_default_context(capath=bundle)
        return ssl.create_default_context(cafile=bundle or None, capath=None if bundle else directory)
    except OSError as error:
        raise ModelError(
            "The certificate bundle named by the environment cannot be read.",
            "Correct SSL_CERT_FILE, REQUESTS_CA_BUNDLE or SSL_CERT_DIR.",
        ) from error


def _quiet_loggers() -> None:
    """Keep the SDK and its HTTP library from writing prompts, where nobody asked them to write."""
    for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
