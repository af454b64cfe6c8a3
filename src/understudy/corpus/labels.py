"""The label set that the user declares, and the type that labels have in the output."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from understudy.base.columns import Column
from understudy.base.errors import ConfigError
from understudy.base.files import UnreadableText, read_lines, read_whole
from understudy.base.labels import Label, LabelType, as_type, canonical, is_missing


def declared_labels(labels: str | Iterable[Label]) -> tuple[Label, ...]:
    """The label set as the user wrote it.

    Args:
        labels: the labels themselves; or ``"a,b,c"``; or ``"@FILE"``, with one label per line or, where the file's name
            ends in ``.json``, a JSON list.

    Raises:
        ConfigError: the file cannot be read, a label is empty or no label at all, or one is there twice.
    """
    if isinstance(labels, str):
        values: Sequence[object] = _labels_of_file(Path(labels[1:])) if labels.startswith("@") else _split(labels)
    else:
        values = list(labels)
    declared: list[Label] = []
    for value in values:
        label = as_type(value, None)
        if label is None or is_missing(label):
            raise ConfigError(
                "A declared label is empty or of no usable type.",
                "Labels are strings, whole numbers, decimals (up to 1e300) or booleans.",
            )
        declared.append(label)
    if not declared:
        raise ConfigError("The declared label set is empty.", "Name at least one label, or leave the label column out.")
    return _distinct(declared)


def output_type(labels: Iterable[Label], label_type: LabelType | None, data_type: LabelType | None) -> LabelType | None:
    """The type that labels have in the output; None: each declared label's own.

    ``label_type`` where the user set one, else ``data_type``, that of the data's column. But declared integers stay so
    for a column of decimals (which one null makes of a column of integers); and where the data has no type (JSON),
    strings that all spell whole numbers, as a command line gives them, become integers.
    """
    if label_type is not None:
        return label_type
    labels = tuple(labels)
    if data_type == "float" and labels and all(_spells_integer(label) for label in labels):
        return "int"
    if data_type is None and labels and all(isinstance(label, str) and _spells_integer(label) for label in labels):
        return "int"
    return data_type


def undeclared(label: str, columns: Sequence[Column]) -> ConfigError:
    """The error for a label without a label set, beside these typed columns."""
    if columns and "*" in label:
        return ConfigError(
            f"The label {label!r:.60} names a column that --columns does not declare.",
            f"The declared ones are: {', '.join(column.name for column in columns)}.",
        )
    return ConfigError(
        f"The label set of the column {label!r} is not declared.",
        "Declare it with --labels A,B,C or --labels @FILE, or accept with --labels-from-data that the set read "
        "from the data is not protected.",
    )


def typed_labels(labels: Iterable[Label], label_type: LabelType | None) -> tuple[Label, ...]:
    """Declared labels in the type that the output will have; None: each in its own.

    Raises a ConfigError where a label cannot be of that type, or two become the same.
    """
    typed: list[Label] = []
    for label in labels:
        value = as_type(label, label_type)
        if value is None:
            raise ConfigError(
                f"The declared label {canonical(label)!r} is not of the label column's type ({label_type}).",
                "Declare labels as the column holds them.",
            )
        typed.append(value)
    return _distinct(typed)


def _distinct(labels: Sequence[Label]) -> tuple[Label, ...]:
    for name, times in Counter(map(canonical, labels)).items():
        if times > 1:
            raise ConfigError(f"The label {name!r} is declared twice.", "Declare each label once.")
    return tuple(labels)


def _spells_integer(label: Label) -> bool:
    if not isinstance(label, str):
        return type(label) is int
    return label.removeprefix("-").isdecimal() and label.isascii() and len(label) < 20 and str(int(label)) == label


def _split(text: str) -> list[str]:
    return [label.strip() for label in text.split(",") if label.strip()]


def _labels_of_file(path: Path) -> list[object]:
    values: object = None
    try:
        if path.suffix == ".json":
            values = json.loads(read_whole(path).decode("utf-8-sig"))
        else:
            values = [line.strip() for line in read_lines(path) if line.strip()]
    except (OSError, ValueError, RecursionError, UnreadableText):
        pass  # reported below, without the exception that would quote the file
    if not isinstance(values, list):
        raise ConfigError(
            f"The label file {str(path)!r} cannot be read.",
            "Give UTF-8 with one label per line (lines end at LF or CRLF), or a JSON list in a file named .json.",
        )
    return values
