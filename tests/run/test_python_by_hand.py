"""Python as people type it: what verbs take, what is printed, and what is said without a listener."""

from __future__ import annotations

import datetime
import pydoc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clinic import LABELS, FakeChat, flags, rows, settings
from run_fixtures import UseChat
from word_embedder import WordEmbedder

import understudy as us
from understudy.base.errors import ConfigError, in_keywords
from understudy.evaluate.evaluate import _is_foreign
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import MAJORITY, Metric, MetricValue

BUDGET = us.Budget(3, "1e-6")
COLUMNS: dict[str, Any] = {"text": "note", "label": "department", "labels": LABELS, "dataset": "v"}


@pytest.fixture
def result(tmp_path: Path, method: us.DPKPS) -> us.Result:
    return us.run(rows(), method, BUDGET, **COLUMNS, llm="none", records=6, output=tmp_path / "out")


def test_every_verb_takes_a_result_a_folder_or_a_file_in_it(tmp_path: Path, result: us.Result) -> None:
    assert result.folder is not None
    folder = result.folder.root
    for number, made in enumerate((result, folder, folder / "release" / "dp-kps.release", result.release)):
        more = us.generate(made, llm="none", records=2, output=tmp_path / f"more{number}")
        assert len(more.records) == 2
    for number, made in enumerate((result, folder, folder / "release" / "synthetic.parquet")):
        assert us.export(made, to="csv", output=tmp_path / f"{number}.csv").is_file()
    for made in (result, folder, folder / "release" / "statement.json"):
        (paths,) = us.report(made)
        assert paths.shareable.resolve() == (folder / "release" / "report.html").resolve()
    columns = {name: value for name, value in COLUMNS.items() if name != "dataset"}
    us.evaluate(rows(), result, metrics="utility", classifiers="tf-idf", embedder="none", **columns)
    with pytest.raises(us.UnderstudyError, match="no output folder"):
        us.report(us.Result(result.release))


def test_topics_are_those_of_a_release_that_is_loaded(tmp_path: Path) -> None:
    folder: Any = tmp_path
    with pytest.raises(us.UnderstudyError, match="load_release"):
        us.FoundTopics(folder)


def test_a_file_elsewhere_is_no_folder_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    with pytest.raises(us.UnderstudyError):
        us.report(tmp_path / "a.csv")


def test_a_plan_prints_like_the_command(tmp_path: Path, method: us.DPKPS, understudy: Any) -> None:
    of_files = ("data", "text", "output", "ledger")
    told = {name: value for name, value in settings(tmp_path).items() if name not in of_files}
    said = understudy("plan", *flags(told)).out
    made = us.plan(method, BUDGET, label="department", labels=LABELS, records_per_label=4, llm="none")
    assert str(made) == in_keywords(said.rstrip("\n"))
    assert "--" not in str(made)
    assert repr(made).startswith("<Plan of dp-kps: (epsilon=3, ")


def test_without_a_listener_python_says_what_was_decided(method: us.DPKPS, capsys: pytest.CaptureFixture[str]) -> None:
    us.run(rows(), method, BUDGET, **COLUMNS, llm="none")
    said = capsys.readouterr()
    assert said.out == ""
    assert "Texts to write: 50 per label, because no number is given (records, records_per_label)." in said.err
    with pytest.warns(us.UnderstudyWarning, match="Much of this table is known as the dataset 'v'"):
        us.run(rows(30), method, BUDGET, **{**COLUMNS, "dataset": "w"}, llm="none", listener=us.Listener())
    assert capsys.readouterr().err == ""


def test_progress_counts_texts_and_not_answers(method: us.DPKPS, use_chat: UseChat) -> None:
    chat, told = use_chat(FakeChat()), list[tuple[str, int, int]]()
    listener = us.Listener(progress=lambda *counted: told.append(counted))
    us.run(rows(), method, BUDGET, **COLUMNS, records=6, samples=4, listener=listener)
    assert len(chat.asked) == 24, "four answers each"
    assert [counted for counted in told if counted[0] == "texts"] == [("texts", done, 6) for done in range(7)]


def test_errors_speak_of_keywords_in_python_and_of_flags_on_the_command_line() -> None:
    error = ConfigError("There is none.", "Give --records-per-label N or --labels A,B: `understudy plan --help`.")
    assert str(error) == 'There is none. Give records_per_label=N or labels=["A", "B"]: `help(us.plan)`.'
    assert error.cure.startswith("Give --records-per-label N")
    assert in_keywords("Pull it: understudy models pull builtin").endswith("understudy models pull builtin")
    assert in_keywords("Leave --no-guide out; a -- b; --continue.") == "Leave guide=False out; a -- b; resume."


