from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path

import pytest

from understudy.privacy.events import SubsampledGaussianEvent

_TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(_TESTS / "run"), str(_TESTS / "models")]

from evolution_fixtures import embedder, varied_chat  # noqa: E402, F401
from run_fixtures import own_ledger, understudy  # noqa: E402, F401


@pytest.fixture(scope="module", autouse=True)
def coarse_losses() -> Iterator[None]:
    """What is promised, on a grid ten times as coarse: faster, and no less than is lost."""
    with pytest.MonkeyPatch.context() as patch:
        coarse = partialmethod(SubsampledGaussianEvent.to_pld, interval=1e-3)
        patch.setattr(SubsampledGaussianEvent, "to_pld", coarse)
        yield
