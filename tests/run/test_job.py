"""A job: what public facts tell is told when it is made, the same for a plan and for its run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from clinic import flags, settings
from run_fixtures import Said, runs_charged
from sample_releases import SAMPLES, dp_kps

import understudy as us
from understudy.base.errors import ConfigError, ReleaseError, ResumeError
from understudy.cli import options
from understudy.methods.registry import load_release, method_class, method_names
from understudy.report.views import _parameters
from understudy.run import decided
from understudy.run import pipeline as running
from understudy.run.job import Job
from understudy.run.parts import Wanted
from understudy.run.settings import RunConfig, run_config

VALUES = {"data": "notes.csv", "text": "note", "label": "ward", "labels": "a,b", "epsilon": 4, "delta": "1e-6"}
COLUMNS = "age=0..9/3"


def config(**changes: Any) -> RunConfig:
    return run_config({**VALUES, "records": 10, "llm": "none", **changes})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"records_per_label": 3}, "Not exactly one option says how many records"),
        ({"where": "age=3"}, "no typed columns"),
        ({"guide_candidates": 2}, "about the guide"),
        ({"column_pairs": "tree"}, "and no columns"),
        ({"method": "guided-evolution"}, "needs a language model"),
        ({"llm": "builtin", "llm_batch": True}, "has no batches"),
        ({"epsilon": None, "delta": None}, "No privacy budget"),
        ({"secret_detectors": "email"}, "no protection of them"),
        ({"labels": None}, "not declared"),
        ({"text": "note,label"}, "as a column that is written besides"),
    ],
)
@pytest.mark.parametrize("verb", [{}, {"charges": True, "generates": True}], ids=["plan", "run"])
def test_what_a_run_refuses_its_plan_refuses(changes: dict[str, Any], problem: str, verb: dict[str, bool]) -> None:
    assert Job(config(), **verb).promise.dataset == "notes"
    with pytest.raises(ConfigError, match=problem):
        Job(config(**changes), **verb)


def test_a_release_does_not_ask_what_is_to_be_generated() -> None:
    assert not Job(config(records=None), charges=True, generates=False).wanted.said


@pytest.mark.parametrize(("labels", "each"), [("a,b", 50), (",".join("abcdefghijklm"), 10)])
def test_what_nobody_says_about_the_texts_is_decided(labels: str, each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Job(config(records=None, labels=labels), charges=True, generates=True)
    assert made.wanted.records_per_label == each
    assert made.decided == (
        f"Texts to write: {each} per label, since no number is given (--records, --records-per-label).",
    )
    assert not Job(config(), charges=True, generates=True).decided
    columns = Job(config(records=None, columns=COLUMNS), charges=True, generates=True)
    assert columns.wanted.records == 100

    unnamed = {**VALUES, "records": 10}
    for missing, llm in ([], "builtin"), (["torch"], "none"):
        monkeypatch.setattr(decided, "missing_packages", lambda missing=missing: missing)
        found = Job(run_config(unnamed), charges=True, generates=True)
        assert (found.chat.llm, "understudy[local]" in " ".join(found.decided)) == (llm, bool(missing))
        assert Job(config(llm="builtin"), charges=True, generates=True).chat.llm == "builtin"  # as it was said
    with pytest.raises(ConfigError, match="how many records"):
        Job(config(records_per_label=3), charges=True, generates=True)


@pytest.mark.parametrize("data", [("a.csv", "b.csv"), ("-",), ()])
def test_only_what_is_charged_needs_a_name(data: tuple[str, ...]) -> None:
    assert not Job(config(data=data)).promise.dataset
    with pytest.raises(ConfigError, match="name for the ledger") as told:
        Job(config(data=data), charges=True)
    assert "--dataset NAME" in told.value.cure


def test_the_parts_of_a_job_are_frozen() -> None:
    job = Job(config())
    assert isinstance(job.wanted, Wanted)
    for part in (job.wanted, job.chat, job.promise, job.table, job.engine, job.place):
        with pytest.raises(ValueError, match="frozen"):
            part.__setattr__(next(iter(type(part).model_fields)), None)


def test_what_was_decided_for_a_run_holds_when_it_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of a model are not replaced by phrases because the model is not on the machine that resumes."""
    unnamed = {**VALUES, "output": str(tmp_path / "out")}
    begun: dict[str, Any] = {}
    monkeypatch.setattr(decided, "begun_settings", lambda *_: begun)
    monkeypatch.setattr(decided, "missing_packages", lambda: ["torch"])
    assert Job(run_config(unnamed), generates=True).chat.llm == "none"
    begun |= {"llm": "builtin", "records": 7, "records_per_label": None}
    resumed = Job(run_config(unnamed), generates=True)
    assert (resumed.chat.llm, resumed.wanted.records, resumed.wanted.records_per_label) == ("builtin", 7, None)
    assert not resumed.decided
    begun["llm"] = "openai:mine"
    assert Job(run_config(unnamed), generates=True).chat.llm == "none", "with an address that nobody gave now"
    assert Job(run_config({**unnamed, "llm": "none", "records": 3}), generates=True).wanted.records == 3
    assert Job(run_config({**unnamed, "fresh": True}), generates=True).chat.llm == "none"


