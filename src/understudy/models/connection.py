"""Connect to an endpoint: choose the key for an address, send one request, and read its result."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar
from urllib.parse import urlsplit

from understudy.base.errors import ConfigError, ModelError, UnderstudyError
from understudy.models.bare import without_thoughts, without_wrapping
from understudy.models.limits import Usage, retry_after
from understudy.models.presets import Preset
from understudy.models.types import ChatRequest, FinishReason, Message

if TYPE_CHECKING:
    from openai import APIConnectionError, APIStatusError, AsyncOpenAI

_Reply = TypeVar("_Reply")

CONNECT_SECONDS = 5.0

_SENT_HEADERS = frozenset((b"host", b"accept", b"connection", b"content-type", b"content-length", b"user-agent"))
"""All headers that leave the process, except the key. The SDK would add the operating system and, from its
environment variables, an organisation, a project and custom headers, which other endpoints must not see."""


def clean_base_url(base_url: str | None, preset: Preset) -> str:
    """Return the base URL without its last slash; for None the product's. ConfigError if it is not an HTTP address."""
    if base_url is None and preset.base_url is None:
        raise ConfigError(
            f"{preset.title} has a separate address for each customer, but no base URL is given.",
            f"Give yours: --base-url {preset.address}",
        )
    base_url = base_url or preset.address
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("The base URL is not an http or https address.", "Give one like http://localhost:8000/v1.")
    if "@" in parts.netloc:
        raise ConfigError(
            "The base URL contains a user name or password.",
            "Leave it out and name an environment variable with the key with --api-key-env.",
        )
    return base_url.rstrip("/")


def find_key(base_url: str, api_key_env: str | None, preset: Preset) -> str | None:
    """Return the key for ``base_url``, or None to send none. A product's variable is read only for its own hosts."""
    variable = api_key_env or (preset.key if preset.sends_key_to(base_url) else None)
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key and api_key_env is None and not preset.key_needed:
        return None
    if not key:
        raise ModelError(
            f"The environment variable {variable} with the endpoint's key is not set.",
            "Set it, or give a --base-url that needs no key.",
        )
    if not (key.isascii() and key.isprintable()):
        raise ModelError(
            f"The environment variable {variable} does not contain a key.",
            "A key has only letters, digits and punctuation.",
        )
    return key


class BodyTooLong(Exception):
    """A response is longer than is read, or compressed to an unknown length."""


def open_client(base_url: str, key: str | None, *, most_bytes: int) -> AsyncOpenAI:
    """Make a client that does not retry or follow redirects and sends only the headers :data:`_SENT_HEADERS`.

    It reads responses as they were sent, uncompressed, up to ``most_bytes``. Certificates are checked against
    SSL_CERT_FILE, REQUESTS_CA_BUNDLE or SSL_CERT_DIR, whichever is set first (ModelError if it cannot be read), and
    requests go through HTTP(S)_PROXY unless NO_PROXY names the host.
    """
    import openai

    for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):  # which would log prompts
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
    authorization = [] if key is None else [(b"Authorization", b"Bearer " + key.encode("ascii"))]

    async def send_only_ours(request: Any) -> None:
        kept = [(name, value) for name, value in request.headers.raw if name.lower() in _SENT_HEADERS]
        request.headers = type(request.headers)([*kept, (b"Accept-Encoding", b"identity"), *authorization])

    async def read_so_much(response: Any) -> None:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise BodyTooLong("the endpoint compresses its answers, which was not requested")
        response.encoding = "utf-8"  # as JSON is: an untrusted server could name a codec that is slow or not for text
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
    """Return the response's stream, which ends beyond ``most`` bytes."""
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


_NOT_CONNECTED = frozenset(("ConnectError", "ConnectTimeout", "ProxyError"))
_WORTH_A_RETRY = frozenset((408, 409, 425, 429))
_CONGESTION = frozenset((429, 503, 529))
_FATAL = {401: "key", 403: "key", 404: "address", 405: "address", 402: "credit"}
_REFUSALS = {
    "redirect": ("redirects to another address, to which nothing was sent", "Give the final address as the base URL."),
    "key": ("does not accept the key", "Name the environment variable that holds its key with --api-key-env."),
    "address": (
        "does not know this model or address",
        "Check the model's name and the base URL, which often ends in /v1.",
    ),
    "dialect": (
        "does not answer with chat completions",
        "Check the base URL, which often ends in /v1, and any proxies on the way to the server.",
    ),
    "credit": (
        "says that the account has no credit left",
        "Add credit; stored answers are kept, and the same command resumes.",
    ),
}


