"""seq-pate from a file to texts with a tiny model: charges, rounds, resuming, and what is told before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import rows, write_csv
from local_runs import PLANT, local_run
from run_fixtures import files_holding, little_work_of_seq_pate, runs_charged

import understudy as us
from understudy.base.errors import ConfigError, CorpusError
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.registry import load_release
from understudy.methods.seq_pate import release as seq_pate_release
from understudy.methods.seq_pate.plan import SeqPATEParameters
from understudy.methods.seq_pate.release import require_rare_phrases
from understudy.methods.seq_pate.student import Student
from understudy.methods.seq_pate.teachers import Faculty, TeacherAnswers, Teachers
from understudy.privacy.unit import Unit
from understudy.run.pipeline import generate, release, run
from understudy.run.settings import RunConfig, run_config

Configured = Callable[..., RunConfig]


@pytest.fixture(autouse=True)
def little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    little_work_of_seq_pate(monkeypatch)


SMALL: dict[str, Any] = {
    **{"method": "seq-pate", "declared_records": 24, "teachers": 6, "queries": 10, "rounds": 2, "candidates": 8},
    "lora_rank": 4,
}


@pytest.fixture
def config(tmp_path: Path, llama: Path) -> Configured:
    return lambda **changes: run_config(local_run(tmp_path, llama, **{**SMALL, **changes}))


def test_one_charge_and_the_texts_come_of_the_student(config: Configured, tmp_path: Path, llama: Path) -> None:
    result = run(config())
    assert result.statement.private
    assert len(result.records) == 8
    again = run(config())
    assert again.release.digest == result.release.digest
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    assert files_holding(tmp_path / "out", PLANT.encode()) == []
    made = load_release(tmp_path / "out" / "release" / "seq-pate.release")
    assert made.arrays["answers"].shape == (10, 8)
    assert any(np.any(array) for name, array in made.arrays.items() if name.endswith("lora_B.weight"))
    more = generate(made, private_model=f"hf:{llama}", records=30, output=str(tmp_path / "more"), seed=3)
    assert len(more.records) == 30


@pytest.mark.parametrize(
    "changes",
    [
        {"answers": "votes", "student_loss": "top-answer", "candidate_filter": "top-k"},
        {"noise": "laplace", "delta": "0", "ask": "all", "pseudo_source": "base", "candidate_filter": "none"},
        {"label_sizes": "noisy", "noise": "laplace", "student_loss": "pseudo-labels", "learns": "all"},
        {"owner": "clinician", "declared_records": 6, "queries": 2000},
    ],
)
def test_every_variant_runs_to_its_end(config: Configured, changes: dict[str, Any]) -> None:
    result = run(config(**changes))
    assert result.statement.private
    assert len(result.records) == 8


class Killed(BaseException):
    """The process dies."""


@pytest.fixture
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried and timed before the charge calls what these tests count."""
    monkeypatch.setattr("understudy.methods.seq_pate.release.require_separate_teachers", lambda _faculty: "")
    monkeypatch.setattr("understudy.methods.seq_pate.release._seconds", lambda *_, **__: [])


@pytest.mark.usefixtures("no_trial")
@pytest.mark.parametrize(
    ("owner", "name", "dies_at", "then"),
    [
        (Faculty, "train", 2, 1),  # of two groups, one of which is there
        (TeacherAnswers, "of_batch", 4, 2),  # in the second round, which is asked anew: nobody saw an answer
        (Student, "learn", 1, 2),  # in the first round
        (Student, "learn", 2, 1),  # in the second
        (Student, "write", 2, 1),
        (Student, "choose", 2, 1),
    ],
)
def test_a_killed_run_goes_on_where_it_was(
    config: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, dies_at: int, then: int
) -> None:
    original, calls = getattr(owner, name), []

    def dying(self: Any, *given: Any, **named: Any) -> Any:
        calls.append(name)
        if len(calls) == dies_at:
            raise Killed
        return original(self, *given, **named)

    monkeypatch.setattr("understudy.models.machine.worker_count", lambda _device: 1)
    monkeypatch.setattr(owner, name, dying)
    with pytest.raises(Killed):
        release(config())
    before = len(calls)
    made = release(config()).release
    assert len(calls) - before == then, "nothing that was stored is made again"
    assert made.arrays["answers"].shape == (10, 8)
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    assert made.statement.private


