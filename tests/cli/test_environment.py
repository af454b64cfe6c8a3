"""Options by environment variable, what is said on standard error, and completion in three shells."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
import yaml
from click.shell_completion import BashComplete
from clinic import FakeChat, flags, rows, settings, write_csv
from run_fixtures import Command, UseChat

from understudy.base import yaml_text
from understudy.cli import VERBS, cli, output
from understudy.cli.environment import TypedOption, must_be_typed, variable
from understudy.cli.options import ParametersCommand, options_of
from understudy.ledger import location
from understudy.methods.registry import method_class, method_names
from understudy.run.settings import RUN_GROUPS
from understudy.text.prompts.writer import ANSWERS, SEEDS

GROUPS = [*RUN_GROUPS, *(method_class(name).parameters for name in method_names())]
PLAN = ("plan", "--label", "department", "--labels", "cardiology,other", "--expected-records", "900")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def give(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(variable(name), value)

    return give


def test_a_variable_stands_for_a_flag(understudy: Command, given: Callable[..., None]) -> None:
    given(epsilon="5", delta="1e-6", top_terms="77", no_such_option="1")
    said = understudy(*PLAN)
    assert said.code == 0, said.err
    assert "budget (epsilon=5, delta=1e-06)" in said.out
    assert "the top 77 stay" in said.out
    assert said.err == "From the environment: UNDERSTUDY_DELTA, UNDERSTUDY_EPSILON, UNDERSTUDY_TOP_TERMS.\n"


def test_a_flag_wins_over_its_variable_and_a_variable_over_the_file(
    tmp_path: Path, understudy: Command, given: Callable[..., None]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({"epsilon": 1, "delta": "1e-6", "top_terms": 11, "records": 10}), "utf-8")
    given(config=str(file), epsilon="2", top_terms="22", records_per_label="3")
    plan = json.loads(understudy(*PLAN, "--epsilon", "4", "--json").out)
    assert plan["budget"]["epsilon"] == "4"
    assert "the top 22 stay" in plan["charges"][0]["why"]
    assert plan["generation"]["entries"][0]["value"] == 6, "3 for each of two labels"
    plan = json.loads(understudy(*PLAN, "--records", "7", "--json").out)
    assert plan["budget"]["epsilon"] == "2"
    assert plan["generation"]["entries"][0]["value"] == 7


@pytest.fixture
def ledgers_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A ledger that is named and missing is an error, as for users."""
    monkeypatch.setattr("understudy.ledger.ledger.begins_by_itself", location.begins_by_itself)
    monkeypatch.setenv("UNDERSTUDY_LEDGER", str(tmp_path / "gone" / "ledger.sqlite"))
    return tmp_path / "gone"


def test_an_error_names_the_place_that_sets_an_option_unless_it_was_typed(
    tmp_path: Path, understudy: Command, given: Callable[..., None], ledgers_are_named: Path
) -> None:
    file, table = tmp_path / "run.yaml", str(write_csv(tmp_path / "notes.csv", rows(4)))
    file.write_text(yaml.safe_dump({"data": table, "text": "note", "label": "department", "epsilon": 1}), "utf-8")
    given(labels="cardiology,other")
    topics = ("topics", "--config", str(file), "--output", str(tmp_path / "out"))
    last = ["Set in run.yaml: label.", "Set in the environment: UNDERSTUDY_LABELS."]
    assert understudy(*topics, code=2).err.splitlines()[-2:] == last
    assert understudy(*topics, "--label", "note", code=2).err.splitlines()[-1:] == last[1:]
    cure = json.loads(understudy(*topics, "--log-json", code=2).err.splitlines()[-1])["cure"]
    assert cure.splitlines()[1:] == last
    for verb in (("ledger", "show"), ("ledger", "open", "notes", "--epsilon", "1", "--delta", "0")):
        assert understudy(*verb, code=5).err.splitlines()[-1] == "Set in the environment: UNDERSTUDY_LEDGER."
        assert "Set in" not in understudy(*verb, "--ledger", str(tmp_path / "no.sqlite"), code=5).err


def test_a_ledger_that_is_named_and_missing_is_told_before_anything_is_loaded(
    tmp_path: Path, understudy: Command, ledgers_are_named: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object, **__: object) -> None:
        raise AssertionError("a model was loaded")

    for kind in ("chat", "embedder"):
        monkeypatch.setattr(f"understudy.models.catalog.load_{kind}", load)
    write_csv(tmp_path / "notes.csv", rows(4))
    table = ("--data", str(tmp_path / "notes.csv"), "--text", "note", "--language", "en", "--delta", "1e-6")
    table += ("--output", str(tmp_path / "out"))
    for words in (("plan", *table, "--epsilon", "1"), ("check", *table, "--epsilon", "1"), ("check", *table)):
        said = understudy(*words, code=0)
        assert "Warning: There is no ledger at" in said.out + said.err
        assert "A run would be refused." in said.out + said.err
        assert "no ledger" not in str(understudy(*words, "--ledger", "postgresql://nobody@127.0.0.1:9/x", code=0))
    for verb in ("topics", "run", "release"):
        said = understudy(verb, *table, "--epsilon", "1", *(("--llm", "builtin") if verb != "release" else ()), code=5)
        assert "There is no ledger at" in said.err
    assert not ledgers_are_named.exists()


