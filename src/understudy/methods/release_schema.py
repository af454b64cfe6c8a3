"""Contents of Releases: stated by each method (``contents`` in its ``method.py``), checked when a Release is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.release import Release

LARGEST = 1e30
"""Largest released number; sums and products of such numbers do not overflow."""


@dataclass(frozen=True)
class Held:
    """Type, shape and range of an array in a Release.

    Args:
        shape: each dimension is a number, or a name for any number, the same wherever the name occurs.
        least, most: all elements are within these bounds, and not NaN.
    """

    dtype: str  # its NumPy type
    shape: tuple[int | str, ...]
    least: float = -LARGEST
    most: float = LARGEST


@dataclass(frozen=True)
class Contents:
    """The expected content of a Release of a method: its charges, arrays, strings, terms and public inputs.

    Args:
        strings: for each list of strings, by name, the number of its strings; None for any number.
    """

    charges: Mapping[str, str]  # names of the charges, and the kind of each one's event
    arrays: Mapping[str, Held]  # by name
    strings: Mapping[str, int | None] = field(default_factory=dict)
    terms: int | None = 0  # how many terms there are; None for any number
    public_inputs: tuple[str, ...] = ()  # those of the statement that ``generate`` looks up

    def joined(
        self,
        charges: Mapping[str, str],
        arrays: Mapping[str, Held],
        strings: Mapping[str, int | None] = MappingProxyType({}),
        public_inputs: tuple[str, ...] = (),
    ) -> Contents:
        """Return these contents extended by others."""
        return replace(
            self,
            charges={**self.charges, **charges},
            arrays={**self.arrays, **arrays},
            strings={**self.strings, **strings},
            public_inputs=tuple({*self.public_inputs, *public_inputs}),
        )


def mismatch(release: Release, contents: Contents) -> str | None:
    """Return how a Release first differs from ``contents``, without quoting it; None if it matches."""
    events = {charge.name: charge.event.kind for charge in release.statement.charges}
    if events != dict(contents.charges) or len(events) != len(release.statement.charges):
        return "its charges are not those of its method and parameters"
    if any(not release.statement.public_inputs.get(name, {}).get("sha256") for name in contents.public_inputs):
        return "its statement lacks a public input"
    if contents.terms is not None and len(release.terms) != contents.terms:
        return "it has a different number of terms"
    if release.strings.keys() != contents.strings.keys():
        return "it has different lists of strings"
    for name, count in contents.strings.items():
        if count is not None and len(release.strings[name]) != count:
            return f"the list {name!r} has a different length"
    if release.arrays.keys() != contents.arrays.keys():
        return "it has different arrays"
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
        return "contains numbers outside its range"  # NaN compares as False
    return None