@dataclass(frozen=True)
class Failure:
    """A failed try of a request. ``reason`` quotes neither the request nor the response."""

    reason: str
    retry: bool = True  # another try may do better
    congestion: bool = False  # a sign of too many requests at once
    unreachable: bool = False
    unknown_usage: bool = False  # the endpoint may have worked (and charged) for it
    pause: float = 0.0  # seconds that the endpoint asks to be left alone
    status: int | None = None
    document: object = field(default=None, repr=False)  # of a refused request
    refusal: ModelError | None = None  # the error to end with where the text is not to blame


async def attempt(
    client: AsyncOpenAI, body: Mapping[str, Any], *, request: ChatRequest, timeout: float, most: int
) -> Answer | Failure:
    """Send ``body`` once for ``request``. Return the answer, of which at most ``most`` characters are kept, or the
    failure."""
    unreadable = "the answer was not a chat completion"

    async def answer() -> Answer | Failure:
        reply = await client.post("/chat/completions", cast_to=bytes, body=body)  # JSON under whatever content type
        try:
            document = json.loads(reply)
            if isinstance(document, Mapping) and document.get("error") and not document.get("choices"):
                return Failure("the endpoint answered with an error", unknown_usage=True)
            return read_answer(document, request, most=most, stop_sent="stop" in body)
        except (ValueError, RecursionError):  # paid for, and another try would be, too
            return Failure(unreadable, retry=False, unknown_usage=True, status=200, refusal=_refusal("dialect", 200))

    return await tried(answer(), unreadable, timeout=timeout)


async def tried(reply: Awaitable[_Reply], unreadable: str, *, timeout: float) -> _Reply | Failure:
    """Wait for the reply to one request. Return it, or why there is none within ``timeout`` seconds; the reason is
    ``unreadable`` if the reply is invalid.

    Raises ModelError if no other request to this endpoint would work either.
    """
    import openai

    try:
        async with asyncio.timeout(timeout):
            return await reply
    except openai.APIStatusError as error:
        return _refused(error)
    except (BodyTooLong, openai.APIConnectionError) as error:
        return _broken(error)
    except TimeoutError:
        return Failure(f"no answer came within {timeout:g} seconds", congestion=True, unknown_usage=True)
    except UnderstudyError:
        raise
    except Exception:  # whatever a library makes of a stranger's bytes
        return Failure(unreadable, unknown_usage=True)


def _refused(error: APIStatusError) -> Failure:
    status = error.status_code
    if 300 <= status < 400:
        kind = "redirect"
    elif status == 429 and error.code == "insufficient_quota":
        kind = "credit"
    else:
        kind = _FATAL.get(status, "")
    if kind == "credit":
        raise _refusal(kind, status)
    if status in _WORTH_A_RETRY or status >= 500:
        return Failure(
            f"the endpoint answered HTTP {status}",
            congestion=status in _CONGESTION,
            status=status,
            pause=retry_after(error.response.headers.get("retry-after")),
        )
    reason, refusal = f"the endpoint refused the request (HTTP {status})", _refusal(kind, status) if kind else None
    return Failure(reason, retry=False, status=status, document=error.body, refusal=refusal)


def _refusal(kind: str, status: int) -> ModelError:
    problem, cure = _REFUSALS[kind]
    return ModelError(f"The endpoint {problem} (HTTP {status}).", cure)


def _broken(error: BodyTooLong | APIConnectionError) -> Failure:
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        raise ModelError(
            "The endpoint's certificate is not trusted.",
            "Name the file with your organisation's certificates in SSL_CERT_FILE.",
        )
    if too_long := next((cause for cause in causes if isinstance(cause, BodyTooLong)), None):
        return Failure(str(too_long), retry=False, unknown_usage=True)  # another try would cost as much
    if any(type(cause).__name__ in _NOT_CONNECTED for cause in causes):
        return Failure("no connection could be made", unreachable=True)
    return Failure("the connection broke off", unknown_usage=True)


_log = logging.getLogger(__name__)

