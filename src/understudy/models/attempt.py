"""One request to an endpoint, sent once, and everything that can come of it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from understudy.errors import ModelError, UnderstudyError
from understudy.models.dialect import Answer, read_answer
from understudy.models.limits import retry_after
from understudy.models.transport import BodyTooLong

if TYPE_CHECKING:
    from openai import APIConnectionError, APIStatusError, AsyncOpenAI

_NOT_CONNECTED = frozenset(("ConnectError", "ConnectTimeout", "ProxyError"))
_WORTH_A_RETRY = frozenset((408, 409, 425, 429))
_CONGESTION = frozenset((429, 503, 529))


@dataclass(frozen=True)
class Failure:
    """A try without an answer. ``reason`` quotes nothing of what was sent or came back.

    Attributes:
        retry: whether another try may do better.
        congestion: whether it is a sign of too many requests at once.
        unreachable: whether no connection was made.
        unknown_usage: whether the endpoint may have worked (and charged) for it.
        pause: seconds that the endpoint asks to be left alone.
        status: the HTTP status, where there is one.
        document: the error document of a refused request.
    """

    reason: str
    retry: bool = True
    congestion: bool = False
    unreachable: bool = False
    unknown_usage: bool = False
    pause: float = 0.0
    status: int | None = None
    document: object = field(default=None, repr=False)


async def attempt(
    client: AsyncOpenAI, body: Mapping[str, Any], *, stop: tuple[str, ...], timeout: float, most: int
) -> Answer | Failure:
    """Send ``body`` once and wait at most ``timeout`` seconds for all of the answer.

    Args:
        most: characters of an answer that are kept.

    Raises:
        ModelError: nothing else that is sent there would work either.
    """
    import openai

    try:
        async with asyncio.timeout(timeout):
            document = await client.post("/chat/completions", cast_to=object, body=body)
        return read_answer(document, stop, most=most)
    except BodyTooLong as error:
        return _too_long(error)
    except openai.APIStatusError as error:
        return _refused(error)
    except openai.APIConnectionError as error:
        return _broken(error)
    except TimeoutError:
        return Failure(f"no answer came within {timeout:g} seconds", congestion=True, unknown_usage=True)
    except UnderstudyError:
        raise
    except Exception:  # whatever a library makes of a stranger's bytes
        return Failure("the answer was not a chat completion", unknown_usage=True)


def _refused(error: APIStatusError) -> Failure:
    status = error.status_code
    if 300 <= status < 400:
        raise ModelError(
            f"The endpoint redirects to another address (HTTP {status}), where nothing was sent.",
            "Give the final address as the base URL.",
        )
    if status in (401, 403):
        raise ModelError(
            f"The endpoint does not accept the key (HTTP {status}).",
            "Name the environment variable that holds its key with --api-key-env.",
        )
    if status in (404, 405):
        raise ModelError(
            f"The endpoint does not know this model or address (HTTP {status}).",
            "Check the model's name and the base URL, which often ends in /v1.",
        )
    if status == 402 or (status == 429 and error.code == "insufficient_quota"):
        raise ModelError(
            f"The endpoint's account has no credit left (HTTP {status}).",
            "Add credit; stored answers are kept, and the same command resumes.",
        )
    if status in _WORTH_A_RETRY or status >= 500:
        return Failure(
            f"the endpoint answered HTTP {status}",
            congestion=status in _CONGESTION,
            status=status,
            pause=retry_after(error.response.headers.get("retry-after")),
        )
    return Failure(f"the endpoint refused the request (HTTP {status})", retry=False, status=status, document=error.body)


def _broken(error: APIConnectionError) -> Failure:
    causes = list(_causes(error))
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        raise ModelError(
            "The endpoint's certificate is not trusted.",
            "Name the file with your organisation's certificates in SSL_CERT_FILE.",
        )
    if too_long := next((cause for cause in causes if isinstance(cause, BodyTooLong)), None):
        return _too_long(too_long)
    if any(type(cause).__name__ in _NOT_CONNECTED for cause in causes):
        return Failure("no connection could be made", unreachable=True)
    return Failure("the connection broke off", unknown_usage=True)


def _too_long(error: BodyTooLong) -> Failure:
    return Failure(str(error), retry=False, unknown_usage=True)  # another try would cost as much


def _causes(error: BaseException | None) -> list[BaseException]:
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or error.__context__
    return causes
