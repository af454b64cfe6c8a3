"""The head of a report: the verdict, the promise in one sentence, and what lets it be filed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import made_statement, make_run, measure

from understudy.ledger import Ledger
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.events import GaussianEvent
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import Declared
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.unit import Unit
from understudy.privacy.verdict import Verdict
from understudy.release.statement import Statement
from understudy.report.page import write_reports
from understudy.report.views import one_sentence

RUN = "ab" * 16


def booked(path: Path) -> Statement:
    """A statement whose run is in the ledger, of whose cap a later run took more."""
    statement = made_statement()
    with Ledger.create(path) as ledger:
        ledger.open_dataset("clinic", cap=Budget(10, "1e-5"), unit=Unit())
        for run, epsilon in ((RUN, 6), ("cd" * 16, 2)):
            budget = Budget(epsilon, "1e-6")
            noise = gaussian_split(budget, [1])
            plan = Plan("dp-kps", Unit(), budget, (Charge("a", Declared(GaussianEvent(noise[0])), "noisy counts"),))
            ledger.charge("clinic", plan, run_id=run)
        sealed = replace(statement.sealed, run_id=RUN, ledger_id=ledger.id) if statement.sealed else None
    return replace(statement, sealed=sealed)


def test_both_reports_say_when_it_was_released_and_the_internal_one_alone_what_the_ledger_had_left(
    tmp_path: Path,
) -> None:
    place = tmp_path / "ledger.sqlite"
    folder = make_run(tmp_path / "run", statement=booked(place))
    measure(folder)
    paths = write_reports(folder, embedder=None, responsible="Dr <b>Who</b>", ledger=str(place))
    assert paths.internal is not None
    shared, inside = (path.read_text("utf-8") for path in (paths.shareable, paths.internal))
    assert "<dt>left of it then</dt><dd>4, 9e-06</dd>" in inside
    assert "<dt>cap of the dataset then</dt><dd>10, 1e-05</dd>" in inside
    assert "<dt>released on</dt>" in inside
    for page in (shared, inside):
        assert "Dr &lt;b&gt;Who&lt;/b&gt;" in page
        assert "<dt>software</dt>" in page
    assert "left of it" not in shared
    assert "<dt>released on</dt>" in shared
    again = write_reports(folder, embedder=None, ledger=str(place)).shareable.read_text("utf-8")
    assert "Date, signature" not in again


def test_another_ledger_or_none_says_nothing_and_none_is_begun(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", statement=booked(tmp_path / "ledger.sqlite"))
    measure(folder)
    other = tmp_path / "other.sqlite"
    for _ in range(2):
        paths = write_reports(folder, embedder=None, ledger=str(other))
        assert paths.internal is not None
        assert "left of it" not in paths.internal.read_text("utf-8")
        if not other.exists():
            Ledger.create(other).close()


@pytest.mark.parametrize(("level", "shape"), [("noise", "stamp"), ("thin", "banner"), ("good", "good")])
def test_the_verdict_stands_on_top_of_both_reports(tmp_path: Path, level: str, shape: str) -> None:
    verdict = Verdict(level, "topics", 0.5)  # type: ignore[arg-type]
    folder = make_run(tmp_path / "run", statement=replace(made_statement(), verdict=verdict))
    measure(folder)
    paths = write_reports(folder, embedder=None)
    assert paths.internal is not None
    for path in (paths.shareable, paths.internal):
        head = path.read_text("utf-8").partition("<main")[0]
        assert f'<div class="{shape}">\n<p>Usefulness: <strong>{level.capitalize()}: ' in head


def test_the_promise_in_one_sentence_says_what_is_protected_and_when_it_is_weak() -> None:
    told = one_sentence(made_statement())
    assert "whether any one record was in the data is limited" in told
    assert "weak" not in told
    assert "weak" in one_sentence(made_statement(10))
    assert "any one secret" in one_sentence(made_statement(secret=True))
    owners = replace(made_statement(), unit=Unit("owner", 5, "patient"))
    assert "the records of any one owner (column 'patient') were in the data" in one_sentence(owners)
