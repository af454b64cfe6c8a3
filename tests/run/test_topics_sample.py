"""Topics of a large table are of a Poisson sample: few texts are embedded, sizes are scaled up, a resumed run has the
same sample."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from clinic import flags
from subjects import Places, table, texts

import understudy as us
from understudy.base.errors import LedgerError, ReleaseError, ResumeError
from understudy.ledger import Ledger
from understudy.methods.additions.topics import found as finding
from understudy.methods.additions.topics.labelling import CHARGES, SIZES
from understudy.methods.additions.topics.plan import verdict
from understudy.methods.additions.topics.release import TopicSums
from understudy.privacy.exact import round_up
from understudy.privacy.mechanisms import SubsampledSum
from understudy.privacy.plan import Charge
from understudy.privacy.sample import SubsampledSums
from understudy.release.statement import Overstated, require_consistent
from understudy.run import door as measuring
from understudy.run.topics import FoundTopics

BUDGET = us.Budget(epsilon=6, delta="1e-6")
# So that a quarter is sampled, of however few there are.
DECLARED = 200_000


class Watched(Places):
    """Keeps the private texts that it reads."""

    def __init__(self) -> None:
        self.read: set[str] = set()

    def embed(self, texts: Sequence[str]) -> Any:
        self.read |= {text for text in texts if text.startswith("about ")}
        return super().embed(texts)


@pytest.fixture(scope="module", autouse=True)
def places() -> Iterator[Watched]:
    with pytest.MonkeyPatch.context() as patch:
        made = Watched()
        patch.setattr("understudy.models.catalog.load_embedder", lambda _spec: made)
        yield made


def found_in(folder: Path, lines: Sequence[str], *, of: Callable[[int], str] = str, **options: Any) -> FoundTopics:
    named = {**table(folder, lines, of), "topics": 3, "expected_records": DECLARED, "output": str(folder / "out")}
    return us.topics(folder / "notes.csv", BUDGET, **{**named, **options})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, places: Watched) -> tuple[FoundTopics, list[str], set[str]]:
    """What was found, what was said, and which private texts were read; to be read only."""
    said: list[str] = []
    places.read.clear()
    made = found_in(tmp_path_factory.mktemp("sample"), texts(2000), listener=us.Listener(say=said.append))
    return made, said, set(places.read)


# -- what comes out ---------------------------------------------------------------------------------------------------


def test_a_part_of_the_texts_is_read_and_sizes_are_those_of_the_table(finished: Any) -> None:
    found, said, read = finished
    assert 350 < len(read) < 650  # 500 and 8 std
    truth = np.bincount(found.assign(texts(2000)), minlength=3)
    for topic, size in zip(found.topics, truth, strict=True):
        assert topic.clear
        assert topic.low < topic.size < topic.high
        assert abs(topic.size - size) < 2 * (topic.high - topic.low)  # 8 std
    (line,) = (each for each in said if "random sample" in each)
    assert "at rate 0.25 (about 50,000 texts: 10 minutes on one core), since all" in line
    assert said.index(line) < said.index("Reading the private records.")
    plan = us.plan(us.Topics(topics=3), BUDGET, expected_records=DECLARED)
    assert line in str(plan)
    assert [charge.name for charge in plan.plan.charges] == ["topics"]
    assert found.release.statement.epsilon_at[1e-6] < 0.8 * 6
    assert "0.25" in found.release.statement.charges[0].event.__str__()


def test_the_page_says_that_a_sample_was_read(finished: Any, tmp_path: Path, understudy: Any) -> None:
    values = table(tmp_path, texts(3000)) | {"data": str(tmp_path / "notes.csv"), "topics": 3, "epsilon": "6"}
    values |= {"delta": "1e-6", "expected_records": DECLARED, "output": str(tmp_path / "out")}
    said = understudy("topics", *flags(values), "--json")
    assert said.code == 0, said.err
    page = (
        Path(json.loads(said.out)["page"]) if "page" in json.loads(said.out) else tmp_path / "out/release/topics.html"
    )
    told = page.read_text("utf-8")
    assert "a random sample of the records at rate 0.25" in told
    assert "the randomness of the sample" in told


def test_all_texts_of_an_owner_are_read_or_none(tmp_path: Path, places: Watched) -> None:
    places.read.clear()
    owners = {"owner": "clinician", "max_records_per_owner": 5, "expected_records": DECLARED // 5}
    found = found_in(tmp_path, texts(400), of=lambda number: f"owner {number // 5}", **owners)
    numbers = np.sort([int(text.split()[-1]) for text in places.read])
    assert 5 * len(np.unique(numbers // 5)) == len(numbers)
    assert 0 < len(numbers) < 300
    assert sum(topic.size for topic in found.topics) == pytest.approx(80, abs=250), "owners, scaled up"
    assert "sample of the owners" in found.release.statement.charges[0].why


def test_sizes_without_noise_are_those_of_the_sample_scaled_up(tmp_path: Path, places: Watched) -> None:
    places.read.clear()
    found = found_in(tmp_path, texts(400), insecure_no_noise=True)
    counts = np.bincount(found.assign(sorted(places.read)), minlength=len(found.topics))
    assert [topic.size for topic in found.topics] == pytest.approx(4 * counts, abs=0.01)


def test_where_more_was_declared_than_is_there_the_verdict_is_of_the_table(tmp_path: Path) -> None:
    told = found_in(tmp_path, texts(60)).release.statement.verdict
    (charge,) = us.plan(us.Topics(topics=3), BUDGET, expected_records=DECLARED).plan.charges
    multiplier = dict(charge.mechanism.sums)["sums-1"].noise_multiplier  # type: ignore[attr-defined]
    assert told is not None
    assert told.level != "good"
    assert told.records == verdict(4 * multiplier, 3, 1.0).records > 3 * (verdict(multiplier, 3, 1.0).records or 0)


def test_known_topics_are_counted_in_a_sample_too(finished: Any, tmp_path: Path) -> None:
    earlier = finished[0]
    named = {"topics": str(earlier.folder.root), "dataset": "april"}
    later = found_in(tmp_path, texts(2400), **named)
    assert [charge.name for charge in later.release.statement.charges] == ["topics"]
    truth = np.bincount(earlier.assign(texts(2400)), minlength=3)
    for topic, size in zip(later.topics, truth, strict=True):
        assert abs(topic.size - size) < 2 * (topic.high - topic.low)


# -- ranges -----------------------------------------------------------------------------------------------------------


def covered(records: int, *, rate: float, std: float, runs: int = 4000) -> float:
    """How often the range of a size holds the number of records."""
    generator = np.random.default_rng(0)
    sizes = (generator.binomial(records, rate, runs) + generator.normal(0, std, runs)) / rate
    low, high = finding._ranges(np.maximum(sizes, 0), np.full(runs, std / rate), rate)
    return float(np.mean((low <= records) & (records <= high)))


@pytest.mark.parametrize("records", [300, 3_000, 100_000])
@pytest.mark.parametrize("std", [0.5, 7.0])
def test_the_range_of_a_size_holds_the_number_of_records_in_95_of_100_cases(records: int, std: float) -> None:
    assert 0.93 < covered(records, rate=1 / 32, std=std) < 0.99
    assert 0.93 < covered(records, rate=1.0, std=std) < 0.97


def test_a_range_that_forgets_the_sample_holds_far_less(monkeypatch: pytest.MonkeyPatch) -> None:
    real = finding._ranges
    monkeypatch.setattr(finding, "_ranges", lambda sizes, stds, _rate: real(sizes, stds, 1.0))
    assert covered(3_000, rate=1 / 32, std=0.5) < 0.5


# -- a run that resumes -----------------------------------------------------------------------------------------------


def read_in_two_sessions(
    folder: Path, places: Watched, monkeypatch: pytest.MonkeyPatch, **later: Any
) -> list[set[str]]:
    """The texts that a run reads which dies in its second round, and those that it reads when it is resumed without its
    intermediate files."""
    folder.mkdir()
    real, calls, read = TopicSums.of_batch, list[int](), []

    def dies(query: TopicSums, batch: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(query, batch)

    with monkeypatch.context() as patch:
        patch.setattr(TopicSums, "of_batch", dies)
        places.read.clear()
        with pytest.raises(KeyboardInterrupt):
            found_in(folder, texts(400))
        read.append(set(places.read))
    shutil.rmtree(folder / "out" / "private" / "scratch")
    places.read.clear()
    found = found_in(folder, texts(400), **later)
    assert found.release.statement.private
    assert found.release.statement.charges[0].mechanism.rate == 0.25  # type: ignore[attr-defined]
    with Ledger(folder / "ledger.sqlite") as ledger:
        assert len(ledger.history("notes")) == 1
    return [*read, set(places.read)]


@pytest.mark.parametrize("declared", [DECLARED, None, 100], ids=["the same", "none", "another"])
def test_a_resumed_run_reads_the_same_sample_whatever_is_declared_then(
    declared: int | None, tmp_path: Path, places: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, again = read_in_two_sessions(tmp_path / "run", places, monkeypatch, expected_records=declared)
    assert again <= first, "vectors are kept, so that only other texts would be read"


def test_a_forgotten_sample_is_caught(tmp_path: Path, places: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: the rounds before the crash are of one sample, those after it of another."""
    real = measuring.Measurements.seal
    monkeypatch.setattr(
        measuring.Measurements,
        "seal",
        lambda door, name, make: SimpleNamespace(arrays=make()) if name == "topics/sample" else real(door, name, make),
    )
    first, again = read_in_two_sessions(tmp_path / "run", places, monkeypatch)
    assert len(again - first) > 20


