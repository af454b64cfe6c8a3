"""``understudy evaluate | audit | report | show``: what says how good and how private it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from understudy.base.display import printable
from understudy.base.errors import ConfigError, PrivacyError
from understudy.cli.environment import TypedOption
from understudy.cli.options import (
    TABLE,
    ParametersCommand,
    config_option,
    given,
    json_option,
    read_file,
    release_size_option,
    require_no_configuration,
)
from understudy.cli.output import answer, listener, say, show_json, show_table

if TYPE_CHECKING:
    from understudy.audit.mechanisms.audit import MechanismAudit
    from understudy.audit.result import RunAudit
    from understudy.evaluate.metrics.value import Interval
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
        *TABLE,
        "delimiter",
        "encoding",
        "holdout",
        "beside",
        "metrics",
        "classifiers",
        "embedder",
        "charge_metrics",
        "dataset",
        "output",
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

    With --config a run's own file says both: its data and its output.

    The metrics are private, for the data's holder: they go to private/evaluation.json of the output folder.
    --charge-metrics EPSILON releases a few of them, with noise, to release/metrics.json.
    """
    from understudy.evaluate.evaluate import evaluate as measure
    from understudy.evaluate.metrics.results import HEADS, result_json
    from understudy.run.outputs import OutputFolder

    settings = given(values, config, of_run=("fresh",))
    real, synthetic = _tables(real, synthetic, read_file(config))
    output = settings.get("output") or (synthetic if Path(synthetic).is_dir() else None)
    if not (show or output):
        if not Path(synthetic).exists() and not glob(synthetic):  # noqa: PTH207 - a pattern is one of the user's
            raise ConfigError(f"There is no file or folder {synthetic!r}.", "Check its name.")
        raise ConfigError("No place given for the metrics.", "Name a folder with --output, or print them with --show.")
    with listener() as told:
        made = measure(real, synthetic, listener=told, **settings)
        if not show:
            told.say("--show prints them, and `understudy report` makes pages of them.")
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
    """The real table and the synthetic one: as given, one alone being the synthetic one, else as a run's file says."""
    if synthetic is None:
        real, synthetic = None, real or file.get("output")
    real = real or file.get("data")
    if not real or not synthetic:
        raise ConfigError(
            "Not both tables given.",
            "Write `understudy evaluate REAL SYNTHETIC`, or --config with the file of the run.",
        )
    return real, str(synthetic)


@click.group("audit")
def audit() -> None:
    """Try to break the promise: audits of mechanisms and of whole runs."""


