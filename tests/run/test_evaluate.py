"""``understudy evaluate``: what it reads, what it writes where, and what it refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from clinic import LABELS, rows, settings, write_csv
from local_fixtures import make_llama
from run_fixtures import Command, run

import understudy as us
from understudy.base.errors import ReleaseError, UnderstudyError
from understudy.corpus.write import write_table
from understudy.evaluate.metrics.results import Evaluation, load_evaluation
from understudy.evaluate.metrics.utility.classifiers import KINDS
from understudy.evaluate.metrics.value import MetricValue
from understudy.evaluate.parameters import CLASSIFIERS, EvaluationParameters
from understudy.evaluate.synthetic import SyntheticFile
from understudy.methods.registry import load_release
from understudy.models.catalog import load_causal
from understudy.models.causal import CausalModel
from understudy.models.training import TokenRow
from understudy.run.outputs import OutputFolder
from understudy.run.session import Listener

FEW: dict[str, Any] = {"embedder": "none", "seeds": 1}


@pytest.fixture
def made(tmp_path: Path, finished: Callable[..., dict[str, Any]]) -> OutputFolder:
    """A whole run without a language model."""
    return OutputFolder(Path(finished(tmp_path)["output"]))


def named(evaluation: Evaluation) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for measured in evaluation.values:
        found.setdefault(measured.metric.family, set()).add(measured.of)
    return found


def test_an_output_folder_says_how_the_columns_of_the_real_table_are_called(
    tmp_path: Path, made: OutputFolder, understudy: Command
) -> None:
    before = {path.name: path.read_bytes() for path in made.shareable.iterdir()}
    said = understudy(
        "evaluate", str(tmp_path / "notes.csv"), str(made.root), "--embedder", "none", "--seeds", "1", code=0
    )
    assert said.out == ""
    found = load_evaluation(made.evaluation_file)
    assert named(found).keys() == {"fidelity", "utility", "leakage"}
    assert found.table_sha256 == SyntheticFile.at(made.synthetic_file("parquet")).sha256()
    assert found.overview is not None
    assert set(found.overview.profiles) == {"real", "synthetic"}
    assert set(found.overview.profiles["real"].labels) == set(LABELS)
    assert {each.sample_size for each in found.values if each.of == "real (all)"} == {20}, "half are tested on"
    assert {path.name: path.read_bytes() for path in made.shareable.iterdir()} == before, "nothing that is shareable"
    if os.name == "posix":
        assert made.evaluation_file.stat().st_mode & 0o777 == 0o600
    assert us.evaluate(tmp_path / "notes.csv", made.root, **FEW).values == found.values, "of the same seed"


def test_no_text_or_figure_is_printed_unasked(tmp_path: Path, made: OutputFolder, understudy: Command) -> None:
    table = rows()
    table[3]["note"] += " Zebra"
    path = write_csv(tmp_path / "planted.csv", table)
    words = ("evaluate", str(path), str(made.root), "--embedder", "none", "--seeds", "1", "--metrics", "leakage")
    quiet, shown = understudy(*words), understudy(*words, "--show")
    assert quiet.code == shown.code == 0
    assert "Zebra" not in quiet.out + quiet.err + shown.out + shown.err
    assert quiet.out == ""
    assert "Longest copied span" in shown.out
    said = understudy("evaluate", str(path), str(made.synthetic_file("parquet")), "--text", "note")
    assert (said.code, "No place given for the metrics" in said.err) == (2, True)


def test_held_out_texts_are_the_reference_and_the_test_set_and_others_stand_beside_by_name(
    tmp_path: Path, made: OutputFolder
) -> None:
    other = write_csv(tmp_path / "other.csv", rows(60)[40:])
    floor = tmp_path / "floor.jsonl"
    floor.write_text("".join(json.dumps({"text": f"about {label}", "label": label}) + "\n" for label in LABELS))
    beside = (f"baseline={floor}", f"again={made.root}")
    found = us.evaluate(tmp_path / "notes.csv", made.root, holdout=str(other), beside=beside, **FEW)
    assert "holdout" in named(found)["fidelity"]
    assert "holdout" in named(found)["leakage"]
    assert {"synthetic", "baseline", "again"} <= named(found)["utility"]
    ceiling = [each for each in found.values if each.of == "real (all)"]
    assert ceiling[0].sample_size == 40  # all of them: the test texts are others


def test_a_table_without_labels_has_no_utility_a_schema_and_as_many_texts_as_asked_for(
    tmp_path: Path, finished: Callable[..., dict[str, Any]]
) -> None:
    output = finished(tmp_path, label=None, labels=None, records=6, records_per_label=None)["output"]
    (tmp_path / "schema.json").write_text('{"type": "object"}', "utf-8")
    found = us.evaluate(tmp_path / "notes.csv", output, max_texts=5, json_schema=str(tmp_path / "schema.json"), **FEW)
    assert named(found).keys() == {"fidelity", "leakage"}
    assert {each.metric.name: each.value for each in found.values}["json_parsed"] == 0
    assert found.overview is not None
    assert {each.texts for each in found.overview.profiles.values()} == {5}


def test_a_corpus_and_a_table_in_memory_do_as_well_and_write_nothing(tmp_path: Path) -> None:
    real = us.read_corpus(rows(), text="note", label="department", labels=LABELS)
    table = pa.table({"text": ["heart pulse", "skin rash"], "label": list(LABELS)})
    synthetic = us.read_corpus(table, text="text", label="label", labels_from_data=True)
    found = us.evaluate(real, synthetic, **FEW)
    assert named(found)["utility"] >= {"synthetic", "real"}
    assert list(tmp_path.iterdir()) == []


def test_a_new_run_in_the_folder_takes_the_old_figures_away(tmp_path: Path, made: OutputFolder) -> None:
    us.evaluate(tmp_path / "notes.csv", made.root, **FEW)
    run(settings(tmp_path, fresh=True, dataset="again", ledger=str(tmp_path / "other.sqlite")))
    assert not made.evaluation_file.exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"metrics": "beauty"}, "there are fidelity"),
        ({"classifiers": "oracle"}, "there are tf-idf"),
        ({"beside": "floor.parquet"}, "NAME=PATH"),
        ({"beside": "real=floor.parquet"}, "taken"),
        ({"beside": "floor=missing.csv"}, "missing.csv"),
        ({"in_context": "many"}, "0,4,8"),
        ({"max_texts": 1}, "max_texts"),
        ({"json_schema": "missing.json"}, "cannot be read"),
        ({"detectors": "zebra", "embedder": "none"}, "zebra"),
        ({"public_texts": "missing.txt"}, "missing.txt"),
        ({"holdout": "missing.csv"}, "missing.csv"),
        ({"epsilon": 3}, "epsilon"),
        ({"charge_metrics": "-1"}, "charge_metrics"),
        ({"real": "one.csv", "embedder": "none"}, "too few"),
        ({"synthetic": "empty"}, "contains no synthetic table"),
        ({"synthetic": "out/release/synthetic.parquet"}, "No text column"),
    ],
)
def test_what_cannot_be_measured_is_one_clear_error_before_a_model_is_loaded(
    tmp_path: Path, made: OutputFolder, options: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(spec: str) -> Any:
        raise AssertionError("no model is needed for that")

    monkeypatch.setattr("understudy.models.catalog.load_embedder", load)
    write_csv(tmp_path / "one.csv", rows(1))
    (tmp_path / "empty").mkdir()
    real, synthetic = (
        tmp_path / options.pop(name, file) for name, file in (("real", "notes.csv"), ("synthetic", "out"))
    )
    with pytest.raises(UnderstudyError, match=told):
        us.evaluate(real, synthetic, **{"seeds": 1, **options})


def test_an_embedder_that_there_is_not_is_named(tmp_path: Path, made: OutputFolder) -> None:
    with pytest.raises(UnderstudyError, match="no embedder"):
        us.evaluate(tmp_path / "notes.csv", made.root, embedder="zebra")


def test_personal_data_of_public_texts_are_told_apart(tmp_path: Path, made: OutputFolder) -> None:
    table = rows()
    table[3]["note"] += " desk@clinic.example"
    table[4]["note"] += " zebra@clinic.example"
    real = write_csv(tmp_path / "mailed.csv", table)
    (tmp_path / "examples.txt").write_text("Write to desk@clinic.example.\n", "utf-8")
    options = {"detectors": "email", "metrics": "leakage", "public_texts": str(tmp_path / "examples.txt"), **FEW}
    found = {each.metric.name: each for each in us.evaluate(real, made.root, **options).values}
    assert found["pii_replayed"].value == 0
    assert found["pii_replayed_public"].settings["detector"] == "email"


@pytest.mark.parametrize(("name", "keys"), [("floor.jsonl", ("text", "label")), ("floor.csv", ("note", "department"))])
def test_a_table_may_have_our_columns_or_the_real_table_s(
    tmp_path: Path, made: OutputFolder, name: str, keys: tuple[str, str]
) -> None:
    path, columns = tmp_path / name, {keys[0]: ["heart pulse", "skin rash"], keys[1]: list(LABELS)}
    write_table(path, columns)
    words = {"text": "note", "label": "department", "labels": ",".join(LABELS)}
    found = us.evaluate(tmp_path / "notes.csv", path, metrics="utility", **words, **FEW)
    assert {each.sample_size for each in found.values if each.of == "synthetic"} == {2}


def test_a_recipient_s_texts_add_a_network_for_them(tmp_path: Path, made: OutputFolder, embedder: Any) -> None:
    (tmp_path / "recipient.jsonl").write_text('{"text": "heart"}\n{"text": "skin rash"}\n', "utf-8")
    words = {"recipient": str(tmp_path / "recipient.jsonl"), "classifiers": "tf-idf", "metrics": "utility", "seeds": 1}
    found = us.evaluate(tmp_path / "notes.csv", made.root, **words)
    assert {each.settings["classifier"] for each in found.values} == {"tf-idf", "coral"}


def test_language_models_are_measured_when_asked_for_and_on_the_model_that_is_named(
    tmp_path: Path, made: OutputFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def told(name: str) -> Callable[..., tuple[()]]:
        return lambda *args, **options: asked.append((name, options)) or ()

    language = import_module("understudy.evaluate.metrics.utility.language")
    monkeypatch.setattr(language, "measure_language_model", told("tuned"))
    monkeypatch.setattr(language, "measure_in_context", told("shown"))
    us.evaluate(tmp_path / "notes.csv", made.root, metrics="utility", **FEW)
    assert asked == []
    words = {"metrics": "utility", "language_model": True, "in_context": "0,4", "local_model": "hf:./tiny", "seed": 5}
    us.evaluate(tmp_path / "notes.csv", made.root, **words, **FEW)
    assert [name for name, _ in asked] == ["tuned", "shown"]
    assert all(options["model"] == "hf:./tiny" and options["seed"] == 5 for _, options in asked)
    assert asked[1][1]["shots"] == (0, 4)
    assert asked[1][1]["label_names"] == sorted(LABELS)


class Tuning:
    """A method whose Release holds a tuned model, which is the base model as it is."""

    def __init__(self) -> None:
        self.needs = SimpleNamespace(generation_model=True)
        self.asked: list[CausalModel] = []

    def tuned_model(self, _release: us.Release, base: CausalModel) -> Any:
        self.asked.append(base)

        def rows(texts: Sequence[str], _labels: Sequence[str] | None) -> list[TokenRow]:
            return [TokenRow([1], np.array(base.encode(text), dtype=np.int32)) for text in texts]

        return SimpleNamespace(causal=base, network=base.network, rows=rows, active=nullcontext)


@pytest.fixture
def tuned(tmp_path: Path, made: OutputFolder, monkeypatch: pytest.MonkeyPatch) -> Tuning:
    """The run's Release says that it was tuned on the model in ``tiny``."""
    spec = f"hf:{make_llama(tmp_path / 'tiny')}"
    named = {"private model": {"source": "hf:tiny", "sha256": load_causal(spec, device="cpu").fingerprint}}
    path = made.shareable / "dp-kps.release"
    release = load_release(path)
    replace(release, statement=replace(release.statement, public_inputs=named)).save(path)
    found = Tuning()
    monkeypatch.setattr(import_module("understudy.evaluate.evaluate"), "method_of", lambda _made: found)
    return found


