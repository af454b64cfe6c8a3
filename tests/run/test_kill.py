"""``kill -9`` of the command line at five points of one run, each time started again by the same command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from clinic import flags, settings
from run_fixtures import runs_charged
from server import FakeEndpoint, Reply, Seen, answer

from understudy.ledger.store import RunStore
from understudy.ledger.store.database import Database
from understudy.methods.registry import load_release
from understudy.models.types import Completion

AT_ONCE = 2
PROGRAM = (
    f"from understudy.cli import main; from understudy.run import generating; generating.AT_ONCE = {AT_ONCE}; main()"
)
COMMAND = [sys.executable, "-c", PROGRAM, "run"]
PROBE = "Say ok."


def start(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_when_said(process: subprocess.Popen[str], line: str) -> None:
    assert process.stderr is not None
    for said in process.stderr:
        if line in said:
            break
    else:
        pytest.fail(f"the run ended before it said {line!r}")
    kill(process)


def kill_when(process: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    while not reached():
        assert process.poll() is None, "the run ended before it was killed"
        time.sleep(0.005)
    kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def stored(output: Path) -> tuple[dict[str, bytes], set[str]]:
    """The noisy values and the texts of the answers that are on disk."""
    with RunStore.open(output / "private", noise="system") as store:
        values = {
            f"{name}/{key}": array.tobytes()
            for name in ("vocabulary", "density")
            for key, array in (store.value(name) or {}).items()
        }
        database: Database = store._database
        with database.reading() as connection:
            texts = {Completion.from_json(text).text for (text,) in connection.execute("SELECT text FROM answer")}
    return values, texts


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="there is no kill -9")
def test_five_real_kills_cost_one_charge_one_draw_and_no_answer_twice(tmp_path: Path) -> None:
    output = tmp_path / "out"

    def reply(number: int, seen: Seen) -> Reply:
        return answer(f"Text on {seen.prompt}", delay=0.0 if seen.prompt == PROBE else 0.1)

    with FakeEndpoint(reply) as endpoint:
        endpoint_flags = {"llm": "openai:test", "base_url": endpoint.base_url}
        # All terms in every prompt, in some order: no two prompts are alike.
        everything = {"top_terms": 16, "length": 16, "records_per_label": 10}
        words = flags(settings(tmp_path, **endpoint_flags, **everything))
        asked: list[str] = []

        def new_prompts() -> list[str]:
            return [seen.prompt for seen in endpoint.seen[len(asked) :]]

        def asked_for(number: int) -> Callable[[], bool]:
            return lambda: len([prompt for prompt in new_prompts() if prompt != PROBE]) >= number

        kills: list[Callable[[subprocess.Popen[str]], None]] = [
            lambda process: kill_when_said(process, "Protecting"),
            lambda process: kill_when_said(process, "The ledger holds"),
            lambda process: kill_when_said(process, "Reading the private records"),
            lambda process: kill_when(process, asked_for(3)),
            lambda process: kill_when(process, asked_for(6)),
        ]
        values: dict[str, bytes] = {}
        texts: set[str] = set()
        for kill_it in [*kills, None]:
            process = start(words)
            if kill_it is not None:
                kill_it(process)
            else:
                _, said = process.communicate()
                assert process.returncode == 0, said
            answered = {text.removeprefix("Text on ") for text in texts}
            assert not answered & set(new_prompts()), "an answer on disk was asked for again"
            asked += new_prompts()
            now_values, now_texts = stored(output)
            assert values.items() <= now_values.items(), "a stored noisy value changed"
            assert texts <= now_texts
            values, texts = now_values, now_texts
            assert runs_charged(tmp_path / "ledger.sqlite") <= 1

        assert runs_charged(tmp_path / "ledger.sqlite") == 1
        prompts = [prompt for prompt in asked if prompt != PROBE]
        assert len(prompts) - len(set(prompts)) <= 2 * (AT_ONCE + 2)  # in flight, or not yet on disk, at two kills
        released = load_release(output / "release" / "dp-kps.release")
        assert released.arrays["density"].tobytes() == values["density/value"]
        once = {path.name: path.read_bytes() for path in (output / "release").iterdir()}
        process = start(words)
        process.communicate()
        assert process.returncode == 0
        assert len(endpoint.seen) == len(asked), "a finished run asks nothing"
        assert {path.name: path.read_bytes() for path in (output / "release").iterdir()} == once
