"""The Python face: the verbs, their typed keywords, what they return."""

from __future__ import annotations

import asyncio
import csv
import itertools
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from clinic import LABELS, TERMS, FakeChat, rows, settings, write_csv
from evolution_fixtures import evolving
from run_fixtures import UseChat, runs_charged
from secret_fixtures import protecting

import understudy as us
from understudy.ledger import Ledger
from understudy.models.types import ChatRequest, Completion
from understudy.run.settings import run_config
from understudy.text.prompts.writer import ANSWERS, SEEDS

BUDGET = us.Budget(3, "1e-6")


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    return str(tmp_path / "ledger.sqlite")


def in_memory(count: int = 40) -> us.Corpus:
    return us.read_corpus(rows(count), text="note", label="department", labels=LABELS)


def test_the_main_job_in_five_lines(tmp_path: Path, method: us.DPKPS, ledger: str) -> None:
    corpus = us.read_corpus(write_csv(tmp_path / "notes.csv", rows()), text="note", label="department", labels=LABELS)
    result = us.run(corpus, method, BUDGET, llm="none", records_per_label=4, ledger=ledger)
    assert list(result.columns) == ["note", "department"]
    assert result.columns["department"] == ["cardiology"] * 4 + ["dermatology"] * 4
    assert all(set(text.split(", ")) <= set(TERMS) for text in result.columns["note"])
    assert result.to_arrow().num_rows == 8
    assert (result.folder, result.missing) == (None, 0)
    assert result.statement.dataset == "notes"
    assert runs_charged(ledger, "notes") == 1
    assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == []


def test_rows_in_memory_need_a_name_for_the_ledger(tmp_path: Path, method: us.DPKPS, ledger: str) -> None:
    with pytest.raises(us.UnderstudyError, match="ledger needs a name"):
        us.run(in_memory(), method, BUDGET, llm="none", records_per_label=1, ledger=ledger)
    result = us.run(in_memory(), method, BUDGET, llm="none", records=3, ledger=ledger, dataset="visits")
    assert len(result.records) == 3
    assert runs_charged(ledger, "visits") == 1


def test_a_run_works_inside_a_running_event_loop(method: us.DPKPS, ledger: str, use_chat: UseChat) -> None:
    chat = use_chat(FakeChat())

    async def notebook() -> us.Result:
        return us.run(in_memory(), method, BUDGET, records_per_label=3, ledger=ledger, dataset="visits")

    result = asyncio.run(notebook())
    assert (len(result.records), len(chat.asked)) == (6, 6 * SEEDS * ANSWERS)


def test_of_more_texts_than_are_wanted_those_of_each_label_that_make_most_sense_are_kept(
    method: us.DPKPS, ledger: str, use_chat: UseChat
) -> None:
    count = itertools.count()

    def answer(request: ChatRequest) -> Completion:
        number = next(count) // ANSWERS
        words = f"{number} {' '.join(request.phrases)} was seen on the {number} th of the month."
        return Completion(words, "stop", sense=-3.0 if number % 3 == 0 else 3.0)

    use_chat(FakeChat(answer))
    result = us.run(in_memory(), method, BUDGET, records_per_label=3, ledger=ledger, dataset="visits", accept_all=True)
    assert Counter(record.label for record in result.records) == {0: 3, 1: 3}
    assert all(record.provenance["sense"] > 0.9 for record in result.records)
    assert len({record.text for record in result.records}) == 6


def test_a_release_is_written_loaded_and_generated_from(tmp_path: Path, method: us.DPKPS, ledger: str) -> None:
    made = us.run(
        in_memory(), method, BUDGET, llm="none", records=4, ledger=ledger, dataset="v", output=tmp_path / "out"
    )
    assert made.folder is not None
    loaded = us.load_release(made.folder.release_file("dp-kps"))
    assert loaded.digest == made.release.digest
    assert loaded.statement == made.release.statement == replace(made.statement, table="")
    assert loaded.arrays.keys() == made.release.arrays.keys()
    assert all(np.array_equal(loaded.arrays[name], array) for name, array in made.release.arrays.items())
    more = us.generate(loaded, llm="none", records_per_label=50, length=5, contrast=0, output=tmp_path / "more")
    assert len(more.records) == 100
    assert {len(record.provenance["phrases"]) for record in more.records} <= {1, 2, 3, 4, 5}
    again = us.generate(loaded, llm="none", records_per_label=50, length=5, contrast=0)
    other = us.generate(loaded, llm="none", records_per_label=50, length=5, contrast=0, seed=1)
    assert more.columns == again.columns != other.columns