def released(evaluation: Evaluation) -> dict[str, MetricValue]:
    return {each.of: each for each in evaluation.values if each.metric.name == "released_model_perplexity"}


@pytest.mark.parametrize("held_out", [True, False])
def test_a_released_language_model_is_scored_on_its_own_base_model(
    tmp_path: Path, made: OutputFolder, tuned: Tuning, held_out: bool
) -> None:
    other = write_csv(tmp_path / "other.csv", rows(60)[40:])
    words = {"metrics": "utility", "local_model": f"hf:{tmp_path / 'tiny'}", **FEW}
    found = released(us.evaluate(tmp_path / "notes.csv", made.root, holdout=str(other) if held_out else None, **words))
    assert found.keys() == {"synthetic", "untuned"}
    assert found["synthetic"].value == found["untuned"].value is not None
    assert ("was tuned" in found["synthetic"].note) != held_out
    assert len(tuned.asked) == 1
    assert released(load_evaluation(made.evaluation_file)) == found


def test_without_the_very_base_model_one_line_says_that_its_perplexity_is_left_out(
    tmp_path: Path, made: OutputFolder, tuned: Tuning
) -> None:
    other = make_llama(tmp_path / "other", seed=1)
    for local_model, why in ((f"hf:{other}", "it was tuned on hf:tiny, not on"), ("hf:./missing", "no model folder")):
        lines: list[str] = []
        words = {"metrics": "utility", "local_model": local_model, "listener": Listener(lines.append), **FEW}
        assert released(us.evaluate(tmp_path / "notes.csv", made.root, **words)) == {}
        (line,) = (line for line in lines if "perplexity" in line)
        assert "is left out" in line
        assert why in line
    assert tuned.asked == []


