"""``understudy audit``: audit mechanisms and whole runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from understudy.base.errors import ConfigError, PrivacyError
from understudy.cli.environment import TypedOption
from understudy.cli.options import (
    METHOD,
    TABLE,
    WRITING,
    ParametersCommand,
    config_option,
    given,
    json_option,
    read_file,
)
from understudy.cli.output import listener, say, show_json, show_table

if TYPE_CHECKING:
    from understudy.audit.mechanisms.audit import MechanismAudit
    from understudy.audit.result import RunAudit
    from understudy.evaluate.metrics.value import Interval
    from understudy.run.settings import Groups


@click.group("audit")
def audit() -> None:
    """Test the stated guarantee by attacking mechanisms and whole runs."""


@audit.command()
@click.argument("name", required=False)
@click.option("--list", "lists", is_flag=True, help="List the mechanisms that can be audited.")
@click.option("--runs", type=int, default=5000, show_default=True, help="Runs with the unit, and runs without it.")
@click.option("--epsilon", default="4", show_default=True, help="Epsilon that the mechanism promises.")
@click.option("--delta", default="1e-6", show_default=True, help="Delta that it promises; 0 for pure mechanisms.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Chance that no bound is too high.")
@json_option
def mechanism(
    name: str | None, *, lists: bool, runs: int, epsilon: str, delta: str, confidence: float, as_json: bool
) -> None:
    """Run the mechanism NAME (or `all`) on worst-case neighbours, and print a lower bound on its privacy loss.

    The noise comes from the operating system, as in a release. It has no seed, so every audit differs.
    """
    from understudy.audit.mechanisms.audit import ALL, MECHANISMS, NO_PROOF, audit_mechanism, chosen
    from understudy.privacy.guarantee import Budget

    if lists:
        known = [(each.name, each.title, each.neighbours) for each in MECHANISMS.values()]
        if as_json:
            show_json({"mechanisms": [dict(zip(("name", "title", "neighbours"), each, strict=True)) for each in known]})
        else:
            show_table(("mechanism", "what it is", "neighbours"), known)
        return
    if name is None:
        raise ConfigError("No mechanism given.", f"Name one (see --list), or say `{ALL}`.")
    budget = Budget(epsilon, delta)
    done = []
    auditables = chosen(name)
    if name == ALL and (missing := [each.name for each in MECHANISMS.values() if each not in auditables]):
        say(f"Skipped, because the extra `local` is not installed: {', '.join(missing)}.")
    for auditable in auditables:
        say(f"{auditable.name}: {auditable.neighbours}")
        done.append(audit_mechanism(auditable, budget, runs=runs, confidence=confidence))
    if as_json:
        show_json({"audits": [each.to_json() for each in done]})
    else:
        show_table(_MECHANISM_HEADS, [_mechanism_row(each) for each in done])
        click.echo(NO_PROOF)
    if broken := [each.name for each in done if each.violated]:
        raise PrivacyError(
            f"A lower bound is above the promise: {', '.join(broken)}.",
            "Audit it again with more runs. If the bound stays above, release nothing with it and report it.",
        )


_MECHANISM_HEADS = (
    *("mechanism", "number", "promised", "bound by Clopper-Pearson", "bound by the curve"),
    *("ideal attack", "ceiling", "verdict"),
)


def _mechanism_row(done: MechanismAudit) -> tuple[str, ...]:
    promised, by_test, ideal, ceiling = (
        f"{number:.4g}" for number in (done.promised, done.clopper_pearson, done.ideal, done.ceiling)
    )
    by_curve = "-" if done.along_curve is None else f"{done.along_curve:.4g} ({done.curve})"
    return done.name, done.quantity, promised, by_test, by_curve, ideal, ceiling, done.verdict


def _audit_groups(_args: Sequence[str]) -> Groups:
    from understudy.audit.running import AuditParameters

    return (AuditParameters,)


@audit.command(
    "run",
    cls=ParametersCommand,
    groups=_audit_groups,
    main=("canaries", "prefix_words", "suffix_terms", "attacks", "confidence"),
)
@click.argument("config")
@click.option("--output", metavar="FOLDER", help="Folder for the results, which go to its private/ folder.")
@click.option(
    "--insecure-no-noise",
    is_flag=True,
    default=None,
    cls=TypedOption,
    help="Audit the run without its noise: it must fail.",
)
@click.option(
    "--fresh",
    is_flag=True,
    default=None,
    cls=TypedOption,
    help="Start over in a used folder, with new canaries and coin flips.",
)
@json_option
def audit_run(
    config: str, *, output: str | None, insecure_no_noise: bool | None, fresh: bool | None, as_json: bool, **values: Any
) -> None:
    """Audit the run that the YAML file CONFIG describes. The same command resumes.

    The user's ledger is not charged, so nothing that the run makes may be handed out.
    """
    from understudy.audit.running import AUDIT, AuditParameters
    from understudy.audit.running import audit_run as attack
    from understudy.run.settings import run_config, run_names

    changes = {"output": output, "insecure_no_noise": insecure_no_noise, "fresh": fresh}
    own = AuditParameters.model_fields.keys()
    made = given({**values, **changes}, config, taken=run_names(read_file(config)) | own)
    settings = run_config({name: value for name, value in made.items() if name not in own})
    with listener() as told:
        done = attack(settings, AuditParameters(**{name: made[name] for name in own & made.keys()}), listener=told)
    if as_json:
        show_json(done.to_json())
    else:
        _show_audit(done)
        click.echo(Path(settings.output or "") / "private" / AUDIT)
    if done.verdict == "VIOLATION":
        raise PrivacyError(
            f"The run leaks an epsilon of at least {done.largest_found:.2f}, but promises {done.epsilon:g}.",
            "Release nothing with it, and report it."
            if done.private
            else "The noise was off or seeded, so no promise holds: leave that option out of the configuration.",
        )


def _run_groups(args: Sequence[str]) -> Groups:
    from understudy.cli.making import run_groups

    return run_groups(args)


@audit.command("replay", cls=ParametersCommand, groups=_run_groups, main=("data", *TABLE, "epsilon", "delta", *WRITING))
@click.option("--method", default=None, envvar=METHOD, metavar="NAME", help="YAML configuration, as for a run.")
@click.option("--neighbours", type=click.IntRange(1), default=None, help="Most neighbours to try.  [default: all]")
@config_option
@json_option
def audit_replay(config: str | None, *, neighbours: int | None, as_json: bool, **values: Any) -> None:
    """Replay a run on neighbours of its table: given the same released values, nothing may differ.

    Takes the options of `run`. Nothing is charged, and no result of the runs is kept.
    """
    from understudy.audit.replay import audit_replay as replay
    from understudy.run.settings import run_config

    settings = run_config(given(values, config))
    with listener() as told:
        done = replay(settings, most=neighbours, listener=told)
    if as_json:
        show_json(done.to_json())
    else:
        click.echo(f"Method {done.method}, protecting {done.unit}: {done.measurements} noisy values.")
        for each in done.neighbours:
            click.echo(f"{each.name}: {'same' if not each.findings else ''}")
            for finding in each.findings:
                click.echo(f"  {finding.kind}: {finding.detail}")
        if done.unchecked:
            click.echo(f"Sensitivities not compared, as their mechanisms are not known: {', '.join(done.unchecked)}.")
        click.echo(f"Verdict: {done.verdict}. It applies to these neighbours and this configuration only.")
    if done.unsteady:
        raise PrivacyError(
            "Two runs on the same table differ, so this audit cannot decide anything: "
            + "; ".join(f"{each.kind}, {each.detail:.200}" for each in done.unsteady),
            "Make the method and its models repeatable for a given seed.",
        )
    if done.verdict == "VIOLATION":
        raise PrivacyError(
            "The run depends on the table in other ways than through its released values, or a sum changes too much.",
            "Release nothing with it until that is fixed.",
        )


def _show_audit(done: RunAudit) -> None:
    click.echo(f"Method {done.method}, protecting {done.unit}.")
    texts = done.synthetic_texts
    click.echo(f"{done.canaries} canaries, {done.planted} planted; {texts} synthetic texts; {done.seconds:.0f} s.\n")
    rows = [
        (
            attack.name,
            _with(attack.auc, attack.auc_interval),
            _with(attack.true_positives, attack.true_positives_interval),
            f"{attack.epsilon:.2f}",
        )
        for attack in done.attacks
    ]
    show_table(("attack", "AUC", "TPR at 1 % FPR", "epsilon at least"), rows)
    if done.groups:
        click.echo(f"\nBy group, at {done.confidence:.6g} confidence over all groups:")
        shown = sorted(done.groups, key=lambda each: -each.epsilon)[:_MOST_GROUPS]
        groups = [
            (each.name, str(each.canaries), each.attack, f"{each.auc:.3f}", f"{each.epsilon:.2f}") for each in shown
        ]
        show_table(("group", "canaries", "attack", "AUC", "epsilon at least"), groups)
    click.echo(f"\nPromised: epsilon {done.epsilon:g} at delta {done.delta:g}.")
    click.echo(f"Found: epsilon at least {done.bound:.2f}, at {done.confidence:.6g} confidence over all attacks.")
    click.echo(f"Power of the test: epsilon {done.largest_bound:.2f} if every guess were right.")
    click.echo(f"Verdict: {done.verdict}. {done.remark}")


_MOST_GROUPS = 10


def _with(value: float, interval: Interval) -> str:
    return f"{value:.3f} ({interval.low:.3f}-{interval.high:.3f})"