def test_a_plan_needs_no_data_and_touches_no_ledger(tmp_path: Path, method: us.DPKPS) -> None:
    made = us.plan(
        method,
        BUDGET,
        labels=list(LABELS),
        label="department",
        expected_records=1000,
        records_per_label=10,
        llm="openai:test",
        price_input=1.0,
        price_output=2.0,
        samples=3,
    )
    assert [charge.name for charge in made.plan.charges] == ["vocabulary", "density"]
    assert made.epsilon == pytest.approx(3, abs=1e-6)
    assert made.calls["calls"] == 60
    assert made.calls["money"] > 0
    assert json.loads(json.dumps(made.to_json()))["generation"]["entries"][0]["value"] == 20
    assert not list(tmp_path.glob("*.sqlite"))


def test_owners_are_protected_as_a_whole(tmp_path: Path, method: us.DPKPS, ledger: str) -> None:
    corpus = us.read_corpus(rows(), text="note", label="department", labels=LABELS, owner="clinician")
    options: dict[str, Any] = {"llm": "none", "records": 2, "ledger": ledger, "dataset": "v"}
    result = us.run(corpus, method, BUDGET, max_records_per_owner=2, **options)
    assert result.statement.unit.to_json() == {"kind": "owner", "max_records": 2, "column": "clinician"}
    assert (
        "each owner (column 'clinician') as a whole: all records together, of which at most 2 are used"
        in result.statement.to_markdown()
    )
    with pytest.raises(us.UnderstudyError, match=r"protects one owner \(column 'clinician'\), but this run one record"):
        us.run(in_memory(), method, BUDGET, **options)
    with pytest.raises(us.UnderstudyError, match="The corpus has no owner column"):
        us.run(in_memory(), method, BUDGET, **{**options, "dataset": "w"}, owner="clinician")
    assert runs_charged(ledger, "v") == 1


def test_without_labels_there_is_one_table_of_n_records(tmp_path: Path, method: us.DPKPS, ledger: str) -> None:
    corpus = us.read_corpus(rows(), text="note")
    result = us.run(corpus, method, BUDGET, llm="none", records=7, ledger=ledger, dataset="v")
    assert list(result.columns) == ["note"]
    assert len(result.records) == 7


@pytest.mark.parametrize("output_format", ["parquet", "csv", "jsonl"])
def test_labels_keep_their_type_everywhere(tmp_path: Path, method: us.DPKPS, ledger: str, output_format: str) -> None:
    numbered = [{"note": row["note"], "code": LABELS.index(row["department"])} for row in rows()]
    corpus = us.read_corpus(numbered, text="note", label="code", labels=[0, 1])
    result = us.run(corpus, method, BUDGET, llm="none", records=3, ledger=ledger, dataset="v", output=tmp_path / "out")
    assert result.columns["code"] == [0, 0, 1]
    path = tmp_path / f"table.{output_format}"
    result.save(path)
    if output_format == "parquet":
        table = pq.read_table(path)
        assert str(table.schema.field("code").type) == "int64"
        columns = table.to_pydict()
    elif output_format == "jsonl":
        read = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        columns = {name: [row[name] for row in read] for name in read[0]}
    else:
        with path.open(encoding="utf-8", newline="") as file:
            read = list(csv.DictReader(file))
        columns = {name: [row[name] for row in read] for name in read[0]}
        columns["code"] = [int(value) for value in columns["code"]]
    assert columns == result.columns
    assert us.load_release(tmp_path / "out" / "release" / "dp-kps.release").schema.labels == (0, 1)


def test_a_label_column_may_have_any_name(tmp_path: Path, method: us.DPKPS) -> None:
    for number, name in enumerate(("label", "text", "provenance")):
        table = [{"note": row["note"], name: row["department"]} for row in rows(40 + number)]
        corpus = us.read_corpus(table, text="note", label=name, labels=LABELS)
        ledger = str(tmp_path / f"{name}.sqlite")  # which does not know the other tables, much like this one
        result = us.run(corpus, method, BUDGET, llm="none", records=2, ledger=ledger, dataset="v")
        assert list(result.columns) == ["note", name]
        assert result.columns[name] == ["cardiology", "dermatology"]


def test_several_columns_make_a_record(tmp_path: Path, method: us.DPKPS, ledger: str) -> None:
    corpus = us.read_corpus(rows(), record_columns=["note", "clinician"], label="department", labels=LABELS)
    result = us.run(corpus, method, BUDGET, llm="none", records=2, ledger=ledger, dataset="v")
    assert result.release.schema.record_columns == ("note", "clinician")
    assert list(result.columns) == ["text", "department"]


