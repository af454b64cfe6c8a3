"""Texts that have parts where a local model reads them: several columns of one row, acts and tool calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from clinic import FakeChat, settings, write_csv
from local_fixtures import make_llama
from run_fixtures import UseChat, files_holding, little_work_of_seq_pate, release, runs_charged
from script_model import END, ScriptModel

import understudy as us
from understudy.methods.shared.decoding.tuned import TunedModel
from understudy.models.types import Completion

PLANT = "zqxvplanted"
FIELDS = ("subject", "message", "answer")
SAID = "subject: Slow\nmessage: It is slow.\nanswer:"
PROMPT = """
document_type: note
user: "-"
prediction:
  completion: {before: "Notes.", block: "T:{text}", cue: "T:"}
"""


@pytest.fixture(autouse=True)
def little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    little_work_of_seq_pate(monkeypatch)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("llama"), window=1024)


def tickets(folder: Path, method: str, **changes: Any) -> dict[str, Any]:
    """Settings of a run on 24 tickets of six customers; every third ticket has no answer."""
    made = [
        {
            **{"product": ("router", "phone")[number % 2], "subject": f"{PLANT} {number}", "ward": "AB"[number % 2]},
            **{"message": "The router drops the signal.", "customer": f"{PLANT}{number % 6}"},
            "answer": "" if number % 3 == 0 else "We send a new one.",
        }
        for number in range(24)
    ]
    write_csv(folder / "tickets.csv", made, [*made[0]])
    (folder / "prompt.yaml").write_text(PROMPT)
    own = {
        **{"method": method, "data": str(folder / "tickets.csv"), "text": ",".join(FIELDS), "columns": "ward=A|B"},
        **{"label": "product", "labels": "router,phone", "owner": "customer", "max_records_per_owner": 2},
        **{"epsilon": "60", "prompt": str(folder / "prompt.yaml"), "private_text_tokens": 120},
        "max_tokens": len(SAID) + 1,
    }
    return settings(folder, **{**dict.fromkeys(NOT_USED), **own, **changes})


NOT_USED = ("vocabulary", "vocabulary_is_public", "top_terms", "length", "llm", "records_per_label")


TUNED: dict[str, Any] = {"lora_rank": 4}
METHODS: dict[str, dict[str, Any]] = {
    "dp-finetune": {**TUNED, "declared_records": 6, "sampling_rate": 0.5, "steps": 2},
    "seq-pate": {**TUNED, "declared_records": 6, "teachers": 4, "queries": 4, "candidates": 8},
    "few-shot": {
        **{"sampling_rate": 0.5, "subsets": 2, "examples_per_subset": 1, "tokens": 12},
        **{"exemplar_tokens": 6, "exemplars": 1, "candidates": 20},
    },
    "private-prediction": {"batches": 1, "batch_size": 5, "tokens_per_batch": 2 * len(SAID) + 4},
}

GENERATED: dict[str, dict[str, Any]] = {"few-shot": {"llm": "fake", "records_per_label": 4}, "private-prediction": {}}


def spelled(text: bytes, drawn: bytes) -> int:
    """The ticket letter by letter, once behind the row; a private text that is no ticket behind its row says "!"."""
    _, newline, answer = drawn.lstrip().partition(b"\n")
    if not newline or (text and not text.strip().startswith((b"ward: A\nsubject: ", b"ward: B\nsubject: "))):
        return ord("!")
    said = SAID.encode()
    return said[len(answer)] if said.startswith(answer) and len(answer) < len(said) else END


@pytest.mark.parametrize("method", METHODS)
def test_tickets_of_owners_are_learnt_and_written_in_their_parts_with_their_columns(
    tmp_path: Path, llama: Path, monkeypatch: pytest.MonkeyPatch, use_chat: UseChat, learnt: list[str], method: str
) -> None:
    def says(self: TunedModel, keys: Sequence[Any], **_: Any) -> Iterator[Completion]:
        yield from (Completion(f"\n{SAID}", "stop") for _ in keys)

    chat = use_chat(FakeChat(lambda _request: Completion(f"Of course.\n\n{SAID}", "stop", 9, 9)))
    if method == "private-prediction":
        monkeypatch.setattr("understudy.models.catalog.load_causal", lambda *_, **__: ScriptModel(spelled))
    values = tickets(tmp_path, method, private_model=f"hf:{llama}", **METHODS[method])
    released = release(values)
    assert not chat.asked, "a release asks no language model"
    monkeypatch.setattr(TunedModel, "sample", says)
    options = GENERATED.get(method, {"private_model": f"hf:{llama}", "records_per_label": 4})
    made = us.generate(released, output=str(tmp_path / "more"), **options)

    table = pq.read_table(tmp_path / "more" / "release" / "synthetic.parquet").to_pylist()
    assert len(table) >= 2
    assert {(row["subject"], row["message"], row["answer"]) for row in table} == {("Slow", "It is slow.", None)}
    assert {row["product"] for row in table} == {"router", "phone"}
    assert all(row["ward"] in ("A", "B", None) for row in table)
    assert released.schema.form.fields == FIELDS
    assert made.statement.unit.kind == "owner"
    assert runs_charged(tmp_path / "ledger.sqlite", "tickets") == 1
    assert not [*files_holding(tmp_path / "out", PLANT.encode()), *files_holding(tmp_path / "more", PLANT.encode())]
    assert not [request for request in chat.asked if any(PLANT in each.content for each in request.messages)]
    if method == "few-shot":
        asked = [request.messages[-1].content.split("\n\n")[0] for request in chat.asked]
        wards = [f"Details: ward: {row['ward']}." for row in table if row["ward"]]
        assert [row for row in asked if row.startswith("Details: ")] == wards
    of_tickets = [text for text in learnt if PLANT in text]
    if method == "dp-finetune":
        assert of_tickets
        assert all(text.startswith(("ward: A\nsubject: ", "ward: B\nsubject: ")) for text in of_tickets)
    if method == "seq-pate":
        assert of_tickets
        assert all(text.startswith("subject: ") for text in of_tickets)
    if method == "private-prediction":
        columns = {"text": FIELDS, "label": "product", "labels": ["router", "phone"], "columns": "ward=A|B"}
        found = us.evaluate(tmp_path / "tickets.csv", tmp_path / "more", **columns, embedder="none", metrics="fidelity")
        assert found.values


# -- acts, and calls of tools: learnt with their turns, and written ----------------------------------------------------


SPOKEN = 'user (ask): Open?\nassistant calls search: {"day": 3}\nsearch returns: no\nassistant: No.'


def talks(folder: Path, method: str, **changes: Any) -> dict[str, Any]:
    """Settings of a run on 24 dialogues, each with an act and a call."""
    function = {"name": "search", "arguments": {"who": PLANT}}
    turns = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": PLANT, "function": function}]},
        {"role": "tool", "tool_call_id": PLANT, "content": f"{PLANT}!"},
    ]
    asked = [{"role": "user", "content": f"{PLANT} {number}?", "act": "ask"} for number in range(24)]
    made = [{"product": ("router", "phone")[place % 2], "messages": [each, *turns]} for place, each in enumerate(asked)]
    (folder / "talks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    (folder / "prompt.yaml").write_text(PROMPT)
    own = {
        **{"method": method, "data": str(folder / "talks.jsonl"), "text": "messages", "roles": "user,assistant"},
        **{"acts": "ask,thank", "tools": "search", "columns": "turns.ask=0..2; calls.search=0..2"},
        **{"label": "product", "labels": "router,phone", "epsilon": "60", "prompt": str(folder / "prompt.yaml")},
        **{"private_text_tokens": 200, "max_tokens": len(SPOKEN) + 1},
    }
    return settings(folder, **{**dict.fromkeys(NOT_USED), **own, **METHODS[method], **changes})


def spoken(_text: bytes, drawn: bytes) -> int:
    """The dialogue letter by letter, behind its row."""
    _, newline, answer = drawn.lstrip().partition(b"\n")
    if not newline:
        return ord("!")
    said = SPOKEN.encode()
    return said[len(answer)] if said.startswith(answer) and len(answer) < len(said) else END


@pytest.mark.parametrize("method", ["dp-finetune", "private-prediction"])
def test_acts_and_calls_are_learnt_with_their_turns_and_written(
    tmp_path: Path, llama: Path, monkeypatch: pytest.MonkeyPatch, learnt: list[str], method: str
) -> None:
    def says(self: TunedModel, keys: Sequence[Any], **_: Any) -> Iterator[Completion]:
        yield from (Completion(f"\n{SPOKEN if place % 2 else SPOKEN[:-30]}", "stop") for place, _ in enumerate(keys))

    model = {"private_model": f"hf:{llama}"}
    changes: dict[str, Any] = dict(model)
    if method == "private-prediction":
        monkeypatch.setattr("understudy.models.catalog.load_causal", lambda *_, **__: ScriptModel(spoken))
        changes["tokens_per_batch"] = 2 * len(SPOKEN) + 4
    released = release(talks(tmp_path, method, **changes))
    monkeypatch.setattr(TunedModel, "sample", says)
    options = {} if method == "private-prediction" else {**model, "records_per_label": 4}
    made = us.generate(released, output=str(tmp_path / "more"), **options)

    assert {record.text for record in made.records} == {SPOKEN}, "what breaks off in a call is no transcript"
    call = {"name": "search", "arguments": '{"day": 3}'}
    answered = {"tool_calls": [{"id": "call_1", "type": "function", "function": call}]}
    assert made.columns["messages"][0] == [
        {"role": "user", "content": "Open?", "act": "ask"},
        {"role": "assistant", "content": None, **answered},
        {"role": "tool", "content": "no", "tool_call_id": "call_1", "name": "search"},
        {"role": "assistant", "content": "No."},
    ]
    assert set(made.provenance["turns.ask"]) == set(made.provenance["calls.search"]) == {1}
    assert runs_charged(tmp_path / "ledger.sqlite", "talks") == 1
    assert not [*files_holding(tmp_path / "out", PLANT.encode()), *files_holding(tmp_path / "more", PLANT.encode())]
    if method == "dp-finetune":
        row = "turns.ask: 1; calls.search: 1\n"
        said = f'assistant calls search: {{"who": "{PLANT}"}}\nsearch returns: {PLANT}!'
        assert [text for text in learnt if PLANT in text]
        assert all(text.startswith(f"{row}user (ask): {PLANT} ") for text in learnt if PLANT in text)
        assert all(text.endswith(said) for text in learnt if PLANT in text)
