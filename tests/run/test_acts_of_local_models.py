"""Acts and tool calls of dialogues where a local model reads private texts: learnt with their turns, and written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from clinic import settings
from local_fixtures import make_llama
from run_fixtures import files_holding, runs_charged
from script_model import END, ScriptModel
from test_parts_of_local_models import METHODS, PROMPT
from test_table_runs import simple_fit

import understudy as us
from understudy.base.errors import UnderstudyWarning
from understudy.methods.shared.decoding.tuned import TunedModel
from understudy.models.types import Completion
from understudy.run import pipeline as running
from understudy.run import tabling
from understudy.run.settings import run_config

pytestmark = pytest.mark.filterwarnings(f"ignore:The gradients hardly:{UnderstudyWarning.__module__}.UnderstudyWarning")
PLANT = "zqxvplanted"
SAID = 'user (ask): Open?\nassistant calls search: {"day": 3}\nsearch returns: no\nassistant: No.'


def talks(folder: Path, method: str, **changes: Any) -> dict[str, Any]:
    """Settings of a run on 24 dialogues, each with an act and a call."""
    function = {"name": "search", "arguments": {"who": PLANT}}
    made = [
        {
            "product": ("router", "phone")[number % 2],
            "messages": [
                {"role": "user", "content": f"{PLANT} {number}?", "act": "ask"},
                {"role": "assistant", "content": None, "tool_calls": [{"id": PLANT, "function": function}]},
                {"role": "tool", "tool_call_id": PLANT, "content": f"{PLANT}!"},
            ],
        }
        for number in range(24)
    ]
    (folder / "talks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    (folder / "prompt.yaml").write_text(PROMPT)
    not_used = ("vocabulary", "vocabulary_is_public", "top_terms", "length", "bandwidth", "llm", "records_per_label")
    own = {
        "method": method,
        "data": str(folder / "talks.jsonl"),
        "text": "messages",
        "roles": "user,assistant",
        "acts": "ask,thank",
        "tools": "search",
        "label": "product",
        "labels": "router,phone",
        "columns": "turns.ask=0..2; calls.search=0..2",
        "epsilon": "60",
        "prompt": str(folder / "prompt.yaml"),
        "private_text_tokens": 200,
        "max_tokens": len(SAID) + 1,
    }
    return settings(folder, **{**dict.fromkeys(not_used), **own, **METHODS[method], **changes})


def spelled(_text: bytes, drawn: bytes) -> int:
    """The dialogue letter by letter, behind its row."""
    _, newline, answer = drawn.lstrip().partition(b"\n")
    if not newline:
        return ord("!")
    said = SAID.encode()
    return said[len(answer)] if said.startswith(answer) and len(answer) < len(said) else END


@pytest.mark.parametrize("method", ["dp-finetune", "private-prediction"])
def test_acts_and_calls_are_learnt_with_their_turns_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learnt: list[str], method: str
) -> None:
    def says(self: TunedModel, keys: Sequence[Any], **_: Any) -> Iterator[Completion]:
        yield from (Completion(f"\n{SAID if place % 2 else SAID[:-30]}", "stop") for place, _ in enumerate(keys))

    model = {"private_model": f"hf:{make_llama(tmp_path / 'llama', window=1024)}"}
    monkeypatch.setattr(tabling, "fit", simple_fit)
    changes: dict[str, Any] = dict(model)
    if method == "private-prediction":
        monkeypatch.setattr("understudy.models.catalog.load_causal", lambda *_, **__: ScriptModel(spelled))
        changes["tokens_per_batch"] = 2 * len(SAID) + 4
    released = running.release(run_config(talks(tmp_path, method, **changes))).release
    monkeypatch.setattr(TunedModel, "sample", says)
    options = {} if method == "private-prediction" else {**model, "records_per_label": 4}
    made = us.generate(released, output=str(tmp_path / "more"), **options)

    assert {record.text for record in made.records} == {SAID}, "what breaks off in a call is no transcript"
    call = {"name": "search", "arguments": '{"day": 3}'}
    answered = {"tool_calls": [{"id": "call_1", "type": "function", "function": call}]}
    assert made.columns["messages"][0] == [
        {"role": "user", "content": "Open?", "act": "ask"},
        {"role": "assistant", "content": None, **answered},
        {"role": "tool", "content": "no", "tool_call_id": "call_1", "name": "search"},
        {"role": "assistant", "content": "No."},
    ]
    assert set(made.columns["turns.ask"]) == set(made.columns["calls.search"]) == {1}
    assert runs_charged(tmp_path / "ledger.sqlite", "talks") == 1
    assert not [*files_holding(tmp_path / "out", PLANT.encode()), *files_holding(tmp_path / "more", PLANT.encode())]
    if method == "dp-finetune":
        row = "turns.ask: 1; calls.search: 1\n"
        said = f'assistant calls search: {{"who": "{PLANT}"}}\nsearch returns: {PLANT}!'
        assert [text for text in learnt if PLANT in text]
        assert all(text.startswith(f"{row}user (ask): {PLANT} ") for text in learnt if PLANT in text)
        assert all(text.endswith(said) for text in learnt if PLANT in text)
