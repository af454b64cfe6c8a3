"""A run folder that a stranger made ends in one typed error, soon and in bounded memory, never in an internal one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from made_runs import charge_metrics, make_run, measure

from understudy.base.errors import ConfigError
from understudy.cli import cli
from understudy.evaluate import synthetic
from understudy.evaluate.synthetic import MOST_CHARACTERS, Row, SyntheticFile, read_synthetic
from understudy.evaluate.tables import EvaluationConfig, open_synthetic
from understudy.privacy.events import GaussianEvent, MixtureEvent, PureEvent, SubsampledGaussianEvent
from understudy.report.views import MOST_SECONDS, seconds_of_losses, seconds_of_secrets
from understudy.run.outputs import OutputFolder

pytestmark = [
    pytest.mark.usefixtures("no_models"),
    pytest.mark.filterwarnings("ignore:Built-in embedding:understudy.base.errors.UnderstudyWarning"),
]
HUGE = 10**400
Edit = Callable[[dict[str, Any]], object]


def charge(**event: Any) -> Edit:
    return lambda fields: fields["charges"][0]["event"].update(event)


def told(**changes: Any) -> Edit:
    return lambda fields: fields.update(changes)


def epsilon(value: Any) -> Edit:
    return lambda fields: fields["budget"].update(epsilon=value)


BUDGETS: dict[str, Edit] = {
    "an exponent of nine digits": epsilon("1e999999999"),
    "a ratio to nothing": epsilon("1/0"),
    "thousands of digits": epsilon("9" * 4000),
    "no number": epsilon("nan"),
    "a list": epsilon([1]),
    "an event of hundreds of digits": charge(noise_multiplier=HUGE, epsilon=HUGE),
    "an event beyond squares": charge(noise_multiplier=1e-200, epsilon=1e200),
    "an event without end": lambda fields: fields["charges"][0].update(
        event={"kind": "subsampled gaussian", "noise_multiplier": 1.0, "rate": 0.1, "count": 10**18}
    ),
    "a mixture of very many records": charge(kind="mixture", inclusion=[[[0.5, 10**9]]]),
    "a word for yes": told(sealed="no"),
}
STATEMENTS: dict[str, Edit] = {
    **BUDGETS,
    "a power of hundreds of digits": told(power_at_1_percent_false_alarms=HUGE),
    "half a character": told(dataset="\ud800"),
    "an input of nothing": told(public_inputs={"a": None}),
    "a method elsewhere": told(method="../../private/run"),
    "a method with a null": told(method="a\0b"),
    "records beyond count": lambda fields: fields["unit"].update(max_records=HUGE),
    "notes of nothing": told(notes=[None, {"a": 1}]),
    "deltas in words": told(epsilon_at_delta=[{"delta": "x", "epsilon": "y"}]),
}


def measured(**changes: Any) -> Edit:
    return lambda fields: fields["values"][0].update(changes)


def lengths(edges: list[float], counts: list[int]) -> Edit:
    return lambda fields: fields["overview"]["profiles"]["real"].update(words={"edges": edges, "counts": counts})


METRICS: dict[str, Edit] = {
    **BUDGETS,
    "a value of hundreds of digits": measured(value=HUGE),
    "texts below none": measured(sample_size=-1),
    "another version": told(version=2),
    "settings of lists": measured(settings={"a": [1]}),
    "half a run": told(run="\udfff"),
}
SHOWN: dict[str, Edit] = {
    "a value beyond digits": measured(value=10**29),
    "a value next to nothing": measured(value=5e-324),
    "ends next to each other": measured(value=0.0, interval={"low": -5e-324, "high": 5e-324, "method": "m"}),
    "texts beyond count": measured(sample_size=2**62),
}
OVERVIEWS: dict[str, Edit] = {
    "edges without counts": lengths([1], []),
    "more counts than edges": lengths([0, 1], [1, 2, 3]),
    "equal edges": lengths([1, 1, 1], [0, 0]),
    "very many edges": lengths(list(range(2001)), [1] * 2000),
    "very many points": lambda fields: fields["overview"].update(points=fields["overview"]["points"] * 1000),
}
WHOLE = {
    "deep": "[" * 1_000_000,
    "deep inside": '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "a list": "[]",
    "infinity": '{"a": Infinity}',
    "long": '{"a": "' + "x" * (17 * 1024**2) + '"}',
    "no text": "\x00",
}


@pytest.fixture
def run(tmp_path: Path) -> OutputFolder:
    folder = make_run(tmp_path / "run")
    charge_metrics(folder)
    (folder.shareable / "dp-kps.release").unlink()
    return folder


def change(path: Path, edit: Edit) -> None:
    fields = json.loads(path.read_text("utf-8"))
    edit(fields)
    path.write_text(json.dumps(fields), "utf-8")


def refused(folder: OutputFolder, name: str) -> None:
    result = CliRunner().invoke(cli, ["report", str(folder.root)])
    assert isinstance(result.exception, ConfigError), (result.exception, result.output)
    assert name in result.exception.problem
    assert result.exception.cure


@pytest.mark.parametrize("edit", STATEMENTS.values(), ids=STATEMENTS)
def test_a_strange_statement_is_one_error_of_report_and_of_evaluate(run: OutputFolder, edit: Edit) -> None:
    change(run.shareable / "statement.json", edit)
    refused(run, "statement.json")
    with pytest.raises(ConfigError, match=r"statement\.json cannot be read"):
        open_synthetic(str(run.root), EvaluationConfig())


@pytest.mark.parametrize("edit", METRICS.values(), ids=METRICS)
def test_strange_charged_metrics_are_one_error(run: OutputFolder, edit: Edit) -> None:
    change(run.metrics_file, edit)
    refused(run, "metrics.json")


@pytest.mark.parametrize("family", ["utility", "fidelity"])
@pytest.mark.parametrize("edit", SHOWN.values(), ids=SHOWN)
def test_strange_values_are_shown(run: OutputFolder, edit: Edit, family: str) -> None:
    change(run.metrics_file, edit)
    change(run.metrics_file, lambda fields: fields["values"][0]["metric"].update(family=family))
    assert CliRunner().invoke(cli, ["report", str(run.root)]).exit_code == 0


@pytest.mark.parametrize("edit", OVERVIEWS.values(), ids=OVERVIEWS)
def test_a_strange_picture_is_one_error(run: OutputFolder, edit: Edit) -> None:
    measure(run)
    change(run.evaluation_file, edit)
    refused(run, "evaluation.json")


@pytest.mark.parametrize("empty", [True, False])
def test_an_overview_of_no_texts_has_a_page(run: OutputFolder, empty: bool) -> None:
    measure(run)

    def without_texts(fields: dict[str, Any]) -> None:
        overview = fields["overview"]
        for profile in overview["profiles"].values():
            profile["texts"] = 0
        overview.update(profiles={} if empty else overview["profiles"], points=[])

    change(run.evaluation_file, without_texts)
    assert CliRunner().invoke(cli, ["report", str(run.root)]).exit_code == 0


CURVES: dict[str, list[dict[str, Any]]] = {
    "hardly any noise": [{"kind": "subsampled gaussian", "noise_multiplier": 0.01, "rate": 1e-9, "count": 10**6}],
    "very many samples": [
        {"kind": "subsampled gaussian", "noise_multiplier": 1 + place / 1000, "rate": 0.1, "count": 100}
        for place in range(100)
    ],
}


@pytest.mark.parametrize("events", CURVES.values(), ids=CURVES)
def test_a_curve_that_takes_too_long_is_left_out(run: OutputFolder, events: list[dict[str, Any]]) -> None:
    charges = [{"name": "c", "event": event, "mechanism": {"kind": "declared"}, "why": "w"} for event in events]
    change(run.shareable / "statement.json", told(charges=charges, epsilon_at_delta=[]))  # which they contradict
    assert CliRunner().invoke(cli, ["report", str(run.root)]).exit_code == 0
    text = run.report_file.read_text("utf-8")
    assert "The curve of what an attacker can reach is left out" in text
    assert 'id="tradeoff-title"' not in text


def test_what_our_runs_state_has_its_curve() -> None:
    tokens = SubsampledGaussianEvent(0.3, 0.05, 20_000)
    assert seconds_of_losses([tokens, GaussianEvent(2.0)]) < MOST_SECONDS
    assert seconds_of_losses([*[GaussianEvent(5.0)] * 20, PureEvent(1.0)]) < MOST_SECONDS
    secrets = tuple(((0.1 + place / 1e5, 40),) for place in range(2000))
    assert seconds_of_secrets([MixtureEvent(3.0, secrets)] * 10, priors=19) < MOST_SECONDS
    assert seconds_of_secrets([MixtureEvent(3.0, (((0.5, 10**6),),))], priors=19) > MOST_SECONDS


def test_of_very_many_labels_some_are_shown(run: OutputFolder) -> None:
    count = 20_000
    table(run, columns={"text": pa.array(["a b"] * count), "label": pa.array([f"l{n}" for n in range(count)])})
    assert CliRunner().invoke(cli, ["report", str(run.root)]).exit_code == 0
    text = run.report_file.read_text("utf-8")
    assert "19,600 more labels, topics or lengths are not shown" in text


@pytest.mark.parametrize("text", WHOLE.values(), ids=WHOLE)
def test_a_file_that_is_no_object_is_one_error(run: OutputFolder, text: str) -> None:
    measure(run)
    for path in (run.evaluation_file, run.audit_file, run.metrics_file, run.shareable / "statement.json"):
        path.write_text(text, "utf-8")
        refused(run, path.name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_not_waited_for(run: OutputFolder) -> None:
    run.metrics_file.unlink()
    os.mkfifo(run.metrics_file)
    refused(run, "metrics.json")


def table(folder: OutputFolder, **options: Any) -> Path:
    """A synthetic table in place of the folder's, with the columns in ``columns``."""
    path = folder.shareable / "synthetic.parquet"
    pq.write_table(pa.table(options.pop("columns")), path, **options)
    for other in (folder.metrics_file, folder.schema_file, folder.provenance_file):
        other.unlink(missing_ok=True)
    return path


