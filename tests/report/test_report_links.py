"""A link in an output folder that leads out of it is not followed, whoever put it there."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from made_runs import PLANTED, make_run, measure

import understudy as us
from understudy.base.errors import ConfigError
from understudy.evaluate.tables import EvaluationConfig, open_synthetic
from understudy.methods.registry import load_release
from understudy.report import write_reports
from understudy.run import outputs
from understudy.run.outputs import OutputFolder

LINKED = (
    *("release", "private", "private/evaluation.json", "private/audit.json", "private/diary.jsonl"),
    *(f"release/{name}" for name in ("dp-kps.release", "synthetic.parquet", "schema.json", "statement.json")),
)
READERS: list[Callable[[Path], object]] = [
    lambda folder: write_reports(OutputFolder(folder), embedder=None),
    lambda folder: open_synthetic(folder, EvaluationConfig()),
    lambda folder: us.export(folder, to="csv", output=folder.parent / "t.csv"),
]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="links need a right of their own elsewhere")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = make_run(tmp_path / "run")
    measure(folder)
    folder.note_privately({"said": "x"})
    return folder.root


def link_out(run: Path, name: str) -> None:
    """Put a link to a file or folder, moved elsewhere, in its place."""
    (run / name).symlink_to((run / name).rename(run.parent / "moved"))


@pytest.mark.parametrize("name", LINKED)
def test_a_link_that_leads_out_of_an_output_folder_is_refused(run: Path, name: str) -> None:
    for read in READERS:
        read(run)
    link_out(run, name)
    for read in READERS:
        with pytest.raises(ConfigError, match=f"{name} cannot be read: it is a link"):
            read(run)
    if name.endswith(".release"):
        with pytest.raises(ConfigError, match="it is a link"):
            load_release(run)


def test_a_linked_table_is_in_no_report_or_export(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "private.csv").write_text(f"text\n{PLANTED}\n", "utf-8")
    for name in ("release/synthetic.parquet", "release/schema.json", "private/evaluation.json"):
        (run / name).unlink()
    (run / "release" / "synthetic.csv").symlink_to(tmp_path / "private.csv")
    export = partial(us.export, run, to="chat", output=tmp_path / "chat.jsonl")
    for step in (lambda: write_reports(OutputFolder(run), embedder=None), export):
        with pytest.raises(ConfigError):
            step()
    monkeypatch.setattr(outputs, "require_inside", lambda *_: None)  # the broken twin
    assert PLANTED in write_reports(OutputFolder(run), embedder=None).shareable.read_text("utf-8")
    assert PLANTED in export().read_text("utf-8")


def test_a_folder_that_is_a_link_and_links_within_it_work(run: Path, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(run)
    table = run / "release" / "synthetic.parquet"
    table.symlink_to(table.rename(table.with_name("table.parquet")).name)
    (run / "private").chmod(0o777)
    for read in READERS:
        read(tmp_path / "out")
    assert load_release(tmp_path / "out").method == "dp-kps"
    assert stat.S_IMODE((run / "private").stat().st_mode) == 0o700  # an internal report was written


def test_a_folder_whose_links_cannot_be_seen_is_refused(run: Path) -> None:
    (run / "release").chmod(0o300)
    if os.access(run / "release", os.R_OK):
        pytest.skip("root lists every folder")
    with pytest.raises(ConfigError, match="entered but not listed"):
        OutputFolder(run)


def test_a_studio_lists_no_run_with_such_a_link(run: Path) -> None:
    runs = pytest.importorskip("understudy.studio.runs", reason="the extra studio is not installed")
    make_run(run.parent / "other")
    link_out(run, "release/statement.json")
    assert [each.name for each in runs.find_runs(run.parent)] == ["other"]
