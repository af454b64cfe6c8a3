"""An address is no path: it is refused where a path is meant, and makes no folder named ``s3:``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from run_fixtures import Said

import understudy as us
from understudy.base.errors import ConfigError
from understudy.base.files import private_folder, require_local
from understudy.corpus import read_corpus, write_table
from understudy.run.outputs import OutputFolder

ADDRESSES = ["s3://bucket/x", "gs://b/x.csv", "file:///tmp/x.csv", "hdfs://h/x", "abfss://c@a.net/x", "https://h/x.csv"]


@pytest.mark.parametrize("address", [*ADDRESSES, "s3:/bucket/x", Path("s3://bucket/x")], ids=str)
def test_an_address_is_one_error_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.chdir(tmp_path)
    for use in (
        lambda: require_local(address),
        lambda: OutputFolder(Path(address)),
        lambda: private_folder(Path(address) / "private"),
        lambda: write_table(f"{address}.csv", {"a": [1]}),
    ):
        with pytest.raises(ConfigError, match="is an address") as caught:
            use()
        assert "local path" in caught.value.cure
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "address", ["https://h/x.csv", "file:///tmp/x.csv", "hdfs://h/x", Path("s3://bucket/x")], ids=str
)
def test_a_table_is_read_from_no_other_address(address: str | Path) -> None:
    for use in (
        lambda: read_corpus(address, text="note", format="csv"),
        lambda: read_corpus([address, "other.csv"], text="note"),
    ):
        with pytest.raises(ConfigError, match="is an address") as caught:
            use()
        assert "s3://" in caught.value.cure


@pytest.mark.parametrize("address", ["s3://AKIA:Zebra@bucket/x", "s3://bucket/x?secret_key=Zebra"])
def test_an_output_address_with_a_credential_is_not_quoted(address: str) -> None:
    with pytest.raises(ConfigError, match="is an address") as caught:
        require_local(address)
    assert "Zebra" not in str(caught.value)


@pytest.mark.parametrize("path", ["C:/data/x.csv", "C:\\x", "x:y.csv", "a/s3:/b", "./x", "/tmp/s3://x", "-"])
def test_a_path_of_this_machine_is_none(path: str) -> None:
    require_local(path)


RELEASE = ["--text", "note", "--epsilon", "3", "--delta", "1e-6", "--data", "n.csv"]
COMMANDS = {
    "run": [
        "--text",
        "note",
        "--epsilon",
        "3",
        "--delta",
        "1e-6",
        "--data",
        "n.csv",
        "--records",
        "2",
        "--llm",
        "none",
    ],
    "release": ["--text", "note", "--epsilon", "3", "--delta", "1e-6", "--data", "n.csv"],
    "baseline": ["--records", "2", "--document-type", "note"],
    "secrets": ["count", "--data", "n.csv", "--text", "note", "--secret-detectors", "email"],
}


@pytest.mark.parametrize("verb", COMMANDS)
def test_no_command_writes_to_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, understudy: Callable[..., Said], verb: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "n.csv").write_text("note\nhello\n")
    said = understudy(verb, *COMMANDS[verb], "--output", "s3://bucket/x")
    assert said.code == 2, said.err
    assert "is an address" in said.err
    assert not (tmp_path / "s3:").exists()


def test_an_incidence_file_and_an_evaluation_are_written_to_no_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, understudy: Callable[..., Said]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "n.csv").write_text("note\nhello\nthere\n")
    table = ["--data", "n.csv", "--text", "note", "--secret-detectors", "email"]
    said = understudy("secrets", "incidence", *table, "--output", "s3://bucket/x.parquet")
    assert (said.code, "is an address" in said.err) == (2, True)
    with pytest.raises(ConfigError, match="is an address"):
        us.evaluate("n.csv", "n.csv", text="note", output="s3://bucket/x")
    assert not (tmp_path / "s3:").exists()
