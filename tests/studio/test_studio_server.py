"""The command: one port on the loopback, an address that is printed once, and an end by Ctrl-C; and who may see it: the
loopback's own pages, in a browser that was given the token."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path

import pytest
from click.testing import CliRunner
from studio_fixtures import ADDRESS, Studio, running

from understudy.base.errors import ConfigError, StorageError
from understudy.cli import cli
from understudy.studio import server
from understudy.studio.guard import HEADERS


def test_the_address_that_is_printed_opens_it_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    with running(folder=tmp_path) as (address, process):
        keeper = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        assert b"What is left of each budget" in keeper.open(address).read()
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(address.partition("?")[0])
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    token = address.partition("token=")[2]
    assert out == ""
    assert token not in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())  # it made nothing


@pytest.mark.skipif(sys.platform != "linux", reason="the other addresses of the loopback are Linux's")
def test_no_other_address_of_this_machine_answers(tmp_path: Path) -> None:
    with running(folder=tmp_path) as (address, _):
        port = int(address.split(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=10):
            pass
        for other in ("127.0.0.2", socket.gethostbyname(socket.gethostname())):
            if other != "127.0.0.1":
                with pytest.raises(OSError), socket.create_connection((other, port), timeout=2):
                    pass


def test_there_is_no_option_to_listen_elsewhere() -> None:
    said = CliRunner().invoke(cli, ["studio", "--help"])
    assert "--port" in said.output
    assert "host" not in said.output.lower()
    assert "--bind" not in said.output


def test_a_port_that_is_taken_is_an_error_with_a_cure(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(StorageError, match="port"):
            server.serve(runs=tmp_path, ledger=None, port=taken.getsockname()[1], browser=False, show=str)


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ConfigError, match=r"understudy\[studio\]"):
        server.serve(runs=tmp_path, ledger=None, port=0, browser=False, show=str)


def test_a_file_is_no_folder_of_runs(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(ConfigError, match="not a folder"):
        server.serve(runs=tmp_path / "out", ledger=None, port=0, browser=False, show=str)


@pytest.mark.parametrize("port", ["70000", "-1", "http"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    assert CliRunner().invoke(cli, ["studio", "--port", port]).exit_code == 2


def test_a_browser_is_opened_with_a_token_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    said: list[str] = []
    monkeypatch.setattr(server, "_has_screen", lambda: True)
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: None)
    server.serve(runs=tmp_path, ledger=None, port=0, browser=True, show=said.append)
    (address,) = opened
    assert address.partition("?")[0] in said[0]
    assert address != said[0]


def test_without_a_screen_no_browser_takes_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert not server._has_screen()
    monkeypatch.setenv("DISPLAY", ":0")
    assert server._has_screen()


def test_many_requests_at_once_are_answered(tmp_path: Path) -> None:
    with running(folder=tmp_path) as (address, _):
        keeper = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        keeper.open(address).read()
        answers: list[int] = []
        pages = [address.partition("?")[0] + page for page in ("plan", "ledger", "runs", "plan/results") * 5]
        threads = [
            threading.Thread(target=lambda page=page: answers.append(keeper.open(page).status)) for page in pages
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        assert answers == [200] * len(pages)


PAGES = ["/overview", "/plan", "/plan/results", "/ledger", "/runs", "/runs/list", "/static/studio.js"]


@pytest.fixture
def studio(root: Path) -> Studio:
    return Studio.over(root)


@pytest.fixture
def stranger(root: Path) -> Studio:
    return Studio.over(root, let_in=False)


@pytest.mark.parametrize("page", ["/", *PAGES, "/nowhere"])
def test_without_the_token_nothing_is_shown(stranger: Studio, page: str) -> None:
    answer = stranger.client.get(page)
    assert answer.status_code == 403
    assert "token" in answer.text
    assert "clinic" not in answer.text


@pytest.mark.parametrize("token", ["", "wrong", "é" * 50, "a" * 5000])
def test_a_wrong_token_lets_nobody_in(stranger: Studio, token: str) -> None:
    answer = stranger.client.get("/", params={"token": token})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_the_token_becomes_a_cookie_and_leaves_the_address(stranger: Studio) -> None:
    answer = stranger.client.get("/", params={"token": stranger.tokens.shown})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert stranger.tokens.shown not in cookie
    assert stranger.client.get("/plan").status_code == 200


def test_the_token_that_a_browser_is_started_with_is_good_once(root: Path, stranger: Studio) -> None:
    once = stranger.tokens.once
    assert stranger.client.get("/", params={"token": once}).status_code == 303
    stranger.client.cookies.clear()
    assert stranger.client.get("/", params={"token": once}).status_code == 403
    assert stranger.client.get("/", params={"token": ""}).status_code == 403
    assert stranger.client.get("/", params={"token": stranger.tokens.shown}).status_code == 303


def test_the_cookie_of_another_studio_opens_nothing(root: Path, studio: Studio) -> None:
    other = Studio.over(root, let_in=False)
    other.client.cookies = studio.client.cookies
    assert other.client.get("/plan").status_code == 403


@pytest.mark.parametrize(
    ("header", "value"),
    [
        *(("Host", name) for name in ("evil.example", "evil.example:8765", "127.0.0.1.evil.example")),
        *(("Host", name) for name in ("localhost.evil", "")),
        *(("Sec-Fetch-Site", site) for site in ("cross-site", "same-site", "else")),
        *(("Origin", f"http://{name}") for name in ("evil.example", "127.0.0.1:1")),
        *(("Origin", name) for name in ("null", "https://127.0.0.1:8765")),
    ],
)
def test_a_page_from_elsewhere_may_not_ask(studio: Studio, header: str, value: str) -> None:
    assert studio.client.get("/plan", headers={header: value}).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "LOCALHOST:9999"])
def test_the_loopback_s_own_names_are_known_through_a_tunnel_too(studio: Studio, host: str) -> None:
    answer = studio.client.get("/plan", headers={"Host": host, "Cookie": cookie_of(studio)})
    assert answer.status_code == 200


def test_a_page_from_elsewhere_does_not_use_up_the_token(stranger: Studio) -> None:
    query = {"token": stranger.tokens.once}
    assert stranger.client.get("/", params=query, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert stranger.client.get("/", params=query).status_code == 303


def test_its_own_pages_may_ask(studio: Studio) -> None:
    assert studio.client.get("/plan", headers={"Origin": ADDRESS, "Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert studio.client.get("/plan", headers={"Sec-Fetch-Site": "none"}).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
def test_it_only_shows(studio: Studio, method: str) -> None:
    answer = studio.client.request(method, "/plan")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET"


@pytest.mark.parametrize("known", [True, False])
def test_every_answer_has_the_headers(root: Path, known: bool) -> None:
    client = Studio.over(root, let_in=known).client
    for page in ("/", *PAGES, "/nowhere"):
        answer = client.get(page)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS


def test_the_policy_lets_nothing_in_but_its_own_files() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "*" not in policy


@pytest.mark.parametrize(
    "place",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/report.css/",
        "/static//etc/passwd",
        "/static/%2Fetc%2Fpasswd",
        "/runs/%2e%2e",
        "/runs/%2e%2e%2fout",
        "/runs/run-1",
        "/runs/run-1/texts",
        "/runs/%00",
        "/runs/" + "a" * 3000,
        "/runs/%FF%FE/texts",
    ],
)
def test_no_address_reaches_a_file_by_its_path(studio: Studio, place: str) -> None:
    answer = studio.client.get(place)
    assert answer.status_code == 404
    assert "This page does not exist" in answer.text
    assert str(studio.root) not in answer.text


def cookie_of(studio: Studio) -> str:
    return "; ".join(f"{name}={value}" for name, value in studio.client.cookies.items())
