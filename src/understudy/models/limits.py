"""How fast and how far a client may go: adaptive concurrency, backoff, circuit breaker and caps.

Nothing here knows HTTP bodies; :mod:`understudy.models.endpoint` reports what happened and asks before
it sends.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from understudy.base.errors import ConfigError, ModelError

LONGEST_WAIT = 60.0
"""Seconds; no Retry-After and no backoff waits longer."""

BREAKER = 20
"""Requests in a row without an answer after which the endpoint counts as gone."""

SEVERAL = 3
"""Refused texts in a row after which an endpoint that has answered may refuse everything."""

STARTING_SECONDS = 30.0
"""How long an endpoint that never answered may say that it is not ready (HTTP 503, 529): servers load their models."""

SILENT_SECONDS = 15.0
"""After so long without an answer from an endpoint the user is told, and again each time that it has doubled."""

CHARACTERS_PER_TOKEN = 32
"""An answer is cut at so many characters for each token that it was allowed (real ones have some 4) ..."""

LEAST_CHARACTERS = 1000
"""... and no shorter than this."""

BODY_BYTES_PER_TOKEN = 1024
"""An HTTP body is read up to so many bytes for each token, reasoning and escapes included ..."""

LEAST_BODY_BYTES = 1 << 20
"""... and no less than this."""

LIST_BYTES = 16 << 20
"""The body of an endpoint's list of models is read up to here."""

TOKENS_PER_BYTE = 0.5
"""A generous first guess at a prompt's tokens per UTF-8 byte, until the endpoint reports its usage."""


class Unreachable(ModelError):
    """No connection to the endpoint could be made."""


def most_characters(max_tokens: int) -> int:
    """Characters of an answer that are kept."""
    return max(LEAST_CHARACTERS, CHARACTERS_PER_TOKEN * max_tokens)


def most_body_bytes(max_tokens: int) -> int:
    """Bytes of a response that are read."""
    return max(LEAST_BODY_BYTES, BODY_BYTES_PER_TOKEN * max_tokens)


def backoff(tries: int, base: float) -> float:
    """Seconds to wait after ``tries`` failed tries: exponential in ``base`` seconds, with jitter."""
    return min(LONGEST_WAIT, base * 2.0 ** (tries - 1)) * random.uniform(0.5, 1.0)


def retry_after(header: str | None) -> float:
    """Seconds that a ``Retry-After`` header (seconds or an HTTP date) asks for, in [0, LONGEST_WAIT]."""
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
    """Tokens of prompts and of answers."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.prompt_tokens + other.prompt_tokens, self.completion_tokens + other.completion_tokens)

    def __sub__(self, other: Usage) -> Usage:
        return Usage(self.prompt_tokens - other.prompt_tokens, self.completion_tokens - other.completion_tokens)

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class Budget:
    """What has been used, what is in flight at its worst, and whether one more request fits.

    Args:
        token_cap: most tokens, prompts and answers together; None for no cap.
        spending_cap: most money, in the unit of the prices; None for no cap. Needs both prices.
        price_per_million_input, price_per_million_output: of a million prompt or answer tokens.

    Raises:
        ConfigError: a cap that is not positive, or a spending cap without prices.
    """

    def __init__(
        self,
        *,
        token_cap: int | None,
        spending_cap: float | None,
        price_per_million_input: float | None,
        price_per_million_output: float | None,
    ) -> None:
        if (token_cap is not None and token_cap <= 0) or (spending_cap is not None and not spending_cap > 0):
            raise ConfigError("A cap must be larger than 0.", "Leave the cap away to have none.")
        if spending_cap is not None and (price_per_million_input is None or price_per_million_output is None):
            raise ConfigError(
                "A spending cap needs the model's prices.",
                "Give the price of a million input tokens and of a million output tokens.",
            )
        self._token_cap = token_cap
        self._spending_cap = spending_cap
        self._input = (price_per_million_input or 0.0) / 1e6
        self._output = (price_per_million_output or 0.0) / 1e6
        self._tokens_per_byte: float | None = None
        self._in_flight = Usage()
        self.used = Usage()

    def cost(self, usage: Usage) -> float:
        return usage.prompt_tokens * self._input + usage.completion_tokens * self._output

    def worst(self, prompt_bytes: int, max_tokens: int) -> Usage:
        """The most that a request can use; its prompt's tokens are estimated from its length."""
        return Usage(int(prompt_bytes * (self._tokens_per_byte or TOKENS_PER_BYTE)) + 16, max_tokens)

    def cap_reached(self, worst: Usage) -> ModelError | None:
        """The error to raise if ``worst`` on top of everything used and in flight breaks a cap."""
        then = self.used + self._in_flight + worst
        if self._token_cap is not None and then.tokens > self._token_cap:
            return _cap_error("token", "--token-cap")
        if self._spending_cap is not None and self.cost(then) > self._spending_cap:
            return _cap_error("spending", "--spending-cap")
        return None

    def reserve(self, worst: Usage) -> None:
        self._in_flight += worst

    def settle(self, worst: Usage, used: Usage) -> None:
        """Replace a reservation with what was used."""
        self._in_flight -= worst
        self.used += used

    def learn(self, prompt_bytes: int, prompt_tokens: int) -> None:
        """Take the largest tokens per byte seen as the estimate for prompts to come."""
        self._tokens_per_byte = max(self._tokens_per_byte or 0.0, prompt_tokens / max(prompt_bytes, 1))


