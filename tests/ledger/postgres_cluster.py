"""A PostgreSQL server for the tests: the one of UNDERSTUDY_TEST_POSTGRES, or a temporary one if it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class NotThere(Exception):
    """No server, and no programs to start one."""


@contextmanager
def server() -> Iterator[str]:
    """The URL of a database whose user may create databases."""
    given = os.environ.get("UNDERSTUDY_TEST_POSTGRES")
    if given:
        yield given
        return
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="understudy-pg-"))
    if os.name == "posix" and os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    data = folder / "data"
    _run(programs / "initdb", "--no-sync", "-A", "trust", "-U", "understudy", "-D", data)
    options = f"-c fsync=off -c listen_addresses='' -c unix_socket_directories={folder}"
    try:
        _run(programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
        yield f"postgresql://understudy@/postgres?host={folder}"
    finally:
        _run(programs / "pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder)


def _programs() -> Path:
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not folders:
        raise NotThere("no PostgreSQL server: set UNDERSTUDY_TEST_POSTGRES, or install postgresql")
    if os.name == "posix" and os.geteuid() == 0 and not shutil.which("runuser"):
        raise NotThere("PostgreSQL does not run as root, and there is no runuser")
    return folders[-1]


def _run(program: Path, *arguments: object) -> None:
    command = [str(program), *map(str, arguments)]
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        command = ["runuser", "-u", "postgres", "--", *command]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