def test_labels_read_from_the_data_are_said_not_to_be_protected(tmp_path: Path, method: us.DPKPS, ledger: str) -> None:
    corpus = us.read_corpus(rows(), text="note", label="department", labels_from_data=True)
    result = us.run(corpus, method, BUDGET, llm="none", records_per_label=1, ledger=ledger, dataset="v")
    assert result.columns["department"] == list(LABELS)
    assert "**read from the data: not protected**" in result.statement.to_markdown()


def test_insecure_noise_is_stamped_and_needs_no_ledger(tmp_path: Path, method: us.DPKPS, ledger: str) -> None:
    options: dict[str, Any] = {"llm": "none", "records": 4, "ledger": ledger, "dataset": "v"}
    seeded = [us.run(in_memory(), method, BUDGET, **options, insecure_noise_seed=3) for _ in range(2)]
    assert seeded[0].columns == seeded[1].columns
    silent = us.run(in_memory(), method, BUDGET, **options, insecure_no_noise=True)
    for result in (*seeded, silent):
        assert "**NOT PRIVATE.**" in result.statement.to_markdown()
        assert result.statement.to_json()["stamp"] == "NOT PRIVATE"
    assert runs_charged(ledger, "v") == 0
    assert not Path(ledger).exists()


def test_a_run_beyond_the_cap_ends_before_a_row_is_read(tmp_path: Path, method: us.DPKPS, ledger: str) -> None:
    options: dict[str, Any] = {"llm": "none", "records": 4, "ledger": ledger, "dataset": "v"}
    us.run(in_memory(), method, BUDGET, **options)
    corpus = in_memory()
    corpus._rows = _never_read
    with pytest.raises(us.UnderstudyError, match="no epsilon remains"):
        us.run(corpus, method, BUDGET, **options)
    with Ledger(ledger) as book:
        book.raise_cap("v", cap=us.Budget(6, "1e-5"))
    us.run(in_memory(), method, BUDGET, **options)
    assert runs_charged(ledger, "v") == 2


def _never_read() -> Any:
    raise AssertionError("a private row was read")


SMALL: dict[str, list[dict[str, str]]] = {
    "no record": [],
    "one record": rows(1),
    "a label without a record": [row for row in rows() if row["department"] == LABELS[0]],
    "duplicates": rows(2) * 20,
    "no term in any text": [{**row, "note": "Nothing."} for row in rows()],
}


@pytest.mark.parametrize("what", SMALL)
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_a_poor_corpus_runs_to_the_end(tmp_path: Path, method: us.DPKPS, ledger: str, what: str, noise: str) -> None:
    path = write_csv(tmp_path / "notes.csv", SMALL[what])
    corpus = us.read_corpus(path, text="note", label="department", labels=LABELS)
    chosen = us.DPKPS(**{**method.dump(), "noise": noise})
    result = us.run(corpus, chosen, BUDGET, llm="none", records_per_label=3, ledger=ledger)
    assert result.columns["department"] == [LABELS[0]] * 3 + [LABELS[1]] * 3
    assert all(1 <= len(text.split(", ")) <= 3 for text in result.columns["note"])
    assert {name: array.shape for name, array in result.release.arrays.items()} == {
        "counts": (10,),
        "real": (10,),
        "density": (2, 10),
    }


def test_a_corpus_too_small_for_its_budget_is_said_to_be_one(method: us.DPKPS) -> None:
    options: dict[str, Any] = {"llm": "none", "records": 2, "dataset": "v", "insecure_noise_seed": 1}
    with pytest.warns(us.UnderstudyWarning, match="Noise: the result is mostly chance"):
        small = us.run(in_memory(1), method, us.Budget("0.1", "1e-6"), **options)
    assert small.release.statement.usefulness.startswith("Noise")
    large = us.run(in_memory(2000), method, BUDGET, **options)
    assert large.release.statement.usefulness.startswith("Good")
    exact = us.run(in_memory(1), method, BUDGET, **{**options, "insecure_noise_seed": None}, insecure_no_noise=True)
    assert exact.release.statement.verdict is None


def test_labels_read_from_an_empty_table_are_null(tmp_path: Path, method: us.DPKPS, ledger: str) -> None:
    path = write_csv(tmp_path / "notes.csv", [])
    corpus = us.read_corpus(path, text="note", label="department", labels_from_data=True)
    result = us.run(corpus, method, BUDGET, llm="none", records=2, ledger=ledger, output=tmp_path / "out")
    assert result.columns["department"] == [None, None]


