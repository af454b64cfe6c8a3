"""What is shareable names files and models, not where they lie; flags win over the configuration."""

from __future__ import annotations

import json
import logging
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from clinic import settings
from evolution_fixtures import evolving
from sample_releases import SAMPLES
from secret_fixtures import protecting

import understudy as us
from understudy.base.errors import UnderstudyWarning
from understudy.base.lazy import quiet_libraries
from understudy.cli.options import given
from understudy.evaluate import evaluate
from understudy.ledger import Ledger
from understudy.methods.registry import load_release
from understudy.privacy.guarantee import Budget
from understudy.report import write_reports
from understudy.run import measuring
from understudy.run import pipeline as running
from understudy.run.engine import Call
from understudy.run.outputs import OutputFolder
from understudy.run.pipeline import run
from understudy.run.settings import run_config
from understudy.text.writing import SyntheticRecord, public_name


def test_a_release_names_the_vocabulary_file_and_not_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "home-of-somebody"
    folder.mkdir()
    running.release(run_config(settings(folder, output=str(tmp_path / "out"), records_per_label=None)))
    loaded = load_release(tmp_path / "out" / "release" / "dp-kps.release")
    assert loaded.parameters["vocabulary"] == "terms.txt"
    assert "home-of-somebody" not in json.dumps([dict(loaded.parameters), loaded.statement.to_json()])
    assert len(us.generate(loaded, llm="none", records=4).records) == 4


@pytest.mark.parametrize(
    ("model_id", "shown"),
    [
        ("openai:m@https://inner.example:8000/v1", "openai:m"),
        ("builtin:smollm2@0123", "builtin:smollm2"),
        ("hf:/srv/models/tiny@0123", "hf:tiny"),
        ("hf:ORG/NAME@0123", "hf:ORG/NAME"),
    ],
)
def test_provenance_names_a_model_without_its_address_or_folder(model_id: str, shown: str) -> None:
    assert public_name(model_id) == shown


def test_a_flag_for_the_number_of_records_replaces_the_other_way_to_say_it(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("records_per_label: 5\n", "utf-8")
    assert given({"records": 3, "records_per_label": None}, str(config)) == {"records": 3}


# -- reports of every method, whatever its statement says of its public inputs -----------------------------------------


@pytest.mark.parametrize("method", SAMPLES)
def test_every_method_has_a_report(tmp_path: Path, method: str) -> None:
    release, folder = SAMPLES[method](), OutputFolder(tmp_path / "out")
    folder.make()
    folder.write_release(release)
    folder.write_records([SyntheticRecord("a text", label, {}) for label in (0, 1)], release.schema)
    text = write_reports(folder, embedder=None).shareable.read_text("utf-8")
    assert "<dt>model</dt><dd>fake</dd>" in text, "without a SHA-256"
    assert f"SHA-256 <code>{'1' * 64}</code>" in text


@pytest.mark.usefixtures("embedder", "varied_chat")
@pytest.mark.parametrize("make", [evolving, protecting])
def test_a_run_that_evolves_texts_has_a_report(tmp_path: Path, make: Any) -> None:
    values = make(tmp_path)
    running.run(run_config(values))
    text = write_reports(OutputFolder(Path(values["output"])), embedder=None).shareable.read_text("utf-8")
    assert f"made by {values['method']}" in text
    assert "8 synthetic texts" in text


# -- what a library says while private data pass through it stays unsaid ----------------------------------------------

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
