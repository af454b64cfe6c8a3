"""The synthetic table, read back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.assess.rows import MOST_BYTES, MOST_ROWS, TooLarge, read_rows
from understudy.corpus import canonical
from understudy.errors import ConfigError
from understudy.files import file_sha256
from understudy.outputs import LABEL, PROVENANCE, TEXT, find_table
from understudy.untrusted import parse_json

MOST_CHARACTERS = 20_000
"""Of one text; the rest of a longer one is in no chart, and an ellipsis stands for it."""
_MOST_PROVENANCE = 1 << 20


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
        ConfigError: if the table cannot be read, has no column of texts, or is larger than a report may be of.
    """
    path = find_table(release)
    if path is None:
        return ()
    try:
        return tuple(_text(row) for row in read_rows(path))
    except TooLarge:
        raise ConfigError(
            f"The synthetic table {path.name} is too large for a report: it has more than {MOST_ROWS:,} rows or "
            f"{MOST_BYTES // 1024**3} GiB of text.",
            "Make the report of a run with fewer texts.",
        ) from None
    except Exception:  # a damaged table fails in many ways
        raise ConfigError(
            f"The synthetic table {path.name} cannot be read.", "Make it anew with `understudy generate`."
        ) from None


def release_named_in(release: Path) -> str:
    """The Release that the synthetic table in a shareable folder says it was made from; empty where it says none."""
    path = find_table(release)
    try:
        row = next(iter(read_rows(path, at_once=1)), {}) if path is not None else {}
        return _whole(str(_provenance(row).get("release", "")))
    except Exception:  # a damaged table fails in many ways
        return ""


def origins(table: Path) -> set[tuple[str, bool]]:
    """The Releases that the rows of a synthetic table say they were made from (empty where one says none), each with
    whether it promises anything.

    Raises:
        Exception: the table is damaged.
    """
    found = [_provenance(row) for row in read_rows(table)]
    return {(str(known.get("release", "")), "stamp" not in known) for known in found}


def table_sha256(table: Path) -> str:
    """SHA-256, in hex, of a synthetic table's texts and labels in their order, whatever format they are saved in.

    Raises:
        Exception: the table is damaged.
    """
    digest = hashlib.sha256()
    for row in read_rows(table):
        label = row.get(LABEL)
        cells = [row[TEXT] or "", None if label in (None, "") else canonical(label)]
        digest.update(json.dumps(cells, default=str).encode() + b"\n")
    return digest.hexdigest()


def require_measured_on(release: Path, digest: object, path: Path) -> None:
    """See that figures are of the synthetic table in ``release``.

    Args:
        release: the shareable folder of a run.
        digest: :func:`table_sha256` when it was measured; of the file's bytes, or None, as older versions have it.
        path: the file of the figures.

    Raises:
        ConfigError: if the table is another one by now.
    """
    table = find_table(release)
    if digest is None or table is None:
        return
    try:
        if digest in (table_sha256(table), file_sha256(table)):
            return
    except Exception:  # a damaged table fails in many ways
        raise ConfigError(f"The synthetic table {table.name} cannot be read.", "See that it may be read.") from None
    name = "/".join(path.parts[-3:])
    again = "`understudy evaluate` makes it anew, free of charge"
    if path.parent == release:
        again = "`understudy evaluate --charge-metrics EPSILON --fresh` makes it anew, and charges again"
    raise ConfigError(
        f"{name} was measured on another synthetic table than the one in the folder.",
        f"Put that table back, or remove {name}; {again}.",
    )


def _text(row: Mapping[str, Any]) -> SyntheticText:
    label, known = row.get(LABEL), _provenance(row)
    text = row[TEXT] or ""
    return SyntheticText(
        _whole(text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "\N{HORIZONTAL ELLIPSIS}"),
        None if label in (None, "") else _whole(canonical(label)[:MOST_CHARACTERS]),
        tuple(_whole(str(phrase)) for phrase in known.get("phrases", ())),
        _whole(str(known.get("model") or "")),
    )


def _provenance(row: Mapping[str, Any]) -> dict[str, Any]:
    written = row.get(PROVENANCE)
    if not written:
        return {}
    if len(written) > _MOST_PROVENANCE:
        raise ValueError("what a text was made from is too long")
    return parse_json(written.encode("utf-8"))


def _whole(text: str) -> str:
    """Half a character (a lone surrogate, which JSON can hold) cannot be written: U+FFFD stands for it."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
