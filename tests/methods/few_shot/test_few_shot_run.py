"""Few-shot from a file to texts, with a tiny model that reads private texts and a chat model that must not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clinic import FakeChat
from local_runs import PLANT, local_run
from run_fixtures import UseChat, files_holding, runs_charged

from understudy.run.pipeline import generate, release, run
from understudy.run.settings import RunConfig, run_config

PROMPT = """
document_type: note
user: "-"
prediction:
  completion: {before: "Notes.", block: "T:{text}", cue: "T:"}
"""


SMALL: dict[str, Any] = {
    **{"method": "few-shot", "llm": "fake", "max_tokens": 16, "sampling_rate": 0.5, "subsets": 3, "tokens": 20},
    **{"examples_per_subset": 2, "exemplars": 2, "exemplar_tokens": 8, "candidates": 20, "private_text_tokens": 16},
}


@pytest.fixture
def config(tmp_path: Path, llama: Path) -> Callable[..., RunConfig]:
    (tmp_path / "prompt.yaml").write_text(PROMPT)
    small = {**SMALL, "document_type": None, "prompt": str(tmp_path / "prompt.yaml")}
    return lambda **changes: run_config(local_run(tmp_path, llama, **{**small, **changes}))


def test_private_text_reaches_neither_the_chat_model_nor_the_output(
    config: Callable[..., RunConfig], use_chat: UseChat, tmp_path: Path
) -> None:
    chat = use_chat(FakeChat())
    result = run(config(owner="clinician"))
    assert len(result.records) == 8
    assert len(chat.asked) == 8
    exemplars = set(result.release.strings["exemplars"])
    for request in chat.asked:
        assert not any(PLANT in message.content for message in request.messages)
        assert {m.content for m in request.messages if m.role == "assistant"} <= exemplars
    assert files_holding(tmp_path / "out", PLANT.encode()) == []
    assert result.statement.unit.max_records == 1
    assert result.release.statement.public_inputs["private model"]["source"].startswith("hf:")


def test_a_release_is_charged_once_and_goes_on(
    config: Callable[..., RunConfig], use_chat: UseChat, tmp_path: Path
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
