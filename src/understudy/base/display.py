"""Text that is safe to write to a terminal, and plain tables."""

from __future__ import annotations

import re
from collections.abc import Sequence

_STEERING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\U000e0000-\U000e007f]"
)

DIRECTIONS = {c: ascii(chr(c))[1:-1] for c in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Characters that change the direction of words, each with its escape: invisible, they make a text misleading."""


def printable(text: str) -> str:
    r"""Return ``text`` with control characters, which could control a terminal, as escapes; tabs and line ends stay.

    >>> print(printable("\x1b[2J safe"))
    \x1b[2J safe
    """
    return _STEERING.sub(lambda match: ascii(match[0])[1:-1], text)


def aligned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in plain letters.

    >>> print(aligned(("", "of"), [("accuracy", "real")]))
              of
    accuracy  real
    """
    lines = [tuple(printable(cell).replace("\n", " ").replace("\t", " ") for cell in row) for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def plural(count: int, noun: str) -> str:
    """Return a number with its noun in the singular or the plural (with -s).

    >>> plural(1, "text"), plural(12_000, "text"), plural(0, "text")
    ('1 text', '12000 texts', '0 texts')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
