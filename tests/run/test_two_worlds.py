"""Two corpora that share nothing, and every noisy sum replaced by the same numbers: what still differs is a leak.

What is released follows from noisy sums, public declarations and nothing else. So a run on one corpus and a run on
another must agree in everything that leaves, to the byte, once the sums are made the same.
"""

from __future__ import annotations

import datetime
import json
import random
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from clinic import LABELS, TERMS, FakeChat, flags, rows, settings, write_csv
from evolution_fixtures import evolving
from numpy.typing import NDArray
from run_fixtures import Command, UseChat, simple_fit
from test_planted_strings import PLANT

from understudy.methods.additions.columns import addition as columns_addition
from understudy.methods.additions.columns import release as columns_release
from understudy.methods.base import Released
from understudy.models.types import ChatRequest, Completion
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.measurement import exact_sum
from understudy.run import door as measuring

COLUMNS = "ward=A|B; beds=1..4; fee=0.0..90.0/3; night; seen=2024-01-01..2024-12-31/12"
TALKS = {"text": "messages", "roles": "customer,agent", "columns": f"{COLUMNS}; turns=1..6; begins=customer|agent"}
TOPICS = {"label": None, "labels": None, "topics": 3, "records_per_label": None, "records": 9, "llm": "fake"}
FIELDS = {"text": "title,note", "columns": COLUMNS}

CASES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "columns": lambda folder: settings(folder, columns=COLUMNS),
    "columns of owners": lambda folder: settings(folder, columns=COLUMNS, owner="clinician", max_records_per_owner=3),
    "a label made of columns": lambda folder: settings(folder, columns=COLUMNS, label="ward*night", labels=None),
    "dialogues": lambda folder: settings(folder, **TALKS, llm="fake"),
    "several texts": lambda folder: settings(folder, **FIELDS, llm="fake"),
    "records": lambda folder: settings(folder, text=None, record_columns="title,note,beds", llm="fake"),
    "topics": lambda folder: settings(folder, **TOPICS),
    "topics of owners, and columns": lambda folder: settings(folder, **TOPICS, columns=COLUMNS, owner="clinician"),
    "dp-kde": lambda folder: settings(folder, method="dp-kde", mode="iterative", features=16, owner="clinician"),
    "aug-pe": lambda folder: evolving(folder, columns=COLUMNS, owner="clinician", max_records_per_owner=2),
}


