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
from understudy.corpus.secrets.phone import PhoneDetector
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
    """What regular expressions match and a check accepts.

    A match never hides another one that begins inside it: what stands side by side is all found.

    Args:
        name: as it is asked for.
        bodies: the expressions, without what must stand around them; case does not matter. Where at one place several
            of them match, each counts.
        canonical: from a match in lower case to its one spelling, or None where the check fails.
        before: a look behind; by default no letter or digit. The end of another match does as well.
        after: a look ahead; by default no letter or digit.
    """

    name: str
    bodies: tuple[str, ...]
    canonical: Callable[[str], str | None]
    before: str = r"(?<![^\W_])"
    after: str = r"(?![^\W_])"

    def find(self, text: str) -> Iterator[str]:
        for _, found in self._matches(text):
            yield found

    def whole(self, text: str) -> str | None:
        text = text.strip()
        matched = any(pattern.fullmatch(text) for pattern in self._all)
        return self.canonical(text.casefold()) if matched else None

    def without(self, text: str) -> str:
        """``text`` with a semicolon in the place of each secret; of those that overlap, of the first."""
        spans = sorted(match.span() for match, _ in self._matches(text))
        kept, end = [], 0
        for start, stop in spans:
            if start >= end:
                kept += [text[end:start], ";"]
                end = stop
        return "".join([*kept, text[end:]])

    def _matches(self, text: str) -> Iterator[tuple[re.Match[str], str]]:
        for inside, alone in zip(self._inside, self._all, strict=True):
            match = inside.search(text)
            while match is not None:
                found = self.canonical(match[0].casefold())
                if found:
                    yield match, found
                touching = alone.match(text, match.end()) if found and not self.after else None
                match = touching or inside.search(text, match.start() + 1)

    @cached_property
    def _inside(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(f"{self.before}(?:{body}){self.after}", re.IGNORECASE) for body in self.bodies)

    @cached_property
    def _all(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(body, re.IGNORECASE) for body in self.bodies)


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
        address = ip_address(match.removesuffix(":") if re.search("[^:]:$", match) else match)
    except ValueError:
        return None
    return None if address.is_unspecified or address.is_loopback else str(address)


def _url(match: str) -> str:
    return re.sub(r"^https?://", "", match).rstrip("/.,;|:!?'*_")


_IBAN_FORM = "|".join(
    rf"(?:{'|'.join(countries.split())})\d\d(?:[ -]?[a-z0-9]){{{length - 4}}}"
    for length, countries in sorted(IBAN_LENGTHS.items(), reverse=True)
)
_IBAN = PatternDetector("iban", (_IBAN_FORM,), _iban, before=r"(?<![^\W_])(?=[a-z]{2}\d\d)")

_FOUR_FOURS = r"[2-6]\d{3}([ -])\d{4}\1\d{4}\1\d{4}"
_CARD_IN_GROUPS = rf"{_FOUR_FOURS}|[2-6]\d{{3}}[ -]\d{{6}}[ -]\d{{4,5}}"
_GROUPED_CARD = PatternDetector("credit_card", (_CARD_IN_GROUPS,), _credit_card, before=r"(?<![^\W_])(?<!\+)")

_URL_CHARACTER = r"[^\s<>\"()\[\]{}]"
_URL_START = r"(?<![^\W_])(?<!://)(?:https?://|www\.)"

_BUILT_IN: tuple[Detector, ...] = (
    PatternDetector(
        "email",
        (r"[\w.%+'-]+@[\w-]+(?:\.[\w-]+)*\.(?:xn--[a-z0-9]+|[^\W\d_]{2,})",),
        _email,
        before=r"(?<![\w.%+'-])",
        after="",
    ),
    PhoneDetector("phone", without=(_IBAN.without, _GROUPED_CARD.without)),
    _IBAN,
    PatternDetector(
        "credit_card",
        (
            rf"(?:[2-6]|1(?=800))\d{{11,18}}|{_CARD_IN_GROUPS}",
            rf"{_FOUR_FOURS}\1\d{{3}}",  # on its own: the last three digits may be the card's security code
        ),
        _credit_card,
    ),
    PatternDetector("us_ssn", (r"\d{3}([- ])\d\d\1\d{4}",), _us_ssn),
    PatternDetector("nhs_number", (r"\d{3}[ -]?\d{3}[ -]?\d{4}",), _nhs_number),
    PatternDetector("uk_nino", (r"[a-z]{2} ?\d\d ?\d\d ?\d\d ?[a-d]",), _uk_nino),
    PatternDetector(
        "ip_address",
        (r"\d{1,3}(?:\.\d{1,3}){3}", r"(?<![0-9a-f:]:)[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}:?(?!:)"),
        _ip_address,
        before=r"(?<!\w)(?<!\d\.)",
        after=r"(?!\w)(?!\.\d)",
    ),
    PatternDetector(
        "url",
        (  # all of a run without blanks, unless it is a list; and the last address inside another one
            rf"(?<![^\s<>\"()\[\]{{}},;|]){_URL_START}(?:(?![,;|]{_URL_START}){_URL_CHARACTER})+",
            rf"(?<=[^\s<>\"()\[\]{{}},;|]){_URL_START}(?:(?!{_URL_START}){_URL_CHARACTER})++(?!{_URL_START})",
        ),
        _url,
        before="",
        after="",
    ),
)
_BY_NAME = {detector.name: detector for detector in _BUILT_IN}
BUILT_IN = tuple(_BY_NAME)
"""Names of the detectors that need no extra."""
