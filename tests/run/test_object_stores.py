"""A run on a table in an object store, or in a folder of partitions: charged once, resumed, known again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from clinic import flags, rows, settings
from run_fixtures import Said, runs_charged, stops_after_the_charge

from understudy.base.errors import CorpusError, LedgerError, ResumeError
from understudy.run import pipeline as running
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


def test_partitions_are_the_labels_of_a_run(tmp_path: Path, understudy: Callable[..., Said]) -> None:
    values = settings(tmp_path, llm=None, records_per_label=None)
    for label in values["labels"].split(","):
        folder = tmp_path / "lake" / f"department={label}"
        folder.mkdir(parents=True)
        table = [{"note": row["note"]} for row in rows() if row["department"] == label]
        (folder / "part-0.jsonl").write_bytes(lines(table))
    said = understudy("release", *flags({**values, "data": str(tmp_path / "lake")}))
    assert said.code == 0, said.err
    assert (tmp_path / "out" / "release" / "dp-kps.release").exists()


def test_a_command_line_with_a_credential_in_an_address_does_not_repeat_it(
    tmp_path: Path, understudy: Callable[..., Said]
) -> None:
    values = settings(tmp_path, data="s3://AKIA:Zebra@bucket/notes.csv", llm=None, records_per_label=None)
    for verb, leave_out in (("release", ""), ("plan", "output")):
        said = understudy(verb, *flags({name: value for name, value in values.items() if name != leave_out}))
        assert said.code == 2
        assert "environment" in said.err
        assert "Zebra" not in said.err + said.out
