"""Settings for a quick run that protects secrets: e-mail addresses, each in three of the clinic's notes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clinic import LABELS, TERMS, rows, write_csv
from evolution_fixtures import evolving

ADDRESSES = 10
MOST = 3
PUBLIC = 24
PUBLIC_COLUMNS = ("note", "department")


def secret_rows(count: int = 40) -> list[dict[str, str]]:
    """The clinic's notes; three of four end in one of ten addresses, which thus stand in three notes each."""
    made = []
    for number, row in enumerate(rows(count)):
        held = number % 4 < 3
        address = f" Write to pat{(number // 4 * 3 + number % 4) % ADDRESSES}@clinic.example." if held else ""
        made.append({**row, "note": row["note"] + address})
    return made


def public_rows(count: int = PUBLIC) -> list[dict[str, str]]:
    """Other notes, of both departments in turn."""
    return [
        {
            "note": f"Reported: {', '.join(TERMS[(number + 3 * step) % 16] for step in range(3))}. Case {number}.",
            "department": LABELS[number % 2],
        }
        for number in range(count)
    ]


def protecting(folder: Path, *, table: Sequence[dict[str, str]] | None = None, **changes: Any) -> dict[str, Any]:
    """A complete configuration of sec-pe in ``folder``: 3 clusters of each of 2 labels, one release.

    A change to None takes the setting out.
    """
    if not (folder / "notes.csv").exists():
        write_csv(folder / "notes.csv", secret_rows() if table is None else table)
    if not (folder / "public.csv").exists():
        write_csv(folder / "public.csv", public_rows(), PUBLIC_COLUMNS)
    own = {
        "method": "sec-pe",
        "epsilon": None,
        "delta": None,
        "secret_prior": "1e-3",
        "secret_posterior": "1e-2",
        "secret_detectors": "email",
        "max_records_per_secret": MOST,
        "public_corpus": str(folder / "public.csv"),
        "public_corpus_is_public": True,
        "public_text": "note",
        "clusters": 3,
    }
    return evolving(folder, **{**own, **changes})
