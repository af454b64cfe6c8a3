"""Parameters that there were once: what older versions wrote is read, and a user is told what took their place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clinic import flags, settings
from run_fixtures import Said, runs_charged
from sample_releases import SAMPLES, dp_kps

import understudy as us
from understudy.base.errors import ConfigError, ReleaseError, ResumeError
from understudy.methods.registry import load_release, method_class, method_names
from understudy.report.views import _parameters
from understudy.run import pipeline as running
from understudy.run.settings import RunConfig, run_config


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
        said = understudy("run", flag)
        assert said.code == 2
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
    with pytest.raises(ReleaseError, match=f"older version. There is no parameter '{name}' any more"):
        load_release(tmp_path / "other.release")


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
