"""What the studio starts: by its own forms alone, one process at a time, below the folder of runs, and with words that
are never flags of the reader's choosing."""

from __future__ import annotations

import html
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clinic import settings
from made_runs import make_run
from studio_fixtures import ADDRESS, Studio

from understudy.cli.options import value_of
from understudy.run import pipeline
from understudy.run.settings import run_config
from understudy.studio import jobs as jobs_module
from understudy.studio.guard import Guard, Tokens

OWN = {"Origin": ADDRESS}
SLEEPS = (sys.executable, "-c", "import sys, time; print(sys.argv[1:], flush=True); time.sleep(600)")
SAYS = (sys.executable, "-c", "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))")


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run that really was."""
    root = tmp_path_factory.mktemp("real")
    output = str(root / "out" / "clinic")
    pipeline.run(run_config(settings(root, llm="none", records_per_label=2, output=output)))
    return root


@pytest.fixture
def studio(released: Path) -> Any:
    made = Studio.over(released)
    yield made
    made.jobs.stop()


def form(studio: Studio, verb: str, name: str = "clinic") -> tuple[str, str]:
    """Where a form of a run's page goes, and its token."""
    page = studio.read(studio.link(name))
    found = re.search(
        rf'action="(/start/{verb}/\w+)" method="post">\s*<input type="hidden" name="token" value="(\w+)"', page
    )
    assert found is not None, page
    return found[1], found[2]


def send(studio: Studio, verb: str, name: str = "clinic", **fields: str) -> Any:
    address, token = form(studio, verb, name)
    return studio.client.post(address, data={"token": token, **fields}, headers=OWN)


def ended(studio: Studio) -> str:
    """What the job said, once it has ended."""
    assert studio.jobs.now is not None
    studio.jobs.now.process.wait(600)
    studio.jobs.now.listener.join(600)
    return studio.read("/jobs")


def test_texts_and_a_report_are_made_from_the_page_of_a_run(
    studio: Studio, released: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERSTUDY_CACHE", str(released / "no models"))  # the report's map would take longest
    answer = send(studio, "generate", records="7", where="")
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")
    page = ended(studio)
    assert 'state finished"' in page
    assert "Wrote 7 synthetic records" in page
    assert re.search(r'<a class="button" href="/runs/\w+">Open clinic-texts</a>', page)
    assert send(studio, "report", responsible="--output=/elsewhere").status_code == 303
    assert 'state finished"' in ended(studio)
    assert "--output=/elsewhere" in (released / "out" / "clinic" / "release" / "report.html").read_text("utf-8")
    send(studio, "generate", records="3")
    assert studio.jobs.now is not None
    studio.jobs.now.process.kill()
    assert studio.jobs.now.output.root == released / "out" / "clinic-texts-2"


def any_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the form ask for conditions, which this run's Release has no columns for."""
    of = jobs_module.GenerateForm.of
    monkeypatch.setattr(jobs_module.GenerateForm, "of", lambda run: replace(of(run), columns=None))


def test_an_error_of_the_process_is_shown_as_text(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    any_condition(monkeypatch)
    send(studio, "generate", records="1", where="<b>--output=/elsewhere</b>")
    page = ended(studio)
    assert 'state stopped"' in page
    assert "Error: " in page
    assert "<b>" not in page
    assert not Path("/elsewhere").exists()


@pytest.mark.parametrize("verb", ["generate", "report"])
@pytest.mark.parametrize("token", [None, "", "0" * 64, "other"])
def test_without_the_token_of_that_form_nothing_starts(studio: Studio, verb: str, token: str | None) -> None:
    address, _ = form(studio, verb)
    if token == "other":
        token = form(studio, "report" if verb == "generate" else "generate")[1]
    answer = studio.client.post(address, data={} if token is None else {"token": token}, headers=OWN)
    assert answer.status_code == 403
    assert studio.jobs.now is None


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://127.0.0.1:8765"},
        {**OWN, "Sec-Fetch-Site": "cross-site"},
        {**OWN, "Sec-Fetch-Site": "same-site"},
        {**OWN, "Host": "evil.example"},
        {**OWN, "Cookie": ""},
    ],
)
def test_from_elsewhere_nothing_starts(studio: Studio, headers: dict[str, str]) -> None:
    address, token = form(studio, "report")
    if "Cookie" in headers:
        studio.client.cookies.clear()
    assert studio.client.post(address, data={"token": token}, headers=headers).status_code == 403
    assert studio.client.post(address, params={"token": studio.tokens.shown}, headers=headers).status_code == 403
    assert studio.jobs.now is None


