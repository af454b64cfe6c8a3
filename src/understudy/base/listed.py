"""Read lists as people type them."""

from __future__ import annotations

import re

_PART = re.compile(r'\s*+"((?:[^"]|"")+)"\s*+(?:,|$)|([^,]*+)(?:,|$)')


def comma_separated(text: str) -> list[str]:
    """Return the parts of ``A,B,C`` without blanks around them. A part in double quotes keeps its commas and blanks.

    >>> comma_separated('a, " b, c",d')
    ['a', ' b, c', 'd']
    """
    found: list[str] = []
    place = 0
    while part := _PART.match(text, place):
        found.append(part[2].strip() if part[1] is None else part[1].replace('""', '"'))
        if (place := part.end()) == len(text) and not part[0].endswith(","):
            break
    return found
