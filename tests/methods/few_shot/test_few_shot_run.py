"""Few-shot from a file to texts, with a tiny model that reads private texts and a chat model that must not."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
from clinic import FakeChat, rows, settings, write_csv
from local_fixtures import make_llama
from run_fixtures import runs_charged

from understudy.base.errors import ConfigError, ResumeError
from understudy.methods.registry import GROUP
from understudy.run.pipeline import generate, release, run
from understudy.run.settings import RunConfig, run_config

PLANT = "zqxvplanted"
PROMPT = """
document_type: note
user: "-"
prediction:
  completion: {before: "Notes.", block: "T:{text}", cue: "T:"}
"""


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints([EntryPoint("few-shot", "understudy.methods.few_shot.method:FewShot", GROUP)])
    monkeypatch.setattr("understudy.methods.registry.entry_points", lambda group: points.select(group=group))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture
def config(tmp_path: Path, llama: Path) -> Callable[..., RunConfig]:
    def make(**changes: Any) -> RunConfig:
        table = [
            {**row, "note": f"{PLANT} {row['note']}", "clinician": f"{PLANT}{number % 5}"}
            for number, row in enumerate(rows(20))
        ]
        write_csv(tmp_path / "notes.csv", table)
        (tmp_path / "prompt.yaml").write_text(PROMPT)
        own: Mapping[str, Any] = {"vocabulary": None, "vocabulary_is_public": None, "top_terms": None}
        return run_config(
            settings(
                tmp_path,
                **{
                    **own,
                    "length": None,
                    "bandwidth": None,
                    "method": "few-shot",
                    "private_model": f"hf:{llama}",
                    "llm": "fake",
                    "prompt": str(tmp_path / "prompt.yaml"),
                    "max_tokens": 16,
                    "sampling_rate": 0.5,
                    "subsets": 3,
                    "examples_per_subset": 2,
                    "private_text_tokens": 16,
                    "tokens": 20,
                    "exemplar_tokens": 8,
                    "exemplars": 2,
                    "candidates": 20,
                    **changes,
                },
            )
        )

    return make


def holds_plant(folder: Path) -> list[str]:
    found = []
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        parts = [path.read_bytes()]
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                parts += [archive.read(name) for name in archive.namelist()]
        if any(PLANT.encode() in part for part in parts):
            found.append(path.name)
    return found


def test_private_text_reaches_neither_the_chat_model_nor_the_output(
    config: Callable[..., RunConfig], use_chat: Callable[[FakeChat], FakeChat], tmp_path: Path
) -> None:
    chat = use_chat(FakeChat())
    result = run(config(owner="clinician"))
    assert len(result.records) == 8
    assert len(chat.asked) == 8
    exemplars = set(result.release.strings["exemplars"])
    for request in chat.asked:
        assert not any(PLANT in message.content for message in request.messages)
        assert {m.content for m in request.messages if m.role == "assistant"} <= exemplars
    assert holds_plant(tmp_path / "out") == []
    assert result.statement.unit.max_records == 1
    assert result.release.statement.public_inputs["private model"]["source"].startswith("hf:")


def test_a_release_is_charged_once_and_goes_on(
    config: Callable[..., RunConfig], use_chat: Callable[[FakeChat], FakeChat], tmp_path: Path
) -> None:
    chat = use_chat(FakeChat())
    first = release(config(exemplars=1)).release
    again = release(config(exemplars=1)).release
    assert first.digest == again.digest
    more = release(config(exemplars=3), resume=True).release
    assert not chat.asked, "a release asks no language model"
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    by_label = [
        [text for text, of in zip(made.strings["exemplars"], made.arrays["label"].tolist(), strict=True) if of == 0]
        for made in (first, more)
    ]
    assert by_label[1][: len(by_label[0])] == by_label[0]
    assert len(more.arrays["label"]) > len(first.arrays["label"])
    made = generate(more, llm="fake", records=5, output=str(tmp_path / "texts"), seed=3)
    assert len(made.records) == 5


def test_a_seeded_release_is_neither_taken_up_nor_continued_by_a_run_with_a_promise(
    config: Callable[..., RunConfig], use_chat: Callable[[FakeChat], FakeChat], tmp_path: Path
) -> None:
    use_chat(FakeChat())
    seeded = release(config(insecure_noise_seed=0)).release
    assert seeded.statement.private is False
    with pytest.raises(ConfigError, match="No run began in this output folder"):
        release(config(exemplars=3), resume=True)
    private = release(config()).release
    assert private.statement.private is True
    assert private.digest != seeded.digest
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    for resume in (False, True):
        with pytest.raises(ResumeError, match="NOT PRIVATE must not replace"):
            release(config(insecure_noise_seed=0), resume=resume)


def test_another_setting_of_the_noise_cannot_go_on(
    config: Callable[..., RunConfig], use_chat: Callable[[FakeChat], FakeChat]
) -> None:
    use_chat(FakeChat())
    release(config())
    with pytest.raises(ResumeError, match="tokens: 20 became 30"):
        release(config(tokens=30), resume=True)


def test_generating_without_a_language_model_is_refused(config: Callable[..., RunConfig]) -> None:
    with pytest.raises(ConfigError, match=r"few-shot needs a language model.*--llm"):
        run(config(llm="none"))
