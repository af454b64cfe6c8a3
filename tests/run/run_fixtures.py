"""Fixtures of the tests that run the whole thing."""

from __future__ import annotations

import hashlib
import shutil
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import TERMS, FakeChat, settings
from numpy.typing import NDArray

import understudy as us
from understudy.cli import main
from understudy.ledger import Ledger
from understudy.methods.additions.columns import release as columns_release
from understudy.methods.additions.columns.distribution import Distribution
from understudy.privacy.accountant import Composition
from understudy.privacy.mechanisms import NoisySum
from understudy.privacy.unit import Unit
from understudy.release.statement import Statement
from understudy.run import door as measuring
from understudy.run import engine, pipeline
from understudy.run.settings import run_config
from understudy.text.vocabulary import terms


@dataclass(frozen=True)
class Said:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Said]
UseChat = Callable[[FakeChat], FakeChat]


@pytest.fixture(autouse=True)
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the user's ledger."""
    monkeypatch.setenv("UNDERSTUDY_LEDGER", str(tmp_path / "default-ledger.sqlite"))
    monkeypatch.delenv("UNDERSTUDY_DEBUG", raising=False)


@pytest.fixture
def understudy(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Run a command line in this process; where a code is given, it must end with it.

    Our own warnings are lines on standard error, as users see them; any other is an error as in all tests.
    """

    def call(*words: str, code: int | None = None) -> Said:
        monkeypatch.setattr(sys, "argv", ["understudy", *words])
        capfd.readouterr()
        ended = 0
        with warnings.catch_warnings():
            warnings.simplefilter("always", us.UnderstudyWarning)
            try:
                main()
            except SystemExit as end:
                ended = end.code if isinstance(end.code, int) else 0
        out, err = capfd.readouterr()
        assert code in (None, ended), err
        return Said(ended, out, err)

    return call


def with_stated(file: Path, **changes: Any) -> Statement:
    """Edit the statement of a Release file, as somebody who wants it to say something else."""
    release = us.load_release(file)
    replace(release, statement=replace(release.statement, **changes)).save(file)
    return us.load_release(file).statement  # the file alone does not show it


def with_more_noise(file: Path) -> Statement:
    """Give a Release sixty times the noise, an epsilon of 0.1, and all figures that follow from them."""
    stated = us.load_release(file).statement
    charges = tuple(
        replace(each, mechanism=replace(sums, noise_multiplier=60 * sums.noise_multiplier))
        for each in stated.charges
        if isinstance(sums := each.mechanism, NoisySum)
    )
    together = Composition(tuple(each.event for each in charges))
    epsilons = {delta: together.epsilon(delta) for delta in stated.epsilon_at}
    budget = us.Budget("0.1", stated.budget.delta)  # type: ignore[union-attr]
    return with_stated(file, charges=charges, budget=budget, epsilon_at=epsilons, power=together.power(0.01))


EDITS: dict[str, Callable[[Path], Statement]] = {
    "noise and budget": with_more_noise,
    "budget": lambda file: with_stated(file, budget=us.Budget("3.5", "1e-6")),
    "unit": lambda file: with_stated(file, unit=Unit("owner", 5, "clinician")),
}


def run(values: Mapping[str, Any], **changes: Any) -> us.Result:
    return pipeline.run(run_config({**values, **changes}))


def release(values: Mapping[str, Any], **changes: Any) -> us.Release:
    return pipeline.release(run_config({**values, **changes})).release


@pytest.fixture
def use_chat(monkeypatch: pytest.MonkeyPatch) -> UseChat:
    """Let every ``llm`` mean this chat model."""

    def use(chat: FakeChat) -> FakeChat:
        def load_chat(spec: str, **options: Any) -> FakeChat:
            return chat

        monkeypatch.setattr("understudy.models.catalog.load_chat", load_chat)
        return chat

    return use


@pytest.fixture
def method(tmp_path: Path) -> us.DPKPS:
    """Quick, on the terms of :mod:`clinic`."""
    (tmp_path / "terms.txt").write_text("\n".join(TERMS), "utf-8")
    return us.DPKPS(vocabulary=str(tmp_path / "terms.txt"), vocabulary_is_public=True, top_terms=10, length=3)


@contextmanager
def stops_after_the_charge(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is run here stops when it has charged, before anything is sampled."""

    def stop(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(measuring, "measure", stop)
        with pytest.raises(KeyboardInterrupt):
            yield


def runs_charged(location: str | Path, dataset: str = "notes") -> int:
    """How many runs the ledger holds of the dataset; 0 where there is no ledger or dataset."""
    if not Path(location).exists():
        return 0
    with Ledger(location) as ledger:
        if ledger.dataset(dataset) is None:
            return 0
        return sum(entry.run_id is not None for entry in ledger.history(dataset))


def files_holding(folder: Path, text: bytes) -> list[str]:
    """The files below ``folder`` in which ``text`` is, also as a member of an archive."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            parts = [path.read_bytes()]
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    parts += [archive.read(name) for name in archive.namelist()]
            found += [path.name] if any(text in part for part in parts) else []
    return found


@pytest.fixture
def learnt(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts, with what stands before them, that private models learn in this test."""
    from understudy.methods.shared.decoding.tuned import TunedModel

    texts: list[str] = []
    original = TunedModel.row

    def watched(self: TunedModel, text: str, label: int, *, end: bool = True) -> Any:
        texts.append(text)
        return original(self, text, label, end=end)

    monkeypatch.setattr(TunedModel, "row", watched)
    return texts


def little_work_of_seq_pate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few pseudo-sentences, few steps, and several groups of teachers."""
    for module in ("release", "method", "plan"):  # the last is where the others import it from
        monkeypatch.setattr(f"understudy.methods.seq_pate.{module}.PSEUDO_TEXTS", 6)
    monkeypatch.setattr("understudy.methods.seq_pate.release.STUDENT_STEPS", 2)
    monkeypatch.setattr("understudy.methods.seq_pate.release.TEACHER_STEPS", 2)
    monkeypatch.setattr("understudy.methods.seq_pate.release._GROUP", {"cpu": 4})


@contextmanager
def few_words(*others: str) -> Iterator[None]:
    """The built-in vocabulary with its most frequent words, and these others of it: noise on 82,000 takes long."""
    words, kept = _built_in_terms(), set(others)
    with pytest.MonkeyPatch.context() as patch:
        few = [*words[:6500], *(each for each in words[6500:] if each in kept)]
        patch.setattr(terms, "built_in_terms", lambda: few)
        terms._load.cache_clear()
        yield
    terms._load.cache_clear()


_built_in_terms = lru_cache(1)(terms.built_in_terms)


@pytest.fixture(scope="session")
def finished_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("finished")


@pytest.fixture
def finished(finished_runs: Path) -> Callable[..., dict[str, Any]]:
    """Puts a run that has ended into a folder, and gives its settings: each is made once per process, and copied."""

    def copied(folder: Path, make: Callable[..., dict[str, Any]] = settings, **changes: Any) -> dict[str, Any]:
        name = f"{make.__module__} {make.__name__} {sorted(changes.items())}"
        made = finished_runs / hashlib.sha256(name.encode()).hexdigest()[:16]
        if not made.exists():
            made.mkdir()
            pipeline.run(run_config(make(made, **changes)))
        shutil.copytree(made, folder, dirs_exist_ok=True)
        here = make(folder, **changes)
        moved = {name: here[name] for name in ("data", "output", "ledger") if name in here}
        return {**make(made, **changes), **moved}  # what a run may not change on resume is where it was

    return copied


def simple_fit(
    sizes: Sequence[int],
    singles: Sequence[NDArray[np.float64]],
    sets: Sequence[tuple[int, ...]],
    histograms: Sequence[NDArray[np.float64]],
    **_std: Any,
) -> Distribution:
    """Without the extra: each set's ratio to independence, of sets that make no circle."""
    known, reached = [np.maximum(each, 0.5) for each in singles], set[int]()
    factors = [((place,), np.log(each / each.max())) for place, each in enumerate(known)]
    for scope, table in zip(sets, histograms, strict=True):
        independent = reduce(np.multiply.outer, (known[each] for each in scope))
        ratio = np.log(np.maximum(table, 0.5) / independent) * reached.isdisjoint(scope[1:])
        reached.update(scope[1:])
        factors.append((scope, np.maximum(ratio - ratio.max(), -60)))
    return Distribution(tuple(sizes), tuple(factors))


@pytest.fixture
def quick_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_release, "fit", simple_fit)


@pytest.fixture(scope="module")
def shared_workers() -> Iterator[None]:
    """Workers that one test of a module began serve the next ones: to begin one takes seconds."""
    from loky import ProcessPoolExecutor

    idle: dict[int, Any] = {}

    def begun(workers: int, **options: Any) -> Any:
        return idle.pop(workers, None) or ProcessPoolExecutor(workers, **options)

    def close(made: engine.Processes) -> None:
        pool, made._pool = made._pool, None
        if pool is not None and idle.setdefault(made.workers, pool) is not pool:
            pool.shutdown(kill_workers=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "ProcessPoolExecutor", begun)
        patch.setattr(engine.Processes, "close", close)
        yield
    for pool in idle.values():
        pool.shutdown(kill_workers=True)
