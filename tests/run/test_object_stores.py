"""Runs on a table in an object store or a folder of partitions; and addresses where a path is meant."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from clinic import flags, rows, settings
from run_fixtures import Command, runs_charged, stops_after_the_charge

import understudy as us
from understudy.base.errors import ConfigError, CorpusError, LedgerError, ResumeError
from understudy.base.files import private_folder, require_local
from understudy.corpus import read_corpus, write_table
from understudy.run import pipeline as running
from understudy.run.outputs import OutputFolder
from understudy.run.settings import run_config

Store = Callable[[str, bytes], str]


def lines(table: list[dict[str, str]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in table).encode()


def release(values: Mapping[str, Any]) -> bytes:
    running.release(run_config(values))
    return (Path(values["output"]) / "release" / "dp-kps.release").read_bytes()


def test_a_release_from_a_store_resumes_and_shows_no_credential(
    tmp_path: Path, bucket: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = rows()
    for part in range(2):
        store(f"notes/part-{part}.jsonl", lines(table[part::2]))
    values = settings(tmp_path, data=f"{bucket}/notes", llm=None, records_per_label=None)
    with stops_after_the_charge(monkeypatch):
        release(values)
    assert runs_charged(values["ledger"]) == 1
    made = release(values)
    assert release(values) == made
    assert runs_charged(values["ledger"]) == 1
    written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(b"AKIAZEBRA" in content or b"zebra/secret" in content for content in written)


def test_a_file_that_came_meanwhile_is_noticed_before_anything_is_drawn(
    tmp_path: Path, bucket: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = rows()
    store("notes/part-0.jsonl", lines(table[:30]))
    values = settings(tmp_path, data=f"{bucket}/notes", llm=None, records_per_label=None)
    with stops_after_the_charge(monkeypatch):
        release(values)
    store("notes/part-1.jsonl", lines(table[30:]))
    with pytest.raises((ResumeError, CorpusError, LedgerError)):
        release(values)
    assert not (tmp_path / "out" / "release" / "dp-kps.release").exists()
    assert runs_charged(values["ledger"]) == 1


def test_a_copy_in_a_store_is_known_by_its_content(tmp_path: Path, store: Store) -> None:
    values = settings(tmp_path, llm=None, records_per_label=None)
    release(values)
    address = store("other.csv", (tmp_path / "notes.csv").read_bytes())
    with pytest.raises(LedgerError, match="notes"):
        release({**values, "data": address, "output": str(tmp_path / "again")})


def test_partitions_are_the_labels_of_a_run(tmp_path: Path, understudy: Command) -> None:
    values = settings(tmp_path, llm=None, records_per_label=None)
    for label in values["labels"].split(","):
        folder = tmp_path / "lake" / f"department={label}"
        folder.mkdir(parents=True)
        table = [{"note": row["note"]} for row in rows() if row["department"] == label]
        (folder / "part-0.jsonl").write_bytes(lines(table))
    understudy("release", *flags({**values, "data": str(tmp_path / "lake")}), code=0)
    assert (tmp_path / "out" / "release" / "dp-kps.release").exists()


def test_a_command_line_with_a_credential_in_an_address_does_not_repeat_it(tmp_path: Path, understudy: Command) -> None:
    values = settings(tmp_path, data="s3://AKIA:Zebra@bucket/notes.csv", llm=None, records_per_label=None)
    for verb, leave_out in (("release", ""), ("plan", "output")):
        said = understudy(verb, *flags({name: value for name, value in values.items() if name != leave_out}), code=2)
        assert "environment" in said.err
        assert "Zebra" not in said.err + said.out


# -- an address is no path ---------------------------------------------------------------------------------------------


ADDRESSES = ["s3://bucket/x", "gs://b/x.csv", "file:///tmp/x.csv", "https://h/x.csv"]


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


RELEASE = "--text note --epsilon 3 --delta 1e-6 --data n.csv"
COMMANDS = {
    "run": f"{RELEASE} --records 2 --llm none",
    "release": RELEASE,
    "baseline": "--records 2 --document-type note",
    "secrets": "count --data n.csv --text note --secret-detectors email",
}


@pytest.mark.parametrize("verb", COMMANDS)
def test_no_command_writes_to_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, understudy: Command, verb: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "n.csv").write_text("note\nhello\n")
    said = understudy(verb, *COMMANDS[verb].split(), "--output", "s3://bucket/x", code=2)
    assert "is an address" in said.err
    assert not (tmp_path / "s3:").exists()


def test_an_incidence_file_and_an_evaluation_are_written_to_no_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, understudy: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "n.csv").write_text("note\nhello\nthere\n")
    table = ["--data", "n.csv", "--text", "note", "--secret-detectors", "email"]
    said = understudy("secrets", "incidence", *table, "--output", "s3://bucket/x.parquet")
    assert (said.code, "is an address" in said.err) == (2, True)
    with pytest.raises(ConfigError, match="is an address"):
        us.evaluate("n.csv", "n.csv", text="note", output="s3://bucket/x")
    assert not (tmp_path / "s3:").exists()
