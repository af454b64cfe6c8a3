from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(_TESTS / "run"), str(_TESTS / "models"), str(_TESTS / "methods" / "private_prediction")]

from evolution_fixtures import embedder, varied_chat  # noqa: E402, F401
from run_fixtures import (  # noqa: E402, F401
    few_words,
    finished,
    finished_runs,
    learnt,
    method,
    own_ledger,
    quick_fit,
    understudy,
    use_chat,
)
from subjects import SUBJECTS  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    """Whether gradients stay apart is tried in blocks of two texts; the trial's own tests have more."""
    from understudy.methods.dp_finetune import release

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "_ROWS", {"cpu": 2})
        yield


REAL_ROWS = {"test_dialogue_runs", "test_newcomer", "test_tables_as_people_have_them", "test_two_worlds"}


@pytest.fixture(autouse=True)
def rows_are_fitted_simply(request: pytest.FixtureRequest) -> None:
    """The optimiser of columns is compiled anew for each shape of a table; who asks how good rows are has it."""
    if request.module.__name__ not in REAL_ROWS:
        request.getfixturevalue("quick_fit")


@pytest.fixture(scope="module", autouse=True)
def short_vocabulary() -> Iterator[None]:
    with few_words(*" ".join(SUBJECTS).split()):
        yield