@pytest.mark.parametrize(
    ("command", "call"),
    [
        ("ledger open t --epsilon 6 --delta 2e-06 --raise", 'us.ledger.raise_cap("t", epsilon=6, delta=2e-06)'),
        ("ledger open t --owner 'a b' --epsilon E --delta D", 'us.ledger.open("t", owner="a b", epsilon=E, delta=D)'),
        (
            "ledger open t --secret-detectors ... --secret-prior P",
            'us.ledger.open("t", secret_detectors=..., secret_prior=P)',
        ),
        ("ledger create --ledger '/my files/l.sqlite'", 'us.ledger.create(ledger="/my files/l.sqlite")'),
        ("release --continue", "us.release(resume=True)"),
        ("generate out --records 4 --no-guide", 'us.generate("out", records=4, guide=False)'),
        ("run --help", "help(us.run)"),
        ("generate", "us.generate"),
        ("models check openai:m", "understudy models check openai:m"),
        ("check --config FILE", "understudy check --config FILE"),
    ],
)
def test_a_cure_that_is_a_command_is_a_call_in_python(command: str, call: str) -> None:
    assert in_keywords(f"Try: `understudy {command}`; then --fresh.") == f"Try: `{call}`; then fresh."
    if " " in command:
        assert in_keywords(f"Try: understudy {command}") == f"Try: {call}"


def test_the_first_run_says_before_its_charge_that_it_sets_the_cap_and_the_second_is_told_the_cure(
    method: us.DPKPS, capfd: pytest.CaptureFixture[str], tmp_path: Path, understudy: Any
) -> None:
    us.run(rows(), method, BUDGET, **COLUMNS, llm="none", records=2)
    said = capfd.readouterr().err
    cap = "This run sets the cap of dataset 'v' to (epsilon=3, delta=1e-06)"
    cure = 'us.ledger.raise_cap("v", epsilon=6, delta=2e-06)'
    assert said.index(cap) < said.index(cure) < said.index("The ledger charged")
    with pytest.raises(us.UnderstudyError, match=r"3, delta=1e-06\) is spent, and no epsilon remains") as caught:
        us.run(rows(), method, BUDGET, **{**COLUMNS, "seed": 3}, llm="none", records=2)
    assert cure in str(caught.value)
    assert "understudy" not in str(caught.value)
    us.ledger.raise_cap("v", us.Budget(6, "2e-6"))
    us.run(rows(), method, BUDGET, **{**COLUMNS, "seed": 3}, llm="none", records=2)
    assert "sets the cap" not in capfd.readouterr().err
    told = understudy("run", *flags(settings(tmp_path, dataset="w")), code=0).err
    assert "understudy ledger open w --epsilon 6 --delta 2e-06 --raise" in told
    refused = understudy("run", *flags(settings(tmp_path, dataset="w", output=str(tmp_path / "2"))), code=4).err
    assert "understudy ledger open w --epsilon 6 --delta 2e-06 --raise" in refused


def test_the_package_shows_what_is_public_and_the_ledger_has_its_verbs(tmp_path: Path) -> None:
    assert {"run", "Budget", "ledger", "__version__"} <= set(dir(us))
    assert {"open", "show", "history", "create", "raise_cap"} <= set(dir(us.ledger))
    place = tmp_path / "ledger.sqlite"
    us.ledger.create(place)
    opened = us.ledger.open("v", BUDGET, owner="patient", ledger=place)
    assert (opened.dataset.unit.column, opened.spent, opened.remaining) == ("patient", None, BUDGET)
    secrets = us.SecretBudget("1e-4", "1e-3")
    with pytest.raises(us.UnderstudyError, match="are not given"):
        us.ledger.open("s", secrets, ledger=place)
    us.ledger.open("s", secrets, secret_detectors=["email"], max_records_per_secret=5, ledger=place)
    assert us.ledger.raise_cap("v", us.Budget(4, "1e-6"), ledger=place).dataset.cap == us.Budget(4, "1e-6")
    assert [entry.cap for entry in us.ledger.history("v", ledger=place)] == [us.Budget(4, "1e-6")]
    told = repr(us.ledger.history("v", ledger=place)).splitlines()
    assert "cap raised  4, 1e-06" in told[1]
    shown = us.ledger.show(ledger=place)
    assert repr(shown).splitlines()[0].split() == ["dataset", "unit", "rule", "cap", "spent", "remaining"]
    assert "owner (column 'patient')" in repr(shown)
    assert [each.dataset.name for each in us.ledger.show("s", ledger=str(place))] == ["s"]


