"""A private text is embedded once: by the release, a resumed one, the guide, the evaluation and the report together."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from clinic import settings
from evolution_fixtures import Counting, WordEmbedder, evolving
from run_fixtures import release, run, runs_charged
from test_copies import stopped
from test_planted_strings import PLANT, assert_clean, assert_clean_folder, planted_settings

import understudy as us
from understudy.ledger import Ledger
from understudy.ledger.store import RunStore
from understudy.models.vectors import _TRIED, FOLDER
from understudy.privacy.guarantee import Budget
from understudy.privacy.unit import Unit

pytestmark = pytest.mark.usefixtures("varied_chat")


def notes(folder: Path) -> list[str]:
    with (folder / "notes.csv").open(encoding="utf-8", newline="") as file:
        return [row["note"] for row in csv.DictReader(file)]


def often(embedder: Counting, folder: Path) -> set[int]:
    """How often each private text was embedded since it was asked before."""
    found = {embedder.seen.count(note) for note in notes(folder)}
    embedder.seen.clear()
    return found


@pytest.mark.parametrize("method", ["aug-pe", "guided-evolution"])
def test_the_release_its_guide_the_evaluation_and_the_report_embed_the_private_texts_once(
    tmp_path: Path, embedder: Counting, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = evolving(tmp_path, method=method, **({"guide": True} if method == "aug-pe" else {}))
    run(values)
    assert often(embedder, tmp_path) == {1}
    evaluated = {"seeds": 1, "classifiers": "embedding", "metrics": "fidelity,utility,leakage"}
    first = us.evaluate(tmp_path / "notes.csv", values["output"], **evaluated)
    assert often(embedder, tmp_path) == {0}
    with monkeypatch.context() as patch:
        patch.setattr("understudy.models.vectors.CACHE_GB", 0)
        again = us.evaluate(tmp_path / "notes.csv", values["output"], **evaluated)
    assert again.values == first.values
    assert often(embedder, tmp_path) == {1}
    us.report(values["output"], embedder="fake")
    assert set(embedder.seen) <= set(_TRIED)  # the evaluation embedded the synthetic texts


def test_charged_metrics_and_those_that_stay_private_share_the_vectors(tmp_path: Path, embedder: Counting) -> None:
    values = settings(tmp_path)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_dataset("notes", cap=Budget(9, "1e-6"), unit=Unit())
    run(values)
    assert often(embedder, tmp_path) == {0}
    us.evaluate(
        *(tmp_path / "notes.csv", values["output"]),
        **{"ledger": values["ledger"], "charge_metrics": "0.5", "charged_classifiers": "embedding"},
        **{"seeds": 1, "classifiers": "embedding"},
    )
    assert often(embedder, tmp_path) == {1}


@pytest.mark.parametrize("gone", [False, True], ids=["scratch kept", "scratch gone"])
def test_a_resumed_evolution_embeds_nothing_again(tmp_path: Path, embedder: Counting, gone: bool) -> None:
    values = evolving(tmp_path)
    stopped(values, RunStore, "keep", name="votes-1")
    assert often(embedder, tmp_path) == {1}
    if gone:
        shutil.rmtree(tmp_path / "out" / "private" / "scratch")
    run(values)
    assert often(embedder, tmp_path) == {0}
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_without_the_folder_it_embeds_them_again_and_ends_the_same(
    tmp_path: Path, embedder: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for name, gigabytes in (("kept", 4), ("none", 0), ("tiny", 1e-9)):
        (tmp_path / name).mkdir()
        monkeypatch.setattr("understudy.models.vectors.CACHE_GB", gigabytes)
        values = evolving(tmp_path / name, insecure_noise_seed=1)
        stopped(values, RunStore, "keep", name="votes-1")
        shutil.rmtree(tmp_path / name / "out" / "private" / "scratch")
        results.append(run(values))
        assert often(embedder, tmp_path / name) == ({1} if name == "kept" else {2})
        assert (tmp_path / name / "out" / "private" / FOLDER).exists() == (name != "none")
    assert results[0].columns["note"] == results[1].columns["note"] == results[2].columns["note"]


@pytest.mark.parametrize(("gigabytes", "times"), [(4, 1), (0, 2)])
def test_votes_and_guide_share_the_vectors_also_without_an_output_folder_and_would_not_without_the_cache(
    tmp_path: Path, embedder: Counting, monkeypatch: pytest.MonkeyPatch, gigabytes: float, times: int
) -> None:
    monkeypatch.setattr("understudy.models.vectors.CACHE_GB", gigabytes)
    release(evolving(tmp_path, output=None, records_per_label=None, guide=True))
    assert often(embedder, tmp_path) == {times}


def test_no_planted_text_is_among_the_vectors_nor_any_vector_in_the_release(tmp_path: Path, embedder: Counting) -> None:
    values = planted_settings(tmp_path, guide=True, llm="none")
    run(values)
    us.evaluate(tmp_path / "notes.csv", values["output"], max_bad_rows=0.05, seeds=1, classifiers="embedding")
    folder = tmp_path / "out" / "private" / FOLDER
    assert sum(PLANT in text for text in embedder.seen) >= 60
    assert (folder / "vectors.sqlite").stat().st_size
    assert_clean_folder(folder)
    assert_clean_folder(tmp_path / "out" / "release")
    assert not [path for path in (tmp_path / "out" / "release").rglob("*") if path.name == "vectors.sqlite"]
    some = next(text for text in embedder.seen if PLANT in text)
    vector = WordEmbedder().embed([some]).tobytes()
    for path in (tmp_path / "out" / "release").iterdir():
        assert vector not in path.read_bytes()
    assert_clean(str(list(folder.iterdir())), "a name")