def test_answers_that_are_noise_are_called_so(config: Configured) -> None:
    made = release(config()).release
    check = made.noise_check
    found = {each.name: each.value for each in check.entries}
    assert found["answer_noise"] > 0.5
    assert found["clear_answers"] < 0.5
    assert made.statement.usefulness.startswith("Noise")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"candidates": 1000}, "1000 candidates are asked for, but the model has only 259 tokens"),
        ({"candidate_filter": "none", "queries": 100_000}, "do not fit into a Release"),
        ({"prefixes": "prefixes.txt"}, "must not be made from private data"),
        ({"prefixes": "prefixes.txt", "prefixes_are_public": True}, "is empty"),
        ({"prefixes": "long.txt", "prefixes_are_public": True}, "as long as a whole text"),
        ({"prefixes": "missing.txt", "prefixes_are_public": True}, "cannot be read"),
    ],
)
def test_what_public_facts_tell_is_told_before_the_charge(
    config: Configured, tmp_path: Path, changes: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prefixes.txt").write_text("\n \n")
    (tmp_path / "long.txt").write_text("word " * 400)
    with pytest.raises(ConfigError, match=problem):
        release(config(**changes))
    assert runs_charged(tmp_path / "ledger.sqlite") == 0


def test_prefixes_begin_the_pseudo_sentences_and_are_named(config: Configured, tmp_path: Path) -> None:
    (tmp_path / "prefixes.txt").write_text("Seen\n\nThe\n")
    more = {"prefixes": str(tmp_path / "prefixes.txt"), "prefixes_are_public": True, "student_loss": "published"}
    made = release(config(**more)).release
    assert set(made.statement.public_inputs["prefixes"]) == {"source", "sha256"}
    assert made.parameters["prefixes"] == "prefixes.txt"
    texts = np.split(made.arrays["pseudo_tokens"], np.cumsum(made.arrays["pseudo_lengths"])[:-1])
    assert len({tuple(each[:3].tolist()) for each in texts}) == 2


def test_a_promise_for_phrases_is_checked_and_stated(config: Configured, tmp_path: Path) -> None:
    file = tmp_path / "phrases.txt"
    file.write_text(f"{PLANT}\nanother phrase\n")
    with pytest.raises(CorpusError, match="A phrase is in more records than the 3 declared") as told:
        release(config(phrases=str(file), phrase_shards=3))
    assert PLANT not in str(told.value)
    assert runs_charged(tmp_path / "ledger.sqlite") == 0
    made = release(config(phrases=str(file), phrase_shards=24)).release
    assert any(note.startswith("Phrases: ") and "24 records" in note for note in made.statement.notes)
    assert "phrases" not in made.parameters
    assert files_holding(tmp_path / "out" / "release", b"phrases.txt") == []


def test_phrases_are_counted_in_all_records_of_an_owner_whichever_are_used(config: Configured, tmp_path: Path) -> None:
    """Which of them are used follows from a key that comes with the charge, after the check."""
    (tmp_path / "phrases.txt").write_text(f"{PLANT}\n")
    write_csv(
        tmp_path / "notes.csv",
        [
            {**row, "clinician": f"owner {number % 6}", "note": f"{PLANT if number < 6 else ''} {row['note']}"}
            for number, row in enumerate(rows(60))
        ],
    )
    owners = {"owner": "clinician", "max_records_per_owner": 1, "declared_records": 6}
    with pytest.raises(CorpusError, match="in more owners than the 5 declared"):
        release(config(phrases=str(tmp_path / "phrases.txt"), phrase_shards=5, **owners))


@pytest.mark.parametrize(
    ("texts", "options"),
    [
        (["Seen\nJohn Smith.", "Seen today: John Smith."], {"record_columns": ["note", "plan"]}),
        (['He said "stop" now.', 'He said "stop" now, again.'], {"record_columns": ["note", "plan"]}),
        (["Call\nplan: now.", "Call plan: now!"], {"text": ["note", "plan"]}),
    ],
)
def test_a_phrase_counts_however_it_is_written(tmp_path: Path, texts: list[str], options: dict[str, Any]) -> None:
    (tmp_path / "phrases.txt").write_text('John Smith\nHe said "stop" now\nCall plan: now\n')
    parameters = SeqPATEParameters(declared_records=10, phrases=str(tmp_path / "phrases.txt"), phrase_shards=1)

    def check(notes: list[str]) -> None:
        corpus = us.read_corpus([{"note": note, "plan": "Rest."} for note in notes], **options)
        json_records = bool(corpus.schema.record_columns)
        require_rare_phrases(parameters, BoundedCorpus(corpus, Unit(), b"", json_records, form=corpus.schema.form))

    check(texts[:1])
    with pytest.raises(CorpusError, match="in more records than the 1 declared"):
        check(texts)


@pytest.mark.usefixtures("no_trial")
def test_teachers_of_a_run_that_goes_on_elsewhere_are_in_groups_of_one_size(
    config: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU the default is another number of teachers in one pass than on a GPU, where the run was killed."""
    seen, learn, calls = list[Any](), Student.learn, list[int]()

    def dying(self: Student, *given: Any, **named: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == 1:  # after the first round's answers
            raise Killed
        return learn(self, *given, **named)

    monkeypatch.setattr(seq_pate_release, "_GROUP", {"cpu": 4})
    with monkeypatch.context() as patch:
        patch.setattr(Student, "learn", dying)
        with pytest.raises(Killed):
            release(config())
    monkeypatch.setattr(seq_pate_release, "_GROUP", {"cpu": 3})
    original = Teachers.batches

    def watched(self: Teachers) -> Any:
        seen.append(list(original(self)))
        return iter(seen[-1])

    monkeypatch.setattr(Teachers, "batches", watched)
    release(config())
    assert seen
    for groups in seen:
        assert [(len(each.weights), each.real) for each in groups] == [(3, 3), (3, 3)]
