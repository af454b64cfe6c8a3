"""What may be written to a terminal, and what a notebook shows: escaped HTML in which nothing runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

_STEERING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\U000e0000-\U000e007f]"
)

DIRECTIONS = {c: ascii(chr(c))[1:-1] for c in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Characters that turn the direction of words, each with its escape: unseen, they show a text as it does not read."""


def printable(text: str) -> str:
    r"""``text`` with control characters, which could steer a terminal, as escapes; tabs and line ends stay.

    >>> print(printable("\x1b[2J safe"))
    \x1b[2J safe
    """
    return _STEERING.sub(lambda match: ascii(match[0])[1:-1], text)


def aligned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in plain letters.

    >>> print(aligned(("", "of"), [("accuracy", "real")]))
              of
    accuracy  real
    """
    lines = [tuple(printable(cell).replace("\n", " ").replace("\t", " ") for cell in row) for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


_STYLE = "max-width: 60em; text-align: left"
_CELL = "text-align: left; vertical-align: top"
_CODE = re.compile(r"`([^`]+)`")
_BOLD = re.compile(r"\*\*([^*]+)\*\*")
_HEADING = re.compile(r"(#{1,4}) (.+)")
_CONTROLS = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(127, 160), *range(55296, 57344)), "�") | DIRECTIONS


def text(words: object) -> str:
    """Words as HTML: escaped, controls and halves of characters as U+FFFD, what turns the direction as its escape."""
    return escape(str(words).translate(_CONTROLS))


def card(title: str, *parts: str) -> str:
    """One thing with its title; ``parts`` are HTML already."""
    return f'<div style="{_STYLE}"><p><strong>{text(title)}</strong></p>{"".join(parts)}</div>'


def paragraph(words: str) -> str:
    return f"<p>{text(words)}</p>"


def bullets(lines: Sequence[str]) -> str:
    """A list; nothing without lines."""
    return f"<ul>{''.join(f'<li>{text(line)}</li>' for line in lines)}</ul>" if lines else ""


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; nothing without rows."""
    if not rows:
        return ""
    head = "".join(f'<th scope="col" style="{_CELL}">{text(each)}</th>' for each in heads)
    cells = ("".join(f'<td style="{_CELL}">{text(value)}</td>' for value in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def folded(title: str, body: str, *, unfolded: bool = False) -> str:
    """HTML that is shown once its title is clicked."""
    return f"<details{' open' * unfolded}><summary>{text(title)}</summary>{body}</details>"


def from_markdown(source: str) -> str:
    """The Markdown that understudy writes: headings, paragraphs, quotations, lists, tables, bold words and code."""
    found: list[str] = []
    for block in re.split(r"\n{2,}", source.strip()):
        lines = block.split("\n")
        heading = _HEADING.fullmatch(block)
        if heading:
            level = min(len(heading[1]) + 2, 6)
            found.append(f"<h{level}>{_inline(heading[2])}</h{level}>")
        elif all(line.startswith("- ") for line in lines):
            found.append(f"<ul>{''.join(f'<li>{_inline(line[2:])}</li>' for line in lines)}</ul>")
        elif all(line.startswith("|") for line in lines):
            cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
            found.append(table(cells[0], cells[2:]))
        elif block.startswith("> "):
            found.append(f"<blockquote>{_inline(block[2:])}</blockquote>")
        else:
            found.append(f"<p>{_inline(block)}</p>")
    return f'<div style="{_STYLE}">{"".join(found)}</div>'


def _inline(words: str) -> str:
    return _BOLD.sub(r"<strong>\1</strong>", _CODE.sub(r"<code>\1</code>", text(words)))


def bars(stages: Sequence[tuple[str, int, int, str]]) -> str:
    """A bar per stage: what, how many are done, of how many, and a note."""
    return "".join(
        f'<div><label>{text(what)} <progress value="{done}" max="{max(total, 1)}"></progress></label> '
        f"{done} of {total} {text(note)}</div>"
        for what, done, total, note in stages
    )


def frame(page: str, *, title: str) -> str:
    """A whole page, which may run its own script within its own frame and reach nothing outside."""
    return (
        f'<iframe title="{text(title)}" sandbox="allow-scripts" srcdoc="{escape(page)}" '
        'style="width: 100%; height: 40em; border: 1px solid #888"></iframe>'
    )
