"""CSV cells that a spreadsheet would run as a formula, written so that it shows them as text.

A cell that begins with ``=``, ``+``, ``-``, ``@`` (their full-width forms too, and behind white space), with a tab or
a line break, gets an apostrophe before it, unless it is a plain number. So does one that begins so behind apostrophes
of its own: :func:`unescaped` undoes exactly what :func:`escaped` does.
Source: OWASP, CSV Injection.
"""

from __future__ import annotations

import re

_FORMULA = re.compile(r"'*+(?:[\t\r\n]|\s*+[=+\-@\uff1d\uff0b\uff0d\uff20])")
_NUMBER = re.compile(r"'*+[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def escaped(cell: str) -> str:
    """``cell`` as a spreadsheet shows and does not run it.

    >>> escaped("=1+1"), escaped("- milk"), escaped("-1.5"), escaped("a=b")
    ("'=1+1", "'- milk", '-1.5', 'a=b')
    """
    return f"'{cell}" if _runs(cell) else cell


def unescaped(cell: str) -> str:
    """The cell of which :func:`escaped` made this one.

    >>> unescaped("'=1+1"), unescaped("'tis")
    ('=1+1', "'tis")
    """
    return cell[1:] if cell.startswith("'") and _runs(cell) else cell


def _runs(cell: str) -> bool:
    """Whether a spreadsheet would run ``cell``, or would without the apostrophes before it."""
    return _FORMULA.match(cell) is not None and _NUMBER.fullmatch(cell) is None
