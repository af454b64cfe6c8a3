"""What a Release holds: stated by each method (``contents`` in its ``method.py``), checked when a Release is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.methods.shared import labelling
from understudy.methods.shared.evolution.embeddings import LARGEST_NORM
from understudy.methods.shared.guide.plan import GUIDE
from understudy.methods.shared.tables import variables as tables
from understudy.methods.shared.tables.plan import parts
from understudy.privacy.events import GaussianEvent, SubsampledGaussianEvent
from understudy.release import Release

_COLUMNS = {tables.COLUMNS, tables.SCORES, tables.PAIRS, tables.LOGARITHMS, tables.CHOSEN}
BESIDE = frozenset({labelling.TOPIC_CENTRES, labelling.TOPIC_SIZES, GUIDE, *_COLUMNS})
"""Arrays that the Release of any method may hold besides its own."""
LARGEST = 1e30
"""No released number is larger; sums and products of those that are smaller do not overflow."""


@dataclass(frozen=True)
class Held:
    """An array of a Release.

    Args:
        shape: each dimension a number, or the name of one that is any number, the same wherever the name occurs.
        least, most: no element is outside, and none is NaN.
    """

    dtype: str  # its NumPy type
    shape: tuple[int | str, ...]
    least: float = -LARGEST
    most: float = LARGEST


@dataclass(frozen=True)
class Contents:
    """What a Release of a method holds, and nothing else.

    Args:
        strings: lists of strings by name, and how many each has; None for any number.
    """

    charges: Mapping[str, str]  # names of the charges, and the kind of each one's event
    arrays: Mapping[str, Held]  # by name
    strings: Mapping[str, int | None] = field(default_factory=dict)
    terms: int | None = 0  # how many terms there are; None for any number
    public_inputs: tuple[str, ...] = ()  # those of the statement that ``generate`` looks up

    def complete(self, release: Release) -> Contents:
        """The contents with all that any Release may hold besides: a guide, topics as labels, typed columns."""
        found = self.with_guide(release) if release.parameters.get("guide") else self
        found = found.with_topics(release) if release.schema.topics else found
        return found.with_columns(release) if tables.has_columns(release) else found

    def with_guide(self, release: Release) -> Contents:
        """The contents of a Release that also has a guide, of all records or of a sample."""
        events = [charge.event for charge in release.statement.charges if charge.name == GUIDE]
        sampled = any(isinstance(event, SubsampledGaussianEvent) for event in events)
        sums = Held("float64", (release.schema.label_set.size, "embedding with count"))
        return replace(
            self,
            charges={**self.charges, GUIDE: (SubsampledGaussianEvent if sampled else GaussianEvent).kind},
            arrays={**self.arrays, GUIDE: sums},
            public_inputs=tuple({*self.public_inputs, "embedder"}),
        )

    def with_topics(self, release: Release) -> Contents:
        """The contents of a Release whose labels are topics."""
        topics = release.schema.label_set.size
        arrays = {
            labelling.TOPIC_CENTRES: Held("int16", (topics, "dimension of topics"), -LARGEST_NORM, LARGEST_NORM),
            labelling.TOPIC_SIZES: Held("float64", (topics,), -1e15, 1e15),
        }
        return replace(
            self,
            charges={**self.charges, **labelling.CHARGED_BESIDE},
            arrays={**self.arrays, **arrays},
            strings={**self.strings, labelling.TOPIC_TERMS: topics * labelling.TERMS_OF_TOPIC},
            public_inputs=tuple({*self.public_inputs, "embedder"}),
        )

    def with_columns(self, release: Release) -> Contents:
        """The contents of a Release that also has typed columns. ConfigError if its pairs are not of its columns."""
        variables, parameters = tables.variables_of(release), tables.parameters_of(release)
        declared, charged = variables.pairs(parameters.column_pairs), parts(variables, parameters)
        shapes: dict[str, int | str] = {
            tables.COLUMNS: sum(variables.sizes),
            tables.SCORES: "sets that were scored",
            tables.PAIRS: "cells of sets",
        }
        sets = "sets" if declared is None else len(declared)
        arrays = {
            **{name: Held("float64", (size,)) for name, size in shapes.items() if name in charged},
            tables.LOGARITHMS: Held("float64", ("numbers of the model",), -tables.LARGEST_LOGARITHM, 0.0),
            tables.CHOSEN: Held("int64", (sets, "of a set"), 0, len(variables.sizes) - 1),
        }
        charges = {**self.charges, **dict.fromkeys(charged, GaussianEvent.kind)}
        return replace(self, charges=charges, arrays={**self.arrays, **arrays})


def mismatch(release: Release, contents: Contents) -> str | None:
    """The first thing in which a Release is not as ``contents`` says, in words that quote nothing of it; else None."""
    events = {charge.name: charge.event.kind for charge in release.statement.charges}
    if events != dict(contents.charges) or len(events) != len(release.statement.charges):
        return "its charges are not those of its method and parameters"
    if any(not release.statement.public_inputs.get(name, {}).get("sha256") for name in contents.public_inputs):
        return "its statement lacks a public input"
    if contents.terms is not None and len(release.terms) != contents.terms:
        return "it has another number of terms"
    if release.strings.keys() != contents.strings.keys():
        return "it holds other lists of strings"
    for name, count in contents.strings.items():
        if count is not None and len(release.strings[name]) != count:
            return f"the list {name!r} has another length"
    if release.arrays.keys() != contents.arrays.keys():
        return "it holds other arrays"
    sizes: dict[str, int] = {}
    for name, held in contents.arrays.items():
        if problem := _array_mismatch(release.arrays[name], held, sizes):
            return f"the array {name!r} {problem}"
    return None


def _array_mismatch(array: NDArray[Any], held: Held, sizes: dict[str, int]) -> str | None:
    if array.dtype != np.dtype(held.dtype):
        return "is of another type"
    if array.ndim != len(held.shape):
        return "is of another shape"
    for size, expected in zip(array.shape, held.shape, strict=True):
        if size != (sizes.setdefault(expected, size) if isinstance(expected, str) else expected):
            return "is of another shape"
    if array.dtype != np.bool_ and array.size and not (held.least <= array.min() and array.max() <= held.most):
        return "holds numbers that it cannot hold"  # NaN compares as False
    return None
