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


def tidy(text: str) -> str:
    """``text`` in NFKC with ASCII digits, quotes and hyphens, without invisible characters. Case and lines stay."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text.translate(_plain())).translate(_plain())


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
    invisible = dict.fromkeys(_codes("Cf"), "")
    return {**digits, **quotes, **hyphens, **invisible, 0x200B: " ", 0xFEFF: " "}


def _codes(category: str) -> list[int]:
    """All code points of a Unicode category; planes 2 to 13 and 15 on have none of those that are asked for here."""
    where = (range(0x20000), range(0xE0000, 0xE0200))
    return [code for codes in where for code in codes if unicodedata.category(chr(code)).startswith(category)]
