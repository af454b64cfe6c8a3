"""``kill -9`` while private prediction decodes, while the built-in model generates, and while metrics are charged.

A chain of kills, one after the other in one folder, each followed by the same command; then the command to its end.
CI does one chain of each, a short one of the built-in model; ``UNDERSTUDY_TEST_CHAINS=3`` does three long ones, and
private prediction by the built-in model too.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from clinic import flags, settings
from kill_points import Life
from local_fixtures import make_llama
from run_fixtures import runs_charged

from understudy.ledger import Ledger
from understudy.ledger.store import RunStore
from understudy.methods.registry import load_release
from understudy.models.builtin import CHAT, is_pulled
from understudy.models.types import Completion
from understudy.privacy.guarantee import Budget
from understudy.release import Release

_TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(_TESTS / "methods" / "private_prediction"))

from private_runs import predicting  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="there is no kill -9"),
]


@pytest.fixture(scope="module")
def lives() -> Iterator[subprocess.Popen[str]]:
    """What forks processes that have imported everything."""
    command = [sys.executable, str(Path(__file__).with_name("kill_points.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


ALL = "UNDERSTUDY_TEST_CHAINS" in os.environ
CHAINS = range(int(os.environ.get("UNDERSTUDY_TEST_CHAINS", "1")))
RANDOM = "a random moment"


@dataclass
class Chain:
    """One run that is killed again and again.

    Args:
        lives: what forks its processes.
        batch_tokens: of the model that generates.
        untried: as of :class:`Life`.
    """

    lives: subprocess.Popen[str]
    folder: Path
    values: dict[str, Any]
    batch_tokens: int | None = None
    untried: bool = False

    @property
    def command(self) -> list[str]:
        return ["run", *flags(self.values)]

    @property
    def output(self) -> Path:
        return Path(self.values["output"])

    @property
    def diary(self) -> Path:
        return self.folder / "diary"

    def live(
        self,
        words: Sequence[str],
        *,
        moment: str = "a value is drawn",
        number: int = 0,
        kill_when: Callable[[], bool] | None = None,
    ) -> int:
        """How a process ended; the one that never kills itself is killed by this one a little after ``kill_when``."""
        said = str(self.folder / "said")
        Path(said).write_text("")
        life = Life(words, str(self.diary), said, moment, number, self.batch_tokens, self.untried)
        orders, answers = self.lives.stdin, self.lives.stdout
        assert orders is not None
        assert answers is not None
        orders.write(json.dumps(asdict(life)) + "\n")
        orders.flush()
        process = int(answers.readline())
        if kill_when is not None:
            while not kill_when():
                os.kill(process, 0)  # ProcessLookupError: it has ended already
                time.sleep(0.01)
            time.sleep(random.uniform(0, 0.3))
            os.kill(process, signal.SIGKILL)
        return int(answers.readline())

    def kill(self, moment: str, number: int, begun: Callable[[], bool] = lambda: True) -> None:
        """The command, killed at a moment; at a random one after it has ``begun``."""
        if moment == RANDOM:
            ended = self.live(self.command, kill_when=begun)
        else:
            ended = self.live(self.command, moment=moment, number=number)
        assert ended == -signal.SIGKILL, f"{moment} {number}: {self.said()}"

    def finish(self) -> None:
        assert self.live(self.command) == 0, self.said()

    def unkilled(self, folder: Path) -> list[str]:
        """The texts that the same Release and settings give in another folder, at one go."""
        (file,) = (self.output / "release").glob("*.release")
        names = ("llm", "records_per_label", "max_tokens", "document_type")
        words = flags({name: self.values[name] for name in names} | {"output": str(folder)})
        command = ["generate", str(file), *words]
        assert self.live(command) == 0, self.said()
        return _texts(folder)

    def said(self) -> str:
        return (self.folder / "said").read_text("utf-8")

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.output / "release").iterdir()}

    def table(self) -> list[str]:
        return _texts(self.output)

    def release(self) -> Release:
        (file,) = (self.output / "release").glob("*.release")
        return load_release(file)

    def values_stored(self) -> dict[str, bytes]:
        with RunStore.open(self.output / "private", noise="system") as store:
            return {
                name: b"".join(arrays[key].tobytes() for key in sorted(arrays))
                for name in store.names()
                if (arrays := store.value(name)) is not None
            }

    def answers_stored(self) -> dict[str, str]:
        """Texts by the key of their request."""
        with RunStore.open(self.output / "private", noise="system") as store, store._database.reading() as connection:
            return {key: Completion.from_json(text).text for key, text in connection.execute("SELECT * FROM answer")}

    def confirmed(self) -> dict[str, str]:
        with sqlite3.connect(self.values["ledger"]) as connection:
            found = dict(connection.execute("SELECT name, digest FROM understudy_draw"))
        connection.close()
        return found

    def digests(self, names: Sequence[str]) -> dict[str, str | None]:
        """As the ledger would confirm what is stored."""
        with Ledger(self.values["ledger"]) as ledger, RunStore.open(self.output / "private", noise="system") as store:
            return {name: store.digest(name, key=ledger.fingerprint_key) for name in names}

    def noted(self, what: str) -> dict[str, set[str]]:
        """The digests of the values that all processes together have ``drawn`` or ``used``, by name."""
        found: dict[str, set[str]] = defaultdict(set)
        for line in self.diary.read_text("utf-8").splitlines():
            if line.startswith(f"{what} "):
                _, name, digest = line.split(" ")
                found[name].add(digest)
        return found

    def check(self, before: dict[str, bytes]) -> dict[str, bytes]:
        """One charge; what was stored is as it was; what was used was stored and confirmed first, and is one value."""
        after = self.values_stored()
        assert before.items() <= after.items(), "a stored value changed"
        assert runs_charged(self.values["ledger"]) == 1
        confirmed, used = self.confirmed(), self.noted("used")
        assert confirmed.items() <= self.digests(list(confirmed)).items()
        assert used.keys() <= confirmed.keys()
        assert all(len(digests) == 1 for digests in used.values()), "a second value was used"
        return after


def _texts(output: Path) -> list[str]:
    return [str(text) for text in pq.read_table(output / "release" / "synthetic.parquet")["text"].to_pylist()]


def text_moments(seed: int) -> list[tuple[str, int]]:
    """Seven moments, in some order, of processes that draw a few texts each."""
    lot = random.Random(seed)
    aimed = [
        ("a sum over private rows is made", lot.randint(5, 40)),
        ("a token is drawn", lot.randint(5, 40)),
        ("a value is drawn", lot.randint(2, 4)),
        ("a value is being stored", lot.randint(1, 3)),
        ("a value is stored", lot.randint(1, 4)),
        ("a value is being confirmed", lot.randint(1, 4)),
        ("a value is confirmed", lot.randint(1, 4)),
    ]
    lot.shuffle(aimed)
    return aimed


@pytest.mark.parametrize("chain", CHAINS)
def test_private_prediction_that_is_killed_while_it_decodes_charges_once_and_uses_no_text_twice(
    lives: subprocess.Popen[str], tmp_path: Path, chain: int
) -> None:
    llama = make_llama(tmp_path / "llama")
    killed = Chain(lives, tmp_path, predicting(tmp_path, llama, tokens_per_batch=120))
    _kill_while_texts_are_drawn(killed, [*text_moments(chain), (RANDOM, 0)])
    made = killed.release()
    assert len(made.strings["texts"]) >= 4 * 120 // 10
    for name in {name.rpartition("/")[0] for name in killed.confirmed()}:
        assert private_tokens(killed, name) == 120


@pytest.mark.models
@pytest.mark.skipif(not is_pulled(CHAT), reason="needs: understudy models pull builtin")
@pytest.mark.skipif(not ALL, reason="takes minutes: set UNDERSTUDY_TEST_CHAINS")
@pytest.mark.parametrize("chain", CHAINS)
def test_private_prediction_by_the_built_in_model_that_is_killed_does_so_too(
    lives: subprocess.Popen[str], tmp_path: Path, chain: int
) -> None:
    short = {"tokens_per_batch": 60, "max_tokens": 4, "prompt": None}
    killed = Chain(lives, tmp_path, predicting(tmp_path, tmp_path, private_model="builtin", **short), untried=True)
    _kill_while_texts_are_drawn(killed, [(what, min(number, 6)) for what, number in text_moments(chain)])


def _kill_while_texts_are_drawn(killed: Chain, moments: Sequence[tuple[str, int]]) -> None:
    values: dict[str, bytes] = {}
    for moment, number in moments:
        lines = len(killed.diary.read_text("utf-8").splitlines()) if killed.diary.exists() else 0
        drawn = sum(map(len, killed.noted("drawn").values())) if lines else 0

        def begun(before: int = drawn) -> bool:
            return killed.diary.exists() and sum(map(len, killed.noted("drawn").values())) >= before + 2

        killed.kill(moment, number, begun)
        values = killed.check(values)
    killed.finish()
    values = killed.check(values)
    texts = {name for name in values if name.startswith("tokens/")}
    assert texts == set(killed.confirmed()) == set(killed.noted("used"))
    made, files = killed.release(), killed.files()
    assert sorted(killed.table()) == sorted(made.strings["texts"])
    assert made.statement.private
    killed.finish()
    assert killed.files() == files, "the same command again changes nothing"
    assert killed.values_stored().items() >= {name: values[name] for name in texts}.items()


def private_tokens(chain: Chain, batch: str) -> int:
    with RunStore.open(chain.output / "private", noise="system") as store:
        found = [store.value(name) for name in store.names() if name.rpartition("/")[0] == batch]
    return sum(int(arrays["private"].sum()) for arrays in found if arrays is not None)


def answer_moments(seed: int) -> list[tuple[str, int]]:
    lot = random.Random(seed)
    aimed = [
        ("a token is chosen", lot.randint(2, 10)),
        ("a token is chosen", lot.randint(15, 30)),
        ("a batch is answered", lot.randint(1, 2)),
        ("answers are being stored", 1),
        ("answers are stored", 1),
        (RANDOM, 0),
    ]
    lot.shuffle(aimed)
    return [*aimed, ("the records are written", 1), ("the records stand there", 1)]


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize(
    "model",
    [
        "tiny",
        pytest.param(
            "builtin",
            marks=[
                pytest.mark.models,
                pytest.mark.skipif(not is_pulled(CHAT), reason="needs: understudy models pull builtin"),
            ],
        ),
    ],
)
def test_a_model_of_this_machine_that_is_killed_while_it_generates_writes_every_text_and_none_anew(
    lives: subprocess.Popen[str], tmp_path: Path, model: str, chain: int
) -> None:
    spec = "builtin" if model == "builtin" else f"hf:{make_llama(tmp_path / 'llama', window=4096)}"
    texts = 14 if ALL or model == "tiny" else 4
    values = settings(tmp_path, llm=spec, records_per_label=texts, max_tokens=12, document_type="note", length=5)
    killed = Chain(lives, tmp_path, values, batch_tokens=400 if model == "builtin" else 3000)
    stored: dict[str, bytes] = {}
    answers: dict[str, str] = {}
    moments = answer_moments(chain)
    for moment, number in moments if ALL or model == "tiny" else moments[-2:]:
        killed.kill(moment, number, lambda: "Making" in killed.said())
        stored = killed.check(stored)
        before, answers = answers, killed.answers_stored()
        assert before.items() <= answers.items(), "a stored answer changed"
    assert answers
    killed.finish()
    assert stored.items() == killed.check(stored).items()
    assert answers == killed.answers_stored(), "all were there when the table was written"
    table, files = killed.table(), killed.files()
    assert len(table) == 2 * texts
    killed.finish()
    assert killed.files() == files, "the same command again changes nothing"

    unkilled = killed.unkilled(tmp_path / "unkilled")
    same = sum(one == other for one, other in zip(table, unkilled, strict=True))
    print(f"texts that are the same as those of a run that nobody killed: {same} of {len(table)}")


class Evaluated(Chain):
    """The evaluation of a run, which charges metrics."""

    @property
    def command(self) -> list[str]:
        words = ["--embedder", "none", "--metrics", "leakage", "--seeds", "1", "--charge-metrics", "0.5"]
        return ["evaluate", self.values["data"], str(self.output), *words, "--ledger", self.values["ledger"]]

    @property
    def metrics(self) -> Path:
        return self.output / "release" / "metrics.json"


METRIC_MOMENTS = [
    "a value is stored",
    "charged metrics are written",
    *(["a value is drawn", "a value is confirmed", "charged metrics stand there"] if ALL else []),
    *(["a value is being stored", "a value is being confirmed"] if ALL else []),
]


def test_an_evaluation_that_is_killed_charges_its_metrics_once_and_uses_one_value(
    lives: subprocess.Popen[str], tmp_path: Path
) -> None:
    (tmp_path / "whole").mkdir()
    values = settings(tmp_path / "whole")
    Chain(lives, tmp_path / "whole", values).finish()
    with Ledger(values["ledger"]) as ledger:
        ledger.raise_cap("notes", cap=Budget(5, "1e-6"))
    (tmp_path / "whole" / "diary").unlink()
    for number, moment in enumerate(METRIC_MOMENTS):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", folder)
        killed = Evaluated(lives, folder, settings(folder))
        killed.kill(moment, 1)
        assert runs_charged(killed.values["ledger"]) == 2
        assert len(killed.noted("drawn")) == 1
        killed.finish()
        found = killed.metrics.read_bytes()
        assert runs_charged(killed.values["ledger"]) == 2
        (used,) = killed.noted("used").values()
        assert len(used) == 1, moment
    killed.finish()
    assert killed.metrics.read_bytes() == found, "the same command again changes nothing"
