"""Whole runs on every engine: the same release, charged once, whoever dies meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import flags, rows, settings, write_csv
from evolution_fixtures import WordEmbedder, evolving
from numpy.typing import NDArray
from run_fixtures import files_holding, runs_charged
from secret_fixtures import protecting
from subjects import Places, table, texts
from working import PLANTED, DyingEmbedder, Pickling

import understudy as us
from understudy.base.errors import ConfigError, EngineError
from understudy.corpus import bounding
from understudy.run import engine as engines
from understudy.run import pipeline as running
from understudy.run import working as run_working
from understudy.run.settings import EngineParameters, run_config

RAY = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
GUIDED: dict[str, Any] = {"method": "dp-kps", "guide": True}
OWNED = {"owner": "clinician", "max_records_per_owner": 3}

pytestmark = pytest.mark.usefixtures("varied_chat", "shared_workers")


@pytest.fixture(autouse=True)
def several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounding, "_ROWS", 9)


@pytest.fixture
def use_embedder(monkeypatch: pytest.MonkeyPatch) -> Callable[[WordEmbedder], None]:
    def use(embedder: WordEmbedder) -> None:
        monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda _spec: embedder)

    use(WordEmbedder())
    return use


def released(values: dict[str, Any], engine: str, *, workers: int | None = 1, **changes: Any) -> us.Release:
    own = {"engine": engine} | ({"workers": workers} if engine != "in-process" else {})
    output = str(Path(values["output"]).with_name(f"out-{engine}"))
    return running.release(run_config({**values, "output": output, **own, **changes})).release


def same(one: us.Release, other: us.Release) -> bool:
    return {name: array.tobytes() for name, array in one.arrays.items()} == {
        name: array.tobytes() for name, array in other.arrays.items()
    } and (one.terms, one.strings) == (other.terms, other.strings)


@pytest.mark.parametrize(
    ("method", "unit", "engine"),
    [
        *(("dp-kps", "owner", "processes"), ("aug-pe", "record", "processes")),
        *(pytest.param("dp-kps", "owner", "ray", marks=RAY), pytest.param("aug-pe", "record", "ray", marks=RAY)),
    ],
)
def test_a_release_without_noise_is_the_same_on_every_engine(
    method: str, unit: str, engine: str, tmp_path: Path, use_embedder: Any
) -> None:
    made = evolving(tmp_path) if method == "aug-pe" else settings(tmp_path, **GUIDED)
    values = {**made, **(OWNED if unit == "owner" else {}), "insecure_no_noise": True}
    here, there = released(values, "in-process"), released(values, engine, workers=2 if unit == "owner" else 1)
    assert same(here, there)
    assert not list(tmp_path.rglob("scratch/*/*")), "intermediate files are gone"
    machines = [note for note in there.statement.trusted if "Ray cluster" in note]
    assert len(machines) == (engine == "ray")


def test_records_have_the_same_topics_on_every_engine(tmp_path: Path, use_embedder: Any) -> None:
    use_embedder(Places())
    values = settings(tmp_path, **table(tmp_path, texts(100)), label=None, labels=None, topics=3)
    values |= {"insecure_no_noise": True, "guide": False}
    here, there = released(values, "in-process"), released(values, "processes")
    assert here.schema.labels == there.schema.labels
    assert same(here, there)


@pytest.mark.parametrize("engine", ["processes", pytest.param("ray", marks=RAY)])
def test_a_sample_is_the_same_on_every_engine_as_its_coins_are_tossed_by_the_command(
    engine: str, tmp_path: Path, use_embedder: Any
) -> None:
    values = {**protecting(tmp_path, inclusion=0.5), "insecure_noise_seed": 3, "insecure_no_noise": False}
    here = released(values, "in-process")
    assert same(here, released(values, engine))
    other = released({**values, "insecure_noise_seed": 4}, "in-process", fresh=True)
    assert not same(here, other), "the sample is random"


@pytest.mark.parametrize("unit", ["record", "owner"])
def test_a_guides_sample_is_the_same_on_every_engine_too(unit: str, tmp_path: Path, use_embedder: Any) -> None:
    owned = {**OWNED, "expected_records": 50_000} if unit == "owner" else {"expected_records": 100_000}
    values = {**settings(tmp_path, **GUIDED), **owned, "insecure_noise_seed": 3}
    here = released(values, "in-process")
    assert same(here, released(values, "processes"))
    assert here.statement.charges[-1].event.kind == "subsampled gaussian"


@pytest.mark.parametrize("unit", ["record", "owner"])
def test_the_sample_of_topics_is_the_same_on_every_engine_too(unit: str, tmp_path: Path, use_embedder: Any) -> None:
    use_embedder(Places())
    values = table(tmp_path, texts(100), lambda number: f"owner {number // 2}")
    values |= {"data": str(tmp_path / "notes.csv"), "output": str(tmp_path / "out"), "epsilon": "3", "delta": "1e-6"}
    values |= {"method": "topics", "topics": 3, "insecure_noise_seed": 3}
    values |= {**OWNED, "expected_records": 50_000} if unit == "owner" else {"expected_records": 100_000}
    here = released(values, "in-process")
    assert same(here, released(values, "processes"))
    assert [charge.event.kind for charge in here.statement.charges] == ["subsampled gaussian"]


def test_a_worker_that_dies_changes_nothing(tmp_path: Path, use_embedder: Any) -> None:
    values = {**settings(tmp_path, **GUIDED), "insecure_no_noise": True}
    here = released(values, "in-process")
    use_embedder(DyingEmbedder(tmp_path, 1))
    assert same(here, released(values, "processes"))
    assert len(list(tmp_path.glob("died-*"))) == 1


def test_a_run_whose_workers_always_die_resumes_and_is_charged_once(
    tmp_path: Path, use_embedder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "TRIES", 2)
    values = settings(tmp_path, **GUIDED)
    use_embedder(DyingEmbedder(tmp_path, 1000))
    with pytest.raises(EngineError, match="died"):
        released(values, "processes", output=values["output"])
    use_embedder(WordEmbedder())
    made = released(values, "in-process", output=values["output"])
    assert made.statement.private
    assert runs_charged(values["ledger"]) == 1


# The command line, killed when its workers have worked and the first value is to be confirmed.
KILLED = (
    "import os; from understudy.ledger import Ledger; from understudy.cli import main; "
    "Ledger.confirm = lambda *_, **__: os.kill(os.getpid(), 9); main()"
)


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no groups of processes")
@pytest.mark.parametrize("engine", ["processes", pytest.param("ray", marks=RAY)])
def test_a_run_that_is_killed_with_its_engine_goes_on_without_one(engine: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "notes.csv", rows(4000))
    values = settings(tmp_path, llm=None, records_per_label=None, guide=False)
    here = ["release", *flags(values)]
    words = [sys.executable, "-c", KILLED, *here, "--engine", engine, "--workers", "1"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(words, start_new_session=True, **quiet) as driver:
        assert driver.wait() == -signal.SIGKILL
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)  # its workers, which nobody ends
    assert runs_charged(values["ledger"]) == 1
    assert not list((tmp_path / "out").rglob("*.release"))
    subprocess.run([sys.executable, "-m", "understudy", *here], check=True, capture_output=True)
    assert list((tmp_path / "out").rglob("*.release"))
    assert not (tmp_path / "out" / "private" / "scratch").exists()
    assert runs_charged(values["ledger"]) == 1


def test_the_command_has_engines(tmp_path: Path, use_embedder: Any, understudy: Any) -> None:
    words = flags(settings(tmp_path, **GUIDED, engine="processes", workers=1, scratch=str(tmp_path / "mine")))
    said = understudy("run", *words)
    assert said.code == 0, said.err
    assert not list((tmp_path / "mine").iterdir())
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_options_without_their_engine_are_refused(tmp_path: Path) -> None:
    options: tuple[dict[str, Any], ...] = ({"workers": 2}, {"scratch": "x"})
    for changes in options:
        with pytest.raises(ConfigError, match=r"engine|Ray"):
            running.release(run_config({**settings(tmp_path), **changes}))
    assert runs_charged(tmp_path / "ledger.sqlite") == 0


class Elsewhere(Pickling):
    """Whose workers do not see this machine's folders."""

    def ask(self, probe: Any, *, always: bool = False) -> Any:
        return None


