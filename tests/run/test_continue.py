"""``release --continue``: what is paid for and not used is used, nothing more is charged, the promise is the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clinic import flags, rows, settings, write_csv
from parts_method import BATCHES, Drawing, InParts, WithModel, install, parts
from run_fixtures import Command, run, runs_charged

import understudy as us
from understudy.base.errors import ConfigError, LedgerError, ReleaseError, ResumeError
from understudy.ledger.store import RunStore
from understudy.methods.registry import load_release
from understudy.release import Release
from understudy.run import pipeline as running
from understudy.run.settings import run_config

LABELS = 2


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch.setattr)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all parts that are drawn."""
    made: list[str] = []
    draw = Drawing.draw

    def watched(name: str) -> Any:
        made.append(name)
        return draw(name)

    monkeypatch.setattr(Drawing, "draw", staticmethod(watched))
    return made


def release(values: dict[str, Any], *, resume: bool = False, told: list[str] | None = None, **changes: Any) -> Release:
    listener = running.Listener((told if told is not None else []).append)
    return running.release(run_config({**values, **changes}), resume=resume, listener=listener).release


def texts(made: Release) -> set[str]:
    return {text for strings in made.strings.values() for text in strings}


def store_files(values: dict[str, Any]) -> set[str]:
    return {path.name for path in (Path(values["output"]) / "private").iterdir() if not path.name.endswith(("shm",))}


def test_a_release_goes_on_where_it_stopped_and_charges_nothing_more(tmp_path: Path, drawn: list[str]) -> None:
    values = parts(tmp_path, texts_per_batch=2)
    first = release(values)
    statement = (tmp_path / "out" / "release" / "statement.json").read_bytes()
    assert len(drawn) == LABELS * BATCHES * 2
    drawn.clear()
    told: list[str] = []
    second = release(values, resume=True, texts_per_batch=3, told=told)
    assert sorted(drawn) == [f"tokens/{label}/{batch}/2" for label in range(LABELS) for batch in range(BATCHES)]
    assert texts(first) < texts(second)
    assert len(texts(second)) == LABELS * BATCHES * 3
    assert load_release(tmp_path / "out" / "release" / "in-parts.release").digest == second.digest
    assert (tmp_path / "out" / "release" / "statement.json").read_bytes() == statement
    assert second.statement == first.statement
    assert second.parameters["texts_per_batch"] == 3
    assert runs_charged(values["ledger"]) == 1
    drawn.clear()
    assert release(values, resume=True, texts_per_batch=3).digest == second.digest
    assert not drawn


def test_the_command_line_continues_whatever_verb_and_model_began(tmp_path: Path, understudy: Command) -> None:
    values = parts(tmp_path, texts_per_batch=1)
    assert understudy("run", *flags({**values, "llm": "none"})).code == 0
    said = understudy("release", "--continue", *flags({**values, "texts_per_batch": 3}), code=0)
    assert said.out.strip().endswith("in-parts.release")
    assert len(texts(load_release(said.out.strip()))) == LABELS * BATCHES * 3
    assert not (tmp_path / "out" / "release" / "synthetic.parquet").exists(), "of the smaller release"
    assert understudy("run", *flags({**values, "texts_per_batch": 3})).code == 0
    assert runs_charged(values["ledger"]) == 1
    assert "--continue" in understudy("release", "--help").out
    assert "--continue" not in understudy("run", "--help").out


def test_without_continue_the_finished_release_is_returned_with_a_hint(tmp_path: Path, drawn: list[str]) -> None:
    values = parts(tmp_path, texts_per_batch=2)
    first = release(values)
    drawn.clear()
    (tmp_path / "notes.csv").unlink()  # no private record is read
    told: list[str] = []
    assert release(values, texts_per_batch=4, told=told).digest == first.digest
    assert any("nothing is charged (release --continue uses the rest of what was paid for)" in line for line in told)
    assert not drawn
    other = {"ledger": str(tmp_path / "other.sqlite"), "output": str(tmp_path / "plain")}
    values = settings(tmp_path, records_per_label=None, **other)
    release(values)
    told.clear()
    release(values, told=told)
    assert any("nothing is charged" in line for line in told)
    assert not any("--continue" in line for line in told)


def test_what_is_used_up_continues_to_the_same_release(tmp_path: Path, drawn: list[str]) -> None:
    values = parts(tmp_path, texts_per_batch=9, paid=2)
    first = release(values)
    assert len(drawn) == LABELS * BATCHES * 2
    told: list[str] = []
    again = release(values, resume=True, texts_per_batch=50, told=told)
    assert len(drawn) == LABELS * BATCHES * 2
    assert texts(again) == texts(first)
    assert any("All that was paid for is used" in line for line in told)
    assert runs_charged(values["ledger"]) == 1


