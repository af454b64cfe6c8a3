"""The verbs: their help, what they load, what they print, one configuration behind YAML and flags."""

from __future__ import annotations

import inspect
import json
import os
import pydoc
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet as pq
import pytest
import yaml
from clinic import FakeChat, flags, settings
from run_fixtures import Command, UseChat, runs_charged

import understudy as us
from understudy.base.errors import ModelError
from understudy.cli import VERBS
from understudy.cli.options import given
from understudy.methods.registry import method_class
from understudy.release import Release
from understudy.run.defaults import is_plain
from understudy.run.settings import RunConfig, json_schema, run_config

ROOT = Path(__file__).parents[2]
HEAVY = ("opendp", "scipy", "dp_accounting", "torch", "sqlalchemy", "openai", "pyarrow", "transformers", "numpy")
NOISE = ("opendp", "scipy", "dp_accounting", "torch", "transformers", "sqlalchemy")


def loaded_by(code: str, *words: str) -> set[str]:
    """The top-level modules that ``code`` loads in a process of its own."""
    ending = "; import sys; print('LOADED', *sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code + ending, *words], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


_NOT_LISTED = {"Checked", "Corpus", "Evaluation", "FoundTopics", "Forecast", "Listener", "MechanismAudit", "Release"}
_NOT_LISTED |= {"ReportPaths", "Result", "RunAudit", "Statement", "UnderstudyError", "UnderstudyWarning"}
_NOT_LISTED |= {"NonPrivateFinetune", "Verification"}
COMMAND = "from understudy.cli import cli; cli.main(standalone_mode=False)"


def test_import_and_help_load_nothing_heavy() -> None:
    assert not loaded_by("import understudy") & {*HEAVY, "pydantic", "click"}
    assert not loaded_by(COMMAND, "--help") & {*HEAVY, "pydantic"}


def test_the_help_of_a_verb_loads_no_model_and_no_noise() -> None:
    all_verbs = "from understudy.cli import VERBS, cli\nfor v in VERBS: cli.main([v, '--help'], standalone_mode=False)"
    assert not loaded_by(all_verbs) & {*NOISE, "openai"}


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_show_and_generate_without_a_model_load_no_accountant_noise_or_ledger(
    tmp_path: Path, understudy: Command, noise: str
) -> None:
    values = settings(tmp_path, noise=noise, delta="0" if noise == "laplace" else "1e-6")
    assert understudy("run", *flags(values)).code == 0
    release = str(tmp_path / "out" / "release" / "dp-kps.release")
    assert not loaded_by(COMMAND, "show", release) & {*NOISE, "openai"}
    words = ("generate", release, "--llm", "none", "--records", "3", "--output", str(tmp_path / "more"))
    assert not loaded_by(COMMAND, *words) & {*NOISE, "openai"} - {"scipy"}, "scores are shrunk by its special functions"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_help_page(understudy: Command, verb: str) -> None:
    said = understudy(verb, "--help")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"Usage: understudy {verb}")
    assert understudy(verb, "-h").out == said.out


def test_every_parameter_has_a_flag_with_a_description(understudy: Command) -> None:
    shown = understudy("run", "--help-all").out
    flags = {"method", *RunConfig.flags(), *method_class("dp-kps").parameters.flags()}
    for name, entry in json_schema()["properties"].items():
        assert (f"--{name.replace('_', '-')} " in shown) == (name in flags)
        assert entry["description"].strip()


def test_the_version_and_an_unknown_verb(understudy: Command) -> None:
    assert understudy("--version").out.startswith("understudy, version ")
    said = understudy("runn")
    assert said.code == 2
    assert "No such command 'runn'" in said.err
    assert understudy("run").code == 2


def test_plan_needs_no_data_and_writes_nothing(tmp_path: Path, understudy: Command) -> None:
    values = settings(tmp_path, expected_records=500)
    (tmp_path / "notes.csv").unlink()
    (tmp_path / "ledger.sqlite").unlink()
    own = {name: value for name, value in values.items() if name not in ("output",)}
    said = understudy("plan", *flags(own))
    assert said.code == 0, said.err
    assert "vocabulary: noisy weighted counts of 16 public terms, of which the top 10 stay" in said.out
    assert "together: epsilon 3 at delta 1e-06" in said.out
    assert "share of records that must use a term for it to be seen" in said.out
    as_json = json.loads(understudy("plan", *flags(own), "--json").out)
    forecast, calls = (
        {each["name"]: each["value"] for each in as_json[part]["entries"]} for part in ("forecast", "generation")
    )
    assert forecast["expected_records"] == 500
    assert calls == {"records": 8, "calls": 0}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["terms.txt"]


