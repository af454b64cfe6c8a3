"""Secrets that have a form: regular expressions, with checksums where the scheme has one.

Every expression reads a text once from left to right: its repetitions are bounded or cannot be split in two ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from typing import Protocol

from understudy.corpus.secrets.checksums import IBAN_LENGTHS, luhn, mod11, mod97
from understudy.corpus.secrets.pii import presidio_detector
from understudy.errors import ConfigError

_PRESIDIO = "presidio:"


class Detector(Protocol):
    """Finds the secrets of one kind. Texts come in as :func:`~understudy.corpus.secrets.text.tidy` makes them."""

    @property
    def name(self) -> str: ...

    def find(self, text: str) -> Iterator[str]:
        """Every secret in ``text``, in its canonical spelling."""
        ...

    def whole(self, text: str) -> str | None:
        """The canonical spelling, where all of ``text`` is one secret."""
        ...


@dataclass(frozen=True)
class PatternDetector:
    """What a regular expression matches and a check accepts.

    Args:
        name: as it is asked for.
        body: the expression, without what must stand around it; case does not matter.
        canonical: from a match in lower case to its one spelling, or None where the check fails.
        before: a look behind; by default no letter or digit.
        after: a look ahead; by default no letter or digit.
    """

    name: str
    body: str
    canonical: Callable[[str], str | None]
    before: str = r"(?<![^\W_])"
    after: str = r"(?![^\W_])"

    def find(self, text: str) -> Iterator[str]:
        start = 0
        while (match := self._inside.search(text, start)) is not None:
            found = self.canonical(match[0].casefold())
            if found is not None:
                yield found
            start = match.end() if found is not None else match.start() + 1  # a false start may hide a true one

    def whole(self, text: str) -> str | None:
        text = text.strip()
        return self.canonical(text.casefold()) if self._all.fullmatch(text) else None

    @cached_property
    def _inside(self) -> re.Pattern[str]:
        return re.compile(f"{self.before}(?:{self.body}){self.after}", re.IGNORECASE)

    @cached_property
    def _all(self) -> re.Pattern[str]:
        return re.compile(self.body, re.IGNORECASE)


def make_detectors(names: Sequence[str]) -> tuple[Detector, ...]:
    """The detectors that ``names`` ask for, each once.

    Args:
        names: of the built-in ones (:data:`BUILT_IN`), or ``presidio:ENTITY`` (extra ``pii``).

    Raises:
        ConfigError: a name is unknown, or the extra is not installed.
    """
    return tuple(_make(name) for name in dict.fromkeys(names))


def _make(name: str) -> Detector:
    if name.startswith(_PRESIDIO):
        return presidio_detector(name.removeprefix(_PRESIDIO))
    if name not in _BY_NAME:
        raise ConfigError(
            f"There is no detector {name!r}.", f"Detectors are {', '.join(BUILT_IN)}, and presidio:ENTITY."
        )
    return _BY_NAME[name]


def _compact(match: str) -> str:
    return re.sub(r"[\W_]", "", match)


def _email(match: str) -> str:
    return match.strip("'.-_%+")


def _phone(match: str) -> str | None:
    """Digits, with + before a country's code. None: too many or too few, or the form of something else."""
    number = re.split(" ?(?:x|ext)", match)[0]
    if _NO_PHONE.fullmatch(number):
        return None
    if number.startswith(("+", "00")):
        digits = _compact(number.replace("(0)", "")).removeprefix("00")
        return f"+{digits}" if 8 <= len(digits) <= 15 else None
    digits = _compact(number)
    fewest, most = (10, 11) if digits == number else (7, 12)
    return digits if fewest <= len(digits) <= most else None


