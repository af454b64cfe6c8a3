"""What the pages show: plans, accounts, runs, texts and comparisons; and that nothing in them is taken for HTML."""

from __future__ import annotations

import json
import re
import shlex
import threading
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest
import yaml
from click.testing import CliRunner
from made_runs import PLANTED, made_statement, make_run, measure
from studio_fixtures import SCRIPT, Studio, book_charges

from understudy.base.files import private_folder
from understudy.cli import cli
from understudy.ledger.location import begins_by_itself
from understudy.ledger.store import RunStore
from understudy.methods.registry import method_names
from understudy.release import PublicSchema
from understudy.run.outputs import PROGRESS
from understudy.run.progress import recorded
from understudy.run.session import SILENT
from understudy.run.settings import run_config
from understudy.studio import plans
from understudy.studio.app import read_ledger
from understudy.studio.plans import Forecasts
from understudy.text.records import SyntheticRecord


@pytest.fixture(scope="module")
def studio(root: Path) -> Studio:
    return Studio.over(root)


def settled(studio: Studio, **fields: str | list[str]) -> str:
    """The plan's results once every point is there."""
    query = urlencode(fields, doseq=True)
    for _ in range(400):
        page = studio.read(f"/plan/results?{query}")
        if "data-again" not in page:
            return page
        threading.Event().wait(0.05)
    raise AssertionError("the points are still not there")


def test_the_first_page_shows_what_is_left_of_each_budget_and_what_was_released(studio: Studio) -> None:
    assert studio.client.get("/").headers["location"] == "/overview"
    page = studio.read("/overview")
    assert 'aria-current="page">Overview' in page
    assert "15, 8e-06" in page  # what is left of a dataset's budget
    assert "team/release-only" in page
    assert 'href="/plan"' in page


def test_the_plan_offers_every_private_method(studio: Studio) -> None:
    page = studio.read("/plan")
    assert 'aria-current="page">Plan' in page
    for method in ("dp-kps", "aug-pe", "dp-finetune", "seq-pate", "few-shot", "private-prediction"):
        assert f'value="{method}"' in page
    assert "nonprivate-finetune" not in page


def test_curves_of_several_methods_stand_side_by_side(studio: Studio) -> None:
    page = settled(studio, epsilon="4", delta="1e-6", expected_records="10000", method=["dp-kps", "aug-pe"])
    assert page.count("<svg") >= 5
    assert "whose only term can be seen" in page
    assert "signal to noise of a candidate" in page
    assert "guided-evolution" not in page


def test_the_command_on_the_screen_says_the_same_numbers(studio: Studio) -> None:
    page = settled(
        studio,
        **{"epsilon": "3", "delta": "1e-6", "expected_records": "5000", "labels": "a b, it's", "label": "kind"},
        **{"records_per_label": "50", "llm": "builtin", "method": "aug-pe", "aug-pe.rounds": "4", "guide": "yes"},
        **{"price_input": "0.5", "price_output": "2"},
    )
    command = unescape(re.findall(r"<code>(understudy plan .*?)</code>", page)[0])
    said = CliRunner().invoke(cli, [*shlex.split(command)[1:], "--json"])
    assert said.exit_code == 0, said.output
    forecast = json.loads(said.output)
    calls = next(fact["value"] for fact in forecast["generation"]["entries"] if fact["name"] == "calls")
    noise = next(fact["value"] for fact in forecast["forecast"]["entries"] if fact["name"] == "vote_noise")
    assert f"{calls:,}</td>" in page
    assert f"{noise:.3f}" in page


def test_the_configuration_on_the_screen_is_one_for_all_verbs(studio: Studio) -> None:
    page = settled(studio, method=["dp-kps"], epsilon="6", delta="1e-6", label="ward", labels="a,b")
    (written,) = re.findall(r'<pre id="dp-kps-command-3"[^>]*><code>(.*?)</code>', page, re.DOTALL)
    config = run_config(yaml.safe_load(unescape(written)))
    assert (config.data, config.text, config.label, config.output) == (("TABLE.csv",), "COLUMN", "ward", "out")
    assert (str(config.budget.to_json()["epsilon"]), config.label_set.names) == ("6", ("a", "b"))


