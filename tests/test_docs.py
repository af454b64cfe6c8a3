"""The documentation is true: its links lead somewhere, its examples run, its tables are complete.

A code block after ``<!-- run -->`` is run as it stands, in a folder of its own, with stand-ins for the models. A block
after ``<!-- file NAME -->`` is written to that file first.
"""

from __future__ import annotations

import hashlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from local_fixtures import make_llama
from numpy.typing import NDArray
from run_fixtures import few_words, little_work_of_seq_pate, simple_fit
from script_model import ScriptModel

import understudy.models.catalog
from understudy.cli import cli
from understudy.cli.options import ParametersCommand, options_of
from understudy.evaluate.metrics.utility import language as tuned_language
from understudy.evaluate.metrics.value import Metric
from understudy.methods.additions.columns import release as columns_release
from understudy.methods.aug_pe.plan import AugPEParameters
from understudy.methods.dp_finetune import release as dp_finetune
from understudy.methods.registry import method_names
from understudy.methods.sec_pe.plan import ReleaseParameters, SecPEParameters
from understudy.models.causal import CausalModel
from understudy.models.types import ChatRequest, Completion
from understudy.text.prompts.template import PromptTemplate

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("benchmarks/*.md")]
)
BLOCK = re.compile(r"<!-- (run|file|template) ?(\S*) -->\n```(\w+)\n(.*?)```", re.DOTALL)
SOURCE = ROOT / "src"
RUNNABLE = [page for page in PAGES if BLOCK.search(page.read_text("utf-8"))]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# (epsilon, delta) in words that say more than it: delta is no chance that the factor e^epsilon fails.
WRONG_PROMISE = re.compile(
    r"except\s+(?:with\s+(?:a\s+)?probability|for\s+a\s+share)|(?:save|but)\s+for\s+a\s+share|"
    r"changes?\s+(?:the\s+\S+\s+(?:of\s+\S+\s+)*)?by\s+(?:at\s+most\s+)?a\s+factor|"
    r"probability\s+(?:of\s+a\s+failure|that\s+the\s+promise\s+fails)",
    re.IGNORECASE,
)


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_relative_link_leads_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
            if "://" in link:
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.is_file(), (name(page), link)
            assert not anchor or anchor in anchors(target), (name(page), link)


class Letters:
    """An embedder without a model: random directions, the same for the same text."""

    model_id = "letters"
    fingerprint = "0" * 64
    local = True
    longest, batch_tokens = 8, 64  # so that it is quickly tried

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = []
        for text in texts:
            seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
            rows.append(np.random.default_rng(seed).standard_normal(16))
        vectors = np.array(rows, dtype=np.float32).reshape(len(texts), 16)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


class Echo:
    """A chat model without a model: it says the last line again, its blanks filled."""

    model_id = "echo"

    async def complete(self, requests: Sequence[ChatRequest]) -> AsyncIterator[tuple[int, Completion]]:
        for index, request in enumerate(requests):
            yield index, Completion(request.messages[-1].content.replace("_", "so"), "stop")


