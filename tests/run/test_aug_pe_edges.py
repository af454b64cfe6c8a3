"""Private evolution of next to nothing: poor corpora and poor language models, all of which run to the end alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import COLUMNS, LABELS, FakeChat, rows, write_csv
from evolution_fixtures import evolving, varied
from run_fixtures import runs_charged

import understudy as us
from understudy.base.errors import ModelError
from understudy.ledger.store.database import MOST_BLANK
from understudy.models.types import ChatRequest, Completion
from understudy.run import pipeline as running
from understudy.run.settings import run_config

pytestmark = pytest.mark.usefixtures("embedder", "varied_chat")

CORPORA: dict[str, list[dict[str, str]]] = {
    "as usual": rows(),
    "no record": [],
    "one record": rows(1),
    "a label without a record": rows()[::2],
    "a label with one record": [*rows()[::2], rows()[1]],
    "duplicates": rows(2) * 20,
    "one word": [{**row, "note": "x"} for row in rows()],
}
MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "owners": {"owner": "clinician"},
    "noisy sizes": {"label_sizes": "noisy"},
    "three nearest": {"nearest": 3, "distance": "l2"},
    "proportional": {"selection": "proportional", "threshold": 3},
}


def cases(whats: Iterable[str], few: Iterable[str]) -> list[tuple[str, str]]:
    """All of them plainly, and a few in every mode."""
    return [("plain", what) for what in whats] + [(mode, what) for mode in MODES if mode != "plain" for what in few]


@pytest.mark.parametrize(
    ("mode", "what"), cases(CORPORA, ["no record", "a label without a record", "a label with one record"])
)
def test_a_poor_corpus_runs_to_the_end_like_any_other(tmp_path: Path, mode: str, what: str) -> None:
    write_csv(tmp_path / "notes.csv", CORPORA[what])
    own = {"private_keywords": True, "vocabulary": str(tmp_path / "terms.txt"), "vocabulary_is_public": True}
    result = running.run(run_config(evolving(tmp_path, **own, **MODES[mode], top_terms=10)))
    assert result.columns["label"] == [LABELS[0]] * 4 + [LABELS[1]] * 4
    assert result.missing == 0
    arrays = {name: (array.shape, str(array.dtype)) for name, array in result.release.arrays.items()}
    survivors = arrays.pop("survivors")
    assert survivors == ((8,), "int64")
    assert arrays == {
        **dict.fromkeys(("round", "label", "chosen"), ((48,), "int32")),
        **{"parent": ((48,), "int64"), "votes": ((48,), "float64")},
        **{"failed": ((2, 2), "int64"), "counts": ((10,), "float64")},
    }
    kept = {"diary.jsonl", "embeddings", "progress.json", "run.lock", "run.sqlite"}
    assert {path.name for path in (tmp_path / "out" / "private").iterdir()} == kept
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_votes_on_an_empty_corpus_are_noise_and_not_naught(tmp_path: Path) -> None:
    write_csv(tmp_path / "notes.csv", [])
    made = running.release(run_config(evolving(tmp_path))).release
    assert np.count_nonzero(made.arrays["votes"]) == 48
    assert "all noise" in made.noise_check.warnings[0]


def failed(_request: ChatRequest) -> Completion:
    return Completion("", "failed", error="busy")


def empty(_request: ChatRequest) -> Completion:
    return Completion("", "empty")


def white(_request: ChatRequest) -> Completion:
    return Completion(" \n\t ", "stop")


def unfilled(_request: ChatRequest) -> Completion:
    return Completion("Seen: _ and _ , _ .", "stop")


def of_one_label(request: ChatRequest) -> Completion:
    """Nothing for cardiology."""
    return varied(request) if "dermatology" in request.messages[-1].content else empty(request)


def of_the_first_only(request: ChatRequest) -> Completion:
    """No variation works."""
    return empty(request) if "Fill in" in request.messages[-1].content else varied(request)


def always_the_same(_request: ChatRequest) -> Completion:
    return Completion("Seen: heart, pulse.", "stop")


def with_half_a_character(request: ChatRequest) -> Completion:
    return Completion(f"{varied(request).text} \ud800", "stop")


NOTHING = {"empty": empty, "white": white, "unfilled": unfilled}


def release(folder: Path, **changes: Any) -> us.Release:
    return running.release(run_config(evolving(folder, **changes))).release


@pytest.mark.parametrize(("mode", "what"), cases(NOTHING, ["unfilled"]))
def test_a_language_model_without_an_answer_ends_the_run_or_leaves_a_release_of_the_same_form(
    tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat], mode: str, what: str
) -> None:
    """Empty answers may be a fault that passes; texts that are of no use are answers."""
    chat = use_chat(FakeChat(NOTHING[what]))
    if what != "unfilled":
        with pytest.raises(ModelError, match="wrote no text at all"):
            release(tmp_path, **MODES[mode])
        return
    made = release(tmp_path, **MODES[mode])
    assert {name: array.shape for name, array in made.arrays.items()} == {
        **dict.fromkeys(("round", "label", "parent", "votes", "chosen", "survivors"), (0,)),
        "failed": (2, 2),
    }
    assert made.arrays["failed"].sum() == len(chat.asked) == 2 * 24
    assert made.strings == {key: [] for key in ("texts", "prompts", "keywords-0", "keywords-1")}
    assert us.load_release(tmp_path / "out" / "release" / "aug-pe.release").digest == made.digest
    result = us.generate(made, llm="fake", records_per_label=2)
    assert (result.columns["text"], result.missing) == ([], 4)


def test_a_language_model_that_fails_throughout_ends_the_run_which_goes_on_when_it_answers(
    tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat]
) -> None:
    use_chat(FakeChat(failed))
    with pytest.raises(ModelError, match="does not answer: busy"):
        release(tmp_path)
    use_chat(FakeChat(varied))
    assert release(tmp_path).arrays["failed"].sum() == 0
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_a_label_without_a_text_gets_new_ones_in_every_round_and_leaves_the_other_alone(
    tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat]
) -> None:
    use_chat(FakeChat(of_one_label))
    result = running.run(run_config(evolving(tmp_path)))
    arrays = result.release.arrays
    assert arrays["failed"].tolist() == [[12, 0], [12, 0]]
    assert set(arrays["label"].tolist()) == {1}
    assert (result.columns["label"], result.missing) == ([LABELS[1]] * 4, 4)


def test_where_no_variation_works_the_chosen_texts_live_on(
    tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat]
) -> None:
    use_chat(FakeChat(of_the_first_only))
    values = run_config(evolving(tmp_path, rounds=3, records_per_label=5))
    for _ in range(MOST_BLANK):
        with pytest.raises(ModelError, match="wrote no text at all"):
            running.run(values)
    result = running.run(values)
    assert np.bincount(result.release.arrays["round"]).tolist() == [24, 8, 8]
    assert (len(result.records), result.missing) == (8, 2)


def test_candidates_all_alike_are_all_kept(tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat]) -> None:
    use_chat(FakeChat(always_the_same))
    result = running.run(run_config(evolving(tmp_path, insecure_no_noise=True)))
    votes = result.release.arrays["votes"]
    assert np.flatnonzero(votes).tolist() == [0, 12, 24, 28]
    assert votes[np.flatnonzero(votes)].tolist() == [20] * 4
    assert result.columns["text"] == ["Seen: heart, pulse."] * 8


def test_half_a_character_of_an_answer_harms_nobody(tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat]) -> None:
    use_chat(FakeChat(with_half_a_character))
    result = running.run(run_config(evolving(tmp_path)))
    assert len(result.records) == 8
    assert us.load_release(tmp_path / "out" / "release" / "aug-pe.release").digest == result.release.digest


def test_a_population_of_one_text(tmp_path: Path) -> None:
    (tmp_path / "notes.csv").write_text(",".join(COLUMNS) + "\n", "utf-8")
    result = running.run(run_config(evolving(tmp_path, population=1, variations=2, rounds=1, records_per_label=1)))
    assert len(result.records) == 2
