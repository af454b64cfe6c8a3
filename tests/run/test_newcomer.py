"""What a newcomer stumbled over once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clinic import flags, settings
from run_fixtures import Command, run, runs_charged

import understudy as us
from understudy.base.errors import BudgetExceeded, ConfigError, ResumeError, UnderstudyWarning
from understudy.ledger import Ledger
from understudy.privacy.unit import Unit
from understudy.run import pipeline as running
from understudy.run.job import Job
from understudy.run.session import Listener
from understudy.run.settings import run_config

ROWS = [{"note": "fever and cough", "ward": "a", "owner": "x"}, {"note": "rash", "ward": "b", "owner": "y"}]
METHOD = us.DPKPS(top_terms=10, length=2)


def test_labels_that_are_the_texts_or_owners_of_the_data_are_refused() -> None:
    with pytest.raises(ConfigError, match="label column is the text"):
        us.read_corpus(ROWS, text="note", label="note", labels_from_data=True)
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


def test_a_misspelt_parameter_a_budget_out_of_range_and_what_is_no_method_are_recognised() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'top_terms'"):
        us.DPKPS(top_term=3)
    with pytest.raises(ConfigError):
        us.plan(METHOD, us.Budget("1e6", "1e-6"))
    methods: tuple[Any, ...] = ("dp-kps", us.DPKPS)
    for method in methods:
        with pytest.raises(ConfigError, match="not a method with its parameters"):
            us.run(ROWS, method, us.Budget(1, "1e-6"), text="note", llm="none", records=1)
        with pytest.raises(ConfigError, match="not a method with its parameters"):
            us.plan(method, us.Budget(1, "1e-6"))


def test_results_show_themselves_in_one_line_and_other_settings_do_not_speak_of_charges(
    tmp_path: Path, finished: Callable[..., dict[str, Any]]
) -> None:
    values = finished(tmp_path)
    (tmp_path / "out" / "release" / "statement.md").unlink()
    result = run(values)
    assert (tmp_path / "out" / "release" / "statement.md").exists(), "it comes back"
    assert "8 synthetic records" in repr(result)
    assert "\n" not in repr(result) + repr(result.release)
    assert {"DPKPS", "run", "read_corpus"} <= set(dir(us))
    us.generate(result.release, llm="none", records=2, output=tmp_path / "more")
    with pytest.raises(ResumeError) as caught:
        us.generate(result.release, llm="none", records=3, output=tmp_path / "more")
    assert "charges" not in str(caught.value)


def test_a_plan_for_owners_counts_owners() -> None:
    forecast = us.plan(METHOD, us.Budget(1, "1e-6"), owner="owner", expected_records=500).plan.forecast
    assert forecast["expected_records"] == 500
    assert not any("records" in entry.title for entry in forecast.entries)


def test_a_used_up_cap_is_said_before_a_model_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = settings(tmp_path, llm="builtin")
    with Ledger(values["ledger"]) as ledger:
        ledger.open_dataset("notes", cap=us.Budget(1, "1e-6"), unit=Unit())
    monkeypatch.setattr("understudy.models.catalog.load_chat", lambda *_, **__: pytest.fail("a model is loaded"))
    with pytest.raises(BudgetExceeded):
        run(values)
    assert runs_charged(values["ledger"]) == 0


def test_python_warns_where_texts_will_be_largely_chance(tmp_path: Path) -> None:
    with pytest.warns(UnderstudyWarning, match="mostly chance"):
        run(settings(tmp_path, epsilon=0.01))


def test_skipped_rows_are_pointed_to_where_nothing_stands_above_the_noise(tmp_path: Path, understudy: Command) -> None:
    said = understudy("run", *flags(settings(tmp_path, labels="Other, Names", max_bad_rows=1)), code=0)
    assert "do the declared labels match the data?" in said.err


def test_an_evaluation_names_what_is_missing_first_and_whose_row_is_bad(tmp_path: Path, understudy: Command) -> None:
    values = settings(tmp_path)
    assert "There is no file or folder 'nosuch'" in understudy("evaluate", values["data"], "nosuch").err
    assert understudy("run", *flags(values)).code == 0
    (tmp_path / "later.csv").write_text("note,department,patient\n,cardiology,1\n", "utf-8")
    words = [values["data"], values["output"], "--embedder", "none", "--holdout", str(tmp_path / "later.csv")]
    said = understudy("evaluate", *words)
    assert (said.code, "The holdout cannot be used." in said.err) == (3, True)


def test_what_cannot_resume_never_says_so(tmp_path: Path, understudy: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_arguments: object, **_named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, "plan", stop)
    said = understudy("plan", *flags(settings(tmp_path, output=None)))
    assert (said.code, said.err.splitlines()[-1]) == (130, "Interrupted.")


@pytest.mark.parametrize(
    ("epsilon", "delta", "words"),
    [
        *(
            ("6", "1e-6", ""),
            ("6", "0.0009", ""),
            ("6", "0.001", "far smaller delta"),
            ("6", "0.1", "far smaller delta"),
        ),
        *(("19.9", "1e-6", ""), ("20", "1e-6", "Choose 10 or less"), ("100", "1e-6", "Choose 10 or less")),
    ],
)
def test_a_delta_of_one_record_or_next_to_no_epsilon_is_warned_of(epsilon: str, delta: str, words: str) -> None:
    forecast = us.plan(us.DPKPS(), us.Budget(epsilon, delta), labels=["a", "b"], expected_records=1000).plan.forecast
    warned = [each for each in ("far smaller delta", "Choose 10 or less") if each in " ".join(forecast.warnings)]
    assert warned == ([words] if words else [])


def test_a_run_warns_of_a_weak_promise_as_its_plan_does(tmp_path: Path) -> None:
    config = run_config(settings(tmp_path, epsilon="20", delta="0.1", expected_records=40))
    said: list[str] = []
    assert not running.run(config, listener=Listener(said.append)).missing
    warned = [line for line in said if line.startswith("Warning: ")]
    assert [line.split()[1] for line in warned[:2]] == ["Epsilon", "Delta"]
    with pytest.warns(UnderstudyWarning, match="far smaller delta"):
        run(settings(tmp_path, insecure_noise_seed=1, delta="0.1", expected_records=40, output=None))


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (["run", "k.yaml"], "Write --config k.yaml."),
        (["check", "k.yaml"], "Write --config k.yaml."),
        (["generate", "k.yaml"], "Write --config k.yaml."),
        (["evaluate", "k.yaml", "out"], "Write --config k.yaml."),
        (["report", "k.yaml"], "Write --config k.yaml."),
        (["check", "notes.csv"], "Give a private table as --data notes.csv."),
        (["check", "--data", "k.yaml", "--text", "note"], "`understudy check --config FILE`"),
        (["baseline", "notes.csv"], "unexpected extra argument (notes.csv)"),
    ],
)
def test_what_has_no_flag_before_it_is_told_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, understudy: Command, words: list[str], cure: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.yaml").write_text("text: note\n")
    said = understudy(*words)
    assert (said.code, cure in said.err) == (2, True), said.err


@pytest.mark.parametrize(
    "declared",
    ["paid=0,0..99,9/20", {"paid": {"kind": "number", "range": [0, 0, 99, 9]}}, "day=01.01.2024..31.12.2024"],
)
def test_ends_of_a_range_that_are_written_as_the_table_writes_them_are_told_how(declared: Any) -> None:
    with pytest.raises(ConfigError, match=r"0\.0 and 2000\.0, not 0,0 and 2\.000,0"):
        us.plan(METHOD, us.Budget(1, "1e-6"), columns=declared)


_SAID = {"pflege": "Verbandswechsel", "küche": "Großküche"}


def test_what_was_decided_for_a_language_stands_in_the_release_and_holds_when_the_run_is_resumed(
    tmp_path: Path, understudy: Command
) -> None:
    told = {"text": "anliegen", "label": "abteilung", "labels": ",".join(_SAID), "epsilon": "20", "language": "de"}
    unsaid = dict.fromkeys(("vocabulary", "vocabulary_is_public", "top_terms", "llm"))
    values = settings(tmp_path, guide=False, delimiter=";", discover_terms=0.3, **told, **unsaid)
    rows = [f"Und morgens {word}, Zimmer {number};{label}" for number in range(60) for label, word in _SAID.items()]
    Path(values["data"]).write_text("anliegen;abteilung\n" + "\n".join(rows), "utf-8")
    first = understudy("run", *flags(values), code=0)
    assert "the built-in one writes English" in first.err
    assert "terms can include what one person repeats in many records" in first.err
    made = us.load_release(Path(values["output"]) / "release" / "dp-kps.release")
    assert (made.parameters["discover_terms"], made.parameters["stop_words"]) == (0.3, "de")
    assert {*map(str.lower, _SAID.values())} <= set(made.terms)
    assert "und" not in made.terms, "a stop word of German"
    understudy("run", *flags(values), code=0)
    assert runs_charged(Path(values["ledger"])) == 1
    written = understudy("generate", values["output"], "--output", str(tmp_path / "more"), "--records", "4", code=0)
    assert "the built-in one writes English" in written.err


def test_an_evaluation_reads_the_table_as_the_run_did(tmp_path: Path, understudy: Command) -> None:
    values = settings(tmp_path, delimiter=";", encoding="cp1252", columns="paid", formats="de", guide=False)
    table = "note;department;paid\n" + "".join(
        f"Fieber für {number} Tage, chest pain;{label};{'ja' if number % 2 else 'nein'}\n"
        for number, label in enumerate(["cardiology", "dermatology"] * 20)
    )
    Path(values["data"]).write_text(table, "cp1252")
    del values["records_per_label"]
    assert understudy("run", *flags({**values, "records": 8})).code == 0
    words = [values["data"], values["output"], "--embedder", "none", "--metrics", "utility", "--classifiers", "tf-idf"]
    understudy("evaluate", *words, code=0)
    said = understudy("evaluate", *words, "--delimiter", ",")
    assert (said.code, "has no column" in said.err) == (3, True), said.err
