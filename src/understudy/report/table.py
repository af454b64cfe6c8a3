"""The synthetic table, read back."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.corpus import canonical
from understudy.errors import ConfigError
from understudy.outputs import LABEL, PROVENANCE, TEXT, find_table


@dataclass(frozen=True)
class SyntheticText:
    """A row: its text, its label in words (None without labels), the phrases that it was written from, and by what."""

    text: str
    label: str | None = None
    phrases: tuple[str, ...] = ()
    model: str = ""

    @property
    def bare(self) -> bool:
        """Whether it is its phrases and nothing else, as without a language model."""
        return bool(self.phrases) and self.text == ", ".join(self.phrases)


def read_synthetic(release: Path) -> tuple[SyntheticText, ...]:
    """The rows of the synthetic table in a shareable folder; none where no text was made yet.

    Raises:
        ConfigError: if the table cannot be read, or has no column of texts.
    """
    path = find_table(release)
    if path is None:
        return ()
    try:
        return tuple(_text(row) for row in _rows(path))
    except Exception:  # a damaged table fails in many ways
        raise ConfigError(
            f"The synthetic table {path.name} cannot be read.", "Make it anew with `understudy generate`."
        ) from None


def require_measured_on(release: Path, digest: object, path: Path) -> None:
    """See that figures are of the synthetic table in ``release``.

    Args:
        release: the shareable folder of a run.
        digest: SHA-256 of the table's bytes when it was measured, in hex; None where an older version did not tell.
        path: the file of the figures.

    Raises:
        ConfigError: if the table is another one by now.
    """
    table = find_table(release)
    if digest is None or table is None:
        return
    try:
        found = hashlib.sha256(table.read_bytes()).hexdigest()
    except OSError:
        raise ConfigError(f"The synthetic table {table.name} cannot be read.", "See that it may be read.") from None
    if found == digest:
        return
    name = "/".join(path.parts[-3:])
    raise ConfigError(
        f"{name} was measured on another synthetic table than the one in the folder.",
        f"Make it anew with `understudy evaluate`, or remove {name}.",
    )


def _rows(path: Path) -> Iterable[Mapping[str, Any]]:
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        rows: list[Mapping[str, Any]] = pq.ParquetFile(path).read(use_threads=False).to_pylist()
        return rows
    with path.open(encoding="utf-8-sig", newline="") as lines:
        if path.suffix == ".csv":
            return list(csv.DictReader(lines))
        return [json.loads(line) for line in lines if line.strip()]


def _text(row: Mapping[str, Any]) -> SyntheticText:
    label, provenance = row.get(LABEL), row.get(PROVENANCE)
    known = json.loads(provenance) if provenance else {}
    return SyntheticText(
        _whole(row[TEXT] or ""),
        None if label in (None, "") else _whole(canonical(label)),
        tuple(_whole(str(phrase)) for phrase in known.get("phrases", ())),
        _whole(str(known.get("model") or "")),
    )


def _whole(text: str) -> str:
    """Half a character (a lone surrogate, which JSON can hold) cannot be written: U+FFFD stands for it."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
