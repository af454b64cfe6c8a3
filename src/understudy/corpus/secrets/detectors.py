"""Detect secrets that have a form: by regular expressions, with check digits if the scheme has some, and by Presidio
(extra ``pii``), whose expressions and checks are used but never its language models.

Every expression reads a text once from left to right: its repetitions are bounded or cannot be split in two ways.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from ipaddress import ip_address
from typing import Any

from understudy.base.errors import ConfigError

IBAN_LENGTHS = {
    15: "no",
    16: "be",
    18: "dk fi fk fo gl nl sd",
    19: "mk si",
    20: "at ba ee kz lt lu mn xk",
    21: "ch cr hr li lv",
    22: "bg bh de gb ge ie me rs va",
    23: "ae gi il iq om so tl",
    24: "ad cz es md pk ro sa se sk tn vg",
    25: "ly pt st",
    26: "is tr",
    27: "bi dj fr gr it mc mr sm",
    28: "al az by cy do gt hu lb ni pl sv",
    29: "br eg ps qa ua",
    30: "jo kw mu ye",
    31: "mt sc",
    32: "lc",
    33: "ru",
}
"""Characters of an IBAN, by country (ISO 13616; the SWIFT registry)."""


def luhn(digits: str) -> bool:
    """Check ISO/IEC 7812: every second digit from the right doubled, the digits' sum a multiple of 10."""
    total = 0
    for position, digit in enumerate(map(int, reversed(digits))):
        total += digit if position % 2 == 0 else sum(divmod(2 * digit, 10))
    return total % 10 == 0


def mod97(iban: str) -> bool:
    """Check ISO 13616: the first four characters moved to the end, letters as 10 to 35, the number is 1 modulo 97."""
    return int("".join(str(int(character, 36)) for character in iban[4:] + iban[:4])) % 97 == 1


def mod11(digits: str) -> bool:
    """Check an NHS number: the first nine digits weighted 10 to 2 and the tenth add up to a multiple of 11."""
    return sum(int(digit) * (10 - position) for position, digit in enumerate(digits)) % 11 == 0


_PRESIDIO = "presidio:"


@dataclass(frozen=True)
class PatternDetector:
    """A detector by regular expressions and a check, for tidy texts (:mod:`understudy.corpus.normalise`).

    A match never hides another one that begins inside it: adjacent ones are all found.

    Args:
        name: that users give.
        bodies: the expressions, without their required context; case does not matter. If several match at one
            place, each counts.
        canonical: from a match in lower case to its canonical spelling, or None if the check fails.
        before: a lookbehind; by default no letter or digit. The end of another match is allowed as well.
        after: a lookahead; by default no letter or digit.
    """

    name: str
    bodies: tuple[str, ...]
    canonical: Callable[[str], str | None]
    before: str = r"(?<![^\W_])"
    after: str = r"(?![^\W_])"

    def find(self, text: str) -> Iterator[str]:
        """Yield every secret in ``text``, in its canonical spelling."""
        for _, found in self._matches(text):
            yield found

    def whole(self, text: str) -> str | None:
        """Return the canonical spelling, if all of ``text`` is one secret."""
        text = text.strip()
        matched = any(pattern.fullmatch(text) for pattern in self._all)
        return self.canonical(text.casefold()) if matched else None

    def without(self, text: str) -> str:
        """Return ``text`` with a semicolon in place of each secret; for overlapping ones, of the first."""
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
    """Finds telephone numbers (detector ``phone``). The work per group of digits is bounded.

    A chain is a run of digits with only such separators as one number may have inside. A chain that can be one number
    is one. But a count or an hour may be next to a number, so runs of the chain's groups are read as numbers too: all
    that can be one if the chain is too long for one number, otherwise those that are long or set off by their
    neighbours. A run that is wrongly read as a number is an additional secret; it does not replace another.

    Each of ``without`` removes from a text parts that are certainly not telephone numbers.
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
        between = [text[end:start] for end, (start, _) in zip(ends, self._groups, strict=False)]
        self._loose = [not each.startswith(")") and (" " in each or "/" in each) for each in between]
        """Whether groups are separated by more than ``-``, ``.`` and brackets around an area code."""
        self._digits = sum(end - start for start, end in self._groups)

    def numbers(self, glued_before: bool, glued_after: bool) -> Iterator[str]:
        """Yield every number in the chain. A first or last group that touches a word belongs to no number."""
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
        """Return whether groups of a chain that may be one number may be a number by themselves."""
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


def _number(match: str) -> str | None:
    """Return digits, with + before a country's code. None: too many or too few, or the form of something else."""
    number = re.split(" ?(?:x|ext)", match)[0]
    if _NO_PHONE.fullmatch(number):
        return None
    if number.startswith(("+", "00")):
        digits = re.sub(r"\D", "", number.replace("(0)", "")).removeprefix("00")
        return f"+{digits}" if 8 <= len(digits) <= 15 else None
    digits = re.sub(r"\D", "", number)
    fewest, most = (10, 11) if digits == number else (7, 12)
    return digits if fewest <= len(digits) <= most else None


def make_detectors(names: Sequence[str]) -> tuple[Detector, ...]:
    """Return the detectors of these ``names``, each once: built-in (:data:`BUILT_IN`) or ``presidio:ENTITY``."""
    made: list[Detector] = []
    for name in dict.fromkeys(names):
        if name.startswith(_PRESIDIO):
            made.append(_presidio(name.removeprefix(_PRESIDIO)))
        elif name in _BY_NAME:
            made.append(_BY_NAME[name])
        else:
            raise ConfigError(
                f"There is no detector called {name!r}.", f"Detectors are {', '.join(BUILT_IN)}, and presidio:ENTITY."
            )
    return tuple(made)


