"""Texts that have parts: several columns of one row, or a dialogue; each as one string that every method sees.

A part is a line that begins with its name and a colon. Further lines of its content follow as they are, with a
backslash before those that look like the beginning of a part.

>>> form = TextForm(roles=("customer", "agent"))
>>> text = form.render([("customer", "Hello?\\nagent: are you there"), ("agent", "Yes.")])
>>> print(text)
customer: Hello?
\\agent: are you there
agent: Yes.
>>> form.parse(text)
(('customer', 'Hello?\\nagent: are you there'), ('agent', 'Yes.'))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from understudy.errors import ConfigError

Part = tuple[str, str]
"""Whose it is (the field's or the role's name), and what it says."""

ROLE, CONTENT = "role", "content"
"""Keys of a turn in a table."""
TURNS, BEGINS = "turns", "begins"
"""Typed columns that are told from a dialogue."""
MOST_NAMES = 64
_LEADING = "#>*_\\"
"""What no name begins with: models put some of it before names, and a backslash stands before what is no name."""
_MARKS = frozenset(":{}[]")
"""What no name holds: what ends it, and the marks of prompt templates."""


@dataclass(frozen=True)
class TextForm:
    """What one record's text is made of. Public: it holds names alone.

    Args:
        fields: columns whose texts are written together, in this order.
        roles: of those who speak in a dialogue. With neither a text is one string, which is its own transcript.

    Raises:
        ConfigError: there are both, only one field, or names that cannot begin a line or be told apart.
    """

    fields: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.fields and self.roles:
            raise ConfigError(
                "Roles are declared for several text columns, and a dialogue is one column.",
                "Name the column of the dialogue alone with --text, or leave --roles out.",
            )
        if len(self.fields) == 1:
            raise ConfigError("One text column has no parts.", "Name it alone, or several.")
        what, where = ("role", "--roles") if self.roles else ("text column", "--text")
        for name in self.names:
            if not isinstance(name, str) or not name.strip() or name != name.strip() or not name.isprintable():
                raise ConfigError(f"A {what} has no name that can be shown.", f"Name them in {where} as A,B,C.")
            if name[0] in _LEADING or _MARKS.intersection(name):
                raise ConfigError(
                    f"The {what} {name!r:.60} cannot begin a line of a transcript.",
                    "Use a name without colons and brackets that begins with a letter.",
                )
        if len({name.casefold() for name in self.names}) < len(self.names):
            raise ConfigError(f"Two {what}s have the same name.", "Names differ by more than case.")
        if len(self.names) > MOST_NAMES:
            raise ConfigError(f"There are more than {MOST_NAMES} {what}s.", "Declare fewer.")

    def __bool__(self) -> bool:
        """Whether texts have parts."""
        return bool(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        return self.fields or self.roles

    def render(self, parts: Sequence[Part]) -> str:
        """The transcript, from which :meth:`parse` reads the very same parts."""
        return "\n".join(self._written(name, content) for name, content in parts)

    def parse(self, text: str) -> tuple[Part, ...] | None:
        """The parts of a transcript; None where it is none: a field is missing, or a line belongs to nobody."""
        parts: list[tuple[str, list[str]]] = []
        for line in text.split("\n"):
            if begins := self._begins.match(line):
                parts.append((begins[1], [line[begins.end() :]]))
            elif parts:
                parts[-1][1].append(line[1:] if self._escaped.match(line) else line)
            else:
                return None
        return self._whole([(name, "\n".join(lines)) for name, lines in parts])

    def read(self, answer: str, *, complete: bool = True, cut: bool = False) -> str | None:
        """The transcript in what a model wrote: names in any case or in bold, contents without white space around them,
        and nothing of what is said before the first part. None where there is none: a part says nothing, or fields are
        missing, too many, or in another order.

        Args:
            complete: False for a model that has learnt such texts: fields may say nothing, though not all of them, and
                the last part may have blank lines. Else it ends before the first one.
            cut: the answer broke off: the last turn of several is left out.
        """
        parts: list[tuple[str, list[str]]] = []
        for line in answer.split("\n"):
            if begins := self._looks_like.match(line):
                assert begins.lastindex is not None
                parts.append((self.names[begins.lastindex - 1], [line[begins.end() :]]))
            elif parts:
                parts[-1][1].append(line[1:] if self._escaped.match(line) else line)
        if cut and self.roles and len(parts) > 1:
            parts.pop()
        said = [(name, "\n".join(lines).strip()) for name, lines in parts]
        if complete and said:  # behind a blank line models talk about what they wrote
            said[-1] = said[-1][0], _BLANK_LINE.split(said[-1][1])[0].rstrip()
        found = self._whole(said)
        if found is None:
            return None
        says = all if complete or self.roles else any
        return self.render(found) if says(content for _, content in found) else None

    def contents(self, text: str) -> str:
        """What a transcript says, without the names; another text as it is."""
        parts = self.parse(text) if self else None
        return text if parts is None else "\n".join(content for _, content in parts)

    def each(self, text: str, change: Callable[[str], str]) -> str:
        """A transcript with every content changed; another text changed as a whole."""
        parts = self.parse(text) if self else None
        return change(text) if parts is None else self.render([(name, change(content)) for name, content in parts])

    def cells(self, column: str, text: str) -> dict[str, Any]:
        """A transcript as the columns that it was read from: strings (None for nothing), or the turns of a dialogue; a
        text without parts as one column.

        Args:
            column: of the plain texts, or of the dialogues.
        """
        if not self:
            return {column: text}
        parts = self.parse(text) or ()
        if self.fields:
            return dict.fromkeys(self.fields) | {name: content or None for name, content in parts}
        return {column: [{ROLE: role, CONTENT: content} for role, content in parts]}

    def columns(self, column: str) -> tuple[str, ...]:
        """Those that a text is made of, where ``column`` is that of the plain texts or of the dialogues."""
        return self.fields or (column,)

    @property
    def told(self) -> tuple[str, ...]:
        """Names of the typed columns that are told from a text."""
        return (TURNS, BEGINS) if self.roles else ()

    def tell(self, text: str) -> dict[str, int | str]:
        """The values of these columns: how many turns a transcript has, and who begins."""
        parts = (self.parse(text) if self.roles else None) or ()
        return {TURNS: len(parts), BEGINS: parts[0][0]} if parts else {}

    def shortened(self, text: str, turns: int) -> str:
        """The first ``turns`` turns of a dialogue, at least one."""
        return self.render((self.parse(text) or ())[: max(turns, 1)])

    def to_json(self) -> dict[str, list[str]]:
        return {"fields": list(self.fields), "roles": list(self.roles)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Sequence[str]]) -> TextForm:
        return cls(tuple(fields.get("fields", ())), tuple(fields.get("roles", ())))

    def _whole(self, parts: list[Part]) -> tuple[Part, ...] | None:
        there = [name for name, _ in parts]
        return tuple(parts) if (there == list(self.fields) if self.fields else parts) else None

    def _written(self, name: str, content: str) -> str:
        first, *others = content.split("\n")
        lines = (f"\\{line}" if self._looks_like.match(line.lstrip("\\")) else line for line in others)
        return "\n".join([f"{name}: {first}" if content else f"{name}:", *lines])

    @cached_property
    def _begins(self) -> re.Pattern[str]:
        return re.compile(rf"({'|'.join(map(re.escape, self.names))}):(?: |\Z)")

    @cached_property
    def _looks_like(self) -> re.Pattern[str]:
        names = "|".join(f"({re.escape(name)})" for name in self.names)
        return re.compile(rf"[ \t#>*_]*(?:{names})(?:\*\*|__)?[ \t]*:(?:\*\*|__)?[ \t]*", re.IGNORECASE)

    @cached_property
    def _escaped(self) -> re.Pattern[str]:
        return re.compile(rf"\\+{self._looks_like.pattern}", re.IGNORECASE)


_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
PLAIN = TextForm()


def text_columns(text: str | Sequence[str] | None) -> tuple[str, ...]:
    """The columns that are named: one, several as ``A,B,C`` or a list, or none."""
    if text is None:
        return ()
    return tuple(part.strip() for part in text.split(",")) if isinstance(text, str) else tuple(text)
