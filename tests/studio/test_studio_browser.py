"""The studio in a real browser: nothing fetched from elsewhere, nothing logged, all by keyboard, on a phone, in the
dark, and while a run is going on."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import test_report_browser
from clinic import FakeChat, settings
from made_runs import make_run
from studio_fixtures import running
from test_report_browser import CHROMIUM, CONTRAST, Watched

from understudy.models.builtin import CHAT, models_dir
from understudy.models.types import ChatRequest, Completion
from understudy.run import pipeline
from understudy.run.settings import run_config

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

browser = test_report_browser.browser
PHONE = {"width": 360, "height": 740}
PAGES = ["overview", "plan", "ledger", "runs", "run-6", "texts", "jobs"]


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        (root / "cache" / "models").mkdir(parents=True)  # without an embedder: the report's map would take longest
        (root / "cache" / "models" / CHAT.name).symlink_to(models_dir() / CHAT.name)
        patch.setenv("UNDERSTUDY_CACHE", str(root / "cache"))
        with running("--runs", "out", folder=root) as (printed, _):
            yield printed


class Visit(Watched):
    """A browser that was let in, and what it asks for."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        super().__init__(browser, **options)
        self.home = address.partition("?")[0]
        self.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=self.home.rstrip("/"))
        self.page.on("request", self._asked)
        self.page.goto(address)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(self.home):
            self.complaints.append(f"asked for {request.url}")

    def open(self, name: str) -> Any:
        """A page by its name, once there is no more to come."""
        page = self.page
        if name in ("overview", "plan", "ledger", "runs", "jobs"):
            page.goto(self.home + name)
        else:
            page.goto(self.home + "runs")
        if name == "texts":
            page.get_by_role("link", name="texts of run-6").click()
        elif name.startswith("run-"):
            page.get_by_role("link", name=name, exact=True).click()
        page.wait_for_load_state("networkidle")
        playwright.expect(page.locator('[data-again=""]')).to_have_count(0)
        return page


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Callable[..., Visit]]:
    """Begin a visit; nothing may have been complained of by the end of the test."""
    begun: list[Visit] = []

    def begin(**options: Any) -> Visit:
        begun.append(Visit(browser, address, **options))
        return begun[-1]

    yield begin
    for each in begun:
        each.context.close()
        assert not each.complaints


def test_the_token_leaves_the_address_and_no_script_can_read_the_cookie(visit: Any) -> None:
    seen = visit()
    assert seen.page.url == f"{seen.home}overview"
    assert seen.page.evaluate("document.cookie") == ""
    (cookie,) = seen.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"


@pytest.mark.parametrize("name", PAGES)
def test_everybody_can_read_and_use_a_page(visit: Any, name: str) -> None:
    """In one visit, as opening a page takes the longest."""
    page = visit(color_scheme="light").open(name)
    require_landmarks_one_heading_and_names_for_everything(page)
    require_visible_stops_of_the_tab_key(page)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert page.evaluate(CONTRAST) == []
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    assert page.evaluate(CONTRAST) == []
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def require_landmarks_one_heading_and_names_for_everything(page: Any) -> None:
    assert page.get_by_role("main").count() == 1
    assert page.get_by_role("navigation", name="Pages", exact=True).count() == 1
    assert page.locator("h1").count() == 1
    assert page.locator("html[lang=en]").count() == 1
    seen = "input:not([type=hidden]), select, svg[role=img], [role=region], button, a"
    unnamed = """(seen) => [...document.querySelectorAll(seen)]
        .filter((each) => !(each.labels?.length || each.getAttribute('aria-label') || each.textContent.trim()
            || each.getAttribute('aria-labelledby')))
        .map((each) => each.outerHTML)"""
    assert page.evaluate(unnamed, seen) == []
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((each) => each.id)")
    assert len(ids) == len(set(ids))
    referred = page.evaluate(
        """() => [...document.querySelectorAll('[aria-labelledby], [aria-describedby]')].flatMap((each) =>
        [each.getAttribute('aria-labelledby'), each.getAttribute('aria-describedby')]
        .filter(Boolean).flatMap((names) => names.split(' ')))"""
    )
    assert set(referred) <= set(ids)


