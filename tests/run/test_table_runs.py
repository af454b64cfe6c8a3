"""Runs on tables with typed columns: what is released, which rows are written, and what is refused."""

from __future__ import annotations

import copy
import csv
import datetime
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from clinic import LABELS, TERMS, FakeChat, flags, in_format, prompt_file, rows, settings, write_csv
from numpy.typing import NDArray
from run_fixtures import Command, UseChat, files_holding, release, run, runs_charged, simple_fit, stops_after_the_charge

import understudy as us
from understudy.audit.running import AuditParameters, audit_run
from understudy.base.errors import ConfigError, CorpusError, ReleaseError, ResumeError
from understudy.methods.additions.columns import release as columns_release
from understudy.methods.additions.columns import variables
from understudy.methods.additions.columns.distribution import Distribution
from understudy.release import Release
from understudy.report import write_reports
from understudy.run import pipeline as running
from understudy.run.outputs import OutputFolder
from understudy.run.settings import run_config
from understudy.schema.labels import canonical
from understudy.text.prompts.writer import ANSWERS, SEEDS

COLUMNS = "ward=A|B; beds=1..4; fee=0.0..90.0/3; night; seen=2024-01-01..2024-12-31/12"
NAMES = ("ward", "beds", "fee", "night", "seen")
SEEDED = {"insecure_noise_seed": 1}


def tables(folder: Path, count: int = 400, **changes: Any) -> dict[str, Any]:
    """Settings of a run on notes with wards that go with departments, and beds that go with wards."""
    if not (folder / "notes.csv").exists():
        made = [
            {
                **row,
                "ward": "AB"[number % 2],
                "beds": 1 + number % 2 * 2 + number // 2 % 2,
                "fee": "" if number % 10 == 0 else f"{number % 90}.5",
                "night": "true" if number % 4 == 1 else "no",
                "seen": datetime.date(2024, 1, 1) + datetime.timedelta(number % 366),
            }
            for number, row in enumerate(rows(count))
        ]
        write_csv(folder / "notes.csv", made, [*made[0]])
    return settings(folder, **{"columns": COLUMNS, **changes})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Release:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns_release, "fit", simple_fit)
        values = tables(tmp_path_factory.mktemp("made"), records_per_label=None, **SEEDED)
        return release(values)


# -- resumed ----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends."""


def killed_while_fitting(values: dict[str, Any]) -> None:
    def kill(*_: Any, **__: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns_release, "fit", kill)
        with pytest.raises(Killed):
            run(values)


def test_what_was_measured_together_is_told_by_the_selection_that_was_made(tmp_path: Path) -> None:
    values = tables(tmp_path, records_per_label=4, epsilon="8")
    chosen: list[Any] = []
    select = columns_release.select_sets

    def other(*arguments: Any, **named: Any) -> Any:
        chosen.append(select(*arguments, **named))
        return tuple(reversed(chosen[-1]))

    killed_while_fitting(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns_release, "select_sets", other)
        run(values)
    assert not chosen, "it is not selected again"
    assert runs_charged(values["ledger"]) == 1


def test_a_run_whose_labels_are_read_from_the_data_resumes_with_columns(tmp_path: Path) -> None:
    values = tables(tmp_path, labels=None, labels_from_data=True, columns="ward=A|B", records_per_label=4)
    killed_while_fitting(values)
    assert len(run(values).records) == 8
    assert runs_charged(values["ledger"]) == 1


def test_a_run_that_began_with_other_scores_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = tables(tmp_path, records_per_label=4)
    with monkeypatch.context() as patch:
        patch.setattr(variables, "MOST_THREES", 0)  # as before sets of three were scored
        killed_while_fitting(values)
    with pytest.raises(ResumeError, match="another version of understudy"):
        run(values)
    assert runs_charged(values["ledger"]) == 1


# -- what is released and written -------------------------------------------------------------------------------------