def test_a_form_that_cannot_be_planned_says_why_and_what_to_do(studio: Studio) -> None:
    page = settled(studio, epsilon="four", delta="1e-6", method=["dp-kps", "aug-pe"])
    assert page.count('role="alert"') == 1
    assert "epsilon" in page
    page = settled(studio, epsilon="4", delta="1e-6", expected_records="", method=["few-shot", "dp-kps"])
    assert "--expected-records" in page
    assert page.count('role="alert"') == 1
    assert "whose only term can be seen" in page


@pytest.mark.parametrize(
    "fields",
    [
        {"epsilon": "0"},
        {"epsilon": "nan"},
        {"epsilon": "1e400"},
        {"epsilon": "9" * 399},
        {"epsilon": SCRIPT},
        {"records_per_label": "1e9"},
        {"labels": "a,a"},
        {"labels": "," * 399},
        {"owner": SCRIPT, "max_records_per_owner": "0"},
        {"llm": "hf:../../../etc/passwd"},
        {"price_input": "-3"},
        {"aug-pe.rounds": "99999999999999999999"},
    ],
)
def test_nothing_that_is_typed_breaks_the_page(studio: Studio, fields: dict[str, str]) -> None:
    page = settled(studio, **{"epsilon": "4", "delta": "1e-6", "method": "aug-pe", **fields})
    assert "<script" not in page
    assert "Internal error" not in page
    assert studio.client.get("/plan", params={"method": "aug-pe", **fields}).status_code == 200


def test_typed_columns_take_their_share_of_the_plan(studio: Studio) -> None:
    asked = {"epsilon": "4", "delta": "1e-6", "columns": "priority=low|high; stars=1..5", "method": "dp-kps"}
    page = settled(studio, **asked)
    command = unescape(re.findall(r"<code>(understudy plan .*?)</code>", page)[0])
    assert "--columns 'priority=low|high; stars=1..5'" in command
    said = CliRunner().invoke(cli, [*shlex.split(command)[1:], "--json"])
    assert said.exit_code == 0, said.output
    assert "column-pairs" in {charge["name"] for charge in json.loads(said.output)["charges"]}
    crossed = settled(studio, **asked, label="priority*stars")
    assert "--label 'priority*stars'" in unescape(crossed)


def test_a_form_names_no_file(studio: Studio, tmp_path: Path) -> None:
    secret = tmp_path / "labels.txt"
    secret.write_text("zyxomma-one\nzyxomma-two\n", "utf-8")
    page = settled(studio, epsilon="4", delta="1e-6", labels=f"@{secret}", method="dp-kps")
    assert "zyxomma" not in page
    secret.write_text("zyxomma: [1, 2]", "utf-8")
    assert "zyxomma" not in settled(studio, epsilon="4", delta="1e-6", columns=f"@{secret}", method="dp-kps")
    kinds = {field.key: field for method in plans.offered_methods() for field in plans.fields_of(method)}
    assert not [key for key in kinds if "file" in key or "vocabulary" in key or "corpus" in key or "model" in key]


def test_every_offered_method_can_be_planned_or_says_what_it_lacks() -> None:
    assert set(plans.offered_methods()) == set(method_names()) - {"sec-pe", "nonprivate-finetune"}


def test_points_asked_for_last_are_made_first_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    gate = threading.Event()

    def slow(values: dict[str, str]) -> dict[str, str]:
        gate.wait(60)
        made.append(values["epsilon"])
        return values

    monkeypatch.setattr("understudy.studio.plans._outcome", slow)
    monkeypatch.setattr("understudy.studio.plans.WORKERS", 1)
    forecasts = Forecasts()
    assert forecasts.ask([{"epsilon": "first"}]) == [None]
    while forecasts._waiting:
        threading.Event().wait(0.01)
    forecasts.ask([{"epsilon": "old"}])
    assert forecasts.ask([{"epsilon": "new"}, {"epsilon": "newer"}]) == [None, None]
    gate.set()
    assert forecasts.ask([{"epsilon": "old"}], patience=60) == [{"epsilon": "old"}]
    assert made in (["first", "new", "newer", "old"], ["first", "old", "new", "newer"])
    forecasts.ask([{"epsilon": "new"}], patience=60)
    assert sorted(made) == ["first", "new", "newer", "old"]