def require_visible_stops_of_the_tab_key(page: Any) -> None:
    stops = 0
    for _ in range(200):
        page.keyboard.press("Tab")
        tag, outline = page.evaluate(
            "[document.activeElement.tagName, getComputedStyle(document.activeElement).outlineStyle]"
        )
        if tag == "BODY":
            break
        stops += 1
        assert outline != "none", page.evaluate("document.activeElement.outerHTML")
    assert stops > 5


def test_a_plan_is_made_by_keyboard_alone(visit: Any) -> None:
    seen = visit()
    page = seen.open("plan")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # skip to the page
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "epsilon":
            break
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("2.5")
    playwright.expect(page.locator("#costs-title")).to_have_text("Side by side at epsilon 2.5")
    assert page.evaluate("document.activeElement.id") == "epsilon"
    assert "epsilon=2.5" in page.url
    playwright.expect(page.locator('[data-again=""]')).to_have_count(0)
    playwright.expect(page.locator("#status")).to_have_text(re.compile("All .* points are planned"))
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.copy") == "dp-kps-command-1":
            break
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#status")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("understudy plan --method dp-kps")
    assert "--epsilon 2.5" in copied
    page.reload()
    assert page.locator("#epsilon").input_value() == "2.5"


def test_another_method_and_its_parameters_are_chosen(visit: Any) -> None:
    page = visit().open("plan")
    page.get_by_role("checkbox", name="seq-pate").check()
    playwright.expect(page.locator("#seq-pate svg").first).to_be_visible()
    page.get_by_role("checkbox", name="dp-kps").uncheck()
    playwright.expect(page.locator("#dp-kps")).to_have_count(0)
    page.locator(".method", has_text="aug-pe").locator("summary").click()
    page.get_by_label("rounds").first.fill("3")
    playwright.expect(page.locator("#aug-pe-command-1")).to_contain_text("--rounds 3")


def test_a_number_that_is_none_is_said_aloud(visit: Any) -> None:
    page = visit().open("plan")
    page.get_by_role("textbox", name="Epsilon").fill("much")
    playwright.expect(page.get_by_role("alert")).to_contain_text("epsilon")


def test_texts_are_read_page_by_page_and_label_by_label(visit: Any) -> None:
    page = visit().open("texts")
    page.get_by_role("link", name="Next").first.click()
    playwright.expect(page.locator("caption")).to_have_text("26 to 30 of 30 texts")
    page.wait_for_load_state()  # the caption is there before the script listens
    page.get_by_label("Label", exact=True).select_option("skin")
    playwright.expect(page.locator("caption")).to_have_text("1 to 10 of 10 texts")
    assert page.locator(".seed", has_text="murmur").count() == 10


def test_without_scripts_everything_is_there(visit: Any) -> None:
    seen = visit(java_script_enabled=False)
    page = seen.page
    page.goto(f"{seen.home}plan")
    page.fill("#epsilon", "3")
    page.get_by_role("button", name="Show").click()
    assert page.locator("#costs-title").inner_text() == "Side by side at epsilon 3"
    assert not page.get_by_role("button", name="Copy").count()
    page.goto(f"{seen.home}ledger")
    assert page.locator("svg").count() == 1


def test_a_report_is_written_by_keyboard_and_without_scripts(visit: Any, root: Path) -> None:
    page = visit(java_script_enabled=False, viewport=PHONE).open("run-6")
    page.get_by_label("Person who answers for the release").focus()
    page.keyboard.type("R. Meier")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs")
    while not (root / "out" / "run-6" / "private" / "report.html").exists():
        time.sleep(0.1)  # to draw a page takes longer than to write the report
    while page.locator(".state").inner_text() == "running":
        page.wait_for_timeout(500)
        page.reload()
    assert page.locator(".state").inner_text() == "finished"
    assert "R. Meier" in (root / "out" / "run-6" / "private" / "report.html").read_text("utf-8")


