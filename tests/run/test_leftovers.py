"""What a killed command leaves in ``private/``: the next one removes it, whatever it reads itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from clinic import settings
from run_fixtures import Said, files_holding

from understudy.base.files import private_folder
from understudy.ledger.locking import FolderLock
from understudy.run import pipeline as running
from understudy.run.job import Table
from understudy.run.settings import run_config

ROW, LEFT = b"Number 7.", b"left by a killed command"
COPY = "import pathlib, sys; from understudy.corpus.sources import spool_stdin; spool_stdin(pathlib.Path(sys.argv[1]))"


def leave(folder: Path) -> None:
    """A copy of standard input, and halves of files, as a kill leaves them."""
    (folder / "stdin.spool").write_bytes(LEFT)
    (folder / ".run-20250101T000000000000.sqlite.00ff00ff.tmp").write_bytes(LEFT)
    (private_folder(folder / "embeddings") / ".a.vectors.00ff00ff.tmp").write_bytes(LEFT)


def test_what_killed_commands_left_goes_with_the_next_run_even_where_that_opens_no_table(tmp_path: Path) -> None:
    config, private = run_config(settings(tmp_path)), private_folder(tmp_path / "out" / "private")
    with subprocess.Popen([sys.executable, "-c", COPY, str(private)], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(ROW * 200_000)
        process.kill()
    assert files_holding(private, ROW)
    for _ in range(2):
        leave(private)
        running.release(config)  # the second time it is there already
        assert not files_holding(private, ROW) + files_holding(private, LEFT)


@pytest.mark.parametrize("command", ["evaluate FILE FILE --embedder none --seeds 1", "secrets count --data FILE"])
def test_other_commands_remove_it_too_unless_a_run_uses_the_folder(
    tmp_path: Path, understudy: Callable[..., Said], command: str
) -> None:
    data, private = settings(tmp_path)["data"], private_folder(tmp_path / "out" / "private")
    words = [data if word == "FILE" else word for word in command.split()] + ["--text", "note"]
    words += ["--output", str(tmp_path / "out"), *(["--secret-detectors", "email"] if "secrets" in words else [])]
    leave(private)
    lock = FolderLock(private)
    assert understudy(*words).code == 0
    lock.release()
    assert len(files_holding(private, LEFT)) == 3
    assert understudy(*words).code == 0
    assert not files_holding(private, LEFT)


def test_a_copy_that_a_corpus_of_this_process_reads_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = run_config(settings(tmp_path, data="-", format="csv", dataset="notes"))
    monkeypatch.setattr("sys.stdin", (tmp_path / "notes.csv").open())
    with Table.of(config).open(tmp_path / "out" / "private") as corpus, sys.stdin:
        running.run(config, corpus=corpus)
        assert files_holding(tmp_path / "out" / "private", ROW)
