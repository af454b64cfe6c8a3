"""``understudy audit``: try to break the promise of a mechanism, or of a whole run."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING

import click

from understudy.cli.table import show_table

if TYPE_CHECKING:
    from understudy.audit.mechanisms.audit import Auditable, MechanismAudit

_LAZY = {"run": "understudy.cli.audit_run"}


class _Audits(click.Group):
    """Imports ``run``, which knows the flags of every method, when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *_LAZY]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _LAZY:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(_LAZY[cmd_name]), cmd_name)
        return command


@click.group("audit", cls=_Audits)
def audit() -> None:
    """Try to break the promise: audits of mechanisms and of whole runs."""


@audit.command()
@click.argument("name", required=False)
@click.option("--list", "lists", is_flag=True, help="The mechanisms that can be audited.")
@click.option("--runs", type=int, default=5000, show_default=True, help="Of the mechanism, with the unit and without.")
@click.option("--epsilon", default="4", show_default=True, help="What the mechanism is to promise.")
@click.option("--delta", default="1e-6", show_default=True, help="... at this delta; pure mechanisms promise it at 0.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="That no bound is too high.")
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
def mechanism(
    name: str | None, *, lists: bool, runs: int, epsilon: str, delta: str, confidence: float, as_json: bool
) -> None:
    """Run the mechanism NAME (or `all`) on worst-case neighbours, and bound what it loses from below.

    The noise is the system's, as in a release: it has no seed, and no two audits are alike.
    """
    from understudy.audit.mechanisms.audit import NO_PROOF, audit_mechanism
    from understudy.audit.mechanisms.registry import ALL, MECHANISMS, chosen
    from understudy.errors import ConfigError, PrivacyError
    from understudy.privacy.guarantee import Budget

    if lists:
        show_table(("mechanism", "what it is", "neighbours"), [_about(each) for each in MECHANISMS.values()])
        return
    if name is None:
        raise ConfigError("There is no mechanism to audit.", f"Name one (see --list), or say `{ALL}`.")
    budget = Budget(epsilon, delta)
    done = []
    auditables = chosen(name)
    if name == ALL and (missing := [each.name for each in MECHANISMS.values() if each not in auditables]):
        click.echo(f"Left out, for want of the extra `local`: {', '.join(missing)}.", err=True)
    for auditable in auditables:
        click.echo(f"{auditable.name}: {auditable.neighbours}", err=True)
        done.append(audit_mechanism(auditable, budget, runs=runs, confidence=confidence))
    if as_json:
        click.echo(json.dumps([each.to_json() for each in done], indent=2))
    else:
        show_table(_HEADS, [_row(each) for each in done])
        click.echo(NO_PROOF)
    if broken := [each.name for each in done if each.violated]:
        raise PrivacyError(
            f"A lower bound lies above the promise: {', '.join(broken)}.",
            "Audit it again with more runs, and if it stays so, release nothing with it and report it.",
        )


_HEADS = (
    "mechanism",
    "number",
    "promised",
    "bound by Clopper-Pearson",
    "bound by the curve",
    "ideal attack",
    "ceiling",
    "verdict",
)


def _about(auditable: Auditable) -> tuple[str, ...]:
    return auditable.name, auditable.title, auditable.neighbours


def _row(done: MechanismAudit) -> tuple[str, ...]:
    promised, by_test, ideal, ceiling = (
        f"{number:.4g}" for number in (done.promised, done.clopper_pearson, done.ideal, done.ceiling)
    )
    by_curve = "-" if done.along_curve is None else f"{done.along_curve:.4g} ({done.curve})"
    return done.name, done.quantity, promised, by_test, by_curve, ideal, ceiling, done.verdict
