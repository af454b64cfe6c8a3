"""A few synthetic texts of each label: the same ones for the same seed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from understudy.assess.synthetic import SyntheticText

LABELS_SHOWN = 40


@dataclass(frozen=True)
class Samples:
    """Some of a label's texts, and how many it has in all."""

    label: str | None
    texts: tuple[SyntheticText, ...]
    count: int


def as_record(text: str) -> Mapping[str, str] | None:
    """The fields of a text that is a JSON object; None for any other."""
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


def samples_of(texts: Sequence[SyntheticText], *, seed: int, each: int = 3) -> tuple[Samples, ...]:
    """``each`` texts of each label at random, in the table's order; at most ``LABELS_SHOWN`` labels, by name."""
    by_label: dict[str | None, list[SyntheticText]] = {}
    for text in texts:
        by_label.setdefault(text.label, []).append(text)
    generator, found = np.random.default_rng(seed), []
    for label in sorted(by_label, key=lambda label: label or "")[:LABELS_SHOWN]:
        own = by_label[label]
        chosen = np.sort(generator.choice(len(own), size=min(each, len(own)), replace=False))
        found.append(Samples(label, tuple(own[place] for place in chosen), len(own)))
    return tuple(found)