def test_a_continuation_that_is_killed_goes_on_and_the_finished_release_stays_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: list[str]
) -> None:
    values = parts(tmp_path, texts_per_batch=1, threads=1)
    first = release(values)
    drawn.clear()
    draw = Drawing.draw

    def stop(name: str) -> Any:
        if len(drawn) == 2:
            raise KeyboardInterrupt
        return draw(name)

    with monkeypatch.context() as patch:
        patch.setattr(Drawing, "draw", staticmethod(stop))
        with pytest.raises(KeyboardInterrupt):
            release(values, resume=True, texts_per_batch=2)
    assert release(values).digest == first.digest
    second = release(values, resume=True, texts_per_batch=2)
    assert len(drawn) == len(set(drawn)) == LABELS * BATCHES
    assert len(texts(second)) == LABELS * BATCHES * 2


def test_any_other_setting_that_changed_and_a_smaller_release_are_refused(tmp_path: Path, drawn: list[str]) -> None:
    values = parts(tmp_path, texts_per_batch=2)
    made = release(values)
    drawn.clear()
    changes: dict[str, Any] = {"epsilon": "2", "paid": 5, "seed": 1, "owner": "clinician"}
    for name, value in changes.items():
        with pytest.raises(ResumeError, match=f"{name}: .* became"):
            release(values, resume=True, texts_per_batch=3, **{name: value})
    with pytest.raises(ConfigError, match="texts_per_batch=1 would stop earlier"):
        release(values, resume=True, texts_per_batch=1)
    assert not drawn
    assert runs_charged(values["ledger"]) == 1
    assert texts(release(values, resume=True)) == texts(made)


def test_what_cannot_be_continued_is_refused_before_its_folder_is_touched(tmp_path: Path) -> None:
    for values in (settings(tmp_path, records_per_label=None), parts(tmp_path, method="all-at-once")):
        with pytest.raises(ConfigError, match="nothing to continue"):
            release(values, resume=True)
        assert not (tmp_path / "out").exists()
    for output in (str(tmp_path / "out"), None):
        with pytest.raises(ConfigError, match="This output folder contains no run"):
            release({**parts(tmp_path), "output": output}, resume=True)
    assert runs_charged(tmp_path / "ledger.sqlite") == 0


def test_continue_and_fresh_are_refused_together_and_the_run_stays_as_it_is(
    tmp_path: Path, drawn: list[str], understudy: Command
) -> None:
    values = parts(tmp_path, texts_per_batch=1)
    first = release(values)
    files = store_files(values)
    with pytest.raises(ConfigError, match="both continue and start over"):
        release(values, resume=True, fresh=True)
    said = understudy("release", "--continue", *flags({**values, "fresh": True}), code=2)
    assert "Give one of --continue and --fresh" in said.err
    assert store_files(values) == files
    drawn.clear()
    assert texts(first) < texts(release(values, resume=True, texts_per_batch=2))
    assert len(drawn) == LABELS * BATCHES


def test_data_a_ledger_or_a_copy_of_the_folder_that_changed_are_refused(tmp_path: Path, drawn: list[str]) -> None:
    values = parts(tmp_path)
    release(values)
    drawn.clear()
    write_csv(tmp_path / "notes.csv", rows(39))
    with pytest.raises(ResumeError, match="are not those that this run began with"):
        release(values, resume=True, texts_per_batch=3)
    write_csv(tmp_path / "notes.csv", rows())
    with pytest.raises(ResumeError, match="charged in a different ledger"):
        release(values, resume=True, texts_per_batch=3, ledger=str(tmp_path / "other.sqlite"))
    assert not drawn
    assert runs_charged(tmp_path / "other.sqlite") == 0
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    release(values, resume=True, texts_per_batch=3)
    assert len(drawn) == LABELS * BATCHES
    with pytest.raises(LedgerError, match="Another copy of this output folder"):
        release({**values, "output": str(tmp_path / "copy")}, resume=True, texts_per_batch=3)
    assert len(drawn) == LABELS * BATCHES


def test_it_continues_from_python_and_without_noise(tmp_path: Path) -> None:
    corpus = us.read_corpus(rows(), text="note")
    for name, changes in [("private", {}), ("insecure", {"insecure_no_noise": True})]:
        options = {"output": str(tmp_path / name), "ledger": str(tmp_path / "l.sqlite"), "dataset": "notes", **changes}
        first = us.release(corpus, InParts(texts_per_batch=1), us.Budget(1, 0), **options)
        second = us.release(corpus, InParts(texts_per_batch=4), us.Budget(1, 0), resume=True, **options)
        assert texts(first) < texts(second)
    assert runs_charged(tmp_path / "l.sqlite") == 1