def _cap_error(name: str, option: str) -> ModelError:
    return ModelError(
        f"The {name} cap is reached.",
        f"Raise {option}; stored answers are kept, and the same command resumes.",
    )


class Pace:
    """Adaptive concurrency: additive increase on success, halved on congestion (AIMD, as TCP does).

    A burst of refusals is one sign of congestion: only a request sent after the last cut can cut again.
    """

    def __init__(self, most: int) -> None:
        self._most = float(most)
        self._limit = float(most)
        self._cut_at = 0.0
        self._resume_at = 0.0
        self._waiting: list[asyncio.Future[None]] = []
        self.in_flight = 0

    @property
    def limit(self) -> int:
        return int(self._limit)

    async def enter(self, budget: Budget, worst: Usage) -> float:
        """Wait for a place and for room in the budget; return the moment of sending.

        Raises a ModelError where a cap is reached with nothing in flight that could turn out smaller.
        """
        while True:
            pause = self._resume_at - time.monotonic()
            if pause > 0:
                await asyncio.sleep(pause)
            elif self.in_flight >= self.limit:
                await self._change()
            elif error := budget.cap_reached(worst):
                if self.in_flight == 0:
                    raise error
                await self._change()
            else:
                self.in_flight += 1
                budget.reserve(worst)
                return time.monotonic()

    def leave(self) -> None:
        self.in_flight -= 1
        self._wake()

    def speed_up(self) -> None:
        self._limit = min(self._most, self._limit + 1.0 / self._limit)

    def slow_down(self, sent_at: float, pause: float = 0.0) -> None:
        """Halve, unless already halved since ``sent_at``; let nobody send for ``pause`` seconds."""
        now = time.monotonic()
        self._resume_at = max(self._resume_at, now + pause)
        if sent_at >= self._cut_at:
            self._limit = max(1.0, self._limit / 2)
            self._cut_at = now

    async def _change(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class Breaker:
    """Stops a run against an endpoint that is gone, instead of failing every request of it.

    Before the first answer it is impatient: there is most likely nobody. After it a run waits out what passes.

    Args:
        requests_at_once: how many requests the run has in flight at most.
        tries: how often a request is tried.
        answered: whether the endpoint has ever answered.
        if_unreachable: what to do where no connection can be made.
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
        """A try found nobody; before the first answer a few of these raise Unreachable."""
        self._unreached += 1
        if not self._answered and self._unreached >= self._most_unreached:
            raise Unreachable("The endpoint does not answer: no connection could be made.", self._if_unreachable)

    def broken(self, reason: str, *, starting: bool) -> None:
        """A try reached something that gave no answer, for this ``reason``.

        Before the first answer three tries of each request raise a ModelError; where it said that it is ``starting``,
        time.
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
        """A request failed for good; a ModelError where it is the last of too many in a row."""
        self._failed += 1
        if self._failed >= BREAKER:
            raise ModelError(
                f"The endpoint does not answer: {BREAKER} requests in a row failed, the last because {reason}.",
                "Check the endpoint with `understudy models check`; stored answers are kept, and the same command "
                "resumes.",
            )

    def suspects(self, fewest: int) -> bool:
        """Whether so many texts, ``fewest`` or more, were refused that a plain question should show if all are."""
        return self.refused >= max(fewest, self._patience)

    def cleared(self) -> None:
        """A plain question was answered: twice as many texts may be refused before the next one."""
        self._answered = True
        self._patience = 2 * self.refused