@pytest.fixture(autouse=True)
def the_same_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records are read and summed as ever, and the sum is thrown away."""

    def measure(_mechanism: Any, query: Any, data: Any, **_: Any) -> NDArray[np.float64]:
        exact_sum(query, data)
        return np.random.default_rng([7, *query.shape]).normal(20, 30, query.shape)

    monkeypatch.setattr(measuring, "measure", measure)
    monkeypatch.setattr(columns_release, "fit", simple_fit)


def corpus(world: int, count: int) -> list[dict[str, Any]]:
    """Other texts, owners, cells, lengths, bad rows and numbers of records in each world."""
    chance, made = random.Random(world), []
    for number, row in enumerate(rows(count)):
        name = f"{PLANT}{world}n{number}"
        talk = [
            {"role": chance.choice(("customer", "agent")), "content": f"{name} {chance.choice(TERMS)}\nagent: no"}
            for _ in range(chance.randrange(1, 9))
        ]
        made.append(
            {
                "note": f"{row['note']} {name} " * chance.randrange(1, 5),
                "title": chance.choice(("", name)),
                "messages": json.dumps(talk),
                "department": chance.choice(LABELS),
                "clinician": f"{PLANT}{chance.randrange(3 + world * 5)}",
                "ward": chance.choice("AB"),
                "beds": chance.choice((1, 2, 3, 4, 99, "")),
                "fee": chance.choice(("", 1.5, 88, 1e9)),
                "night": chance.choice(("true", "no")),
                "seen": datetime.date(2024, 1, 1) + datetime.timedelta(chance.randrange(366)),
            }
        )
    bad = [{**made[number], "department": f"{PLANT}label", "ward": f"{PLANT}cell"} for number in range(world * 3)]
    return [*made, *bad]


def answer(request: ChatRequest) -> Completion:
    """Parts, an object or plain words, whichever the prompt asks for; the same to the same prompt."""
    asked = request.messages[-1].content
    word = TERMS[len(asked) % len(TERMS)]
    if "customer:" in asked:
        return Completion(f"customer: My {word}.\nagent: Since when?", "stop", 9, 9)
    if "title:" in asked:
        return Completion(f"title: A {word}\nnote: My {word}.", "stop", 9, 9)
    return Completion(f"Seen: {word}.", "stop", 9, 9)


def what_leaves(folder: Path) -> dict[str, str]:
    """The contents of every file under ``release/``, members of archives too, without times and hashes."""
    found: dict[str, str] = {}
    for path in sorted((folder / "out" / "release").rglob("*")):
        if path.suffix == ".parquet":
            found[path.name] = str(pq.read_table(path).to_pylist())
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                found |= {f"{path.name}/{name}": archive.read(name).decode("latin1") for name in archive.namelist()}
        else:
            found[path.name] = path.read_text("utf-8")
    return {name: public(text) for name, text in found.items()}


def public(text: str) -> str:
    """Without what differs between any two runs: times, and hashes of files, keys and identities."""
    text = re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.]+(\+00:00|Z)?", "TIME", text)
    return re.sub(r"\b[0-9a-f]{32,64}\b", "HASH", text)


def two_worlds(
    case: str, folder: Path, understudy: Command, chat: FakeChat, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, str], dict[str, str]]:
    """What leaves, what is said, and what a language model is asked, in each of two worlds."""
    worlds = []
    for world, count in ((1, 37), (2, 95)):
        here = folder / f"world-{world}" / "same"
        here.mkdir(parents=True)
        monkeypatch.chdir(here)
        table = corpus(world, count)
        write_csv(here / "notes.csv", table, [*table[0]])
        values = {
            name: value.replace(str(here), ".") if isinstance(value, str) else value
            for name, value in CASES[case](here).items()
        }
        chat.asked.clear()
        said = understudy("run", *flags({**values, "max_bad_rows": 1}), code=0)
        seen = {"output": public(said.out), "log": public(said.err).replace(f"world-{world}", "world")}
        asked = {"asked": str([[message.content for message in request.messages] for request in chat.asked])}
        worlds.append(what_leaves(here) | seen | asked)
    return worlds[0], worlds[1]


@pytest.mark.parametrize("case", CASES)
def test_nothing_that_leaves_tells_two_corpora_apart_but_the_noisy_sums(
    case: str, tmp_path: Path, understudy: Command, use_chat: UseChat, embedder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two_worlds(case, tmp_path, understudy, use_chat(FakeChat(answer)), monkeypatch)
    assert len(one) > 8
    assert one == other
    assert PLANT not in str(one)


@pytest.mark.parametrize("leak", ["records", "columns that are used"])
def test_a_run_that_says_one_thing_more_of_its_records_is_found_out(
    leak: str, tmp_path: Path, understudy: Command, use_chat: UseChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = columns_release.release

    def broken(records: Any, *rest: Any, **more: Any) -> Released:
        made = right(records, *rest, **more)
        cells = np.concatenate([batch.cells for batch in records.batches()])
        told = len(cells) if leak == "records" else int((cells[:, 1] == 0).sum())
        return replace(made, noise_check=made.noise_check + Facts((Fact("told", told, "told"),)))

    monkeypatch.setattr(columns_addition, "release", broken)
    one, other = two_worlds("columns", tmp_path, understudy, use_chat(FakeChat(answer)), monkeypatch)
    assert one != other
