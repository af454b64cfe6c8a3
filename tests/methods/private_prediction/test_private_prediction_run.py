"""Whole runs by command line, YAML and Python, with a tiny model: charges, refusals, going on, and what leaves."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from clinic import flags, write_csv
from private_runs import predicting
from run_fixtures import Command, runs_charged
from test_planted_strings import PLANT, assert_clean, assert_clean_folder, plant

import understudy as us
from understudy.ledger.store import RunStore
from understudy.methods.registry import load_release
from understudy.models.builtin import CHAT, is_pulled
from understudy.models.catalog import load_causal
from understudy.release import Release
from understudy.run import pipeline as running
from understudy.run.settings import run_config


def release_of(folder: Path) -> Release:
    return load_release(folder / "out" / "release" / "private-prediction.release")


def charged(folder: Path) -> int:
    return runs_charged(folder / "ledger.sqlite")


def stored(folder: Path) -> dict[str, bytes]:
    """The tokens of the texts that are on disk."""
    with RunStore.open(folder / "out" / "private", noise="system") as store:
        found = {name: store.value(name) for name in store.names() if name.startswith("tokens/")}
    return {name: value["tokens"].tobytes() for name, value in found.items() if value is not None}


def test_a_run_writes_its_release_s_texts_and_charges_once(tmp_path: Path, llama: Path, understudy: Command) -> None:
    values = predicting(tmp_path, llama)
    said = understudy("run", *flags(values))
    assert said.code == 0, said.err
    made = release_of(tmp_path)
    assert f"Wrote {len(made.strings['texts'])} synthetic records" in said.err
    assert "Batches to decode texts for: 4" in said.err
    assert "cut to" not in said.err
    assert made.strings["texts"]
    assert made.arrays["private"].sum() <= 4 * 30
    assert set(made.arrays["batch"].tolist()) <= {0, 1}
    assert charged(tmp_path) == 1
    more = ("--output", str(tmp_path / "more"))
    again = understudy("run", *flags(values))
    assert again.code == 0
    assert "nothing is charged" in again.err
    assert charged(tmp_path) == 1
    said = understudy("generate", str(tmp_path / "out" / "release" / "private-prediction.release"), *more)
    assert said.code == 0, said.err


def test_what_cannot_be_is_refused_before_anything_is_charged(tmp_path: Path, llama: Path, understudy: Command) -> None:
    (tmp_path / "named.json").write_text('{"required": ["name"]}')
    named = {"json_schema": str(tmp_path / "named.json"), "text": None, "record_columns": "note,clinician"}
    for changes, message in (({"private_model": "openai:gpt"}, "must run on this machine"), (named, "requires name")):
        said = understudy("run", *flags(predicting(tmp_path, llama, **changes)))
        assert said.code != 0
        assert message in said.err
        assert charged(tmp_path) == 0
        assert "Traceback" not in said.err


def test_a_release_that_stopped_resumes_and_charges_no_more(tmp_path: Path, llama: Path, understudy: Command) -> None:
    values = predicting(tmp_path, llama, texts_per_batch=1)
    said = understudy("release", *flags(values))
    assert said.code == 0, said.err
    assert release_of(tmp_path).noise_check["private_tokens_left"] > 0
    first = stored(tmp_path)
    assert len(first) == 4
    said = understudy("release", "--continue", *flags({**values, "texts_per_batch": 2}))
    assert said.code == 0, said.err
    second = stored(tmp_path)
    assert len(second) == 8
    assert first.items() <= second.items()
    assert understudy("release", "--continue", *flags(predicting(tmp_path, llama, texts_per_batch=999))).code == 0
    with RunStore.open(tmp_path / "out" / "private", noise="system") as store:
        for batch in ("0/0", "0/1", "1/0", "1/1"):
            parts = [store.value(name) for name in store.names() if name.startswith(f"tokens/{batch}/")]
            assert sum(int(part["private"].sum()) for part in parts if part is not None) == 30
    assert charged(tmp_path) == 1
    assert second.items() <= stored(tmp_path).items()


def test_transcripts_are_released_apart_from_what_is_none(tmp_path: Path, llama: Path, understudy: Command) -> None:
    said = understudy("run", *flags(predicting(tmp_path, llama, text="note,clinician")))
    assert said.code == 0, said.err
    made = release_of(tmp_path)
    assert made.schema.form.fields == ("note", "clinician")
    assert len(made.strings["no records"]) > 0, "random weights write no transcript"
    assert all(made.schema.form.parse(text) for text in made.strings["texts"])
    assert "no transcript" in understudy("show", str(tmp_path / "out"), code=0).out


def test_owners_and_a_table_without_labels(tmp_path: Path, llama: Path, understudy: Command) -> None:
    values = predicting(tmp_path, llama, owner="clinician", max_records_per_owner=3, label=None, labels=None)
    said = understudy("run", *flags(values))
    assert said.code == 0, said.err
    assert set(release_of(tmp_path).arrays["label"].tolist()) == {0}
    assert charged(tmp_path) == 1


# What leaves


@pytest.mark.parametrize("options", [{}, {"sparse_vector": True, "epsilon": "300"}], ids=["plain", "sparse vector"])
def test_nothing_planted_leaves_a_run(
    tmp_path: Path, llama: Path, understudy: Command, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    caplog.set_level(logging.DEBUG)
    plant(tmp_path)
    values = predicting(tmp_path, llama, max_bad_rows=1, **options)
    said = understudy("run", *flags(values))
    assert said.code == 0, said.err
    release = str(tmp_path / "out" / "release" / "private-prediction.release")
    more = understudy("show", release, "--json")
    assert_clean(said.out + said.err + more.out + more.err + caplog.text, "what was said")
    assert assert_clean_folder(tmp_path / "out" / "release") == 7
    assert assert_clean_folder(tmp_path / "out") > 4  # the private folder too
    diary = (tmp_path / "out" / "private" / "diary.jsonl").read_text("utf-8").splitlines()
    (cut,) = [entry for entry in map(json.loads, diary) if "private texts cut" in entry]
    assert cut["private texts cut"] == 60
    assert cut["to tokens"] == [24, 24]


def test_nothing_planted_is_in_the_error_of_a_draw_that_fails(
    tmp_path: Path, llama: Path, understudy: Command, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    plant(tmp_path)

    def fails(*_: Any, **__: Any) -> Any:
        raise us.UnderstudyError("A draw failed.", "Try again.")

    monkeypatch.setattr("understudy.methods.shared.decoding.sums.TokenSums.over", fails)
    said = understudy("run", *flags(predicting(tmp_path, llama, max_bad_rows=1)))
    assert said.code != 0
    assert_clean(said.out + said.err + caplog.text, "what was said")
    monkeypatch.undo()


def test_a_text_longer_than_the_tokenizer_likes_is_not_remarked_on(
    tmp_path: Path, llama: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    folder = shutil.copytree(llama, tmp_path / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": 16}), "utf-8")
    assert len(load_causal(f"hf:{folder}", device="cpu").encode("a text " * 9)) == 63
    said = capfd.readouterr()
    text = said.out + said.err + caplog.text
    assert "63 >" not in text  # how transformers would say it
    assert "maximum sequence length" not in text


def test_a_planted_string_in_labels_or_a_text_is_noticed(tmp_path: Path, llama: Path, understudy: Command) -> None:
    """The broken twin: a label set that is read from the data is shown, and says so."""
    write_csv(tmp_path / "notes.csv", [{"note": f"a text {n}", "department": f"{PLANT}{n % 2}"} for n in range(9)])
    values = predicting(tmp_path, llama, labels=None, labels_from_data=True)
    said = understudy("run", *flags(values))
    assert said.code == 0, said.err
    with pytest.raises(AssertionError, match="planted"):
        assert_clean_folder(tmp_path / "out" / "release")
    assert "it is not protected" in said.err


@pytest.mark.models
@pytest.mark.skipif(not is_pulled(CHAT), reason="needs: understudy models pull builtin")
def test_the_embedded_model_draws_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_causal("builtin", device="cpu")
    assert model.ends
    monkeypatch.setattr("understudy.models.catalog.load_causal", lambda *_, **__: model)
    few = {"texts_per_batch": 1, "batches": 1, "batch_size": 1, "tokens_per_batch": 3, "max_tokens": 3}
    changes = {"private_model": "builtin", "prompt": None, **few}
    values = predicting(tmp_path, tmp_path, **changes)
    made = running.release(run_config(values)).release
    assert len(made.strings["texts"]) <= 2
    assert made.statement.public_inputs["private model"]["source"].startswith("builtin:")


def test_a_window_that_cuts_private_texts_short_says_so(tmp_path: Path, llama: Path, understudy: Command) -> None:
    said = understudy("release", *flags(predicting(tmp_path, llama, max_tokens=220, texts_per_batch=1)))
    assert said.code == 0, said.err
    assert "Private texts are cut to 21 tokens, not 24: no more fit the model's window of 256." in said.err