@pytest.fixture(autouse=True)
def ledgers_begin_by_themselves() -> None:
    """Nowhere but where they do for users."""


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model for the method that trains one; its tokens are bytes, so it has room for many."""
    return make_llama(tmp_path_factory.mktemp("llama"), window=4096)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llama: Path) -> Iterator[Path]:
    """A folder with small tables in it, a ledger of its own, and models that need no weights."""
    words = {"cardiology": "heart chest rhythm murmur ankle pressure", "other": "knee skin rash headache sleep itch"}
    for seed, table in enumerate(["notes.csv", "later_notes.csv", "other.csv", "third.csv"]):
        generator = np.random.default_rng(seed)
        rows = ["note,department"]
        for department in generator.choice(list(words), 60):
            rows.append(f"{' '.join(generator.choice(words[department].split(), 4))},{department}")
        (tmp_path / table).write_text("\n".join(rows), "utf-8")
    products = ("router", "phone")
    tickets = [f"{number} times it failed,{products[number % 2]},Ann {number % 30}" for number in range(60)]
    (tmp_path / "tickets.csv").write_text("\n".join(["message,product,customer", *tickets]), "utf-8")
    requests = [
        f"The {products[number % 2]} fails since {number},{products[number % 2]},{('low', 'high')[number % 3 // 2]},"
        f"{number % 50}.90,2024-{number % 12 + 1:02}-01,no"
        for number in range(300)  # so that noise makes no condition impossible
    ]
    header = "message,product,priority,paid,opened,urgent"
    (tmp_path / "requests.csv").write_text("\n".join([header, *requests]), "utf-8")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    sample = runpy.run_path(str(ROOT / "examples" / "make_tickets.py"))["tickets"](300)
    support = [",".join(map(str, row.values())) for row in sample]
    (tmp_path / "support.csv").write_text("\n".join([",".join(sample[0]), *support]), "utf-8")
    posts = [f"Has anyone seen error {number}?" for number in range(120)]
    (tmp_path / "forum.csv").write_text("\n".join(["text", *posts]), "utf-8")
    monkeypatch.delenv("UNDERSTUDY_LEDGER", raising=False)
    place = str(tmp_path / "state" / "ledger.sqlite")
    monkeypatch.setattr("understudy.ledger.location.state_folder_location", lambda: place)
    monkeypatch.setattr(understudy.models.catalog, "load_embedder", lambda *_, **__: Letters())
    monkeypatch.setattr(understudy.models.catalog, "load_chat", lambda *_, **__: Echo())

    def load_causal(*_: Any, **__: Any) -> Any:
        job = sys._getframe(2).f_locals.get("job")  # of whoever needs the private model
        trains = job is not None and job.method.name in ("dp-finetune", "seq-pate")
        return CausalModel(llama, name="builtin:tiny", dtype="float32") if trains else ScriptModel()

    monkeypatch.setattr(understudy.models.catalog, "load_causal", load_causal)
    monkeypatch.setattr(columns_release, "fit", simple_fit)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "wordbags", raising=False)  # another test's, which gets it back
    yield tmp_path
    for module in [name for name in sys.modules if name.startswith(("wordbags", "test_wordbags"))]:
        del sys.modules[module]


@pytest.fixture
def little_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Frequent words, and those of the tables; and models that train for a moment only."""
    little_work_of_seq_pate(monkeypatch)
    monkeypatch.setattr(dp_finetune, "_ROWS", {"cpu": 2})
    with few_words(*re.findall(r"\w+", " ".join(table.read_text("utf-8") for table in folder.glob("*.csv")).lower())):
        yield


def entry_points(folder: Path, text: str) -> None:
    """What installing a package with these entry points leaves behind."""
    package = folder / "wordbags-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: wordbags\nVersion: 1\n", "utf-8")
    body = re.sub(r'\[project\.entry-points\."(.+?)"\]', r"[\1]", text)
    (package / "entry_points.txt").write_text(re.sub(r'"(.+?)"', r"\1", body), "utf-8")


def run_shell(text: str) -> None:
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.partition(" > ")[0], comments=True)
        if not words:
            continue
        assert words[0] == "understudy", line
        result = CliRunner().invoke(cli, words[1:])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise AssertionError((line, result.exception)) from result.exception
        assert result.exit_code == 0, (line, result.output)


@pytest.mark.parametrize("page", RUNNABLE, ids=name)
@pytest.mark.usefixtures("little_work", "languages_are_asked_for")
def test_the_examples_of_a_page_run(page: Path, folder: Path) -> None:
    text = page.read_text("utf-8")
    for title, body in re.findall(r"```yaml\n# (\S+\.yaml)\n(.*?)```", text, re.DOTALL):
        (folder / title).write_text(body, "utf-8")
    for body in re.findall(r"```toml\n(.*?)```", text, re.DOTALL):
        entry_points(folder, body)
    for kind, file, language, body in BLOCK.findall(text):
        if kind == "file":
            (folder / file).write_text(body, "utf-8")
        elif kind == "template":
            assert PromptTemplate(**yaml.safe_load(body)).messages(["a"])
        elif language == "python":
            exec(compile(body, name(page), "exec"), {"__name__": "example"})
        else:
            run_shell(body)
    for tests in folder.glob("test_*.py"):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


DESCRIBED = runpy.run_path(str(ROOT / "docs" / "described.py"))


def test_what_is_made_of_the_descriptions_of_parameters_is_current() -> None:
    for page, text in {**DESCRIBED["pages"](), DESCRIBED["STUB"]: DESCRIBED["stub"]()}.items():
        assert page.read_text("utf-8") == text, "run `python docs/described.py`"


def test_the_parameters_of_sec_pe_are_on_two_pages() -> None:
    assert set(SecPEParameters.model_fields) <= {*ReleaseParameters.model_fields, *AugPEParameters.model_fields}


def test_the_page_of_language_models_names_every_metric_of_theirs() -> None:
    text = (ROOT / "docs" / "evaluation-metrics.md").read_text("utf-8")
    metrics = [each for each in vars(tuned_language).values() if isinstance(each, Metric)]
    assert len(metrics) >= 5
    assert not [metric.name for metric in metrics if f"`{metric.name}`" not in text]