def test_the_ledger_shows_each_account_over_time(studio: Studio) -> None:
    page = studio.read("/ledger")
    assert "untouched" in page
    assert "20, 1e-05" in page
    assert "5, 2e-06" in page
    assert "15, 8e-06" in page
    assert page.index("second") < page.index("first</td>")
    assert page.count("<svg") == 1
    assert "Nothing was booked yet" in page


def test_a_ledger_that_is_not_there_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.ledger.ledger.begins_by_itself", begins_by_itself)
    page = Studio.over(tmp_path).read("/ledger")
    assert "ledger" in page
    assert not (tmp_path / "ledger.sqlite").exists()


def test_no_password_of_a_ledger_is_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book_charges(tmp_path / "ledger.sqlite")
    url = f"sqlite:///{tmp_path}/ledger.sqlite?password=zyxomma"
    book = read_ledger(url)
    assert book.accounts
    assert "zyxomma" not in str(book)
    assert "zyxomma" not in str(read_ledger("postgresql://user:zyxomma@127.0.0.1:1/none"))


def test_a_damaged_ledger_is_said_to_be_damaged(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"no ledger" * 999)
    assert 'role="alert"' in Studio.over(tmp_path).read("/ledger")


def test_runs_are_listed_with_their_promises(studio: Studio) -> None:
    page = studio.read("/runs")
    assert "ε = 6, δ = 1e-06" in page
    assert "team/release-only" in page
    assert "not-a-run" not in page


def test_a_run_leads_to_its_dataset_and_says_what_is_left_of_the_cap(studio: Studio) -> None:
    page = studio.read(studio.link("run-6"))
    assert '<a href="/ledger#clinic">clinic</a>' in page
    assert "<dt>left of its cap now</dt><dd>15, 8e-06</dd>" in page
    assert '<a href="/ledger#clinic">clinic</a>' in studio.read("/runs")


def test_a_run_shows_what_the_internal_report_shows_of_its_metrics_and_no_private_text(studio: Studio) -> None:
    address = studio.link("run-6")
    page = studio.read(address)
    assert "Accuracy on real texts" in page
    assert "Do not hand them out" in page
    for place in (page, studio.read(f"{address}/texts"), studio.read("/runs")):
        assert f"{PLANTED} " not in place  # the map's real texts, and the bad rows


def test_texts_stand_beside_the_phrases_they_were_written_from(studio: Studio) -> None:
    address = studio.link("run-1")
    page = studio.read(f"{address}/texts")
    assert "chest pain" in page
    assert "builtin:tiny" in page
    assert "1 to 25 of 30 texts" in page
    assert "26 to 30 of 30 texts" in studio.read(f"{address}/texts?page=2")
    assert "1 to 10 of 10 texts" in studio.read(f"{address}/texts?label=skin")


def test_what_is_known_of_where_a_text_comes_from_stands_beside_it(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "out" / "run")
    origins = [
        {"phrases": ["chest pain", "murmur"], "kept": ["murmur"], "finish": "length", "prompt": "ab12"},
        {"number": 17, "parent": 3, "prompt": 2, "release": "abc"},
        {"exemplars": [2, 5], "where": SCRIPT, "nested": {"a": [SCRIPT]}},
        {},
    ]
    records = [SyntheticRecord(f"Text {number}.", 0, origin) for number, origin in enumerate(origins)]
    folder.write_records(records, PublicSchema("note", "department", ("skin",)))
    studio = Studio.over(tmp_path)
    page = studio.read(f"{studio.link('run')}/texts")
    assert '<span class="seed unused">chest pain' in page
    assert '<span class="seed">murmur' in page
    for words in ("finish: length", "parent: 3", "exemplars: 2, 5", "where: &lt;script&gt;"):
        assert words in page
    assert "ab12" not in page
    assert page.count("<script") == 1