_NO_REQUEST = ChatRequest((Message("user", ""),))
MOST_STOPS = 4  # that an endpoint takes; answers are cut at the others here
_REJECTED = re.compile(
    r"unsupported|not support|unrecognized|unrecognised|unknown|unexpected|not permitted|not allowed|invalid param",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Answer:
    """The content of an endpoint's response. ``usage`` is None if the endpoint does not report it."""

    text: str
    finish_reason: FinishReason
    usage: Usage | None
    reasoned: bool
    wrapped: bool  # thoughts, or words to the user, came before the text
    ended: bool  # by itself, or at a stop string that was sent
    ignored_stop: bool

    @property
    def ran_out(self) -> bool:
        """Return whether the tokens were used up before any text was written."""
        return not self.text and self.finish_reason != "filtered" and (self.finish_reason == "length" or self.wrapped)


@dataclass
class Dialect:
    """The parameters and forms that an endpoint accepts, as its answers have shown, so that a client adapts only
    once."""

    limit_name: str = "max_tokens"
    left_out: set[str] = field(default_factory=set)  # parameters that it refused, no longer sent
    reasons: bool = False
    plain: bool | None = None  # whether answers begin with their text; None: no whole answer has shown it yet
    ignores_stop: bool = False
    answered: bool = False

    def body(self, model: str, request: ChatRequest, *, max_tokens: int) -> dict[str, Any]:
        """Return the JSON body of ``POST /chat/completions``. Answers are always cut at stop strings on receipt. These
        are only sent once an answer has shown that they would not cut thoughts or a preamble instead of the text."""
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
            self.limit_name: max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
        }
        if request.stop and self.plain:
            body["stop"] = list(request.stop[:MOST_STOPS])
        if request.schema is not None:
            wanted = {"name": "record", "schema": json.loads(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": wanted}
        for name in self.left_out:
            body.pop(name, None)
        return body

    def adapt(self, body: Mapping[str, Any], problem: object) -> bool:
        """Adapt to ``problem``, the error document for ``body``; return whether sending it again may work."""
        details = problem.get("error", problem) if isinstance(problem, Mapping) else problem
        if isinstance(details, Mapping):
            parameter, message = str(details.get("param")), f"{details.get('code')} {details.get('message')}"
        else:
            parameter, message = "", str(details)
        if "max_tokens" in body and "max_completion_tokens" in message:
            self.limit_name = "max_completion_tokens"
            return True
        if not _REJECTED.search(message):
            return False
        for name in ("temperature", "top_p", "stop", "response_format"):
            if name in body and (parameter == name or re.search(rf"\b{name}\b", message)):
                if name not in self.left_out:
                    _log.warning("The model does not take %s; it is left out.", name)
                self.left_out.add(name)
                return True
        return False

    def learn(self, answer: Answer, request: ChatRequest) -> None:
        self.answered = True
        if answer.wrapped:
            self.plain = False
        elif self.plain is None and answer.text and answer.ended and request.stop:
            self.plain = True
        self.reasons |= answer.reasoned
        self.ignores_stop |= answer.ignored_stop


def read_answer(document: object, request: ChatRequest = _NO_REQUEST, *, most: int, stop_sent: bool = True) -> Answer:
    """Read the text of a chat completion up to the first stop string, without anything that is not the text; ValueError
    if it is invalid.

    A text longer than ``most`` characters is cut there, as at its most tokens.
    """
    try:
        choice = document["choices"][0]  # type: ignore[index]
        message = choice["message"]
        content = message.get("content")
        usage = document.get("usage")  # type: ignore[attr-defined]
        reasoned = bool(message.get("reasoning_content") or message.get("reasoning"))
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise ValueError("no chat completion") from error
    if isinstance(content, list):
        content = "".join(
            text for part in content if isinstance(part, Mapping) and isinstance(text := part.get("text"), str)
        )
    if content is not None and not isinstance(content, str):
        raise ValueError("no text")
    text, thought = without_thoughts(content or "")
    reasoned |= thought or _reasoning_tokens(usage) > 0
    text, wrapped = (text, False) if request.schema else without_wrapping(text, request.messages[-1].content)
    text, ignored = _cut(text, request.stop)
    finish: FinishReason = "length" if choice.get("finish_reason") == "length" and not ignored else "stop"
    if len(text) > most:
        text, finish = text[:most], "length"
    if choice.get("finish_reason") == "content_filter":
        text, finish = "", "filtered"  # the rest of a withheld text may end anywhere
    return Answer(
        text=text if text.strip() else "",
        finish_reason=finish,
        usage=_usage(usage),
        reasoned=reasoned,
        wrapped=reasoned or wrapped,
        ended=choice.get("finish_reason") != "length",
        ignored_stop=stop_sent and any(string in request.stop[:MOST_STOPS] for string in ignored),
    )


def _cut(text: str, stop: Sequence[str]) -> tuple[str, list[str]]:
    """Return ``text`` up to the first stop string, and the stop strings in it."""
    found = [string for string in stop if string and string in text]
    end = min((text.index(string) for string in found), default=len(text))
    return text[:end], found


def _usage(usage: object) -> Usage | None:
    if not isinstance(usage, Mapping):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return Usage(prompt, completion) if _is_count(prompt) and _is_count(completion) else None


def _is_count(value: object) -> TypeGuard[int]:
    """Return whether it is a valid number of tokens: a negative one would raise the caps of the whole run."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def _reasoning_tokens(usage: object) -> int:
    details = usage.get("completion_tokens_details") if isinstance(usage, Mapping) else None
    tokens = details.get("reasoning_tokens") if isinstance(details, Mapping) else None
    return tokens if _is_count(tokens) else 0