def test_a_form_is_sent_by_post_and_is_short(studio: Studio) -> None:
    address, token = form(studio, "report")
    assert studio.client.get(address, params={"token": token}).status_code == 405
    assert (
        studio.client.post(address, data={"token": token, "responsible": "a" * 20_000}, headers=OWN).status_code == 413
    )
    assert studio.client.post("/plan", data={"token": token}, headers=OWN).status_code == 405
    for name in ("run", "release", "evaluate", "plan", "..", "generate%2F.."):
        address = f"/start/{name}/{'0' * 16}"
        sent = studio.client.post(address, data={"token": studio.tokens.of_form(address)}, headers=OWN)
        assert sent.status_code in (403, 404, 405)
    assert studio.jobs.now is None


def test_a_second_process_waits_for_the_first(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "_COMMAND", SLEEPS)
    assert send(studio, "generate").status_code == 303
    first = studio.jobs.now
    again = send(studio, "report")
    assert again.status_code == 400
    assert "Another job is running" in again.text
    assert studio.jobs.now is first
    stop = re.search(
        r'action="(/start/stop)" method="post"><input type="hidden" name="token" value="(\w+)"', studio.read("/jobs")
    )
    assert stop is not None
    assert studio.client.post(stop[1], data={"token": "0"}, headers=OWN).status_code == 403
    assert first is not None
    assert first.state == "running"
    assert studio.client.post(stop[1], data={"token": stop[2]}, headers=OWN).status_code == 303
    assert first.state == "stopped"
    assert send(studio, "report").status_code == 303


@pytest.mark.parametrize("value", ["--fresh", "--config", "--config=/etc/passwd", "--help", "; touch x", "$(id)"])
def test_what_is_typed_is_a_value_and_never_a_flag(studio: Studio, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    any_condition(monkeypatch)
    monkeypatch.setattr(jobs_module, "_COMMAND", SAYS)
    for name in ("CONFIG", "LLM", "OUTPUT"):
        monkeypatch.setenv(f"UNDERSTUDY_{name}", "openai:elsewhere")
    for verb, name in (("generate", "where"), ("report", "responsible")):
        send(studio, verb, **{name: value})
        said = re.search(r"\[\[.*\]", html.unescape(ended(studio)))
        assert said is not None
        words, around = json.loads(said[0])
        assert words[0] == verb
        assert words[1].startswith(str(studio.root))
        assert f"--{name}={value}" in words
        assert {word.partition("=")[0] for word in words[2:]} <= {"--output", "--llm", "--document-type", f"--{name}"}
        assert all("elsewhere" not in each for each in (*words, *around.values()))
        monkeypatch.delenv("UNDERSTUDY_CONFIG")
        assert value_of("--config", words) is None
        twin = [part for word in words for part in (word.split("=", 1) if value == "--config" else [word])]
        assert value != "--config" or value_of("--config", [*twin, "/etc/passwd"]) == "/etc/passwd"
        monkeypatch.setenv("UNDERSTUDY_CONFIG", "openai:elsewhere")


@pytest.mark.parametrize("fields", [{"records": "0"}, {"records": "-5"}, {"records": "1e3"}, {"llm": "openai:gpt"}])
def test_what_a_field_cannot_hold_starts_nothing(studio: Studio, fields: dict[str, str]) -> None:
    assert send(studio, "generate", **fields).status_code == 400
    assert send(studio, "report", responsible="a\0b").status_code == 400
    assert studio.jobs.now is None


def test_links_that_lead_out_of_the_folder_are_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "elsewhere" / "theirs")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "link").symlink_to(tmp_path / "elsewhere" / "theirs")
    studio = Studio.over(tmp_path)
    monkeypatch.setattr(jobs_module, "_COMMAND", SAYS)
    answer = send(studio, "report", "link")
    assert answer.status_code == 400
    assert "leads out" in answer.text
    assert studio.jobs.now is None
    monkeypatch.setattr(Path, "is_relative_to", lambda *_: True)  # the broken twin
    assert send(studio, "report", "link").status_code == 303
    ended(studio)
    ended(studio)


def test_broken_twins_start_what_they_must_not(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the tests above fails where its check is gone."""
    monkeypatch.setattr(jobs_module, "_COMMAND", SLEEPS)
    address, token = form(studio, "report")
    with monkeypatch.context() as without:
        without.setattr(Tokens, "of_form", lambda *_: "")
        assert studio.client.post(address, data={}, headers=OWN).status_code == 303
    studio.jobs.stop()
    with monkeypatch.context() as without:
        without.setattr(Guard, "_answer", lambda *_: None)
        foreign = {"Origin": "http://evil.example"}
        assert studio.client.post(address, data={"token": token}, headers=foreign).status_code == 303
    first = studio.jobs.now
    assert first is not None
    assert first.state == "running"
    with monkeypatch.context() as without:
        without.setattr(jobs_module.Job, "state", "finished")
        assert studio.client.post(address, data={"token": token}, headers=OWN).status_code == 303
    assert first.process.poll() is None
    first.process.kill()
    first.process.wait(300)