@pytest.mark.parametrize("page", sorted(DESCRIBED["PAGES"].keys() - {"evaluation.md"}))
def test_the_forecast_s_figures_on_a_page_are_those_of_its_example(page: str, folder: Path) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    commands = re.findall(r"^understudy (plan .+)$", text.replace("\\\n", " "), re.MULTILINE)
    shown = CliRunner().invoke(cli, shlex.split(commands[0])).output
    lines = text.partition("\n## The forecast, line by line\n")[2].partition("\n## ")[0]
    figures = [line for line in re.findall(r"`([^`\n]+: [^`\n]+)`", lines) if "..." not in line]
    assert len(figures) >= 5
    assert not [figure for figure in figures if figure not in shown]


def test_the_demo_s_configuration_is_one(folder: Path) -> None:
    config = str(ROOT / "examples" / "demo.yaml")
    result = CliRunner().invoke(cli, ["plan", "--config", config, "--vocabulary", "built-in"])
    assert result.exit_code == 0, result.output


def test_an_example_that_does_not_run_is_noticed() -> None:
    for line in ("understudy run --no-such-flag", "ls"):
        with pytest.raises(AssertionError):
            run_shell(line)


# Flags of other programs that pages name.
OF_OTHERS = {
    "benchmarks": "sizes dry-run page set sweep out table most test plain only",
    "benchmarks.papers, evolution and exemplars": "budgets examples kde per-label per-subset voc",
    "git, pip, sha256sum and Python": "check extra-index-url find-links no-deps no-index order",
    "containers": "build-arg cap-drop device gpus network read-only rm tmpfs userns",
    "unshare": "map-root-user net",
    "servers of models": "api-key ctx-size generation-config parallel",
    "the method of docs/adding-a-method.md": "words words-per-record",
}


def flags(command: click.Command) -> Iterator[click.Parameter]:
    """Of a command, and of those below it, with every method."""
    yield from command.params
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from flags(below)
    elif isinstance(command, ParametersCommand):
        for method in method_names():
            for group in command._groups(("--method", method)):
                yield from options_of(group)


def test_every_flag_that_a_page_names_is_one() -> None:
    known = {flag for option in flags(cli) for flag in (*option.opts, *option.secondary_opts)}
    known |= {f"--{flag}" for of_one in OF_OTHERS.values() for flag in of_one.split()} | {"--help", "--help-all"}
    named = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")
    for page in PAGES:
        if page.name != "CHANGELOG.md" and page.parent.name != "decisions":  # which tell what once was
            assert set(named.findall(page.read_text("utf-8"))) <= known, name(page)


def test_no_page_and_no_message_says_more_than_epsilon_and_delta_do() -> None:
    for once in (
        "changes by a factor of at most 403.5, except with probability 1e-06",
        "changes the\nprobability of any outcome by at most a factor of e^epsilon, except for a share delta",
        "Delta is the probability of a failure of the promise",
        "Epsilon bounds what any single outcome may tell, but for a share\n  delta",
    ):
        assert WRONG_PROMISE.search(once)
    sources = (file for kind in ("py", "html", "yaml") for file in SOURCE.rglob(f"*.{kind}"))
    files = [*PAGES, *ROOT.glob("examples/*.py"), *sources]
    assert len(files) > 250
    assert [name(file) for file in files if WRONG_PROMISE.search(file.read_text("utf-8"))] == []


def test_the_readme_the_statement_and_the_argument_say_plus_delta() -> None:
    for page in ("README.md", "docs/how-it-works.md", "docs/statement.md"):
        words = " ".join((ROOT / page).read_text("utf-8").split())
        assert re.search(r"at most (e\^epsilon|403\.5) times that .{0,40}, plus (delta|1e-06)", words), page


def test_every_message_that_the_page_of_errors_explains_is_one() -> None:
    files = [file for kind in ("py", "toml") for file in Path(understudy.__file__).parent.rglob(f"*.{kind}")]
    said = re.sub(r'"\n\s*f?"', "", "".join(file.read_text("utf-8") for file in files))
    table = (ROOT / "docs" / "errors.md").read_text("utf-8").partition("## By message")[2].partition("\n## ")[0]
    rows = re.findall(r"^- ((?:`[^`]+`(?:, )?)+): ", table, re.MULTILINE)
    assert len(rows) > 15
    parts = [part.strip() for row in rows for words in re.findall("`([^`]+)`", row) for part in words.split("...")]
    assert [part for part in parts if part and part not in said] == []
