"""The parts of the report: curves, shares, grids, samples, scales, the recipe."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from made_runs import ACCURACY, LABELS, made_statement, made_values, make_run, measure
from scipy.stats import norm

from understudy.base.errors import ConfigError
from understudy.evaluate.metrics.results import Evaluation
from understudy.evaluate.metrics.value import MetricValue
from understudy.evaluate.synthetic import SyntheticText, read_synthetic
from understudy.ledger import Ledger
from understudy.methods.registry import load_release
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.events import GaussianEvent, PureEvent, SubsampledGaussianEvent, ZCDPEvent
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import Declared
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.unit import Unit
from understudy.privacy.verdict import Verdict
from understudy.release.statement import FALSE_ALARMS, Statement
from understudy.report.grids import by_table, by_training
from understudy.report.numbers import paragraphs, short
from understudy.report.reports import write_reports
from understudy.report.svg import Scale, tag, ticks
from understudy.report.views import one_sentence, recipe, samples_of, spending, tradeoff
from understudy.run.job import Job
from understudy.run.settings import run_config


def stated(*events: object, epsilon: float, delta: str) -> Statement:
    charges = tuple(Charge(f"r{place}", Declared(event), "why") for place, event in enumerate(events))  # type: ignore[arg-type]
    return Statement.of(
        Plan("dp-kps", Unit(), Budget(epsilon, delta), charges), public_inputs={}, labels_declared=True, dataset="d"
    )


def test_the_curve_of_gaussian_noise_is_the_closed_form() -> None:
    curve = tradeoff(stated(GaussianEvent(2.0), GaussianEvent(2.0), epsilon=8, delta="1e-6"))
    for rate, power in curve[1:-1]:
        assert power == pytest.approx(norm.cdf(norm.ppf(rate) + math.sqrt(2) / 2), abs=1e-9)


@pytest.mark.parametrize(
    "statement",
    [
        made_statement(),
        made_statement(secret=True),
        stated(PureEvent(1.0), PureEvent(2.0), epsilon=3, delta="0"),
        stated(GaussianEvent(3.0), ZCDPEvent(0.01), epsilon=5, delta="1e-6"),
        stated(SubsampledGaussianEvent(2.0, 0.1, 10), epsilon=5, delta="1e-6"),
    ],
    ids=["gaussian", "secret", "pure", "zcdp", "subsampled"],
)
def test_a_curve_rises_from_corner_to_corner_through_the_statement_s_figure(statement: Statement) -> None:
    curve = tradeoff(statement)
    assert (curve[0][0], curve[-1]) == (0.0, (1.0, 1.0))
    assert all(rate <= power <= 1 for rate, power in curve)
    assert all(second >= first for (_, first), (_, second) in pairwise(curve))
    assert dict(curve)[FALSE_ALARMS] == pytest.approx(statement.power, abs=1e-12)


def test_shares_of_the_budget_add_up_in_what_composes_by_addition() -> None:
    gaussian = spending(made_statement())
    assert [share.share for share in gaussian] == pytest.approx([0.2, 0.8])
    pure = spending(stated(PureEvent(1.0), PureEvent(3.0), epsilon=4, delta="0"))
    assert [share.share for share in pure] == pytest.approx([0.25, 0.75])
    mixed = spending(stated(PureEvent(1.0), ZCDPEvent(0.5), epsilon=9, delta="1e-6"))
    assert [share.share for share in mixed] == pytest.approx([0.5, 0.5])


def test_an_evaluation_draws_the_synthetic_table_next_to_the_real_one() -> None:
    pytest.importorskip("matplotlib").use("agg")
    measured = Evaluation(tuple(made_values()), None, {})
    axes = measured.plot()
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert set(names) <= {row[0] for row in measured.summary}
    assert names
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["synthetic", "real"]
    with pytest.raises(ConfigError, match="can be drawn"):
        Evaluation((), None, {}).plot()


def test_a_training_grid_has_a_row_a_table_and_a_column_a_classifier() -> None:
    (grid,) = by_training([measured for measured in made_values() if measured.metric == ACCURACY])
    assert grid.columns == ("tf-idf", "embedding")
    assert [(row.title, row.below) for row in grid.rows] == [
        ("synthetic texts", "30 texts"),
        ("baseline", "30 texts"),
        ("as many real texts", "30 texts"),
        ("all real texts", "400 texts"),
    ]
    assert [cell.value for cell in grid.rows[3].cells if cell] == pytest.approx([0.9, 0.91])
    assert grid.remarks == ("Intervals: t over 5 seeds (95%).",)


def test_a_missing_figure_is_an_empty_cell() -> None:
    values = [
        MetricValue(ACCURACY, 0.5, "synthetic", settings={"n": 1}),
        MetricValue(ACCURACY, 0.6, "holdout", settings={"n": 2}),
    ]
    grid = by_table(values, "title")
    assert grid.columns == ("synthetic", "held-out real")
    assert [[cell is None for cell in row.cells] for row in grid.rows] == [[False, True], [True, False]]
    assert [row.below for row in grid.rows] == ["n = 1", "n = 2"]


def test_samples_are_of_every_label_and_the_same_for_the_same_seed() -> None:
    texts = [SyntheticText(str(place), LABELS[place % 3]) for place in range(90)]
    first = samples_of(texts, seed=1)
    assert [(group.label, len(group.texts), group.size) for group in first] == [(label, 3, 30) for label in LABELS]
    assert first == samples_of(texts, seed=1)
    assert first != samples_of(texts, seed=2)


def test_the_recipe_is_a_configuration_of_the_same_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    release = load_release(folder.shareable / "dp-kps.release")
    made = recipe(release, read_synthetic(folder.shareable))
    config = run_config({**yaml.safe_load(made), "data": ["notes.csv"]})
    assert config.method_parameters["length"] == 3
    assert (config.dataset, config.text, config.label) == ("clinic", "note", "department")
    assert tuple(config.labels or ()) == LABELS
    assert Budget(config.epsilon, config.delta) == release.statement.budget  # type: ignore[arg-type]
    assert (config.records_per_label, config.records, config.llm) == (10, None, "builtin")
    assert Job(config, generates=True).wanted.said


@pytest.mark.parametrize(
    ("texts", "written"),
    [
        ([SyntheticText("a, b", label, ("a", "b")) for label in LABELS], {"records_per_label": 1, "llm": "none"}),
        ([SyntheticText("Some.", LABELS[0], ("a",), "openai:x")] * 4, {"records": 4, "llm": "openai:x"}),
        ([SyntheticText("Some.", None, (), model) for model in ("openai:x", "hf:y/z")], {"records": 2}),
        ([], {}),
    ],
)
def test_the_recipe_tells_how_many_texts_and_by_which_model(
    tmp_path: Path, texts: list[SyntheticText], written: dict[str, object]
) -> None:
    release = load_release(make_run(tmp_path / "run").shareable / "dp-kps.release")
    made = yaml.safe_load(recipe(release, texts))
    assert {name: made[name] for name in ("records_per_label", "records", "llm") if name in made} == written


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 17), (0.61, 0.64), (0, 1e-6), (0, 12345)])
def test_ticks_are_round_and_within(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 3 <= len(found) <= 11
    assert all(low - 1e-12 <= tick <= high + 1e-12 for tick in found)


def test_a_logarithmic_scale_puts_the_geometric_mean_in_the_middle() -> None:
    assert Scale((1, 16), (0, 100), log=True)(4) == pytest.approx(50)
    assert Scale((0, 4), (100, 0))(1) == pytest.approx(75)


def test_markup_escapes_what_it_is_given_and_odd_numbers_are_shown_as_such() -> None:
    assert [short(value) for value in (None, math.nan, math.inf, -0.5, 0.0)] == ["–", "–", "∞", "−0.500", "0"]
    assert paragraphs("a **b <i>** c\n\nd") == "<p>a <strong>b &lt;i&gt;</strong> c</p><p>d</p>"
    assert tag("text", '<&"', title='"><script>') == '<text title="&#34;&gt;&lt;script&gt;">&lt;&amp;&#34;</text>'


def test_how_many_texts_were_compared_stands_in_the_row() -> None:
    metric = made_values()[-1].metric
    noted = MetricValue(metric, 0.5, settings={"n": 1}, sample_size=1044)
    grid = by_table([noted, MetricValue(metric, 0.5, settings={"n": 2}, note="Noisy.")], "title")
    assert [row.below for row in grid.rows] == ["n = 1, 1,044 texts each", "n = 2"]


# -- the head of a report: the verdict, the promise in one sentence, and what lets it be filed ------------------------

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


def test_both_reports_say_when_it_was_released_and_one_what_the_ledger_had_left(tmp_path: Path) -> None:
    place = tmp_path / "ledger.sqlite"
    folder = make_run(tmp_path / "run", statement=booked(place))
    measure(folder)
    paths = write_reports(folder, embedder=None, responsible="Dr <b>Who</b>", ledger=str(place))
    assert paths.internal is not None
    shared, inside = (path.read_text("utf-8") for path in (paths.shareable, paths.internal))
    assert "<dt>left of the cap then</dt><dd>4, 9e-06</dd>" in inside
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


@pytest.mark.parametrize(
    ("level", "word", "shape"), [("noise", "Noise", "stamp"), ("thin", "Weak", "banner"), ("good", "Good", "good")]
)
def test_the_verdict_stands_on_top_of_both_reports(tmp_path: Path, level: str, word: str, shape: str) -> None:
    verdict = Verdict(level, "topics")  # type: ignore[arg-type]
    folder = make_run(tmp_path / "run", statement=replace(made_statement(), verdict=verdict))
    measure(folder)
    paths = write_reports(folder, embedder=None)
    assert paths.internal is not None
    for path in (paths.shareable, paths.internal):
        head = path.read_text("utf-8").partition("<main")[0]
        assert f'<div class="{shape}">\n<p>Usefulness: <strong>{word}: ' in head


def test_the_promise_in_one_sentence_says_what_is_protected_and_when_it_is_weak() -> None:
    told = one_sentence(made_statement())
    assert "whether any one record was in the data is limited" in told
    assert "weak" not in told
    assert "weak" in one_sentence(made_statement(10))
    assert "any one secret" in one_sentence(made_statement(secret=True))
    owners = replace(made_statement(), unit=Unit("owner", 5, "patient"))
    assert "the records of any one owner (column 'patient') were in the data" in one_sentence(owners)