def test_a_folder_that_workers_do_not_see_is_told_before_the_charge(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = EngineParameters(engine="processes")
    monkeypatch.setattr(engines, "Processes", lambda _workers: Elsewhere())
    with (
        pytest.raises(EngineError, match="cannot read the run's private folder"),
        run_working.open_engine(settings, tmp_path),
    ):
        pass
    monkeypatch.setattr(engines, "Processes", lambda _workers: Pickling())
    with run_working.open_engine(settings, tmp_path):
        assert not list(tmp_path.iterdir())


def test_without_ray_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(EngineError, match="install"), run_working.open_engine(EngineParameters(engine="ray"), tmp_path):
        pass


@pytest.fixture
def two_nodes() -> Iterator[Any]:
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()


@dataclass(frozen=True)
class Slow(WordEmbedder):
    """Tells in a folder where it works, and takes its time."""

    folder: Path

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if any("Number" in text for text in texts):
            (self.folder / f"working-{os.getpid()}-{len(list(self.folder.glob('working-*')))}").touch()
            time.sleep(0.5)
        return super().embed(texts)


def test_a_node_that_is_lost_changes_nothing_and_ray_keeps_no_text(
    two_nodes: Any, tmp_path: Path, use_embedder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_csv(tmp_path / "notes.csv", [{**row, "note": f"{row['note']} {PLANTED}"} for row in rows(120)])
    values = {**settings(tmp_path, **GUIDED), "insecure_no_noise": True}
    here = released(values, "in-process")
    use_embedder(Slow(tmp_path))

    def lose_a_node() -> None:
        while len(list(tmp_path.glob("working-*"))) < 4:
            time.sleep(0.05)
        two_nodes.remove_node(next(iter(two_nodes.worker_nodes)), allow_graceful=False)

    loser = threading.Thread(target=lose_a_node, daemon=True)
    loser.start()
    monkeypatch.setenv("UNDERSTUDY_RAY_ADDRESS", two_nodes.address)
    made = released(values, "ray", workers=None)
    loser.join()
    assert same(here, made)
    assert not two_nodes.worker_nodes
    session = Path(two_nodes.head_node.get_session_dir_path())
    assert (session / "logs").is_dir()
    assert not files_holding(session / "logs", PLANTED.encode())
