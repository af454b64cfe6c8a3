"""``kill -9`` at every moment that matters, each time started again by the same command.

A chain of kills, one after the other in one folder: while an endpoint writes, while private prediction decodes, while a
model on this machine generates, and while metrics are charged; then the command to its end.
CI does one chain of each; ``UNDERSTUDY_TEST_CHAINS=3`` does three, and some with the built-in model.
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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from clinic import flags, settings
from kill_points import Life
from local_fixtures import make_llama
from private_runs import predicting
from run_fixtures import runs_charged
from server import FakeEndpoint, Reply, Seen, answer

from understudy.ledger import Ledger
from understudy.ledger.store import RunStore
from understudy.methods.registry import load_release
from understudy.models.builtin import CHAT, is_pulled
from understudy.models.types import Completion
from understudy.privacy.guarantee import Budget
from understudy.release import Release

pytestmark = [pytest.mark.skipif(os.name == "nt", reason="there is no kill -9")]
ALL = "UNDERSTUDY_TEST_CHAINS" in os.environ
CHAINS = range(int(os.environ.get("UNDERSTUDY_TEST_CHAINS", "1")))
RANDOM = "a random moment"
PROBE = "Say ok."


@pytest.fixture(scope="module")
def lives() -> Iterator[subprocess.Popen[str]]:
    """What forks processes that have imported everything."""
    command = [sys.executable, str(Path(__file__).with_name("kill_points.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@dataclass
class Chain:
    """One run that is killed again and again.

    Args:
        lives: what forks its processes.
        changes: as of :class:`Life`.
    """

    lives: subprocess.Popen[str]
    folder: Path
    values: dict[str, Any]
    changes: dict[str, Any] = field(default_factory=dict)

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
        *,
        moment: str = "a value is drawn",
        number: int = 0,
        kill_when: Callable[[], bool] | None = None,
        after: float = 0.0,
    ) -> int:
        """How a process ended; the one that never kills itself is killed by this one ``after`` ``kill_when``."""
        said = str(self.folder / "said")
        Path(said).write_text("")
        life = Life(self.command, str(self.diary), said, moment, number, self.changes)
        orders, answers = self.lives.stdin, self.lives.stdout
        assert orders is not None
        assert answers is not None
        orders.write(json.dumps(asdict(life)) + "\n")
        orders.flush()
        process = int(answers.readline())
        if kill_when is not None:
            while not kill_when():
                os.kill(process, 0)  # ProcessLookupError: it has ended already
                time.sleep(0.005)
            time.sleep(random.uniform(0, after))
            os.kill(process, signal.SIGKILL)
        return int(answers.readline())

    def kill(self, moment: str, number: int, begun: Callable[[], bool] = lambda: True) -> None:
        """The command, killed at a moment; at a random one after it has ``begun``."""
        if moment == RANDOM:
            ended = self.live(kill_when=begun, after=0.3)
        else:
            ended = self.live(moment=moment, number=number)
        assert ended == -signal.SIGKILL, f"{moment} {number}: {self.said()}"

    def finish(self) -> None:
        assert self.live() == 0, self.said()

    def said(self) -> str:
        return (self.folder / "said").read_text("utf-8")

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.output / "release").iterdir()}

    def table(self) -> list[str]:
        return [str(text) for text in pq.read_table(self.output / "release" / "synthetic.parquet")["note"].to_pylist()]

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
        with RunStore.open(self.output / "private", noise="system") as store:
            return {key: Completion.from_json(text).text for key, text in store._database.rows("SELECT * FROM answer")}

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
        for line in self.diary.read_text("utf-8").splitlines() if self.diary.exists() else ():
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

    def check_again(self) -> None:
        files = self.files()
        self.finish()
        assert self.files() == files, "the same command again changes nothing"


AT_ONCE = 2


def test_four_real_kills_cost_one_charge_draw_and_answer(lives: subprocess.Popen[str], tmp_path: Path) -> None:
    held = [6]  # the request of each life from which on none is answered before it is killed

    def reply(number: int, seen: Seen) -> Reply:
        late = len([prompt for prompt in new_prompts() if prompt != PROBE]) >= held[0]
        return answer(f"Text on {seen.prompt}", delay=0.0 if seen.prompt == PROBE else 600.0 if late else 0.1)

    with FakeEndpoint(reply) as endpoint:
        endpoint_flags = {"llm": "openai:test", "base_url": endpoint.base_url, "accept_all": True}
        # All terms in every prompt, in some order: no two prompts are alike.
        values = settings(tmp_path, **endpoint_flags, top_terms=16, length=16, records_per_label=10, guide=False)
        killed = Chain(lives, tmp_path, values, {"understudy.run.generating:AT_ONCE": AT_ONCE})
        asked: list[str] = []

        def new_prompts() -> list[str]:
            return [seen.prompt for seen in endpoint.seen[len(asked) :]]

        def asked_for(number: int) -> Callable[[], bool]:
            return lambda: len([prompt for prompt in new_prompts() if prompt != PROBE]) >= number

        def says(line: str) -> Callable[[], bool]:
            return lambda: line in killed.said()

        kills = [*map(says, ("The ledger charged", "Reading the private records")), asked_for(3), asked_for(6)]
        stored: dict[str, bytes] = {}
        texts: dict[str, str] = {}
        for kill_when in kills:
            assert killed.live(kill_when=kill_when) == -signal.SIGKILL, killed.said()
            assert not {text.removeprefix("Text on ") for text in texts.values()} & set(new_prompts()), "asked again"
            asked += new_prompts()
            before, texts = texts, killed.answers_stored()
            assert before.items() <= texts.items()
            if runs_charged(values["ledger"]):
                stored = killed.check(stored)
        held[0] = 1000
        killed.finish()
        asked += new_prompts()
        stored = killed.check(stored)
        prompts = [prompt for prompt in asked if prompt != PROBE]
        assert len(prompts) - len(set(prompts)) <= 2 * (AT_ONCE + 2)  # in flight, or not yet on disk, at two kills
        assert killed.release().arrays["density"].tobytes() == stored["density"]
        killed.check_again()
        assert len(endpoint.seen) == len(asked), "a finished run asks nothing"


def text_moments(seed: int) -> list[tuple[str, int]]:
    """Seven moments, in some order, of processes that draw a few texts each."""
    lot = random.Random(seed)
    aimed = [
        ("a sum over private rows is made", lot.randint(5, 30)),
        ("a token is drawn", lot.randint(5, 30)),
        ("a value is drawn", lot.randint(2, 3)),
        ("a value is being stored", lot.randint(1, 3)),
        ("a value is stored", lot.randint(1, 3)),
        ("a value is being confirmed", lot.randint(1, 3)),
        ("a value is confirmed", lot.randint(1, 3)),
    ]
    lot.shuffle(aimed)
    return [*aimed, (RANDOM, 0)] if ALL else aimed


@pytest.mark.parametrize("chain", CHAINS)
def test_private_prediction_that_is_killed_while_it_decodes_charges_once_and_uses_no_text_twice(
    lives: subprocess.Popen[str], tmp_path: Path, chain: int
) -> None:
    killed = Chain(lives, tmp_path, predicting(tmp_path, make_llama(tmp_path / "llama"), tokens_per_batch=60))
    values: dict[str, bytes] = {}
    for moment, number in text_moments(chain):
        drawn = sum(map(len, killed.noted("drawn").values()))

        def begun(before: int = drawn) -> bool:
            return sum(map(len, killed.noted("drawn").values())) >= before + 2

        killed.kill(moment, number, begun)
        values = killed.check(values)
    killed.finish()
    values = killed.check(values)
    texts = {name for name in values if name.startswith("tokens/")}
    assert texts == set(killed.confirmed()) == set(killed.noted("used"))
    made = killed.release()
    assert len(made.strings["texts"]) >= 4 * 60 // 10
    assert sorted(killed.table()) == sorted(made.strings["texts"])
    assert made.statement.private
    killed.check_again()
    assert killed.values_stored().items() >= {name: values[name] for name in texts}.items()
    for name in {name.rpartition("/")[0] for name in killed.confirmed()}:
        assert private_tokens(killed, name) == 60


def private_tokens(chain: Chain, batch: str) -> int:
    with RunStore.open(chain.output / "private", noise="system") as store:
        found = [store.value(name) for name in store.names() if name.rpartition("/")[0] == batch]
    return sum(int(arrays["private"].sum()) for arrays in found if arrays is not None)


def answer_moments(seed: int) -> list[tuple[str, int]]:
    lot = random.Random(seed)
    aimed = [
        ("a token is chosen", lot.randint(5, 30)),
        ("a batch is answered", lot.randint(1, 2)),
        ("answers are being stored", 1),
        ("answers are stored", 1),
        *([(RANDOM, 0)] if ALL else []),
    ]
    lot.shuffle(aimed)
    return [*aimed, ("the records are written", 1), ("the records stand there", 1)]


BUILTIN = [
    pytest.mark.models,
    pytest.mark.skipif(not (ALL and is_pulled(CHAT)), reason="set UNDERSTUDY_TEST_CHAINS, and pull the models"),
]


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("model", ["tiny", pytest.param("builtin", marks=BUILTIN)])
def test_a_model_of_this_machine_that_is_killed_while_it_generates_writes_every_text_and_none_anew(
    lives: subprocess.Popen[str], tmp_path: Path, model: str, chain: int
) -> None:
    spec = "builtin" if model == "builtin" else f"hf:{make_llama(tmp_path / 'llama', window=4096)}"
    asked = {"records_per_label": 14, "max_tokens": 12, "document_type": "note", "length": 5, "accept_all": True}
    values = settings(tmp_path, llm=spec, guide=False, **asked)
    few = {"cpu": 400 if model == "builtin" else 3000}  # so that a few texts are many batches
    killed = Chain(lives, tmp_path, values, {"understudy.models.local:_BATCH_TOKENS": few})
    stored: dict[str, bytes] = {}
    answers: dict[str, str] = {}
    for moment, number in answer_moments(chain):
        killed.kill(moment, number, lambda: "Making" in killed.said())
        stored = killed.check(stored)
        before, answers = answers, killed.answers_stored()
        assert before.items() <= answers.items(), "a stored answer changed"
    assert answers
    killed.finish()
    assert stored.items() == killed.check(stored).items()
    assert answers == killed.answers_stored(), "all were there when the table was written"
    assert len(killed.table()) == 2 * 14
    killed.check_again()


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
    lives: subprocess.Popen[str], tmp_path: Path, finished: Callable[..., dict[str, Any]]
) -> None:
    (tmp_path / "whole").mkdir()
    with Ledger(finished(tmp_path / "whole")["ledger"]) as ledger:
        ledger.raise_cap("notes", cap=Budget(5, "1e-6"))
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
