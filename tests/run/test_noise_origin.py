"""Whether a value is private is a property of the value: no command takes a seeded one for a private one."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from clinic import flags, settings
from evolution_fixtures import evolving
from parts_method import install, parts
from run_fixtures import Command, release, run, runs_charged
from secret_fixtures import protecting

import understudy as us
from understudy.base.errors import ConfigError, PrivacyError, ResumeError
from understudy.evaluate.charged import NAME
from understudy.evaluate.metrics.results import load_released
from understudy.ledger import Ledger
from understudy.ledger.store import RunStore
from understudy.methods.registry import load_release
from understudy.privacy.guarantee import Budget
from understudy.privacy.sealed import NoiseOrigin
from understudy.release.statement import NOT_PRIVATE
from understudy.run import pipeline as running
from understudy.run.outputs import OutputFolder
from understudy.run.settings import run_config

INSECURE = [{"insecure_noise_seed": 0}, {"insecure_no_noise": True}]
INSECURE_IDS = ["seed 0", "no noise"]
insecurely = pytest.mark.parametrize("insecure", INSECURE, ids=INSECURE_IDS)


def release_folder(values: dict[str, Any]) -> Path:
    return Path(values["output"]) / "release"


def statement(values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((release_folder(values) / "statement.json").read_text("utf-8"))
    return found


def assert_all_of_one_kind(values: dict[str, Any], *, private: bool) -> None:
    """Statement, Release and every text of the folder say the same."""
    folder = OutputFolder(Path(values["output"]))
    assert statement(values)["private"] is private
    assert (NOT_PRIVATE in (folder.shareable / "statement.md").read_text("utf-8")) is not private
    for file in folder.shareable.glob("*.release"):
        assert load_release(file).statement.private is private
    if folder.synthetic_file().exists():
        column = pq.read_table(folder.provenance_file)["provenance"].to_pylist()
        stamped = {"stamp" in json.loads(each) for each in column}
        assert stamped == {not private}


# -- metrics that are released with a charge --------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path, finished: Callable[..., dict[str, Any]]) -> OutputFolder:
    values = finished(tmp_path)
    with Ledger(values["ledger"]) as ledger:
        ledger.raise_cap("notes", cap=Budget(5, "1e-6"))
    return OutputFolder(Path(values["output"]))


def evaluate(folder: Path, made: OutputFolder, **changes: Any) -> dict[str, Any]:
    """What is published in ``release/metrics.json`` after an evaluation."""
    options = {"embedder": "none", "metrics": "leakage", "charge_metrics": "0.5"}
    us.evaluate(folder / "notes.csv", made.root, **{**options, "ledger": str(folder / "ledger.sqlite"), **changes})
    found: dict[str, Any] = json.loads(made.metrics_file.read_text("utf-8"))
    return found


def counts(made: OutputFolder, noise: NoiseOrigin) -> Any:
    with RunStore.open(made.private / "metrics", noise=noise) as store:
        kept = store.value(NAME)
    assert kept is not None
    return kept["value"]


def test_the_noise_of_seed_0_cannot_be_subtracted_from_metrics_that_are_published_as_private(
    tmp_path: Path, made: OutputFolder
) -> None:
    evaluate(tmp_path, made, insecure_noise_seed=0)
    seeded = counts(made, "seeded")
    scale = 3 / 0.5  # three blocks of counts, each of sensitivity 1: labels, lengths, right answers

    def without_noise_of_seed_0(values: Any) -> Any:
        return values - np.rint(np.random.default_rng(0).laplace(0.0, scale, len(values)))

    exact = without_noise_of_seed_0(seeded)
    assert exact[:2].tolist() == [20, 20], "who knows the seed has the labels' counts"

    published = evaluate(tmp_path, made)
    assert published["sealed"]["noise"] == "system"
    private = counts(made, "system")
    assert private.tolist() != seeded.tolist()
    assert without_noise_of_seed_0(private).tolist() != exact.tolist()
    assert runs_charged(tmp_path / "ledger.sqlite") == 2, "the texts, and now the metrics"


@insecurely
def test_metrics_without_a_promise_are_never_taken_for_private_ones(
    tmp_path: Path, made: OutputFolder, insecure: dict[str, Any]
) -> None:
    first = evaluate(tmp_path, made, **insecure)
    assert first["sealed"]["noise"] != "system"
    charged = load_released(made.metrics_file)
    assert charged is not None
    assert not charged.private
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    assert evaluate(tmp_path, made)["sealed"]["noise"] == "system"
    assert runs_charged(tmp_path / "ledger.sqlite") == 2
    with pytest.raises(ResumeError, match="NOT PRIVATE must not replace"):
        evaluate(tmp_path, made, **insecure)
    charged = load_released(made.metrics_file)
    assert charged is not None
    assert charged.private


def test_what_metrics_say_of_themselves_is_read_off_the_stored_values(tmp_path: Path, made: OutputFolder) -> None:
    evaluate(tmp_path, made)
    connection = sqlite3.connect(made.private / "metrics" / "run.sqlite")
    connection.execute("UPDATE value SET noise = 'seeded' WHERE name = 'fingerprint'")
    connection.commit()
    connection.close()
    with pytest.raises(PrivacyError, match="noise is of another origin"):
        evaluate(tmp_path, made)


# -- runs of every method ---------------------------------------------------------------------------------------------


METHODS: dict[str, Callable[..., dict[str, Any]]] = {
    "dp-kps with a guide": partial(settings, guide=True),
    "guided-evolution": partial(evolving, method="guided-evolution"),
    "aug-pe": evolving,
    "sec-pe": protecting,
    "in-parts": parts,
}


@pytest.fixture
def of_method(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    for fixture in ("embedder", "varied_chat"):
        request.getfixturevalue(fixture)
    if request.param == "in-parts":
        install(monkeypatch.setattr)
    return lambda **changes: METHODS[request.param](tmp_path, **changes)


each_method = pytest.mark.parametrize("of_method", METHODS, indirect=True)


@each_method
def test_a_run_with_a_promise_takes_up_nothing_of_a_seeded_one_and_is_replaced_by_none(
    of_method: Callable[..., dict[str, Any]],
) -> None:
    values = of_method()
    seeded = run(values, insecure_noise_seed=0).release
    assert_all_of_one_kind(values, private=False)
    assert runs_charged(values["ledger"]) == 0
    private = run(values).release
    assert_all_of_one_kind(values, private=True)
    assert private.digest != seeded.digest
    for insecure in INSECURE:
        with pytest.raises(ResumeError, match="NOT PRIVATE must not replace"):
            run(values, **insecure)
    assert_all_of_one_kind(values, private=True)
    assert run(values).release.digest == private.digest
    assert runs_charged(values["ledger"]) == 1


def test_a_seeded_run_takes_up_nothing_of_one_without_noise(tmp_path: Path) -> None:
    values = settings(tmp_path)
    run(values, insecure_no_noise=True)
    with pytest.raises(ResumeError, match=r"insecure_no_noise: true became false.*fresh to start over\.") as refused:
        run(values, insecure_noise_seed=0)
    assert "charges" not in str(refused.value), "nothing was charged, and nothing would be"
    run(values, insecure_noise_seed=0, fresh=True)
    with pytest.raises(ResumeError, match="insecure_noise_seed: 0 became 3"):
        run(values, insecure_noise_seed=3)
    with pytest.raises(ResumeError, match="insecure_noise_seed: 0 became null"):
        run(values, insecure_no_noise=True)
    assert_all_of_one_kind(values, private=False)
    assert runs_charged(values["ledger"]) == 0


def test_a_private_run_that_is_killed_before_its_release_leaves_the_seeded_results_under_their_own_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = settings(tmp_path)
    run(values, insecure_noise_seed=0)

    with monkeypatch.context() as patch:
        patch.setattr(OutputFolder, "write_release", _killed)
        with pytest.raises(KeyboardInterrupt):
            run(values)
    assert_all_of_one_kind(values, private=False)
    with pytest.raises(ResumeError, match="NOT PRIVATE must not replace"):
        run(values, insecure_noise_seed=0)
    run(values)
    assert_all_of_one_kind(values, private=True)
    assert runs_charged(values["ledger"]) == 1


@pytest.mark.parametrize("stage", ["begun", "finished"])
def test_a_seeded_store_that_is_moved_into_a_private_run_s_place_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    values = settings(tmp_path)
    seeded, private = tmp_path / "seeded" / "private", tmp_path / "out" / "private"
    with monkeypatch.context() as patch:
        if stage == "begun":
            patch.setattr(OutputFolder, "write_release", _killed)
        with suppress(KeyboardInterrupt):
            run(values, insecure_noise_seed=0, output=str(tmp_path / "seeded"))
    run(values)
    (release_folder(values) / "dp-kps.release").unlink()
    shutil.copy(seeded / "insecure.sqlite", private / "run.sqlite")
    with pytest.raises(PrivacyError, match="noise is of another origin"):
        run(values)
    assert statement(values)["sealed"]["noise"] == "system"
    assert runs_charged(values["ledger"]) == 1


def _killed(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_private_store_that_is_moved_into_a_seeded_run_s_place_is_refused(tmp_path: Path) -> None:
    values = settings(tmp_path)
    run(values)
    other = {**values, "output": str(tmp_path / "other"), "insecure_noise_seed": 0}
    run(other)
    shutil.copy(tmp_path / "out" / "private" / "run.sqlite", tmp_path / "other" / "private" / "insecure.sqlite")
    with pytest.raises(PrivacyError, match="noise is of another origin"):
        run(other)


def test_a_seeded_release_that_is_put_in_a_private_run_s_place_is_refused(tmp_path: Path) -> None:
    values = settings(tmp_path)
    run(values)
    run(values, insecure_noise_seed=0, output=str(tmp_path / "seeded"))
    shutil.copy(tmp_path / "seeded" / "release" / "dp-kps.release", release_folder(values))
    with pytest.raises(PrivacyError, match="not the one that this run made"):
        run(values)
    (release_folder(values) / "dp-kps.release").unlink()
    run(values)
    assert_all_of_one_kind(values, private=True)
    assert runs_charged(values["ledger"]) == 1


def test_continuing_a_seeded_release_without_the_flag_is_a_run_that_never_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch.setattr)
    values = parts(tmp_path, texts_per_batch=1)
    seeded = release(values, insecure_noise_seed=0)
    with pytest.raises(ConfigError, match="This output folder contains no run"):
        running.release(run_config({**values, "texts_per_batch": 3}), resume=True)
    more = {**values, "texts_per_batch": 3, "insecure_noise_seed": 0}
    continued = running.release(run_config(more), resume=True).release
    assert continued.statement.private is seeded.statement.private is False
    assert runs_charged(values["ledger"]) == 0


# -- what comes after -------------------------------------------------------------------------------------------------


@insecurely
def test_texts_of_a_release_without_a_promise_carry_the_stamp_whoever_generates_them(
    tmp_path: Path, understudy: Command, insecure: dict[str, Any]
) -> None:
    made = running.release(run_config(settings(tmp_path, records_per_label=None, **insecure)))
    assert made.folder is not None
    words = {"llm": "none", "records": 4, "output": str(tmp_path / "texts")}
    understudy("generate", str(made.folder.release_file("dp-kps")), *flags(words), code=0)
    assert_all_of_one_kind(words, private=False)
    said = understudy("show", str(made.folder.release_file("dp-kps")))
    assert NOT_PRIVATE in said.out


def test_a_folder_of_texts_takes_on_the_promise_of_what_is_generated_there(tmp_path: Path) -> None:
    private = release(settings(tmp_path, records_per_label=None))
    seeded = release(settings(tmp_path, records_per_label=None, insecure_noise_seed=0, output=str(tmp_path / "seeded")))
    words = {"llm": "none", "records": 4, "output": str(tmp_path / "texts")}
    running.generate(seeded, **words)
    assert_all_of_one_kind(words, private=False)
    running.generate(private, **words)
    assert_all_of_one_kind(words, private=True)
    with pytest.raises(ResumeError, match="NOT PRIVATE must not replace"):
        running.generate(seeded, **words)
    assert_all_of_one_kind(words, private=True)
    running.generate(seeded, **words, fresh=True)
    assert_all_of_one_kind(words, private=False)
