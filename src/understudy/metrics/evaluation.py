"""All that was measured of one synthetic table, as one value that reads and writes itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.errors import ConfigError
from understudy.files import PRIVATE_MODE, atomic_file
from understudy.metrics.form import EvaluationForm
from understudy.metrics.picture import Picture
from understudy.metrics.value import Family, Figure, Metric
from understudy.untrusted import read_json

VERSION = 1
MOST_BYTES = 64 * 1024**2
"""Of an evaluation's file, which holds some thousands of whole texts for the map."""


@dataclass(frozen=True)
class Evaluation:
    """Figures, in the order in which they were measured, and what the tables look like.

    Args:
        figures: every number with its definition.
        picture: None where none was made.
        settings: how it was measured: seeds, sizes, models, by name.
    """

    figures: tuple[Figure, ...]
    picture: Picture | None
    settings: Mapping[str, Any]

    def of_family(self, family: Family) -> tuple[Figure, ...]:
        return tuple(figure for figure in self.figures if figure.metric.family == family)

    def to_json(self) -> dict[str, Any]:
        metrics = {figure.metric.name: figure.metric.to_json() for figure in self.figures}
        return {
            "version": VERSION,
            "settings": dict(self.settings),
            "metrics": metrics,
            "figures": [figure.to_json() for figure in self.figures],
            "picture": None if self.picture is None else self.picture.to_json(),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Evaluation:
        metrics = {name: Metric(**each) for name, each in fields["metrics"].items()}
        return cls(
            tuple(Figure.from_json(each, metrics) for each in fields["figures"]),
            None if fields["picture"] is None else Picture.from_json(fields["picture"]),
            fields["settings"],
        )

    def save(self, path: Path) -> None:
        """Write it, whole or not at all, for its owner's eyes only."""
        with atomic_file(path, mode=PRIVATE_MODE) as file:
            file.write(json.dumps(self.to_json(), ensure_ascii=False, allow_nan=False).encode())


def load_evaluation(path: Path) -> Evaluation:
    """Read what :meth:`Evaluation.save` wrote.

    Raises:
        ConfigError: if it cannot be read, or is of another version.
    """
    try:
        fields = read_json(path, most=MOST_BYTES, values=None)
        EvaluationForm.model_validate(fields)
        if fields["version"] != VERSION:
            raise ValueError
        return Evaluation.from_json(fields)
    except Exception:  # a damaged file fails in many ways
        raise ConfigError(
            f"The evaluation {path.name} cannot be read, or was made by another version.",
            "Make it anew with `understudy evaluate`.",
        ) from None