@audit.command()
@click.argument("name", required=False)
@click.option("--list", "lists", is_flag=True, help="List the mechanisms that can be audited.")
@click.option("--runs", type=int, default=5000, show_default=True, help="Runs with the unit, and as many without.")
@click.option("--epsilon", default="4", show_default=True, help="What the mechanism is to promise.")
@click.option("--delta", default="1e-6", show_default=True, help="... at this delta; pure mechanisms promise it at 0.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="That no bound is too high.")
@json_option
def mechanism(
    name: str | None, *, lists: bool, runs: int, epsilon: str, delta: str, confidence: float, as_json: bool
) -> None:
    """Run the mechanism NAME (or `all`) on worst-case neighbours, and bound what it loses from below.

    The noise is the system's, as in a release: it has no seed, and no two audits are alike.
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
        say(f"Left out, for want of the extra `local`: {', '.join(missing)}.")
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
            f"A lower bound lies above the promise: {', '.join(broken)}.",
            "Audit it again with more runs, and if it stays so, release nothing with it and report it.",
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
@click.option("--output", metavar="FOLDER", help="Folder for the results, which stay in its private part.")
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
    help="Start over in a used folder, with other canaries and coins.",
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

    file = read_file(config)
    changes = {"output": output, "insecure_no_noise": insecure_no_noise, "fresh": fresh}
    own = AuditParameters.model_fields.keys()
    settings = run_config(given(changes, config, taken=run_names(file)))
    with listener() as told:
        done = attack(settings, AuditParameters(**given(values, config, taken=own)), listener=told)
    if as_json:
        show_json(done.to_json())
    else:
        _show_audit(done)
        click.echo(Path(settings.output or "") / "private" / AUDIT)
    if done.verdict == "VIOLATION":
        raise PrivacyError(
            f"The run leaks epsilon {done.largest_found:.2f} at least, and promises {done.epsilon:g}.",
            "Release nothing with it, and report it."
            if done.private
            else "Noise was off or seeded, and no promise holds: leave that out of the configuration.",
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
        click.echo(f"\nOf groups alone, at {done.confidence:.6g} confidence over all of them:")
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


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1)
@config_option
@click.option("--embedder", metavar="SPEC", help="Of topics and the map.  [default: builtin, or TF-IDF without it]")
@click.option("--seed", type=int, default=0, show_default=True, help="Steers the map and which texts are shown.")
@click.option("--responsible", metavar="NAME", default="", help="Who answers for the release, for the file.")
@click.option("--ledger", metavar="LOCATION", help="Where runs were booked; the internal report says what was left.")
@json_option
def report(
    runs: tuple[str, ...],
    *,
    config: str | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Write the report of each RUN, an --output folder of `run`, `release` or `generate`, and print where it is.

    release/report.html may be handed out; private/report.html is written too where something was measured on private
    texts, and stays inside.
    """
    from understudy import api

    require_no_configuration(runs)
    if not runs and not (file := read_file(config)).get("output"):
        raise ConfigError("No run given.", "Name its output folder, or --config with the file of the run.")
    runs = runs or (str(file["output"]),)
    made = api.report(*runs, **values)
    pages = [(str(each.shareable), each.internal and str(each.internal)) for each in made]
    fields = {"reports": [{"shareable": public, "internal": inside} for public, inside in pages]}
    answer(as_json, fields, *(page for each in made for page in (each.shareable, each.internal) if page is not None))


@click.command()
@click.argument("release", type=str)
@json_option
@release_size_option
def show(release: str, as_json: bool, max_release_bytes: int | None) -> None:
    """Show the privacy statement of the Release file RELEASE, or of an output folder."""
    from understudy.base.files import require_path
    from understudy.methods.registry import load_release
    from understudy.release.statement import load_statement
    from understudy.run.outputs import schema_of_table

    shareable = Path(require_path(release)) / "release"
    if (stated := shareable / "statement.json").is_file() and not any(shareable.glob("*.release")):  # of `generate`
        statement, schema = load_statement(stated), schema_of_table(shareable)
        if as_json:
            show_json({"statement": statement.to_json(), "schema": schema and schema.to_json()})
        else:
            click.echo(printable(statement.to_markdown(labelled=schema is not None and schema.label is not None)))
        return
    made = load_release(release, max_bytes=max_release_bytes)
    if as_json:
        parts: dict[str, Any] = {"statement": made.statement, "schema": made.schema, "noise_check": made.noise_check}
        show_json({name: part.to_json() for name, part in parts.items()} | {"parameters": dict(made.parameters)})
        return
    click.echo(printable(made.statement.to_markdown(labelled=made.schema.label is not None)))
    click.echo("## What came of it\n")
    for line in made.noise_lines:
        click.echo(f"- {printable(line)}")


@click.command()
@click.option("--runs", default="out", show_default=True, metavar="FOLDER", help="Where runs put their outputs.")
@click.option(
    "--ledger", metavar="LOCATION", help="As elsewhere.  [default: UNDERSTUDY_LEDGER, else a file in your state folder]"
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port on this machine's loopback.  [default: any that is free]",
)
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
def studio(*, runs: str, ledger: str | None, port: int, no_browser: bool) -> None:
    """Show plans, the ledger and runs in a browser on this machine, and start what is free. It charges nothing.

    Whoever has the address that is printed, with its token, sees what the internal report shows.
    """
    from understudy.studio.server import serve

    serve(runs=Path(runs), ledger=ledger, port=port, browser=not no_browser, show=click.echo, say=say)
