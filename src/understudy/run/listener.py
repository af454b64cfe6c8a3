"""Who is told what happens while a run works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Listener:
    """Who is told what happens. Lines and numbers are public facts only.

    Args:
        say: takes a line.
        progress: takes (what, done, of how many).
    """

    say: Callable[[str], None] = lambda _line: None
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None


SILENT = Listener()
