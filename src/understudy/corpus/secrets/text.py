"""When two spellings are one secret, and where a word ends."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

_UNSPACED = "".join(
    (
        "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff",  # Thai, Lao, Burmese, Khmer
        "\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u9fff\U00020000-\U0003ffff",  # kana and Han
        "\uac00-\ud7a3",  # Hangul, whose particles are written onto the word
    )
)
"""Scripts in which a word ends without a sign: each of their characters counts as a word of its own."""


_DEFAULT_IGNORABLE = (
    *((0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
"""Default_Ignorable_Code_Point of Unicode 16.0 (DerivedCoreProperties.txt): first and last of each range."""
MARK = "\ufdd0"
"""Stands for an invisible character. It is a noncharacter; where a text holds it, it is invisible itself."""
_INVISIBLE_BLANKS = "\u200b\ufeff\u2800\x1c\x1d\x1e\x1f"
"""The invisible that are blanks by their names: spaces of no width, Braille's blank, separators."""


def tidy(text: str) -> str:
    """``text`` in NFKC with ASCII digits, quotes and hyphens, without invisible characters. Case and lines stay."""
    if text.isascii() and not _ASCII_INVISIBLE.search(text):
        return text
    return unicodedata.normalize("NFKC", text.translate(_plain())).translate(_plain())


def readings(text: str) -> tuple[str, ...]:
    """The ways to read a text with invisible characters: each by its name, all as nothing, all as blanks.

    A text without any has one. ``Smi`` and ``th`` with a space of no width between them look like one word.
    """
    found = _ASCII_INVISIBLE if text.isascii() else _invisible()
    if not found.search(text):
        return (text,)
    return tuple(dict.fromkeys((text, found.sub("", text), found.sub(" ", text))))


def marked(text: str) -> str:
    """``text`` with :data:`MARK` in the place of each invisible character."""
    return _invisible().sub(MARK, text)


def fold(text: str) -> str:
    """The one string for all spellings of a secret: :func:`tidy`, case-folded, runs of white space as one blank.

    >>> fold("  O\u2019BRIEN,\\n Se\u00e1n ")
    "o'brien, se\u00e1n"
    """
    text = tidy(text)
    if text.isascii():
        return " ".join(text.lower().split())
    return " ".join(unicodedata.normalize("NFKC", text.casefold()).split())


def pieces(folded: str) -> list[str]:
    """A folded text cut where a secret may begin or end: into words, and single characters between them.

    A word is a run of letters, digits and combining marks; the pieces joined are the text again.

    >>> pieces("ann's x-ray")
    ['ann', "'", 's', ' ', 'x', '-', 'ray']
    """
    pattern = _ASCII_PIECE if folded.isascii() else _unicode_piece()
    return pattern.findall(folded)


_ASCII_INVISIBLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


@cache
def _invisible() -> re.Pattern[str]:
    return re.compile(f"[{re.escape(''.join(map(chr, _invisible_codes())))}]")


@cache
def _invisible_codes() -> tuple[int, ...]:
    """What shows nothing: the default ignorable, formats, controls that are no white space, and some more."""
    ignorable = (code for first, last in _DEFAULT_IGNORABLE for code in range(first, last + 1))
    controls = (code for code in (*range(0x20), *range(0x7F, 0xA0)) if not chr(code).isspace())
    others = map(ord, (*_INVISIBLE_BLANKS, MARK, "\ufffc"))  # and the place of an object
    return tuple(dict.fromkeys((*ignorable, *_codes("Cf"), *controls, *others)))


_ASCII_PIECE = re.compile(r"[^\W_]+|.", re.DOTALL)


@cache
def _unicode_piece() -> re.Pattern[str]:
    marks = "".join(map(chr, _codes("M")))
    return re.compile(rf"[^\W_{_UNSPACED}]+(?:[{marks}]+[^\W_{_UNSPACED}]*)*|.", re.DOTALL)


@cache
def _plain() -> dict[int, str]:
    """What is replaced before comparing: any script's digits, curly quotes, all hyphens, the invisible."""
    digits = {code: str(unicodedata.decimal(chr(code))) for code in _codes("Nd") if code > 127}
    quotes = dict.fromkeys(map(ord, "\u2018\u2019\u02bc\u2032\u00b4"), "'")
    hyphens = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-")
    invisible = dict.fromkeys((code for code in _invisible_codes() if code != ord(MARK)), "")
    return {**digits, **quotes, **hyphens, **invisible, **dict.fromkeys(map(ord, _INVISIBLE_BLANKS), " ")}


def _codes(category: str) -> list[int]:
    """All code points of a Unicode category; planes 2 to 13 and 15 on have none of those that are asked for here."""
    where = (range(0x20000), range(0xE0000, 0xE0200))
    return [code for codes in where for code in codes if unicodedata.category(chr(code)).startswith(category)]
