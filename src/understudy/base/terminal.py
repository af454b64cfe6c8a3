"""What may be written to a terminal."""

from __future__ import annotations

import re

_STEERING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    r"""``text`` with control characters, which could steer a terminal, as escapes; tabs and line ends stay.

    >>> print(printable("\x1b[2J safe"))
    \x1b[2J safe
    """
    return _STEERING.sub(lambda match: ascii(match[0])[1:-1], text)
