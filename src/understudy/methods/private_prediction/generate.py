"""Private prediction, after the privacy boundary: the Release contains the texts. Nothing is sampled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from understudy.base.errors import ReleaseError
from understudy.methods import usual
from understudy.methods.additions.columns.variables import has_columns, variables_of
from understudy.methods.facts import GenerationTools
from understudy.methods.private_prediction.plan import ROWS, PrivatePredictionParameters
from understudy.release import Release
from understudy.schema.columns import Column
from understudy.text.records import SyntheticRecord


def available(_parameters: PrivatePredictionParameters, release: Release) -> list[int]:
    """Return how many texts of each label the Release contains."""
    return usual.available(release)


def columns_shown(release: Release) -> tuple[Column, ...]:
    """Return the typed columns whose values precede each text in the Release; empty without them."""
    return () if release.schema.record_columns or not has_columns(release) else variables_of(release).columns


def generate(
    parameters: PrivatePredictionParameters, release: Release, counts: Sequence[int], *, tools: GenerationTools
) -> Iterator[SyntheticRecord]:
    """Yield the first ``counts[label]`` texts of each label in the Release, from different batches in turn. Raises
    ReleaseError if there are too few, or a value of a typed column is not one of its declared cells."""
    for column, cells in zip(columns_shown(release), release.arrays.get(ROWS, np.zeros((0, 0))).T, strict=False):
        if (cells >= column.size).any():
            raise ReleaseError("The rows of this Release do not fit its columns.", "Ask the sender for a new copy.")
    usual.require_held(release, counts, available(parameters, release))
    return _texts(release, counts)


def _texts(release: Release, counts: Sequence[int]) -> Iterator[SyntheticRecord]:
    arrays = {name: array.tolist() for name, array in release.arrays.items()}
    texts = release.strings.get("texts", ())
    order = sorted(range(len(texts)), key=lambda place: (arrays["label"][place], arrays["number"][place], place))
    left, rows = list(counts), arrays.get(ROWS)
    for place in order:
        label = arrays["label"][place]
        if left[label] > 0:
            left[label] -= 1
            about = {name: arrays[name][place] for name in ("batch", "number", "tokens")}
            about |= {"private_tokens": arrays["private"][place], "ended": bool(arrays["ended"][place])}
            cells = None if rows is None else tuple(rows[place])
            yield SyntheticRecord(texts[place], label, about, cells=cells)