# A text, how often it stands there, and how the table is written.
BOMBS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "rows": ("x", 2_500_000, {}),
    "rows in another codec": ("x", 2_500_000, {"compression": "zstd"}),
    "one long text often": ("y" * 1_000_000, 1500, {}),
    "one long text in another codec": ("y" * 1_000_000, 20, {"compression": "zstd"}),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_table_that_unpacks_to_too_much_is_refused(run: OutputFolder, bomb: tuple[str, int, dict[str, Any]]) -> None:
    text, times, options = bomb
    texts = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), times), pa.array([text]))
    path = table(run, columns={"text": texts}, store_schema=False, **options)  # as one text that stands there often
    assert path.stat().st_size < 10_000_000
    refused(run, "synthetic.parquet")


OTHER_TYPES: dict[str, dict[str, Any]] = {
    "texts in lists": {"text": pa.array([["y"]])},
    "texts in bytes": {"text": pa.array([b"y"])},
    "texts in numbers": {"text": pa.array([1])},
    "a label in bytes": {"text": pa.array(["y"]), "label": pa.array([b"y"])},
    "provenance in a struct": {"text": pa.array(["y"]), "provenance": pa.array([{"a": "b"}])},
    "a second text": {"text": pa.array(["y"]), "text.more": pa.array([b"y"])},
}


