"""When a text that is drawn token by token has ended: at a token, a stop string, the close of a record, or its longest.

Each token is decoded once, with a few of its neighbours; the whole text never again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from understudy.generation.predicting import PredictionPrompt

Ended = Literal["token", "stop", "closed", "length"]
"""By a token that ends a text, by a stop string, by the close of the record, or at the most tokens."""

_HALF = "\ufffd"
_MOST_HELD = 4  # bytes of the longest character in UTF-8: what is longer undecided is no half of one


class TokenDecoder(Protocol):
    """What of a causal model makes text of tokens."""

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end a text."""
        ...

    def decode(self, tokens: Sequence[int]) -> str: ...


@dataclass(frozen=True)
class Ending:
    """What ends a text.

    Args:
        stop: strings that end it and are no part of it; white space before the text ends nothing.
        opening: what it begins with, before the first token drawn.
        braces: it is one JSON object: ends where that closes.
        lines: ends after so many lines; 0 for any number.
        most_tokens: the most tokens drawn, the one that ends it not counted.
    """

    stop: tuple[str, ...]
    opening: str
    braces: bool
    lines: int
    most_tokens: int

    @classmethod
    def of(cls, prompt: PredictionPrompt, *, most_tokens: int) -> Ending:
        """The ending of texts that ``prompt`` asks for."""
        return cls(
            stop=prompt.stop,
            opening=prompt.opening,
            braces=prompt.shape == "json",
            lines=len(prompt.columns) if prompt.shape == "lines" else 0,
            most_tokens=most_tokens,
        )

    def open(self, model: TokenDecoder) -> OpenText:
        """A text of which nothing is drawn yet."""
        text = OpenText(self, model)
        text._write(self.opening)
        return text

    def read(self, tokens: Iterable[int], model: TokenDecoder) -> OpenText:
        """The text of ``tokens`` that were drawn before, up to its end."""
        text = self.open(model)
        for token in tokens:
            if text.ended is None:
                text.take(token)
        return text


@dataclass
class OpenText:
    """A text that grows by tokens, until ``ended`` says why it has ended."""

    ending: Ending
    model: TokenDecoder
    ended: Ended | None = None
    _tokens: list[int] = field(default_factory=list)
    _text: str = ""
    _shown_from: int = 0
    _shown_to: int = 0
    _braces: _Braces = field(default_factory=lambda: _Braces())
    _lines: int = 0

    @property
    def text(self) -> str:
        """So far, or of a text that has ended the whole: without its end, half a character, or space around it."""
        return self._text.strip()

    @property
    def tokens(self) -> int:
        """How many were taken, one that ended the text not counted."""
        return len(self._tokens)

    def take(self, token: int) -> bool:
        """Add a token; whether the text has ended."""
        if token in self.model.ends:
            self._write(self._undecided())
            self.ended = self.ended or "token"
            return True
        self._tokens.append(token)
        new = self._decoded()
        if new:
            self._write(new)
        if self.ended is None and len(self._tokens) >= self.ending.most_tokens:
            self._write(self._undecided())
            self.ended = self.ended or "length"
        return self.ended is not None

    def _decoded(self) -> str:
        """Text that became certain with the newest token: none while a character is not whole.

        A tail of tokens is decoded with and without what is shown already, since some tokenizers write a token
        differently at the beginning of a text.
        """
        shown, whole = self._tail()
        held = len(self._tokens) - self._shown_to
        if len(whole) <= len(shown) or (whole.endswith(_HALF) and held < _MOST_HELD):
            return ""
        self._shown_from, self._shown_to = self._shown_to, len(self._tokens)
        return whole[len(shown) :]

    def _undecided(self) -> str:
        """What was held back, as a text ends: without half a character."""
        shown, whole = self._tail()
        self._shown_from = self._shown_to = len(self._tokens)
        return whole[len(shown) :].rstrip(_HALF)

    def _tail(self) -> tuple[str, str]:
        tail = self._tokens[self._shown_from :]
        shown = self.model.decode(tail[: self._shown_to - self._shown_from])
        return shown, self.model.decode(tail)

    def _write(self, new: str) -> None:
        """Add text, or as much of it as comes before an end."""
        if not new:
            return
        longest = max(map(len, self.ending.stop), default=1)
        written = self._text + new
        start = max(len(written) - len(written.lstrip()), len(self._text) - longest + 1)
        ends: list[tuple[int, Ended]] = [
            (place, "stop") for stop in self.ending.stop if (place := written.find(stop, start)) >= 0
        ]
        if self.ending.braces and (closed := self._braces.close(new)) is not None:
            ends.append((len(self._text) + closed, "closed"))
        if self.ending.lines and (line := self._line_end(new)) is not None:
            ends.append((len(self._text) + line, "closed"))
        if ends:
            place, self.ended = min(ends)
            written = written[:place]
        self._text = written

    def _line_end(self, new: str) -> int | None:
        """Where in ``new`` the last line ends."""
        for place, char in enumerate(new):
            if char == "\n":
                self._lines += 1
                if self._lines == self.ending.lines:
                    return place
        return None


@dataclass
class _Braces:
    """Follows a JSON object to where it closes."""

    _depth: int = 0
    _in_string: bool = False
    _escaped: bool = False

    def close(self, new: str) -> int | None:
        """The place in ``new`` after the bracket that closes the object, or None."""
        for place, char in enumerate(new):
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped = char == "\\"
                self._in_string = char != '"'
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    return place + 1
        return None
