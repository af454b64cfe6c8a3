"""Texts from the labels alone: no private data, and never where a promise stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from clinic import FakeChat, settings
from run_fixtures import Command, run

import understudy as us
from understudy.base.errors import ConfigError


def test_the_floor_has_so_many_texts_of_each_label_and_charges_nothing(
    tmp_path: Path, varied_chat: FakeChat, understudy: Command
) -> None:
    words = ("--labels", "cardiology,dermatology", "--records-per-label", "3", "--output", str(tmp_path / "floor"))
    said = understudy("baseline", *words, "--document-type", "clinical note", code=0)
    table = pq.read_table(said.out.strip())
    assert table["label"].to_pylist() == ["cardiology"] * 3 + ["dermatology"] * 3
    assert all(table["text"].to_pylist())
    beside = pq.read_table(tmp_path / "floor" / "release" / "provenance.parquet")
    assert json.loads(beside["provenance"][0].as_py())["zero-shot"] == "fake:chat"
    assert not (tmp_path / "default-ledger.sqlite").exists()
    assert not (tmp_path / "floor" / "release" / "statement.json").exists()


def test_the_same_command_asks_for_nothing_twice(tmp_path: Path, varied_chat: FakeChat) -> None:
    first = us.baseline(labels=["a", "b"], records_per_label=2, output=str(tmp_path / "floor"))
    asked = len(varied_chat.asked)
    again = us.baseline(labels=["a", "b"], records_per_label=2, output=str(tmp_path / "floor"))
    assert len(varied_chat.asked) == asked
    assert again == first


def test_every_prompt_names_its_label(varied_chat: FakeChat) -> None:
    us.baseline(labels=["zebras", "lions"], records=4, document_type="clinical note")
    prompts = [request.messages[-1].content for request in varied_chat.asked]
    assert sum("zebras" in prompt for prompt in prompts) == sum("lions" in prompt for prompt in prompts) == 2


def test_a_folder_with_a_promise_is_not_written_to(tmp_path: Path, varied_chat: FakeChat) -> None:
    result = run(settings(tmp_path))
    assert result.folder is not None
    kept = (result.folder.synthetic_file("parquet"), result.folder.private / "run.sqlite")
    before = [path.read_bytes() for path in kept]
    for fresh in (False, True):
        with pytest.raises(ConfigError, match="privacy statement"):
            us.baseline(labels=["a"], records=1, output=str(result.folder.root), fresh=fresh)
    assert [path.read_bytes() for path in kept] == before


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"labels": ["a"], "records": 1, "records_per_label": 1}, "is given by two options"),
        ({"labels": ["a", "a"], "records": 1}, "a"),
        ({"labels": ["a"], "records": 1, "llm": "none"}, "A language model writes the baseline"),
        ({"labels": ["a"], "records": 1, "zebra": 2}, "zebra"),
        ({"labels": ["a"], "records": 1, "min_words": 9, "max_words": 3}, "min_words"),
    ],
)
def test_what_cannot_be_asked_for_is_one_clear_error(options: dict[str, Any], told: str, varied_chat: FakeChat) -> None:
    with pytest.raises(ConfigError, match=told):
        us.baseline(**options)
    assert not varied_chat.asked


@pytest.mark.parametrize(
    ("labels", "said"),
    [("heart disease,skin disease", False), ("kardiologie,dermatologie,chirurgie,kinderheilkunde", True)],
)
def test_that_the_built_in_model_is_english_is_said_where_the_labels_are_not(
    tmp_path: Path, varied_chat: FakeChat, understudy: Command, labels: str, said: bool
) -> None:
    words = ("--labels", labels, "--records", "4", "--output", str(tmp_path / "floor"))
    assert ("built-in models are English" in understudy("baseline", *words).err) == said
    assert varied_chat.asked
