"""The synthetic record, and the seed it grows from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seed:
    """What one text is to be written from: released phrases, and the index of a label."""

    phrases: tuple[str, ...]
    label: int


@dataclass(frozen=True)
class SyntheticRecord:
    """A synthetic text.

    Args:
        text: the text; empty if the model gave none.
        label: index into the Release's label set.
        provenance: seed phrases, prompt, model, how many phrases were kept.
    """

    text: str
    label: int
    provenance: Mapping[str, Any]
