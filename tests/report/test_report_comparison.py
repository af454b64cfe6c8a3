"""The comparison: one line a method, the ceilings and the floor beside it, and nothing private in the shareable one."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import PLANTED, charge_metrics, made_statement, make_run, measure

from understudy.base.errors import ConfigError
from understudy.evaluate.synthetic import MOST_BYTES
from understudy.privacy.guarantee import Budget
from understudy.privacy.unit import Unit
from understudy.release.statement import Sealed
from understudy.report import grids, page, write_comparison, write_reports
from understudy.report.charts import against_epsilon
from understudy.report.comparison import compare, read_runs, together
from understudy.run.outputs import OutputFolder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two methods at three epsilons each, in no order; to be copied."""
    roots, place = [], tmp_path_factory.mktemp("made")
    for method, gain in (("dp-kps", 0.0), ("aug-pe", 0.05)):
        for epsilon in (6, 1, 15):
            folder = make_run(place / f"{method}-{epsilon}", statement=made_statement(epsilon, method=method))
            measure(folder, accuracy=0.6 + epsilon / 100 + gain)
            charge_metrics(folder, accuracy=0.5)
            roots.append(folder.root)
    return roots


@pytest.fixture
def runs(made: list[Path], tmp_path: Path) -> list[Path]:
    return [Path(shutil.copytree(root, tmp_path / root.name)) for root in made]


