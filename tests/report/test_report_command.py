"""``understudy report``."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from made_runs import make_run, measure

from understudy.base.errors import ConfigError, ModelError, UnderstudyWarning
from understudy.cli import cli

pytestmark = pytest.mark.usefixtures("no_models")


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, ["report", *map(str, words)])


def test_it_writes_both_reports_and_prints_where_they_are(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    measure(folder)
    with pytest.warns(UnderstudyWarning, match="Built-in embedding model not installed; using TF-IDF."):
        result = call(folder.root)
    assert result.exit_code == 0, result.output
    assert result.stdout.split() == [str(folder.report_file), str(folder.internal_report_file)]
    assert all(Path(line).exists() for line in result.stdout.split())


def test_of_several_runs_it_writes_one_each(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / name) for name in ("a", "b")]
    assert call(*(folder.root for folder in folders)).stdout.split() == [str(each.report_file) for each in folders]


def test_it_compares_under_the_names_given(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / name) for name in ("a", "b")]
    for folder in folders:
        measure(folder)
    output = tmp_path / "comparison.html"
    result = call(
        *(folder.root for folder in folders), "--compare", "--output", output, "--name", "One", "--name", "Two"
    )
    assert result.stdout.strip() == str(output)
    assert ">One<" in output.read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--compare"], "No file given for the comparison"),
        (["--output", "x.html"], "belong to a comparison"),
        (["--name", "x"], "belong to a comparison"),
        (["--shareable"], "belong to a comparison"),
    ],
)
def test_flags_that_do_not_go_together_are_said(tmp_path: Path, words: list[str], problem: str) -> None:
    error = call(make_run(tmp_path / "run").root, *words).exception
    assert isinstance(error, ConfigError)
    assert problem in error.problem


def test_a_folder_that_is_no_run_is_an_error_with_a_cure(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing", Path(__file__)):
        error = call(path, "--embedder", "not looked for").exception
        assert isinstance(error, ConfigError)
        assert "not the folder of a run" in error.problem


def test_an_embedder_that_is_asked_for_must_be_there(tmp_path: Path) -> None:
    error = call(make_run(tmp_path / "run").root, "--embedder", "hf:none/such").exception
    assert isinstance(error, ModelError)
