"""Flags generated from the pydantic models, so that YAML, flags and Python agree, also for plug-in methods."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from click.core import ParameterSource
from pydantic.fields import FieldInfo

from understudy.base.errors import ConfigError
from understudy.base.parameters import Parameters, is_free, kinds_of
from understudy.cli.environment import LEDGER, ORIGINS, TEXT, OneOption, TypedOption, must_be_typed, variable
from understudy.cli.output import say

TABLE = ("text", "roles", "language", "label", "labels", "topics", "columns", "owner")
WRITING = ("document_type", "llm", "base_url", "records", "records_per_label", "output")
_OF_METHODS = (
    *("vocabulary", "vocabulary_is_public", "length", "rounds", "population", "public_corpus"),
    *("public_corpus_is_public", "batches", "sampling_rate", "exemplars"),
    *("steps", "unfinished", "teachers", "queries"),
)
_RECORDS = ("records", "records_per_label")
_FREE_MARK = "[free]"

CONFIG, METHOD = variable("config"), variable("method")
config_option = click.option(
    "--config", default=None, envvar=CONFIG, metavar="FILE", help="YAML configuration; flags override it."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
release_size_option = click.option(
    "--max-release-bytes",
    type=click.IntRange(min=1),
    default=None,
    help="Largest unpacked size of the Release, in bytes. [default: 268435456, at most 100 times the file's size]",
)


def options_of(group: type[Parameters]) -> list[click.Option]:
    """Return one flag per field; all default to "not given", so that the configuration file's values apply."""
    return [_option(name, field) for name, field in group.flags().items()]


def given(
    values: dict[str, Any], config: str | None, *, taken: Collection[str] | None = None, of_run: Collection[str] = ()
) -> dict[str, Any]:
    """Return the values of the configuration file, overridden by the environment's, overridden by the flags.

    Args:
        taken: the names that the verb reads from the file, which may serve all verbs. Default: those of its flags.
        of_run: names to ignore in a run's file (one that names ``data``), where they mean something else.
    """
    context = click.get_current_context(silent=True)
    if taken is None and context is not None and isinstance(context.command, ParametersCommand):
        taken = context.command.taken
    file = read_file(config)
    dropped = set(of_run) if "data" in file else set[str]()
    if taken is not None and not file.keys() <= (meant := set(taken)):
        dropped |= known_names(file) - meant
    file = {name: value for name, value in file.items() if name not in dropped}
    told = {name: value for name, value in values.items() if value not in (None, ())}
    here = {} if context is None else {name: context.get_parameter_source(name) for name in told}
    around = {name: told[name] for name, source in here.items() if source is ParameterSource.ENVIRONMENT}
    if context is not None:
        variables = {option.name: option.envvar for option in context.command.get_params(context)}
        origins = {name: (Path(str(config)).name, name) for name in file.keys() - told.keys() if file[name] is not None}
        origins |= {name: ("the environment", str(variables[name])) for name in around}
        context.meta[ORIGINS] = origins
        if around:
            say(f"From the environment: {', '.join(sorted(str(variables[name]) for name in around))}.")
    made: dict[str, Any] = {}
    for layer in (file, around, {n: told[n] for n in told if n not in around}):
        for first, second in (_RECORDS, _RECORDS[::-1]):
            if first in layer and second not in layer:
                made.pop(second, None)  # two options for one thing: the later layer wins
        made |= layer
    return made


def read_file(config: str | None) -> dict[str, Any]:
    """Return the configuration file's values, for any verb; empty without a file. A command reads its file once."""
    from understudy.run.settings import read_config

    if not config:
        return {}
    context = click.get_current_context(silent=True)
    known = {} if context is None else context.meta.setdefault(CONFIG, {})
    if config not in known:
        known[config] = read_config(config)
    return dict(known[config])


def known_names(values: Mapping[str, Any]) -> set[str]:
    """Return every name that some verb knows, given the method that these values name: one file serves all verbs."""
    from understudy.audit.running import AuditParameters
    from understudy.evaluate.parameters import EvaluationConfig
    from understudy.methods.registry import method_class, method_names
    from understudy.run.baseline import BaselineParameters
    from understudy.run.settings import RUN_GROUPS, configured_method

    groups: list[type[Parameters]] = [*RUN_GROUPS, EvaluationConfig, AuditParameters, BaselineParameters]
    if (name := configured_method(values)) in method_names():
        groups += [method_class(name).parameters, method_class(name).generation_parameters]
    return {"method"}.union(*(group.model_fields for group in groups))


def require_no_configuration(words: Iterable[str]) -> None:
    """Raise ConfigError if one of the words, which name a table, a Release or a folder, is a configuration file."""
    for word in words:
        if word.lower().endswith((".yaml", ".yml")):
            raise ConfigError(f"{word!r:.80} is a configuration file.", f"Write --config {word:.80}.")


