"""The columns of a Release, which may come from anybody: its variables, and the distribution of its rows."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, ReleaseError
from understudy.methods.shared.tables.distribution import Distribution
from understudy.methods.shared.tables.parameters import TablesParameters
from understudy.methods.shared.tables.plan import COLUMNS
from understudy.methods.shared.tables.variables import Variables
from understudy.release import Release

LOGARITHMS, CHOSEN = "column-logarithms", "column-chosen"
"""Arrays: the model's factors, one behind the other, and the pairs that were measured."""
LARGEST_LOGARITHM = 100.0
"""Of a factor, below its largest, which is 0."""


def has_columns(made: Release) -> bool:
    """Whether the Release was made with typed columns."""
    return bool(made.schema.columns)


def variables_of(made: Release) -> Variables:
    """Its variables."""
    schema = made.schema
    return Variables(schema.label, schema.label_set, schema.columns, schema.crossed)


def parameters_of(made: Release) -> TablesParameters:
    """What its columns were released with."""
    known = {name: made.parameters[name] for name in TablesParameters.model_fields if name in made.parameters}
    return TablesParameters(**known)


def histograms_of(made: Release) -> dict[str, NDArray[np.float64]]:
    """The noisy histogram of each typed column, ``Float64[size]``; none where the Release holds none that fit."""
    variables = variables_of(made)
    counts = made.arrays.get(COLUMNS)
    if not has_columns(made) or counts is None or counts.shape != (sum(variables.sizes),):
        return {}
    parts = np.split(counts, np.cumsum(variables.sizes)[:-1])[int(variables.labelled) :]
    return {column.name: part for column, part in zip(variables.columns, parts, strict=True)}


def distribution_of(made: Release) -> Distribution:
    """The distribution of a Release's rows.

    Raises:
        ReleaseError: if it holds none that rows can be sampled from.
    """
    variables = variables_of(made)
    sizes, chosen = variables.sizes, made.arrays[CHOSEN]
    pairs = [(int(a), int(b)) for a, b in chosen]
    scopes: list[tuple[int, ...]] = [*((each,) for each in range(len(sizes))), *pairs]
    logarithms, first, factors = made.arrays[LOGARITHMS], 0, []
    if any(not 0 <= a < b < len(sizes) for a, b in pairs) or len(set(pairs)) < len(pairs):
        raise _unusable()
    for scope in scopes:
        shape = [sizes[each] for each in scope]
        last = first + math.prod(shape)
        if last > len(logarithms):
            raise _unusable()
        factors.append((scope, np.asarray(logarithms[first:last], dtype=np.float64).reshape(shape)))
        first = last
    if first != len(logarithms):
        raise _unusable()
    try:
        return Distribution(sizes, tuple(factors))
    except ConfigError:
        raise _unusable() from None


def _unusable() -> ReleaseError:
    return ReleaseError("The columns of this Release do not fit together.", "Ask whoever made it for the file again.")
