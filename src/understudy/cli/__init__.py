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
from understudy.cli.printable import printable
from understudy.errors import UnderstudyError, UnderstudyWarning
from understudy.files import disk_faults

_VERBS = {
    "plan": "understudy.cli.private:plan",
    "run": "understudy.cli.private:run",
    "release": "understudy.cli.private:release",
    "generate": "understudy.cli.generate:generate",
    "inspect": "understudy.cli.inspect:inspect",
    "zero-shot": "understudy.cli.zero_shot:zero_shot",
    "evaluate": "understudy.cli.evaluate:evaluate",
    "audit": "understudy.cli.audit:audit",
    "report": "understudy.cli.report:report",
    "ledger": "understudy.cli.ledger:ledger",
    "models": "understudy.cli.models:models",
    "schema": "understudy.cli.schema:schema",
    "secrets": "understudy.cli.secrets:secrets",
}
_SHORT = {
    "plan": "Show what a run would release, cost and buy. Reads no private data.",
    "run": "From a private table to a synthetic one: release, then generate.",
    "release": "Make a Release of a private table: the only step that reads it.",
    "generate": "Turn a Release into synthetic texts. Free, any number of times.",
    "inspect": "Show the privacy statement of a Release.",
    "zero-shot": "Texts from the labels alone, without private data: the floor to compare with.",
    "evaluate": "Measure a synthetic table against the real one: fidelity, utility, leakage.",
    "audit": "Try to break the promise: audits of mechanisms and of whole runs.",
    "report": "Write the report of a run as one HTML file, or compare several runs.",
    "ledger": "What each dataset has spent: create, open, show, history.",
    "models": "Language models and embedders: list, pull, check.",
    "schema": "Print the JSON Schema of the YAML configuration.",
    "secrets": "Secrets of a private table: the incidence file, and counts for its owner.",
}
_RESUMABLE = (["run"], ["release"], ["generate"], ["zero-shot"])
INTERNAL_ERROR = 70
_python_shows = warnings.showwarning
INTERRUPTED = 130


class _LazyGroup(click.Group):
    """Imports a verb's module when the verb is called; ``--help`` imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _VERBS:
            return None
        module, name = _VERBS[cmd_name].split(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(verb, _SHORT[verb]) for verb in _VERBS])


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
        click.echo(printable(f"Error: {error.problem}\n{error.cure}"), err=True)
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
