"""A third party's method, found by its entry point: its flags, its run, its Release."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
from clinic import flags, rows, settings
from numpy.typing import NDArray
from pydantic import Field
from run_fixtures import Command, runs_charged

import understudy as us
from understudy.base.parameters import Parameters
from understudy.corpus.bounding import BoundedBatch, BoundedCorpus
from understudy.methods.base import Method, Released, ReleaseTools
from understudy.methods.facts import GenerationTools, PublicFacts
from understudy.methods.registry import GROUP, method_class, method_names
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import Query
from understudy.privacy.mechanisms import COUNT_GRID, NoisySum, Sensitivity
from understudy.privacy.plan import Charge, Plan
from understudy.text.records import Seed, SyntheticRecord


class WordParameters(Parameters):
    """How the word is said."""

    times: int = Field(2, ge=1)
    """How often a text says the word."""


class CountParameters(WordParameters):
    """What is counted."""

    word: str = "pain"
    """The public word whose records are counted."""


class WordCount(Query[BoundedBatch]):
    """How many records of each label hold the word."""

    sensitivity = Sensitivity.of_counts(1)

    def __init__(self, word: str, labels: int) -> None:
        self.word = word
        self._labels = labels

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._labels,)

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        counts = np.zeros(self.shape, dtype=np.int64)
        held = np.array([self.word in text for text in batch.texts], dtype=bool)
        np.add.at(counts, batch.labels[held], (COUNT_GRID // batch.shares)[held])
        return counts


class Counting(Method, CountParameters):
    """The smallest method there is: one Laplace count per label."""

    name: ClassVar[str] = "counting"
    parameters: ClassVar[type[Parameters]] = CountParameters
    generation_parameters: ClassVar[type[Parameters]] = WordParameters

    def plan(self, budget: Budget, facts: PublicFacts) -> Plan:
        mechanism = NoisySum("laplace", 1 / float(budget.epsilon), Sensitivity.of_counts(1), (facts.labels.size,))
        charge = Charge("word-count", mechanism, f"records that hold {self.word!r}")
        return Plan(self.name, facts.unit, Budget(budget.epsilon, 0), (charge,))

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        counts = tools.measure("word-count", WordCount(self.word, tools.labels.size), corpus)
        return Released({"counts": counts.value}, [self.word])

    def generate(
        self, release: us.Release, counts: Sequence[int], *, tools: GenerationTools
    ) -> Iterator[SyntheticRecord]:
        phrases = (release.terms[0],) * self.times
        return tools.writer.write([Seed(phrases, label) for label, count in enumerate(counts) for _ in range(count)])


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which a package offers ``counting`` and one that does not import."""
    module = types.ModuleType("counting_package")
    module.Counting = Counting  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "counting_package", module)
    points = [
        EntryPoint("counting", "counting_package:Counting", GROUP),
        EntryPoint("broken", "no_such_package:Method", GROUP),
        EntryPoint("dp-kps", "understudy.methods.dp_kps.method:DPKPS", GROUP),
    ]
    monkeypatch.setattr(
        "understudy.methods.registry.entry_points", lambda group: EntryPoints(points).select(group=group)
    )


def counting(folder: Path, **changes: Any) -> dict[str, Any]:
    own = {"vocabulary", "vocabulary_is_public", "top_terms", "length"}
    values = {name: value for name, value in settings(folder).items() if name not in own}
    return {**values, "method": "counting", **changes}


def test_its_flags_stand_in_the_help_and_those_of_others_do_not(understudy: Command) -> None:
    said = understudy("run", "--method", "counting", "--help").out
    assert "--word TEXT" in said
    assert "The public word whose records are counted. [default: pain]" in " ".join(said.split())
    assert "--top-terms" not in said
    assert "--word" not in understudy("run", "--help").out
    assert method_names() == ["broken", "counting", "dp-kps"]


def test_it_runs_charges_and_writes_its_release(tmp_path: Path, understudy: Command) -> None:
    understudy("run", *flags(counting(tmp_path, word="heart", times=3)), code=0)
    release = us.load_release(tmp_path / "out" / "release" / "counting.release")
    assert release.arrays["counts"].shape == (2,)
    assert release.arrays["counts"][0] > release.arrays["counts"][1]  # 8 records hold it, 0 do: the noise is about 0.5
    assert str(release.statement.budget) == "(epsilon=3, delta=0)"
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    assert understudy("run", *flags(counting(tmp_path, word="skin", times=3))).code == 8
    said = understudy("run", *flags(counting(tmp_path, times=0)), code=2)
    assert "Parameter 'times': input should be greater than or equal to 1, got 0." in said.err


def test_its_release_is_generated_from_with_its_own_flags(tmp_path: Path, understudy: Command) -> None:
    assert understudy("run", *flags(counting(tmp_path, word="heart"))).code == 0
    release, output = str(tmp_path / "out" / "release" / "counting.release"), str(tmp_path / "more")
    more = ("generate", release, "--llm", "none", "--records", "1", "--output", output)
    assert understudy(*more, "--times", "4").code == 0
    (text,) = pq.read_table(tmp_path / "more" / "release" / "synthetic.parquet")["note"].to_pylist()
    assert text == "heart, heart, heart, heart"
    said = understudy(*more, "--word", "skin", code=2)
    assert "No such option" in said.err
    assert "--times" in understudy("generate", release, "--help").out


def test_it_runs_from_python_and_from_yaml(tmp_path: Path, understudy: Command) -> None:
    corpus = us.read_corpus(rows(), text="note")
    result = us.run(
        corpus, Counting(word="skin"), us.Budget(1, 0), llm="none", records=2, ledger=str(tmp_path / "l"), dataset="v"
    )
    assert result.columns["note"] == ["skin, skin"] * 2
    (tmp_path / "run.yaml").write_text("method: counting\nword: skin\ntimes: 1", "utf-8")
    values = counting(tmp_path)
    del values["method"]
    understudy("run", "--config", str(tmp_path / "run.yaml"), *flags(values), code=0)


def test_a_method_that_cannot_be_imported_is_one_error(tmp_path: Path, understudy: Command) -> None:
    said = understudy("run", *flags(counting(tmp_path)), "--method", "broken", code=2)
    assert said.err.startswith("Error: The method 'broken' cannot be loaded (ModuleNotFoundError).")
    with pytest.raises(us.UnderstudyError, match="Choose one of: broken, counting, dp-kps"):
        method_class("alchemy")