def test_help_lists_every_typed_option_of_a_verb() -> None:
    typed = (Path(us.__file__).parent / "options.pyi").read_text("utf-8")
    for verb, of in ((us.run, "WritingOptions"), (us.run, "PlanOptions"), (us.evaluate, "EvaluateOptions")):
        options = typed.partition(f"class {of}(")[2].partition("\nclass ")[0].splitlines()[1:]
        names = {line.split(":")[0].strip() for line in options if line.strip()}
        listed = {line.split(":")[0].strip() for line in pydoc.getdoc(verb).partition("Options:")[2].splitlines()}
        assert names
        assert names <= listed, names - listed
    assert "owner: " in pydoc.getdoc(us.topics)
    assert "labels: " not in pydoc.getdoc(us.topics), "it takes none"
    assert "Privacy budget" not in pydoc.getdoc(us.run), "it has an argument of its own"
    assert "epsilon" not in pydoc.getdoc(us.generate).partition("Options:")[2].split(":")[0]


def _measured(name: str, value: float, of: str = "synthetic", **told: Any) -> MetricValue:
    return MetricValue(Metric("utility", name, name.title(), "", "", "higher"), value, of, settings=told)


def test_an_evaluation_prints_ten_lines_beside_real_texts_and_chance() -> None:
    values = (
        *(_measured("label_share", share, "real", label=str(share)) for share in (0.3, 0.7)),
        _measured("accuracy", 0.9, classifier="tf-idf"),
        _measured("accuracy", 0.95, "real", classifier="tf-idf"),
        *(_measured("column_accuracy", 0.5, of, column="stars") for of in ("synthetic", MAJORITY)),
        *(_measured("column_accuracy", 0.5, column=str(number)) for number in range(12)),
    )
    made = us.Evaluation(values, None, {}, remarks=("A remark.",))
    lines = str(made).splitlines()
    assert lines[0].split() == ["synthetic", "real", "chance", "better"]
    assert lines[1].split() == ["Accuracy,", "tf-idf", "0.9", "0.95", "0.7", "higher"]
    assert lines[2].split() == ["Column_Accuracy,", "stars", "0.5", "0.5", "higher"]
    assert (len(lines), lines[-1]) == (12, "A remark.")
    assert len({line.rindex("higher") for line in lines[1:-1]}) == 1, "aligned"


def test_an_evaluation_is_a_frame() -> None:
    pytest.importorskip("pandas")
    frame = us.Evaluation((_measured("accuracy", 0.9, classifier="tf-idf"),), None, {}).to_pandas()
    assert frame.loc[0, ["metric", "of", "value"]].tolist() == ["accuracy", "synthetic", 0.9]
    assert frame.loc[0, "settings"] == {"classifier": "tf-idf"}


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ("The patient reports chest pain and was told to come back for a check.", False),
        ("Der Patient klagt seit drei Tagen über Brustschmerz und kommt wieder.", True),
        ("Le patient se plaint de douleurs et reviendra dans une semaine.", True),
    ],
)
def test_texts_that_the_built_in_embedder_cannot_read_are_known(text: str, foreign: bool) -> None:
    assert _is_foreign(Sample((text,) * 40)) == foreign
    assert not _is_foreign(Sample((text,))), "too few words to tell"