# -- one configuration file serves every verb -------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """With what only `evaluate`, `audit run` and `baseline` mean."""
    others = {
        "seeds": 1,
        "classifiers": ["tf-idf"],
        "metrics": ["leakage"],
        "canaries": 60,
        "keywords_are_public": True,
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**settings(tmp_path), **others}), "utf-8")
    return tmp_path / "run.yaml"


def test_plan_check_run_evaluate_generate_and_report_take_one_file(
    tmp_path: Path, file: Path, understudy: Callable[..., Said]
) -> None:
    config = ("--config", str(file))
    for verb in ("plan", "check", "run"):
        said = understudy(verb, *config)
        assert said.code == 0, (verb, said.err)
    understudy("evaluate", *config, "--embedder", "none", code=0)
    assert (tmp_path / "out" / "private" / "evaluation.json").exists()
    more = tmp_path / "more"
    said = understudy("generate", *config, "--records-per-label", "2", "--output", str(more), "--json")
    assert (said.code, json.loads(said.out)["records"]) == (0, 4), said.err
    assert understudy("report", *config).code == 0
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_a_name_that_no_verb_knows_is_an_error_in_each(file: Path, understudy: Callable[..., Said]) -> None:
    file.write_text(file.read_text() + "epsilonn: 3\n")
    for words in (["plan"], ["check"], ["run"], ["evaluate"], ["audit", "run"]):
        config = [str(file)] if words[0] == "audit" else ["--config", str(file)]
        said = understudy(*words, *config)
        assert (said.code, "'epsilonn'" in said.err) == (2, True), words


