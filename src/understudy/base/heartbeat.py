"""Messages and progress as plain lines, with a sign of life while nothing else is shown."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

SECONDS = 10.0
"""Seconds between two lines about one stage, and of silence before a sign of life."""
_RARER = 6
"""Later signs of life come when the silence has become longer by one part in so many."""
_PHASE = re.compile(r"([A-Z])([a-z]+ing [a-z ]+)\.")


class PlainLines:
    """Shows messages, and progress as occasional lines, if there is no terminal."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._doing = say, "working"
        self._last = self._heard = time.monotonic()

    def say(self, line: str) -> None:
        """Show a message. If it is a phase, such as "Reading the private records.", signs of life name it."""
        phase = _PHASE.match(line)
        self._heard, self._doing = time.monotonic(), f"{phase[1].lower()}{phase[2]}" if phase else "working"
        self._say(line)

    def __call__(self, what: str, done: int, total: int) -> None:
        self._heard = time.monotonic()
        if done and (done == total or self._heard - self._last >= SECONDS):
            self._last = self._heard
            self._say(f"{what}: {done} of {total}")

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Within the block, show a sign of life after ten seconds of silence and then ever more rarely: the time alone,
        because how many private records remain is private."""
        ended = Event()
        thread = Thread(target=self._beat, args=(ended,), name="understudy-heartbeat", daemon=True)
        self._heard = time.monotonic()
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _beat(self, ended: Event) -> None:
        heard, shown = self._heard, 0.0
        while not ended.wait(heard + shown + max(SECONDS, shown / _RARER) - time.monotonic()):
            if self._heard != heard:
                heard, shown = self._heard, 0.0
            elif (shown := time.monotonic() - heard) >= SECONDS:
                self._say(f"Still {self._doing} ({shown:.0f} s).")
