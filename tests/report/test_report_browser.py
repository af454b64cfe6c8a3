"""The pages in a real browser: nothing fetched, nothing logged, all by keyboard, on a phone, in the dark, on paper."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_runs import made_statement, make_run, measure

from understudy.report import write_reports

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
playwright.expect.set_options(timeout=60_000)  # the machine may be busy
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser", "chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
QUIET = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

CONTRAST = Path(__file__).with_name("contrast.js").read_text("utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A shareable report, an internal one, and one without privacy."""
    root = tmp_path_factory.mktemp("runs")
    folder = make_run(
        root / "run", [(f"Text {number} {'w' * (number * 20)} 👩‍⚕️ مرحبا", number % 3) for number in range(40)]
    )
    measure(folder)
    paths = write_reports(folder, embedder=None)
    assert paths.internal is not None
    stamped = make_run(root / "stamped", [], statement=made_statement(private=False))
    return {
        "shareable": paths.shareable,
        "internal": paths.internal,
        "stamped": write_reports(stamped, embedder=None).shareable,
    }


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=CHROMIUM, args=QUIET, timeout=120_000)
        yield started
        started.close()


class Watched:
    """A page of which it is known what it logs. Nothing moves in it by itself, which would be drawn again and again."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.complaints: list[str] = []
        self.context = browser.new_context(**{"reduced_motion": "reduce", **options})
        self.context.set_default_timeout(120_000)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))


class Seen(Watched):
    """A report, and what it asks for."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        super().__init__(browser, **options)
        self.page.route("**/*", lambda route: self._answer(route, file))
        self.page.goto(file.as_uri())

    def _answer(self, route: Any, file: Path) -> None:
        if route.request.url == file.as_uri():
            route.continue_()
        else:
            self.complaints.append(f"asked for {route.request.url}")
            route.abort()

    def chosen(self) -> str:
        return str(self.page.locator("#map-readout").inner_text())


@pytest.fixture
def look(browser: Any, pages: dict[str, Path]) -> Iterator[Any]:
    """Open a page by its name; it must not have complained by the end of the test."""
    opened: list[Seen] = []

    def open_page(name: str, **options: Any) -> Seen:
        opened.append(Seen(browser, pages[name], **options))
        return opened[-1]

    yield open_page
    for seen in opened:
        seen.context.close()
        assert not seen.complaints


NAMES = ["shareable", "internal", "stamped"]


@pytest.mark.parametrize("name", NAMES)
def test_a_page_fits_a_phone_and_asks_for_nothing(look: Any, name: str) -> None:
    page = look(name, viewport={"width": 360, "height": 740}).page
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.title()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_text_stands_out_from_what_is_behind_it(look: Any, name: str, scheme: str) -> None:
    page = look(name, color_scheme=scheme).page
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.evaluate(CONTRAST) == []


def test_faint_text_would_be_noticed(look: Any) -> None:
    page = look("shareable").page
    page.evaluate("document.querySelector('h1').attributeStyleMap.set('color', '#bbb')")
    assert page.evaluate(CONTRAST)


def test_requests_and_foreign_scripts_are_refused_by_the_page_s_policy(browser: Any, pages: dict[str, Path]) -> None:
    seen = Seen(browser, pages["shareable"])
    seen.page.evaluate(
        """() => {
          const script = document.createElement('script');
          script.textContent = 'document.title = "changed"';
          document.body.append(script);
          const image = document.createElement('img');
          image.src = 'https://example.org/x.png';
          document.body.append(image);
        }"""
    )
    assert seen.page.title() != "changed"
    assert sum("Content Security Policy" in complaint for complaint in seen.complaints) >= 2
    assert not [complaint for complaint in seen.complaints if complaint.startswith("asked for")]
    seen.context.close()


def test_the_theme_changes_by_keyboard(look: Any) -> None:
    page = look("shareable", color_scheme="light").page
    background = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(background)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "theme"
    page.keyboard.press("Enter")
    assert page.evaluate(background) != before
    assert page.locator("#theme").get_attribute("aria-pressed") == "true"
    page.keyboard.press("Space")
    assert page.evaluate(background) == before


def test_every_stop_of_the_tab_key_is_visible(look: Any) -> None:
    page = look("internal").page
    stops = []
    for _ in range(80):
        page.keyboard.press("Tab")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        stop = page.evaluate("document.activeElement.id || document.activeElement.tagName")
        if stop == "BODY":
            break
        stops.append(stop)
        assert outline != "none", stop
    assert {"theme", "map-field", "A", "SUMMARY", "INPUT"} <= set(stops)


def test_the_map_is_walked_by_arrow_keys(look: Any) -> None:
    seen = look("internal")
    seen.page.focus("#map-field")
    hint = seen.chosen()
    read = set()
    for key in ["ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"]:
        seen.page.keyboard.press(key)
        read.add(seen.chosen())
    assert len(read) >= 3
    assert hint not in read
    seen.page.keyboard.press("Escape")
    assert seen.chosen() == hint


def test_pointing_at_a_dot_tells_its_text_and_label(look: Any) -> None:
    seen = look("shareable")
    dot = seen.page.locator(".point").nth(5)
    dot.scroll_into_view_if_needed()
    box = dot.bounding_box()
    seen.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    text = seen.chosen()
    assert text.startswith("synthetic · ")
    assert "Text " in text


def test_filters_hide_tables_and_labels(look: Any) -> None:
    page = look("internal").page
    shown = "document.querySelectorAll('.point:not([data-off])').length"
    everything = page.evaluate(shown)
    page.locator("input[data-of=real]").uncheck()
    synthetic = page.evaluate(shown)
    page.locator("input[data-label=skin]").focus()
    page.keyboard.press("Space")
    assert 0 < page.evaluate(shown) < synthetic < everything


def test_on_paper_everything_is_open_and_black_on_white(look: Any) -> None:
    page = look("internal", color_scheme="dark").page
    closed = page.locator("details:not([open])")
    count = closed.count()
    page.emulate_media(media="print", color_scheme="dark")
    playwright.expect(closed).to_have_count(0)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert not page.locator("#theme").is_visible()
    page.emulate_media(media="screen")
    playwright.expect(closed).to_have_count(count)
    assert count


def test_without_scripts_everything_but_the_map_s_words_is_there(look: Any) -> None:
    page = look("shareable", java_script_enabled=False).page
    assert page.locator(".point").count() == 40
    assert page.locator("blockquote").first.is_visible()
