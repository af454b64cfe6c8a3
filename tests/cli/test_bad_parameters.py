"""Every bad parameter is one typed error with its cure and a documented exit code, and charges nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from clinic import flags, rows, settings, write_csv
from run_fixtures import Command, Said, runs_charged
from server import FakeEndpoint, error

from understudy.base.errors import UnderstudyError
from understudy.cli import INTERNAL_ERROR, INTERRUPTED
from understudy.cli.verbs.generate import _method_of_release
from understudy.ledger import Ledger
from understudy.models.endpoint import EndpointChat
from understudy.privacy.guarantee import Budget
from understudy.privacy.unit import Unit
from understudy.release import FORMAT, FORMAT_VERSION
from understudy.run import pipeline
from understudy.run.settings import run_config


@dataclass(frozen=True)
class Bad:
    """Changes to a good run, and what is to be said about them."""

    changes: dict[str, Any]
    code: int
    problem: str
    cure: str
    prepare: Callable[[Path], None] = field(default=lambda folder: None)


def spent_budget(folder: Path) -> None:
    with Ledger(folder / "ledger.sqlite") as ledger:
        ledger.open_dataset("notes", cap=Budget(1, "1e-6"), unit=Unit())


def undeclared_label(folder: Path) -> None:
    write_csv(folder / "notes.csv", [*rows(8), {**rows(1)[0], "department": "surgery"}])


BAD: dict[str, Bad] = {
    "epsilon zero": Bad({"epsilon": "0"}, 2, "Expected epsilon of 1e-09 to 100000, got 0", "in this range"),
    "epsilon no number": Bad({"epsilon": "six"}, 2, "Expected a number for epsilon", "such as 3, 0.5 or 1e-6"),
    "delta missing": Bad({"delta": None}, 2, "delta is missing", "--expected-records N"),
    "delta zero with gaussian noise": Bad(
        {"delta": "0", "noise": "gaussian"}, 2, "Gaussian noise", "choose laplace noise"
    ),
    "labels without a column": Bad({"label": None}, 2, "no label column", "--label"),
    "a row with another label": Bad({}, 3, "a label that is not declared", "--max-bad-rows", undeclared_label),
    "no data": Bad({"data": None, "dataset": "notes"}, 2, "No private data given", "--data SOURCE"),
    "no such file": Bad({"data": "nothing.csv"}, 3, "There is no file 'nothing.csv'", "Check the path"),
    "no text column": Bad({"text": None}, 2, "text column", "--text COLUMN"),
    "unknown model": Bad({"llm": "wizard"}, 6, "There is no chat model 'wizard'", "Known ones are"),
    "an endpoint that fails": Bad({"llm": "openai:test"}, 6, "does not answer: ", "understudy models check"),
    "budget exceeded": Bad({}, 4, "asks for (epsilon=3, delta=1e-06)", "--raise", spent_budget),
    "no output": Bad({"output": None, "data": "*.csv"}, 2, "give no name for the output folder", "--output FOLDER"),
    "output is a file": Bad({"output": "notes.csv"}, 10, "cannot be written", "Use another --output"),
    "bad rows that are no share": Bad({"max_bad_rows": 600}, 2, "a share of the rows, 0 to 1", "--help"),
    "negative records": Bad({"records_per_label": -3}, 2, "'records_per_label'", "--help"),
    "a ledger that is none": Bad({"ledger": "notes.csv"}, 5, "cannot be used", "backup"),
    "unknown method": Bad({"method": "alchemy"}, 2, "There is no method 'alchemy'", "dp-kps"),
    "unknown flag": Bad({"top_term": 3}, 2, "No such option", "--top-terms"),
    "unknown choice": Bad({"format": "xls"}, 2, "'xls' is not one of", "parquet"),
    "no such configuration": Bad(
        {"config": "no.yaml"}, 2, "Cannot read the configuration no.yaml", "YAML file in UTF-8"
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_parameter_is_one_error_that_says_the_cure_and_charges_nothing(
    tmp_path: Path, understudy: Command, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    bad = BAD[what]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(EndpointChat.__init__, "__kwdefaults__", {**EndpointChat.__init__.__kwdefaults__, **_QUICK})
    good = settings(tmp_path)
    bad.prepare(tmp_path)
    with FakeEndpoint(lambda number, seen: error(500)) as endpoint:
        if what == "an endpoint that fails":
            good["base_url"] = endpoint.base_url
        asked = {name: value for name, value in {**good, **bad.changes}.items() if value is not None}
        said = understudy("run", *flags(asked))
    assert_error(said, bad.code, bad.problem, bad.cure)
    assert runs_charged(tmp_path / "ledger.sqlite") == 0
    assert not (tmp_path / "out" / "release" / "dp-kps.release").exists()


_QUICK = {"max_retries": 0, "backoff_seconds": 0.0}


def assert_error(said: Said, code: int, problem: str, cure: str) -> None:
    assert said.code == code, said.err
    assert "Traceback" not in said.err
    assert "Internal error" not in said.err
    assert len([line for line in said.err.splitlines() if line.startswith("Error")]) == 1
    assert problem in said.err, said.err
    assert re.search(cure, said.err.partition("Error")[2]), said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("top_trems: 3", "There is no parameter 'top_trems'"),
        ("- epsilon", "is not a mapping"),
        ("epsilon: [", "Cannot read the configuration run.yaml (it is not YAML at line 1, column 11)"),
        ("epsilon: 1\nepsilon: 2", "(a name occurs again at line 2, column 1)"),
        ("epsilon: 1\n private: text", "(it is not YAML at line 2, column 9)"),
        ("method: alchemy", "There is no method 'alchemy'"),
        ("method: [dp-kps]", "`method` is not text"),
        ("epsilon: 0x" + "f" * 9000, "'epsilon': expected a number of at most"),
    ],
)
def test_a_bad_line_of_the_settings_is_one_error(tmp_path: Path, understudy: Command, text: str, problem: str) -> None:
    (tmp_path / "run.yaml").write_text(text, "utf-8")
    name = text.partition(":")[0]
    good = {key: value for key, value in settings(tmp_path).items() if key != name}
    said = understudy("run", "--config", str(tmp_path / "run.yaml"), *flags(good))
    assert_error(said, 2, problem, ".")
    assert runs_charged(tmp_path / "ledger.sqlite") == 0


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Release; to be copied before it is harmed."""
    folder = tmp_path_factory.mktemp("released")
    made = settings(folder, records_per_label=None)
    del made["llm"]
    pipeline.release(run_config(made))
    return folder / "out" / "release" / "dp-kps.release"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def of_a_newer_version(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        manifest = {**json.loads(archive.read("release.json")), "format_version": 99}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("release.json", json.dumps(manifest))


RELEASES: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "not there": (Path.unlink, "There is no Release file", "Check the path"),
    "cut off": (cut, "is damaged or is not a Release", "Ask the sender for a new copy"),
    "of a newer version": (of_a_newer_version, "has format version 99", "Use the version of understudy that made it"),
}


