"""Serve the studio on this machine's loopback address only."""

from __future__ import annotations

import os
import socket
import sys
import webbrowser
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from understudy.base.errors import ConfigError, StorageError

LOOPBACK = "127.0.0.1"


def serve(
    *,
    runs: Path,
    ledger: str | None,
    port: int,
    browser: bool,
    show: Callable[[str], object],
    say: Callable[[str], object] = lambda _line: None,
) -> None:
    """Serve the studio until it is interrupted.

    Args:
        runs: the folder that contains the output folders of runs, or is one.
        ledger: location of the ledger; None: the default one.
        port: on the loopback; 0: any free one.
        browser: whether to open the address in a browser, if there is a screen.
        show: receives the address with its token, which no log should keep.
        say: receives lines for the user.
    """
    try:
        import uvicorn

        from understudy.studio.app import make_app
        from understudy.studio.guard import TOKEN, Tokens
        from understudy.studio.jobs import Jobs
    except ImportError as missing:
        raise ConfigError(
            f"The studio needs the package {missing.name}, which is not installed.",
            "Install it with: pip install 'understudy[studio]'",
        ) from None
    if runs.exists() and not runs.is_dir():
        raise ConfigError(f"{runs} is not a folder.", "Name the folder of the output folders with --runs FOLDER.")
    tokens = Tokens()
    with closing(_bound(port)) as listening:
        address = f"http://{LOOPBACK}:{listening.getsockname()[1]}/?{TOKEN}="
        jobs = Jobs(runs, ledger=ledger)
        app = make_app(runs=runs, ledger=ledger, tokens=tokens, jobs=jobs)
        # No access log, which would contain the token, and no traceback, which might quote a text.
        config = uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
        )
        show(address + tokens.shown)
        say("Open this address in a browser on this machine. The studio charges nothing. Ctrl-C ends it.")
        if browser and _has_screen():
            webbrowser.open(address + tokens.once)
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            jobs.stop()


def _bound(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # on Windows it would let another program share the port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port))
        listening.listen()  # from here on a browser waits, even if it is faster than the server
    except (OSError, OverflowError) as error:
        listening.close()
        why = error.strerror if isinstance(error, OSError) else "the highest port is 65535"
        raise StorageError(
            f"The port {port} cannot be used ({why}).", "Choose another with --port, or leave it out."
        ) from None
    return listening


def _has_screen() -> bool:
    """Return whether a browser would open in a window; otherwise it might take over the terminal."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
