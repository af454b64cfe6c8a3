"""The command: one port on the loopback, an address that is printed once, and an end by Ctrl-C."""

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
from studio_fixtures import running

from understudy.base.errors import ConfigError, StorageError
from understudy.cli import cli
from understudy.studio import server


def test_the_address_that_is_printed_opens_it_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    with running(folder=tmp_path) as (address, process):
        keeper = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        assert b"What a budget buys" in keeper.open(address).read()
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


def test_where_there_is_no_screen_no_browser_takes_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
