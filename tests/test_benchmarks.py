"""The benchmark runner: what a run keeps, the page made of it, and a small run from end to end."""

from __future__ import annotations

import doctest
import json
import os
import re
import shutil
import socket
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import beside, measuring, page, papers_page, profiling
from benchmarks.__main__ import main
from benchmarks.measuring import by_turns, in_own_process, machine, measured, peak_mb, versions
from benchmarks.registry import BENCHMARKS
from benchmarks.results import FOLDER, Result

ROOT = Path(__file__).parents[1]
KEPT = sorted(FOLDER.glob("*.json"))


def test_every_benchmark_has_a_kept_result_and_no_other_is_kept() -> None:
    assert {path.stem for path in KEPT} == set(BENCHMARKS)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_kept_result_says_what_ran_where_beside_what(path: Path) -> None:
    result = Result.read(path.stem)
    assert result.name == path.stem
    assert {"cores", "processor", "memory_gib", "gpu"} <= set(result.machine)
    assert {"python", "understudy", "numpy", "torch", "pyarrow"} <= set(result.versions)
    assert not result.versions["understudy"].endswith("+"), "measured with changes that no commit has"
    assert set(result.load) == {"start", "end"}
    assert min(result.wall_seconds, result.processor_seconds, result.peak_mb) > 0
    assert result.rows
    for row in result.rows:
        assert any(name.startswith("floor") and row[name] for name in row), "no floor"


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_kept_result_names_no_machine_and_no_path(path: Path) -> None:
    text = path.read_text("utf-8")
    assert socket.gethostname() not in text
    assert not re.search(r'"[^"]*(?:/(?:home|root|tmp|work|Users)/|[A-Z]:\\)', text)
    assert len(text) < 20_000


def test_a_result_of_other_fields_is_not_read(tmp_path: Path) -> None:
    found = json.loads(KEPT[0].read_text("utf-8"))
    (tmp_path / "x.json").write_text(json.dumps({**found, "more": 1}), "utf-8")
    with pytest.raises(ValueError, match="run the benchmark again"):
        Result.read("x", tmp_path)


def test_the_page_and_its_plots_are_what_the_results_give() -> None:
    for path, text in page.files().items():
        assert (ROOT / path).read_text("utf-8") == text, f"python -m benchmarks --page would change {path}"


def test_the_page_beside_the_field_is_what_its_results_give() -> None:
    text = (ROOT / "benchmarks" / "beside.md").read_text("utf-8")
    assert text == beside.page(), "python -m benchmarks.beside would change it"


def test_the_page_of_the_papers_is_what_its_results_give() -> None:
    text = (ROOT / "benchmarks" / "papers.md").read_text("utf-8")
    assert text == papers_page.page(), "python -m benchmarks.papers page would change it"


def test_several_runs_of_a_row_of_the_papers_are_their_mean_and_range() -> None:
    row = {"corpus": "dbpedia14", "method": "dp-kps", "voc": 1.0, "kde": 5.0, "per_label": 10, "llm": "builtin"}
    other = {**row, "llm": None, "per_label": 100, "texts": 0.9}
    text = papers_page.page([{**row, "seed": seed, "written": 0.7 + seed / 10} for seed in range(3)] + [other])
    assert "| dp-kps, the default method | 0.800 (0.700-0.900) | - | - | - |" in text
    assert "| dp-kps, the default method | 0.900 | - | - | - |" in text


def test_another_figure_is_another_page(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "results")
    changed = Result.read("scaling")
    last = max(changed.rows, key=lambda row: (row["release"] == "dp-kps", row["records"]))
    last.update(processor_seconds=3 * last["processor_seconds"], anonymous_mb=3 * last["anonymous_mb"])
    changed.write(tmp_path / "results")
    now = page.files()
    assert all(text != now[path] for path, text in page.files(tmp_path / "results").items())


def test_the_template_has_no_times_and_no_sizes_of_its_own() -> None:
    template = (ROOT / "benchmarks" / "performance.md.jinja").read_text("utf-8")
    words = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", template)
    assert not re.search(r"\d\s?(?:s|ms|µs|min|h|MiB|MB|GiB|GB)\b", words)


def test_numbers_are_worded_as_documented() -> None:
    assert doctest.testmod(page).failed == 0


def test_a_small_run_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--sizes", "300", "--releases", "label-counts", "--dry-run"]
    before = {path: path.read_bytes() for path in KEPT}
    main(["scaling", *words])
    rows: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (row,) = rows
    assert (row["records"], row["release"]) == (300, "label-counts")
    assert row["passes"] >= 2
    assert min(row["processor_seconds"], row["floor_seconds"], row["ratio"], row["peak_mb"]) > 0
    assert before == {path: path.read_bytes() for path in KEPT}


def test_a_step_is_run_by_turns_with_its_floor(capsys: pytest.CaptureFixture[str]) -> None:
    main(["ratios", "--pairs", "matching", "--share", "0.01", "--repetitions", "1", "--dry-run"])
    (row,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert row["pair"] == "matching"
    assert row["size"] == 200


def test_the_floor_comes_first_in_every_turn_and_the_first_turn_does_not_count() -> None:
    turns: list[str] = []
    found = by_turns(lambda: turns.append("ours"), lambda: turns.append("floor"), repetitions=2)
    assert turns == ["floor", "ours"] * 3
    assert set(found) == {"seconds", "floor_seconds", "ratio"}


def test_a_process_of_its_own_has_a_peak_of_its_own() -> None:
    held = np.ones(300 << 20, dtype=np.uint8)
    assert in_own_process(peak_mb) < peak_mb() - 200
    assert len(held)


def test_memory_that_was_let_go_again_counts_at_its_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, look = list[float](), measuring.anonymous_mb
    monkeypatch.setattr(measuring, "anonymous_mb", lambda: seen.append(look()) or seen[-1])
    with measured() as nothing:
        pass
    with measured() as used:
        held = np.ones(200 << 20, dtype=np.uint8)
        before, patience = len(seen), monotonic() + 60
        while len(seen) < before + 2 and monotonic() < patience:
            sleep(0.01)
        del held
    if used.anonymous_mb is None:
        pytest.skip("this system does not tell")
    assert nothing.anonymous_mb is not None
    assert used.anonymous_mb > nothing.anonymous_mb + 150


def test_the_environment_is_the_childs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERSTUDY_TRIED", "before")
    assert in_own_process(os.getenv, "UNDERSTUDY_TRIED", environment={"UNDERSTUDY_TRIED": "within"}) == "within"
    assert os.environ["UNDERSTUDY_TRIED"] == "before"


def test_where_time_goes_is_told_by_the_longest_place_that_fits() -> None:
    assert profiling.part_of("corpus/corpus.py", "_records") == "reading and checking rows"
    assert profiling.part_of("corpus/corpus.py", "fingerprint").startswith("fingerprint")
    assert profiling.part_of("privacy/noise.py", "draw") == "noise"
    assert profiling.part_of("privacy/accountant.py", "epsilon") == "accounting"
    assert profiling.part_of("elsewhere.py", "work") == profiling.REST


def test_every_part_of_the_profile_is_somewhere() -> None:
    for places in profiling.PARTS.values():
        for place in places:
            file, _, function = place.partition(":")
            found = ROOT / file if file.startswith("benchmarks/") else ROOT / "src" / "understudy" / file
            assert found.exists(), place
            assert not function or f"def {function}(" in found.read_text("utf-8"), place


def test_machine_and_versions_are_told() -> None:
    assert machine()["cores"] >= 1
    assert re.fullmatch(r"[0-9a-f]{12}\+?|unknown", versions()["understudy"])
