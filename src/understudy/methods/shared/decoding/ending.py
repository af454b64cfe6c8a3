"""When a text decoded token by token ends: at an end token, a stop string, the close of a record, or its longest
length.

For a record it also says what must follow a value: the next column's name, which is public. Writing that instead of
decoding it saves private tokens, and gives records that parse. Everything here is a function of tokens decoded before
and of public parameters, so it costs no privacy.

Each token is converted to characters once, with a few of its neighbours, never with the whole text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from understudy.models.causal import CausalModel
from understudy.text.prompts.predicting import PredictionPrompt, Shape

Ended = Literal["token", "stop", "closed", "length"]
"""How a text ended: by an end token, by a stop string, by the close of the record, or at the largest number of
tokens."""
_HALF = "\ufffd"
_MOST_HELD = 4  # bytes of the longest character in UTF-8: longer undecodable bytes are not an incomplete character


@dataclass(frozen=True)
class Ending:
    """The conditions that end a text."""

    stop: tuple[str, ...]  # strings that end it and are not part of it; white space before the text ends nothing
    opening: str  # the beginning, before the first decoded token
    most_tokens: int  # largest number of tokens, including written ones, without the one that ends it
    shape: Shape = "text"  # ``json`` ends when the object closes
    columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, prompt: PredictionPrompt, *, most_tokens: int) -> Ending:
        """Return the ending of texts that ``prompt`` asks for."""
        return cls(prompt.stop, prompt.opening, most_tokens, prompt.shape, prompt.columns)

    def open(self, model: CausalModel) -> OpenText:
        """Return the state of a text that has no tokens yet."""
        return OpenText(self, model)

    def read(self, tokens: Iterable[int], model: CausalModel) -> OpenText:
        """Decode ``tokens`` and return the text up to its end."""
        text = self.open(model)
        for token in tokens:
            if text.ended is None:
                text.take(token)
        return text


@dataclass
class OpenText:
    """A text that grows token by token. ``ended`` says why it ended; None while it goes on."""

    ending: Ending
    model: CausalModel
    ended: Ended | None = None
    _tokens: list[int] = field(default_factory=list)
    _text: str = ""
    _shown_from: int = 0
    _shown_to: int = 0
    _record: _Object | None = None

    def __post_init__(self) -> None:
        if self.ending.shape == "json":
            self._record = _Object(self.ending.columns)
        self._write(self.ending.opening)

    @property
    def text(self) -> str:
        """Return the text so far, without its end, an incomplete character, or space around it."""
        return self._text.strip()

    @property
    def next(self) -> str:
        """Return the characters that must follow in a record, up to the next value; empty if none. The caller may write
        them without sampling."""
        certain = self.ended is None and self._shown_to == len(self._tokens)
        return self._record.next if self._record is not None and certain else ""

    def take(self, token: int) -> bool:
        """Add a token; return whether the text has ended."""
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
        """Return the text that became certain with the newest token: empty while a character is incomplete.

        A tail of tokens is decoded with and without the ones shown before, since some tokenizers write a token
        differently at the beginning of a text.
        """
        shown, whole = self._tail()
        held = len(self._tokens) - self._shown_to
        if len(whole) <= len(shown) or (whole.endswith(_HALF) and held < _MOST_HELD):
            return ""
        self._shown_from, self._shown_to = self._shown_to, len(self._tokens)
        return whole[len(shown) :]

    def _undecided(self) -> str:
        """Return the characters held back so far, when the text ends, without an incomplete one."""
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
        if self._record is not None and (closed := self._record.read(new)) is not None:
            ends.append((len(self._text) + closed, "closed"))
        if ends:
            place, self.ended = min(ends)
            written = written[:place]
        self._text = written


@dataclass
class _Object:
    """Follows a JSON object from column to column, to where it closes."""

    columns: tuple[str, ...]
    _depth: int = 0
    _in_string: bool = False
    _escaped: bool = False
    _begun: int = 0
    """Values that have begun: colons of the outermost object."""
    _value_open: bool = False
    _since: str = ""
    """The characters written after the last complete value."""

    def read(self, new: str) -> int | None:
        """Return the position in ``new`` after the bracket that closes the object, or None."""
        for place, char in enumerate(new):
            self._follow(char)
            if char in "}]" and not self._in_string and self._depth <= 0:
                return place + 1
        return None

    @property
    def next(self) -> str:
        """Return the characters that must follow a complete value; empty if others were already written."""
        if self._value_open or not 0 < self._begun <= len(self.columns):
            return ""
        if self._begun == len(self.columns):
            return "" if self._since else "}"
        key = json.dumps(self.columns[self._begun], ensure_ascii=False) + ":"
        fits = [whole for whole in (f", {key}", f",{key}") if whole.startswith(self._since)]
        return fits[0][len(self._since) :] if fits else ""

    def _follow(self, char: str) -> None:
        outermost = self._depth == 1
        if not self._value_open:
            self._since += char
        if self._escaped:
            self._escaped = False
        elif self._in_string:
            self._escaped = char == "\\"
            self._in_string = char != '"'
            if not self._in_string and outermost:
                self._end_value()
        elif char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            if self._depth == 1:
                self._end_value()
        elif char == ":" and outermost:
            self._begun += 1
            self._value_open = True
        elif char == "," and outermost and self._value_open:  # after a number, true, false or null
            self._end_value()
            self._since = char

    def _end_value(self) -> None:
        if self._value_open:
            self._value_open = False
            self._since = ""
