"""How far a run is, kept beside it: public facts, which no fault of writing them stops a run for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from clinic import settings
from run_fixtures import run

from understudy.base.errors import ConfigError
from understudy.base.files import private_folder
from understudy.ledger.store import RunStore, is_in_use
from understudy.run.outputs import PROGRESS, OutputFolder
from understudy.run.progress import Progress, Stage, read_progress, recorded
from understudy.run.session import SILENT, Listener


@pytest.fixture
def folder(tmp_path: Path) -> OutputFolder:
    private_folder(tmp_path / "private")
    return OutputFolder(tmp_path)


def progress_of(folder: OutputFolder) -> Progress:
    found = read_progress(folder)
    assert found is not None
    return found


def test_what_a_listener_is_told_is_kept_and_passed_on(folder: OutputFolder) -> None:
    told: list[object] = []
    heard = Listener(told.append, lambda *counted: told.append(counted))
    with recorded(heard, folder, verb="run", method="dp-kps", dataset="clinic") as listener:
        listener.say("one")
        listener.progress("texts", 1, 4)
        assert progress_of(folder).state == "running"
        assert progress_of(folder).stages == [Stage(what="texts", done=1, total=4)]
        listener.progress("texts", 4, 4)
    assert told == ["one", ("texts", 1, 4), ("texts", 4, 4)]
    kept = progress_of(folder)
    assert (kept.verb, kept.method, kept.dataset, kept.state) == ("run", "dp-kps", "clinic", "finished")
    assert kept.stages == [Stage(what="texts", done=4, total=4)]
    assert kept.lines == ["one"]
    assert [path.name for path in folder.private.iterdir()] == [PROGRESS]
    assert (folder.private / PROGRESS).stat().st_mode & 0o077 == 0


def test_what_stopped_a_run_is_said_in_the_words_of_our_errors_alone(folder: OutputFolder) -> None:
    def fail(error: BaseException) -> None:
        with recorded(SILENT, folder, verb="run", method="dp-kps", dataset=None):
            raise error

    with pytest.raises(ConfigError):
        fail(ConfigError("Too few records.", "Get more."))
    assert progress_of(folder).problem == "Too few records."
    with pytest.raises(KeyboardInterrupt):
        fail(KeyboardInterrupt())
    assert (progress_of(folder).state, progress_of(folder).problem) == ("stopped", "It was interrupted.")
    with pytest.raises(ValueError, match="a private text"):
        fail(ValueError("a private text"))
    assert progress_of(folder).problem == "It ended because of a bug."
    assert "private text" not in (folder.private / PROGRESS).read_text("utf-8")


def test_only_the_last_lines_and_the_first_stages_are_kept(folder: OutputFolder) -> None:
    with recorded(SILENT, folder, verb="run", method="dp-kps", dataset=None) as listener:
        for number in range(1000):
            listener.say(f"line {number}")
            listener.progress(f"stage {number}", 1, 2)
    kept = progress_of(folder)
    assert kept.lines[-1] == "line 999"
    assert len(kept.lines) < 100
    assert kept.stages[0].what == "stage 0"
    assert len(kept.stages) < 100


def test_a_file_that_cannot_be_written_stops_no_run(tmp_path: Path) -> None:
    gone = OutputFolder(tmp_path / "nowhere")
    with recorded(SILENT, gone, verb="run", method="dp-kps", dataset=None) as listener:
        listener.say("half of a character: \ud800")
        listener.progress("texts", 1, 2)
    assert read_progress(gone) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"verb": 1}', "[" * 100_000, "x" * (2 << 20)])
def test_a_damaged_file_says_nothing(folder: OutputFolder, text: str) -> None:
    (folder.private / PROGRESS).write_text(text, "utf-8")
    assert read_progress(folder) is None


def test_a_run_leaves_it_in_its_private_folder_and_tells_no_text(tmp_path: Path) -> None:
    run(settings(tmp_path))
    folder = OutputFolder(tmp_path / "out")
    kept = progress_of(folder)
    assert (kept.verb, kept.state) == ("run", "finished")
    assert "Seen today" not in json.dumps(kept.model_dump())
    assert not (folder.shareable / PROGRESS).exists()


def test_a_run_that_is_held_up_for_the_ledger_says_so(tmp_path: Path) -> None:
    run(settings(tmp_path))
    with pytest.raises(Exception, match="spent"):
        run(settings(tmp_path, fresh=True))
    kept = progress_of(OutputFolder(tmp_path / "out"))
    assert kept.state == "stopped"
    assert "spent" in kept.problem


def test_whether_a_folder_is_in_use_is_told_by_its_lock(tmp_path: Path) -> None:
    private = private_folder(tmp_path / "private")
    assert not is_in_use(private)
    assert not list(private.iterdir())
    with RunStore.open(private, noise="system"):
        assert is_in_use(private)
        assert is_in_use(private)
    assert not is_in_use(private)
    with RunStore.open(private, noise="system"):  # asking took nothing
        assert is_in_use(private)
