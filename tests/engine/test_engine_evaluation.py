"""Evaluation on engines: the same numbers, from texts that workers embedded, once."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from clinic import settings
from evolution_fixtures import WordEmbedder
from run_fixtures import Said, runs_charged
from working import ByNeighbour, Pickling, Recording

import understudy as us
from understudy.base.errors import EngineError, ModelError
from understudy.run import pipeline as running
from understudy.run.settings import run_config
from understudy.run.working import embedding_on


@pytest.fixture
def made(tmp_path: Path) -> dict[str, Any]:
    """The settings of a whole run without a language model."""
    values = settings(tmp_path)
    running.run(run_config(values))
    return values


def use(embedder: WordEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda _spec: embedder)


def use_pickling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every engine be one of this process."""
    monkeypatch.setattr(
        import_module("understudy.evaluate.evaluate"), "open_engine", lambda _config, _scratch: nullcontext(Pickling())
    )


def evaluated(made: dict[str, Any], **changes: Any) -> us.Evaluation:
    words = {"metrics": "fidelity", "charge_metrics": "0.5", "charged_classifiers": "embedding", "seeds": 1}
    return us.evaluate(made["data"], made["output"], **{**words, "ledger": made["ledger"], **changes})


def released(made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(made["output"], "release", "metrics.json").read_text("utf-8"))
    return found


def test_an_evaluation_is_the_same_in_other_processes_and_they_embed_once(
    made: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "processes").mkdir()
    embedder = Recording(tmp_path / "processes")
    use(embedder, monkeypatch)

    def measured(**changes: Any) -> tuple[Any, ...]:
        found = evaluated(made, insecure_no_noise=True, fresh=True, **changes)
        return found.values, found.overview, released(made)["values"], released(made)["trusted"]

    with monkeypatch.context() as patch:
        patch.setattr("understudy.models.vectors.CACHE_GB", 0)
        here = measured()
    assert embedder.processes() == {os.getpid()}
    assert measured(engine="processes", workers=2) == here
    workers = embedder.processes()
    assert workers
    assert os.getpid() not in workers, "the command's own process embeds no real text"
    assert measured() == here
    assert not embedder.processes(), "what the workers embedded is kept"
    assert not list(Path(made["output"], "private").glob("scratch*"))


def test_vectors_come_back_in_the_order_of_their_texts() -> None:
    embedder = WordEmbedder()
    there = embedding_on(Pickling(), embedder)
    assert there is not None
    for count in (0, 1, 8, 100):
        here = embedder.embed(texts := [f"note {number} of them" for number in range(count)])
        found = there.embed(texts)
        assert (found.tobytes(), found.shape) == (here.tobytes(), here.shape)


def test_workers_are_tried_before_metrics_are_charged(made: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    use(ByNeighbour(), monkeypatch)
    use_pickling(monkeypatch)
    with pytest.raises(ModelError, match="change with the other texts"):
        evaluated(made, engine="processes")
    assert runs_charged(made["ledger"]) == 1, "the run's own"


@pytest.mark.parametrize("embedder", ["words", "none"])
def test_a_cluster_that_saw_the_real_texts_is_named(
    embedder: str, made: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(WordEmbedder(), monkeypatch)
    use_pickling(monkeypatch)
    words = {"embedder": embedder, "charged_classifiers": "tf-idf", "insecure_no_noise": True}
    evaluated(made, engine="ray", **words)
    assert ["Ray cluster" in each for each in released(made)["trusted"]] == [True] * (embedder == "words")


def test_an_engine_that_is_not_there_is_told_before_the_charge(
    made: dict[str, Any], monkeypatch: pytest.MonkeyPatch, understudy: Any
) -> None:
    said: Said = understudy("evaluate", made["data"], made["output"], "--workers", "2", "--charge-metrics", "1")
    assert said.code
    assert "no engine" in said.err
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(EngineError, match="install"):
        evaluated(made, engine="ray")
    assert runs_charged(made["ledger"]) == 1, "the run's own"
