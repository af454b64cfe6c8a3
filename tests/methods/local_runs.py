"""Settings of whole runs with a tiny causal model, on notes which hold a planted string, as their owners do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clinic import rows, settings, write_csv
from evolution_fixtures import OF_KPS

PLANT = "zqxvplanted"


def local_run(folder: Path, llama: Path, **changes: Any) -> dict[str, Any]:
    """With 24 records."""
    if not (folder / "notes.csv").exists():
        table = [
            {**row, "note": f"{PLANT} {row['note']}", "clinician": f"{PLANT}{row['clinician']}"} for row in rows(24)
        ]
        write_csv(folder / "notes.csv", table)
    model = {"private_model": f"hf:{llama}", "document_type": "note", "max_tokens": 12, "private_text_tokens": 24}
    return settings(folder, **{**dict.fromkeys(OF_KPS), **model, **changes})
