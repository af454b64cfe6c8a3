"""``understudy evaluate``: a synthetic table against the real one."""

from __future__ import annotations

from glob import glob
from pathlib import Path
from typing import Any, get_args

import click

from understudy.assess.evaluate import evaluate as measure
from understudy.assess.parameters import ChargeParameters, EvaluationParameters
from understudy.assess.tables import ResultParameters
from understudy.cli.listening import listener
from understudy.cli.options import ParametersCommand, given
from understudy.cli.table import show_table
from understudy.config import LedgerParameters, TableParameters
from understudy.errors import ConfigError
from understudy.metrics.results import Evaluation
from understudy.metrics.value import Family, MetricValue
from understudy.parameters import Parameters


class _NoMethod(Parameters):
    """No method's parameters."""


class _Evaluate(ParametersCommand):
    groups = (EvaluationParameters, TableParameters, ChargeParameters, LedgerParameters, ResultParameters)

    def method_parameters(self, method: type[Any]) -> type[Parameters]:  # noqa: ARG002 - there is no method
        return _NoMethod


@click.command(cls=_Evaluate)
@click.argument("real", type=str)
@click.argument("synthetic", type=str)
@click.option("--config", default=None, metavar="FILE", help="YAML configuration; flags override it.")
@click.option("--show", is_flag=True, help="Print the figures. They are private: no epsilon covers them.")
def evaluate(real: str, synthetic: str, config: str | None, show: bool, **values: Any) -> None:
    """Measure the table or output folder SYNTHETIC against the real table REAL: fidelity, utility, leakage.

    The figures are private, for the data's holder: they go to private/evaluation.json of the output folder.
    --charge-metrics EPSILON releases a few of them, with noise, to release/metrics.json.
    """
    settings = given(values, config)
    if not (show or settings.get("output") or Path(synthetic).is_dir()):
        if not Path(synthetic).exists() and not glob(synthetic):  # noqa: PTH207 - a pattern is one of the user's
            raise ConfigError(f"There is no file or folder {synthetic!r}.", "Check its name.")
        raise ConfigError(
            "There is no place for the figures.", "Name a folder with --output, or print them with --show."
        )
    with listener() as told:
        made = measure(real, synthetic, listener=told, **settings)
    if show:
        _show(made)


_HEADS = ("metric", "of", "value", "interval", "settings", "note")


def _show(made: Evaluation) -> None:
    """A table of each family. Kinds of personal data that cannot be told are left out: there are many."""
    for family in get_args(Family):
        rows = [
            _row(figure)
            for figure in made.of_family(family)
            if figure.value is not None or not figure.metric.name.startswith("pii_")
        ]
        if rows:
            click.echo(f"\n{family}")
            show_table(_HEADS, rows)


def _row(figure: MetricValue) -> tuple[str, ...]:
    value = "-" if figure.value is None else f"{figure.value:.4g}"
    reach = "" if figure.interval is None else f"{figure.interval.low:.4g} to {figure.interval.high:.4g}"
    settings = ", ".join(f"{name} {setting}" for name, setting in figure.settings.items())
    settings += "" if figure.sample_size is None else f"{settings and ', '}{figure.sample_size} texts"
    return figure.metric.title, figure.of, value, reach, settings, figure.note
