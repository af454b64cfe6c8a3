"""Write texts that have parts (several columns of one row, or a dialogue) as one string for all methods.

A part is a line that begins with its name and a colon. Further lines of its content follow unchanged, with a
backslash before those that look like the beginning of a part.

>>> form = TextForm(roles=("customer", "agent"), acts=("greet", "ask"), tools=("search",))
>>> call = Part("agent", '{"order": 7}', tool="search")
>>> parts = [Part("customer", "Hello?\\nagent: are you there", act="ask"), call, Part(TOOL, "sent", tool="search")]
>>> text = form.render(parts)
>>> print(text)
customer (ask): Hello?
\\agent: are you there
agent calls search: {"order": 7}
search returns: sent
>>> form.parse(text) == tuple(parts)
True
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

from understudy.base.errors import ConfigError
from understudy.base.lazy import pa
from understudy.base.listed import comma_separated
from understudy.base.untrusted import parse_json, said

ROLE, CONTENT, ACT = "role", "content", "act"
"""Keys of a turn in a table."""
TOOL = "tool"
"""The role of a tool that answers, where tools are declared."""
TOOL_CALLS, TOOL_CALL_ID, NAME, ID, TYPE, FUNCTION, ARGUMENTS = (
    *("tool_calls", "tool_call_id", "name"),
    *("id", "type", "function", "arguments"),
)
"""Keys of a turn that calls tools, and of one that answers; and of a call."""
TURNS, BEGINS, ENDS, CALLS = "turns", "begins", "ends", "calls"
"""Typed columns that are computed from a dialogue; ``turns.ACT`` and ``calls.TOOL`` are others."""
MOST_NAMES = 64
_LEADING = "#>*_\\"
"""Characters that no name begins with: models put some of them before names, and a backslash escapes other lines."""
_MARKS = frozenset(":{}[]")
"""Characters that no name contains: those that end it, and the marks of prompt templates."""
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NEVER = "(?!)"
_EXACT = 2**53  # whole numbers up to here are the same as integers and as floats


class Part(NamedTuple):
    """One part of a text: a field, or what one speaker says or calls.

    Attributes:
        name: the name of the field or role, or :data:`TOOL` if a tool answers.
        content: the text; for a call its arguments, a JSON object (see :func:`json_line`).
        act: one of the declared acts; empty for none.
        tool: the tool that is called, or that answers; empty if the part is speech.
    """

    name: str
    content: str
    act: str = ""
    tool: str = ""

    @property
    def calls(self) -> bool:
        """Return whether the part is a call of a tool."""
        return bool(self.tool) and self.name != TOOL

    @property
    def answers(self) -> bool:
        """Return whether the part is the answer of a tool."""
        return bool(self.tool) and self.name == TOOL


@dataclass(frozen=True)
class TextForm:
    """The parts that the text of a record has. Public, because it contains only names.

    Args:
        fields: columns whose texts are written together, in this order.
        roles: the speakers of a dialogue. Without fields and roles a text is one string, and that is its transcript.
        acts: the possible acts of a dialogue's turn.
        tools: the tools that speakers may call. Calls follow the words of their turn, and are answered right after
            it, in their order; only calls at the end of a dialogue may be unanswered.
    """

    fields: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    acts: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.fields and self.roles:
            raise ConfigError(
                "Roles are declared for several text columns, but a dialogue is one column.",
                "Name only the column of the dialogue with --text, or leave --roles out.",
            )
        if len(self.fields) == 1:
            raise ConfigError(
                "Only one text column is named, but as a list of several.",
                "Give --text COLUMN for one column, or name several.",
            )
        if (self.acts or self.tools) and not self.roles:
            raise ConfigError(
                "Acts or tools are declared without roles, but they belong to the turns of a dialogue.",
                "Declare the speakers with --roles A,B, or leave --acts and --tools out.",
            )
        what, where = ("role", "--roles") if self.roles else ("text column", "--text")
        _require_names(self.names, what, where)
        _require_names(self.acts, "act", "--acts", marks=_MARKS.union("()"))
        if unfit := [name for name in self.tools if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name)]:
            raise ConfigError(
                f"The tool {unfit[0]!r:.60} has a name that is not allowed for functions.",
                "Use at most 64 letters, digits, _, - and points (--tools).",
            )
        _require_names(self.tools, "tool", "--tools", leading="")
        if self.tools and TOOL in map(str.casefold, self.roles):
            raise ConfigError(f"The role {TOOL!r} is reserved for the declared tools.", f"Leave {TOOL} out of --roles.")
        said = [Part(name, "", act) for name in self.names for act in ("", *self.acts)]
        used = [Part(name, "", tool=tool) for name in (*self.names, TOOL) for tool in self.tools]
        heads = Counter(_head(part).casefold() for part in (*said, *used))
        if twice := [head for head, times in heads.items() if times > 1]:
            raise ConfigError(
                f"In a transcript {twice[0]!r:.80} would be ambiguous.", "Rename a role, an act or a tool."
            )

    def __bool__(self) -> bool:
        return bool(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        return self.fields or self.roles

    def render(self, parts: Iterable[Part]) -> str:
        """Return the transcript, from which :meth:`parse` reads exactly the same parts."""
        return "\n".join(map(self._written, parts))

    def parse(self, text: str) -> tuple[Part, ...] | None:
        """Return the parts of a transcript; None if a field is missing, a line has no speaker, or a call is invalid or
        unanswered."""
        parts: list[tuple[Part, list[str]]] = []
        for line in text.split("\n"):
            if begins := self._begins.match(line):
                name, act, called, answers = begins.groups(default="")
                parts.append((Part(name or TOOL, "", act, called or answers), [line[begins.end() :]]))
            elif parts:
                parts[-1][1].append(line[1:] if self._escaped.match(line) else line)
            else:
                return None
        return self.whole([part._replace(content="\n".join(lines)) for part, lines in parts])

    def read(self, answer: str, *, complete: bool = True, cut: bool = False) -> str | None:
        """Return the transcript in a model's answer: names may be in any case or bold, white space around contents and
        text before the first part are dropped. None if there is none: a part is empty, an act or a tool is not
        declared, a call is not JSON or not answered, or fields are missing, too many, or in a different order.

        Args:
            complete: False for a model that was trained on such texts: some fields may be empty, and the last part may
                have blank lines. Otherwise it ends before the first one.
            cut: the answer was cut off: the last turn of several is left out.
        """
        parts: list[tuple[Part, list[str]]] = []
        for line in answer.split("\n"):
            if begins := self._looks_like.match(line):
                part = self._meant(*begins.groups())
                if part is None:
                    return None
                parts.append((part, [line[begins.end() :]]))
            elif parts:
                parts[-1][1].append(line[1:] if self._escaped.match(line) else line)
        if cut and self.roles and len(parts) > 1:
            parts.pop()
        said = [part._replace(content="\n".join(lines).strip()) for part, lines in parts]
        if complete and said:  # after a blank line models comment on their text
            said[-1] = said[-1]._replace(content=_BLANK_LINE.split(said[-1].content)[0].rstrip())
        said = [part._replace(content=json_line(part.content) or "") if part.calls else part for part in said]
        found = self.whole(_unbroken(said) if cut else said)
        if found is None:
            return None
        says = all if complete or self.roles else any
        return self.render(found) if says(part.content or part.answers for part in found) else None

    def contents(self, text: str, *, everything: bool = False) -> str:
        """Return the contents of a transcript, without the names; for JSON (arguments, answers of tools) the values,
        with ``everything`` also the names. Any other text stays as it is.
        """
        parts = self.parse(text) if self else None
        if parts is None:
            return text
        return "\n".join(line for part in parts for line in said(part.content, everything=everything))

    def each(self, text: str, change: Callable[[str], str]) -> str:
        """Return a transcript with ``change`` applied to all contents except calls; any other text is changed as a
        whole."""
        parts = self.parse(text) if self else None
        if parts is None:
            return change(text)
        return self.render(part if part.calls else part._replace(content=change(part.content)) for part in parts)

    def cells(self, column: str, text: str) -> dict[str, Any]:
        """Convert a transcript to the columns that it was read from: strings (None if empty), or the turns of a
        dialogue. A text without parts becomes the one column ``column``."""
        if not self:
            return {column: text}
        if self.fields:
            parts = self.parse(text) or ()
            return dict.fromkeys(self.fields) | {part.name: part.content or None for part in parts}
        return {column: self.messages(text)}

    def messages(self, text: str) -> list[dict[str, Any]]:
        """Return the turns of a dialogue as in a table, with new ids for calls. Keys without a value are left out,
        except the content of a turn that calls a tool without words. Empty for text that is not a transcript."""
        numbers = count(1)
        waiting: deque[str] = deque()
        turns = []
        for first, *others in turns_of(self.parse(text) or ()):
            if first.answers:
                answers = {TOOL_CALL_ID: waiting.popleft(), NAME: first.tool}
                turns.append({ROLE: TOOL, CONTENT: first.content, **answers})
                continue
            turn: dict[str, Any] = {ROLE: first.name, CONTENT: None if first.calls else first.content}
            if first.act:
                turn[ACT] = first.act
            if calls := [part for part in (first, *others) if part.calls]:
                waiting = deque(f"call_{next(numbers)}" for _ in calls)
                turn[TOOL_CALLS] = [
                    {ID: name, TYPE: FUNCTION, FUNCTION: {NAME: part.tool, ARGUMENTS: part.content}}
                    for name, part in zip(waiting, calls, strict=True)
                ]
            turns.append(turn)
        return turns

    def arrow_type(self) -> Any:
        """Return the Arrow type of a column of :meth:`messages`."""
        keys = {ROLE: pa.string(), CONTENT: pa.string()}
        if self.acts:
            keys[ACT] = pa.string()
        if self.tools:
            function = pa.struct([(NAME, pa.string()), (ARGUMENTS, pa.string())])
            call = pa.struct([(ID, pa.string()), (TYPE, pa.string()), (FUNCTION, function)])
            keys |= {TOOL_CALLS: pa.list_(call), TOOL_CALL_ID: pa.string(), NAME: pa.string()}
        return pa.list_(pa.struct(list(keys.items())))

    def columns(self, column: str) -> tuple[str, ...]:
        """Return the columns that a text is made of; ``column`` is that of plain texts or dialogues."""
        return self.fields or (column,)

    @property
    def told(self) -> tuple[str, ...]:
        """Return the names of the typed columns that are computed from a dialogue."""
        of_acts = (ENDS, *(f"{TURNS}.{act}" for act in self.acts)) if self.acts else ()
        return (TURNS, BEGINS, *of_acts, *(f"{CALLS}.{tool}" for tool in self.tools)) if self.roles else ()

    def tell(self, text: str) -> dict[str, int | str | None]:
        """Return the values of the computed columns: the number of turns, who begins, the act of the last turn (None
        without), the number of turns with each act, and the number of calls of each tool."""
        parts = (self.parse(text) if self.roles else None) or ()
        if not parts:
            return {}
        turns = turns_of(parts)
        acts, calls = Counter(part.act for part in parts), Counter(part.tool for part in parts if part.calls)
        return {
            TURNS: len(turns),
            BEGINS: parts[0].name,
            **({ENDS: turns[-1][0].act or None} if self.acts else {}),
            **{f"{TURNS}.{act}": acts[act] for act in self.acts},
            **{f"{CALLS}.{tool}": calls[tool] for tool in self.tools},
        }

    def shortened(self, text: str, turns: int) -> str:
        """Return the first ``turns`` turns of a dialogue, at least one, without incomplete answers of tools."""
        first = turns_of(self.parse(text) or ())[: max(turns, 1)]
        return self.render(_unbroken([part for turn in first for part in turn]))

    @property
    def settings(self) -> dict[str, list[str]]:
        """Return the settings that declare a dialogue; empty for other texts."""
        named = {"roles": self.roles, "acts": self.acts, "tools": self.tools}
        return {name: list(values) for name, values in named.items() if values}

    def to_json(self) -> dict[str, list[str]]:
        return {"fields": list(self.fields), "roles": [], **self.settings}

    @classmethod
    def from_json(cls, fields: Mapping[str, Sequence[str]]) -> TextForm:
        return cls(*(tuple(fields.get(name, ())) for name in ("fields", "roles", "acts", "tools")))

    def whole(self, parts: Sequence[Part]) -> tuple[Part, ...] | None:
        """Return ``parts`` if together they are a valid text of this form; else None."""
        if self.fields:
            return tuple(parts) if [part.name for part in parts] == list(self.fields) else None
        return tuple(parts) if parts and _answered(parts) else None

    def _meant(self, name: str | None, act: str | None, called: str | None, answers: str | None) -> Part | None:
        """Read the beginning of a part from a model's answer; None if a name is not declared, or a call has an act."""
        if act is not None and called is not None:
            return None
        role = TOOL if name is None else _spelled(name, self.names)
        does = "" if act is None else _spelled(act.strip(), self.acts)
        tool = _spelled(used, self.tools) if (used := called or answers) else ""
        return None if None in (role, does, tool) else Part(role or "", "", does or "", tool or "")

    def _written(self, part: Part) -> str:
        first, *others = part.content.split("\n")
        lines = (f"\\{line}" if self._looks_like.match(line.lstrip("\\")) else line for line in others)
        return "\n".join([f"{_head(part)}: {first}" if part.content else f"{_head(part)}:", *lines])

    @cached_property
    def _begins(self) -> re.Pattern[str]:
        names, acts, tools = (_any_of(names) for names in (self.names, self.acts, self.tools))
        return re.compile(rf"(?:({names})(?: \(({acts})\)| calls ({tools}))?|({tools}) returns):(?: |\Z)")

    @cached_property
    def _looks_like(self) -> re.Pattern[str]:
        bold, act, tool = r"(?:\*\*|__)?", r"[^()\n]*" if self.acts else _NEVER, r"[^\s:]+" if self.tools else _NEVER
        said = rf"({_any_of(self.names)}){bold}(?:[ \t]*\(({act})\))?(?:[ \t]+calls[ \t]+({tool}))?"
        return re.compile(
            rf"[ \t#>*_]*(?:{said}|({_any_of(self.tools)}){bold}[ \t]+returns){bold}[ \t]*:{bold}[ \t]*", re.IGNORECASE
        )

    @cached_property
    def _escaped(self) -> re.Pattern[str]:
        return re.compile(rf"\\+{self._looks_like.pattern}", re.IGNORECASE)


