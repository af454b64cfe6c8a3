"""Limit the speed and the spending of a client: adaptive concurrency, backoff, circuit breaker and caps.

This module is independent of HTTP bodies; :mod:`understudy.models.endpoint` reports events and asks before
it sends.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from understudy.base.errors import ConfigError, ModelError

LONGEST_WAIT = 60.0  # seconds, of any Retry-After and any backoff
BREAKER = 20  # requests in a row without an answer after which the endpoint counts as gone
SEVERAL = 3  # refused texts in a row after which an endpoint that has answered may refuse everything
STARTING_SECONDS = 30.0  # that an endpoint may say that it is not ready before its first answer (HTTP 503, 529)
SILENT_SECONDS = 15.0  # without any answer, after which the user gets a line, and again each time that it has doubled
CHARACTERS_PER_TOKEN, LEAST_CHARACTERS = 32, 1000  # at which an answer is cut (real tokens have some 4) ...
BODY_BYTES_PER_TOKEN, LEAST_BODY_BYTES = 1024, 1 << 20  # ... and an HTTP body, reasoning and escapes included
LIST_BYTES = 16 << 20  # of an endpoint's list of models that are read
TOKENS_PER_BYTE = 0.5  # of a prompt in UTF-8: a generous first guess, until the endpoint reports its usage


class Unreachable(ModelError):
    """No connection to the endpoint could be made."""


def most_characters(max_tokens: int) -> int:
    """Return how many characters of an answer are kept."""
    return max(LEAST_CHARACTERS, CHARACTERS_PER_TOKEN * max_tokens)


def backoff(tries: int, base: float) -> float:
    """Return the seconds to wait after ``tries`` failed tries: exponential in ``base`` seconds, with jitter."""
    return min(LONGEST_WAIT, base * 2.0 ** (tries - 1)) * random.uniform(0.5, 1.0)


def retry_after(header: str | None) -> float:
    """Return the seconds of a ``Retry-After`` header (seconds or an HTTP date), in [0, LONGEST_WAIT]."""
    if not header:
        return 0.0
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), LONGEST_WAIT) if seconds == seconds else 0.0


@dataclass(frozen=True)
class Usage:
    """Numbers of prompt tokens and answer tokens."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.prompt_tokens + other.prompt_tokens, self.completion_tokens + other.completion_tokens)

    def __sub__(self, other: Usage) -> Usage:
        return Usage(self.prompt_tokens - other.prompt_tokens, self.completion_tokens - other.completion_tokens)

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(kw_only=True)
class Budget:
    """Decides whether another request fits a cap, from the tokens used so far and the most that requests in flight can
    use. None: no cap."""

    spending_cap: float | None
    price_per_million_input: float | None
    price_per_million_output: float | None
    used: Usage = Usage()
    _in_flight: Usage = Usage()
    _tokens_per_byte: float | None = None

    def __post_init__(self) -> None:
        prices = (self.price_per_million_input, self.price_per_million_output)
        if self.spending_cap is not None and None in prices:
            raise ConfigError(
                "A spending cap needs the model's prices.",
                "Give the price of a million input tokens and of a million output tokens.",
            )

    def cost(self, usage: Usage) -> float:
        prompts = usage.prompt_tokens * (self.price_per_million_input or 0.0)
        return (prompts + usage.completion_tokens * (self.price_per_million_output or 0.0)) / 1e6

    def worst(self, prompt_bytes: int, max_tokens: int) -> Usage:
        """Return the most that a request can use; its prompt's tokens are estimated from its length."""
        return Usage(int(prompt_bytes * (self._tokens_per_byte or TOKENS_PER_BYTE)) + 16, max_tokens)

    def cap_reached(self, worst: Usage) -> ModelError | None:
        """Return the error to raise if ``worst``, added to everything used and in flight, exceeds the cap."""
        then = self.used + self._in_flight + worst
        if self.spending_cap is not None and self.cost(then) > self.spending_cap:
            return ModelError(
                "The spending cap is reached.",
                "Raise --spending-cap; stored answers are kept, and the same command resumes.",
            )
        return None

    def reserve(self, worst: Usage) -> None:
        self._in_flight += worst

    def settle(self, worst: Usage, used: Usage) -> None:
        """Replace the reservation of a request by its actual use."""
        self._in_flight -= worst
        self.used += used

    def learn(self, prompt_bytes: int, prompt_tokens: int) -> None:
        """Update the estimate of tokens per byte of a prompt: the largest seen so far."""
        self._tokens_per_byte = max(self._tokens_per_byte or 0.0, prompt_tokens / max(prompt_bytes, 1))