@pytest.mark.parametrize("columns", OTHER_TYPES.values(), ids=OTHER_TYPES)
def test_a_column_of_another_type_is_refused_before_it_is_decoded(run: OutputFolder, columns: dict[str, Any]) -> None:
    path = table(run, columns=columns)
    with pytest.raises(ValueError, match=r"wrong type|occurs twice"):
        next(SyntheticFile.at(path).rows())
    refused(run, "synthetic.parquet")


@pytest.mark.parametrize("label", [1, 0.5, True, "a", None])
def test_labels_of_every_type_that_is_written_are_read(run: OutputFolder, label: Any) -> None:
    labels = pa.array([label], pa.string() if label is None else None)
    path = table(run, columns={"text": pa.array(["y"]), "label": labels})
    assert list(SyntheticFile.at(path).rows()) == [Row("y", label, None, {})]


def test_a_cell_beyond_all_texts_is_refused(run: OutputFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(run, columns={"text": pa.array(["word " * 4])})
    assert len(list(SyntheticFile.at(path).rows())) == 1
    monkeypatch.setattr(synthetic, "_LONGEST", 19)
    with pytest.raises(ValueError, match="too long"):
        next(SyntheticFile.at(path).rows())


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_rows_beyond_the_limit_are_refused_in_every_format(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path / "run", output_format=ending)
    assert len(read_synthetic(folder.shareable)) == 30
    monkeypatch.setattr(synthetic, "MOST_ROWS", 29)
    with pytest.raises(ConfigError, match="too large for a report"):
        read_synthetic(folder.shareable)


def test_long_texts_are_cut_before_they_are_looked_at(run: OutputFolder) -> None:
    table(run, columns={"text": pa.array(["word " * 400_000] * 20)})
    texts = read_synthetic(run.shareable)
    assert {len(text.text) for text in texts} == {MOST_CHARACTERS + 1}
    assert CliRunner().invoke(cli, ["report", str(run.root)]).exit_code == 0


@pytest.mark.parametrize("written", ["[" * 100_000, "[1]", '{"model": ' + "9" * 4000 + "}", '{"phrases": 5}'])
def test_a_strange_provenance_is_one_error(run: OutputFolder, written: str) -> None:
    table(run, columns={"text": pa.array(["a", "b"]), "provenance": pa.array([written, written])})
    refused(run, "synthetic.parquet")