def test_only_results_go_to_standard_output(tmp_path: Path, understudy: Command) -> None:
    said = understudy("run", *flags(settings(tmp_path)))
    assert said.out == f"{tmp_path / 'out' / 'release' / 'synthetic.parquet'}\n"
    assert "This run sets the cap of dataset 'notes' to" in said.err
    assert "Next: `understudy report" in said.err
    assert "vocabulary terms that count as real" not in said.err
    made = settings(tmp_path, output=str(tmp_path / "second"), ledger=str(tmp_path / "second.sqlite"))
    made = {name: value for name, value in made.items() if name not in ("llm", "records_per_label")}
    released = understudy("release", *flags(made), "--verbose")
    assert released.out == f"{tmp_path / 'second' / 'release' / 'dp-kps.release'}\n"
    assert "vocabulary terms that count as real" in released.err
    assert not (tmp_path / "second" / "release" / "synthetic.parquet").exists()


def test_the_output_folder_has_one_shape(tmp_path: Path, understudy: Command) -> None:
    assert understudy("run", *flags(settings(tmp_path))).code == 0
    written = {"schema.json", "synthetic.parquet", "synthetic.csv", "provenance.parquet"}
    shareable = {"dp-kps.release", "statement.json", "statement.md", *written}
    assert {path.name for path in (tmp_path / "out" / "release").iterdir()} == shareable
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"release", "private"}
    table = pq.read_table(tmp_path / "out" / "release" / "synthetic.parquet")
    assert table.column_names == ["note", "department"]
    beside = pq.read_table(tmp_path / "out" / "release" / "provenance.parquet")
    assert beside.column_names == ["text_sha256", "provenance"]
    provenance = json.loads(beside.column("provenance")[0].as_py())
    assert table.column("note")[0].as_py() == ", ".join(provenance["phrases"])


def test_show_shows_the_statement_and_what_came_of_it(tmp_path: Path, understudy: Command) -> None:
    values = {name: value for name, value in settings(tmp_path).items() if name not in ("llm", "records_per_label")}
    assert understudy("release", *flags(values)).code == 0  # the statement of `run` may have a line on its texts
    folder = tmp_path / "out" / "release"
    said = understudy("show", str(folder / "dp-kps.release"))
    assert said.out.startswith((folder / "statement.md").read_text("utf-8"))
    assert said.out.count("Usefulness: **") == 1
    assert "vocabulary terms that count as real" in said.out.partition("\n## Result\n")[2]
    as_json = json.loads(understudy("show", str(folder / "dp-kps.release"), "--json").out)
    assert as_json["statement"] == json.loads((folder / "statement.json").read_text("utf-8"))
    assert as_json["parameters"]["top_terms"] == 10


def test_yaml_stands_for_flags_and_flags_override_it(tmp_path: Path, understudy: Command) -> None:
    values = settings(tmp_path)
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump({**values, "records_per_label": 7, "labels": ["cardiology", "dermatology"]}))
    assert understudy("run", "--config", str(config), "--records-per-label", "4").code == 0
    assert pq.read_table(tmp_path / "out" / "release" / "synthetic.parquet").num_rows == 8
    assert understudy("run", *flags(values)).code == 0  # the same configuration: it resumes
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_several_data_files_and_record_columns_are_flags_too(tmp_path: Path, understudy: Command) -> None:
    values = settings(tmp_path, text=None, record_columns="note, clinician", dataset="both")
    more, lines = tmp_path / "more.csv", (tmp_path / "notes.csv").read_bytes().splitlines(keepends=True)
    more.write_bytes(b"".join(lines[:-1]))
    assert understudy("run", *flags(values), "--data", str(more)).code == 0
    assert runs_charged(tmp_path / "ledger.sqlite", "both") == 1