def test_columns_are_released_and_rows_are_written_in_their_types(tmp_path: Path) -> None:
    result = run(tables(tmp_path, records_per_label=100, epsilon="8", **SEEDED))
    again = us.load_release(tmp_path / "out" / "release" / "dp-kps.release")
    assert again.digest == result.release.digest
    assert [charge.name for charge in again.statement.charges][-3:] == ["columns", "column-scores", "column-pairs"]
    assert again.statement.budget == us.Budget(8, "1e-6")
    assert again.statement.public_inputs["columns"]["source"] == "declared domains of 5 columns"
    table = pq.read_table(tmp_path / "out" / "release" / "synthetic.parquet")
    assert table.column_names == ["note", "department", *NAMES]
    assert [str(table.schema.field(name).type) for name in NAMES] == [
        "string",
        "int64",
        "double",
        "bool",
        "date32[day]",
    ]
    written = table.to_pylist()
    wards = Counter((row["department"], row["ward"]) for row in written)
    assert wards["cardiology", "A"] > 80
    assert wards["dermatology", "B"] > 80
    assert {row["beds"] for row in written if row["ward"] == "A"} <= {1, 2, 3, 4, None}
    assert all(row["fee"] is None or 0 <= row["fee"] <= 90 for row in written)
    assert all(row["seen"] is None or row["seen"].year == 2024 for row in written)


def test_the_output_folder_names_its_only_release(tmp_path: Path) -> None:
    made = release(settings(tmp_path, records_per_label=None))
    folder = tmp_path / "out" / "release"
    assert us.load_release(tmp_path / "out").digest == us.load_release(folder).digest == made.digest
    shutil.copy(folder / "dp-kps.release", folder / "other.release")
    with pytest.raises(us.UnderstudyError, match="is a folder"):
        us.load_release(tmp_path / "out")


def test_columns_keep_their_types_where_all_is_missing(tmp_path: Path) -> None:
    result = run(tables(tmp_path, where="seen=missing,fee=missing,ward=missing"))
    kinds = {"ward": "string", "fee": "double", "seen": "date32[day]"}
    table = pq.read_table(tmp_path / "out" / "release" / "synthetic.parquet")
    for made in (table, result.to_arrow()):
        assert {name: str(made.schema.field(name).type) for name in kinds} == kinds
        assert made["seen"].null_count == len(made)


@pytest.mark.parametrize("output_format", ["csv", "jsonl"])
def test_other_formats_hold_the_same_rows(tmp_path: Path, made: Release, output_format: str) -> None:
    written = us.generate(made, llm="none", records=8, output=tmp_path / "out").columns
    file = in_format({"output": tmp_path / "out"}, output_format)
    again = us.read_corpus(file, text="note", columns=COLUMNS, formulas_escaped=True)
    (batch,) = again.batches()
    (expected,) = us.read_corpus(made_table(written), text="note", columns=COLUMNS).batches()
    assert (batch.texts, batch.cells.tolist()) == (expected.texts, expected.cells.tolist())