def test_a_tuned_release_of_an_older_version_is_evaluated_without_its_language_model(
    tmp_path: Path, made: OutputFolder, tuned: Tuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_made: us.Release) -> Any:
        raise ReleaseError("It comes from an older version.", "Make another.")

    monkeypatch.setattr(import_module("understudy.evaluate.evaluate"), "method_of", refuse)
    lines: list[str] = []
    found = us.evaluate(tmp_path / "notes.csv", made.root, metrics="utility", listener=Listener(lines.append), **FEW)
    assert found.values
    assert any("is left out. It comes from an older version." in line for line in lines)


def test_no_base_model_is_loaded_where_it_would_not_be_used(
    tmp_path: Path, made: OutputFolder, tuned: Tuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(spec: str) -> Any:
        raise AssertionError("no model is needed for that")

    monkeypatch.setattr("understudy.models.catalog.load_causal", load)
    us.evaluate(tmp_path / "notes.csv", made.root, metrics="leakage", **FEW)
    tuned.needs = SimpleNamespace(generation_model=False)  # of a method whose Release holds no model
    us.evaluate(tmp_path / "notes.csv", made.root, metrics="utility", **FEW)


def test_every_classifier_that_can_be_named_is_known() -> None:
    assert {*CLASSIFIERS, "coral"} == set(KINDS)
    assert set(EvaluationParameters().classifiers) < set(CLASSIFIERS)
