"""Values that are parts of one charge: many, kept by several threads at once, and listed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from understudy.base.errors import PrivacyError
from understudy.ledger.store import RunStore

THREADS = 4


def test_what_threads_keep_at_once_is_all_there_and_each_is_drawn_once(tmp_path: Path) -> None:
    names = [f"tokens/{number % 2}/{number}" for number in range(400)]
    drawn: list[str] = []

    def keep(store: RunStore, name: str) -> int:
        def draw() -> dict[str, np.ndarray]:
            drawn.append(name)
            return {"x": np.array([len(name), int(name.rpartition("/")[2])])}

        return int(store.keep_once(name, draw)["x"][1])

    for _ in range(2):
        with RunStore.open(tmp_path, noise="system") as store, ThreadPoolExecutor(THREADS) as pool:
            assert list(pool.map(lambda name: keep(store, name), names)) == list(range(400))
            assert store.names() == sorted(names)
    assert sorted(drawn) == sorted(names)


def test_of_threads_that_keep_one_name_at_once_one_value_stands_and_the_others_are_told(tmp_path: Path) -> None:
    with RunStore.open(tmp_path, noise="system") as store:

        def keep(value: int) -> int | None:
            try:
                store.keep("tokens/0", {"x": np.array([value])})
            except PrivacyError:
                return None
            return value

        with ThreadPoolExecutor(THREADS) as pool:
            kept = [value for value in pool.map(keep, range(40)) if value is not None]
        stored = store.value("tokens/0")
        assert stored is not None
        assert kept == [int(stored["x"][0])]


def test_an_empty_store_has_no_names(tmp_path: Path) -> None:
    with RunStore.open(tmp_path, noise="system") as store:
        assert store.names() == []
        with pytest.raises(ZeroDivisionError):
            store.keep_once("tokens/0", lambda: {"x": np.array([1 // 0])})
        assert store.names() == []
