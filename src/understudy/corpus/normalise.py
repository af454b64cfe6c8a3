"""Decide when two spellings are the same text, owner, cell or secret, and where a word ends."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Collection
from functools import cache

from understudy.schema.columns import parse
from understudy.schema.labels import whole

_UNSPACED = "".join(
    (
        "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff",  # Thai, Lao, Burmese, Khmer
        "\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u9fff\U00020000-\U0003ffff",  # kana and Han
        "\uac00-\ud7a3",  # Hangul, whose particles are written onto the word
    )
)
"""Scripts without a sign at the end of a word: each of their characters counts as a separate word."""


_DEFAULT_IGNORABLE = (
    *((0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
"""Default_Ignorable_Code_Point of Unicode 16.0 (DerivedCoreProperties.txt): first and last of each range."""
MARK = "\ufdd0"
"""The placeholder of an invisible character. It is a noncharacter, and counts as invisible if a text contains it."""
_INVISIBLE_BLANKS = "\u200b\ufeff\u2800\x1c\x1d\x1e\x1f"
"""Invisible characters that are blanks by their names: spaces of no width, Braille's blank, separators."""


def tidy(text: str) -> str:
    """Normalise ``text`` to NFKC, with ASCII digits, quotes and hyphens and without invisible characters. Case and line
    breaks stay."""
    if text.isascii() and not _ASCII_INVISIBLE.search(text):
        return text
    if not _replaced().search(text) and unicodedata.is_normalized("NFKC", text):
        return text
    return unicodedata.normalize("NFKC", text.translate(_plain())).translate(_plain())


def visible(text: str) -> str:
    """Return ``text`` without its invisible characters, such as a soft hyphen or a space of no width."""
    return (_ASCII_INVISIBLE if text.isascii() else _invisible()).sub("", text)


def one_spelling(text: str) -> str:
    """Return the canonical string for a text or owner, however it was converted: :func:`visible` and :func:`tidy`, runs
    of white space as one blank. Case makes a difference.

    >>> one_spelling(" Zoe\u0308\u00ad \uff17")
    'Zoë 7'
    """
    return " ".join(tidy(visible(text)).split())


def record_spelling(record: str) -> str:
    """Return the canonical string for a JSON record, whose cells have different types in different file formats.

    >>> record_spelling('{"b": "53.10", "a": null}') == record_spelling('{"a": "", "b": 53.1}')
    True
    """
    return json.dumps(_cell_spelling(json.loads(record, parse_int=str, parse_float=str)), sort_keys=True)


def _cell_spelling(cell: object) -> object:
    """Return a number without needless zeros, a time in ISO 8601 in UTC, midnight as its day, a boolean in lower case,
    or an empty string for a missing value."""
    if isinstance(cell, dict):
        return {one_spelling(key): _cell_spelling(each) for key, each in cell.items()}
    if isinstance(cell, list):
        return [_cell_spelling(each) for each in cell]
    text = "" if cell is None else one_spelling(str(cell))
    if text.casefold() in ("true", "false"):
        return text.casefold()
    if not (number := _NUMBER.fullmatch(text)):
        time = parse(text, "datetime") if text[:1].isdecimal() else None
        return text if time is None else str(time)
    sign, digits, rest = number.groups()
    if rest and math.isfinite(float(text)):
        return repr(whole(float(text)))
    digits = digits.lstrip("0") or "0"
    return text if rest else digits if digits == "0" else f"{sign}{digits}"


_NUMBER = re.compile(r"\+?(-?)([0-9]+)((?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)")


def readings(text: str) -> tuple[str, ...]:
    """Return the possible readings of a text with invisible characters: each treated by its kind, all as nothing, and
    all as blanks. A text without any has one reading.

    ``Smi`` and ``th`` with a space of no width between them look like one word.
    """
    found = _ASCII_INVISIBLE if text.isascii() else _invisible()
    if not found.search(text):
        return (text,)
    return tuple(dict.fromkeys((text, found.sub("", text), found.sub(" ", text))))


def marked(text: str) -> str:
    """Return ``text`` with the character :data:`MARK` in place of each invisible character."""
    return _invisible().sub(MARK, text)


def fold(text: str) -> str:
    """Return the canonical string for all spellings of a secret: :func:`tidy`, case-folded, white space as one blank.

    >>> fold("  O\u2019BRIEN,\\n Se\u00e1n ")
    "o'brien, se\u00e1n"
    """
    text = tidy(text)
    if text.isascii():
        return " ".join(text.lower().split())
    return " ".join(unicodedata.normalize("NFKC", text.casefold()).split())


def pieces(folded: str) -> list[str]:
    """Split a folded text where a secret may begin or end: into words, and single characters between them.

    A word is a run of letters, digits and combining marks; the pieces joined are the text again.

    >>> pieces("ann's x-ray")
    ['ann', "'", 's', ' ', 'x', '-', 'ray']
    """
    pattern = _ASCII_PIECE if folded.isascii() else _unicode_piece()
    return pattern.findall(folded)


_ASCII_INVISIBLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


@cache
def _invisible() -> re.Pattern[str]:
    return _one_of(_invisible_codes())


@cache
def _replaced() -> re.Pattern[str]:
    return _one_of(_plain())


def _one_of(codes: Collection[int]) -> re.Pattern[str]:
    """Return a pattern for one of the characters, as ranges: beyond U+FFFF ``re`` would try them one by one."""
    first, last = (sorted(code for code in codes if code + step not in codes) for step in (-1, 1))
    ranges = (f"{re.escape(chr(low))}-{re.escape(chr(high))}" for low, high in zip(first, last, strict=True))
    return re.compile(f"[{''.join(ranges)}]")


@cache
def _invisible_codes() -> frozenset[int]:
    """Return the invisible characters: default ignorables, formats, controls other than white space, and some more."""
    ignorable = (code for first, last in _DEFAULT_IGNORABLE for code in range(first, last + 1))
    controls = (code for code in (*range(0x20), *range(0x7F, 0xA0)) if not chr(code).isspace())
    others = map(ord, (*_INVISIBLE_BLANKS, MARK, "\ufffc"))  # and the place of an object
    return frozenset((*ignorable, *_codes("Cf"), *controls, *others))


_ASCII_PIECE = re.compile(r"[^\W_]+|.", re.DOTALL)


@cache
def _unicode_piece() -> re.Pattern[str]:
    marks = "".join(map(chr, _codes("M")))
    return re.compile(rf"[^\W_{_UNSPACED}]+(?:[{marks}]+[^\W_{_UNSPACED}]*)*|.", re.DOTALL)


@cache
def _plain() -> dict[int, str]:
    """Return the replacements before comparing: any script's digits, curly quotes, all hyphens, invisible ones."""
    digits = {code: str(unicodedata.decimal(chr(code))) for code in _codes("Nd") if code > 127}
    quotes = dict.fromkeys(map(ord, "\u2018\u2019\u02bc\u2032\u00b4"), "'")
    hyphens = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-")
    invisible = dict.fromkeys((code for code in _invisible_codes() if code != ord(MARK)), "")
    return {**digits, **quotes, **hyphens, **invisible, **dict.fromkeys(map(ord, _INVISIBLE_BLANKS), " ")}


def _codes(category: str) -> list[int]:
    """Return all code points of a Unicode category; planes 2 to 13 and 15 on have none of the categories used here."""
    where = (range(0x20000), range(0xE0000, 0xE0200))
    return [code for codes in where for code in codes if unicodedata.category(chr(code)).startswith(category)]