def test_an_audit_tells_the_environment_once_and_by_the_names_there(
    tmp_path: Path, understudy: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({"label": "department", "topics": 2, "epsilon": 1}), "utf-8")
    monkeypatch.setenv("UNDERSTUDY_AUDIT_RUN_OUTPUT", str(tmp_path / "out"))
    monkeypatch.setenv("UNDERSTUDY_CANARIES", "60")
    said = understudy("audit", "run", str(file), code=2).err
    assert [line for line in said.splitlines() if "environment" in line] == [
        "From the environment: UNDERSTUDY_AUDIT_RUN_OUTPUT, UNDERSTUDY_CANARIES."
    ]


def test_the_method_and_its_options_may_come_from_there_too(understudy: Command, given: Callable[..., None]) -> None:
    given(method="aug-pe", rounds="2", epsilon="4", delta="1e-6", population="40")
    said = understudy(*PLAN)
    assert "Method aug-pe" in said.out, said.err
    assert "UNDERSTUDY_ROUNDS" in said.err


def test_yes_and_no_are_read_and_all_else_names_the_variable(understudy: Command, given: Callable[..., None]) -> None:
    given(epsilon="4", delta="1e-6", guide="yes")
    assert "guide" in understudy(*PLAN).out
    given(guide="no")
    assert understudy(*PLAN).code == 0
    given(guide="perhaps")
    said = understudy(*PLAN)
    assert said.code == 2
    assert "not a valid boolean" in said.err
    assert "The value is that of the environment variable UNDERSTUDY_GUIDE." in said.err


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("insecure_no_noise", "--insecure-no-noise"),
        ("vocabulary_is_public", "--vocabulary-is-public"),
        ("labels_from_data", "--labels-from-data"),
        ("trust_endpoint", "--trust-endpoint"),
        ("fresh", "--fresh"),
    ],
)
def test_what_gives_protection_up_or_vouches_must_be_typed(
    understudy: Command, given: Callable[..., None], name: str, flag: str
) -> None:
    given(**{name: "1"})
    said = understudy(*PLAN, "--epsilon", "4", "--delta", "1e-6")
    assert said.code != 0
    assert f"UNDERSTUDY_{name.upper()} is set, but {flag} must be typed" in said.err
    typed = (flag,)
    assert understudy(*PLAN, "--epsilon", "4", "--delta", "1e-6", *typed).code == 0


def test_every_parameter_has_a_variable_and_the_risky_ones_are_refused() -> None:
    options = {option.name: option for group in GROUPS for option in options_of(group)}
    for name, option in options.items():
        assert name is not None
        assert option.envvar == (None if name == "ledger" else f"UNDERSTUDY_{name.upper()}")
        assert isinstance(option, TypedOption) is must_be_typed(name)
    risky = {name for name in options if must_be_typed(name or "")}
    assert {"insecure_no_noise", "public_corpus_is_public", "fresh"} <= risky


