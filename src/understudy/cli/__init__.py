"""The command line: thin verbs over the Python API, loaded only when they are called."""

from __future__ import annotations

import os
import sys
import warnings
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from understudy import __version__
from understudy.base.errors import UnderstudyError, UnderstudyWarning
from understudy.base.files import disk_faults
from understudy.cli import output
from understudy.cli.environment import name_variables

_SECTIONS = {
    "Make": {
        "init": "A configuration to begin with, from the names of a table's columns.",
        "check": "Read the whole private table as a run would, and say what is wrong. Free.",
        "run": "From a private table to a synthetic one: release, then generate.",
        "release": "Make a Release of a private table: the only step that reads it.",
        "generate": "Turn a Release into synthetic texts. Free, any number of times.",
        "plan": "Forecast what a run would release, cost and buy. Reads no private data.",
        "topics": "What a private table is about: topics with names and noisy sizes, as a page.",
        "baseline": "Texts from the labels alone, without private data: the baseline to compare with.",
        "export": "The synthetic table as chat JSON lines, a Hugging Face dataset, or CSV.",
    },
    "Judge": {
        "evaluate": "Measure a synthetic table against the real one: fidelity, utility, leakage.",
        "audit": "Try to break the promise: audits of mechanisms and of whole runs.",
        "report": "Write the report of a run as one HTML file.",
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
VERBS = {verb: f"understudy.cli.verbs.{verb}" for verbs in _SECTIONS.values() for verb in verbs}
"""Each verb, and the module that defines it."""
_RENAMED = {"inspect": "show", "schema": "config schema", "zero-shot": "baseline"}
_RESUMABLE = (["run"], ["release"], ["generate"], ["topics"], ["baseline"])
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
            near = get_close_matches(cmd_name, VERBS, n=2, cutoff=0.5)
            if near:
                ctx.fail(f"No such command {cmd_name!r}. Did you mean {' or '.join(map(repr, near))}?")
            return None
        command: click.Command = getattr(import_module(VERBS[cmd_name]), cmd_name)
        name_variables(command, cmd_name)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        output.begin(as_json="--log-json" in args)  # before anything can be wrong with the rest
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for section, verbs in _SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl(list(verbs.items()))


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="understudy")
def cli() -> None:
    """Differentially private synthetic stand-ins for private text corpora."""


cli.params += output.options()


def main() -> None:
    """Errors in two sentences, with documented exit codes; no traceback, which could quote a private text."""
    warnings.showwarning = _show_warning
    if os.environ.get("_UNDERSTUDY_COMPLETE", "").endswith("_complete"):  # a shell's line is no place for an error
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    try:
        with disk_faults(Path("the output")):
            cli.main(prog_name="understudy", standalone_mode=False)
    except UnderstudyError as error:
        if output.as_json():
            output.SPEECH.error("%s", error.problem, extra={"fields": {"cure": error.cure}})
        else:
            output.SPEECH.error("Error: %s\n%s", error.problem, error.cure)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        if output.as_json():
            output.SPEECH.error("%s", error.format_message())
        else:
            error.show()
        _name_variable(error)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        resumes = sys.argv[1:2] in _RESUMABLE or "--charge-metrics" in sys.argv
        output.SPEECH.error("Interrupted.%s", " The same command (without --fresh) resumes." * resumes)
        sys.exit(INTERRUPTED)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except BrokenPipeError:
        sys.exit(INTERNAL_ERROR)
    except SystemExit:
        raise
    except BaseException as error:  # a panic of a Rust library is no Exception
        if os.environ.get("UNDERSTUDY_DEBUG"):
            raise
        output.SPEECH.error(
            "Internal error: %s in %s.\n"
            "This is a bug. Its message may quote private text, so it is not shown; UNDERSTUDY_DEBUG=1 shows all.",
            type(error).__name__,
            _place(error),
        )
        sys.exit(INTERNAL_ERROR)
    finally:
        output.begin(as_json=False)


def _name_variable(error: click.ClickException) -> None:
    """Say where a wrong value comes from that nobody typed."""
    option = error.param if isinstance(error, click.BadParameter) else None
    named = option is not None and isinstance(option.envvar, str) and os.environ.get(option.envvar)
    if option is not None and named and not {word.partition("=")[0] for word in sys.argv} & {*option.opts}:
        output.SPEECH.error("The value is that of the environment variable %s.", option.envvar)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Ours in words, without the line of code; others as Python shows them."""
    if issubclass(category, UnderstudyWarning):
        message = message.args[0] if isinstance(message, UnderstudyWarning) else message  # of flags
        output.SPEECH.warning("%s%s", "" if output.as_json() else "Warning: ", message)
    elif output.as_json():
        output.SPEECH.warning("%s: %s", category.__name__, message)
    else:
        _python_shows(message, category, *place, **more)


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown place"
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}, line {trace.tb_lineno}"  # noqa: PTH119
