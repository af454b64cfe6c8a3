"""SeqPATE's teachers on every engine: the same bit for bit, trained once, whoever dies meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from clinic import rows, settings, write_csv
from local_fixtures import make_llama
from numpy.typing import NDArray
from run_fixtures import little_work_of_seq_pate
from tiny_corpora import Row, bounded
from working import PLANTED, Pickling

import understudy as us
from understudy.base.errors import EngineError, PrivacyError
from understudy.methods.seq_pate import release as seq_pate_release
from understudy.methods.seq_pate import teachers
from understudy.methods.seq_pate.plan import AnswersSpec
from understudy.methods.seq_pate.teachers import (
    Faculty,
    Questions,
    Recipe,
    TeacherAnswers,
    Teachers,
    kind_of_teachers,
    require_separate_teachers,
)
from understudy.methods.shared.decoding.tuned import Instructions, TunedModel
from understudy.models import causal as causal_module
from understudy.models.causal import CausalModel
from understudy.models.lora import Trunk
from understudy.models.training import LoRA, TokenRow
from understudy.privacy.measurement import exact_sum
from understudy.run import pipeline as running
from understudy.run.engine import Call
from understudy.run.settings import run_config

RAY = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")


@pytest.fixture(autouse=True)
def little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    little_work_of_seq_pate(monkeypatch)
    monkeypatch.setattr(seq_pate_release, "_GROUP", {"cpu": 2})


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("llama"))


def faculty_of(folder: Path, kind: type[Faculty] = Faculty) -> Faculty:
    causal = CausalModel(folder, name="tiny", device="cpu", dtype="float32")
    lora = LoRA(causal, rank=4, targets=["all"], layers=1)
    tuned = TunedModel(lora, Instructions(((5, 6, 7), (5, 9))), tokens=12)
    return kind(lora, Trunk(causal, layers=1), tuned, Recipe(2, 1, 0.1, 2))


@dataclass(frozen=True, eq=False, repr=False)
class Mortal(Faculty):
    """Its process ends at the first private text that it is given, and notes every group of private texts."""

    def train(self, shards: Sequence[Sequence[TokenRow]]) -> NDArray[np.float32]:
        folder = Path(os.environ["TESTED_IN"])
        texts = [self.tuned.causal.decode(row.target.tolist()) for shard in shards for row in shard]
        if any(PLANTED in text for text in texts):
            if "DIES" in os.environ and not (folder / "died").exists():
                (folder / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            (folder / f"trained-{len(list(folder.glob('trained-*')))}-{os.getpid()}").touch()
        return super().train(shards)


class Killed(BaseException):
    """The process dies."""


def released(tmp_path: Path, llama: Path, engine: str, output: str) -> us.Release:
    write_csv(tmp_path / "notes.csv", [{**row, "note": f"{PLANTED} {row['note']}"} for row in rows(24)])
    given = {
        "method": "seq-pate",
        "private_model": f"hf:{llama}",
        "document_type": "note",
        "declared_records": 24,
        "teachers": 5,
        "private_text_tokens": 32,
        "queries": 6,
        "candidates": 8,
        "insecure_no_noise": True,
        "engine": engine,
        "output": str(tmp_path / output),
        **dict.fromkeys(("vocabulary", "vocabulary_is_public", "top_terms", "length")),
    } | ({} if engine == "in-process" else {"workers": 1})
    return running.release(run_config(settings(tmp_path, **given))).release


def bits(made: us.Release) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in made.arrays.items()}


@pytest.mark.parametrize(("engine", "dies"), [("processes", False), pytest.param("ray", True, marks=RAY)])
def test_a_run_that_is_killed_resumes_on_another_engine_whether_or_not_a_worker_dies(
    tmp_path: Path, llama: Path, monkeypatch: pytest.MonkeyPatch, engine: str, dies: bool
) -> None:
    whole = released(tmp_path, llama, "in-process", "whole")
    monkeypatch.setenv("TESTED_IN", str(tmp_path))
    monkeypatch.setattr(seq_pate_release, "Faculty", Mortal)
    with monkeypatch.context() as patch:
        original, calls = teachers._train, list[int]()

        def dying(faculty: Faculty, group: Any) -> None:
            calls.append(len(calls))
            if len(calls) >= 2:
                raise Killed
            original(faculty, group)

        patch.setattr(teachers, "_train", dying)
        patch.setattr("understudy.models.machine.worker_count", lambda _device: 1)
        with pytest.raises(Killed):
            released(tmp_path, llama, "in-process", "resumed")
    assert len(list(tmp_path.glob("trained-0-*"))) == 1
    if dies:
        monkeypatch.setenv("DIES", "once")
    resumed = released(tmp_path, llama, engine, "resumed")
    assert bits(resumed) == bits(whole)
    assert (tmp_path / "died").exists() is dies
    trained = [path.name.split("-")[2] for path in tmp_path.glob("trained-*")]
    assert len(trained) == 3, "each group once"
    assert trained.count(str(os.getpid())) == 1


def test_teachers_and_their_answers_are_the_same_in_parts(tmp_path: Path, llama: Path) -> None:
    faculty = faculty_of(llama)
    corpus = bounded([Row(f"note {number}", number % 2) for number in range(9)])
    row = TokenRow((5, 9), np.array([8, 7, 6], dtype=np.int32))
    places = np.array([0, 2], dtype=np.int32)
    query = TeacherAnswers(
        AnswersSpec(2, 3), faculty, Questions([row], np.zeros(2, np.int32), places, np.array([[9, 8, 7]] * 2, np.int32))
    )
    whole = exact_sum(query, Teachers(faculty, 5, corpus, tmp_path / "whole"))
    causal_module._again.cache_clear()
    divided = Teachers(faculty, 5, replace(corpus, engine=Pickling()), tmp_path / "parts")
    assert np.array_equal(exact_sum(query, divided), whole)
    names = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "parts").iterdir())
    for name in names:
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "parts").iterdir()} == {0o600}
    assert causal_module._again.cache_info().misses == 1, "the base model is loaded once per process"
    sent = len(cloudpickle.dumps(faculty))
    assert sent < 10_000 < faculty.lora.causal.network.num_parameters(), "and never sent"


@dataclass(frozen=True, eq=False, repr=False)
class LastBit(Faculty):
    """Of another processor."""

    def train(self, shards: Sequence[Sequence[TokenRow]]) -> NDArray[np.float32]:
        found = super().train(shards)
        found[0, 0] = np.nextafter(found[0, 0], np.float32(1))
        return found


@dataclass(frozen=True, eq=False, repr=False)
class Leaking(Faculty):
    """A teacher's gradient has a last bit of the others'."""

    def _gradient(self, *given: Any) -> Any:
        found = super()._gradient(*given)
        return found + 1e-6 * found.mean(0)


def test_teachers_of_machines_that_train_another_bit_are_not_taken(tmp_path: Path, llama: Path) -> None:
    one, other = faculty_of(llama), faculty_of(llama, LastBit)
    assert kind_of_teachers(one) == require_separate_teachers(one) == require_separate_teachers(one, Pickling())
    assert kind_of_teachers(one) != kind_of_teachers(other)
    corpus = bounded([Row("a note")])
    for faculty in (other, one):
        made = Teachers(faculty, 2, corpus, tmp_path / "same", kind=kind_of_teachers(faculty))
        (group,) = made.batches()
        (alone,) = Teachers(faculty, 2, corpus, tmp_path / made.kind).batches()
        assert np.array_equal(group.weights, alone.weights)


def test_workers_whose_teachers_change_one_another_are_refused(llama: Path) -> None:
    with pytest.raises(PrivacyError, match="change the training of others"):
        require_separate_teachers(faculty_of(llama, Leaking), Pickling())


@dataclass(frozen=True, eq=False, repr=False)
class Telling(Faculty):
    """It fails, and quotes what it was given."""

    def train(self, shards: Sequence[Sequence[TokenRow]]) -> NDArray[np.float32]:
        raise ValueError(self.tuned.causal.decode(shards[0][0].target.tolist()))


def test_a_worker_that_fails_to_train_quotes_no_text(tmp_path: Path, llama: Path) -> None:
    faculty = faculty_of(llama, Telling)
    row = faculty.tuned.row(PLANTED, 0)
    call = Call.of(lambda item: teachers._train(faculty, item))
    outcome = call((tmp_path / "group.npy", [[row], []]))
    assert isinstance(outcome.error, EngineError)
    assert PLANTED[:8] not in f"{outcome.error} {call} {outcome}"
    assert not list(tmp_path.iterdir())