def test_where_a_release_stops_is_no_lasting_setting() -> None:
    here = {"epsilon": 3, "delta": 0, "method": "in-parts"}
    assert "texts_per_batch" not in run_config(here).lasting
    assert run_config({**here, "texts_per_batch": 9}).lasting == run_config(here).lasting
    assert run_config({**here, "paid": 9}).lasting != run_config(here).lasting


# The Release holds the texts itself


def test_a_run_writes_all_that_the_release_holds_or_as_many_as_are_asked_for(tmp_path: Path) -> None:
    told: list[str] = []
    listener = running.Listener(told.append)

    def labels(**many: int) -> list[int]:
        config = run_config(parts(tmp_path, texts_per_batch=2, output=None, insecure_no_noise=True, **many))
        return [record.label for record in running.run(config, listener=listener).records]

    assert labels() == labels(records=8) == [0] * 4 + [1] * 4
    assert labels(records_per_label=3) == [0, 0, 0, 1, 1, 1]
    assert not any("asked for" in line for line in told)
    for many in ({"records_per_label": 50}, {"records": 100}):
        told.clear()
        assert labels(**many) == [0] * 4 + [1] * 4
        assert "100 texts are requested, but the Release contains only 8 of them." in told


def test_generate_hands_out_all_or_as_many_as_are_there(tmp_path: Path) -> None:
    made = release(parts(tmp_path, texts_per_batch=2))
    assert {record.text for record in running.generate(made).records} == texts(made)
    assert len(running.generate(made, records=3).records) == 3
    with pytest.raises(ReleaseError, match="holds 4 texts of a label"):
        running.generate(made, records_per_label=5)


def test_two_numbers_of_records_are_refused_before_anything_is_done(tmp_path: Path) -> None:
    values = parts(tmp_path, records=4, records_per_label=2)
    with pytest.raises(ConfigError, match="Give one of"):
        run(values)
    assert not (tmp_path / "out").exists()
    made = release(parts(tmp_path))
    with pytest.raises(ConfigError, match="Give one of"):
        running.generate(made, records=4, records_per_label=2)


def test_texts_that_are_empty_in_the_release_are_counted_and_no_model_is_recommended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Drawing, "use", staticmethod(lambda name, value: "" if name.endswith("/0") else f"text {value}")
    )
    told: list[str] = []
    result = running.run(run_config(parts(tmp_path, texts_per_batch=2)), listener=running.Listener(told.append))
    assert (len(result.records), result.missing) == (4, 4)
    assert "4 texts could not be generated. They are empty in the Release." in told


# A model that reads private text


def test_a_method_gets_its_release_model_and_the_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, understudy: Command
) -> None:
    asked: list[str] = []

    def load(spec: str, **options: Any) -> SimpleNamespace:
        asked.append(spec)
        return SimpleNamespace(spec=spec, model_id=spec, encode=list, fingerprint="a" * 64)

    monkeypatch.setattr("understudy.models.catalog.load_causal", load, raising=False)
    monkeypatch.setattr(WithModel, "seen", [])
    values = parts(tmp_path, method="with-model", document_type="clinic letter")
    understudy("release", *flags({**values, "private_model": "hf:some/model"}), code=0)
    (tools,) = WithModel.seen
    assert (tools.model.spec, asked) == ("hf:some/model", ["hf:some/model"])  # type: ignore[union-attr]
    assert tools.prompts is not None
    assert tools.prompts.parameters.document_type == "clinic letter"
    assert tools.writer is None
    assert understudy("release", *flags({**values, "private_model": "hf:another/model"})).code == 8
    assert (
        understudy("release", *flags(parts(tmp_path, private_model="builtin"))).code == 2
    )  # in-parts has no such flag


def test_a_release_model_that_has_changed_does_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load_one(fingerprint: str) -> None:
        model = SimpleNamespace(fingerprint=fingerprint, encode=list)
        monkeypatch.setattr("understudy.models.catalog.load_causal", lambda *_args, **_options: model)

    values = parts(tmp_path, method="with-model", texts_per_batch=1)
    load_one("a" * 64)
    release(values)
    load_one("b" * 64)
    with pytest.raises(ResumeError, match="changed since this run began"):
        release(values, resume=True, texts_per_batch=2)
    load_one("a" * 64)
    release(values, resume=True, texts_per_batch=2)
    assert runs_charged(values["ledger"]) == 1


def test_a_release_model_is_loaded_before_anything_is_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(spec: str, **options: Any) -> None:
        raise us.UnderstudyError(f"There is no {spec}.", "Fetch it.")

    monkeypatch.setattr("understudy.models.catalog.load_causal", absent, raising=False)
    values = parts(tmp_path, method="with-model")
    with pytest.raises(us.UnderstudyError, match="There is no builtin"):
        release(values)
    assert runs_charged(values["ledger"]) == 0
    with RunStore.open(Path(values["output"]) / "private", noise="system") as store:
        assert store.stages() == []
