"""Stricter promises to some secrets: a public CSV file ``number,prior,posterior``."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from understudy.errors import ConfigError
from understudy.files import UnreadableText, read_lines
from understudy.privacy.secrets.budget import SecretBudget

_COLUMNS = ("number", "prior", "posterior")
Stricter = Sequence[tuple[int, SecretBudget]]
"""Secrets, by their numbers in the incidence file, and what each is promised beyond the promise to all."""


def read_stricter(file: str | None, secrets: int) -> Stricter:
    """The promises by the secrets' numbers in the incidence file; none without a file.

    Args:
        secrets: how many secrets there are.

    Raises:
        ConfigError: if the file cannot be read, or names a secret that there is not, or one twice.
    """
    if file is None:
        return []
    name = Path(file).name
    try:
        rows = list(csv.DictReader(read_lines(Path(file))))
        found = [(_number(row["number"]), SecretBudget(row["prior"], row["posterior"])) for row in rows]
    except (csv.Error, KeyError, TypeError, ValueError, UnreadableText) as error:
        why = error if isinstance(error, UnreadableText) else type(error).__name__
        raise ConfigError(
            f"The secret budgets {name} cannot be read ({why}).",
            f"Give a CSV file with the columns {', '.join(_COLUMNS)}.",
        ) from None
    numbers = [number for number, _ in found]
    if len(set(numbers)) < len(numbers) or not all(0 <= number < secrets for number in numbers):
        raise ConfigError(
            f"The secret budgets {name} name a secret twice, or one that the incidence file does not have.",
            "Give each secret's number, as in the incidence file, at most once.",
        )
    return found


def _number(text: str) -> int:
    """A secret's number: ASCII digits, and not thousands of them."""
    if not re.fullmatch("[0-9]{1,12}", text.strip()):
        raise ValueError
    return int(text)


def stricter_in_words(stricter: Stricter) -> tuple[str, ...]:
    """For the statement: a sentence a promise, the secrets by number."""
    by_promise: dict[SecretBudget, list[int]] = {}
    for number, own in stricter:
        by_promise.setdefault(own, []).append(number)
    return tuple(
        f"{own} holds too for each of these secrets, by their numbers in the incidence file: "
        f"{', '.join(map(str, sorted(numbers)))}."
        for own, numbers in by_promise.items()
    )
