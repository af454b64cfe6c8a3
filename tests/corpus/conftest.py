"""Files of text in every compression, and a private folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_tables import COMPRESS


@pytest.fixture
def private(tmp_path: Path) -> Path:
    return tmp_path / "private"


@pytest.fixture
def write(tmp_path: Path):
    """Write bytes or text to a file in the test's folder, compressed as its name says; returns the path."""

    def write_file(name: str, content: str | bytes) -> Path:
        data = content.encode("utf-8") if isinstance(content, str) else content
        data = COMPRESS.get(name.rpartition(".")[2], bytes)(data)
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write_file
