"""Handle labels: their canonical strings and types, the public declared set, and the numbers of texts per label.

Labels compare as canonical strings (``true``, ``1``, ``0.5``, ``other``) and keep their type in the output. A whole
decimal counts as an integer (1.0 as 1), because a single null turns a column of integers into decimals; if all
labels are numbers, so does the string "1.0".
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from understudy.base.errors import ConfigError
from understudy.base.files import UnreadableText, read_lines, read_whole
from understudy.base.listed import comma_separated

Label = str | int | float | bool
LabelType = Literal["string", "int", "float", "bool"]
_LARGEST = 1e300  # of a number, so that a Release that names it as a label can be read again
LABEL_TYPES: tuple[str, ...] = get_args(LabelType)
_NUMBERS = {
    "int": re.compile(r"[-+]?[0-9]+"),
    "float": re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"),
}
"""The form of numbers. Python would also read ``1_0`` and the digits of other scripts."""


def canonical(label: Label) -> str:
    """Return the string by which labels are compared: ``true``/``false``, ``1`` (also for 1.0), ``0.5``, or itself."""
    if isinstance(label, str):
        return label
    if isinstance(label, bool):
        return "true" if label else "false"
    return repr(whole(label) if isinstance(label, float) else label)


def whole(number: float) -> float | int:
    """Return a decimal without a fraction as an integer; any other number unchanged."""
    return int(number) if number.is_integer() else number


_WHOLE = re.compile(r"(-?(?:0|[1-9][0-9]*))\.0+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")


def without_zeros(text: str) -> str:
    """Return ``1`` for ``1.0`` or ``1.00``; any other text as it is, such as ``1.10`` or ``01``."""
    return found[1] if (found := _WHOLE.fullmatch(text)) else text


class Places(dict[str, int]):
    """Maps the canonical string of a label to its index in the declared labels.

    >>> Places(["1.0", "2.5"]).of(1), Places(["1.0", "v2"]).of("1"), Places(["01067"]).of(1067)
    (0, None, None)
    """

    def __init__(self, labels: Sequence[Label]) -> None:
        names = list(map(canonical, labels))
        super().__init__(zip(names, range(len(names)), strict=True))
        plain = dict(zip(map(without_zeros, names), range(len(names)), strict=True))
        self._numbers = len(plain) == len(names) and all(map(_NUMBER.fullmatch, plain))
        if self._numbers:
            self.update(plain)

    def of(self, label: Label) -> int | None:
        """Return the index of a label found in the table; None if it is not declared."""
        name = canonical(label)
        return self.get(without_zeros(name) if self._numbers else name)


def is_missing(value: object) -> bool:
    """Return whether a cell is empty: null, NaN, NaT (pandas' missing time), or white space."""
    if isinstance(value, str):
        return not value or value.isspace()
    return value is None or (isinstance(value, float | np.generic | datetime.datetime) and bool(value != value))


def as_type(value: object, label_type: LabelType | None) -> Label | None:
    """Return ``value`` as a label of ``label_type`` (None: its present type); None if it is not such a label.

    Infinities, and numbers of 300 digits, are not labels.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, decimal.Decimal) and value.is_finite() and abs(value) <= _LARGEST:
        value = int(value) if value == value.to_integral_value() else float(value)
    if not isinstance(value, (str, int, float, bool)):
        return None
    if isinstance(value, int) and abs(value) > _LARGEST:  # too long to be spelled
        return None
    if label_type is None:
        return value if isinstance(value, str) or abs(value) <= _LARGEST else None
    text = canonical(value)
    if label_type == "string":
        return text
    if label_type == "bool":
        return {"true": True, "false": False}.get(text.casefold())
    text = without_zeros(text)
    if not _NUMBERS[label_type].fullmatch(text.strip()):
        return None
    try:
        number = int(text) if label_type == "int" else float(text)
    except ValueError:  # more digits than Python reads
        return None
    return number if abs(number) <= _LARGEST else None


UNIFORM, NOISY = "uniform", "noisy"


@dataclass(frozen=True)
class LabelSet:
    """The declared labels' canonical strings, in their order; empty for a table without labels.

    >>> LabelSet().size, LabelSet(("cardiology", "other")).size
    (1, 2)
    """

    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Return the number of groups of records: one per label, or one if there are no labels."""
        return max(1, len(self.names))

    @property
    def titles(self) -> tuple[str, ...]:
        """Return a name for each group of records."""
        return self.names or ("all",)


def declared_proportions(text: str, label_names: Sequence[str]) -> tuple[float, ...] | None:
    """Return the proportions that ``A=3,B=1`` declares, in the order of the labels; None for ``uniform`` and ``noisy``.

    Raises ConfigError unless exactly the declared labels have numbers, all 0 or more.
    """
    if text in (UNIFORM, NOISY):
        return None
    parts = [part.rpartition("=") for part in text.split(",")]
    try:
        given = {name.strip(): float(number) for name, _, number in parts}
    except ValueError:
        given = {}
    usable = len(given) == len(parts) and all(math.isfinite(n) and n >= 0 for n in given.values())
    if not usable or set(given) != set(label_names) or not 0 < sum(given.values()) < math.inf:
        raise ConfigError(
            f"The label proportions {text!r:.80} do not fit the declared labels.",
            "Give `uniform`, `noisy`, or one number per label: A=3,B=1.",
        )
    return tuple(given[name] for name in label_names)


def in_proportion(total: int, weights: Sequence[float]) -> list[int]:
    """Divide ``total`` in proportion to ``weights`` (largest remainder); negative ones, as of noisy counts, count as 0.

    If all are 0 the shares are equal.

    >>> in_proportion(10, [5, 3, -1])
    [6, 4, 0]
    """
    positive = [max(0.0, weight) for weight in weights]
    whole = math.fsum(positive)
    exact = [total * weight / whole for weight in positive] if whole > 0 else [total / len(positive)] * len(positive)
    shares = [math.floor(share) for share in exact]
    by_remainder = sorted(range(len(shares)), key=lambda place: (shares[place] - exact[place], place))
    for place in by_remainder[: total - sum(shares)]:
        shares[place] += 1
    return shares


def like_counts(total: int, counts: Sequence[float], std: float) -> list[int]:
    """Divide ``total`` in proportion to two or more noisy ``counts``, shrunk towards their mean by the share of their
    variation that noise of this standard deviation explains (James and Stein 1961). The shares are equal if noise
    explains all of the variation, or the mean itself.

    >>> like_counts(100, [60, 30, 10], 0.0), like_counts(9, [60, 30, 10], 40.0)
    ([60, 30, 10], [3, 3, 3])
    """
    mean = math.fsum(counts) / len(counts)
    spread = math.fsum((count - mean) ** 2 for count in counts) / (len(counts) - 1)
    known = spread > std**2 and mean > 2 * std / math.sqrt(len(counts))
    kept = 1 - std**2 / spread if known else 0.0
    return in_proportion(total, [mean + kept * (count - mean) for count in counts])


def present_labels(counts: Sequence[float], std: float) -> list[bool]:
    """Return which labels have texts: those whose noisy count is more than three standard deviations above 0. If none
    is, noise hides all of them alike, and each may have texts.

    >>> present_labels([60, 5, 40], 10.0), present_labels([6, 5, 4], 10.0), present_labels([0, 1], 0.0)
    ([True, False, True], [True, True, True], [False, True])
    """
    above = [count > 3 * std for count in counts]
    return above if any(above) else [True] * len(above)


def declared_labels(labels: str | Iterable[Label]) -> tuple[Label, ...]:
    """Return the label set that the user declared.

    Args:
        labels: a list of labels; or ``"a,b,c"``, with double quotes for labels with a comma or with blanks around
            them; or ``"@FILE"``, with one label per line or, if the file's name ends in ``.json``, a JSON list.
    """
    if isinstance(labels, str):
        values: Sequence[object] = [label for label in comma_separated(labels) if label.strip()]
        if labels.startswith("@"):
            values = _labels_of_file(Path(labels[1:]))
    else:
        values = list(labels)
    declared: list[Label] = []
    for value in values:
        label = as_type(value, None)
        if label is None or is_missing(label):
            raise ConfigError(
                "A declared label is empty, or has a type that labels cannot have.",
                "Labels are strings, whole numbers, decimals (up to 1e300) or booleans.",
            )
        declared.append(label)
    if not declared:
        raise ConfigError("The declared label set is empty.", "Name at least one label, or leave the label column out.")
    return _distinct(declared)


def output_type(labels: Iterable[Label], label_type: LabelType | None, data_type: LabelType | None) -> LabelType | None:
    """Return the type of labels in the output; None if each declared label keeps its type.

    ``label_type`` if the user set one, else ``data_type``, that of the data's column. But declared integers stay
    integers for a column of decimals (one null turns integers into decimals). If the data has no type (JSON),
    strings that all spell whole numbers, as from a command line, become integers.
    """
    if label_type is not None:
        return label_type
    labels = tuple(labels)
    if data_type == "float" and labels and all(_spells_integer(label) for label in labels):
        return "int"
    if data_type is None and labels and all(isinstance(label, str) and _spells_integer(label) for label in labels):
        return "int"
    return data_type


def spelled_type(labels: Iterable[Label]) -> LabelType:
    """Return the type that all of the declared labels can be read as.

    >>> spelled_type(["true", "false"]), spelled_type([1, "2"]), spelled_type(["0.5", "1"]), spelled_type(["01", "2"])
    ('bool', 'int', 'float', 'string')
    """
    labels = tuple(labels)
    if all(as_type(label, "bool") is not None for label in labels):
        return "bool"
    whole = [_spells_integer(label) for label in labels]
    if all(whole):
        return "int"
    found = (
        each or canonical(as_type(label, "float") or "") == canonical(label)
        for label, each in zip(labels, whole, strict=True)
    )
    return "float" if all(found) else "string"


def undeclared(label: str, columns: Sequence[str]) -> ConfigError:
    """Return the error for a label without a label set, in a table with typed columns of these names."""
    if columns and "*" in label:
        return ConfigError(
            f"The label {label!r:.60} names a column that --columns does not declare.",
            f"The declared ones are: {', '.join(columns)}.",
        )
    return ConfigError(
        f"The label set of the column {label!r} is not declared.",
        "Declare it with --labels A,B,C or --labels @FILE, or accept with --labels-from-data that the set read "
        "from the data is not protected.",
    )


def typed_labels(labels: Iterable[Label], label_type: LabelType | None) -> tuple[Label, ...]:
    """Return declared labels in the output's type; None: each in its declared type."""
    typed: list[Label] = []
    for label in labels:
        value = as_type(label, label_type)
        if value is None:
            raise ConfigError(
                f"The declared label {canonical(label)!r} is not of the label column's type ({label_type}).",
                "Declare labels as they are in the column.",
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


def _labels_of_file(path: Path) -> list[object]:
    values: object = None
    try:
        if path.suffix == ".json":
            values = json.loads(read_whole(path).decode("utf-8-sig"))
        else:
            values = [line.strip() for line in read_lines(path) if line.strip()]
    except (OSError, ValueError, RecursionError, UnreadableText):
        pass  # reported below, without the exception, which would quote the file
    if not isinstance(values, list):
        raise ConfigError(
            f"The label file {str(path)!r} cannot be read.",
            "Give UTF-8 with one label per line (lines end at LF or CRLF), or a JSON list in a file named .json.",
        )
    return values
