"""What readers said of the writer's own texts: ``judged.jsonl.gz``."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

_JUDGED = Path(__file__).with_name("judged.jsonl.gz")


@dataclass(frozen=True)
class Judged:
    """A text of the writer, its prompt, the source of its words, and whether a reader found it sensible."""

    prompt: str
    text: str
    source: str
    sensible: bool


def load_judged() -> list[Judged]:
    """Return every judged text."""
    with gzip.open(_JUDGED, "rt", encoding="utf-8") as lines:
        return [Judged(**json.loads(line)) for line in lines]