@pytest.mark.parametrize("what", RELEASES)
@pytest.mark.parametrize("verb", ["show", "generate"])
def test_a_release_that_cannot_be_read_is_one_error(
    tmp_path: Path, released: Path, understudy: Command, what: str, verb: str
) -> None:
    path = Path(shutil.copy(released, tmp_path))
    harm, problem, cure = RELEASES[what]
    harm(path)
    more = [] if verb == "show" else ["--records", "3", "--output", str(tmp_path / "b"), "--llm", "none"]
    assert_error(understudy(verb, str(path), *more), 7, problem, cure)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("flag", [None, "--prompt", "--examples", "--config="])
def test_generate_opens_no_pipe_to_learn_the_method(tmp_path: Path, flag: str | None) -> None:
    os.mkfifo(tmp_path / "pipe")
    pipe, release = str(tmp_path / "pipe"), str(tmp_path / "dp-kps.release")
    args = [pipe] if flag is None else [flag + pipe, release] if flag.endswith("=") else [flag, pipe, release]
    assert _method_of_release(args).name == "dp-kps"


def test_generate_takes_the_method_of_the_argument_and_not_of_a_flags_value(tmp_path: Path) -> None:
    for name in ("few-shot", "aug-pe"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(
                "release.json", json.dumps({"format": FORMAT, "format_version": FORMAT_VERSION, "method": name})
            )
    args = ["--json-schema", str(tmp_path / "few-shot"), str(tmp_path / "aug-pe")]
    assert _method_of_release(args).name == "aug-pe"
    assert _method_of_release(["--llm-batch", str(tmp_path / "few-shot")]).name == "few-shot"


GENERATE: dict[str, tuple[dict[str, Any], int, str, str]] = {
    "too long": ({"length": 11}, 2, "more terms than", "Lower length"),
    "release parameter": ({"top_terms": 5}, 2, "No such option", "--top-terms"),
}


@pytest.mark.parametrize("what", GENERATE)
def test_a_bad_parameter_of_generate_is_one_error(
    tmp_path: Path, released: Path, understudy: Command, what: str
) -> None:
    changes, code, problem, cure = GENERATE[what]
    asked = {"llm": "none", "records": 3, "length": 3, "output": str(tmp_path / "b"), **changes}
    assert_error(understudy("generate", str(released), *flags(asked)), code, problem, cure)


def test_a_fixed_parameter_cannot_change_for_a_release(tmp_path: Path, released: Path, understudy: Command) -> None:
    (tmp_path / "a.yaml").write_text("top_terms: 9\nrecords: 3\nllm: none", "utf-8")
    words = ("generate", str(released), "--config", str(tmp_path / "a.yaml"), "--output", str(tmp_path / "b"))
    said = understudy(*words)
    assert_error(said, 2, "'top_terms' cannot be changed now", "Leave it out")
    (tmp_path / "a.yaml").write_text("top_terms: 10\nrecords: 3\nllm: none", "utf-8")
    assert understudy(*words).code == 0


# -- docs/errors.md and the code agree --------------------------------------------------------------------------------


DOCUMENT = (Path(__file__).parents[2] / "docs" / "errors.md").read_text("utf-8")


def test_every_kind_of_error_is_documented_with_its_exit_code() -> None:
    documented = {name: int(code) for code, name in re.findall(r"^- \*\*(\d+)\*\* `(\w+)`: ", DOCUMENT, re.MULTILINE)}
    assert documented == {kind.__name__: kind.exit_code for kind in UnderstudyError.__subclasses__()}
    assert len(set(documented.values())) == len(documented)
    assert {str(INTERNAL_ERROR), str(INTERRUPTED)} <= set(re.findall(r"^- \*\*(\d+)\*\*", DOCUMENT, re.MULTILINE))


def test_several_files_without_a_name_are_one_error(tmp_path: Path, understudy: Command) -> None:
    for verb in ("run", "release"):
        good = settings(tmp_path)
        if verb == "release":
            del good["llm"], good["records_per_label"]
        said = understudy(verb, *flags(good), "--data", str(tmp_path / "more.csv"))
        assert_error(said, 2, "Several files are given", "--dataset NAME")
    assert runs_charged(tmp_path / "ledger.sqlite") == 0