def made_table(columns: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize("asked", [None, ["beds", "ward"], "none"])
def test_prompts_show_the_row_that_the_text_gets_or_the_columns_of_it_that_are_named(
    tmp_path: Path, made: Release, use_chat: UseChat, asked: str | list[str] | None
) -> None:
    chat = use_chat(FakeChat())
    options: dict[str, Any] = {} if asked is None else {"prompt": prompt_file(tmp_path, prompt_columns=asked)}
    result = us.generate(made, llm="fake", records=8, where="ward=A|B,beds=1..4", **options)
    prompts = [request.messages[-1].content for request in chat.asked]
    if asked == "none":
        assert not [prompt for prompt in prompts if "Details" in prompt]
    else:
        rows = [f"Details: ward: {record.columns[0]}; beds: {record.columns[1]}" for record in result.records]  # type: ignore[index]
        shown = [prompt.split("\n\n")[0] for prompt in prompts if "Details" in prompt]
        assert [row.startswith(said) for row, said in zip(shown, rows, strict=True)] == [True] * 8
        assert ("night" in shown[0]) == (asked is None)


def test_the_writer_is_shown_no_numbers_and_dates_which_it_would_copy(made: Release, use_chat: UseChat) -> None:
    chat, said = use_chat(FakeChat()), list[str]()
    listener = us.Listener(said.append)
    result = us.generate(made, llm="builtin", records=8, where="ward=A|B", accept_all=True, listener=listener)
    assert any("around at most four phrases of its seed" in line for line in said)
    shown = [request.messages[-1].content.split("\n")[1] for request in chat.asked]
    rows = [f"ward: {row.columns[0]}; night: {str(row.columns[3]).lower()}" for row in result.records]  # type: ignore[index]
    assert shown == [row for row in rows for _ in range(SEEDS * ANSWERS)]


@pytest.mark.parametrize("asked", ["wing", "ward,", "", "id"])
def test_a_prompt_cannot_show_a_column_that_rows_do_not_have(tmp_path: Path, made: Release, asked: str) -> None:
    with pytest.raises(ConfigError, match="the rows do not have it"):
        us.generate(made, llm="none", records=5, prompt=prompt_file(tmp_path, prompt_columns=asked))


def test_python_takes_columns_from_the_corpus(tmp_path: Path) -> None:
    tables(tmp_path)
    corpus = us.read_corpus(
        tmp_path / "notes.csv", text="note", label="department", labels=LABELS, columns={"ward": ["A", "B"]}
    )
    result = us.run(
        corpus,
        us.DPKPS(vocabulary=str(tmp_path / "terms.txt"), vocabulary_is_public=True, top_terms=10, length=3),
        us.Budget(4, "1e-6"),
        llm="none",
        records=10,
        ledger=str(tmp_path / "ledger.sqlite"),
        dataset="notes",
    )
    assert set(result.columns) == {"note", "department", "ward"}


def test_owners_are_protected_over_columns_and_text(tmp_path: Path) -> None:
    values = tables(tmp_path, owner="clinician", max_records_per_owner=3, insecure_no_noise=True, ledger=None)
    release = running.release(run_config(values)).release
    assert release.statement.unit.kind == "owner"
    assert release.arrays["columns"].sum() == pytest.approx(5 * 6, rel=1e-4)  # five owners of weight 1, six histograms


def test_an_engine_gives_the_same_histograms(tmp_path: Path) -> None:
    values = tables(tmp_path, owner="clinician", insecure_no_noise=True, ledger=None)
    here = release(values, output=str(tmp_path / "here"))
    there = release(values, engine="processes", workers=1)
    for name in ("columns", "column-scores", "column-pairs"):
        np.testing.assert_array_equal(here.arrays[name], there.arrays[name])


def test_identifiers_are_made_up_and_never_read(tmp_path: Path) -> None:
    values = tables(tmp_path, columns=f"number=identifier; {COLUMNS}", records_per_label=20)  # no such column is there
    columns = run(values).columns
    assert list(columns)[:2] == ["note", "department"]
    assert len(set(columns["number"])) == 40
    with pytest.raises(ConfigError, match="All declared columns are identifiers"):
        run(tables(tmp_path, columns="number=identifier", label=None, labels=None, output=str(tmp_path / "other")))


# -- conditions -------------------------------------------------------------------------------------------------------


def test_rows_meet_a_condition_and_labels_follow_from_it(made: Release) -> None:
    where = "ward=B,seen=2024-03-01..2024-04-30"
    records = us.generate(made, llm="none", records=60, where=where).records
    assert {record.columns[0] for record in records if record.columns} == {"B"}
    months = {record.columns[4].month for record in records if record.columns}  # type: ignore[union-attr]
    assert months <= {3, 4}
    assert sum(record.label == 1 for record in records) > 45
    records = us.generate(made, llm="none", records=20, where={"department": "dermatology", "beds": [1, 3]}).records
    assert {record.label for record in records} == {1}
    assert {record.columns[1] for record in records if record.columns} <= {1, 3}


def test_the_same_seed_gives_the_same_rows_and_another_others(made: Release) -> None:
    first, same, other = (
        [record.columns for record in us.generate(made, llm="none", records=30, seed=seed).records]
        for seed in (1, 1, 2)
    )
    assert first == same != other


def test_who_sees_a_conditional_table_is_told_the_condition(tmp_path: Path, understudy: Command) -> None:
    values = tables(tmp_path, records_per_label=None, output=str(tmp_path / "made"))
    file = str(running.release(run_config(values)).folder.release_file("dp-kps"))  # type: ignore[union-attr]
    out, told = tmp_path / "some", {"llm": "none", "records": 20}
    said = understudy(
        "generate", file, *flags({**told, "where": "ward=A,fee=missing|5..30", "output": str(out)}), code=0
    )
    assert re.search(r"The condition holds for [0-9.]+% of the rows", said.err)
    condition = "ward=A, fee=missing|5..30"
    result = us.generate(file, llm="none", records=3, where="ward=A,fee=missing|5..30")
    assert any(note.endswith(f"{condition}.") for note in result.statement.notes)
    assert not any("condition" in note for note in result.release.statement.notes)
    assert condition in (out / "release" / "statement.md").read_text()
    table = pq.read_table(out / "release" / "provenance.parquet").to_pylist()
    assert {json.loads(row["provenance"])["where"] for row in table} == {condition}
    page = write_reports(OutputFolder(out), embedder=None).shareable.read_text()
    assert f"only for rows with {condition}" in page
    understudy("generate", file, *flags({**told, "output": str(tmp_path / "all")}))
    page = write_reports(OutputFolder(tmp_path / "all"), embedder=None).shareable.read_text()
    assert "condition" not in (tmp_path / "all" / "release" / "statement.md").read_text()
    assert "for rows with" not in page


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("ward=C", "has no 'C'"),
        ("wing=A", "does not have"),
        ("ward=", "cannot be read"),
        ("department=surgery", "names an unknown label"),
        ("ward=A,ward=B", "names a column twice"),
        ("beds=4..1", "ends before it begins"),
        ("beds=9", "has no values in"),
        ("department=dermatology", "No row with the label 'cardiology'"),
    ],
)
def test_an_impossible_condition_says_so(made: Release, where: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        us.generate(made, llm="none", records_per_label=5, where=where)


def test_a_condition_on_a_name_that_the_flag_cannot_write_says_where_it_can(tmp_path: Path) -> None:
    table = [{**row, "pay, €": number % 4 + 1} for number, row in enumerate(rows())]
    write_csv(tmp_path / "notes.csv", table, list(table[0]))
    config = run_config(tables(tmp_path, columns={"pay, €": "1..4"}, records_per_label=None, **SEEDED))
    released = running.release(config).release
    with pytest.raises(ConfigError, match="does not have") as caught:
        us.generate(released, llm="none", records=5, where="pay=2")
    assert "where: {'pay, €': ...}" in caught.value.cure
    made = us.generate(released, llm="none", records=5, where={"pay, €": 2})
    assert made.columns["pay, €"] == [2] * 5


# -- labels that are made of columns ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("label", "names"), [("night*ward", 4), ("beds", ("1", "2", "3", "4"))])
def test_a_label_may_be_made_of_columns_and_rows_meet_its_conditions(tmp_path: Path, label: str, names: Any) -> None:
    result = run(tables(tmp_path, label=label, labels=None, records_per_label=None, records=80))
    if label == "night*ward":
        names = ("false / A", "false / B", "true / A", "true / B")
    assert result.release.schema.labels == names
    assert us.load_release(tmp_path / "out" / "release" / "dp-kps.release").digest == result.release.digest
    columns, parts = result.columns, label.split("*")
    assert list(columns) == ["note", *NAMES]
    for place, name in enumerate(result.provenance["label"]):
        assert " / ".join(canonical(columns[each][place]) for each in parts) == name  # type: ignore[arg-type]
    if label == "night*ward":
        made = us.generate(result.release, llm="none", records=20, where="ward=B,beds=3..4")
        assert set(made.columns["ward"]) == {"B"}
        assert set(made.provenance["label"]) <= {"false / B", "true / B"}
        with pytest.raises(ConfigError, match="has no 'C'"):
            us.generate(result.release, llm="none", records=20, where="ward=C")


def test_all_columns_may_be_in_the_label(tmp_path: Path) -> None:
    values = tables(tmp_path, columns="ward=A|B; night", label="night*ward", labels=None, records_per_label=None)
    result = run(values, records=40)
    assert runs_charged(values["ledger"]) == 1
    assert [charge.name for charge in result.release.statement.charges][-1] == "columns"
    assert set(result.columns["ward"]) <= {"A", "B"}


# -- bad rows and bad settings, before anything is charged ------------------------------------------------------------


def with_cell(folder: Path, column: str, cell: str) -> None:
    """The table of ``folder`` with another cell in one row."""
    with (folder / "notes.csv").open(newline="") as stream:
        table = list(csv.DictReader(stream))
    table[17][column] = cell
    write_csv(folder / "notes.csv", table, list(table[0]))


@pytest.mark.parametrize(
    ("cell", "column", "form"),
    [
        *(("C", "ward", "it declares A, B"), ("many", "beds", "whole numbers"), ("1e", "fee", "1200.50")),
        *(("2024-13-01", "seen", "dates such as 2024-12-31"), ("perhaps", "night", "yes or no")),
    ],
)
def test_a_value_outside_its_domain_is_a_bad_row_that_names_the_column_and_its_form(
    tmp_path: Path, cell: str, column: str, form: str
) -> None:
    tables(tmp_path, 20)
    with_cell(tmp_path, column, cell)
    with pytest.raises(CorpusError, match=f"the typed column '{column}' does not declare") as caught:
        list(us.read_corpus(tmp_path / "notes.csv", text="note", columns=COLUMNS, private_dir=tmp_path).batches())
    assert form in caught.value.cure
    assert cell not in str(caught.value).replace(f"declares {form}", "")
    (line,) = (tmp_path / "bad_rows.jsonl").read_text().splitlines()
    assert json.loads(line)["kind"] == f"value outside a column's domain: {column}"


def test_a_required_column_is_never_missing_and_a_row_without_it_is_a_bad_row(tmp_path: Path) -> None:
    required = {
        "ward": {"kind": "category", "values": ["A", "B"], "required": True},
        "beds": "1..4",
        "fee": "0.0..90.0/3",
    }
    values = tables(tmp_path, columns=required, **SEEDED)
    result = run(values, records_per_label=100)
    assert None not in result.columns["ward"]
    assert None in result.columns["fee"]
    assert result.release.arrays["columns"].shape == (len(LABELS) + 2 + 5 + 4,)
    again = us.load_release(tmp_path / "out" / "release" / "dp-kps.release")
    assert [column.required for column in again.schema.columns] == [True, False, False]
    assert again.digest == result.release.digest
    required["fee"] = {"kind": "number", "range": [0, 90], "bins": 3, "required": True}
    with pytest.raises(CorpusError, match="the typed column 'fee' does not declare") as caught:
        run(tables(tmp_path, columns=required, output=str(tmp_path / "other"), dataset="other"))
    assert "no cell may be empty" in caught.value.cure


def in_json(folder: Path, values: dict[str, Any], without: Callable[[int], bool]) -> dict[str, Any]:
    """The same settings on JSON lines, with the fee left out of the rows that are said."""
    with (folder / "notes.csv").open(newline="") as stream:
        table = list(csv.DictReader(stream))
    lines = [
        json.dumps({name: cell for name, cell in row.items() if name != "fee" or not without(number)})
        for number, row in enumerate(table)
    ]
    (folder / "notes.jsonl").write_text("\n".join(lines))
    return {**values, "data": str(folder / "notes.jsonl")}


def test_a_key_that_some_lines_lack_is_missing_there_and_one_that_all_lack_is_an_error(tmp_path: Path) -> None:
    values = tables(tmp_path)
    with pytest.raises(CorpusError, match="No row has the column 'fee'"):
        run(in_json(tmp_path, values, lambda _: True))
    assert not runs_charged(values["ledger"])
    run(in_json(tmp_path, values, lambda number: number % 2 == 0))


def test_a_file_of_columns_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "columns.yaml"
    file.write_text("ward: [A, B]")
    config = run_config(tables(tmp_path, columns=f"@{file}"))
    file.unlink()
    assert [column.name for column in config.all_columns] == ["ward"]


def test_a_resumed_run_with_other_columns_names_those_that_changed(tmp_path: Path) -> None:
    run(tables(tmp_path))
    changed = COLUMNS.replace("beds=1..4", "beds=1..5").replace("; night", "")
    with pytest.raises(ResumeError, match=re.escape("(columns: beds, night)")):
        run(tables(tmp_path, columns=changed))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"columns": "ward=A|B; wing=1..5"}, "no column 'wing'"),
        ({"columns": "note=A|B"}, "also the text"),
        ({"columns": "clinician=a|b", "owner": "clinician"}, "also the text"),
        ({"column_pairs": "ward*wing"}, "is not a pair"),
        ({"columns": None, "where": "ward=A"}, "no typed columns"),
        ({"label": "fee", "labels": None}, "no label"),
        ({"label": "ward", "labels": "A,B"}, "declared as well"),
        ({"label": "ward*ward", "labels": None}, "names a column twice"),
        ({"label": "ward*wing", "labels": None}, "names a column that columns does not declare"),
        ({"label": "ward", "labels": None, "labels_from_data": True}, "declared as well|both|Choose one"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_bad_settings_charge_nothing(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    values = tables(tmp_path, 20, **changes)
    with pytest.raises((ConfigError, CorpusError), match=problem):
        run(values)
    assert not runs_charged(values["ledger"])


def test_a_column_that_prompts_cannot_show_is_told_before_the_charge(tmp_path: Path) -> None:
    values = tables(tmp_path, 20, prompt=prompt_file(tmp_path, prompt_columns="wing"))
    with pytest.raises(ConfigError, match="the rows do not have it"):
        run(values)
    assert not runs_charged(values["ledger"])


@pytest.mark.usefixtures("embedder")
def test_canaries_are_planted_among_rows_that_keep_their_cells(tmp_path: Path) -> None:
    rare = [f"rare{chr(97 + a)}{chr(97 + b)}" for a in range(20) for b in range(26)]
    (tmp_path / "rare.txt").write_text("\n".join([*TERMS, *rare]))
    crossed = {"label": "night*ward", "labels": None, "records_per_label": None, "records": 8, "guide": True}
    values = tables(tmp_path, 60, vocabulary=str(tmp_path / "rare.txt"), vocabulary_is_public=True, **crossed)
    assert audit_run(run_config(values), AuditParameters(canaries=50)).canaries == 50
    assert not runs_charged(values["ledger"]), "the copy has a ledger of its own"
    before, after = (
        us.read_corpus(file, text="note", columns=COLUMNS, label="night*ward")
        for file in (tmp_path / "notes.csv", tmp_path / "out" / "private" / "audit" / "corpus.jsonl")
    )
    first, second = (
        [np.concatenate([getattr(batch, part) for batch in corpus.batches()]) for part in ("cells", "labels")]
        for corpus in (before, after)
    )
    count = len(first[1])
    assert 0 < len(second[1]) - count <= 50
    for one, other in zip(first, second, strict=True):
        assert one.tolist() == other[:count].tolist()
    assert not second[0][count:].any(), "canaries have the first value of each column"


def test_another_condition_is_another_run(tmp_path: Path, made: Release) -> None:
    made.save(tmp_path / "f.release")
    options: dict[str, Any] = {"llm": "none", "records": 5, "output": tmp_path / "rows"}
    us.generate(tmp_path / "f.release", where="ward=A", **options)
    with pytest.raises(us.UnderstudyError, match="where"):
        us.generate(tmp_path / "f.release", where="ward=B", **options)


def test_without_the_extra_nothing_is_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.methods.additions.columns.addition.find_spec", lambda name: None)
    values = tables(tmp_path)
    with pytest.raises(ConfigError, match="mbi, which is not installed"):
        run(values)
    assert not runs_charged(values["ledger"])


# -- runs that stop, and files that lie -------------------------------------------------------------------------------


def test_a_run_that_is_stopped_resumes_with_one_charge_and_the_same_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = tables(tmp_path)
    with stops_after_the_charge(monkeypatch):
        run(values)
    kept: dict[str, NDArray[np.float64]] = {}

    def stop(*arguments: Any, **named: Any) -> Distribution:
        kept["singles"] = np.concatenate(arguments[1])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(columns_release, "fit", stop)
        with pytest.raises(KeyboardInterrupt):
            run(values)
    made = run(values).release
    np.testing.assert_array_equal(made.arrays["columns"], kept["singles"])
    assert runs_charged(values["ledger"]) == 1
    with pytest.raises(us.UnderstudyError):
        run(values, columns="ward=A|B")


def with_array(made: Release, name: str, array: NDArray[Any] | None) -> Release:
    rest = {other: each for other, each in made.arrays.items() if other != name}
    return replace(made, arrays=rest if array is None else {**rest, name: array})


def renamed(made: Release, name: str) -> Release:
    first, *rest = made.schema.columns
    changed = copy.copy(first)
    object.__setattr__(changed, "name", name)
    return replace(made, schema=replace(made.schema, columns=(changed, *rest)))


WRONG: dict[str, Callable[[Release], Release]] = {
    "no model": lambda made: with_array(made, "column-logarithms", None),
    "a shorter model": lambda made: with_array(made, "column-logarithms", made.arrays["column-logarithms"][:-1]),
    "a longer model": lambda made: with_array(made, "column-logarithms", np.zeros(10**5)),
    "large logarithms": lambda made: with_array(made, "column-logarithms", made.arrays["column-logarithms"] + 1e9),
    "a pair of one column": lambda made: with_array(made, "column-chosen", made.arrays["column-chosen"] * 0),
    "a pair too many": lambda made: with_array(made, "column-chosen", np.zeros((9, 2), dtype=np.int64)),
    "columns beyond": lambda made: with_array(made, "column-chosen", made.arrays["column-chosen"] + 9),
    "fewer counts": lambda made: with_array(made, "columns", made.arrays["columns"][:-2]),
    "no scores": lambda made: with_array(made, "column-scores", None),
    "other columns": lambda made: replace(made, schema=replace(made.schema, columns=made.schema.columns[:2])),
    "no columns": lambda made: replace(made, schema=replace(made.schema, columns=())),
    "other pairs": lambda made: replace(made, parameters={**made.parameters, "column_pairs": "ward*wing"}),
    "a column called as the text": lambda made: renamed(made, "note"),
    "a column with a line break in its name": lambda made: renamed(made, "a\nb"),
    "a column twice": lambda made: replace(made, schema=replace(made.schema, columns=made.schema.columns[:1] * 5)),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_file_whose_columns_do_not_fit_is_refused(tmp_path: Path, made: Release, what: str) -> None:
    file = tmp_path / "f.release"
    made.save(file)
    assert us.load_release(file).digest == made.digest
    WRONG[what](made).save(file)
    with pytest.raises(ReleaseError):
        us.generate(us.load_release(file), llm="none", records=3)


def test_no_value_of_a_row_is_in_what_may_be_shared(tmp_path: Path, understudy: Command) -> None:
    """A declared value that no row has is public; one that is not declared is in no file and no message."""
    values = tables(tmp_path, 60)
    with_cell(tmp_path, "ward", "zanzibar-wing")
    said = understudy("run", *flags({**values, "max_bad_rows": 1}), code=0)
    assert "zanzibar" not in said.out + said.err
    assert not files_holding(tmp_path / "out", b"zanzibar")
    skipped = json.loads((tmp_path / "out" / "private" / "skipped_rows.json").read_text())
    assert skipped == {"skipped": 1, "kinds": {"value outside a column's domain: ward": 1}}
