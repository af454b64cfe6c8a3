"""Format numbers and paragraphs for people."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

from markupsafe import Markup, escape

from understudy.evaluate.metrics.value import Interval

MISSING = "–"
_BOLD = re.compile(r"\*\*(.+?)\*\*")


def short(value: float | None, digits: int = 3) -> str:
    """Format a number with three decimals below ten, fewer above, none if it is whole; an en dash for None.

    >>> short(0.84219), short(12.346), short(1234567.0), short(6.0), short(0.00001234), short(None)
    ('0.842', '12.3', '1,234,567', '6', '1.23e-05', '–')
    """
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if 0 < size < 10**-digits:
        text = f"{value:.2e}"
    elif size != 1 and value == int(value):
        text = f"{value:,.0f}"
    elif size < 10:
        text = f"{value:.{digits}f}"
    elif size < 100:
        text = f"{value:.1f}"
    else:
        text = f"{value:,.0f}"
    return text.replace("-", "−") if value < 0 else text


def percent(share: float) -> str:
    """Format a share in percent.

    >>> percent(0.2), percent(0.1234), percent(0.0004)
    ('20 %', '12.3 %', '0.04 %')
    """
    hundredths = 100 * share
    text = f"{hundredths:.2g}" if 0 < hundredths < 1 else f"{hundredths:.1f}".removesuffix(".0")
    return f"{text} %"


def hundredths(share: float) -> str:
    """Format a share in percent with one decimal, for columns.

    >>> hundredths(0.25), hundredths(1.0)
    ('25.0 %', '100.0 %')
    """
    return f"{100 * share:.1f} %"


def span(interval: Interval | None) -> str:
    """Format the ends of an interval; empty without one.

    >>> span(Interval(0.81, 0.8755, "t over 5 seeds"))
    '0.810 to 0.875'
    """
    return "" if interval is None else f"{short(interval.low)} to {short(interval.high)}"


def cut(text: str, longest: int) -> str:
    """Cut a text to at most ``longest`` characters, the last one an ellipsis if there were more.

    >>> cut("baseline", 5), cut("base", 5)
    ('base…', 'base')
    """
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def as_record(text: str) -> Mapping[str, str] | None:
    """Return the fields of a text that is a JSON object; None for any other text."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in fields.items()
    }


def paragraphs(text: str) -> Markup:
    """Return paragraphs with ``**bold**`` words, everything else escaped."""
    made = [_BOLD.sub(r"<strong>\1</strong>", str(escape(part.strip()))) for part in text.split("\n\n") if part.strip()]
    return Markup("").join(Markup(f"<p>{part}</p>") for part in made)
