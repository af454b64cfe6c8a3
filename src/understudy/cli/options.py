"""Flags made from the pydantic models, so that YAML, flags and Python never differ, plug-in methods' included."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import click
from pydantic.fields import FieldInfo

from understudy.config import DEFAULT_METHOD, configured_method, read_config
from understudy.methods.registry import method_class
from understudy.parameters import Parameters

MAX_RELEASE_BYTES = "Bytes that the Release may unpack to. [default: 268435456, at most 100 times its own size]"
_RECORDS = ("records", "records_per_label")


def options_of(group: type[Parameters]) -> list[click.Option]:
    """One flag a field; all default to "not given", so that a configuration file shows through."""
    return [_option(name, field) for name, field in group.model_fields.items()]


def given(values: dict[str, Any], config: str | None) -> dict[str, Any]:
    """The values of the configuration file, overridden by the flags that were given."""
    flags = {name: value for name, value in values.items() if value not in (None, ())}
    written = read_config(config) if config else {}
    for first, second in (_RECORDS, _RECORDS[::-1]):
        if first in flags and second not in flags:
            written.pop(second, None)  # two ways to say one thing: the flag counts
    return {**written, **flags}


class ParametersCommand(click.Command):
    """A command whose flags come from parameter groups, and from the method of this call."""

    groups: Sequence[type[Parameters]] = ()
    _method = DEFAULT_METHOD

    def method_of(self, args: Sequence[str]) -> str:
        """The method's name: of ``--method``, else of the configuration file, else the default."""
        config = _value_of("--config", args)
        return _value_of("--method", args) or configured_method(read_config(config) if config else {})

    def groups_of(self, method: type[Any]) -> Sequence[type[Parameters]]:  # noqa: ARG002 - for commands that differ
        """The groups of flags beside the method's own."""
        return self.groups

    def method_parameters(self, method: type[Any]) -> type[Parameters]:
        """Those of the method's parameters that are flags here."""
        parameters: type[Parameters] = method.parameters
        return parameters

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        self._method = self.method_of(args)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        made = {option.name: option for group in self._all_groups() for option in options_of(group)}
        return [*super().get_params(ctx), *made.values()]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group in self._all_groups():
            records = [record for option in options_of(group) if (record := option.get_help_record(ctx))]
            title = (group.__doc__ or group.__name__).split("\n")[0].rstrip(".")
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
        with formatter.section("Other"):
            options = [param for param in super().get_params(ctx) if isinstance(param, click.Option)]
            own = [option.get_help_record(ctx) for option in options]
            formatter.write_dl([record for record in own if record])

    def _all_groups(self) -> list[type[Parameters]]:
        method = method_class(self._method)
        return [*self.groups_of(method), self.method_parameters(method)]


def _option(name: str, field: FieldInfo) -> click.Option:
    flag = "--" + name.replace("_", "-")
    annotation = _without_none(field.annotation)
    default = field.get_default()
    help_text = (field.description or "").replace("``", "").replace("\n", " ")
    if default is not None and default is not False and default != ():  # 0 is a default, and equal to False
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        help_text += f" [default: {shown}]"
    if annotation is bool:
        return click.Option([f"{flag}/--no-{name.replace('_', '-')}"], default=None, help=help_text)
    if name == "data":
        return click.Option([flag], multiple=True, help=help_text, metavar="FILE")
    return click.Option([flag], type=_click_type(annotation), default=None, help=help_text)


def _click_type(annotation: Any) -> click.ParamType[Any]:
    if typing.get_origin(annotation) is Literal:
        return click.Choice(list(typing.get_args(annotation)))
    if annotation is int:
        return click.INT
    if annotation is float:
        return click.FLOAT
    return click.STRING


def _without_none(annotation: Any) -> Any:
    """``int | None`` is ``int``; unions of several types are read as text."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else str
    return annotation


def _value_of(flag: str, args: Iterable[str]) -> str | None:
    """The value of a flag before click has parsed anything: the last one counts, as in click."""
    words = list(args)
    found = None
    for position, word in enumerate(words):
        if word == flag and position + 1 < len(words):
            found = words[position + 1]
        elif word.startswith(flag + "="):
            found = word.split("=", 1)[1]
    return found