def test_a_verb_that_refuses_what_it_does_not_mean_refuses_the_file(
    file: Path, understudy: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin."""
    monkeypatch.setattr(options, "known_names", lambda values: set[str]())
    assert understudy("plan", "--config", str(file)).code == 2


def test_a_run_that_ended_says_first_what_is_free_and_then_what_is_charged(
    tmp_path: Path, file: Path, understudy: Callable[..., Said]
) -> None:
    assert understudy("run", "--config", str(file)).code == 0
    said = understudy("run", "--config", str(file), "--records", "12", code=0)
    free = f"`understudy generate {tmp_path / 'out'} --records 12 --output ELSEWHERE`"
    assert said.err.index(free) < said.err.index("--fresh would charge the budget a second time")
    assert "Wrote 12 synthetic records" in said.err
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    said = understudy("run", "--config", str(file), "--epsilon", "2")
    assert said.code != 0
    assert said.err.index("understudy generate") < said.err.index("charge the budget a second time")


def test_help_marks_what_is_free_to_change(understudy: Callable[..., Said]) -> None:
    words: Any = " ".join(understudy("run", "--help-all").out.split())
    for name, free in {"--records INTEGER": True, "--llm TEXT": True, "--epsilon TEXT": False, "--seed": False}.items():
        about = words.partition(name)[2].partition(" --")[0]
        assert ("[free]" in about) is free, name


# -- parameters that there were once: what older versions wrote is read, and a user is told what took their place -----


def gone(method: str) -> dict[str, Any]:
    """With the values that they had by default."""
    return {name: each.was for name, each in method_class(method).parameters.all_gone().items()}


@pytest.mark.parametrize("method", method_names())
def test_whoever_names_a_parameter_that_is_gone_is_told_what_took_its_place(method: str) -> None:
    known = method_class(method).parameters
    assert not known.all_gone().keys() & known.model_fields.keys()
    for name, each in known.all_gone().items():
        for value in (each.was, 3):
            with pytest.raises(ConfigError, match=f"There is no parameter '{name}' any more: ") as told:
                method_class(method)(**{name: value})
            assert each.now in told.value.problem
            with pytest.raises(ConfigError, match="any more"):
                run_config({"method": method, name: value})


def test_a_flag_that_is_gone_is_told_too(understudy: Callable[..., Said]) -> None:
    for flag in ("--no-shrinkage", "--swap-rounds=2", "--vocabulary-size"):
        said = understudy("run", flag, code=2)
        assert "any more: " in said.err


OF_RUN = RunConfig.all_gone()


@pytest.mark.parametrize("name", OF_RUN)
def test_whoever_names_a_setting_of_runs_that_is_gone_is_told_too(
    tmp_path: Path, understudy: Callable[..., Said], name: str
) -> None:
    values = settings(tmp_path)
    for value in (OF_RUN[name].was, 3):
        with pytest.raises(ConfigError, match=f"There is no parameter '{name}' any more: ") as told:
            run_config({**values, name: value})
        assert OF_RUN[name].now in told.value.problem
    with pytest.raises(ConfigError, match="any more"):
        us.run([{"note": "a"}], us.DPKPS(), us.Budget(1, "1e-6"), text="note", records=1, **{name: OF_RUN[name].was})
    (tmp_path / "run.yaml").write_text(f"{name}: 3\n", "utf-8")
    for said in (
        understudy("run", *flags(values), "--config", str(tmp_path / "run.yaml")),
        understudy("run", *flags(values), f"--{name.replace('_', '-')}=3"),
    ):
        assert said.code == 2
        assert "any more: " in said.err


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_release_of_an_older_version_is_read_where_its_values_hold_today(tmp_path: Path, sample: str) -> None:
    made = SAMPLES[sample]()
    shares = {"guide_share": 0.3, "columns_share": 0.3}
    older = replace(made, parameters={**gone(made.method), **shares, **made.parameters})
    older.save(tmp_path / "older.release")
    assert load_release(tmp_path / "older.release").parameters == older.parameters
    assert not {*gone(made.method), *shares} & _parameters(older).keys(), "nor does a recipe name them"
    every = sorted(method_class(made.method).parameters.all_gone().items())
    free = {name: 7 for name, each in every if each.free}  # no released value rests on them
    replace(made, parameters={**made.parameters, **free}).save(tmp_path / "free.release")
    assert not free.keys() & _parameters(load_release(tmp_path / "free.release")).keys()
    name = next(name for name, each in every if not each.free)
    replace(made, parameters={**made.parameters, name: 7}).save(tmp_path / "other.release")
    other = load_release(tmp_path / "other.release")
    assert (_parameters(other)[name], other.statement) == (7, made.statement)
    with pytest.raises(ReleaseError, match=f"older version. There is no parameter '{name}' any more"):
        us.generate(other, llm="none", records=1, output=tmp_path / "texts")
    assert not (tmp_path / "texts").exists()


def test_a_release_with_smoothing_is_shown_and_reported_and_only_generating_is_refused(
    tmp_path: Path, understudy: Callable[..., Said]
) -> None:
    """As it was made before decision 082: its densities are sketches of random features."""
    output = tmp_path / "out"
    running.run(run_config(settings(tmp_path)))
    made = load_release(output)
    sketches = {"density": np.zeros((3, 40)), "frequencies-1": np.zeros(32, dtype=np.uint8)}
    older = replace(
        made,
        parameters={**made.parameters, "mode": "independent", "bandwidth": 0.35, "features": 20},
        arrays={name: array for name, array in made.arrays.items() if name != "density"} | sketches,
    )
    older.save(output / "release" / "dp-kps.release")
    assert not load_release(output).arrays  # nothing here could say whether what they hold was charged
    for forged, problem in (({"vocabulary": "/etc/passwd"}, "outside its folder"), ({"seed": -1}, "its seed")):
        replace(older, parameters={**older.parameters, **forged}).save(tmp_path / "forged.release")
        with pytest.raises(ReleaseError, match=problem):
            load_release(tmp_path / "forged.release")
    assert understudy("show", str(output)).out.count("noise multiplier") == len(made.statement.charges)
    assert understudy("report", str(output)).code == 0
    assert "bandwidth" in (output / "release" / "report.html").read_text("utf-8")
    said = understudy("generate", str(output), "--llm=none", "--output", str(tmp_path / "texts"), code=7)
    assert "older version. There is no parameter 'bandwidth' any more" in said.err


def test_an_older_release_writes_the_texts_that_it_wrote(tmp_path: Path) -> None:
    made = dp_kps()
    other_shares = {"guide_share": 0.7, "columns_share": 0.2}  # of what is spent: no text rests on them
    replace(made, parameters={**made.parameters, **gone("dp-kps"), **other_shares}).save(tmp_path / "older.release")
    texts = [
        us.generate(each, llm="none", records=8, output=tmp_path / name).columns["text"]
        for name, each in (("today", made), ("older", load_release(tmp_path / "older.release")))
    ]
    assert texts[0] == texts[1]
    with pytest.raises(ConfigError, match="'shrinkage' any more"):
        running.generate(tmp_path / "older.release", llm="none", records=8, shrinkage=True)


@pytest.mark.parametrize(
    ("other", "goes_on"),
    [({}, True), ({"vocabulary_share": 0.3}, False), ({"keep_formulas": True}, False), ({"shrinkage": False}, True)],
)
def test_a_run_of_an_older_version_goes_on_where_its_values_hold_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, Any], goes_on: bool
) -> None:
    values, today = run_config(settings(tmp_path)), RunConfig.lasting.fget
    assert today is not None
    with monkeypatch.context() as patch:
        were = {name: each.was for name, each in OF_RUN.items()} | gone("dp-kps") | other
        older = property(lambda config: {**today(config), **were})
        patch.setattr(RunConfig, "lasting", older)
        first = running.run(values)
    if goes_on:
        assert running.run(values).columns == first.columns
    else:
        with pytest.raises(ResumeError, match="|".join(other)):
            running.run(values)
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
