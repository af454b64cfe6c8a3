"""Evolution of next to nothing: poor corpora and poor language models, all of which run to the end alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import LABELS, FakeChat, rows, write_csv
from evolution_fixtures import evolving, varied
from run_fixtures import UseChat, release, run, runs_charged
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
KEPT = {"diary.jsonl", "embeddings", "progress.json", "run.lock", "run.sqlite"}


def corpora(table: list[dict[str, str]], later: int) -> dict[str, list[dict[str, str]]]:
    """``later`` is a row of the other department."""
    return {
        "as usual": table,
        "no record": [],
        "one record": table[:1],
        "a label without a record": table[::2],
        "a label with one record": [*table[::2], table[later]],
        "duplicates": [table[later], table[later + 4]] * 20,
        "one word": [{**row, "note": "x"} for row in table],
    }


CORPORA = corpora(rows(), 1)
OF_SECRETS = {**corpora(secret_rows(), 3), "no secret": secret_rows()[3::4]}
MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "owners": {"owner": "clinician"},
    "noisy sizes": {"label_sizes": "noisy"},
    "three nearest": {"nearest": 3, "distance": "l2"},
    "proportional": {"selection": "proportional", "threshold": 3},
}
MODES_OF_SECRETS: dict[str, dict[str, Any]] = {
    "plain": {},
    "some records, other choices": {
        **{"inclusion": 0.3, "public_label": "department"},
        **{"selection": "proportional", "threshold": 3, "rounds": 1},
    },
    "public incidence": {"incidence": "public"},
    "free records": {
        **{"incidence": "public", "records_without_secrets_are_public": True, "clusters": 1},
        **{"public_corpus": None, "public_corpus_is_public": None},
    },
}
SHAPES = {"sums-1": (17,), "sizes": (), "centres": (16,), "public_centres": (16,), "public_sizes": ()}


def cases(whats: Iterable[str], modes: Iterable[str], few: Iterable[str]) -> list[tuple[str, str]]:
    """All of them plainly, and a few in every mode."""
    return [("plain", what) for what in whats] + [(mode, what) for mode in modes if mode != "plain" for what in few]


@pytest.mark.parametrize(("mode", "what"), cases(CORPORA, MODES, ["no record", "a label with one record"]))
def test_a_poor_corpus_runs_to_the_end_like_any_other(tmp_path: Path, mode: str, what: str) -> None:
    write_csv(tmp_path / "notes.csv", CORPORA[what])
    own = {"private_keywords": True, "vocabulary": str(tmp_path / "terms.txt"), "vocabulary_is_public": True}
    result = run(evolving(tmp_path, **own, **MODES[mode], top_terms=10))
    assert result.columns["department"] == [LABELS[0]] * 4 + [LABELS[1]] * 4
    assert result.missing == 0
    arrays = {name: (array.shape, str(array.dtype)) for name, array in result.release.arrays.items()}
    assert arrays == {
        **dict.fromkeys(("round", "label", "chosen"), ((48,), "int32")),
        **{"parent": ((48,), "int64"), "votes": ((48,), "float64"), "survivors": ((8,), "int64")},
        **{"failed": ((2, 2), "int64"), "counts": ((10,), "float64")},
    }
    assert {path.name for path in (tmp_path / "out" / "private").iterdir()} == KEPT
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    if what == "no record":
        assert np.count_nonzero(result.release.arrays["votes"]) == 48, "noise, and not naught"
        assert result.release.statement.usefulness.startswith("Noise")


@pytest.mark.parametrize(
    ("mode", "what"), cases(OF_SECRETS, MODES_OF_SECRETS, ["as usual", "a label with one record", "no secret"])
)
def test_a_poor_corpus_with_secrets_runs_to_the_end_like_any_other(tmp_path: Path, what: str, mode: str) -> None:
    values = protecting(tmp_path, table=OF_SECRETS[what], **MODES_OF_SECRETS[mode])
    if "incidence" in values:
        corpus = read_corpus(values["data"], text="note", label="department", labels=LABELS)
        file = tmp_path / "incidence.parquet"
        incidence(corpus, secret_finder(corpus, detectors=["email"])).write(file)
        values["incidence_file"] = str(file)
        if what == "no secret":  # which is public then, and no accident of the table
            with pytest.raises(us.UnderstudyError, match="contains no secret"):
                run(values)
            assert runs_charged(tmp_path / "ledger.sqlite") == 0
            return
    result = run(values)
    assert result.columns["department"] == [LABELS[0]] * 4 + [LABELS[1]] * 4
    assert result.missing == 0
    arrays = {name: array.shape for name, array in result.release.arrays.items()}
    assert arrays == {name: (2, values["clusters"], *shape) for name, shape in SHAPES.items()}
    assert np.count_nonzero(result.release.arrays["sums-1"]) == np.prod(arrays["sums-1"]), "noise on every coordinate"
    assert {path.name for path in (tmp_path / "out" / "private").iterdir()} == KEPT
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


# -- poor language models ---------------------------------------------------------------------------------------------

Use = UseChat
Made = Callable[..., dict[str, Any]]
both = pytest.mark.parametrize("made", [evolving, protecting], ids=["aug-pe", "sec-pe"])


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


NOTHING = {
    "failed": (failed, "does not answer: busy"),
    "empty": (empty, "wrote no text at all"),
    "white": (lambda _request: Completion(" \n\t ", "stop"), "wrote no text at all"),
}


@both
@pytest.mark.parametrize("what", NOTHING)
def test_a_language_model_without_an_answer_is_one_error_and_the_run_goes_on_when_it_answers(
    tmp_path: Path, use_chat: Use, made: Made, what: str
) -> None:
    reply, problem = NOTHING[what]
    use_chat(FakeChat(reply))
    with pytest.raises(ModelError, match=problem):
        run(made(tmp_path))
    use_chat(FakeChat(varied))
    assert run(made(tmp_path)).missing == 0
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


@pytest.mark.parametrize("mode", MODES)
def test_answers_that_are_of_no_use_leave_a_release_of_the_same_form(tmp_path: Path, use_chat: Use, mode: str) -> None:
    chat = use_chat(FakeChat(lambda _request: Completion("Seen: _ and _ , _ .", "stop")))
    made = release(evolving(tmp_path, **MODES[mode]))
    assert {name: array.shape for name, array in made.arrays.items()} == {
        **dict.fromkeys(("round", "label", "parent", "votes", "chosen", "survivors"), (0,)),
        "failed": (2, 2),
    }
    assert made.arrays["failed"].sum() == len(chat.asked) == 2 * 24
    assert made.strings == {key: [] for key in ("texts", "prompts", "keywords-0", "keywords-1")}
    assert us.load_release(tmp_path / "out" / "release" / "aug-pe.release").digest == made.digest
    result = us.generate(made, llm="fake", records_per_label=2)
    assert (result.columns["note"], result.missing) == ([], 4)


@both
def test_a_label_without_a_text_gets_new_ones_in_every_round_and_leaves_the_other_alone(
    tmp_path: Path, use_chat: Use, made: Made
) -> None:
    use_chat(FakeChat(of_one_label))
    result = run(made(tmp_path))
    assert (result.columns["department"], result.missing) == ([LABELS[1]] * 4, 4)
    if made is evolving:
        assert result.release.arrays["failed"].tolist() == [[12, 0], [12, 0]]
        assert set(result.release.arrays["label"].tolist()) == {1}


@both
def test_where_no_variation_works_the_chosen_texts_live_on(tmp_path: Path, use_chat: Use, made: Made) -> None:
    use_chat(FakeChat(of_the_first_only))
    values = run_config(made(tmp_path, rounds=3, records_per_label=5))
    for _ in range(MOST_BLANK):
        with pytest.raises(ModelError, match="wrote no text at all"):
            running.run(values)
    result = running.run(values)
    assert (len(result.records), result.missing) == (8, 2)
    if made is evolving:
        assert np.bincount(result.release.arrays["round"]).tolist() == [24, 8, 8]


@both
def test_candidates_all_alike_are_all_kept(tmp_path: Path, use_chat: Use, made: Made) -> None:
    use_chat(FakeChat(lambda _request: Completion("Seen: heart, pulse.", "stop")))
    result = run(made(tmp_path, insecure_no_noise=True))
    assert result.columns["note"] == ["Seen: heart, pulse."] * 8
    if made is evolving:
        votes = result.release.arrays["votes"]
        assert np.flatnonzero(votes).tolist() == [0, 12, 24, 28]
        assert votes[np.flatnonzero(votes)].tolist() == [20] * 4


def test_half_a_character_of_an_answer_harms_nobody(tmp_path: Path, use_chat: Use) -> None:
    use_chat(FakeChat(lambda request: Completion(f"{varied(request).text} \ud800", "stop")))
    result = run(evolving(tmp_path))
    assert len(result.records) == 8
    assert us.load_release(tmp_path / "out" / "release" / "aug-pe.release").digest == result.release.digest


def test_populations_of_one_text_and_larger_than_what_is_asked_for(tmp_path: Path, varied_chat: FakeChat) -> None:
    write_csv(tmp_path / "notes.csv", [])
    values = evolving(tmp_path, population=1, variations=2, rounds=1, records_per_label=1)
    assert len(run(values).records) == 2
    varied_chat.asked = []
    (tmp_path / "other").mkdir()
    values = protecting(tmp_path / "other", population=50, records_per_label=1, rounds=1)
    assert len(run(values).records) == 2
    assert len(varied_chat.asked) == 2 * 3
