"""What public facts tell is told before anything is charged: of files, folders, names, labels and models."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clinic import FakeChat, in_format, rows, settings
from evolution_fixtures import OF_KPS, WordEmbedder, evolving
from numpy.typing import NDArray
from run_fixtures import runs_charged
from script_model import ScriptModel
from secret_fixtures import protecting

import understudy as us
from understudy.base.errors import ConfigError, ModelError, StorageError, UnderstudyError
from understudy.release import reading
from understudy.run.generating import Result
from understudy.run.pipeline import release, run
from understudy.run.settings import run_config


def refused(
    values: dict[str, Any], kind: type[UnderstudyError], match: str, *, run: Callable[..., Result] = run
) -> None:
    with pytest.raises(kind, match=match) as caught:
        run(run_config(values))
    assert caught.value.cure
    assert runs_charged(values["ledger"]) == 0


def test_a_command_that_is_refused_leaves_no_folder_behind_and_keeps_what_is_in_it(tmp_path: Path) -> None:
    refusals: tuple[dict[str, Any], ...] = (
        {"data": "missing.csv"},
        {"length": 11},
        {"embedder": "wizard", "bandwidth": 0.3},
        {"ledger_id": "0" * 32},
    )
    for there in (False, True):
        for changes in refusals:
            for fresh in (False, True):
                with pytest.raises(UnderstudyError):
                    run(run_config({**settings(tmp_path, fresh=fresh), **changes}))
                assert (tmp_path / "out").exists() is there
                assert not there or {path.name for path in (tmp_path / "out").iterdir()} == {"mine.txt", "private"}
        if not there:
            (tmp_path / "out" / "private").mkdir(parents=True)
            (tmp_path / "out" / "mine.txt").write_text("kept", "utf-8")
    values = settings(tmp_path)
    made = run(run_config(values)).release
    with pytest.raises(UnderstudyError):
        run(run_config({**values, "epsilon": "2"}))
    assert run(run_config(values)).release.digest == made.digest
    assert runs_charged(values["ledger"]) == 1


def test_a_folder_in_the_place_of_a_result_is_told_before_the_charge(tmp_path: Path) -> None:
    results = ("release/dp-kps.release", "release/statement.md", "release/synthetic.csv", "private/evaluation.json")
    for name in results:
        (tmp_path / "out" / name).mkdir(parents=True)
        refused(settings(tmp_path), ConfigError, f"holds a folder {Path(name).name}")
        (tmp_path / "out" / name).rmdir()


def test_an_output_folder_that_cannot_be_written_is_told_before_the_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: Any, **_options: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(import_module("understudy.run.outputs"), "TemporaryFile", full)
    refused(settings(tmp_path), StorageError, "cannot be written .Read-only file system")


def test_a_public_file_whose_name_is_no_text_is_told_before_the_charge(tmp_path: Path) -> None:
    values = settings(tmp_path)
    odd = os.fsencode(tmp_path) + b"/terms\xff.txt"
    try:
        Path(os.fsdecode(odd)).write_bytes((tmp_path / "terms.txt").read_bytes())
    except OSError:
        pytest.skip("this file system has no such names")
    refused({**values, "vocabulary": os.fsdecode(odd)}, ConfigError, "'vocabulary' holds characters that UTF-8")


def test_a_label_that_is_half_a_character_is_told_before_the_charge(tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text(json.dumps(["cardiology", "dermatology", "\ud800"]), "utf-8")
    refused(settings(tmp_path, labels=f"@{tmp_path / 'labels.json'}"), ConfigError, "'labels' holds characters")


@pytest.mark.parametrize(
    ("labels", "column"),
    [("1,2,nan", 0.5), ("1,1e999", 0.5), ([1, 10**400], "a"), (f"1,{10**400}", 1)],
    ids=["nan", "too large", "too many digits", "spelt"],
)
def test_a_label_that_no_release_could_name_is_told_before_the_charge(
    tmp_path: Path, labels: object, column: object
) -> None:
    pq.write_table(pa.table({"note": ["a"], "department": [column]}), tmp_path / "notes.parquet")
    refused(settings(tmp_path, data=str(tmp_path / "notes.parquet"), labels=labels), ConfigError, "declared label")


def test_a_manifest_that_could_not_be_read_again_is_told_before_the_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_JSON_BYTES", 1000)
    refused(settings(tmp_path), ConfigError, "could be read again")


@pytest.mark.parametrize(
    ("labels", "output_format"), [([1, "a"], "csv"), ([True, 0.5, "a"], "parquet"), ([2**70, 1], "jsonl")], ids=str
)
def test_labels_of_several_types_are_written_in_every_format(
    tmp_path: Path, labels: list[Any], output_format: str
) -> None:
    table = [{**row, "department": labels[number % len(labels)]} for number, row in enumerate(rows(8))]
    (tmp_path / "notes.jsonl").write_text("\n".join(map(json.dumps, table)), "utf-8")
    values = settings(tmp_path, data=str(tmp_path / "notes.jsonl"), labels=labels)
    run(run_config(values))
    file = in_format(values, output_format)
    again = us.read_corpus(file, text="text", label="department", labels=labels)
    assert sum(len(batch.texts) for batch in again.batches()) == 4 * len(labels)


def test_proportions_of_labels_that_the_table_spells_otherwise_are_told_before_the_charge(
    tmp_path: Path, embedder: WordEmbedder, varied_chat: FakeChat
) -> None:
    table = [{**row, "department": number % 2} for number, row in enumerate(rows(8))]
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "notes.parquet")
    values = evolving(tmp_path, data=str(tmp_path / "notes.parquet"), labels="00,01", label_sizes="00=1,01=3")
    refused(values, ConfigError, "do not fit the declared labels")


class Odd(WordEmbedder):
    """As the clinic's, but for texts that hold a word."""

    def __init__(self, word: str, answer: float) -> None:
        self._word, self._answer = word, answer

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = super().embed(texts)
        for number, text in enumerate(texts):
            if self._word in text:
                vectors[number] *= self._answer
        return vectors