def test_dates_are_dates_in_frames_on_both_sides(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("mbi")
    table = pandas.DataFrame(rows(60))
    table["seen"] = pandas.to_datetime("2024-05-01")
    made = us.run(
        table,
        us.DPKPS(),
        us.Budget(50, "1e-6"),
        **COLUMNS,
        columns={"seen": {"kind": "date", "range": ["2024-01-01", "2024-12-31"], "bins": 12}},
        llm="none",
        guide=False,
        records=20,
    )
    seen = made.to_pandas()["seen"]
    assert seen.dtype.kind == "M"
    assert seen.dropna().between(datetime.datetime(2024, 1, 1), datetime.datetime(2024, 12, 31)).all()


def test_every_verb_takes_its_natural_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda _spec: WordEmbedder())
    pandas = pytest.importorskip("pandas")
    frame, plain = pandas.DataFrame(rows()), {"text": "note", "label": "department", "labels": LABELS}
    said: dict[str, Any] = {**plain, "llm": "none", "records": 4, "dataset": "tickets"}
    us.ledger.open("tickets", epsilon=20, delta="1e-3")
    assert us.ledger.raise_cap("tickets", epsilon=60, delta="1e-3").dataset.cap == us.Budget(60, "1e-3")
    with pytest.raises(us.UnderstudyError, match="delta is missing"):
        us.ledger.raise_cap("tickets", epsilon=70)
    with pytest.raises(us.UnderstudyError, match="given twice"):
        us.ledger.raise_cap("tickets", us.Budget(70, "1e-3"), epsilon=70)
    corpus, three, seven = us.read_corpus(frame, **plain), us.Budget(3), us.Budget(3, "1e-7")
    for made in (
        us.plan(frame, us.DPKPS(), seven, **plain),
        us.plan(corpus, seven),
        us.plan(seven),
        us.plan(us.DPKPS(), seven),
    ):
        assert (made.plan.method, made.plan.budget) == ("dp-kps", seven)
    assert us.plan(budget=seven).plan.budget == seven
    assert us.check(frame, **plain).usable
    assert us.check(frame, three, expected_records=200, **plain).usable
    for result in (
        us.run(frame, budget=seven, **said),
        us.run(frame, seven, **said),
        us.run(frame, epsilon=3, delta="1e-7", **said),
    ):
        assert (result.release.method, result.statement.budget) == ("dp-kps", seven)
    assert us.release(frame, seven, **{**said, "records": None}).method == "dp-kps"
    made_here = us.run(frame, us.DPKPS(), three, expected_records=200_000, output="out", **said)
    assert made_here.statement.budget == us.Budget(3, "1e-7")
    assert us.topics(frame, seven, text="note", dataset="tickets").topics is not None
    assert us.generate(made_here, llm="none", records=2).records
    for given in ({}, {"text": "note", "label": "department"}, {"text": "note"}, {"label": "department"}):
        quick = {"metrics": "utility", "classifiers": "tf-idf", "embedder": "none", "seeds": 1}
        found = us.evaluate(frame, made_here, **quick, **given)
        assert found.values


def test_a_budget_without_a_delta_takes_the_size_s_own_and_says_so(tmp_path: Path, understudy: Any) -> None:
    for size, delta in (
        (1, "1e-5"),
        (200, "1e-5"),
        (10_000, "1e-5"),
        (10_001, "1e-6"),
        (20_000, "1e-6"),
        (3_000_000, "1e-8"),
    ):
        made = us.plan(us.Budget(3), expected_records=size)
        assert made.plan.budget == us.Budget(3, delta)
        assert f"Using delta {delta}, which suits the declared size of the table (delta sets another)" in str(made)
    assert "Using delta 1e-6" in understudy("plan", "--epsilon", "3", "--expected-records", "20000").out
    use: list[Callable[[], object]] = [
        lambda: us.plan(us.Budget(3)),
        lambda: us.run(rows(), us.Budget(3), **COLUMNS),
        lambda: us.ledger.open("v", us.Budget(3), ledger=tmp_path / "l.sqlite"),
        lambda: us.audit_mechanism("vocabulary", us.Budget(3)),
    ]
    for call in use:
        with pytest.raises(us.UnderstudyError, match="delta is missing"):
            call()
    assert repr(us.Budget(3)) == "Budget(epsilon=Fraction(3, 1))"
    assert str(us.Budget(3)) == "(epsilon=3)"


def test_other_settings_of_released_metrics_and_a_folder_of_texts_are_told_in_their_own_words(
    tmp_path: Path, result: us.Result, understudy: Any
) -> None:
    us.generate(result, llm="none", records=2, output=tmp_path / "more")
    shown = understudy("show", str(tmp_path / "more"))
    assert "epsilon" in shown.out
    assert "not ended" not in shown.out + shown.err
    us.ledger.raise_cap("v", epsilon=9, delta="1e-6")
    few: dict[str, Any] = {"metrics": "fidelity", "embedder": "none", "charge_metrics": 1}
    us.evaluate(rows(), result, **few)
    with pytest.raises(us.UnderstudyError, match=r"released metrics of other settings.*seed") as caught:
        us.evaluate(rows(), result, seed=3, **few)
    assert "generate" not in str(caught.value)


@pytest.mark.parametrize(
    "verb", ["run", "check", "release", "topics", "evaluate", "secrets count", "secrets incidence", "init"]
)
def test_the_short_help_of_what_reads_a_table_says_how_it_is_written(understudy: Any, verb: str) -> None:
    shown = understudy(*verb.split(), "--help").out
    assert "--delimiter" in shown
    assert "--encoding" in shown
