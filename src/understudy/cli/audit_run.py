"""``understudy audit run``: plant canaries in a copy of the corpus, run the method, tell which were planted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from understudy.audit.result import Attack, RunAudit
from understudy.audit.running import AUDIT, AuditParameters, audit_run
from understudy.cli.listening import listener
from understudy.cli.options import options_of
from understudy.cli.table import show_table
from understudy.config import read_config, run_config
from understudy.errors import PrivacyError
from understudy.metrics.value import Interval

_OWN = AuditParameters.model_fields
_FLAGS: list[click.Parameter] = [*options_of(AuditParameters)]


@click.command("run", params=_FLAGS)
@click.argument("config")
@click.option(
    "--output", default=None, metavar="FOLDER", help="Folder for the results, which stay in its private part."
)
@click.option("--insecure-no-noise", is_flag=True, help="Audit the run without its noise: it must be found out.")
@click.option("--fresh", is_flag=True, help="Start anew in a used folder, with other canaries and coins.")
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
def run(config: str, *, output: str | None, insecure_no_noise: bool, fresh: bool, as_json: bool, **values: Any) -> None:
    """Audit the run that the YAML file CONFIG describes. The same command resumes.

    The user's ledger is not charged, so nothing that the run makes may be handed out.
    """
    changes = {"output": output, "insecure_no_noise": insecure_no_noise, "fresh": fresh}
    settings = run_config({**read_config(config), **{name: value for name, value in changes.items() if value}})
    parameters = AuditParameters(**{name: values[name] for name in _OWN if values[name] is not None})
    with listener() as told:
        audit = audit_run(settings, parameters, listener=told)
    if as_json:
        click.echo(json.dumps(audit.to_json(), indent=1))
    else:
        _show(audit)
        click.echo(Path(settings.output or "") / "private" / AUDIT)
    if audit.verdict == "VIOLATION":
        raise PrivacyError(
            f"The run leaks epsilon {audit.bound:.2f} at least, and promises {audit.epsilon:g}.",
            "Release nothing with it, and report it."
            if audit.private
            else "Noise was off or seeded, and no promise holds: leave that out of the configuration.",
        )


def _show(audit: RunAudit) -> None:
    click.echo(f"Method {audit.method}, protecting {audit.unit}.")
    texts = audit.synthetic_texts
    click.echo(f"{audit.canaries} canaries, {audit.planted} planted; {texts} synthetic texts; {audit.seconds:.0f} s.\n")
    show_table(("attack", "AUC", "TPR at 1 % FPR", "epsilon at least"), [_row(attack) for attack in audit.attacks])
    click.echo(f"\nPromised: epsilon {audit.epsilon:g} at delta {audit.delta:g}.")
    click.echo(f"Found: epsilon at least {audit.bound:.2f}, at {audit.confidence:.6g} confidence over all attacks.")
    click.echo(f"Power of the test: epsilon {audit.largest_bound:.2f} if every guess were right.")
    click.echo(f"Verdict: {audit.verdict}. {audit.remark}")


def _row(attack: Attack) -> tuple[str, ...]:
    rate = _with(attack.true_positives, attack.true_positives_interval)
    return attack.name, _with(attack.auc, attack.auc_interval), rate, f"{attack.epsilon:.2f}"


def _with(value: float, interval: Interval) -> str:
    return f"{value:.3f} ({interval.low:.3f}-{interval.high:.3f})"