def below(command: click.Command, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        return [each for name, command in command.commands.items() for each in below(command, (*path, name))]
    return [(path, command)]


@pytest.mark.parametrize("verb", VERBS)
def test_an_option_of_one_verb_has_a_variable_with_the_verb_s_name(verb: str) -> None:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    for path, each in below(command, (verb,)):
        assert {"-v", "-q"} <= {opt for param in each.params for opt in param.opts}
        for param in each.params:
            if isinstance(param, click.Option) and "--json" in param.opts:
                assert param.envvar == f"UNDERSTUDY_{'_'.join(path).upper()}_JSON"
        assert len({param.envvar for param in each.params if param.envvar}) == len(
            [param for param in each.params if param.envvar]
        )
    assert isinstance(command, click.Command | ParametersCommand)


def test_the_ledger_s_variable_gives_way_to_the_file(
    tmp_path: Path, understudy: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = settings(tmp_path)
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(values), "utf-8")
    monkeypatch.setenv("UNDERSTUDY_LEDGER", str(tmp_path / "elsewhere.sqlite"))
    assert understudy("run", "--config", str(file)).code == 0
    assert not (tmp_path / "elsewhere.sqlite").exists()


def test_quiet_says_nothing_and_errors_are_still_said(tmp_path: Path, understudy: Command) -> None:
    said = understudy("run", "-q", *flags(settings(tmp_path)))
    assert (said.code, said.err) == (0, "")
    assert said.out.endswith("synthetic.parquet\n")
    assert "No privacy budget given" in understudy("-q", "plan", "--label", "d", "--labels", "a,b").err
    assert "From the environment" not in understudy(*PLAN, "--epsilon", "4", "--delta", "1e-6").err


def test_verbose_holds_for_one_command(tmp_path: Path, understudy: Command, use_chat: UseChat) -> None:
    use_chat(FakeChat())
    said = understudy("run", "-v", *flags(settings(tmp_path, llm="builtin")))
    assert "[understudy.ledger.store] Stage reached: released." in said.err
    assert f"[understudy.models.collect] Of {8 * SEEDS * ANSWERS} requests, 0 have stored answers." in said.err
    again = settings(tmp_path, llm="builtin", output=str(tmp_path / "second"))
    assert "[understudy" not in understudy("run", *flags(again)).err


def test_json_logs_are_one_object_per_line(tmp_path: Path, understudy: Command) -> None:
    said = understudy("--log-json", "run", "-v", *flags(settings(tmp_path)))
    records = [json.loads(line) for line in said.err.splitlines()]
    assert {"time", "level", "logger", "message"} <= records[0].keys()
    assert {record["logger"].partition(".")[0] for record in records} == {"understudy"}
    assert {"info", "debug"} <= {record["level"] for record in records}
    assert "\x1b" not in said.err
    said = understudy("plan", "--log-json", "--label", "d", "--labels", "a,b")
    error = json.loads(said.err)
    assert error["level"] == "error"
    assert error["message"] == "No privacy budget given."
    assert "--epsilon" in error["cure"]
    said = understudy("plan", "--log-json", "--no-such-flag")
    assert json.loads(said.err)["level"] == "error"


def test_a_record_s_exception_is_never_shown(capsys: pytest.CaptureFixture[str]) -> None:
    output.begin(as_json=False)
    try:
        raise ValueError("a private text")
    except ValueError:
        logging.getLogger("understudy.test").exception("It failed.")
    assert capsys.readouterr().err == "Warning: It failed.\n"


@pytest.mark.parametrize(
    ("shell", "sign"), [("bash", "complete -o nosort"), ("zsh", "#compdef understudy"), ("fish", "complete --no-files")]
)
def test_a_completion_script_is_written_for(shell: str, sign: str) -> None:
    command = [sys.executable, "-m", "understudy"]
    around = {**os.environ, "_UNDERSTUDY_COMPLETE": f"{shell}_source"}
    done = subprocess.run(command, env=around, capture_output=True, text=True, check=False)
    assert sign in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("rel", ["plain,release"]),
        ("run --config k", ["file,k"]),
        ("evaluate t", ["file,t"]),
        ("config schema --method dp-", ["plain,dp-finetune", "plain,dp-kde", "plain,dp-kps"]),
        ("run --engine pro", ["plain,processes"]),
        ("run --method seq-pate --teach", ["plain,--teachers"]),
        ("generate --llm oll", ["plain,ollama:"]),
        ("audit mechanism vocabulary-l", ["plain,vocabulary-laplace"]),
        ("run k.yaml --delim", ["plain,--delimiter"]),
        ("run --epsilon 6", []),
    ],
)
def test_verbs_flags_files_choices_and_known_names_are_completed(line: str, found: list[str]) -> None:
    *given, begun = line.split()
    proposed = BashComplete(cli, {}, "understudy", "_UNDERSTUDY_COMPLETE").get_completions(given, begun)
    assert [f"{each.type},{each.value}" for each in proposed] == found


def test_what_is_wrong_before_it_says_nothing_on_the_line_that_is_typed() -> None:
    asked = {
        "_UNDERSTUDY_COMPLETE": "bash_complete",
        "COMP_WORDS": "understudy run --method nosuch --te",
        "COMP_CWORD": "4",
    }
    done = subprocess.run(
        [sys.executable, "-m", "understudy"], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_a_name_with_spaces_is_one_source(tmp_path: Path, understudy: Command, given: Callable[..., None]) -> None:
    values = settings(tmp_path)
    (tmp_path / "two words.csv").write_bytes((tmp_path / "notes.csv").read_bytes())
    values.pop("data")
    given(data=str(tmp_path / "two words.csv"), dataset="words")
    said = understudy("run", *flags(values))
    assert said.code == 0, said.err


@pytest.mark.parametrize("verb", ["plan", "run", "generate", "evaluate"])
def test_a_configuration_is_read_once(
    verb: str, tmp_path: Path, understudy: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.yaml").write_text("data: none.csv\noutput: nowhere\nepsilon: 3\nlabel: [wrong]\n")
    read: list[str] = []
    monkeypatch.setattr(yaml_text, "load_yaml", lambda text, load=yaml_text.load_yaml: read.append(text) or load(text))
    assert understudy(verb, "--config", str(tmp_path / "run.yaml")).code != 0
    assert len(read) == 1
