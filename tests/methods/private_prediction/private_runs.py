"""Settings of whole runs with a tiny causal model that lies in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clinic import settings

TEMPLATE = """
document_type: note
user: "-"
prediction:
  completion: {before: "Notes.", block: "T:{text}", cue: "T:"}
  completion_records: {before: "", block: "R:{text}", cue: "R:"}
"""


def predicting(folder: Path, llama: Path, **changes: Any) -> dict[str, Any]:
    """Two batches of five texts per label, each of thirty private tokens; a change to None takes a setting out."""
    (folder / "note.yaml").write_text(TEMPLATE, "utf-8")
    others = {"vocabulary", "vocabulary_is_public", "top_terms", "length", "llm", "records_per_label"}
    values = {name: value for name, value in settings(folder).items() if name not in others}
    made = {
        **values,
        "method": "private-prediction",
        "epsilon": "30",
        "private_model": f"hf:{llama}",
        "prompt": str(folder / "note.yaml"),
        "batches": 2,
        "batch_size": 5,
        "tokens_per_batch": 30,
        "max_tokens": 10,
        "private_text_tokens": 24,
        "unfinished": "keep",
        **changes,
    }
    return {name: value for name, value in made.items() if value is not None}
