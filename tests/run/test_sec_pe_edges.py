"""Secret-protected evolution of next to nothing: poor corpora and poor language models, which run to the end alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import LABELS, FakeChat
from evolution_fixtures import varied
from run_fixtures import runs_charged
from secret_fixtures import protecting, secret_rows

import understudy as us
from understudy.base.errors import ModelError
from understudy.corpus import read_corpus
from understudy.corpus.secrets import incidence, secret_finder
from understudy.ledger.store.database import MOST_BLANK
from understudy.models.types import ChatRequest, Completion
from understudy.run import pipeline as running
from understudy.run.settings import run_config

pytestmark = pytest.mark.usefixtures("embedder", "varied_chat")

CORPORA: dict[str, list[dict[str, str]]] = {
    "as usual": secret_rows(),
    "no record": [],
    "one record": secret_rows(1),
    "a label without a record": secret_rows()[::2],
    "a label with one record": [*secret_rows()[::2], secret_rows()[3]],
    "duplicates": [secret_rows()[3], secret_rows()[7]] * 20,
    "one word": [{**row, "note": "x"} for row in secret_rows()],
    "no secret": secret_rows()[3::4],
}
MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "some records, other choices": {
        **{"inclusion": 0.3, "public_label": "department"},
        **{"selection": "proportional", "threshold": 3, "rounds": 1},
    },
    "public incidence": {"incidence": "public"},
    "free records": {
        "incidence": "public",
        "records_without_secrets_are_public": True,
        "public_corpus": None,
        "public_corpus_is_public": None,
        "clusters": 1,
    },
}
SHAPES = {"sums-1": (17,), "sizes": (), "centres": (16,), "public_centres": (16,), "public_sizes": ()}


@pytest.mark.parametrize("what", CORPORA)
@pytest.mark.parametrize("mode", MODES)
def test_a_poor_corpus_runs_to_the_end_like_any_other(tmp_path: Path, what: str, mode: str) -> None:
    values = protecting(tmp_path, table=CORPORA[what], **MODES[mode])
    if "incidence" in values:
        corpus = read_corpus(values["data"], text="note", label="department", labels=LABELS)
        file = tmp_path / "incidence.parquet"
        incidence(corpus, secret_finder(corpus, detectors=["email"])).write(file)
        values["incidence_file"] = str(file)
    no_secret = what in ("no record", "duplicates", "one word", "no secret")
    if "incidence" in values and no_secret:  # which is public then, and no accident of the table
        with pytest.raises(us.UnderstudyError, match="holds no secret"):
            running.run(run_config(values))
        assert runs_charged(tmp_path / "ledger.sqlite") == 0
        return
    if "public_corpus" not in values and what in ("one record", "a label without a record"):
        pytest.skip("there are no free records to make clusters of")
    result = running.run(run_config(values))
    assert result.columns["label"] == [LABELS[0]] * 4 + [LABELS[1]] * 4
    assert result.missing == 0
    arrays = {name: array.shape for name, array in result.release.arrays.items()}
    assert arrays == {name: (2, values["clusters"], *shape) for name, shape in SHAPES.items()}
    assert np.count_nonzero(result.release.arrays["sums-1"]) == np.prod(arrays["sums-1"]), "noise on every coordinate"
    kept = {"diary.jsonl", "embeddings", "progress.json", "run.lock", "run.sqlite"}
    assert {path.name for path in (tmp_path / "out" / "private").iterdir()} == kept
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def failed(_request: ChatRequest) -> Completion:
    return Completion("", "failed", error="busy")


def empty(_request: ChatRequest) -> Completion:
    return Completion("", "empty")


def of_one_label(request: ChatRequest) -> Completion:
    """Nothing for cardiology."""
    return varied(request) if "dermatology" in request.messages[-1].content else empty(request)


def of_the_first_only(request: ChatRequest) -> Completion:
    """No variation works."""
    return empty(request) if "Fill in" in request.messages[-1].content else varied(request)


def always_the_same(_request: ChatRequest) -> Completion:
    return Completion("Seen: heart, pulse.", "stop")


@pytest.mark.parametrize(("reply", "what"), [(failed, "does not answer"), (empty, "wrote no text at all")])
def test_a_language_model_without_an_answer_is_one_clear_error_and_the_release_stands(
    tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat], reply: Callable[[ChatRequest], Completion], what: str
) -> None:
    use_chat(FakeChat(reply))
    with pytest.raises(ModelError, match=what):
        running.run(run_config(protecting(tmp_path)))
    made = us.load_release(tmp_path / "out" / "release" / "sec-pe.release")
    use_chat(FakeChat(varied))
    assert len(us.generate(made, llm="fake", records_per_label=2).records) == 4
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_a_label_without_a_text_leaves_the_other_alone(
    tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat]
) -> None:
    use_chat(FakeChat(of_one_label))
    result = running.run(run_config(protecting(tmp_path)))
    assert (result.columns["label"], result.missing) == ([LABELS[1]] * 4, 4)


def test_where_no_variation_works_the_chosen_texts_live_on(
    tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat]
) -> None:
    use_chat(FakeChat(of_the_first_only))
    values = run_config(protecting(tmp_path, rounds=3, records_per_label=5))
    for _ in range(MOST_BLANK):
        with pytest.raises(ModelError, match="wrote no text at all"):
            running.run(values)
    result = running.run(values)
    assert (len(result.records), result.missing) == (8, 2)


def test_candidates_all_alike_are_all_kept(tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat]) -> None:
    use_chat(FakeChat(always_the_same))
    assert running.run(run_config(protecting(tmp_path))).columns["text"] == ["Seen: heart, pulse."] * 8


def test_fewer_records_than_the_population_evolve_fewer(tmp_path: Path, varied_chat: FakeChat) -> None:
    result = running.run(run_config(protecting(tmp_path, population=50, records_per_label=1, rounds=1)))
    assert len(result.records) == 2
    assert len(varied_chat.asked) == 2 * 3
