"""Define every error that understudy raises on purpose.

An error says in one sentence what is wrong and in one what to do about it. No message ever quotes a private text, a row
number, or a count of private rows: those go to ``private/`` (see :mod:`understudy.corpus`).

The command line ends with the ``exit_code`` of the error's class (documented in ``docs/errors.md``). This module
imports no other module of understudy, so that every layer, :mod:`understudy.privacy` included, may import it.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable
from typing import ClassVar

_COMMAND = re.compile(r"(`[^`]*`|\bunderstudy [a-z]+ .*|\bpip .*)")
_FLAG = re.compile(
    r"(?<![\w-])--(no-)?([a-z][a-z0-9-]*)(?:[ =]([A-Z@][A-Z]*(?:,[A-Z])*|[0-9][\w.]*\w|[0-9])(?![\w-]))?"
)
_KEYWORDS = {"continue": "resume"}
_BARE = re.compile(r"[0-9.]+(e-?[0-9]+)?|[A-Z]|EPSILON")
"""A value that is written without quotes: a number, or a placeholder for one."""

_CALLS = re.compile("baseline|check|compare|evaluate|export|generate|plan|release|report|run|topics|verify")
_LEDGER_CALLS = re.compile("create|history|open|show")


def in_keywords(words: str) -> str:
    """Rewrite a message for callers from Python: flags become keywords, and commands calls if Python has the verb.

    >>> in_keywords("Give --records N, or leave --no-guide out: `understudy plan --guide`.")
    'Give records=N, or leave guide=False out: `us.plan(guide=True)`.'
    >>> in_keywords("Declare it with --labels A,B or --labels @FILE.")
    'Declare it with labels=["A", "B"] or labels="@FILE".'
    >>> in_keywords("Raise it with: understudy ledger open notes --epsilon 6 --delta 1e-5 --raise")
    'Raise it with: us.ledger.raise_cap("notes", epsilon=6, delta=1e-5)'
    """
    parts = _COMMAND.split(words)
    return "".join(_call(part) if number % 2 else _FLAG.sub(_keyword, part) for number, part in enumerate(parts))


def flags_in(words: str) -> list[str]:
    """Return the parameters of the flags in a message, each once.

    >>> flags_in("Leave out --label and --max-bad-rows.")
    ['label', 'max_bad_rows']
    """
    return list(dict.fromkeys(flag[2].replace("-", "_") for flag in _FLAG.finditer(words)))


def _call(command: str) -> str:
    """Return the call that does the same as a command; the command itself if Python has none."""
    try:
        program, *words = shlex.split(command.strip("`"))
    except ValueError:  # not a command, but text with an apostrophe
        return command
    if program != "understudy" or not words or "--config" in words:
        return command
    verb, *rest = words
    if verb == "ledger" and rest and _LEDGER_CALLS.fullmatch(rest[0]):
        verb = "ledger." + ("raise_cap" if "--raise" in rest else rest[0])
        rest = [word for word in rest[1:] if word != "--raise"]
    elif not _CALLS.fullmatch(verb):
        return command
    given = []
    while rest:
        word = rest.pop(0)
        if not (flag := _FLAG.fullmatch(word)):
            given.append(f'"{word}"')
        elif rest and not rest[0].startswith("--"):
            value = rest.pop(0)
            given.append(_keyword(flag) + (f"={value}" if _BARE.fullmatch(value) else f'="{value}"'))
        else:
            given.append(_keyword(flag) if flag[1] else f"{_keyword(flag)}=True")
    call = f"us.{verb}({', '.join(given)})" if given else f"us.{verb}"
    call = f"help(us.{verb})" if given == ["help=True"] else call
    return f"`{call}`" if command.startswith("`") else call


def _keyword(flag: re.Match[str]) -> str:
    name = _KEYWORDS.get(flag[2], flag[2].replace("-", "_"))
    value = "False" if flag[1] else flag[3]
    if value and "," in value:
        value = str(value.split(",")).replace("'", '"')
    elif value and value.startswith("@"):
        value = f'"{value}"'
    return f"{name}={value}" if value else name


def nearest(asked: str, names: Iterable[str], *, between: str = " and ") -> str:
    """Return the names that may have been meant, quoted; empty if no name is similar to the given one."""
    folded = {name.strip().casefold(): name for name in reversed(list(names))}
    key = asked.strip().casefold()
    near = difflib.get_close_matches(key, folded, n=3, cutoff=0.7) or [each for each in folded if each and each in key]
    return between.join(repr(folded[each]) for each in near[:3])


def did_you_mean(asked: str, names: Iterable[str], cure: str) -> str:
    """Return ``cure``, preceded by the names that are similar to the given one."""
    like = nearest(asked, names, between=" or ")
    return f"Did you mean {like}? {cure}".strip() if like else cure


class UnderstudyError(Exception):
    """Base of all errors raised on purpose. As a string it names keywords; the command line shows flags instead.

    Args:
        problem: one sentence that says what is wrong.
        cure: one sentence that says what to do about it.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, problem: str, cure: str) -> None:
        super().__init__(in_keywords(f"{problem} {cure}".strip()))
        self.problem = problem
        self.cure = cure

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.problem, self.cure)


class UnderstudyWarning(UserWarning):
    """A problem that does not stop the run: what was noticed, and what to do about it."""

    def __str__(self) -> str:
        return in_keywords(super().__str__())


class ConfigError(UnderstudyError):
    """A parameter, option or combination of options that cannot be run."""

    exit_code = 2


class CorpusError(UnderstudyError):
    """The private (or a public) table of texts cannot be read as declared."""

    exit_code = 3


class BudgetExceeded(UnderstudyError):
    """A run asks for more privacy budget than is left; nothing was charged."""

    exit_code = 4


class LedgerError(UnderstudyError):
    """The ledger cannot be used, or contradicts the run."""

    exit_code = 5


class ModelError(UnderstudyError):
    """A model is unknown, missing, unreachable, or gives invalid answers."""

    exit_code = 6


class ReleaseError(UnderstudyError):
    """A Release file is corrupt, foreign, or from a newer version."""

    exit_code = 7


class ResumeError(UnderstudyError):
    """An output folder contains a run that this command does not continue."""

    exit_code = 8


class StorageError(UnderstudyError):
    """A disk is full, a file is locked or cannot be written. Stored data stay; the same command resumes from them."""

    exit_code = 10


class EngineError(UnderstudyError):
    """The engine (processes, a Ray cluster) cannot do the work. Stored data stay."""

    exit_code = 11


class PrivacyError(UnderstudyError):
    """A privacy rule would be broken, for example by a mechanism without its charge."""

    exit_code = 9


def bug(problem: str, rule: str = "", kind: type[UnderstudyError] = PrivacyError) -> UnderstudyError:
    """Return the error for a mistake in a method's code; ``rule`` says what the code should do."""
    return kind(problem, f"This is a bug in the method{': ' * bool(rule)}{rule}.")
