"""Every engine: results in order, work done again where a worker dies, and errors that quote nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from working import PLANTED, DiesAt, double, fail, pid

from understudy.base.errors import CorpusError, EngineError
from understudy.run.engine.calls import TRIES, Call, Outcome
from understudy.run.engine.processes import Processes


def _problem(_item: int) -> int:
    raise CorpusError("A row is bad.", "Mend it.")


@pytest.fixture(scope="module", params=["processes", pytest.param("ray", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if request.param == "processes":
        made: Any = Processes(2)
    else:
        if find_spec("ray") is None:
            pytest.skip("Ray is not installed")
        from understudy.run.engine.cluster import RayCluster

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
    found = list(engine.map(DiesAt(tmp_path, 1, (0, 1, 2, 3)), range(4)))
    assert found == [0, 2, 4, 6]
    assert len(list(tmp_path.iterdir())) >= 4, "each died"


def test_workers_that_die_again_and_again_end_the_run(engine: Any, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="died"):
        list(engine.map(DiesAt(tmp_path, 100, (1,)), range(3)))
    assert len(list(tmp_path.iterdir())) <= 2 * TRIES, "at this item, and while one before it waited"
    assert list(engine.map(double, range(3))) == [0, 2, 4], "the engine goes on"


def test_what_a_function_raises_is_told_without_its_message(engine: Any) -> None:
    with pytest.raises(EngineError, match=r"ValueError") as raised:
        list(engine.map(fail, range(3)))
    assert PLANTED not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


def test_our_own_errors_are_passed_on(engine: Any) -> None:
    with pytest.raises(CorpusError, match="A row is bad"):
        list(engine.map(_problem, range(3)))


def test_a_worker_that_is_not_like_the_others_does_not_work(engine: Any) -> None:
    assert engine.ask(_seven) == 7
    assert engine.ask(os.getpid, always=True) != os.getpid()  # which the workers' answers are not, all but one's
    with pytest.raises(EngineError, match="not like the others"):
        list(engine.map(_slowly, range(12)))
    engine._checks = ()
    engine.ask(_seven, always=True)
    assert list(engine.map(double, range(3))) == [0, 2, 4]
    engine.ask(_pid, always=True)  # stays asked when more is
    engine.ask(_seven, always=True)
    with pytest.raises(EngineError, match="not like the others"):
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
    assert PLANTED not in repr(Outcome(PLANTED))