def test_standard_input_is_read_once_and_kept_private(
    tmp_path: Path, understudy: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = settings(tmp_path, data="-", format="csv", dataset="piped")
    with (tmp_path / "notes.csv").open("rb") as stream:
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": stream}))
        assert understudy("run", *flags(values)).code == 0
    assert {path.name for path in (tmp_path / "out" / "release").iterdir()} == {
        *("dp-kps.release", "statement.json", "statement.md", "schema.json", "provenance.parquet"),
        *("synthetic.parquet", "synthetic.csv"),
    }
    assert understudy("run", *flags(values)).code == 0  # released: standard input is not read


def test_the_schema_and_the_model_accept_the_example_configuration() -> None:
    path = ROOT / "examples" / "demo.yaml"
    values: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    jsonschema.validate(values, json_schema())
    config = run_config(values)
    assert config.budget.epsilon > 0
    given({}, str(path))


def test_the_schema_rejects_what_the_model_rejects(understudy: Command) -> None:
    schema = json.loads(understudy("config", "schema").out)
    assert schema == json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate({"data": "a.csv", "record_columns": "a,b", "labels": ["a", 1], "epsilon": 1}, schema)
    jsonschema.validate({"data": ["a.csv"], "record_columns": ["a", "b"], "labels": "a,b", "delta": "1e-6"}, schema)
    for wrong in ({"top_trems": 3}, {"top_terms": 0}, {"noise": "cauchy"}, {"records": "many"}, {"data": 3}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_an_output_that_cannot_be_written_is_one_error() -> None:
    with Path("/dev/full").open("w") as full:
        said = subprocess.run(
            [sys.executable, "-c", "from understudy.cli import main; main()", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert said.returncode == 10
    assert said.stderr.startswith(b"Error: The disk is full: the output cannot be written.")


def test_an_internal_error_can_be_shown_in_full_on_request(
    tmp_path: Path, understudy: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **named: object) -> None:
        raise ZeroDivisionError("a private detail")

    monkeypatch.setattr(Release, "save", broken)
    assert "a private detail" not in understudy("run", *flags(settings(tmp_path))).err
    monkeypatch.setitem(os.environ, "UNDERSTUDY_DEBUG", "1")
    with pytest.raises(ZeroDivisionError, match="a private detail"):
        understudy("run", *flags(settings(tmp_path)))


def test_on_a_terminal_there_is_a_progress_display_and_elsewhere_there_are_lines(
    tmp_path: Path, understudy: Command, use_chat: UseChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_chat(FakeChat())
    values = settings(tmp_path, llm="fake")
    plain = understudy("run", *flags(values)).err
    assert "texts: 8 of 8" in plain.splitlines()
    with monkeypatch.context() as patch:
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "200")
        patch.setattr(sys.stderr, "isatty", lambda: True)
        shown = understudy("run", *flags(values)).err
    assert "Wrote 8 synthetic records" in shown
    assert "texts: 8 of 8" not in shown
    assert "\x1b[" in shown


@pytest.mark.parametrize("verb", ["run", "release", "plan", "generate", "evaluate"])
def test_help_shows_the_options_that_matter_and_help_all_every_one(understudy: Command, verb: str) -> None:
    short, full = understudy(verb, "--help").out, understudy(verb, "--help-all").out
    flags_in = [set(re.findall(r"^  (--[\w-]+)", page, re.MULTILINE)) for page in (short, full)]
    assert flags_in[0] < flags_in[1]
    assert len(flags_in[0]) <= 34
    assert f"{len(flags_in[1] - flags_in[0])} more options: --help-all." in short


def test_help_shows_what_errors_advise_and_nothing_that_the_method_ignores(understudy: Command) -> None:
    shown = understudy("run", "--help").out
    for flag in ("--max-bad-rows", "--delimiter", "--encoding", "--expected-records", "--ledger", "--fresh"):
        assert f"  {flag} " in shown, flag
    assert "--private-model" not in shown
    assert "--private-model" in understudy("run", "--help-all").out
    assert "--private-model" in understudy("run", "--method", "few-shot", "--help").out


def test_a_misspelt_verb_is_asked_back(understudy: Command) -> None:
    for typed, meant in {"rnu": "run", "genrate": "generate", "ledgr": "ledger"}.items():
        said = understudy(typed)
        assert (said.code, said.out) == (2, "")
        assert f"Did you mean '{meant}'" in said.err
    assert "Did you mean" not in understudy("xyzzy").err


def test_a_bare_run_asks_for_the_data_first(understudy: Command) -> None:
    for verb in ("run", "release"):
        said = understudy(verb)
        assert said.code == 2
        assert said.err.startswith("Error: No private data given.\nName the table with --data SOURCE")


def test_generate_has_an_output_of_its_own_that_no_release_can_lead_elsewhere(
    tmp_path: Path, understudy: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = settings(tmp_path, dataset="visits")
    assert understudy("run", *flags(made)).code == 0
    said = understudy("generate", str(tmp_path / "out"), "--llm", "none", "--records", "2")
    assert said.code == 0, said.err
    assert "The results go to visits-texts (--output)." in said.err
    assert said.out.strip() == str(Path("visits-texts") / "release" / "synthetic.parquet")
    assert [is_plain(name) for name in ("visits", "a_b-1", "../x", "a/b", "", ".", "x.y")] == [True] * 2 + [False] * 5


def test_the_package_can_be_run_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "understudy", "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.startswith("Usage: understudy [OPTIONS] COMMAND")
    assert re.findall(r"^(\w+):$", done.stdout, re.MULTILINE) == ["Options", "Make", "Judge", "Manage"]
    assert "understudy run --config tickets.yaml" in done.stdout


def test_help_of_the_package_is_one_screen_that_names_every_verb_and_method() -> None:
    shown = pydoc.render_doc(us, renderer=pydoc.plaintext)
    assert shown.count("\n") <= 60
    assert us.__doc__ is not None
    assert {name for name in dir(us) if name in us._VERBS.split() or name[:1].isupper()} - _NOT_LISTED <= set(
        re.findall(r"\w+", us.__doc__)
    )


@pytest.mark.parametrize("verb", ["run", "release", "plan", "check", "generate", "topics", "baseline", "evaluate"])
def test_the_signature_of_a_verb_names_its_options(verb: str) -> None:
    signature = inspect.signature(getattr(us, verb))
    assert not any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    described = re.findall(r"^    (\w+): ", getattr(us, verb).__doc__.partition("\nOptions:\n")[2], re.MULTILINE)
    assert described
    assert set(described) <= {*signature.parameters}


def test_with_json_every_verb_prints_one_object_and_nothing_else(
    tmp_path: Path, understudy: Command, monkeypatch: pytest.MonkeyPatch, use_chat: Callable[..., FakeChat]
) -> None:
    pytest.importorskip("sklearn")
    use_chat(FakeChat())

    def printed(*words: str) -> dict[str, Any]:
        said = understudy(*words, "--json")
        assert said.code == 0, (words, said.err)
        fields = json.loads(said.out)
        assert isinstance(fields, dict)
        return fields

    values, out, place = settings(tmp_path), tmp_path / "out", ("--ledger", str(tmp_path / "ledger.sqlite"))
    made = printed("run", *flags(values))
    table, release = str(out / "release" / "synthetic.parquet"), str(out / "release" / "dp-kps.release")
    assert (made["table"], made["release"], made["output"]) == (table, release, str(out))
    assert (made["method"], made["dataset"], made["private"]) == ("dp-kps", "notes", True)
    assert (made["records"], made["missing"], made["budget"]["epsilon"]) == (8, 0, "3")
    apart = {name: each for name, each in values.items() if name not in ("llm", "records_per_label")}
    apart |= {"output": str(tmp_path / "apart"), "insecure_no_noise": True}
    alone = printed("release", *flags(apart))
    assert (alone["table"], alone["records"], alone["private"]) == (None, 0, False)
    assert Path(alone["release"]).is_file()
    more = ("--llm", "none", "--records", "3", "--output", str(tmp_path / "more"))
    assert printed("generate", release, *more)["records"] == 3
    assert printed("plan", *flags(values))["generation"]["entries"][0]["value"] == 8
    floor = ("--labels", "a,b", "--records", "2", "--output", str(tmp_path / "floor"))
    assert Path(printed("baseline", *floor)["table"]).is_file()
    measured = ("--embedder", "none", "--metrics", "leakage", "--max-texts", "8")
    assert printed("evaluate", values["data"], str(out), *measured) == {
        "evaluation": str(out / "private" / "evaluation.json"),
        "released": None,
    }
    assert printed("evaluate", values["data"], str(out), *measured, "--show")["metrics"]["values"]
    assert printed("audit", "mechanism", "label-counts", "--runs", "100")["audits"][0]["runs"] == 100
    assert printed("audit", "mechanism", "--list")["mechanisms"]
    assert printed("show", release)["statement"]["dataset"] == "notes"
    assert printed("ledger", "create", *place)["ledger"]
    assert printed("ledger", "open", "other", "--epsilon", "1", "--delta", "0", *place)["dataset"] == "other"
    assert [each["dataset"] for each in printed("ledger", "show", *place)["datasets"]] == ["notes", "other"]
    assert printed("ledger", "history", "notes", *place)["entries"][0]["charges"]
    assert len(printed("models", "list")["models"]) == 2
    monkeypatch.setattr("understudy.models.catalog.load_embedder", _no_embedder)
    (pages,) = printed("report", str(out))["reports"]
    assert Path(pages["shareable"]).is_file()
    assert Path(pages["internal"]).is_file()


def _no_embedder(spec: str) -> object:
    raise ModelError(f"There is no {spec}.", "Pull it.")


def test_a_flag_can_switch_off_what_yaml_switched_on(tmp_path: Path, understudy: Command) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump(settings(tmp_path, vocabulary_is_public=True)))
    assert understudy("run", "--config", str(config), "--no-vocabulary-is-public").code == 2
