"""Every engine: results in order, work done again where a worker dies, and errors that quote nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest
from working import PLANTED, DiesAt, Meets, Unloadable, double, fail, panic, pid

from understudy.base.errors import CorpusError, EngineError
from understudy.run.engine import TRIES, Call, Outcome, Processes, RayCluster


def _problem(_item: int) -> int:
    raise CorpusError("A row is bad.", "Mend it.")


@pytest.fixture(scope="module", params=["processes", "ray"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if request.param == "processes":
        made: Any = Processes(2)
    else:
        if find_spec("ray") is None:
            pytest.skip("Ray is not installed")
        made = RayCluster(workers=2, scratch=tmp_path_factory.mktemp("ray"))
    yield made
    made.close()


def test_results_come_in_order_from_other_processes(engine: Any) -> None:
    assert list(engine.map(double, range(30))) == list(range(0, 60, 2))
    assert os.getpid() not in set(engine.map(pid, range(8)))
    assert list(engine.map(double, [])) == []


def test_few_items_are_taken_ahead(engine: Any) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    results = engine.map(double, items())
    assert next(results) == 0
    assert len(taken) <= 3 * engine.workers
    results.close()


def test_a_worker_that_dies_once_at_every_item_changes_nothing(engine: Any, tmp_path: Path) -> None:
    items = range(TRIES - 1)  # the first one may wait while each of the others dies
    assert list(engine.map(DiesAt(tmp_path, 1, tuple(items)), items)) == [2 * item for item in items]
    assert len(list(tmp_path.iterdir())) >= len(items), "each died"


def test_workers_that_die_again_and_again_end_the_run(engine: Any, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="died"):
        list(engine.map(DiesAt(tmp_path, 100, (1,)), range(3)))
    assert len(list(tmp_path.iterdir())) <= 2 * TRIES, "at this item, and while one before it waited"
    assert list(engine.map(double, range(3))) == [0, 2, 4], "the engine goes on"


_FAULTS: tuple[tuple[Callable[[int], Any], str], ...] = (
    (fail, "ValueError"),
    (panic, "BaseException"),
    (lambda item: sys.exit(f"{PLANTED} {item}"), "SystemExit"),
    (lambda _item: Lock(), "TypeError"),  # which cannot be pickled
    (lambda _item: Unloadable(), "ValueError"),
)


@pytest.mark.parametrize(("function", "kind"), _FAULTS)
def test_errors_of_a_function_are_told_without_message(engine: Any, function: Callable[[int], Any], kind: str) -> None:
    with pytest.raises(EngineError, match=kind) as raised:
        list(engine.map(function, range(3)))
    assert PLANTED not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


def test_our_own_errors_are_passed_on(engine: Any) -> None:
    with pytest.raises(CorpusError, match="A row is bad"):
        list(engine.map(_problem, range(3)))


def test_a_worker_that_is_not_like_the_others_does_not_work(engine: Any, tmp_path: Path) -> None:
    assert list(engine.map(Meets(tmp_path, 2), range(4))) == [0, 1, 2, 3]
    assert engine.ask(_seven) == 7
    assert engine.ask(os.getpid, always=True) != os.getpid()  # which the workers' answers are not, all but one's
    with pytest.raises(EngineError, match="different processor, device or version joined"):
        list(engine.map(_slowly, range(12)))
    engine._checks = ()
    engine.ask(_seven, always=True)
    assert list(engine.map(double, range(3))) == [0, 2, 4]
    engine.ask(_pid, always=True)  # stays asked when more is
    engine.ask(_seven, always=True)
    with pytest.raises(EngineError, match="different processor, device or version joined"):
        list(engine.map(_slowly, range(12)))
    engine._checks = ()


def _seven() -> int:
    return 7


def _pid() -> int:
    return os.getpid()


def _slowly(item: int) -> int:
    import time

    time.sleep(0.2)
    return item


def test_what_is_sent_shows_nothing() -> None:
    assert PLANTED not in repr(Call.of(lambda _item: PLANTED))
    assert PLANTED not in repr(Outcome(PLANTED.encode()))


@pytest.mark.parametrize("there", [False, True])
def test_a_local_cluster_has_a_token_that_its_user_alone_can_read_and_no_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    ray, inner, read = ModuleType("ray"), ModuleType("ray._raylet"), [""]

    def init(**_: Any) -> None:
        assert read == ["token"], "the mode, which was read anew"
        raise TimeoutError

    vars(ray)["init"] = init
    vars(inner)["Config"] = Mock(initialize=lambda _: read.__setitem__(0, os.environ["RAY_AUTH_MODE"]))
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray._raylet", inner)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    token = tmp_path / ".ray" / "auth_token"
    if there:
        token.parent.mkdir()
        token.write_text("0" * 64)
        token.chmod(0o644)
    with pytest.raises(EngineError, match=r"did not start on this machine \(TimeoutError\)") as caught:
        RayCluster(scratch=tmp_path)
    assert "address" not in str(caught.value)
    assert len(bytes.fromhex(token.read_text())) == 32
    assert there == (token.read_text() == "0" * 64)
    assert os.name != "posix" or token.stat().st_mode & 0o777 == 0o600
