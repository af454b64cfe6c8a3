"""A configuration to begin with, written from the names of a table's columns alone."""

from __future__ import annotations

import json
from collections.abc import Sequence

from understudy.base.columns import WRITTEN
from understudy.corpus.read import Kind

_CATEGORY = "[A, B, C]"
_FORMS: dict[Kind | None, str] = {
    "boolean": "boolean",
    "integer": "{kind: integer, range: [0, 100], bins: 20}",
    "number": "{kind: number, range: [0.0, 100.0], bins: 20, decimals: 2}",
    "date": "{kind: date, range: [2024-01-01, 2024-12-31], bins: 12}",
    "datetime": '{kind: datetime, range: ["2024-01-01T00:00", "2024-12-31T23:59"], bins: 12}',
}
_TEXTS = ("text", "message", "note", "body", "content", "review", "comment", "description", "dialog")
_LABELS = ("label", "category", "class", "topic", "department", "product", "service", "type")
_OWNERS = ("owner", "user", "customer", "patient", "author", "client", "person")


def draft(data: str, columns: Sequence[tuple[str, Kind | None]]) -> str:
    """YAML to be filled in: every column is there, and every domain is to be declared."""
    names = [name for name, _ in columns]
    dialogues = [name for name, kind in columns if kind == "dialogue"]
    texts = dialogues or [name for name, kind in columns if kind in ("text", None)] or names
    text = _likely(texts, _TEXTS)
    owner = next((name for word in _OWNERS for name in names if word in name.casefold()), None)
    told = [("turns", "{kind: integer, range: [1, 20]}"), ("begins", "[A, B]")] if dialogues else []
    lines = [
        "# Written by `understudy init` from the names of the columns; no value was read.",
        "# Fill it in from what you know, not from the data: what stands here is public. Then:",
        "#   understudy plan --config FILE       what the budget buys",
        "#   understudy run --config FILE        makes the synthetic table",
        "",
        f"data: {_quoted(data)}",
        *(
            [
                f"text: {_quoted(text)}  # the column of the dialogues",
                "roles: [A, B]  # all who speak in them",
                "# acts: [A, B]  # what turns may do, where they have an act",
                "# tools: [A, B]  # functions that they may call, where they have tool_calls",
            ]
            if dialogues
            else [f"text: {_quoted(text)}  # the column of the texts, or several as [A, B]: of {', '.join(texts)}"]
        ),
        "",
        "# A column by which texts differ, and all its values:",
        f"# label: {_quoted(_likely([name for name in names if name != text] or names, _LABELS))}",
        "# labels: [A, B, C]",
        "",
        "# Other columns that the synthetic table is to have (docs/tables.md). Whatever stays a comment is left out,",
        "# and so should be names, numbers and addresses of people. Forms: a list of values, boolean, or",
        *(f"#   {form}" for form in list(_FORMS.values())[1:]),
        "# What is never empty: {kind: category, values: [A, B, C], required: true}, and so with every kind.",
        "# columns:",
        *(
            f"#   {_quoted(name)}: {_FORMS.get(kind, _CATEGORY)}"
            for name, kind in columns
            if name != text and name not in WRITTEN
        ),
        *(f"#   {name}: {form}  # told from the dialogue" for name, form in told),
    ]
    lines += [
        "",
        "# Whose record a row is, where people have several:",
        f"# owner: {_quoted(owner) if owner else 'COLUMN'}",
        "",
        "epsilon: 6",
        "delta: 1e-6  # below 1 over the number of records",
        "# expected_records: 20000  # your estimate, for the forecast",
        "",
        "document_type: document",
        "records: 1000",
        "output: out",
        "",
    ]
    return "\n".join(lines)


def _likely(names: Sequence[str], words: Sequence[str]) -> str:
    """The first name with one of the words in it, or else the first."""
    return next((name for word in words for name in names if word in name.casefold()), names[0])


def _quoted(name: str) -> str:
    """As YAML reads it back: plain where it is a plain word."""
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum() and name[0].isalpha()
    return name if plain and name.casefold() not in _WORDS else json.dumps(name, ensure_ascii=False)


_WORDS = {"yes", "no", "on", "off", "true", "false", "null", "y", "n"}
