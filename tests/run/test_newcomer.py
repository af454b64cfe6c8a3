"""What a newcomer stumbled over once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clinic import flags, settings
from run_fixtures import Said

import understudy as us
from understudy.base.errors import ConfigError, ModelError, ResumeError, UnderstudyWarning
from understudy.models.machine import best_device
from understudy.models.types import ChatRequest, Completion
from understudy.run import pipeline as running
from understudy.run.pipeline import release
from understudy.run.session import Listener
from understudy.run.settings import run_config

ROWS = [{"note": "fever and cough", "ward": "a", "owner": "x"}, {"note": "rash", "ward": "b", "owner": "y"}]
METHOD = us.DPKPS(top_terms=10, length=2)


def test_labels_that_are_the_texts_are_refused() -> None:
    with pytest.raises(ConfigError, match="label column is the text"):
        us.read_corpus(ROWS, text="note", label="note", labels_from_data=True)


def test_owners_are_not_read_from_the_data_as_labels() -> None:
    with pytest.raises(ConfigError, match="owners cannot be read"):
        us.read_corpus(ROWS, text="note", label="owner", owner="owner", labels_from_data=True)


def test_a_label_set_read_from_the_data_is_said_aloud_and_in_the_promise(tmp_path: Path) -> None:
    lines: list[str] = []
    corpus = us.read_corpus(ROWS, text="note", label="ward", labels_from_data=True)
    made = us.release(
        corpus,
        METHOD,
        us.Budget(1, "1e-6"),
        dataset="d",
        ledger=str(tmp_path / "l.sqlite"),
        listener=Listener(lines.append),
    )
    assert any("not protected" in line for line in lines)
    assert "The label set is not covered" in made.statement.to_markdown()


@pytest.mark.parametrize("epsilon", ["1e4", "1e6"])
def test_a_budget_out_of_range_is_refused_by_the_plan(epsilon: str) -> None:
    with pytest.raises(ConfigError):
        us.plan(METHOD, us.Budget(epsilon, "1e-6"))


def test_a_misspelt_parameter_is_recognised() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'top_terms'"):
        us.DPKPS(top_term=3)


def test_results_and_releases_show_themselves_in_one_line(tmp_path: Path) -> None:
    corpus = us.read_corpus(ROWS, text="note", label="ward", labels=["a", "b"])
    result = us.run(
        corpus,
        METHOD,
        us.Budget(1, "1e-6"),
        llm="none",
        records=3,
        dataset="d",
        ledger=str(tmp_path / "l.sqlite"),
        output=tmp_path / "out",
    )
    assert "3 synthetic records" in repr(result)
    assert "\n" not in repr(result) + repr(result.release)
    assert {"DPKPS", "run", "read_corpus"} <= set(dir(us))


def test_a_statement_that_was_deleted_comes_back(tmp_path: Path) -> None:
    corpus = us.read_corpus(ROWS, text="note", label="ward", labels=["a", "b"])
    options = {"dataset": "d", "ledger": str(tmp_path / "l.sqlite"), "output": tmp_path / "out"}
    us.release(corpus, METHOD, us.Budget(1, "1e-6"), **options)
    (tmp_path / "out" / "release" / "statement.md").unlink()
    us.release(corpus, METHOD, us.Budget(1, "1e-6"), **options)
    assert (tmp_path / "out" / "release" / "statement.md").exists()


class Mute:
    """A model that answers without a text."""

    model_id = "mute"

    async def complete(self, requests: list[ChatRequest]):
        for index, _ in enumerate(requests):
            yield index, Completion("", "empty")


def test_a_model_that_writes_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.models.catalog.load_chat", lambda *_args, **_options: Mute())
    corpus = us.read_corpus(ROWS, text="note", label="ward", labels=["a", "b"])
    with pytest.raises(ModelError, match="no text at all"):
        us.run(
            corpus,
            METHOD,
            us.Budget(1, "1e-6"),
            llm="mute:x",
            records=3,
            dataset="d",
            ledger=str(tmp_path / "l.sqlite"),
        )


def test_a_plan_for_owners_counts_owners() -> None:
    forecast = us.plan(METHOD, us.Budget(1, "1e-6"), owner="owner", expected_records=500).plan.forecast
    assert forecast["expected_records"] == 500
    assert not any("records" in entry.title for entry in forecast.entries)


def test_generate_with_other_settings_does_not_speak_of_charges(tmp_path: Path) -> None:
    corpus = us.read_corpus(ROWS, text="note", label="ward", labels=["a", "b"])
    options = {"dataset": "d", "ledger": str(tmp_path / "l.sqlite")}
    made = us.release(corpus, METHOD, us.Budget(1, "1e-6"), **options)
    us.generate(made, llm="none", records=2, output=tmp_path / "out")
    with pytest.raises(ResumeError) as caught:
        us.generate(made, llm="none", records=3, output=tmp_path / "out")
    assert "charges" not in str(caught.value)


def test_skipping_is_said_without_a_count(tmp_path: Path) -> None:
    lines: list[str] = []
    (tmp_path / "d.csv").write_text("note\nfever\n\nrash\n", "utf-8")
    values = {
        "data": str(tmp_path / "d.csv"),
        "text": "note",
        "epsilon": 1,
        "delta": "1e-6",
        "max_bad_rows": 1,
    }
    config = run_config({**values, **METHOD.dump(), "ledger": str(tmp_path / "l.sqlite")})
    release(config, listener=Listener(lines.append))
    assert any("skipped_rows.json" in line for line in lines)


@pytest.mark.parametrize("method", ["dp-kps", us.DPKPS, None])
def test_what_is_no_method_is_one_clear_error_in_python(tmp_path: Path, method: Any) -> None:
    corpus = us.read_corpus([{"note": "a"}], text="note")
    with pytest.raises(ConfigError, match="no method with its parameters"):
        us.run(corpus, method, us.Budget(1, "1e-6"), llm="none", records=1, ledger=str(tmp_path / "l.sqlite"))
    with pytest.raises(ConfigError, match="no method with its parameters"):
        us.plan(method, us.Budget(1, "1e-6"))


def test_python_warns_where_texts_will_be_largely_chance(tmp_path: Path) -> None:
    with pytest.warns(UnderstudyWarning, match="largely chance"):
        running.run(run_config(settings(tmp_path, epsilon=0.01)))


def test_skipped_rows_are_pointed_to_where_nothing_stands_above_the_noise(
    tmp_path: Path, understudy: Callable[..., Said]
) -> None:
    said = understudy("run", *flags(settings(tmp_path, labels="Other, Names", max_bad_rows=1)))
    assert said.code == 0
    assert "are the labels those of the data?" in said.err


def test_without_torch_the_embedder_is_missing_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.models.machine._PACKAGES", ("no_such_package",))
    with pytest.raises(ModelError, match="no_such_package"):
        best_device()


def test_an_evaluation_names_what_is_missing_first_and_whose_row_is_bad(
    tmp_path: Path, understudy: Callable[..., Said]
) -> None:
    values = settings(tmp_path)
    assert "There is no file or folder 'nosuch'" in understudy("evaluate", values["data"], "nosuch").err
    assert understudy("run", *flags(values)).code == 0
    (tmp_path / "later.csv").write_text("note,department,patient\n,cardiology,1\n", "utf-8")
    words = [values["data"], values["output"], "--embedder", "none", "--holdout", str(tmp_path / "later.csv")]
    said = understudy("evaluate", *words)
    assert (said.code, "The holdout cannot be used." in said.err) == (3, True)


def test_what_cannot_resume_does_not_say_so(
    tmp_path: Path, understudy: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_arguments: object, **_named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["understudy.run.forecast"], "make_plan", stop)
    said = understudy("plan", *flags(settings(tmp_path, output=None)))
    assert (said.code, said.err.splitlines()[-1]) == (130, "Interrupted.")


@pytest.mark.parametrize(("delta", "warned"), [("1e-6", False), ("0.0009", False), ("0.001", True), ("0.1", True)])
def test_a_delta_of_one_record_or_more_is_warned_of(delta: str, warned: bool) -> None:
    forecast = us.plan(us.DPKPS(), us.Budget(6, delta), labels=["a", "b"], expected_records=1000)
    assert any("far smaller delta" in warning for warning in forecast.plan.forecast.warnings) is warned


@pytest.mark.parametrize(("epsilon", "warned"), [("6", False), ("19.9", False), ("20", True), ("100", True)])
def test_an_epsilon_that_promises_next_to_nothing_is_warned_of(epsilon: str, warned: bool) -> None:
    forecast = us.plan(us.DPKPS(), us.Budget(epsilon, "1e-6"), labels=["a", "b"])
    assert any("Choose 10 or less" in warning for warning in forecast.plan.forecast.warnings) is warned


def test_a_run_warns_of_a_weak_promise_as_its_plan_does(tmp_path: Path) -> None:
    config = run_config(settings(tmp_path, epsilon="20", delta="0.1", expected_records=40))
    said: list[str] = []
    assert not running.run(config, listener=Listener(said.append)).missing
    warned = [line for line in said if line.startswith("Warning: ")]
    assert [line.split()[1] for line in warned[:2]] == ["Epsilon", "Delta"]
    with pytest.warns(UnderstudyWarning, match="far smaller delta"):
        running.run(
            run_config(settings(tmp_path, insecure_noise_seed=1, delta="0.1", expected_records=40, output=None))
        )
