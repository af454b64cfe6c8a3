"""Telephone numbers: which groups of digits, of all that stand side by side, are one number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_BETWEEN = r"(?:[-./ ()]|[-./ )] ?\(|\) [-./]?|\)-| - )"
_EXTENSION = r" ?(?:x|ext\.?) ?\d{1,6}"
_WHOLE = re.compile(rf"\+?\(?\d(?:{_BETWEEN}?\d){{6,18}}(?:{_EXTENSION})?", re.IGNORECASE)
_CHAIN = re.compile(rf"(\+?\(?\d(?:{_BETWEEN}?\d)*+)({_EXTENSION}(?!\w))?", re.IGNORECASE)
_GLUED_BEFORE = re.compile(r"(?:[\w+@]|\d:)\Z")
_GLUED_AFTER = re.compile(r"\w|:\d")
_MOST_GROUPS = 8

_YEAR, _MONTH, _DAY = r"(?:19|20)\d\d", r"(?:0?[1-9]|1[0-2])", r"(?:0?[1-9]|[12]\d|3[01])"
_DATE = rf"(?:{_YEAR}[-./]{_MONTH}[-./]{_DAY}|{_DAY}[-./]{_DAY}[-./]{_YEAR})(?!\d)"
_OTHER = re.compile(
    r"(?<![\w.:/-])\d\d?:\d\d(?::\d\d)?(?![\w:])"  # a time
    rf"|(?<![\w+])(?<!\d[-.]){_DATE}(?: ?[-/] ?{_DATE})*(?!\w)(?![-.]\d)"  # dates
    r"|(?<![\w.+])\d{1,3}(?:\.\d{1,3}){3}(?!\w)(?!\.\d)"  # an internet address
    r"|(?<![\w-])\d{3}-\d\d-\d{4}(?![\w-])"  # a social security number
)
_NO_PHONE = re.compile(
    r"\d{1,3}(?:\.\d{3})+"  # a large number
    r"|(?:19|20)\d\d[-./ ]\d\d?[-./ ]\d\d?(?: .*)?|\d\d?[-./ ]\d\d?[-./ ](?:19|20)\d\d(?: .*)?"  # a date
    r"|(?:1[89]|20)\d\d[-/ ](?:1[89]|20)\d\d"  # years
    r"|\d{1,3}(?:\.\d{1,3}){3}"  # an internet address
    r"|\d{5}-\d{4}|\d{3}([- ])\d\d\1\d{4}"  # a ZIP code, a social security number
    r"|[1-9]\d* \d{1,3}"  # two numbers side by side
)


@dataclass(frozen=True)
class PhoneDetector:
    """The detector ``phone``. Of every group of digits a bounded number of runs is looked at.

    A chain is all digits with no more between them than stands inside one number. A chain that can be one number is
    one; but a count or an hour may stand beside a number, so runs of its groups are read as numbers too: of a chain
    that is too long for one number all that can be one, of any other those that are long, or set off by what stands
    beside them. What is read too much is a further secret; none takes another's place.

    Each of ``without`` takes from a text what is surely no telephone number.
    """

    name: str
    without: tuple[Callable[[str], str], ...]

    def find(self, text: str) -> Iterator[str]:
        for take in self.without:
            text = take(text)
        text = _OTHER.sub(";", text)
        for match in _CHAIN.finditer(text):
            start, end = match.span(1)
            glued_before = _GLUED_BEFORE.search(text[max(0, start - 2) : start]) is not None
            glued_after = match[2] is None and _GLUED_AFTER.match(text, end) is not None
            yield from _Chain(match[1]).numbers(glued_before, glued_after)

    def whole(self, text: str) -> str | None:
        text = text.strip()
        return _number(text.casefold()) if _WHOLE.fullmatch(text) else None


class _Chain:
    def __init__(self, text: str) -> None:
        self._text = text
        self._groups = [match.span() for match in re.finditer(r"\d+", text)]
        ends = [0, *(end for _, end in self._groups)]
        self._loose = [_is_loose(text[end:start]) for end, (start, _) in zip(ends, self._groups, strict=False)]
        self._digits = sum(end - start for start, end in self._groups)

    def numbers(self, glued_before: bool, glued_after: bool) -> Iterator[str]:
        """Every number; a first or last group that is glued to a word belongs to none."""
        count = len(self._groups)
        whole = _number(self._text) if self._digits < 20 else None
        if whole is not None and not glued_before and not glued_after:
            yield whole
        too_long = whole is None and self._digits > 12
        stop = count - glued_after
        for first in range(glued_before, stop):
            digits = 0
            for last in range(first, min(first + _MOST_GROUPS, stop)):
                start, end = self._groups[last]
                digits += end - start
                if digits > 18:
                    break
                if digits < 7 or last - first == count - 1:
                    continue
                number = _number(self._text[self._groups[first][0] if first else 0 : end])
                if number is not None and (too_long or self._is_set_off(first, last, number)):
                    yield number

    def _is_set_off(self, first: int, last: int, number: str) -> bool:
        """Whether groups of a chain that may be one number may be a number by themselves."""
        digits = len(number.removeprefix("+"))
        if self._text.startswith(("+", "00")):
            return first == 0 and digits >= 10
        if digits >= 10:
            return True
        if first and (self._text[self._groups[0][0]] == "0" or self._text[self._groups[first - 1][1]] == ")"):
            return False  # what is before belongs to it: 0, or an area code in brackets
        inside = any(self._loose[first + 1 : last + 1])
        outside = all(self._loose[cut] for cut in (first, last + 1) if 0 < cut < len(self._groups))
        if outside and not inside:
            return True
        return outside == inside and digits >= (9 if number.startswith("0") else 8)


def _is_loose(between: str) -> bool:
    """Whether it parts more than ``-``, ``.`` and brackets around an area code do."""
    return not between.startswith(")") and (" " in between or "/" in between)


def _number(match: str) -> str | None:
    """Digits, with + before a country's code. None: too many or too few, or the form of something else."""
    number = re.split(" ?(?:x|ext)", match)[0]
    if _NO_PHONE.fullmatch(number):
        return None
    if number.startswith(("+", "00")):
        digits = re.sub(r"\D", "", number.replace("(0)", "")).removeprefix("00")
        return f"+{digits}" if 8 <= len(digits) <= 15 else None
    digits = re.sub(r"\D", "", number)
    fewest, most = (10, 11) if digits == number else (7, 12)
    return digits if fewest <= len(digits) <= most else None
