"""Chat models behind an OpenAI-compatible endpoint: vLLM, Ollama, llama.cpp, hosted ones.

The ``openai`` SDK carries single requests. Everything that a run of many thousand requests needs is ours:
retries, adaptive concurrency, the circuit breaker and the caps (:mod:`understudy.models.limits`), what may
be sent where (:mod:`understudy.models.transport`) and how this endpoint speaks
(:mod:`understudy.models.dialect`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from understudy.errors import ConfigError
from understudy.models.dialect import Dialect
from understudy.models.limits import LIST_BYTES, Budget, Usage, most_body_bytes
from understudy.models.session import STRETCH, Endpoint, Session
from understudy.models.transport import clean_base_url, find_key, open_client
from understudy.models.types import ChatRequest, Completion

_log = logging.getLogger(__name__)
_OURS = frozenset(("model", "messages", "stream", "n"))


class EndpointChat:
    """A :class:`~understudy.models.types.ChatModel` over an OpenAI-compatible endpoint.

    A request that fails after all its tries becomes a ``failed`` completion; what would fail every request
    (no such model, a refused key, nobody there, a cap) ends the run with a :class:`ModelError`, after every
    answer that came in was yielded. A reasoning model that used all its tokens without an answer is asked
    once more with four times the tokens; after that the completion is ``empty``. The tokens of both count.
    An answer that is longer than its tokens allow is cut (``length``), and one whose HTTP body is far too long
    fails unread (:mod:`understudy.models.limits` has the numbers).

    Args:
        name: the model, as the endpoint calls it.
        base_url: the endpoint; the hosted one for None.
        api_key_env: the environment variable with the key. None takes OPENAI_API_KEY for the hosted
            endpoint and sends no key to any other.
        max_concurrency: most requests in flight.
        timeout: seconds for one try.
        max_retries: tries after the first.
        token_cap: most tokens over the life of this object, prompts and answers together. A try whose use
            is unknown (no usage reported, timed out, broken off) counts as the worst it could be.
        spending_cap: most money, in the unit of the two prices, which it needs.
        price_per_million_input: price of a million prompt tokens.
        price_per_million_output: price of a million answer tokens.
        extra_body: fields to add to every request's body; they become part of ``model_id``.
        backoff_seconds: the first wait between two tries; it doubles from try to try.
        say: takes a line for the user, such as that no answer has come for a while. Default: a warning in the log.

    Raises:
        ConfigError: a parameter out of its range.
        ModelError: the environment variable with the key is not set.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key_env: str | None = None,
        max_concurrency: int = 64,
        timeout: float = 120.0,
        max_retries: int = 6,
        token_cap: int | None = None,
        spending_cap: float | None = None,
        price_per_million_input: float | None = None,
        price_per_million_output: float | None = None,
        extra_body: Mapping[str, Any] | None = None,
        backoff_seconds: float = 0.5,
        say: Callable[[str], None] = _log.warning,
    ) -> None:
        if not name or max_concurrency < 1 or not timeout > 0 or max_retries < 0 or backoff_seconds < 0:
            raise ConfigError(
                "The model has no name, or its concurrency, timeout, retries or wait is out of range.",
                "Concurrency is 1 or more, the timeout is positive, retries and wait are 0 or more.",
            )
        if reserved := _OURS.intersection(extra_body or ()):
            raise ConfigError(
                f"extra_body sets {', '.join(sorted(reserved))}, which understudy sets itself.", "Leave it out."
            )
        self._base_url = clean_base_url(base_url)
        self._key = find_key(self._base_url, api_key_env)
        self._endpoint = Endpoint(
            name=name,
            extra_body=dict(extra_body or {}),
            dialect=Dialect(),
            budget=Budget(
                token_cap=token_cap,
                spending_cap=spending_cap,
                price_per_million_input=price_per_million_input,
                price_per_million_output=price_per_million_output,
            ),
            max_concurrency=max_concurrency,
            timeout=timeout,
            max_retries=max_retries,
            backoff_seconds=backoff_seconds,
            host=urlsplit(self._base_url).netloc,
            say=say,
        )

    @property
    def model_id(self) -> str:
        """``openai:NAME@BASE_URL``, and a digest of ``extra_body`` where there is one."""
        model_id = f"openai:{self.name}@{self._base_url}"
        if not self._endpoint.extra_body:
            return model_id
        extra = json.dumps(self._endpoint.extra_body, sort_keys=True)
        return f"{model_id}+{hashlib.sha256(extra.encode()).hexdigest()[:12]}"

    @property
    def name(self) -> str:
        """The model, as the endpoint calls it."""
        return self._endpoint.name

    @property
    def dialect(self) -> Dialect:
        """What has been learnt about the endpoint so far."""
        return self._endpoint.dialect

    @property
    def usage(self) -> Usage:
        """Tokens used so far, those that are only known at their worst included."""
        return self._endpoint.budget.used

    @property
    def cost(self) -> float:
        """Money spent so far at the prices given; 0 without prices."""
        return self._endpoint.budget.cost(self.usage)

    async def complete(self, requests: Sequence[ChatRequest]) -> AsyncIterator[tuple[int, Completion]]:
        """Yield ``(index into requests, Completion)`` in the order of completion, each index once.

        Raises:
            ModelError: nothing else would work either; what was answered has been yielded.
        """
        if not requests:
            return
        most_tokens = STRETCH * max(request.max_tokens for request in requests)
        async with open_client(self._base_url, self._key, most_bytes=most_body_bytes(most_tokens)) as client:
            session = Session(self._endpoint, client, requests)
            task = asyncio.create_task(session.run())
            try:
                while (done := await session.results.get()) is not None:
                    yield done
                await task
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def list_models(self) -> list[str] | None:
        """The names that the endpoint lists at ``/models``; None where it offers no list."""

        async with open_client(self._base_url, self._key, most_bytes=LIST_BYTES) as client:
            try:
                async with asyncio.timeout(self._endpoint.timeout):
                    document = await client.get("/models", cast_to=object)
                return [str(entry["id"]) for entry in document["data"]]  # type: ignore[index]
            except Exception:  # whatever a library makes of a stranger's bytes
                return None