def test_fewer_records_than_labels(tmp_path: Path, method: us.DPKPS, ledger: str) -> None:
    result = us.run(in_memory(), method, BUDGET, llm="none", records=1, ledger=ledger, dataset="v")
    assert result.columns["department"] == ["cardiology"]


def test_yaml_flags_and_python_are_one_configuration(tmp_path: Path, method: us.DPKPS) -> None:
    from understudy.api import corpus_config
    from understudy.cli.options import given

    flags = settings(tmp_path)
    (tmp_path / "run.yaml").write_text(
        f"data: {tmp_path / 'notes.csv'}\ntext: note\nlabel: department\nlabels: [cardiology, dermatology]\n"
        f"epsilon: 3.0\ndelta: 1e-6\nvocabulary: {tmp_path / 'terms.txt'}\nvocabulary-is-public: yes\n"
        "top_terms: 10\nlength: 3\nllm: none\nrecords-per-label: 4\n",
        "utf-8",
    )
    corpus = us.read_corpus(tmp_path / "notes.csv", text="note", label="department", labels=LABELS)
    ways = [
        run_config(flags).lasting,
        run_config(given({}, str(tmp_path / "run.yaml"))).lasting,
        corpus_config(corpus, method, BUDGET, {"llm": "none", "records_per_label": 4}).lasting,
    ]
    assert ways[0] == ways[1] == ways[2]
    assert ways[0]["content of files"].keys() == {"vocabulary"}
    assert run_config({**flags, "labels": "@labels.txt"}).labels == "@labels.txt"


@pytest.mark.parametrize("made", [evolving, protecting])
def test_a_method_of_its_own_settings_is_configured_by_yaml_flags_and_python_alike(tmp_path: Path, made: Any) -> None:
    from understudy.api import corpus_config
    from understudy.cli.options import given
    from understudy.methods.registry import make_method

    flags = made(tmp_path)
    document = {name.replace("_", "-"): value for name, value in flags.items()}
    (tmp_path / "run.yaml").write_text(json.dumps(document), "utf-8")
    config = run_config(flags)
    assert run_config(given({}, str(tmp_path / "run.yaml"))).lasting == config.lasting
    corpus = us.read_corpus(tmp_path / "notes.csv", text="note", label="department", labels=LABELS)
    own = make_method(config.method, config.method_parameters)
    others = ("llm", "records_per_label", "secret_detectors", "max_records_per_secret")
    said = {name: flags[name] for name in others if name in flags}
    assert corpus_config(corpus, own, config.budget, said).lasting == config.lasting


def test_the_names_of_the_package_are_all_there() -> None:
    for name in dir(us):
        assert getattr(us, name) is not None
    with pytest.raises(AttributeError):
        us.nothing  # noqa: B018


def test_a_verb_wins_over_the_package_of_its_name() -> None:
    code = "import understudy.run, understudy.release, understudy.evaluate, understudy.report, understudy as us; "
    code += "from understudy.run.generating import Result; "
    code += "assert all(map(callable, (us.run, us.release, us.evaluate, us.report)))"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.usefixtures("embedder")
def test_a_report_is_made_from_python(tmp_path: Path, method: us.DPKPS, ledger: str) -> None:
    options: dict[str, Any] = {"llm": "none", "records": 8, "ledger": ledger, "dataset": "v"}
    us.run(in_memory(), method, BUDGET, **options, output=tmp_path / "out")
    made = us.evaluate(in_memory(), tmp_path / "out", metrics="utility", classifiers="tf-idf", max_texts=20)
    assert isinstance(made, us.Evaluation)
    (paths,) = us.report(tmp_path / "out")
    assert isinstance(paths, us.ReportPaths)
    assert paths.shareable.is_file()
    assert paths.internal is not None
    with pytest.raises(us.UnderstudyError, match="statement"):
        us.report(tmp_path)


def test_a_mechanism_and_a_run_are_audited_from_python(tmp_path: Path, method: us.DPKPS) -> None:
    done = us.audit_mechanism("label-counts", us.Budget(4, "1e-6"), runs=100, confidence=0.999999)
    assert isinstance(done, us.MechanismAudit)
    with pytest.raises(us.UnderstudyError, match="'all' is not one mechanism"):
        us.audit_mechanism("all", us.Budget(4, "1e-6"))
    with pytest.raises(us.UnderstudyError, match="canaries"):
        us.audit(in_memory(), method, BUDGET, llm="none", records=4, output=tmp_path / "out", canaries=3)
