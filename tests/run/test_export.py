"""A run's table as chat JSON lines, as a Hugging Face dataset with its card, and as CSV."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from clinic import LABELS, FakeChat, rows, settings, write_csv
from run_fixtures import Command, UseChat, files_holding, run

import understudy as us
from understudy.base.errors import ConfigError
from understudy.corpus import write_table
from understudy.ledger import Ledger
from understudy.models.types import Completion

COLUMNS: dict[str, Any] = {"text": "note", "label": "department", "labels": LABELS}


def writing(folder: Path) -> dict[str, Any]:
    return settings(folder, dataset="visits", records_per_label=3)


@pytest.fixture
def made(tmp_path: Path, finished: Callable[..., dict[str, Any]]) -> us.Result:
    return run(finished(tmp_path, writing))


def test_chats_ask_for_a_text_by_its_type_and_label(tmp_path: Path, made: us.Result) -> None:
    path = us.export(made, to="chat", output=tmp_path / "chat.jsonl", document_type="clinical note", system="Be brief.")
    chats = [json.loads(line)["messages"] for line in path.read_text("utf-8").splitlines()]
    assert len(chats) == 6
    assert chats[0] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Write one clinical note.\ndepartment: cardiology"},
        {"role": "assistant", "content": made.columns["note"][0]},
    ]
    us.export(tmp_path / "out", to="chat", output=tmp_path / "chat.jsonl")
    chats = [json.loads(line)["messages"] for line in path.read_text("utf-8").splitlines()]
    assert [turn["role"] for turn in chats[-1]] == ["user", "assistant"]
    assert chats[-1][0]["content"] == "Write one text.\ndepartment: dermatology"


def test_chats_ask_for_what_the_run_s_prompts_did(tmp_path: Path, method: us.DPKPS, use_chat: UseChat) -> None:
    use_chat(FakeChat())
    made = us.release(rows(), method, us.Budget(3, "1e-6"), dataset="visits", **COLUMNS)
    asked = []
    for document_type in (None, "outpatient note", "reply"):
        named = {} if document_type is None else {"document_type": document_type}
        us.generate(made, llm="fake", records_per_label=1, output=tmp_path / f"more-{document_type}", **named)
        us.export(tmp_path / f"more-{document_type}", to="chat", output=tmp_path / "chat.jsonl")
        (first, *_) = json.loads((tmp_path / "chat.jsonl").read_text("utf-8").splitlines()[0])["messages"]
        asked.append(first["content"].splitlines()[0])
    assert asked == ["Write one document.", "Write one clinical note.", "Write one reply."]


def test_a_dataset_folder_is_read_by_the_library_it_is_for(tmp_path: Path, made: us.Result) -> None:
    datasets = pytest.importorskip("datasets")
    folder = us.export(made, to="huggingface", output=tmp_path / "deep" / "dataset")
    datasets.disable_progress_bars()
    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"), split="train")
    assert loaded.to_dict() == made.columns
    corpus = us.read_corpus(loaded, **COLUMNS)
    assert [text for batch in corpus.batches() for text in batch.texts] == made.columns["note"]


def test_the_card_is_made_of_the_statement(tmp_path: Path, made: us.Result) -> None:
    folder = us.export(made, to="huggingface", output=tmp_path / "dataset")
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*")) == [
        "README.md",
        "data/train-00000-of-00001.parquet",
        "provenance.parquet",
        "statement.json",
    ]
    card = (folder / "README.md").read_text("utf-8")
    header = yaml.safe_load(card.split("---\n")[1])
    assert header["tags"] == ["synthetic", "differential-privacy", "understudy"]
    assert header["task_categories"] == ["text-generation", "text-classification"]
    assert header["size_categories"] == ["n<1K"]
    assert header["configs"][0]["data_files"][0]["path"] == "data/train-00000-of-00001.parquet"
    body = card.split("---\n", 2)[2]
    assert re.findall(r"^# (.+)$", body, re.MULTILINE) == ["Synthetic stand-in for visits"]
    assert "## Privacy statement" in body
    assert "(3, 1e-06)-differential privacy" in body
    assert "| cardiology | 3 |" in body
    assert "NOT PRIVATE" not in card
    assert (folder / "statement.json").read_text("utf-8") == json.dumps(made.statement.to_json(), indent=1)


def test_a_card_takes_over_no_link_or_html_of_a_statement_or_label(tmp_path: Path, made: us.Result) -> None:
    """A viewer would fetch an image, and tell its server who reads the card."""
    image, evil = "![beacon](https://evil.example/x.png)", "a|b <script>x</script>\n# Heading"
    path = tmp_path / "out" / "release" / "statement.json"
    path.write_text(path.read_text("utf-8").replace('"visits"', json.dumps(image)), "utf-8")
    columns = {**made.columns, "department": [evil if number % 2 else image for number in range(6)]}
    write_table(tmp_path / "out" / "release" / "synthetic.parquet", columns)
    card = (us.export(tmp_path / "out", to="huggingface", output=tmp_path / "dataset") / "README.md").read_text("utf-8")
    body = card.split("---\n", 2)[2]
    assert "beacon" in body
    assert "](http" not in body
    assert "![" not in body
    assert "<script" not in card
    assert len(re.findall(r"^# .+$", card, re.MULTILINE)) == 1
    assert "a\\|b &lt;script" in card


def test_metrics_stand_in_the_card_if_they_were_charged_and_not_otherwise(tmp_path: Path, made: us.Result) -> None:
    pytest.importorskip("sklearn")
    measured: dict[str, Any] = {"metrics": "utility", "classifiers": "tf-idf", "embedder": "none", **COLUMNS}
    ledger = str(tmp_path / "ledger.sqlite")

    def card(name: str) -> str:
        return (us.export(made, to="huggingface", output=tmp_path / name) / "README.md").read_text("utf-8")

    us.evaluate(rows(), made, **measured)
    assert "## Metrics" not in card("none")
    with Ledger(ledger) as book:
        book.raise_cap("visits", cap=us.Budget(9, "1e-5"))
    us.evaluate(rows(), made, **measured, charge_metrics=1, insecure_no_noise=True)
    assert yaml.safe_load(card("noiseless").split("---\n")[1])["tags"] == ["synthetic", "not-private", "understudy"]
    assert "**NOT PRIVATE**: computed on the real texts" in card("again")
    us.evaluate(rows(), made, **measured, charge_metrics=2, ledger=ledger, dataset="visits", fresh=True)
    assert "with noise, for (epsilon=2, delta=0)" in card("charged")
    assert "| Accuracy" in card("more")


def test_nothing_private_is_exported(tmp_path: Path, method: us.DPKPS) -> None:
    planted = [{**row, "note": f"{row['note']} Zebra-7731."} for row in rows()]
    made = us.run(
        planted, method, us.Budget(3, "1e-6"), llm="none", records=2, insecure_noise_seed=1, dataset="v",
        output=tmp_path / "out", **COLUMNS,
    )  # fmt: skip
    shutil.rmtree(tmp_path / "out" / "private")  # what was handed on has none
    us.export(made, to="huggingface", output=tmp_path / "dataset")
    us.export(made, to="chat", output=tmp_path / "dataset" / "NOT-PRIVATE.jsonl")
    assert files_holding(tmp_path / "dataset", b"Zebra") == []
    card = (tmp_path / "dataset" / "README.md").read_text("utf-8")
    assert "> **NOT PRIVATE.**" in card
    assert yaml.safe_load(card.split("---\n")[1])["tags"] == ["synthetic", "not-private", "understudy"]


def test_the_stamp_travels_with_every_form(tmp_path: Path, method: us.DPKPS) -> None:
    made = us.release(rows(), method, us.Budget(3, "1e-6"), dataset="v", insecure_no_noise=True, **COLUMNS)
    us.generate(made, llm="none", records=2, output=tmp_path / "out")
    with pytest.raises(ConfigError, match="NOT PRIVATE"):
        us.export(tmp_path / "out", to="chat", output=tmp_path / "chat.jsonl")
    assert not (tmp_path / "chat.jsonl").exists()
    us.export(tmp_path / "out", to="chat", output=tmp_path / "Not-private.jsonl")
    table = us.export(tmp_path / "out", to="csv", output=tmp_path / "t.csv").read_text("utf-8")
    assert table.count("NOT PRIVATE") == 2
    table = us.export(tmp_path / "out", to="csv", output=tmp_path / "not-private.csv").read_text("utf-8")
    assert table.splitlines()[0] == "note,department"


def test_csv_holds_the_table_with_formulas_escaped(tmp_path: Path, made: us.Result) -> None:
    columns = {**made.columns, "note": ["=1+1", *made.columns["note"][1:]]}
    write_table(tmp_path / "out" / "release" / "synthetic.parquet", columns)
    us.export(made, to="csv", output=tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert list(read[0]) == ["note", "department"]
    assert read[0]["note"] == "'=1+1"
    assert [row["note"] for row in read[1:]] == columns["note"][1:]


def test_typed_columns_keep_their_types_and_are_asked_for(tmp_path: Path, method: us.DPKPS) -> None:
    pytest.importorskip("mbi")
    table = [{**row, "stars": number % 5 + 1, "day": f"2024-0{number % 3 + 1}-11"} for number, row in enumerate(rows())]
    made = us.run(
        table,
        method,
        us.Budget(9, "1e-6"),
        llm="none",
        records=4,
        insecure_noise_seed=1,
        dataset="v",
        columns="stars=1..5; day=2024-01-01..2024-12-31/12",
        output=tmp_path / "out",
        **COLUMNS,
    )
    folder = us.export(made, to="huggingface", output=tmp_path / "dataset")
    schema = pq.read_schema(folder / "data" / "train-00000-of-00001.parquet")
    assert schema.field("stars").type == pa.int64()
    assert schema.field("day").type == pa.date32()
    path = us.export(made, to="chat", output=tmp_path / "not-private-chat.jsonl")
    asked = json.loads(path.read_text("utf-8").splitlines()[0])["messages"][0]["content"]
    assert re.fullmatch(r"Write one text\.\ndepartment: cardiology\nstars: \d\nday: 2024-\d\d-\d\d", asked)
    assert "`stars`: a typed column (integer)" in (folder / "README.md").read_text("utf-8")


@pytest.mark.usefixtures("embedder")
def test_a_folder_of_generate_has_its_columns_without_a_release(tmp_path: Path, method: us.DPKPS) -> None:
    pytest.importorskip("mbi")
    table = [{**row, "stars": number % 5 + 1} for number, row in enumerate(rows())]
    columns = {"dataset": "v", "columns": "stars=1..5", **COLUMNS}
    made = us.release(table, method, us.Budget(9, "1e-6"), insecure_noise_seed=1, output=tmp_path / "out", **columns)
    more = us.generate(made, llm="none", records=60, output=tmp_path / "more")
    assert not list((tmp_path / "more" / "release").glob("*.release"))
    exported = pq.read_table(us.export(more, to="parquet", output=tmp_path / "not-private.parquet"))
    assert exported.to_pydict() == more.to_arrow().to_pydict()
    us.report(tmp_path / "more")
    assert "Values of the columns" in (tmp_path / "more" / "release" / "report.html").read_text("utf-8")
    write_csv(tmp_path / "real.csv", table, list(table[0]))
    found = us.evaluate(str(tmp_path / "real.csv"), tmp_path / "more", metrics=["fidelity"])
    assert "stars" in {value.settings.get("column") for value in found.values}


SAID = [
    ("customer", "The router drops the signal."),
    ("agent", "Since when?"),
    ("agent", "Tell me."),
    ("customer", "Since Monday."),
]


def with_dialogues(
    folder: Path, method: us.DPKPS, use_chat: UseChat, said: Sequence[tuple[str, str]] = SAID
) -> us.Result:
    """A result whose texts are this dialogue."""
    turns = [{"role": role, "content": content} for role, content in said]
    transcript = "\n".join(f"{role}: {content}" for role, content in said)
    use_chat(FakeChat(lambda _request: Completion(transcript, "stop", 9, 9)))
    return us.run(
        [{"talk": turns} for _ in range(9)],
        method,
        us.Budget(3, "1e-6"),
        records=2,
        insecure_noise_seed=1,
        dataset="v",
        text="talk",
        roles=tuple(dict(said)),
        output=folder / "out",
    )


def test_a_dialogue_is_exported_as_a_chat_and_as_turns(tmp_path: Path, method: us.DPKPS, use_chat: UseChat) -> None:
    made = with_dialogues(tmp_path, method, use_chat)
    path = us.export(made, to="chat", output=tmp_path / "not-private.jsonl", system="Help.")
    assert json.loads(path.read_text("utf-8").splitlines()[0])["messages"] == [
        {"role": "system", "content": "Help."},
        {"role": "user", "content": SAID[0][1]},
        {"role": "assistant", "content": "Since when?\nTell me."},
        {"role": "user", "content": SAID[3][1]},
    ]
    folder = us.export(made, to="huggingface", output=tmp_path / "dataset")
    table = pq.read_table(folder / "data" / "train-00000-of-00001.parquet")
    assert table.to_pydict() == made.to_arrow().to_pydict()
    assert table.column("talk").to_pylist()[0][1] == {"role": "agent", "content": "Since when?"}
    assert "- `talk`: turns" in (folder / "README.md").read_text("utf-8")


def test_a_chat_has_one_system_message_and_the_role_assistant_is_the_assistant(
    tmp_path: Path, method: us.DPKPS, use_chat: UseChat
) -> None:
    said = [("system", "Be curt."), ("assistant", "Hello?"), ("caller", "No signal.")]
    made = with_dialogues(tmp_path, method, use_chat, said)
    opens = {}
    for system in (None, "Help."):
        path = us.export(made, to="chat", output=tmp_path / "not-private.jsonl", system=system)
        first, *others = json.loads(path.read_text("utf-8").splitlines()[0])["messages"]
        assert [turn["role"] for turn in others] == ["assistant", "user"]
        opens[system] = (first["role"], first["content"])
    assert opens == {None: ("system", "Be curt."), "Help.": ("system", "Help.")}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("out --to chat --output chat.json", "End its name in .jsonl"),
        ("out --to csv --output t.xlsx", "cannot be written as 't.xlsx'"),
        ("out --to csv --output s3://bucket/t.csv", "'s3://bucket/t.csv' is an address"),
        ("out --to huggingface --output hf://me/data", "is an address"),
        ("out --to csv --output nowhere/t.csv", "'t.csv' cannot be written"),
        ("out --to huggingface --output out", "Name a new folder"),
        ("out --to huggingface --output terms.txt", "Name a new folder"),
        ("out --to csv --output t.csv --document-type note", "Only chats have"),
        ("nothing --to csv --output t.csv", "is not the folder of a run"),
        ("terms.txt --to csv --output t.csv", "is not the folder of a run"),
        ("out --to excel --output t.csv", "excel"),
    ],
)
def test_what_cannot_be_exported_is_refused_with_the_cure(
    tmp_path: Path, made: us.Result, understudy: Command, monkeypatch: pytest.MonkeyPatch, words: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = understudy("export", *words.split())
    assert said.code not in (0, 70)
    assert problem in said.err
    assert not (tmp_path / "t.csv").exists()


def test_the_command_exports_and_prints_where(tmp_path: Path, made: us.Result, understudy: Command) -> None:
    said = understudy("export", str(tmp_path / "out"), "--to", "csv", "--output", str(tmp_path / "t.csv"), "--json")
    assert json.loads(said.out) == {"to": "csv", "output": str(tmp_path / "t.csv")}
    with pytest.raises(us.UnderstudyError, match=r"no output folder.*output=\.\.\."):
        us.export(replace(made, folder=None), to="csv", output=tmp_path / "u.csv")


def test_a_folder_without_a_table_and_a_damaged_one_are_said_to_be_such(tmp_path: Path, made: us.Result) -> None:
    schema, table = (tmp_path / "out" / "release" / name for name in ("schema.json", "synthetic.parquet"))
    good = schema.read_bytes()
    for content in ("", "{}", '{"text": 5}', "[]", "\ud800"):
        schema.write_bytes(content.encode("utf-8", "surrogatepass"))
        with pytest.raises(us.UnderstudyError, match=r"'schema.json'.*cannot be read"):
            us.export(made, to="csv", output=tmp_path / "t.csv")
    schema.write_bytes(good)
    table.write_bytes(b"PAR1")
    with pytest.raises(us.UnderstudyError, match=r"cannot be read.*us\.generate"):
        us.export(made, to="csv", output=tmp_path / "t.csv")
    table.unlink()
    table.with_suffix(".csv").unlink()
    with pytest.raises(us.UnderstudyError, match="does not contain a synthetic table"):
        us.export(made, to="csv", output=tmp_path / "t.csv")