@pytest.fixture(scope="module")
def pages(made: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The shareable comparison of all, and the one that stays inside."""
    folder = tmp_path_factory.mktemp("pages")
    shared, inside = (write_comparison(made, folder / f"{each}.html", shareable=each) for each in (True, False))
    assert inside.stat().st_mode & 0o077 == 0
    return shared.read_text("utf-8"), inside.read_text("utf-8")


def test_each_method_is_one_line_from_the_smallest_epsilon_to_the_largest(made: list[Path]) -> None:
    (compared,) = compare(read_runs(made, names=None, shareable=False))
    assert compared.columns == ("tf-idf", "embedding")
    assert [(run.name, run.epsilon) for run in compared.runs] == [
        (method, epsilon) for method in ("dp-kps", "aug-pe") for epsilon in (1, 6, 15)
    ]
    chart = str(against_epsilon("chart", compared, "tf-idf"))
    assert chart.count('class="line ') == 2
    assert chart.count("<circle") == chart.count('class="whisker ') == 6
    assert chart.count('class="reference"') == 3
    assert "dp-kps: 0.610 at epsilon 1, 0.660 at epsilon 6, 0.750 at epsilon 15" in chart
    rows = [(row.title, row.below) for row in compared.grid.rows]
    assert rows[:3] == [
        ("dp-kps", "epsilon = 1, 30 texts"),
        ("dp-kps", "epsilon = 6, 30 texts"),
        ("dp-kps", "epsilon = 15, 30 texts"),
    ]
    assert [title for title, _ in rows[6:]] == ["all real texts", "as many real texts", "baseline"]


def test_names_tell_variants_of_a_method_apart(made: list[Path]) -> None:
    names = ["plain", "plain", "contrast", "plain", "plain", "contrast"]
    (compared,) = compare(read_runs(made, names=names, shareable=False))
    assert [run.name for run in compared.runs] == ["plain"] * 4 + ["contrast"] * 2


def test_figures_without_noise_are_in_no_shareable_comparison(runs: list[Path], tmp_path: Path) -> None:
    charge_metrics(OutputFolder(runs[0]), private=False)
    with pytest.raises(ConfigError, match="NOT PRIVATE"):
        write_comparison(runs, tmp_path / "shared.html", shareable=True)
    assert not (tmp_path / "shared.html").exists()


def test_a_page_says_what_its_figures_and_the_runs_on_one_dataset_cost_together(pages: tuple[str, str]) -> None:
    shared, inside = pages
    assert "for the metrics" in shared
    assert "for the metrics" not in inside
    assert "Budgets of runs on one dataset add up." in shared
    assert "with the charged metrics, come to epsilon = 47, delta = 6e-06 together" in shared
    assert "come to epsilon = 44, delta = 6e-06 together" in inside


def test_texts_of_one_release_count_once(made: list[Path], tmp_path: Path) -> None:
    shutil.copytree(made[0], tmp_path / "copy")
    first, again, third = read_runs([made[0], tmp_path / "copy", made[2]], names=None, shareable=True)
    assert first.release == again.release != third.release
    (found,) = together([first, again, third])
    assert found.budget == Budget("22", "2e-6"), "6 and 15, and 0.5 for the values of each run"


def test_releases_and_figures_of_one_name_that_promise_differently_add_up(made: list[Path]) -> None:
    first, second = read_runs(made[:2], names=None, shareable=True)
    assert first.charged is not None
    assert second.charged is not None
    same = Sealed("system", "a" * 32, "1" * 32, 1)
    more = replace(second.charged, budget=Budget(7, 0), sealed=same)
    claimed = replace(second, release=first.release, charged=more)
    (found,) = together([replace(first, charged=replace(first.charged, sealed=same)), claimed])
    assert found.budget == Budget("14.5", "2e-6"), "6 + 1, and 0.5 + 7"
    spent_otherwise = replace(first, statement=replace(first.statement, charges=first.statement.charges[:1]))
    (found,) = together([first, spent_otherwise])
    assert found.budget == Budget("12.5", "2e-6"), "charges count, too; the values are the same"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.parametrize("kind", ["pipe", "device", "too large"])
def test_a_table_that_has_no_end_is_not_read(runs: list[Path], tmp_path: Path, kind: str) -> None:
    table = runs[0] / "release" / "synthetic.parquet"
    table.unlink()
    if kind == "pipe":
        os.mkfifo(table)
    elif kind == "device":
        table.symlink_to("/dev/zero")
    else:
        with table.open("wb") as file:
            file.truncate(MOST_BYTES + 1)
    with pytest.raises(ConfigError, match="cannot be read"):
        write_comparison(runs[:1], tmp_path / "c.html", shareable=True)


def test_of_very_many_figures_the_first_are_shown_and_the_rest_counted(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grids, "MOST_VALUES", 3)
    monkeypatch.setattr(page, "MOST_VALUES", 3)
    text = write_comparison(runs, tmp_path / "c.html").read_text("utf-8")
    assert "30 more values are not shown: the page has the first 3 of each run." in text
    shown = write_reports(OutputFolder(runs[0]), embedder=None).internal
    assert shown is not None
    assert "5 more values are not shown" in shown.read_text("utf-8")


def test_what_a_reader_did_not_foresee_is_one_error_that_names_the_folder(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise ZeroDivisionError(PLANTED)

    monkeypatch.delenv("UNDERSTUDY_DEBUG", raising=False)
    monkeypatch.setattr(page, "render", fail)
    for write in (
        lambda: write_comparison(runs[:1], tmp_path / "c.html"),
        lambda: write_reports(OutputFolder(runs[0]), embedder=None),
    ):
        with pytest.raises(ConfigError, match=f"of what {runs[0].name} holds") as caught:
            write()
        assert PLANTED not in f"{caught.value.problem} {caught.value.cure}"


def test_budgets_for_different_units_are_not_added(made: list[Path]) -> None:
    record, other = read_runs([made[0], made[2]], names=None, shareable=True)
    owner = replace(other, statement=replace(other.statement, unit=Unit("owner", 3, "patient")))
    assert [(each.unit, each.budget) for each in together([record, owner])] == [
        ("record", Budget("6.5", "1e-6")),
        ("owner (column 'patient')", Budget("15.5", "1e-6")),
    ]


def test_runs_without_noise_are_not_in_the_sum_and_are_named_in_the_table_and_not_in_the_chart(
    made: list[Path], tmp_path: Path
) -> None:
    bare = make_run(tmp_path / "bare", statement=made_statement(6, private=False))
    measure(bare)
    runs, names = [*made, bare.root], ["a"] * 6 + ["bare"]
    (found,) = together(read_runs(runs, names=names, shareable=False))
    assert (found.budget, found.unpromised) == (Budget(44, "6e-6"), ("bare",))
    text = write_comparison(runs, tmp_path / "page.html", names=names).read_text("utf-8")
    assert "and so not in the sum: " in text
    assert "noise off: NOT PRIVATE" in text
    assert len(re.findall(r'class="line c\d"', text)) == 2, "one in each of two charts"


def test_the_shareable_page_shows_charged_figures_alone(pages: tuple[str, str]) -> None:
    charged, inside = pages
    assert "They stay inside" in inside
    assert "0.610" in inside
    assert "0.610" not in charged
    assert "0.500" in charged
    assert PLANTED not in charged
    assert "all real texts" not in charged


def test_a_run_that_was_not_measured_is_named(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "new")
    for shareable, cure in ((False, "understudy evaluate`"), (True, "--charge-metrics")):
        with pytest.raises(ConfigError) as caught:
            write_comparison([folder.root], tmp_path / "c.html", shareable=shareable)
        assert "new" in caught.value.problem
        assert cure in caught.value.cure


def test_what_cannot_be_compared_or_written_is_said(made: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="6 runs and 1 names"):
        write_comparison(made, tmp_path / "c.html", names=["one"])
    with pytest.raises(ConfigError, match="cannot be written"):
        write_comparison(made, tmp_path / "no" / "c.html")
    secrets = make_run(tmp_path / "secrets", statement=made_statement(secret=True))
    measure(secrets)
    with pytest.raises(ConfigError, match="protects secrets"):
        write_comparison([secrets.root], tmp_path / "c.html")


def test_runs_of_one_method_and_one_epsilon_are_told_apart_by_their_folders(made: list[Path], tmp_path: Path) -> None:
    again = make_run(tmp_path / "again" / made[0].name, statement=made_statement(6, method="dp-kps"))
    measure(again)
    (compared,) = compare(read_runs([*made[:3], again.root], names=None, shareable=False))
    place = made[0].parent.name
    assert [(run.name, run.epsilon) for run in compared.runs] == [
        (f"dp-kps ({place}/dp-kps-6)", 6),
        ("dp-kps", 1),
        ("dp-kps", 15),
        ("dp-kps (again/dp-kps-6)", 6),
    ]


def test_ceilings_that_were_measured_otherwise_are_said_to_differ(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / str(e), statement=made_statement(e)) for e in (1, 6)]
    for folder in folders:
        measure(folder, accuracy=0.6)
    roots = [folder.root for folder in folders]
    assert "do not agree" not in write_comparison(roots, tmp_path / "c.html").read_text("utf-8")
    path = folders[1].evaluation_file
    path.write_text(path.read_text("utf-8").replace('"sample_size": 400', '"sample_size": 1400'), "utf-8")
    text = write_comparison(roots, tmp_path / "c.html").read_text("utf-8")
    assert "The runs do not agree on the ceiling or the floor" in text
    assert "all real texts, tf-idf: 0.700 (400 texts), 0.700 (1,400 texts)" in text