_NO_PHONE = re.compile(
    r"\d{1,3}(?:\.\d{3})+"  # a large number
    r"|(?:19|20)\d\d[-./ ]\d\d?[-./ ]\d\d?(?: .*)?|\d\d?[-./ ]\d\d?[-./ ](?:19|20)\d\d(?: .*)?"  # a date
    r"|(?:1[89]|20)\d\d[-/ ](?:1[89]|20)\d\d"  # years
    r"|\d{1,3}(?:\.\d{1,3}){3}"  # an internet address
    r"|\d{5}-\d{4}|\d{3}([- ])\d\d\1\d{4}"  # a ZIP code, a social security number
    r"|[1-9]\d* \d{1,3}"  # two numbers side by side
)


def _iban(match: str) -> str | None:
    iban = _compact(match)
    return iban if iban.isascii() and mod97(iban) else None


def _credit_card(match: str) -> str | None:
    digits = _compact(match)
    return digits if luhn(digits) else None


def _us_ssn(match: str) -> str | None:
    digits = _compact(match)
    never_issued = digits[:3] in ("000", "666") or digits[0] == "9" or digits[3:5] == "00" or digits[5:] == "0000"
    return None if never_issued else digits


def _nhs_number(match: str) -> str | None:
    digits = _compact(match)
    return digits if mod11(digits) else None


def _uk_nino(match: str) -> str | None:
    number = _compact(match)
    return None if number[:2] in ("bg", "gb", "nk", "kn", "tn", "nt", "zz") else number


def _ip_address(match: str) -> str | None:
    try:
        address = ip_address(match)
    except ValueError:
        return None
    return None if address.is_unspecified or address.is_loopback else str(address)


def _url(match: str) -> str:
    return re.sub(r"^https?://", "", match).rstrip("/.,;:!?'*_")


_IBAN = "|".join(
    rf"(?:{'|'.join(countries.split())})\d\d(?:[ -]?[a-z0-9]){{{length - 4}}}"
    for length, countries in sorted(IBAN_LENGTHS.items(), reverse=True)
)

_BUILT_IN: tuple[Detector, ...] = (
    PatternDetector(
        "email",
        r"[\w.%+'-]+@[\w-]+(?:\.[\w-]+)*\.(?:xn--[a-z0-9]+|[^\W\d_]{2,})",
        _email,
        before=r"(?<![\w.%+'-])",
        after="",
    ),
    PatternDetector(
        "phone",
        r"\+?\(?\d(?:(?:[-./ ()]|[-./ )] ?\(|\) [-./]?|\)-| - )?\d){6,18}(?: ?(?:x|ext\.?) ?\d{1,6})?",
        _phone,
        before=r"(?<![\w+@])(?<!\d[-./:+ ])(?<!\+\()",
        after=r"(?!\w)(?![-./: ]\d)",
    ),
    PatternDetector("iban", _IBAN, _iban, before=r"(?<![^\W_])(?=[a-z]{2}\d\d)"),
    PatternDetector(
        "credit_card",
        r"(?:[2-6]|1(?=800))\d{11,18}|[2-6]\d{3}(?:([ -])\d{4}\1\d{4}\1\d{4}(?:\1\d{3})?|[ -]\d{6}[ -]\d{4,5})",
        _credit_card,
    ),
    PatternDetector("us_ssn", r"\d{3}([- ])\d\d\1\d{4}", _us_ssn),
    PatternDetector("nhs_number", r"\d{3}[ -]?\d{3}[ -]?\d{4}", _nhs_number),
    PatternDetector("uk_nino", r"[a-z]{2} ?\d\d ?\d\d ?\d\d ?[a-d]", _uk_nino),
    PatternDetector(
        "ip_address",
        r"\d{1,3}(?:\.\d{1,3}){3}|(?<!:)[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}(?!:)",
        _ip_address,
        before=r"(?<!\w)(?<!\d\.)",
        after=r"(?!\w)(?!\.\d)",
    ),
    PatternDetector("url", r"(?:https?://|www\.)[^\s<>\"()\[\]{}]+", _url, after=""),
)
_BY_NAME = {detector.name: detector for detector in _BUILT_IN}
BUILT_IN = tuple(_BY_NAME)
"""Names of the detectors that need no extra."""