def test_a_run_that_begins_later_appears_by_itself(browser: Any, tmp_path: Path) -> None:
    with running("--runs", "out", folder=tmp_path) as (printed, process):
        seen = Visit(browser, printed)
        seen.page.goto(f"{seen.home}runs")
        playwright.expect(seen.page.locator(".empty")).to_contain_text("no run")
        make_run(tmp_path / "out" / "later")
        playwright.expect(seen.page.get_by_role("link", name="later", exact=True)).to_be_visible()
        assert not seen.complaints
        process.kill()
        playwright.expect(seen.page.locator(".notice")).to_have_text(re.compile("stopped"))
        seen.context.close()


def test_the_theme_stays_from_page_to_page(visit: Any) -> None:
    seen = visit(color_scheme="light")
    page = seen.open("plan")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.get_by_role("button", name="Dark").click()
    dark = page.evaluate(background)
    page = seen.open("runs")
    assert page.evaluate(background) == dark != light


def test_who_wants_no_motion_sees_none(visit: Any) -> None:
    page = visit(reduced_motion="reduce").open("runs")
    page.evaluate("document.querySelector('.state').className = 'state running'")
    assert page.evaluate("getComputedStyle(document.querySelector('.state'), '::before').animationName") == "none"


def test_a_page_of_another_port_sees_nothing_of_it(browser: Any, address: str) -> None:
    seen = Visit(browser, address)
    other = seen.context.new_page()
    elsewhere = "http://127.0.0.1:1/"
    other.route(elsewhere, lambda route: route.fulfill(body="<p>elsewhere</p>", content_type="text/html"))
    other.goto(elsewhere)
    asked = "(address) => fetch(address, {credentials: 'include', mode: 'no-cors'}).then((a) => a.type, () => 'no')"
    assert other.evaluate(asked, f"{seen.home}runs") == "no"  # though the cookie came along
    framed = """(address) => new Promise((done) => {
        const frame = document.createElement('iframe');
        frame.onload = () => { try { done(frame.contentDocument ? 'read' : 'closed'); } catch { done('closed'); } };
        frame.src = address;
        document.body.append(frame);
    })"""
    assert other.evaluate(framed, f"{seen.home}runs") == "closed"
    seen.context.close()


class SlowChat(FakeChat):
    """Answers when it is let."""

    def __init__(self, go_on: threading.Semaphore) -> None:
        super().__init__()
        self._go_on = go_on

    async def complete(self, requests: Sequence[ChatRequest]) -> AsyncIterator[tuple[int, Completion]]:
        async for answer in super().complete(requests):
            while not self._go_on.acquire(blocking=False):
                await asyncio.sleep(0.02)
            yield answer


def test_a_run_is_watched_while_it_is_going_on(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Semaphore(6)  # answers that may be given by now
    monkeypatch.setattr("understudy.models.catalog.load_chat", lambda spec, **options: SlowChat(go_on))
    config = run_config(settings(tmp_path, llm="fake", records_per_label=20, output=str(tmp_path / "out" / "now")))
    run = threading.Thread(target=pipeline.run, args=(config,), daemon=True)
    run.start()
    with running("--runs", "out", folder=tmp_path) as (printed, _):
        seen = Visit(browser, printed)
        page = seen.page
        while not (tmp_path / "out" / "now" / "private" / "progress.json").exists():
            page.wait_for_timeout(100)
        page.goto(f"{seen.home}runs")
        playwright.expect(page.locator(".state")).to_have_text("running")
        page.get_by_role("link", name="now", exact=True).click()
        bar = page.get_by_role("progressbar", name="texts")
        playwright.expect(bar).to_be_visible()
        before = float(bar.get_attribute("value"))
        for _ in range(20):
            go_on.release()
        playwright.expect(bar).not_to_have_attribute("value", f"{before:g}")
        assert page.evaluate("document.querySelector('#progress [data-again]') !== null")
        for _ in range(200):
            go_on.release()
        run.join(600)
        playwright.expect(page.locator(".state")).to_have_text("finished")
        playwright.expect(page.locator("#status")).to_have_text(re.compile("finished"))
        assert not seen.complaints
        seen.context.close()
    assert not run.is_alive()