@pytest.mark.parametrize("page", ["0", "99", "²", "9" * 400])
def test_a_page_of_texts_that_is_not_there_is_the_nearest_one(studio: Studio, page: str) -> None:
    assert "of 30 texts" in studio.read(f"{studio.link('run-1')}/texts?{urlencode({'page': page, 'label': 'none'})}")


def test_a_damaged_evaluation_is_said_to_be_so_and_the_texts_are_still_there(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "out" / "run", statement=made_statement(6))
    measure(folder)
    folder.evaluation_file.write_text("{", "utf-8")
    studio = Studio.over(tmp_path)
    address = studio.link("run")
    assert 'role="alert"' in studio.read(address)
    assert "30" in studio.read(f"{address}/texts")


def test_nothing_from_a_run_is_taken_for_html(tmp_path: Path) -> None:
    name = "run <script>alert(1)<script> & 'more'"
    labels = (SCRIPT, "<img src=x onerror=alert(1)>", '"><script>')
    texts = [(f"{SCRIPT} {number} \x00\x1b[2J\u202e </td></table>", number % 3) for number in range(6)]
    folder = make_run(tmp_path / "out" / name, texts, labels=labels)
    private_folder(folder.private)
    with recorded(SILENT, folder, verb="run", method=SCRIPT, dataset=SCRIPT) as listener:
        listener.say(SCRIPT)
        listener.progress(SCRIPT, 1, 2)
    studio = Studio.over(tmp_path)
    address = studio.link(name)
    query = urlencode({"label": SCRIPT})
    for place in ("/runs", address, f"{address}/texts", f"{address}/texts?{query}", f"{address}/progress", "/ledger"):
        page = studio.read(place)
        assert page.count("<script") == page.count('<script src="/static/studio.js" defer>')
        assert "<img src=x" not in page
        assert "\x00" not in page
        assert not {"\x1b", "\u202e"} & set(page)
    assert "<script" not in studio.read(f"{address}/progress")


def test_a_run_without_a_promise_is_stamped(tmp_path: Path) -> None:
    make_run(tmp_path / "out" / "run", statement=made_statement(private=False))
    studio = Studio.over(tmp_path)
    assert "NOT PRIVATE" in studio.read("/runs")
    assert "NOT PRIVATE" in studio.read(studio.link("run"))
    assert "NOT PRIVATE" in studio.read(f"{studio.link('run')}/texts")


def test_a_running_run_is_told_from_one_that_was_killed(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "out" / "run", [])
    studio = Studio.over(tmp_path)
    address = studio.link("run")
    with (
        RunStore.open(folder.private, noise="system"),
        recorded(SILENT, folder, verb="run", method="dp-kps", dataset="clinic") as listener,
    ):
        listener.progress("texts", 30, 120)
        page = studio.read(f"{address}/progress")
        assert "data-again" in page
        assert "30 of 120" in page
        assert 'class="state running"' in studio.read("/runs")
        killed = (folder.private / PROGRESS).read_bytes()
    assert 'class="state finished"' in studio.read(f"{address}/progress")
    (folder.private / PROGRESS).write_bytes(killed)
    page = studio.read(f"{address}/progress")
    assert 'class="state stopped"' in page
    assert "The same command resumes" in page
    assert "data-again" not in page


def test_a_folder_that_is_itself_a_run_is_listed(tmp_path: Path) -> None:
    make_run(tmp_path / "out")
    assert Studio.over(tmp_path).link("out")


def test_without_a_folder_of_runs_the_page_says_how_to_get_one(tmp_path: Path) -> None:
    assert "There is no run in" in Studio.over(tmp_path).read("/runs")
