"""Every method's run has a report, whatever its statement says of its public inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evolution_fixtures import evolving
from sample_releases import SAMPLES
from secret_fixtures import protecting

from understudy.report import write_reports
from understudy.run import pipeline as running
from understudy.run.outputs import OutputFolder
from understudy.run.settings import run_config
from understudy.text.writing.records import SyntheticRecord


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
@pytest.mark.parametrize("settings", [evolving, protecting])
def test_a_run_that_evolves_texts_has_a_report(tmp_path: Path, settings: Any) -> None:
    values = settings(tmp_path)
    running.run(run_config(values))
    text = write_reports(OutputFolder(Path(values["output"])), embedder=None).shareable.read_text("utf-8")
    assert f"made by {values['method']}" in text
    assert "8 synthetic texts" in text