class ParametersCommand(click.Command):
    """A command whose flags come from parameter groups.

    Args:
        groups: returns the groups for a command line, which may name a method.
        main: the parameters that ``--help`` shows, in addition to the methods' main ones; ``--help-all`` shows all.
        without: parameters that are not flags of this command.
        ignored: returns the parameters that the command line's method does not use: only ``--help-all`` shows them.
    """

    def __init__(
        self,
        *args: Any,
        groups: Callable[[Sequence[str]], Sequence[type[Parameters]]],
        main: Sequence[str],
        without: Iterable[str] = (),
        ignored: Callable[[Sequence[str]], Iterable[str]] = lambda _args: (),
        **named: Any,
    ) -> None:
        super().__init__(*args, **named)
        self._groups, self._main, self._without = groups, (*main, *_OF_METHODS), set(without)
        self._ignored, self._unused = ignored, set[str]()
        self._titled: list[tuple[str, list[click.Option]]] = []
        self.taken: set[str] = set()
        """Parameters of the command, both flags and those that only a file may set."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        self._titled, seen = [], set(self._without)
        self._unused = set(self._ignored(tuple(args)))
        self.taken = {str(param.name) for param in self.params}
        named = {word[2:].split("=")[0].replace("-", "_") for word in args if word.startswith("--")}
        for group in self._groups(tuple(args)):
            if no_flags := sorted(named & group.model_fields.keys() - group.flags().keys()):
                name = no_flags[0]
                about = " ".join((group.model_fields[name].description or "").replace("``", "").split())
                raise ConfigError(
                    f"--{name.replace('_', '-')} is not a flag. {about}",
                    f"Write `{name}: ...` in the configuration file (--config), or give {name}=... in Python.",
                )
            self.taken |= group.model_fields.keys()
            options = [option for option in options_of(group) if option.name not in seen]
            self._titled.append(((group.__doc__ or group.__name__).split("\n")[0].rstrip("."), options))
            seen |= {str(option.name) for option in options}
        if ctx.resilient_parsing:  # the line is not finished
            return super().parse_args(ctx, args)
        ctx.allow_extra_args = True  # refused below, with the missing flag
        rest = super().parse_args(ctx, args)
        places = [str(param.name) for param in self.params if isinstance(param, click.Argument)]
        require_no_configuration((*ctx.args, *(ctx.params[name] or "" for name in places if name != "config")))
        for word in ctx.args:
            if "data" in self.taken:
                raise ConfigError(f"{word!r:.80} has no flag before it.", f"Give a private table as --data {word:.80}.")
            ctx.fail(f"Got unexpected extra argument ({word})")
        return rest

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        made = {option.name: option for _, options in self._titled for option in options}
        return [*super().get_params(ctx), _HELP_ALL, *made.values()]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        everything = ctx.meta.get(_HELP_ALL.name, False)
        left_out = 0
        for title, options in self._titled:
            shown = [
                option
                for option in options
                if everything or (option.name in self._main and option.name not in self._unused)
            ]
            if title == self._titled[-1][0]:
                shown = shown or options  # a plug-in method has no main ones
            left_out += len(options) - len(shown)
            shown.sort(key=lambda option: (*self._main, option.name).index(option.name))
            _section(ctx, formatter, title, shown)
        every = [param for param in super().get_params(ctx) if isinstance(param, click.Option)]
        own = [option for option in every if everything or "--log-json" not in option.opts]  # -v and -q matter more
        left_out += len(every) - len(own)
        _section(ctx, formatter, "Other", [*own, _HELP_ALL])
        if any(_FREE_MARK in (option.help or "") for _, options in self._titled for option in options):
            formatter.write_paragraph()
            formatter.write_text(f"{_FREE_MARK}: you may change this when you resume a run, at no charge.")
        if left_out:
            formatter.write_paragraph()
            formatter.write_text(f"{left_out} more options: --help-all.")


def _section(ctx: click.Context, formatter: click.HelpFormatter, title: str, options: Sequence[click.Option]) -> None:
    if records := [record for option in options if (record := option.get_help_record(ctx))]:
        with formatter.section(title):
            formatter.write_dl(records)


def _show_all(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.meta[str(option.name)] = True
        click.echo(ctx.get_help())
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help="Show every option."
)


def _option(name: str, field: FieldInfo) -> click.Option:
    flag = "--" + name.replace("_", "-")
    kinds = kinds_of(field)
    annotation = kinds[0] if len(kinds) == 1 else str
    default = field.get_default()
    help_text = (field.description or "").replace("``", "").replace("\n", " ")
    if default is not None and default is not False and default != ():  # 0 is a default, although 0 == False
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        help_text += f" [default: {shown}]"
    if is_free(field):
        help_text += f" {_FREE_MARK}"
    own = variable(name)
    choices = get_args(annotation) if get_origin(annotation) is Literal else ()
    kind = TypedOption if must_be_typed(name) else click.Option
    if annotation is bool:
        return kind([f"{flag}/--no-{name.replace('_', '-')}"], default=None, help=help_text, envvar=own)
    if name == "data":
        return OneOption([flag], multiple=True, type=TEXT, help=help_text, metavar="SOURCE", envvar=own)
    return kind(
        [flag],
        type=click.Choice(choices) if choices else _TYPES.get(annotation, TEXT),
        default=None,
        help=help_text,
        envvar=None if own == LEDGER else own,  # the ledger reads this variable itself, after the file
    )


_TYPES: dict[Any, click.ParamType[Any]] = {int: click.INT, float: click.FLOAT}


def value_of(flag: str, args: Iterable[str]) -> str | None:
    """Return a flag's value before click parses the words, else its variable's; the last one counts, as in click."""
    words = list(args)
    found = None
    for position, word in enumerate(words):
        if word == flag and position + 1 < len(words):
            found = words[position + 1]
        elif word.startswith(flag + "="):
            found = word.split("=", 1)[1]
    return found or os.environ.get(variable(flag)) or None