@pytest.mark.parametrize(
    ("values", "word"),
    [
        (lambda folder: settings(folder, bandwidth=0.4, features=8), "angina"),
        (lambda folder: protecting(folder, records_per_label=None), "Case 7."),
        (lambda folder: evolving(folder), "public"),
        (lambda folder: evolving(folder, method="guided-evolution"), "public"),
        (lambda folder: settings(folder, guide=True), "public"),
    ],
    ids=["dp-kps", "sec-pe", "aug-pe", "guided-evolution", "a guide"],
)
def test_an_embedder_without_unit_vectors_for_public_texts_is_told_before_the_charge(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    varied_chat: FakeChat,
    values: Callable[[Path], dict[str, Any]],
    word: str,
) -> None:
    for answer in (0.0, 2.0, float("nan")):
        monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda spec, answer=answer: Odd(word, answer))
        refused(values(tmp_path), ModelError, "unit vector", run=release)


def test_public_clusters_are_made_before_the_charge_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embedder: WordEmbedder
) -> None:
    charged: list[int] = []
    values = protecting(tmp_path, records_per_label=None)

    def make(*args: Any, **options: Any) -> Any:
        charged.append(runs_charged(values["ledger"]))
        return make_clusters(*args, **options)

    from understudy.methods.sec_pe.clusters import make_clusters

    monkeypatch.setattr("understudy.methods.sec_pe.release.make_clusters", make)
    release(run_config(values))
    assert charged == [0]


def test_an_embedder_that_fails_on_an_empty_text_is_told_before_the_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails(WordEmbedder):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            assert all(texts), "no empty ones"
            return super().embed(texts)

    monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda spec: Fails())
    refused(settings(tmp_path, bandwidth=0.4), ModelError, "fails on an odd public text .AssertionError")


def test_more_candidates_than_can_be_stored_are_refused_in_the_plan(
    tmp_path: Path, embedder: WordEmbedder, varied_chat: FakeChat
) -> None:
    for changes in ({"population": 1_000_000}, {"rounds": 1000, "population": 2000}):
        refused(evolving(tmp_path, **changes), ConfigError, "candidates, and all together")
    refused(protecting(tmp_path, population=1_000_000), ConfigError, "candidates, and all together")


def test_more_records_than_a_table_can_have_are_refused(tmp_path: Path) -> None:
    refused(settings(tmp_path, records_per_label=6_000_000), ConfigError, "12000000 synthetic records are asked for")


def test_prompts_that_do_not_fit_into_memory_are_told_before_the_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Large(ScriptModel):
        def contexts(self, rows: Any, **options: Any) -> Any:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate much")

    monkeypatch.setattr("understudy.models.catalog.load_causal", lambda spec, **options: Large())
    of_kps = dict.fromkeys(OF_KPS)
    values = evolving(tmp_path, method="private-prediction", rounds=None, population=None, variations=None, **of_kps)
    values |= {"batches": 1, "epsilon": "30"}
    refused(values, ModelError, "The prompts of one text do not fit into memory", run=release)
