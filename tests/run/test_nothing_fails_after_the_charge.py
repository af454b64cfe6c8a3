"""Every method at the edges of its parameters, on tables of every kind: refused before the charge, or run to the end.

Which of the two it is, and the shapes that come out, do not depend on the private table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from clinic import LABELS, TERMS, FakeChat, write_csv
from evolution_fixtures import WordEmbedder, varied
from run_fixtures import little_work_of_seq_pate, runs_charged
from sample_releases import TUNED
from script_model import ScriptModel, echo
from secret_fixtures import PUBLIC_COLUMNS, public_rows, secret_rows

import understudy as us
from understudy.base.errors import UnderstudyError
from understudy.models.causal import CausalModel
from understudy.run.pipeline import run
from understudy.run.settings import run_config

Rows = Sequence[Mapping[str, Any]]


@pytest.fixture(autouse=True)
def little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    little_work_of_seq_pate(monkeypatch)


def row(note: str, label: str = LABELS[0], clinician: str = "dr-1") -> dict[str, Any]:
    return {"note": note, "department": label, "clinician": clinician}


ODD = (".", "\x00", "?!", "\u0301", "\U0001f642 \u5fc3", "heart " * 5_000, "a" * 20_000, "{label} [x", '{"text": 1}')
TABLES: dict[str, Rows] = {
    "usual": secret_rows(16),
    "empty": [],
    "one record": [row("Chest pain, angina. Write to pat@clinic.example.", LABELS[1])],
    "odd texts": [row(text, LABELS[number % 2], f"dr-{number % 3}") for number, text in enumerate(ODD)],
}

COMMON = {"text": "note", "label": "department", "dataset": "notes", "records_per_label": 2}
EPSILON = {"epsilon": "3", "delta": "1e-6"}
SECRETS = {
    **{"secret_prior": "1e-3", "secret_posterior": "1e-2", "secret_detectors": "email", "max_records_per_secret": 3}
}
METHODS: dict[str, dict[str, Any]] = {
    "dp-kde": {**{**EPSILON, "vocabulary_is_public": True, "top_terms": 6, "length": 2, "llm": "none", "features": 8}},
    "dp-kps": {**EPSILON, "vocabulary_is_public": True, "top_terms": 6, "length": 2, "llm": "none"},
    "aug-pe": {**EPSILON, "llm": "fake", "rounds": 2, "population": 2, "variations": 2},
    "guided-evolution": {**EPSILON, "llm": "fake", "rounds": 2, "population": 2, "variations": 2},
    "sec-pe": {
        **SECRETS,
        **{"public_corpus_is_public": True, "public_text": "note", "clusters": 3},
        **{"llm": "fake", "rounds": 1, "population": 2, "variations": 2},
    },
    "private-prediction": {
        **{"epsilon": "30", "delta": "1e-6", "batches": 2, "batch_size": 5, "tokens_per_batch": 6, "max_tokens": 5},
        **{"private_text_tokens": 12, "unfinished": "keep", "records_per_label": None},
    },
    "few-shot": {
        **{"epsilon": "6", "delta": "1e-6", "llm": "fake", "sampling_rate": 0.5, "subsets": 2, "tokens": 6},
        **{"examples_per_subset": 1, "exemplars": 2, "exemplar_tokens": 3, "private_text_tokens": 8},
    },
    "dp-finetune": {
        **{"epsilon": "6", "delta": "1e-6", "declared_records": 16, "sampling_rate": 0.5, "steps": 2, "lora_rank": 2},
        **{"private_text_tokens": 8, "max_tokens": 4, "unfinished": "keep"},
    },
    "seq-pate": {
        **{"epsilon": "6", "delta": "1e-6", "declared_records": 16, "teachers": 3, "queries": 4, "rounds": 2},
        **{"candidates": 4, "private_text_tokens": 8, "max_tokens": 4, "unfinished": "keep"},
    },
}
OWNER = {"owner": "clinician", "max_records_per_owner": 2}
GUIDE = {"guide": True}
ITERATIVE = {"mode": "iterative"}
CASES: dict[str, list[dict[str, Any]]] = {
    "dp-kde": [
        {},
        {"noise": "laplace", "delta": "0", "features": 1, "length": 6, "temperature": 0.01, **OWNER},
        {**ITERATIVE, "length": 4, "terms_per_record": 3},
        {**ITERATIVE, "length": 3, "terms_per_record": 3, "ensemble": "linear", **OWNER},
        {**ITERATIVE, "length": 6, "terms_per_record": 100, "noise": "laplace", "contrast": 100, "labels": LABELS[:1]},
        {"top_terms": 1, "length": 1, "bandwidth": 0.01, **GUIDE},
        {"top_terms": 17},
        {"features": 100_000, "top_terms": 16, "length": 16, "labels": LABELS[:1]},
        {"vocabulary_epsilon": 3},
        {"vocabulary_epsilon": 2.99999, **GUIDE},
        {"epsilon": "1e-9"},
        {"epsilon": "1e9"},
        {"noise": "gaussian", "delta": "0"},
    ],
    "dp-kps": [
        {},
        {"noise": "laplace", "terms_per_record": 1, "length": 6, "top_terms": 6},
        {"top_terms": 1, "length": 1, "terms_per_record": 100, **OWNER},
        {"top_terms": 16, "length": 16, "contrast": 100, "labels": LABELS[:1]},
        {"labels": [*LABELS, "=", "a,b", "[x]{label}", "\u5fc3", " spaced ", '"']},
        {"labels": [*LABELS, 7]},
        {"epsilon": "1e-9"},
        {"epsilon": "1e9"},
        GUIDE,
        {**GUIDE, "noise": "laplace", **OWNER},
        {**GUIDE, "length": 6, "shortest": 1, "guide_candidates": 7},
        {**GUIDE, "delta": "0", "noise": "laplace"},
        {**GUIDE, "guide_candidates": 0, "labels": LABELS[:1]},
    ],
    "guided-evolution": [
        {},
        {"rounds": 1, "population": 1, "variations": 1, "threshold": 1e12, **OWNER},
        {"selection": "proportional", "harvest": "variations"},
        {"labels": LABELS[:1]},
        {"population": 1_000_000},
        {"keywords": "gone.txt", "keywords_are_public": True},
        {"epsilon": "1e-9"},
        {"epsilon": "1e9"},
        GUIDE,
    ],
    "aug-pe": [
        {},
        {**GUIDE},
        {"rounds": 1, "population": 1, "variations": 1, "nearest": 1000, **OWNER},
        {"selection": "proportional", "threshold": 1e12, "distance": "l2"},
        {"min_words": 100_000, "max_words": 100_000},
        {"label_sizes": "noisy", "private_keywords": True, "top_terms": 16, "vocabulary_is_public": True},
        {"private_keywords": True, "top_terms": 17, "vocabulary_is_public": True},
        {"label_sizes": f"{LABELS[0]}=0,{LABELS[1]}=1e300"},
        {"label_sizes": f"{LABELS[0]}=1"},
        {"label_sizes": "noisy", "private_keywords": True},
        {"population": 1_000_000},
        {"blank_probability": 1, "llm_temperature": 0},
        {**SECRETS, "epsilon": None, "delta": None},
    ],
    "sec-pe": [
        {},
        {"clusters": 1, "releases": 3},
        {"clusters": 24},
        {"clusters": 1_000_000},
        {"clusters": 13, "public_label": "department"},
        {"public_label": "department", "labels": [*LABELS, "none of the public texts"]},
        {"inclusion": 1e-6, "max_records_per_secret": 1_000},
        {"public_text": "missing"},
    ],
    "private-prediction": [
        {},
        {**GUIDE, "epsilon": "300"},
        {"clip": "recenter", "batch_size": 300, "epsilon": "300", "top_k": 0, "temperature": 50},
        {"sparse_vector": True, "threshold": 2, "batch_size": 50, "epsilon": "100", "public_temperature": 1e-3},
        {"batches": 1, "tokens_per_batch": 1, "max_tokens": 1, "top_k": 1, "texts_per_batch": 1, **OWNER},
        {"batches": 1_000_000},
        {"batch_size": 1_000_000, "clip_range": 1e6, "temperature": 1e-3},
        {"max_tokens": 1_000_000},
        {"batches": None},
    ],
    "few-shot": [
        {},
        {**GUIDE, **OWNER},
        {"noise": "votes", "sampling_rate": 1, "subsets": 1, "candidates": 10_000, **OWNER},
        {"tokens": 1, "exemplars": 1000, "exemplar_tokens": 1},
        {"subsets": 500, "examples_per_subset": 100, "private_text_tokens": 1_000_000},
        {"sampling_rate": 1e-9, "candidates": 2, "noise": "votes"},
        {"exemplar_tokens": 10_000},
        {"sampling_rate": None},
        {"noise": "votes", "delta": "0"},
    ],
    "dp-finetune": [
        {},
        GUIDE,
        {"sampling_rate": 1, "label_sizes": "noisy", **OWNER},
        {"sampling_rate": 1e-9},
        {"learns": "all", "private_text_tokens": 1},
        {"private_text_tokens": 100_000},
        {"declared_records": None},
        {"delta": "0"},
        {"learning_rate": 1, "unfinished": "drop"},
    ],
    "seq-pate": [
        {},
        GUIDE,
        {"label_sizes": "noisy", **OWNER},
        {"answers": "votes", "noise": "laplace"},
        {"candidate_filter": "none", "student_loss": "top-answer", "learning_rate": 1},
        {"queries": 50, "rounds": 1},
        {"rounds": 129},
        {"teachers": 17},
        {"queries": 1},
        {"private_text_tokens": 100_000},
        {"candidates": 100_000},
        {"delta": "0"},
        {"epsilon": "1e9"},
    ],
}
# Whose arrays have one shape whatever is drawn; that of texts drawn token by token follows from the noise.
ALIKE = {"dp-kps", "dp-kde", "aug-pe", "guided-evolution", "sec-pe"}


@pytest.fixture
def outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llama: Path
) -> Callable[[str, Mapping[str, Any], Rows], tuple[int, Any]]:
    """Runs a method on a table, with models that answer at once: how often it was charged, and why it was refused or
    the shapes that it released."""
    monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda spec: WordEmbedder())
    monkeypatch.setattr("understudy.models.catalog.load_chat", lambda spec, **options: FakeChat(varied))

    def load_causal(*_: Any, **__: Any) -> Any:
        """Whoever trains needs a network; one that has been trained belongs to its run."""
        trains = sys._getframe(2).f_locals["job"].method.name in TUNED
        return CausalModel(llama, name="tiny", dtype="float32") if trains else ScriptModel(echo(3))

    monkeypatch.setattr("understudy.models.catalog.load_causal", load_causal)
    (tmp_path / "terms.txt").write_text("\n".join(TERMS), "utf-8")
    write_csv(tmp_path / "public.csv", public_rows(), PUBLIC_COLUMNS)
    number = 0

    def called(method: str, changes: Mapping[str, Any], rows: Rows) -> tuple[int, Any]:
        nonlocal number
        number += 1
        ledger = tmp_path / f"ledger-{number}.sqlite"
        monkeypatch.setenv("UNDERSTUDY_LEDGER", str(ledger))
        files = {"sec-pe": {"public_corpus": str(tmp_path / "public.csv")}}
        if method in ("dp-kps", "dp-kde", "aug-pe"):
            files[method] = {"vocabulary": str(tmp_path / "terms.txt")}
        values = {"labels": list(LABELS), "method": method, **COMMON, **METHODS[method], **files.get(method, {})}
        values = {name: value for name, value in {**values, **changes}.items() if value is not None}
        kept = [each for each in rows if each["department"] in values["labels"]]
        columns = {name: [str(each[name]) for each in kept] for name in ("note", "department", "clinician")}
        corpus = us.read_corpus(
            pa.table({name: pa.array(cells, pa.string()) for name, cells in columns.items()}),
            text="note",
            label="department",
            labels=values["labels"],
            owner=values.get("owner"),
        )
        try:
            made = run(run_config({**values, "output": str(tmp_path / f"out-{number}")}), corpus=corpus)
        except UnderstudyError as error:
            return runs_charged(ledger), str(error)
        shapes = {
            name: (np.asarray(array).shape if method in ALIKE else None, str(array.dtype))
            for name, array in made.release.arrays.items()
        }
        return runs_charged(ledger), shapes

    return called


def tables_of(number: int) -> dict[str, Rows]:
    """All of them for a method's first case; two for each other, in turn."""
    others = [name for name in TABLES if name != "usual"]
    named = {"usual", others[number % len(others)]} if number else set(TABLES)
    return {name: rows for name, rows in TABLES.items() if name in named}


@pytest.mark.parametrize(
    ("method", "number"), [(method, number) for method, cases in CASES.items() for number in range(len(cases))]
)
def test_a_run_is_refused_before_the_charge_or_ends_alike_on_every_table(
    outcome: Callable[[str, Mapping[str, Any], Rows], tuple[int, Any]], method: str, number: int
) -> None:
    ends = {name: outcome(method, CASES[method][number], rows) for name, rows in tables_of(number).items()}
    assert all(end == ends["usual"] for end in ends.values()), ends
    charged, end = ends["usual"]
    assert charged == (0 if isinstance(end, str) else 1), f"charged, and then: {end}"
