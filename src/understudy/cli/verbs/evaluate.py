"""``understudy evaluate``: compare a synthetic table with the real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from understudy.base.errors import ConfigError
from understudy.cli.options import TABLE, ParametersCommand, config_option, given, json_option, read_file
from understudy.cli.output import listener, show_json, show_table

if TYPE_CHECKING:
    from understudy.run.settings import Groups


def _evaluate_groups(_args: Sequence[str]) -> Groups:
    from understudy.evaluate.parameters import ChargeParameters, EvaluationParameters, ResultParameters
    from understudy.run.settings import EngineParameters, LedgerParameters, TableParameters

    return (
        *(EvaluationParameters, TableParameters, ChargeParameters, LedgerParameters),
        *(EngineParameters, ResultParameters),
    )


@click.command(
    cls=ParametersCommand,
    groups=_evaluate_groups,
    main=(
        *(*TABLE, "delimiter", "encoding", "holdout", "beside", "metrics", "classifiers", "embedder"),
        *("charge_metrics", "dataset", "output"),
    ),
)
@click.argument("real", type=str, required=False)
@click.argument("synthetic", type=str, required=False)
@config_option
@json_option
@click.option("--show", is_flag=True, help="Print the metrics. They are private: no epsilon covers them.")
def evaluate(
    real: str | None, synthetic: str | None, config: str | None, as_json: bool, show: bool, **values: Any
) -> None:
    """Measure the table or output folder SYNTHETIC against the real table REAL: fidelity, utility, leakage.

    With --config the run's configuration names both: its data and its output.

    The metrics are private, for the data's owner only: they go to private/evaluation.json of the output folder.
    --charge-metrics EPSILON releases a few of them, with noise, to release/metrics.json.
    """
    from understudy.evaluate.evaluate import evaluate as measure
    from understudy.evaluate.metrics.results import HEADS, result_json
    from understudy.evaluate.tables import opened
    from understudy.run.outputs import OutputFolder

    settings = given(values, config, of_run=("fresh",))
    real, synthetic = _tables(real, synthetic, read_file(config))
    output = settings.get("output") or (synthetic if Path(synthetic).is_dir() else None)
    if not (show or output):
        if not Path(synthetic).exists() and not glob(synthetic):  # noqa: PTH207 - a pattern is one of the user's
            raise ConfigError(f"There is no file or folder {synthetic!r}.", "Check its name.")
        raise ConfigError("No place given for the metrics.", "Name a folder with --output, or print them with --show.")
    with listener() as told, opened(real, synthetic, settings) as (table, job):
        made = measure(table, job, listener=told)
        if not show:
            told.say("--show prints them, and `understudy report` shows them as a page.")
    if as_json:
        folder = None if output is None else OutputFolder(Path(output))
        charged = None if folder is None or "charge_metrics" not in settings else str(folder.metrics_file)
        files = {"evaluation": None if folder is None else str(folder.evaluation_file), "released": charged}
        show_json({**files, **({"metrics": result_json(made)} if show else {})})
    elif show:
        if made.summary or made.remarks:
            click.echo(f"\n{made}")
        for family, rows in made.tables().items():
            click.echo(f"\n{family}")
            show_table(HEADS, rows)


def _tables(real: str | None, synthetic: str | None, file: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the real and the synthetic table: as given (one alone is the synthetic one), else from the run's file."""
    if synthetic is None:
        real, synthetic = None, real or file.get("output")
    real = real or file.get("data")
    if not real or not synthetic:
        raise ConfigError(
            "The real or the synthetic table is not given.",
            "Write `understudy evaluate REAL SYNTHETIC`, or --config with the file of the run.",
        )
    return real, str(synthetic)
