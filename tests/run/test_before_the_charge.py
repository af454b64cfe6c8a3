"""What public facts tell is told before anything is charged: of files, folders, names, labels and models."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clinic import FakeChat, flags, in_format, rows, settings, write_csv
from evolution_fixtures import OF_KPS, WordEmbedder, evolving
from numpy.typing import NDArray
from run_fixtures import Command, runs_charged
from script_model import ScriptModel
from secret_fixtures import protecting

import understudy as us
from understudy.base.errors import ConfigError, CorpusError, ModelError, StorageError, UnderstudyError, in_keywords
from understudy.ledger import Ledger
from understudy.release import reading
from understudy.run import defaults as decided
from understudy.run import pipeline as running
from understudy.run.generating import Result
from understudy.run.job import Job
from understudy.run.outputs import OutputFolder
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
        {"embedder": "wizard", "guide": True},
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


@pytest.mark.parametrize("changes", [{"data": "missing.csv"}, {"label": "ward"}])
@pytest.mark.parametrize("verb", [us.run, us.release])
def test_a_table_is_looked_for_before_a_model_is_loaded(
    verb: Callable[..., object], changes: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_args: object) -> None:
        raise AssertionError("a model is loaded")

    monkeypatch.setattr(running, "prepare_writing", load)
    monkeypatch.setattr(running, "make_release", load)
    options = {**settings(tmp_path), **changes}
    with pytest.raises((ConfigError, CorpusError), match=r"missing\.csv|'ward'"):
        verb(options.pop("data"), us.Budget(options.pop("epsilon"), options.pop("delta")), **options)
    assert not (tmp_path / "out").exists()


def test_a_folder_in_the_place_of_a_result_is_told_before_the_charge(tmp_path: Path) -> None:
    results = ("release/dp-kps.release", "release/statement.md", "release/synthetic.csv", "private/evaluation.json")
    for name in results:
        (tmp_path / "out" / name).mkdir(parents=True)
        refused(settings(tmp_path), ConfigError, f"contains a folder {Path(name).name}")
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
    refused({**values, "vocabulary": os.fsdecode(odd)}, ConfigError, "'vocabulary' contains characters that UTF-8")


def test_a_label_that_is_half_a_character_is_told_before_the_charge(tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text(json.dumps(["cardiology", "dermatology", "\ud800"]), "utf-8")
    refused(settings(tmp_path, labels=f"@{tmp_path / 'labels.json'}"), ConfigError, "'labels' contains characters")


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
    refused(settings(tmp_path), ConfigError, "could not be loaded")


@pytest.mark.parametrize(
    ("labels", "output_format"), [([1, "a"], "csv"), ([True, 0.5, "a"], "parquet"), ([2**70, 1], "jsonl")], ids=str
)
def test_labels_of_all_types_are_written_in_all_formats(tmp_path: Path, labels: list[Any], output_format: str) -> None:
    table = [{**row, "department": labels[number % len(labels)]} for number, row in enumerate(rows(8))]
    (tmp_path / "notes.jsonl").write_text("\n".join(map(json.dumps, table)), "utf-8")
    values = settings(tmp_path, data=str(tmp_path / "notes.jsonl"), labels=labels)
    run(run_config(values))
    file = in_format(values, output_format)
    again = us.read_corpus(file, text="note", label="department", labels=labels)
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
        (lambda folder: protecting(folder, records_per_label=None), "Case 7."),
        (lambda folder: evolving(folder), "public"),
        (lambda folder: evolving(folder, method="guided-evolution"), "public"),
        (lambda folder: settings(folder, guide=True), "public"),
    ],
    ids=["sec-pe", "aug-pe", "guided-evolution", "a guide"],
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
        refused(values(tmp_path), ModelError, "vectors? of length 1", run=release)


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
    refused(settings(tmp_path, guide=True), ModelError, "fails on an odd public text .AssertionError")


def test_more_candidates_than_can_be_stored_are_refused_in_the_plan(
    tmp_path: Path, embedder: WordEmbedder, varied_chat: FakeChat
) -> None:
    for changes in ({"population": 1_000_000}, {"rounds": 1000, "population": 2000}):
        refused(evolving(tmp_path, **changes), ConfigError, "candidates, and all together")
    refused(protecting(tmp_path, population=1_000_000), ConfigError, "candidates, and all together")


def test_more_records_than_a_table_can_have_are_refused(tmp_path: Path) -> None:
    refused(settings(tmp_path, records_per_label=6_000_000), ConfigError, "12000000 synthetic records are requested")


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
    refused(values, ModelError, "leaves too little memory for the prompts of one text", run=release)


# -- what methods take from the declared size of the corpus, where nobody gives it ------------------------------------

FACTS = {"epsilon": 6, "delta": 1e-6, "label": "kind", "labels": ["a", "b"], "records_per_label": 3}
TAKEN = [
    ("few-shot", "sampling_rate", 10 * 4 * 2 / 3000, 0.01),
    ("private-prediction", "batches", 3000 // (2 * 31), 7),
    ("dp-finetune", "declared_records", 3000, 500),
    ("seq-pate", "declared_records", 3000, 500),
]


def job(method: str, **settings: Any) -> Job:
    return Job(run_config({"method": method, **FACTS, **settings}))


def needed(made: Job) -> None:
    """What a run does before its charge."""
    made.plan()
    getattr(made.method, "declared_batches", None)


@pytest.mark.parametrize(("method", "name", "value", "own"), TAKEN)
def test_the_declared_size_says_what_nobody_gives(
    monkeypatch: pytest.MonkeyPatch, method: str, name: str, value: float, own: float
) -> None:
    made = job(method, expected_records=3000)
    assert made.method.dump()[name] == pytest.approx(value, rel=1e-2)
    assert made.lasting.settings[name] == made.method.dump()[name], "a resumed run must share it"
    assert name.replace("_", " ") in made.fitted_line
    given = job(method, expected_records=3000, **{name: own})
    assert given.method.dump()[name] == own
    assert not given.fitted_line
    with pytest.raises(ConfigError) as caught:
        needed(job(method))
    assert "--expected-records" in caught.value.cure
    monkeypatch.setattr(decided, "settings_begun", lambda _config: {name: own})
    for size in ({}, {"expected_records": 9000}):
        assert job(method, **size).method.dump()[name] == own, "a run that began keeps it"


def test_other_methods_take_nothing() -> None:
    assert not job("dp-kps", expected_records=3000).fitted_line


# -- a run of a table most of whose rows cannot be used is refused before it is charged, and tells no more than that --

REFUSED = "More rows are unusable than --max-bad-rows allows"
BUDGET = us.Budget(3, "1e-6")


def datasets(values: dict[str, Any]) -> list[str]:
    with Ledger(values["ledger"]) as ledger:
        return [dataset.name for dataset in ledger.datasets()]


def with_bad_rows(folder: Path, bad: int, good: int = 38, **changes: Any) -> dict[str, Any]:
    """Settings of a table of which ``bad`` rows have no text."""
    write_csv(folder / "notes.csv", [*rows(good), *({**row, "note": ""} for row in rows(bad))])
    return settings(folder, **{"max_bad_rows": 0.05, **changes})


@pytest.mark.parametrize("verb", ["run", "release"])
def test_a_table_in_another_format_than_declared_is_refused_before_the_charge(
    tmp_path: Path, understudy: Command, verb: str
) -> None:
    """Dates as 02.02.2024 and decimal commas, in every row but two."""
    table = [f"{row['note']};{row['department']};02.02.2024;{n},50" for n, row in enumerate(rows())]
    table[:2] = [re.sub(r";02.02.2024;(\d+),", r";2024-02-02;\1.", row) for row in table[:2]]
    (tmp_path / "export.csv").write_text("\n".join(["note;department;day;paid", *table]) + "\n", "utf-8")
    values = settings(tmp_path, data=str(tmp_path / "export.csv"), delimiter=";", max_bad_rows=0.05)
    values["columns"] = "day=2024-01-01..2024-12-31/12; paid=0.0..60.0/12"
    if verb == "release":
        del values["llm"], values["records_per_label"]
    said = understudy(verb, *flags(values), code=3)
    assert REFUSED in said.err
    assert not re.search(r"\d", said.err.partition(REFUSED)[2].replace(str(tmp_path), ""))
    assert datasets(values) == []
    assert not list((tmp_path / "out").glob("release/*"))
    counts = json.loads((tmp_path / "out" / "private" / "skipped_rows.json").read_text())
    assert counts["skipped"] == 38
    values["max_bad_rows"] = 1  # the twin without the check: it is charged for noise
    understudy(verb, *flags(values))
    assert runs_charged(values["ledger"], "export") == 1


@pytest.mark.parametrize(("bad", "refused"), [(2, False), (3, True)])
def test_the_declared_share_itself_may_be_skipped(tmp_path: Path, bad: int, refused: bool) -> None:
    values = with_bad_rows(tmp_path, bad, max_bad_rows=2 / 40)
    if refused:
        with pytest.raises(CorpusError, match=in_keywords(REFUSED)):
            running.run(run_config(values))
    else:
        running.run(run_config(values))
    assert datasets(values) == ([] if refused else ["notes"])


TURNS = [{"role": "clinician", "content": "fever"}, {"role": "patient", "content": "heart"}]


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("form", ["notes", "dialogues"])
def test_tables_in_memory_and_open_ones_are_refused_as_well(tmp_path: Path, form: str, opened: bool) -> None:
    texts: list[Any] = ["fever", "heart", "", ""] if form == "notes" else [TURNS, TURNS, "[]", "[]"]
    read: dict[str, Any] = {"text": "note"}
    read |= {} if form == "notes" else {"roles": "clinician,patient"}
    table: Any = [{"note": text} for text in texts]
    (tmp_path / "terms.txt").write_text("fever\nheart", "utf-8")
    method = us.DPKPS(vocabulary=str(tmp_path / "terms.txt"), vocabulary_is_public=True, length=1)
    options: dict[str, Any] = {"dataset": "d", "ledger": str(tmp_path / "ledger.sqlite")}

    def release(share: float) -> None:
        if opened:
            roles = {} if form == "notes" else {"roles": read["roles"]}
            us.release(us.read_corpus(table, **read, max_bad_rows=share), method, BUDGET, **options, **roles)
        else:
            us.release(table, method, BUDGET, **read, max_bad_rows=share, **options)

    with pytest.raises(CorpusError, match=in_keywords(REFUSED)) as caught:
        release(0.2)
    assert "private" not in str(caught.value)  # there is no such folder
    assert datasets(options) == []
    release(0.5)
    assert runs_charged(options["ledger"], "d") == 1


def test_a_run_that_was_charged_resumes_whatever_share_is_declared_now(tmp_path: Path) -> None:
    values = with_bad_rows(tmp_path, 10, max_bad_rows=0.5)
    running.release(run_config(values))
    for share in (0.5, 0.01):
        (tmp_path / "out" / "release" / "dp-kps.release").unlink()
        running.release(run_config({**values, "max_bad_rows": share}))
        assert runs_charged(values["ledger"]) == 1


def test_whoever_resumes_says_again_what_may_be_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = with_bad_rows(tmp_path, 2)
    with monkeypatch.context() as patch:
        patch.setattr(OutputFolder, "write_release", killed)
        with pytest.raises(KeyboardInterrupt):
            running.release(run_config(values))
    del values["max_bad_rows"]
    with pytest.raises(CorpusError, match="A row"):
        running.release(run_config(values))
    assert runs_charged(values["ledger"]) == 1


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_with_error_the_first_bad_row_ends_the_run_as_ever(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="A row has an empty text"):
        running.run(run_config(with_bad_rows(tmp_path, 1, max_bad_rows=0)))


@pytest.mark.parametrize("share", [-0.01, 1.01, float("nan")])
def test_a_share_is_from_0_to_1(share: float) -> None:
    with pytest.raises(ConfigError, match="max_bad_rows"):
        run_config({"max_bad_rows": share})
    with pytest.raises(ConfigError, match="max_bad_rows"):
        us.read_corpus([{"note": "a"}], text="note", max_bad_rows=share)


def test_the_statement_says_that_a_refusal_is_not_covered(tmp_path: Path) -> None:
    made = running.release(run_config(settings(tmp_path)))
    assert "too many unusable rows" in made.release.statement.to_markdown()
