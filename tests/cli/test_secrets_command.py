"""``understudy secrets``: the incidence file, and counts for the owner of the data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from understudy.base.errors import ConfigError
from understudy.cli import cli
from understudy.corpus.secrets import Incidence

TABLE = 'text,who,dept\n"Ann Quill, x@quill.example",Ann Quill,a\n"ann quill",,b\nnothing,,a\n'


@pytest.fixture
def notes(tmp_path: Path) -> str:
    (tmp_path / "notes.csv").write_text(TABLE)
    return str(tmp_path / "notes.csv")


def call(*args: object) -> Result:
    return CliRunner().invoke(cli, ["secrets", *map(str, args)])


def test_incidence_writes_numbers_and_says_what_becomes_public(notes: str, tmp_path: Path) -> None:
    file = tmp_path / "new" / "incidence.parquet"
    (tmp_path / "more.txt").write_text("Quill\n")
    result = call(
        *("incidence", "--data", notes, "--text", "text", "--secrets", "who", "--output", file),
        *("--secrets-file", tmp_path / "more.txt", "--secret-detectors", "email,phone"),
    )
    assert result.exit_code == 0
    assert result.stdout.strip() == str(file)
    assert "you declare all of that public" in result.stderr
    made = Incidence.read(file)
    assert (made.n_records, made.n_secrets) == (3, 3)
    assert list(zip(made.records, made.secrets, strict=True)) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2)]
    assert b"uill" not in file.read_bytes()


def test_options_may_come_from_the_configuration_of_the_run(notes: str, tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(f"data: {notes}\ntext: text\nsecrets: who\nepsilon: 1\nmax_records_per_secret: 3\n")
    assert call("incidence", "--config", config, "--output", tmp_path / "i.parquet").exit_code == 0
    assert Incidence.read(tmp_path / "i.parquet").n_secrets == 1


def test_count_tells_the_private_folder_and_not_the_terminal(notes: str, tmp_path: Path) -> None:
    result = call("count", "--data", notes, "--text", "text", "--secrets", "who", "--output", tmp_path / "out")
    file = tmp_path / "out" / "private" / "secret_counts.json"
    assert result.stdout.strip() == str(file)
    assert "private" in result.stderr
    assert "uill" not in result.output
    assert json.loads(file.read_text()) == {
        "most_records": 2,
        "secrets_by_records": {"2": 1},
        "most_common": {"ann quill": 2},
    }
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("verb", ["incidence", "count"])
@pytest.mark.parametrize(
    ("left_out", "message"), [("--data", "--data SOURCE"), ("--output", "--output"), ("--secrets", "--secrets-file")]
)
def test_what_is_missing_is_named(notes: str, tmp_path: Path, verb: str, left_out: str, message: str) -> None:
    given = {"--data": notes, "--text": "text", "--secrets": "who", "--output": tmp_path / "o"}
    result = call(verb, *(part for flag, value in given.items() if flag != left_out for part in (flag, value)))
    assert isinstance(result.exception, ConfigError)
    assert message in result.exception.cure
    assert not (tmp_path / "o").is_file()


def test_no_copy_of_standard_input_is_left(tmp_path: Path) -> None:
    columns = ("--data", "-", "--format", "csv", "--text", "text", "--secrets", "who")
    arguments = ["secrets", "count", *columns, "--output", str(tmp_path / "out")]
    assert CliRunner().invoke(cli, arguments, input=TABLE).exit_code == 0
    assert [file.name for file in (tmp_path / "out" / "private").iterdir()] == ["secret_counts.json"]
