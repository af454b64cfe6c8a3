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
from understudy.base.heartbeat import PlainLines
from understudy.cli import output
from understudy.cli.environment import ORIGINS, name_variables, origins

_SECTIONS = {
    "Make": {
        "init": "Write a configuration to fill in, from a table's column names.",
        "check": "Read the private table as a run would; report its faults. Free.",
        "run": "Make a synthetic table from a private one: release, then generate.",
        "release": "Make a Release of a private table: the only step that reads it.",
        "generate": "Turn a Release into synthetic texts. Free, any number of times.",
        "plan": "Forecast what a run would cost and show. Reads no private data.",
        "topics": "Find the topics of a private table, with noisy sizes, as a page.",
        "baseline": "Write texts from the labels alone, as a baseline to compare with.",
        "export": "Write the synthetic table as CSV, JSON lines, chats or a dataset.",
    },
    "Judge": {
        "evaluate": "Compare a synthetic table with the real one.",
        "audit": "Attack mechanisms and whole runs, to test the stated guarantee.",
        "report": "Write the report of a run as one HTML file.",
        "show": "Show the privacy statement of a Release.",
        "verify": "Check the files of a run, and who signed them.",
        "studio": "Open pages in a browser: budgets, plans and runs.",
    },
    "Manage": {
        "ledger": "Show what each dataset has spent; create a ledger, open a dataset.",
        "keys": "Make a key that signs the files of runs.",
        "models": "List, pull and check language models and embedders.",
        "config": "Print the JSON Schema of the YAML configuration.",
        "secrets": "Count the secrets of a private table; write the incidence file.",
    },
}
VERBS = {verb: f"understudy.cli.verbs.{verb}" for verbs in _SECTIONS.values() for verb in verbs}
"""Each verb, and the module that defines it."""
_RESUMABLE = (["run"], ["release"], ["generate"], ["topics"], ["baseline"])
INTERNAL_ERROR = 70
_python_shows = warnings.showwarning
INTERRUPTED = 130


class _LazyGroup(click.Group):
    """A group that imports a verb's module when the verb is called; ``--help`` imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            near = get_close_matches(cmd_name, VERBS, n=2, cutoff=0.5)
            if near:
                ctx.fail(f"No such command {cmd_name!r}. Did you mean {' or '.join(map(repr, near))}?")
            return None
        with PlainLines(output.say).alive():
            command: click.Command = getattr(import_module(VERBS[cmd_name]), cmd_name)
        name_variables(command, cmd_name)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        output.begin(as_json="--log-json" in args)  # before the rest is checked
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except UnderstudyError as error:
            error.cure = f"{error.cure}\n{origins(error, ctx.meta.get(ORIGINS, {}), sys.argv)}".strip()
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for section, verbs in _SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl(list(verbs.items()))


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="understudy")
def cli() -> None:
    """Turn a private table of texts into a differentially private synthetic one.

    \b
    Start with a table of your own:
      understudy init tickets.csv --output tickets.yaml   # fill in what it asks
      understudy run --config tickets.yaml                # the synthetic table
      understudy report tickets-synthetic                 # its report
    """


cli.params += output.options()


def main() -> None:
    """Run the command line; show errors as two sentences, without a traceback, which could quote a private text."""
    warnings.showwarning = _show_warning
    if os.environ.get("_UNDERSTUDY_COMPLETE", "").endswith("_complete"):  # an error would disturb the shell's line
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
    except BaseException as error:  # a panic of a Rust library is not an Exception
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
    """Name the environment variable that a wrong value comes from."""
    option = error.param if isinstance(error, click.BadParameter) else None
    named = option is not None and isinstance(option.envvar, str) and os.environ.get(option.envvar)
    if option is not None and named and not {word.partition("=")[0] for word in sys.argv} & {*option.opts}:
        output.SPEECH.error("The value is that of the environment variable %s.", option.envvar)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Show our warnings without the line of code, others as Python does."""
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
