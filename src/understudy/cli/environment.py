"""Environment variables for options, named after the parameter, or after the verb and its option.

A flag overrides its variable, and a variable overrides the configuration file. Options that give up a protection, vouch
for something or spend the budget again must be typed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from understudy.base.errors import ConfigError, UnderstudyError, flags_in
from understudy.cli import output

_FILES = frozenset(
    (
        *("config", "data", "folder", "from_dir", "ledger", "location", "output", "real", "release", "runs", "scratch"),
        *("synthetic", "table", "holdout", "recipient", "public_texts", "vocabulary", "stop_words", "keywords"),
        *("prompt", "json_schema", "secrets_file", "public_corpus", "sign", "key", "path", "file"),
    )
)


def _known(command: str | None, name: str) -> Iterable[str]:
    if name == "method":
        from understudy.methods.registry import method_names

        return method_names()
    if name in ("llm", "spec"):
        from understudy.models.presets import PRESETS

        return ("builtin", *(("none",) if name == "llm" else ()), "hf:", "openai:", *(f"{each}:" for each in PRESETS))
    if name in ("embedder", "private_model", "local_model"):
        return ("builtin", "hf:", *(("none",) if command == "evaluate" and name == "embedder" else ()))
    if name in ("metrics", "classifiers"):
        from understudy.evaluate.parameters import CLASSIFIERS, FAMILIES

        return FAMILIES if name == "metrics" else CLASSIFIERS
    if command == "mechanism" and name == "name":
        from understudy.audit.mechanisms.audit import ALL, MECHANISMS

        return (*MECHANISMS, ALL)
    return ()


class Text(click.types.StringParamType):
    """A text option with shell completion."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        name = str(param.name)
        if name in _FILES:
            return [CompletionItem(incomplete, type="file")]
        return [
            CompletionItem(each)
            for each in dict.fromkeys(_known(ctx.command.name, name))
            if each.startswith(incomplete)
        ]


TEXT = Text()


PREFIX = "UNDERSTUDY_"
LEDGER = "UNDERSTUDY_LEDGER"
"""The ledger's location if neither a flag nor the file gives it: the one variable that the file overrides."""
ORIGINS = "understudy.origins"
"""The key in a context's ``meta`` of the values that were not typed: for each parameter the place that sets it, and its
name there."""
_TYPED = frozenset(("labels_from_data", "trust_endpoint", "fresh", "charge_metrics"))


def must_be_typed(name: str) -> bool:
    """Return whether the parameter ``name`` is refused if the environment sets it."""
    return name in _TYPED or name.startswith("insecure_") or name.endswith(("_is_public", "_are_public"))


class TypedOption(click.Option):
    """An option that only the command line may set; a ConfigError if an environment variable alone sets it."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        if isinstance(self.envvar, str) and os.environ.get(self.envvar) and not ctx.resilient_parsing:
            raise ConfigError(
                f"The environment variable {self.envvar} is set, but {self.opts[0]} must be typed.",
                f"Unset it; if you mean it, write {self.opts[0]} on the command line or in the configuration.",
            )
        return None


class OneOption(click.Option):
    """A repeatable option whose variable is one value, because names may contain spaces and colons."""

    def value_from_envvar(self, ctx: click.Context) -> Any:
        value = self.resolve_envvar_value(ctx)
        return None if value is None else (value,)


def variable(name: str) -> str:
    """Return the environment variable of the parameter or option ``name``.

    >>> variable("max-tokens")
    'UNDERSTUDY_MAX_TOKENS'
    """
    return PREFIX + name.lstrip("-").replace("-", "_").replace(" ", "_").upper()


def origins(error: UnderstudyError, places: Mapping[str, tuple[str, str]], words: Iterable[str]) -> str:
    """Return a line for each place, other than the command line (``words``), that sets options of an error."""
    if os.environ.get(LEDGER) and not {word.partition("=")[0] for word in words} & {"--ledger"}:
        places = {"ledger": ("the environment", LEDGER), **places}
    found: dict[str, list[str]] = {}
    for name in flags_in(f"{error.problem} {error.cure}"):
        if name in places:
            place, there = places[name]
            found.setdefault(place, []).append(there)
    return "\n".join(f"Set in {place}: {', '.join(names)}." for place, names in found.items())


def name_variables(command: click.Command, path: str) -> None:
    """Give each option of ``command`` and its subcommands its variable and its completion, and each command the options
    of output."""
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            name_variables(below, f"{path} {name}")
        return
    if any("--log-json" in param.opts for param in command.params):
        return
    for param in command.params:
        if type(param.type) is click.types.StringParamType:
            param.type = TEXT
        if isinstance(param, click.Option) and param.envvar is None and param.name != "location":
            param.envvar = variable(f"{path} {max(param.opts, key=len).lstrip('-')}")
    command.params += output.options()
