"""What the run store holds after ``kill -9``, and after faults inside a transaction."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from understudy.base.errors import StorageError
from understudy.ledger.store import RunStore

_SCRIPT = Path(__file__).with_name("keeping.py")


def test_kill_9_loses_nothing_that_was_kept_and_leaves_nothing_by_halves(tmp_path: Path) -> None:
    done = 0
    for _ in range(5):
        command = [sys.executable, str(_SCRIPT), str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(random.randint(1, 5))]
            time.sleep(random.uniform(0, 0.02))
            process.kill()
            said += process.stdout.read().splitlines()  # communicate() would lose what readline() has read ahead
        done += len([line for line in said if line.strip()])
        with RunStore.open(tmp_path, noise="system") as store:  # the lock died with its holder
            assert len(store.stages()) in (done, done + 1)
            for number in range(done + 2):
                value = store.value(f"value {number}")
                answers = store.answers.get_many([f"{number}-{n}" for n in range(20)])
                assert value is None or value["x"].tolist() == [number] * 1000
                assert len(answers) in (0, 20)
                if number < done:
                    assert value is not None
                    assert len(answers) == 20
            if store.value(f"value {done}") is not None:  # kept, but not told: finish it for the next round
                store.answers.put_many({f"{done}-{n}": str(n) * 100 for n in range(20)})
                store.mark(f"stage {done}")
                done += 1


class _Failing:
    """A connection whose statements of one kind fail."""

    def __init__(self, connection: sqlite3.Connection, word: str, error: BaseException) -> None:
        self._connection, self._word, self._error = connection, word, error

    def execute(self, statement: str, *arguments: Any) -> Any:
        if statement.startswith(self._word):
            raise self._error
        return self._connection.execute(statement, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.mark.parametrize("word", ["BEGIN", "SELECT", "INSERT", "COMMIT"])
@pytest.mark.parametrize(
    ("error", "seen"), [(sqlite3.OperationalError("disk full"), StorageError), (KeyboardInterrupt(), KeyboardInterrupt)]
)
def test_a_fault_before_any_statement_keeps_nothing_and_the_store_goes_on(
    tmp_path: Path, word: str, error: BaseException, seen: type[BaseException]
) -> None:
    with RunStore.open(tmp_path, noise="system") as store:
        database: Any = store._database
        whole = database._connection
        database._connection = _Failing(whole, word, error)
        with pytest.raises(seen):
            store.keep("noise", {"x": np.zeros(3)})
        database._connection = whole
        assert store.value("noise") is None
        store.keep("noise", {"x": np.ones(3)})
    with RunStore.open(tmp_path, noise="system") as store:
        found = store.value("noise")
        assert found is not None
        assert found["x"].tolist() == [1, 1, 1]


def test_a_value_that_was_not_committed_is_absent(tmp_path: Path) -> None:
    code = """if True:
        import os, sys, numpy as np
        from pathlib import Path
        from understudy.ledger.store import RunStore
        store = RunStore.open(Path(sys.argv[1]), noise="system")
        store.keep("one", {"x": np.zeros(3)})
        with store._database.transaction() as connection:
            connection.execute("INSERT INTO value VALUES ('two', x'00')")
            os.kill(os.getpid(), 9)
    """
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    with RunStore.open(tmp_path, noise="system") as store:
        assert store.value("one") is not None
        assert store.value("two") is None
