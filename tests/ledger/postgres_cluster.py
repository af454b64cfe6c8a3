"""A PostgreSQL server for the tests: the one of UNDERSTUDY_TEST_POSTGRES, or a temporary one if it is installed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import sqlalchemy as sa


class NotThere(Exception):
    """No server, and no programs to start one."""


@contextmanager
def server() -> Iterator[str]:
    """The URL of a database whose user may create databases."""
    given = os.environ.get("UNDERSTUDY_TEST_POSTGRES")
    if given:
        yield given
        return
    with Cluster(synced=False) as cluster:
        yield cluster.url


class Cluster:
    """A server of its own, which listens on a socket in its folder alone.

    Args:
        synced: whether it waits for the disk, so that it may be killed.

    Raises:
        NotThere: if PostgreSQL is not installed.
    """

    def __init__(self, *, synced: bool) -> None:
        self._programs = _programs()
        self._folder = Path(tempfile.mkdtemp(prefix="understudy-pg-"))
        self._data = self._folder / "data"
        synced_or_not = "on" if synced else "off"
        self._options = (
            f"-c fsync={synced_or_not} -c listen_addresses='' -c unix_socket_directories={self._folder} "
            "-c restart_after_crash=on"
        )
        if os.name == "posix" and os.geteuid() == 0:
            shutil.chown(self._folder, "postgres")

    @property
    def url(self) -> str:
        """A database whose user may do everything."""
        return f"postgresql://understudy@/postgres?host={self._folder}"

    def __enter__(self) -> Cluster:
        _run(self._programs / "initdb", "--no-sync", "-A", "trust", "-U", "understudy", "-D", self._data)
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stop()
        finally:
            shutil.rmtree(self._folder)

    def stop_at_once(self) -> None:
        """An immediate shutdown: no checkpoint, no farewell. It recovers from its log when it starts again."""
        self._stop()
        self._start()

    def kill_server(self) -> None:
        """``kill -9`` of the parent of all its processes."""
        os.kill(int((self._data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
        _insist(self._start, subprocess.CalledProcessError)  # its children are not gone at once

    def kill_backend(self) -> None:
        """``kill -9`` of the process that serves some client: all others end as well, and it starts anew by itself."""
        import psycopg

        query = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        with contextlib.suppress(psycopg.Error), psycopg.connect(self.url, autocommit=True) as connection:
            while True:  # until this connection ends too
                for (process,) in connection.execute(query).fetchall():
                    with contextlib.suppress(ProcessLookupError):  # that client has just left
                        os.kill(process, signal.SIGKILL)
        _insist(lambda: psycopg.connect(self.url).close(), psycopg.Error)  # it recovers

    def _start(self) -> None:
        log = self._folder / "log"
        _run(self._programs / "pg_ctl", "-D", self._data, "-w", "-l", log, "-o", self._options, "start")

    def _stop(self) -> None:
        _run(self._programs / "pg_ctl", "-D", self._data, "-m", "immediate", "stop")


def empty(connection: sa.Connection) -> None:
    """Remove all that the database holds."""
    connection.execute(sa.text("DROP SCHEMA public CASCADE"))
    connection.execute(sa.text("CREATE SCHEMA public"))


def _insist(action: Callable[[], None], error: type[Exception]) -> None:
    """Do it; again where it fails with this error, up to a limit."""
    for _ in range(500):
        with contextlib.suppress(error):
            return action()
        time.sleep(0.02)
    return action()


def _programs() -> Path:
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not folders:
        raise NotThere("no PostgreSQL server: set UNDERSTUDY_TEST_POSTGRES, or install postgresql")
    if os.name == "posix" and os.geteuid() == 0 and not shutil.which("runuser"):
        raise NotThere("PostgreSQL does not run as root, and there is no runuser")
    if os.name == "posix" and os.geteuid() == 0 and not _has_user("postgres"):
        raise NotThere("PostgreSQL does not run as root, and there is no user postgres")
    return folders[-1]


def _has_user(name: str) -> bool:
    import pwd

    return name in [user.pw_name for user in pwd.getpwall()]


def _run(program: Path, *arguments: object) -> None:
    command = [str(program), *map(str, arguments)]
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        command = ["runuser", "-u", "postgres", "--", *command]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
