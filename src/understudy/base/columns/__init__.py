"""Typed columns beside the text, each with a declared, finite domain of cells: public facts alone.

Users declare them by a mapping, a YAML file or one line. Several together make labels, and rows in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, TypeGuard, cast

from understudy.base.columns.column import FORM, MOST_CELLS, Column, Span, no_column
from understudy.base.columns.values import Kind, parse
from understudy.base.errors import ConfigError
from understudy.base.files import MOST_SETTINGS_BYTES, UnreadableText, cannot_read, read_whole

__all__ = [
    "MOST_CELLS",
    "WRITTEN",
    "Column",
    "Span",
    "cross_labels",
    "crossed_columns",
    "declared_columns",
    "in_words",
    "read_columns",
    "require_own_names",
    "row_characters",
]


def declared_columns(declared: object) -> tuple[Column, ...]:
    """Typed columns as the user declares them, in their order.

    Args:
        declared: a mapping from names to declarations, ``@FILE`` that holds one as YAML, or the short form
            ``"priority=low|high; stars=1..5; paid=0.0..99.9/20; urgent; opened=2024-01-01..2024-12-31/12"``.

    Raises:
        ConfigError: if one has no finite domain, or a name is there twice.
    """
    declared = read_columns(declared)
    if _are_columns(declared):
        columns = list(declared)
    elif isinstance(declared, str):
        columns = [_of_short(part) for part in declared.split(";") if part.strip()]
    elif isinstance(declared, Mapping):
        columns = _of_mapping(declared)
    else:
        raise ConfigError("The columns are declared neither by a mapping nor by a string.", FORM)
    if not columns:
        raise ConfigError("No column is declared.", FORM)
    for place, column in enumerate(columns):
        if any(column.name == other.name for other in columns[:place]):
            raise ConfigError(f"The column {column.name!r:.60} is declared twice.", "Declare each column once.")
    return tuple(columns)


def read_columns(declared: object) -> object:
    """What ``@FILE`` holds; anything else as it is. Raises ConfigError if the file cannot be read."""
    if isinstance(declared, str) and declared.startswith("@"):
        return {str(name): domain for name, domain in _read(Path(declared[1:])).items()}
    return declared


def _are_columns(declared: object) -> TypeGuard[tuple[Column, ...]]:
    return isinstance(declared, list | tuple) and all(isinstance(each, Column) for each in declared)


def _of_mapping(declared: Mapping[Any, Any]) -> list[Column]:
    columns = []
    for name, domain in declared.items():
        if isinstance(domain, str):
            columns.append(_of_short(f"{name}={domain}"))
        elif isinstance(domain, list | tuple):
            columns.append(Column(str(name), "category", values=tuple(domain)))
        elif isinstance(domain, Mapping):
            columns.append(Column.from_json({**domain, "name": str(name)}))
        else:
            raise no_column(name, "it says neither values nor a range")
    return columns


def _of_short(text: str) -> Column:
    name, equals, domain = (part.strip() for part in text.partition("="))
    if not equals and name.casefold().endswith((".yaml", ".yml", ".json")):
        raise ConfigError(f"The columns {name!r:.80} are the name of a file.", f"Write @{name} to read it.")
    if not equals or domain in ("boolean", "identifier"):
        return Column(name, cast(Kind, domain or "boolean"))
    if ".." not in domain:
        values = [value.strip() for value in domain.split("|")]
        numbers = [parse(value, "integer") for value in values]
        whole = [str(number) for number in numbers] == values  # then they are integers in the synthetic table
        return Column(name, "category", values=tuple(numbers if whole else values))
    ends, slash, bins = domain.partition("/")
    first, _, last = (end.strip() for end in ends.partition(".."))
    if slash and not bins.strip().isdecimal() and ".." in bins:
        raise no_column(name, "its range has slashes", "Dates are written 2024-12-31; bins stand behind one slash.")
    if slash and (not bins.strip().isdecimal() or not int(bins)):
        raise no_column(name, "its bins are no number from 1")
    found: dict[str, Any] = {"bins": int(bins) if slash else 0, "least": first, "most": last}
    for kind, parses in _KINDS_OF_ENDS:
        if parses(first) and parses(last):
            if kind == "number":
                found["decimals"] = max(len(end.partition(".")[2]) for end in (first, last))
            return Column(name, kind, **found)
    raise no_column(name, "the ends of its range are neither numbers nor dates of one form")


_KINDS_OF_ENDS: tuple[tuple[Kind, Callable[[str], bool]], ...] = (
    ("integer", lambda end: "." not in end and parse(end, "integer") is not None),
    ("number", lambda end: parse(end, "number") is not None),
    ("date", lambda end: parse(end, "date") is not None and len(end) == 10),
    ("datetime", lambda end: parse(end, "datetime") is not None),
)


def _read(path: Path) -> Mapping[Any, Any]:
    from understudy.base.yaml_text import load_yaml

    cure = "Give YAML with one `NAME: ...` per column."
    try:
        found = load_yaml(read_whole(path, most=MOST_SETTINGS_BYTES).decode("utf-8"))
    except (UnreadableText, UnicodeDecodeError) as error:
        raise cannot_read(f"The columns file {path.name!r}", error, cure) from None
    if isinstance(found, Mapping) and isinstance(found.get("columns"), Mapping):
        found = found["columns"]
    if not isinstance(found, Mapping):
        raise ConfigError(f"The columns file {path.name!r} cannot be read.", cure)
    return found


def crossed_columns(label: str | None, columns: Sequence[Column]) -> tuple[Column, ...]:
    """The typed columns that a label is made of: ``product``, or ``product*priority``; none if it is a column of its
    own.

    Raises ConfigError if one is named twice, or they have more than :data:`MOST_CELLS` combinations.
    """
    names = [] if label is None else [part.strip() for part in label.split("*")]
    found = [column for name in names for column in columns if column.name == name and not column.made_up]
    if len(found) < len(names):
        return ()
    if len(set(names)) < len(names):
        raise ConfigError(f"The label {label!r:.60} names a column twice.", "Cross different columns.")
    if math.prod(column.missing for column in found) > MOST_CELLS:
        raise ConfigError(
            f"The columns of the label {label!r:.60} have more than {MOST_CELLS} combinations.",
            "Cross fewer columns, or declare fewer values and bins.",
        )
    return tuple(found)


def cross_labels(crossed: Sequence[Column]) -> tuple[str, ...]:
    """The label set of crossed columns, the last one moving fastest; missing values have no label."""
    titles = ([column.title(cell) for cell in range(column.missing)] for column in crossed)
    found = tuple(" / ".join(combination) for combination in product(*titles))
    if len(set(found)) < len(found):
        raise ConfigError(
            "Two combinations of the label's columns are written alike.", "Rename the values that hold a slash."
        )
    return found


def in_words(columns: Sequence[Column], cells: Sequence[int]) -> str:
    """A row's cells, those of missing values left out: ``priority: high; paid: 0 to 5``."""
    named = zip(columns, cells, strict=True)
    return "; ".join(f"{column.name}: {column.title(cell)}" for column, cell in named if cell != column.missing)


def row_characters(columns: Sequence[Column]) -> float:
    """How long a row is :func:`in_words` where nothing is missing, the mean over each column's cells."""
    lengths = ([len(in_words([each], [cell])) + 2 for cell in range(each.missing)] for each in columns)
    return sum(sum(each) / len(each) for each in lengths)


WRITTEN = ("text", "label", "provenance")
"""Columns that every synthetic table has."""


def require_own_names(columns: Sequence[Column], others: Iterable[str | None]) -> None:
    """See that no typed column is one of the ``others``, or of those that every synthetic table has; else
    ConfigError."""
    taken = {*others, *WRITTEN}
    if twice := [column.name for column in columns if column.name in taken]:
        raise ConfigError(
            f"The typed column {twice[0]!r} is also the text, the label, the owner, or a column that is written.",
            f"Declare it once, and rename columns called {', '.join(WRITTEN)}; the label's domain is --labels.",
        )
