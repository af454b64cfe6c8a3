"""What a library says while private data pass through it stays unsaid."""

from __future__ import annotations

import logging
import warnings
from contextlib import nullcontext
from pathlib import Path

import pytest
from clinic import settings

import understudy as us
from understudy.base.errors import UnderstudyWarning
from understudy.base.lazy import quiet_libraries
from understudy.evaluate import evaluate
from understudy.ledger import Ledger
from understudy.privacy.guarantee import Budget
from understudy.run import measuring
from understudy.run.engine import Call
from understudy.run.pipeline import run
from understudy.run.settings import run_config

WORDS = "it did not converge"


def complains() -> None:
    warnings.warn(WORDS, RuntimeWarning, stacklevel=1)
    logging.getLogger("some_library").warning(WORDS)


@pytest.mark.parametrize("quiet", [True, False])
def test_libraries_are_silent_and_understudy_is_not(caplog: pytest.LogCaptureFixture, quiet: bool) -> None:
    with warnings.catch_warnings(record=True) as shown, quiet_libraries() if quiet else nullcontext():
        warnings.simplefilter("always")
        complains()
        with quiet_libraries():  # which ends before the outer one
            complains()
        complains()
        warnings.warn("ours", UnderstudyWarning, stacklevel=1)
        logging.getLogger("understudy.models").warning("our line")
    expected = [] if quiet else [WORDS, WORDS]
    assert [str(each.message) for each in shown] == [*expected, "ours"]
    assert caplog.messages == [*expected, "our line"]


def test_no_warning_of_a_library_on_private_data_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    for module, name in ((measuring, "measure"), (evaluate, "measure"), (evaluate, "read_sample")):
        whole = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, whole=whole, **o: (complains(), whole(*a, **o))[1])
    run(run_config(settings(tmp_path)))
    ledger = tmp_path / "ledger.sqlite"
    with Ledger(ledger) as book:
        book.raise_cap("notes", cap=Budget(9, "1e-5"))
    options = {"embedder": "none", "metrics": "leakage", "charge_metrics": "0.5", "ledger": str(ledger)}
    us.evaluate(tmp_path / "notes.csv", tmp_path / "out", **options)
    assert WORDS not in {*caplog.messages, *(str(each.message) for each in recwarn)}


def test_a_worker_shows_no_warning_of_a_library() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert Call.of(lambda item: (complains(), item)[1])(7).get() == 7
    assert shown == []