def json_line(text: str) -> str | None:
    """Return the text's JSON object on one line, in a form that is the same for all file formats: sorted keys, keys
    without a value left out, whole numbers without a point. None if it is not an object, or not every format can
    store it."""
    try:
        return json.dumps(_spelled_once(parse_json(text.encode())), ensure_ascii=False, sort_keys=True)
    except ValueError:
        return None


def _spelled_once(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _spelled_once(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_spelled_once(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT else value


def turns_of(parts: Sequence[Part]) -> list[list[Part]]:
    """Group parts into turns: the words of a speaker, and the calls after them."""
    turns: list[list[Part]] = []
    for part in parts:
        if part.calls and turns and turns[-1][0].name == part.name:
            turns[-1].append(part)
        else:
            turns.append([part])
    return turns


def _answered(parts: Sequence[Part]) -> bool:
    """Return whether every call is a JSON object, and the calls of a turn are answered right after it, in their order;
    those of the last turn may be unanswered."""
    waiting: deque[str] = deque()
    begun = False
    for place, part in enumerate(parts):
        if part.answers:
            if not waiting or waiting.popleft() != part.tool:
                return False
            begun = bool(waiting)
        elif part.calls:
            if begun or (waiting and parts[place - 1].name != part.name) or json_line(part.content) is None:
                return False
            waiting.append(part.tool)
        elif waiting:
            return False
    return not begun


def _unbroken(parts: list[Part]) -> list[Part]:
    """Drop the trailing answers if some are missing."""
    while parts and parts[-1].answers and not _answered(parts):
        parts = parts[:-1]
    return parts


def _head(part: Part) -> str:
    if part.tool:
        return f"{part.tool} returns" if part.answers else f"{part.name} calls {part.tool}"
    return f"{part.name} ({part.act})" if part.act else part.name


def _any_of(names: Sequence[str]) -> str:
    return "|".join(map(re.escape, sorted(names, key=len, reverse=True))) or _NEVER


def _spelled(found: str, names: Sequence[str]) -> str | None:
    """Return the declared name, ignoring case."""
    return next((name for name in names if re.fullmatch(re.escape(name), found, re.IGNORECASE)), None)


def _require_names(
    names: Sequence[str], what: str, where: str, *, marks: frozenset[str] = _MARKS, leading: str = _LEADING
) -> None:
    for name in names:
        if not isinstance(name, str) or not name.strip() or name != name.strip() or not name.isprintable():
            raise ConfigError(f"A {what} has no printable name.", f"Name them in {where} as A,B,C.")
        if name[0] in leading or marks.intersection(name):
            raise ConfigError(
                f"The {what} {name!r:.60} cannot be used in a transcript.",
                "Use a name without colons and brackets that begins with a letter.",
            )
    if len({name.casefold() for name in names}) < len(names):
        raise ConfigError(f"Two {what}s have the same name.", "Give names that differ by more than case.")
    if len(names) > MOST_NAMES:
        raise ConfigError(f"There are more than {MOST_NAMES} {what}s.", "Declare fewer.")


_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
PLAIN = TextForm()


def text_columns(text: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the named columns: one, several as ``A,B,C`` or a list, or none."""
    if text is None:
        return ()
    return tuple(comma_separated(text) if isinstance(text, str) else text)
