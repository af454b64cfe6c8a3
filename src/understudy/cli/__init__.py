"""The command line: thin verbs over the Python API, loaded only when they are called."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from understudy import __version__
from understudy.cli.output import say
from understudy.errors import UnderstudyError, UnderstudyWarning
from understudy.files import disk_faults

_SECTIONS = {
    "Make": {
        "init": "A configuration to begin with, from the names of a table's columns.",
        "run": "From a private table to a synthetic one: release, then generate.",
        "release": "Make a Release of a private table: the only step that reads it.",
        "generate": "Turn a Release into synthetic texts. Free, any number of times.",
        "plan": "Forecast what a run would release, cost and buy. Reads no private data.",
        "baseline": "Texts from the labels alone, without private data: the baseline to compare with.",
    },
    "Judge": {
        "evaluate": "Measure a synthetic table against the real one: fidelity, utility, leakage.",
        "audit": "Try to break the promise: audits of mechanisms and of whole runs.",
        "report": "Write the report of a run as one HTML file, or compare several runs.",
        "show": "Show the privacy statement of a Release.",
        "studio": "Pages in a browser: what budgets buy, what was spent, what runs made.",
    },
    "Manage": {
        "ledger": "What each dataset has spent: create, open, show, history.",
        "models": "Language models and embedders: list, pull, check.",
        "config": "The JSON Schema of the YAML configuration.",
        "secrets": "Secrets of a private table: the incidence file, and counts for its owner.",
    },
}
VERBS = {verb: f"understudy.cli.{section.lower()}" for section, verbs in _SECTIONS.items() for verb in verbs}
"""Each verb, and the module that defines it."""
_RENAMED = {"inspect": "show", "schema": "config schema", "zero-shot": "baseline"}
_RESUMABLE = (["run"], ["release"], ["generate"], ["baseline"])
INTERNAL_ERROR = 70
_python_shows = warnings.showwarning
INTERRUPTED = 130


class _LazyGroup(click.Group):
    """Imports a verb's module when the verb is called; ``--help`` imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _RENAMED:
            ctx.fail(f"No such command {cmd_name!r}. It is `understudy {_RENAMED[cmd_name]}` now.")
        if cmd_name not in VERBS:
            return None
        command: click.Command = getattr(import_module(VERBS[cmd_name]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for section, verbs in _SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl(list(verbs.items()))


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="understudy")
def cli() -> None:
    """Differentially private synthetic stand-ins for private text corpora."""


def main() -> None:
    """Errors in two sentences, with documented exit codes; no traceback, which could quote a private text."""
    warnings.showwarning = _show_warning
    try:
        with disk_faults(Path("the output")):
            cli.main(prog_name="understudy", standalone_mode=False)
    except UnderstudyError as error:
        say(f"Error: {error.problem}\n{error.cure}")
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        resumes = sys.argv[1:2] in _RESUMABLE or "--charge-metrics" in sys.argv
        click.echo(f"Interrupted.{' The same command (without --fresh) resumes.' * resumes}", err=True)
        sys.exit(INTERRUPTED)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except BrokenPipeError:
        sys.exit(INTERNAL_ERROR)
    except Exception as error:
        if os.environ.get("UNDERSTUDY_DEBUG"):
            raise
        click.echo(
            f"Internal error: {type(error).__name__} in {_place(error)}.\n"
            "This is a bug. Its message may quote private text, so it is not shown; UNDERSTUDY_DEBUG=1 shows all.",
            err=True,
        )
        sys.exit(INTERNAL_ERROR)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Ours in words, without the line of code; others as Python shows them."""
    if issubclass(category, UnderstudyWarning):
        click.echo(f"Warning: {message}", err=True)
    else:
        _python_shows(message, category, *place, **more)


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown place"
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}, line {trace.tb_lineno}"  # noqa: PTH119
