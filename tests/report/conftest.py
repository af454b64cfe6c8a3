from __future__ import annotations

from typing import Any

import pytest

from understudy.base.errors import ModelError


@pytest.fixture
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """No embedder is on this machine."""

    def load(spec: str) -> Any:
        raise ModelError(f"{spec} is not here.", "Pull it.")

    monkeypatch.setattr("understudy.models.catalog.load_embedder", load)
