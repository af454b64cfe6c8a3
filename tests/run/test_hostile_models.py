"""A model that does not do what it is asked is found out: its texts are not handed on without a word."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from clinic import flags, settings
from run_fixtures import Command, run
from server import FakeEndpoint, Seen, answer

from understudy.run.outputs import OutputFolder
from understudy.text.writing import MOST_TRIES

pytestmark = pytest.mark.usefixtures("gate_reads")
BASE = "Our router number {number} lost its connection after the update, please send a new one soon."
HOSTILE: dict[str, Callable[[int, str], str]] = {
    "ignoring": lambda number, _: BASE.format(number=number),
    "preamble": lambda number, _: (
        f"Sure! Here is the text you asked for:\n\n{BASE.format(number=number)}\n\nHope it helps!"
    ),
    "thinking": lambda number, _: f"<thinking>The user wants {number}.</thinking>\n\n{BASE.format(number=number)}",
    "harmony": lambda n, _: (
        f"<|channel|>analysis<|message|>Hm.<|end|><|channel|>final<|message|>{BASE.format(number=n)}"
    ),
    "fence": lambda number, _: f"```\n{BASE.format(number=number)}\n```",
    "quoted": lambda number, _: f'"{BASE.format(number=number)}"',
    "echo": lambda _, prompt: prompt,
    "echo and more": lambda number, prompt: f"{prompt}\n{BASE.format(number=number)}",
    "the same": lambda *_: "Our router lost its connection after the update, please send a new one.",
    "refusal": lambda *_: "I'm sorry, but I can't help with that request.",
    "refusal in German": lambda *_: "Es tut mir leid, aber dabei kann ich leider nicht helfen.",
    "end token": lambda number, _: f"{BASE.format(number=number)}</s>",
    "keywords": lambda _, prompt: ", ".join(asked(prompt)),
    "a loop": lambda _, prompt: f"We saw {asked(prompt)[0]}, " + "a special treat, " * 40,
    "the same with its phrases": lambda _, prompt: (
        f"Today we saw {' and '.join(asked(prompt)[:1])} in the clinic at noon."
    ),
    "in German": lambda n, prompt: (
        f"Der Patient klagt seit {n} Tagen über Schmerzen ({' und '.join(asked(prompt))}) und ging nach Hause."
    ),
    "in Chinese around": lambda _, prompt: (
        f"我们今天在诊所看到了{asked(prompt)[0]}，病人 {asked(prompt)[0]} 已经回家，情况良好，没有其他问题，谢谢。"
    ),
    "a note on the task": lambda _, prompt: f"This note uses all of the given words: {asked(prompt)[0]}.",
}
OPENINGS = (
    *("The patient came in with", "On Monday we talked about", "Nobody had told her of", "His mother asked about"),
    *("After a long walk there was", "The doctor had never seen such", "We were called because of", "It began with"),
)
ENDINGS = (
    *("which went away by itself.", "and nothing helped.", "so he stayed at home.", "but she felt better soon."),
    *(
        "as in the year before.",
        "and we do not know why.",
        "which worries the whole family.",
        "until the next morning.",
    ),
)


def asked(prompt: str) -> list[str]:
    """The phrases that a prompt asks for."""
    return prompt.rpartition("words: ")[2].partition(".")[0].split(", ")


def obedient(number: int, prompt: str) -> str:
    return f"{OPENINGS[number % 8]} {' and '.join(asked(prompt))} {ENDINGS[number // 8 % 8]}"


def hostile(folder: Path, write: Callable[[int, str], str], **changes: Any) -> tuple[dict[str, Any], FakeEndpoint]:
    def reply(number: int, seen: Seen) -> Any:
        if seen.method == "GET" or seen.prompt.startswith("Say ok"):
            return answer("ok")
        return answer(write(number, seen.prompt))

    endpoint = FakeEndpoint(reply)
    return settings(folder, llm="openai:m", insecure_noise_seed=1, records_per_label=6, **changes), endpoint


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_model_that_does_not_write_as_asked_is_refused(kind: str, tmp_path: Path, understudy: Command) -> None:
    values, endpoint = hostile(tmp_path, HOSTILE[kind])
    with endpoint:
        said = understudy("run", *flags({**values, "base_url": endpoint.base_url}), code=6)
    assert "--accept-all" in said.err or "The language model wrote no text at all" in said.err
    assert "understudy models check openai:m" in said.err
    assert not OutputFolder(Path(values["output"])).synthetic_file().exists()


VARIED = {"the same with its phrases", "in Chinese around"}  # few of the first texts are nearly the same


@pytest.mark.parametrize("kind", [*sorted(HOSTILE.keys() - VARIED), "blank", "no object"])
def test_models_that_never_write_well_get_few_requests(kind: str, tmp_path: Path, understudy: Command) -> None:
    (tmp_path / "schema.json").write_text('{"type": "object", "properties": {"note": {"type": "string"}}}')
    write = HOSTILE.get(kind, lambda *_: "" if kind == "blank" else "No object.")
    changes = {"json_schema": str(tmp_path / "schema.json")} if kind == "no object" else {}
    values, endpoint = hostile(tmp_path, write, **changes)
    values["records_per_label"] = 200
    with endpoint:
        understudy("run", *flags({**values, "base_url": endpoint.base_url}), code=6)
    repeated = {"echo": 1, "no object": MOST_TRIES}.get(kind, 0)  # an echo is empty: it may need more tokens
    assert len([each for each in endpoint.seen if each.method == "POST"]) <= 20 + 16 * repeated


def test_what_fails_is_kept_if_its_user_says_so_and_nothing_is_asked_twice(tmp_path: Path, understudy: Command) -> None:
    values, endpoint = hostile(tmp_path, HOSTILE["ignoring"])
    with endpoint:
        values["base_url"] = endpoint.base_url
        understudy("run", *flags(values), code=6)
        paid = len(endpoint.seen)
        said = understudy("run", *flags({**values, "accept_all": True}), code=0)
        assert len(endpoint.seen) == paid
    assert "0 of 12 texts passed the checks; 12 were kept all the same: 12 keep none of their phrases." in said.err
    table = pq.read_table(OutputFolder(Path(values["output"])).provenance_file)
    assert {json.loads(each)["fault"] for each in table["provenance"].to_pylist()} == {"phrases"}


def test_a_few_texts_that_fail_are_asked_again_then_left_out_and_counted(tmp_path: Path) -> None:
    def write(number: int, prompt: str) -> str:
        return HOSTILE["refusal"](number, prompt) if "rash" in prompt and "skin" in prompt else obedient(number, prompt)

    values, endpoint = hostile(tmp_path, write)
    with endpoint:
        made = run({**values, "base_url": endpoint.base_url, "records_per_label": 12})
    failed = made.reading.failed
    assert 0 < failed <= 8
    assert made.reading.faults == {"refusal": failed}
    assert made.missing == failed
    assert len(made.records) == 24 - failed
    assert made.to_json()["checks"] == {
        "read": 24, "passed": 24 - failed, "failed": {"refusal": failed}, "kept": False
    }  # fmt: skip
    assert f"{failed} were left out: {failed} refuse to write. Whether they make sense" in made.statement.table
    stated = (OutputFolder(Path(values["output"])).shareable / "statement.md").read_text()
    assert "refuse to write" in stated
    assert (
        sum("rash" in each.prompt and "skin" in each.prompt for each in endpoint.seen if each.method == "POST")
        == 3 * failed
    )


def test_a_model_that_does_as_it_is_told_passes(tmp_path: Path, understudy: Command) -> None:
    values, endpoint = hostile(tmp_path, obedient)
    with endpoint:
        said = understudy("run", *flags({**values, "base_url": endpoint.base_url}), code=0)
    assert "All 12 texts passed the checks." in said.err


@pytest.mark.parametrize(("kind", "code"), [("ignoring", 6), ("echo", 6), ("refusal", 6), ("a loop", 6), (None, 0)])
def test_check_tries_three_texts(kind: str | None, code: int, understudy: Command) -> None:
    def reply(number: int, seen: Seen) -> Any:
        if seen.method == "GET" or "words: " not in seen.prompt:
            return answer("6 7 8 Hello.")
        return answer((HOSTILE[kind] if kind else obedient)(number, seen.prompt))

    with FakeEndpoint(reply) as endpoint:
        said = understudy("models", "check", "openai:m", "--base-url", endpoint.base_url, code=code)
    if kind is None:
        assert "three texts: All 3 texts passed the checks." in said.out