@pytest.mark.parametrize("damaged", [False, True], ids=["rows in another order", "a sample that is gone"])
def test_a_resumed_run_takes_no_second_sample(damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(query: TopicSums, batch: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TopicSums, "of_batch", dies)
        with pytest.raises(KeyboardInterrupt):
            found_in(tmp_path, texts(400))
    shutil.rmtree(tmp_path / "out" / "private" / "scratch")
    if not damaged:
        with pytest.raises(ResumeError, match="order of the rows has changed"):
            found_in(tmp_path, texts(400)[::-1])
        return
    with contextlib.closing(sqlite3.connect(tmp_path / "out" / "private" / "run.sqlite")) as store, store:
        assert store.execute("DELETE FROM value WHERE name = 'topics/sample'").rowcount == 1
    with pytest.raises(LedgerError):
        found_in(tmp_path, texts(400))


def test_a_run_of_all_records_stays_so_if_many_are_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = TopicSums.of_batch, []

    def dies(query: TopicSums, batch: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(query, batch)

    monkeypatch.setattr(TopicSums, "of_batch", dies)
    with pytest.raises(KeyboardInterrupt):
        found_in(tmp_path, texts(200), expected_records=None)
    monkeypatch.setattr(TopicSums, "of_batch", real)
    found = found_in(tmp_path, texts(200))
    assert tuple(charge.name for charge in found.release.statement.charges) == CHARGES


def test_a_test_that_the_sample_allows_is_not_denied(finished: Any) -> None:
    statement = finished[0].release.statement
    require_consistent(statement)
    assert "nobody knows who is in the sample" in statement.to_markdown()
    first = statement.to_markdown().splitlines()[2].partition(". It protects")[0]
    spent = round_up(statement.epsilon_at[float(statement.budget.delta)])  # type: ignore[union-attr]
    assert first == f"Method **topics**: {statement.budget} was booked, and epsilon {spent} at that delta was spent"
    with pytest.raises(Overstated, match="better test"):
        require_consistent(replace(statement, power=0.011))


# -- from anybody -----------------------------------------------------------------------------------------------------


def forged(charge: Charge) -> Iterator[Charge]:
    """Of the same name and event: one sum, other sums, sums of other names, and less of them."""
    planned: Any = charge.mechanism
    event, sums = planned.event, dict(planned.sums)
    yield replace(charge, mechanism=SubsampledSum(event.noise_multiplier, event.rate, sums[SIZES].sensitivity, (3,)))
    joint = replace(sums[SIZES], noise_multiplier=event.noise_multiplier)
    yield replace(charge, mechanism=SubsampledSums(event.rate, (("sizes", joint),)))
    yield replace(
        charge, mechanism=SubsampledSums(event.rate, tuple((f"x{name}", each) for name, each in planned.sums))
    )
    yield replace(charge, name="sizes")


def test_a_release_of_other_sums_is_refused(finished: Any, tmp_path: Path) -> None:
    made = finished[0].release
    made.save(tmp_path / "whole.release")
    assert us.load_release(tmp_path / "whole.release").digest == made.digest
    for number, charge in enumerate(forged(made.statement.charges[0])):
        replace(made, statement=replace(made.statement, charges=(charge,))).save(tmp_path / f"{number}.release")
        with pytest.raises(ReleaseError):
            us.load_release(tmp_path / f"{number}.release")