class Pace:
    """Adaptive concurrency: additive increase on success, halved on congestion (AIMD, as TCP does). Until the first
    congestion each success increases it by one.

    Answers that take a good part of the ``timeout``, and much longer than the fastest one, wait for each other: they do
    not increase it. A server that answers one request after another would otherwise work on requests that have already
    timed out, and on nothing else.

    A burst of refusals is one sign of congestion: only a request sent after the last cut can cut again.
    """

    def __init__(self, most: int, *, begin: float | None = None, timeout: float = math.inf) -> None:
        self._most = float(most)
        self._limit = min(self._most, begin or self._most)
        self._patience, self._fastest = timeout / 4, math.inf
        self._cut_at = 0.0
        self._resume_at = 0.0
        self._changed = asyncio.Event()
        self.in_flight = 0

    @property
    def limit(self) -> int:
        return int(self._limit)

    async def enter(self, budget: Budget, worst: Usage) -> float:
        """Wait until a request may be sent: a place is free and the budget has room. Return the moment of sending.

        Raises a ModelError if a cap is reached and no request in flight could turn out smaller.
        """
        while True:
            pause = self._resume_at - time.monotonic()
            if pause > 0:
                await asyncio.sleep(pause)
            elif self.in_flight >= self.limit:
                await self._changed.wait()
            elif error := budget.cap_reached(worst):
                if self.in_flight == 0:
                    raise error
                await self._changed.wait()
            else:
                self.in_flight += 1
                budget.reserve(worst)
                return time.monotonic()

    def leave(self) -> None:
        self.in_flight -= 1
        self._changed.set()
        self._changed = asyncio.Event()

    def speed_up(self, seconds: float = 0.0) -> None:
        """Record that an answer took ``seconds``; this may allow more concurrent requests."""
        self._fastest = min(self._fastest, seconds)
        if seconds < max(self._patience, 2 * self._fastest):
            self._limit = min(self._most, self._limit + (1.0 / self._limit if self._cut_at else 1.0))

    def slow_down(self, sent_at: float, pause: float = 0.0) -> None:
        """Halve the concurrency, unless already halved since ``sent_at``; send nothing for ``pause`` seconds."""
        now = time.monotonic()
        self._resume_at = max(self._resume_at, now + pause)
        if sent_at >= self._cut_at:
            self._limit = max(1.0, self._limit / 2)
            self._cut_at = now


class Breaker:
    """Stops a run whose endpoint no longer answers, instead of letting each of its requests fail.

    Before the first answer it gives up soon: there is most likely no server. After it a run waits out temporary faults.

    ``if_unreachable`` says what to do if no connection can be made.
    """

    def __init__(self, *, requests_at_once: int, tries: int, answered: bool = False, if_unreachable: str = "") -> None:
        self._most_broken = requests_at_once * min(3, tries)
        self._most_unreached = min(BREAKER, self._most_broken)
        self._started = time.monotonic()
        self._answered = answered
        self._if_unreachable = if_unreachable
        self._unreached = 0
        self._broken = 0
        self._failed = 0
        self.refused = 0  # texts, in a row
        self._patience = SEVERAL if answered else 1

    def answered(self) -> None:
        self._answered = True
        self._failed = self.refused = 0
        self._patience = SEVERAL

    def unreachable(self) -> None:
        """Record a try without a connection; before the first answer a few of these raise Unreachable."""
        self._unreached += 1
        if not self._answered and self._unreached >= self._most_unreached:
            raise Unreachable("The endpoint does not answer: no connection could be made.", self._if_unreachable)

    def broken(self, reason: str, *, starting: bool) -> None:
        """Record that a request reached a server but got no answer, for this ``reason``.

        Before the first answer, three tries of each request raise a ModelError, or a timeout while it is ``starting``.
        """
        self._broken += not starting
        waited = starting and time.monotonic() - self._started >= STARTING_SECONDS
        if not self._answered and (waited or self._broken >= self._most_broken):
            raise ModelError(
                f"The endpoint does not answer: {reason}.",
                "Check the base URL and the server with `understudy models check`; stored answers are kept, and the "
                "same command resumes.",
            )

    def failed(self, reason: str) -> None:
        """Record a request that failed after all tries; raise ModelError if too many failed in a row."""
        self._failed += 1
        if self._failed >= BREAKER:
            raise ModelError(
                f"The endpoint does not answer: {BREAKER} requests in a row failed, the last because {reason}.",
                "Check the endpoint with `understudy models check`; stored answers are kept, and the same command "
                "resumes.",
            )

    def suspects(self, fewest: int) -> bool:
        """Return whether enough texts, at least ``fewest``, were refused to test the endpoint with a plain question."""
        return self.refused >= max(fewest, self._patience)

    def cleared(self) -> None:
        """Record that a plain question was answered. The next one is asked after twice as many refused texts."""
        self._answered = True
        self._patience = 2 * self.refused