def _numbers(accepts: Callable[[str], bool]) -> Callable[[str], str | None]:

    def canonical(match: str) -> str | None:
        number = re.sub(r"[\W_]", "", match)
        return number if accepts(number) else None

    return canonical


def _ip_address(match: str) -> str | None:
    try:
        address = ip_address(match.removesuffix(":") if re.search("[^:]:$", match) else match)
    except ValueError:
        return None
    return None if address.is_unspecified or address.is_loopback else str(address)


_IBAN_FORM = "|".join(
    rf"(?:{'|'.join(countries.split())})\d\d(?:[ -]?[a-z0-9]){{{length - 4}}}"
    for length, countries in sorted(IBAN_LENGTHS.items(), reverse=True)
)
_IBAN = PatternDetector(
    "iban", (_IBAN_FORM,), _numbers(lambda iban: iban.isascii() and mod97(iban)), before=r"(?<![^\W_])(?=[a-z]{2}\d\d)"
)

_FOUR_FOURS = r"[2-6]\d{3}([ -])\d{4}\1\d{4}\1\d{4}"
_CARD_IN_GROUPS = rf"{_FOUR_FOURS}|[2-6]\d{{3}}[ -]\d{{6}}[ -]\d{{4,5}}"
_GROUPED_CARD = PatternDetector("credit_card", (_CARD_IN_GROUPS,), _numbers(luhn), before=r"(?<![^\W_])(?<!\+)")

_URL_CHARACTER = r"[^\s<>\"()\[\]{}]"
_URL_START = r"(?<![^\W_])(?<!://)(?:https?://|www\.)"

_BUILT_IN: tuple[PatternDetector | PhoneDetector, ...] = (
    PatternDetector(
        "email",
        (r"[\w.%+'-]+@[\w-]+(?:\.[\w-]+)*\.(?:xn--[a-z0-9]+|[^\W\d_]{2,})",),
        lambda match: match.strip("'.-_%+"),
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
        _numbers(luhn),
    ),
    PatternDetector(
        "us_ssn",
        (r"\d{3}([- ])\d\d\1\d{4}",),
        _numbers(lambda ssn: re.fullmatch(r"(?!000|666|9)\d{3}(?!00)\d\d(?!0000)\d{4}", ssn) is not None),
    ),
    PatternDetector("nhs_number", (r"\d{3}[ -]?\d{3}[ -]?\d{4}",), _numbers(mod11)),
    PatternDetector(
        "uk_nino",
        (r"[a-z]{2} ?\d\d ?\d\d ?\d\d ?[a-d]",),
        _numbers(lambda nino: nino[:2] not in ("bg", "gb", "nk", "kn", "tn", "nt", "zz")),
    ),
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
        lambda match: re.sub(r"^https?://", "", match).rstrip("/.,;|:!?'*_"),
        before="",
        after="",
    ),
)
_BY_NAME = {detector.name: detector for detector in _BUILT_IN}
BUILT_IN = tuple(_BY_NAME)
"""Names of the detectors that need no extra."""


_FETCHES = {"EMAIL_ADDRESS": "email"}
"""Entities whose recogniser fetches a list from the internet, and the built-in detector to use instead."""


@dataclass(frozen=True)
class PresidioDetector:
    """Detects one of Presidio's entities with all of its recognisers, for any language or country; each match with a
    score above zero counts."""

    name: str
    entity: str
    recognizers: tuple[Any, ...]

    def find(self, text: str) -> Iterator[str]:
        for start, end in sorted(self._spans(text)):
            yield text[start:end]

    def whole(self, text: str) -> str | None:
        text = text.strip()
        return text if (0, len(text)) in self._spans(text) else None

    def _spans(self, text: str) -> set[tuple[int, int]]:
        return {
            (found.start, found.end)
            for recognizer in self.recognizers
            for found in recognizer.analyze(text, [self.entity], None)
            if found.entity_type == self.entity and found.score > 0
        }


Detector = PatternDetector | PhoneDetector | PresidioDetector


def _presidio(entity: str) -> PresidioDetector:
    by_entity = _recognizers()
    if entity in _FETCHES:
        raise ConfigError(
            f"Presidio fetches a list from the internet to find {entity}.",
            f"Use the detector {_FETCHES[entity]}, which is built in.",
        )
    if entity not in by_entity:
        raise ConfigError(
            f"Presidio has no pattern for {entity!r}.",
            "Use an entity that it finds by patterns; list names in a column or a file.",
        )
    return PresidioDetector(f"presidio:{entity}", entity, tuple(by_entity[entity]))


@cache
def _recognizers() -> dict[str, list[Any]]:
    try:
        presidio = import_module("presidio_analyzer")
    except ImportError:
        raise ConfigError(
            "Presidio's detectors need a package that is not installed: presidio-analyzer.",
            "Install the extra: pip install 'understudy[pii]'",
        ) from None
    log = logging.getLogger("presidio-analyzer")  # it logs strings that fail a check
    log.disabled = True
    predefined = import_module("presidio_analyzer.predefined_recognizers")
    by_entity: dict[str, list[Any]] = {}
    for name in predefined.__all__:
        kind = getattr(predefined, name)
        if not isinstance(kind, type) or not (
            issubclass(kind, presidio.PatternRecognizer) or name == "PhoneRecognizer"
        ):
            continue
        recognizer = kind()
        for entity in recognizer.supported_entities:
            by_entity.setdefault(entity, []).append(recognizer)
    return by_entity
