"""Typed columns as users declare them: a mapping, a YAML file, or one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeGuard, cast

from understudy.base.columns.column import FORM, Column, no_column
from understudy.base.columns.values import Kind, parse
from understudy.base.errors import ConfigError
from understudy.base.files import MOST_SETTINGS_BYTES, UnreadableText, cannot_read, read_whole


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
