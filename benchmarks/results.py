"""The file that a benchmark leaves: ``results/NAME.json``, from which the pages are made."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"
Row = dict[str, Any]
"""Figures by name; what they are of is among them, as strings."""


@dataclass(frozen=True)
class Result:
    """One run of one benchmark.

    Attributes:
        name: the benchmark's.
        date: when it ended, in UTC.
        machine: cores, processor, memory in GiB, GPU or None.
        versions: of Python, packages and this repository (its commit).
        load: averages over 1, 5 and 15 minutes at ``start`` and ``end``: what else ran.
        settings: options, as given or by default.
        seeds: of what was made up. Noise has none.
        wall_seconds, processor_seconds: of the whole run, its processes together.
        peak_mb: of its largest process.
        rows: what was found.
    """

    name: str
    date: str
    machine: dict[str, Any]
    versions: dict[str, str]
    load: dict[str, list[float]]
    settings: dict[str, Any]
    seeds: dict[str, int]
    wall_seconds: float
    processor_seconds: float
    peak_mb: float
    rows: list[Row]

    def write(self, folder: Path = FOLDER) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", "utf-8")
        return path

    @classmethod
    def read(cls, name: str, folder: Path = FOLDER) -> Result:
        """Raises ValueError where the file holds other fields than these."""
        found = json.loads((folder / f"{name}.json").read_text("utf-8"))
        if set(found) != {field.name for field in fields(cls)}:
            raise ValueError(f"{name}.json is not a result of this version: run the benchmark again.")
        return cls(**found)


def add_row(name: str, row: Row, key: tuple[str, ...]) -> None:
    """Add a row to the list in ``results/NAME.json``, in place of one that is the same in ``key``."""
    path = FOLDER / f"{name}.json"
    rows = json.loads(path.read_text("utf-8")) if path.exists() else []
    rows = [each for each in rows if any(each.get(name) != row.get(name) for name in key)]
    lines = ",\n".join(f" {json.dumps(each, ensure_ascii=False)}" for each in [*rows, row])
    path.write_text(f"[\n{lines}\n]\n", "utf-8")
