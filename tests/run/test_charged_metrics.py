"""Metrics released with a charge: booked once, drawn once, and bare of everything private."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from clinic import in_format, rows, settings, write_csv
from run_fixtures import Command, run, runs_charged
from secret_fixtures import protecting

import understudy as us
from understudy.base.errors import BudgetExceeded, ConfigError, CorpusError, LedgerError, ResumeError
from understudy.corpus.write import write_table
from understudy.evaluate.charged import ChargedMetrics, MetricCounts
from understudy.evaluate.synthetic import SyntheticFile, read_evaluation, read_released
from understudy.evaluate.tables import read_sample
from understudy.ledger import Ledger
from understudy.privacy.guarantee import Budget
from understudy.privacy.unit import Unit
from understudy.run import door as measuring
from understudy.run.outputs import OutputFolder
from understudy.run.session import Listener


class Crash(BaseException):
    """The machine goes down."""


@pytest.fixture
def with_room(finished: Callable[..., dict[str, Any]], tmp_path: Path) -> Callable[..., OutputFolder]:
    """A whole run, and a cap that leaves epsilon 2."""

    def made(**changes: Any) -> OutputFolder:
        values = finished(tmp_path, **changes)
        with Ledger(values["ledger"]) as ledger:
            ledger.raise_cap("notes", cap=Budget(5, "1e-6"))
        return OutputFolder(Path(values["output"]))

    return made


@pytest.fixture
def made(with_room: Callable[..., OutputFolder]) -> OutputFolder:
    return with_room()


def run_with_room(folder: Path, **changes: Any) -> OutputFolder:
    """A whole run, and a cap that leaves epsilon 2."""
    result = run(settings(folder, **changes))
    assert result.folder is not None
    with Ledger(folder / "ledger.sqlite") as ledger:
        ledger.raise_cap("notes", cap=Budget(5, "1e-6"))
    return result.folder


def options(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "embedder": "none",
        "metrics": "leakage",
        "charge_metrics": "0.5",
        "ledger": str(folder / "ledger.sqlite"),
        **changes,
    }


def released(made: OutputFolder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(made.metrics_file.read_text("utf-8"))
    return found


def test_metrics_are_booked_as_a_run_of_their_own_and_once(tmp_path: Path, made: OutputFolder) -> None:
    us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        entries = [entry for entry in ledger.history("notes") if entry.method == "evaluate"]
        assert [entry.cost for entry in entries] == [Budget("0.5", 0)]
        assert ledger.spent("notes") == Budget("3.5", "1e-6")
    found = released(made)
    assert found["sealed"]["noise"] == "system"
    assert found["budget"] == {"epsilon": "1/2", "delta": "0"}
    assert [charge["event"] for charge in found["charges"]] == [{"kind": "pure", "epsilon": 0.5}]
    named = [each["metric"]["name"] for each in found["values"]]
    assert {"records", "label_share", "length_share", "accuracy"} == set(named)
    assert not any(each["reads_private"] for each in found["values"])
    assert found["table_sha256"] == SyntheticFile.at(made.synthetic_file("parquet")).sha256()
    first = made.metrics_file.read_bytes()
    made.metrics_file.unlink()
    us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path))
    assert made.metrics_file.read_bytes() == first, "the same command again draws and charges nothing"
    assert runs_charged(tmp_path / "ledger.sqlite") == 2


def test_another_epsilon_in_the_folder_is_another_release(tmp_path: Path, made: OutputFolder) -> None:
    us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path))
    first = made.metrics_file.read_bytes()
    with pytest.raises(ResumeError, match="charge_metrics"):
        us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path, charge_metrics=1))
    with pytest.raises(BudgetExceeded):
        us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path, charge_metrics=900, fresh=True))
    us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path))
    assert made.metrics_file.read_bytes() == first, "what was paid for is still there"
    us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path, charge_metrics=1, fresh=True))
    assert released(made)["budget"]["epsilon"] == "1"
    assert runs_charged(tmp_path / "ledger.sqlite") == 3


def test_a_cost_that_is_none_or_beyond_the_cap_is_refused_undrawn(tmp_path: Path, made: OutputFolder) -> None:
    for epsilon in ("2.5", "0", "-1", "much", "nan"):
        with pytest.raises(BudgetExceeded if epsilon == "2.5" else ConfigError):
            us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path, charge_metrics=epsilon))
    assert not made.metrics_file.exists()
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_an_unknown_detector_is_named_before_the_charge(tmp_path: Path, made: OutputFolder) -> None:
    with pytest.raises(ConfigError, match="no detector called 'names'"):
        us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path, detectors="names"))
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_a_missing_language_model_is_named_before_the_charge(tmp_path: Path, made: OutputFolder) -> None:
    wrong = options(tmp_path, metrics="utility", language_model=True, local_model=f"hf:{tmp_path}/nothing")
    with pytest.raises(us.UnderstudyError):
        us.evaluate(tmp_path / "notes.csv", made.root, **wrong)
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_that_was_killed_at_its_draw_goes_on_with_its_charge(
    tmp_path: Path, made: OutputFolder, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    draw = measuring.measure

    def killed(*args: Any, **kwargs: Any) -> Any:
        if when == "after":
            draw(*args, **kwargs)
        raise Crash

    monkeypatch.setattr(measuring, "measure", killed)
    with pytest.raises(Crash):
        us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path))
    assert not made.metrics_file.exists()
    monkeypatch.setattr(measuring, "measure", draw)
    us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path))
    assert runs_charged(tmp_path / "ledger.sqlite") == 2
    assert made.metrics_file.exists()


def test_a_copy_of_the_folder_cannot_draw_another_value(
    tmp_path: Path, made: OutputFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*args: Any, **kwargs: Any) -> Any:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(measuring, "measure", crash)
        with pytest.raises(Crash):
            us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path))
    shutil.copytree(made.root, tmp_path / "copy")
    us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path))
    with pytest.raises(LedgerError):
        us.evaluate(tmp_path / "notes.csv", tmp_path / "copy", **options(tmp_path))
    assert not (tmp_path / "copy" / "release" / "metrics.json").exists()


def test_an_owner_s_records_are_averaged_as_in_the_run(tmp_path: Path, with_room: Callable[..., OutputFolder]) -> None:
    made = with_room(owner="clinician", max_records_per_owner=3)
    with pytest.raises(ConfigError, match="owner column"):
        us.evaluate(us.read_corpus(tmp_path / "notes.csv", text="note"), made.root, **options(tmp_path))
    us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path, insecure_no_noise=True))
    found = released(made)
    assert found["unit"] == {"kind": "owner", "max_records": 3, "column": "clinician"}
    records = [each["value"] for each in found["values"] if each["metric"]["name"] == "records"]
    assert records == [pytest.approx(5)]  # five clinicians, each of weight 1


def test_a_dataset_of_owners_cannot_be_charged_by_record(tmp_path: Path, made: OutputFolder) -> None:
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_dataset("people", cap=Budget(5, "1e-6"), unit=Unit("owner", 3, "clinician"))
    with pytest.raises(LedgerError, match="protects one owner"):
        us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path, dataset="people"))


def test_an_owner_of_too_many_records_is_refused_before_the_charge(
    tmp_path: Path, with_room: Callable[..., OutputFolder]
) -> None:
    made = with_room(owner="clinician", max_records_per_owner=23)
    with pytest.raises(ConfigError, match="at most 22"):
        us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path))
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


@pytest.mark.parametrize("count", [0, 1, 2])
def test_how_few_records_there_are_does_not_show_in_how_a_charged_evaluation_ends(
    tmp_path: Path, count: int, understudy: Command
) -> None:
    write_csv(tmp_path / "notes.csv", rows(count))
    made = run_with_room(tmp_path)
    words = ["--embedder", "none", "--metrics", "leakage", "--ledger", str(tmp_path / "ledger.sqlite")]
    command = ["evaluate", str(tmp_path / "notes.csv"), str(made.root), *words, "--dataset", "notes"]
    understudy(*command, "--charge-metrics", "0.5", code=0)
    assert released(made)["sealed"]["noise"] == "system"
    inside = json.loads(made.evaluation_file.read_text("utf-8"))
    assert bool(inside["values"]) is (count >= 2)
    assert understudy("report", str(made.root)).code == 0
    if count < 2:
        assert understudy(*command).code == ConfigError.exit_code, "nothing was charged, so nothing is out"


def test_a_table_without_a_statement_is_trained_on_for_nobody(tmp_path: Path, made: OutputFolder) -> None:
    words = {"text": "note", "label": "department", "labels": "cardiology,dermatology", "output": str(tmp_path / "new")}
    for synthetic in ("notes.csv", "out/release/synthetic.parquet"):
        with pytest.raises(ConfigError, match="statement"):
            us.evaluate(tmp_path / "notes.csv", tmp_path / synthetic, **options(tmp_path, **words))
    real = us.read_corpus(rows(), text="note", label="department", labels="cardiology,dermatology")
    synthetic_ = us.read_corpus(made.synthetic_file("parquet"), text="note", label="department", labels_from_data=True)
    with pytest.raises(ConfigError, match="statement"):
        us.evaluate(real, synthetic_, **options(tmp_path, dataset="notes"))


@pytest.mark.parametrize(
    ("make", "changes", "problem"),
    [
        (settings, {"insecure_no_noise": True}, "made without noise"),
        (settings, {"labels": None, "labels_from_data": True}, "not protected"),
        (protecting, {}, "protects secrets"),
    ],
    ids=["no noise", "labels of the data", "secrets"],
)
@pytest.mark.usefixtures("embedder", "varied_chat")
def test_a_run_without_epsilon_for_its_texts_or_labels_has_no_charged_metrics(
    tmp_path: Path, finished: Callable[..., Any], make: Any, changes: dict[str, Any], problem: str
) -> None:
    values = finished(tmp_path, make, **changes)
    with pytest.raises(ConfigError, match=problem):
        us.evaluate(tmp_path / "notes.csv", values["output"], **options(tmp_path))


def test_labels_of_the_data_are_not_named(tmp_path: Path, made: OutputFolder) -> None:
    table = rows()
    table[3]["department"] = "zebras"
    path = write_csv(tmp_path / "rare.csv", table)
    words = {"text": "note", "label": "department", "labels_from_data": True}
    with pytest.raises(ConfigError, match="not protected"):
        us.evaluate(path, made.root, **options(tmp_path, **words))
    assert not made.metrics_file.exists()


def test_another_table_is_charged_to_the_run_s_dataset_only_on_demand(tmp_path: Path, made: OutputFolder) -> None:
    other = write_csv(tmp_path / "other.csv", rows(60)[40:])
    with pytest.raises(ConfigError, match="made from another real table"):
        us.evaluate(other, made.root, **options(tmp_path))
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    us.evaluate(other, made.root, **options(tmp_path, dataset="notes"))
    assert runs_charged(tmp_path / "ledger.sqlite") == 2


@pytest.mark.parametrize("named", [{}, {"dataset": "notes"}])
def test_a_run_that_was_charged_in_another_ledger_is_not_charged_in_this_one(
    tmp_path: Path, made: OutputFolder, named: dict[str, str]
) -> None:
    other = tmp_path / "other.sqlite"
    with Ledger.create(other) as ledger:
        ledger.open_dataset("notes", cap=Budget(9, "1e-6"), unit=Unit())
    with pytest.raises(LedgerError, match="charged in a different ledger"):
        us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path, ledger=str(other), fresh=True, **named))
    assert runs_charged(other) == 0
    us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path, ledger=str(other), dataset="follow-up"))
    assert runs_charged(other, "follow-up") == 1


def test_a_folder_from_elsewhere_is_charged_to_its_evaluator_s_dataset(tmp_path: Path, made: OutputFolder) -> None:
    shutil.rmtree(made.private)
    mine = options(tmp_path, ledger=str(tmp_path / "mine.sqlite"))
    Ledger.create(mine["ledger"]).close()
    with pytest.raises(LedgerError, match="'notes' is not open in the ledger"):
        us.evaluate(tmp_path / "notes.csv", made.root, **mine)
    with Ledger(mine["ledger"]) as ledger:
        assert ledger.datasets() == []
        ledger.open_dataset("notes", cap=Budget(9, "1e-6"), unit=Unit())
    with pytest.raises(ConfigError, match="made from another real table"):
        us.evaluate(tmp_path / "notes.csv", made.root, **mine)
    us.evaluate(tmp_path / "notes.csv", made.root, **{**mine, "dataset": "notes"})
    assert runs_charged(mine["ledger"]) == 1


def test_one_known_file_does_not_let_another_one_in(tmp_path: Path, made: OutputFolder) -> None:
    stranger = write_csv(tmp_path / "stranger.csv", rows(60)[40:])
    real = [str(tmp_path / "notes.csv"), str(stranger)]
    with pytest.raises(ConfigError, match="made from another real table"):
        us.evaluate(real, made.root, **options(tmp_path))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        digest = us.read_corpus(stranger, text="note").identity(ledger.fingerprint_key).contents
        assert ledger.known_as(*digest) is None
    halves = [write_csv(tmp_path / f"{place}.csv", rows()[place::2]) for place in range(2)]
    us.evaluate([str(each) for each in halves], made.root, **options(tmp_path))  # the same texts in two files


@pytest.mark.parametrize("rows_kept", [0, 7])
def test_a_table_of_another_run_is_trained_on_for_nobody(tmp_path: Path, made: OutputFolder, rows_kept: int) -> None:
    path = made.synthetic_file("parquet")
    own = pq.read_table(path).to_pydict()
    own["note"][rows_kept:] = [row["note"] for row in rows(len(own["note"]) - rows_kept)]
    write_table(path, own)
    with pytest.raises(ConfigError, match="Some texts in"):
        us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path))
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_the_texts_and_the_statement_of_another_run_are_refused(tmp_path: Path, made: OutputFolder) -> None:
    apart = {"output": str(tmp_path / "other"), "ledger": str(tmp_path / "other.sqlite")}
    other = run(settings(tmp_path, **apart)).folder
    assert other is not None
    with pytest.raises(ConfigError, match="another run"):
        us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path, output=str(other.root)))
    shutil.copy(other.synthetic_file("parquet"), made.synthetic_file("parquet"))
    with pytest.raises(ConfigError, match="Some texts in"):
        us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path))


def test_texts_generated_into_a_folder_of_their_own_may_be_charged_for(tmp_path: Path, made: OutputFolder) -> None:
    file = made.release_file("dp-kps")
    result = us.generate(file, llm="none", records_per_label=3, output=str(tmp_path / "texts"))
    in_format({"output": tmp_path / "texts"}, "csv")
    assert result.folder is not None
    words = {"text": "note", "label": "department", "labels": "cardiology,dermatology"}
    us.evaluate(tmp_path / "notes.csv", result.folder.root, **options(tmp_path, **words))
    assert released(result.folder)["table_sha256"] == SyntheticFile.at(result.folder.synthetic_file("csv")).sha256()


def test_metrics_stand_beside_the_same_texts_saved_in_another_format(tmp_path: Path, made: OutputFolder) -> None:
    us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path))
    first = made.metrics_file.read_bytes()
    path = made.synthetic_file("parquet")
    write_table(made.synthetic_file("csv"), pq.read_table(path).to_pydict())
    path.unlink()
    assert read_released(made.shareable) is not None
    us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path))
    assert made.metrics_file.read_bytes() == first
    assert runs_charged(tmp_path / "ledger.sqlite") == 2


def test_what_is_said_of_metrics_of_another_table_is_true(tmp_path: Path, made: OutputFolder) -> None:
    us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path))
    path = made.synthetic_file("parquet")
    own = pq.read_table(path)
    pq.write_table(own.slice(1), path)
    with pytest.raises(ConfigError, match="a synthetic table that is no longer in the folder") as caught:
        read_released(made.shareable)
    assert "Put that table back" in caught.value.cure
    assert "--fresh` makes it again, and charges again" in caught.value.cure
    with pytest.raises(ConfigError, match="free of charge"):
        read_evaluation(made.shareable, made.evaluation_file)
    us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path, fresh=True))
    assert read_released(made.shareable) is not None
    assert runs_charged(tmp_path / "ledger.sqlite") == 3
    pq.write_table(own, path)
    with pytest.raises(ConfigError, match="a synthetic table that is no longer in the folder"):
        read_released(made.shareable)


def test_a_table_that_is_replaced_while_it_is_read_is_not_charged_for(
    tmp_path: Path, made: OutputFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made.synthetic_file("parquet")

    def replaced(corpus: Any, **options: Any) -> Any:
        sample = read_sample(corpus, **options)
        pq.write_table(pq.read_table(path).slice(1), path)
        return sample

    monkeypatch.setattr(import_module("understudy.evaluate.evaluate"), "read_sample", replaced)
    for charged in (options(tmp_path), options(tmp_path, charge_metrics=None)):
        with pytest.raises(ConfigError, match="changed while it was read"):
            us.evaluate(tmp_path / "notes.csv", made.root, **charged)
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    assert not made.evaluation_file.exists()


def test_an_endpoint_that_read_the_real_texts_is_named_whatever_the_classifiers_read(
    tmp_path: Path, made: OutputFolder, monkeypatch: pytest.MonkeyPatch, embedder: Any
) -> None:
    monkeypatch.setattr(embedder, "local", False, raising=False)
    words = {"embedder": "elsewhere", "trust_endpoint": True, "charged_classifiers": "tf-idf"}
    us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path, **words))
    (said,) = released(made)["trusted"]
    assert embedder.model_id in said


def test_what_is_said_does_not_tell_one_record_from_many(tmp_path: Path) -> None:
    spoken: list[list[str]] = []
    for count in (1, 40):
        folder = tmp_path / str(count)
        folder.mkdir()
        write_csv(folder / "notes.csv", rows(count))
        made, said = run_with_room(folder), []
        words = options(folder, dataset="notes", metrics="fidelity,utility,leakage")
        us.evaluate(folder / "notes.csv", made.root, listener=Listener(said.append), **words)
        spoken.append([line.replace(str(folder), "") for line in said])
    assert spoken[0] == spoken[1]


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_the_private_folder_of_copied_texts_is_its_owner_s_alone(tmp_path: Path, made: OutputFolder) -> None:
    shutil.rmtree(made.private)
    for charged in ("0.5", None):
        us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path, charge_metrics=charged))
        assert made.private.stat().st_mode & 0o777 == 0o700
        made.private.chmod(0o777)


def test_without_noise_the_counts_are_exact_nothing_is_charged_and_it_is_said(
    tmp_path: Path, made: OutputFolder, understudy: Command
) -> None:
    words = ("--embedder", "none", "--metrics", "leakage", "--charge-metrics", "0.5", "--insecure-no-noise")
    said = understudy("evaluate", str(tmp_path / "notes.csv"), str(made.root), *words, code=0)
    assert "NOT PRIVATE" in said.err
    found = released(made)
    assert found["sealed"]["noise"] != "system"
    shares = {
        each["settings"]["label"]: each["value"] for each in found["values"] if each["metric"]["name"] == "label_share"
    }
    assert shares == {"cardiology": 0.5, "dermatology": 0.5}
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_no_private_string_stands_in_what_is_released(tmp_path: Path) -> None:
    table = rows()
    table[3]["note"] += " Zebra"
    write_csv(tmp_path / "notes.csv", table)
    made = run_with_room(tmp_path)
    us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path))
    for path in made.shareable.rglob("*"):
        assert b"Zebra" not in path.read_bytes()


def test_data_that_change_are_refused(tmp_path: Path, made: OutputFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = measuring.measure

    def after_a_change(*args: Any, **kwargs: Any) -> Any:
        write_csv(tmp_path / "notes.csv", rows(41))
        return draw(*args, **kwargs)

    monkeypatch.setattr(measuring, "measure", after_a_change)
    with pytest.raises(CorpusError, match="changed"):
        us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path))
    assert not made.metrics_file.exists()


def test_a_new_run_in_the_folder_takes_released_metrics_away(tmp_path: Path, made: OutputFolder) -> None:
    us.evaluate(tmp_path / "notes.csv", made.root, **options(tmp_path))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.raise_cap("notes", cap=Budget(20, "1e-5"))
    run(settings(tmp_path, fresh=True))
    assert not made.metrics_file.exists()


@pytest.mark.parametrize("epsilon", [1e-3, 1 / 3, 0.1, 0.7, 3.0, 49.0])
def test_the_calibration_never_passes_the_charge(epsilon: float) -> None:
    wanted = ChargedMetrics("notes", Unit(), epsilon, ["tf-idf"], 0)
    plan = wanted.plan(wanted.mechanism(MetricCounts(3, {"tf-idf": lambda batch: NotImplemented}, Unit())), ["tf-idf"])
    assert plan.total <= epsilon
    assert plan.total == pytest.approx(epsilon)
