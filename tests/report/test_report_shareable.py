"""The shareable report holds nothing of the private half; the internal one does, and stays inside."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from made_runs import PLANTED, charge_metrics, make_run, measure

from understudy.report import ReportPaths, write_reports
from understudy.run.outputs import OutputFolder


@pytest.fixture
def measured(tmp_path: Path) -> OutputFolder:
    folder = make_run(tmp_path / "run")
    measure(folder)
    return folder


def written(folder: OutputFolder) -> ReportPaths:
    return write_reports(folder, embedder=None)


def test_no_string_of_the_private_half_is_in_the_shareable_report(measured: OutputFolder) -> None:
    assert PLANTED not in written(measured).shareable.read_text("utf-8")


def test_the_internal_report_shows_the_private_half_so_that_the_test_above_can_fail(measured: OutputFolder) -> None:
    internal = written(measured).internal
    assert internal is not None
    text = internal.read_text("utf-8")
    assert text.count(PLANTED) > 60
    assert "internal" in text


def test_the_shareable_report_is_the_same_without_a_private_half(measured: OutputFolder) -> None:
    with_it = written(measured).shareable.read_text("utf-8")
    shutil.rmtree(measured.private)
    assert written(measured).shareable.read_text("utf-8") == with_it


def test_the_internal_report_is_its_owner_s_alone(measured: OutputFolder) -> None:
    paths = written(measured)
    assert paths.internal is not None
    assert paths.internal.stat().st_mode & 0o077 == 0
    assert paths.internal.parent == measured.private


def test_without_measurements_there_is_no_internal_report(tmp_path: Path) -> None:
    assert written(make_run(tmp_path / "run")).internal is None


def test_figures_with_a_charge_are_in_the_shareable_report_with_their_price(measured: OutputFolder) -> None:
    assert "0.750" not in written(measured).shareable.read_text("utf-8")
    charge_metrics(measured)
    text = written(measured).shareable.read_text("utf-8")
    assert "0.750" in text
    assert "epsilon = 0.5" in text
    assert "real, with noise" in text
    assert "50.0 %" in text


def test_a_new_release_takes_an_old_report_away(measured: OutputFolder) -> None:
    charge_metrics(measured)
    path = written(measured).shareable
    measured.clear()
    assert not path.exists()
    assert not (measured.shareable / "metrics.json").exists()
