"""The base of every parameter model: frozen, strict about names, and with our own error."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from understudy.errors import ConfigError


class Parameters(BaseModel):
    """A pydantic model whose construction raises :class:`~understudy.errors.ConfigError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(_problem(error), "See the documentation of this parameter, or `--help`.") from None


def _problem(error: ValidationError) -> str:
    """The first problem in one sentence."""
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"]) or "parameters"
    if first["type"] == "extra_forbidden":
        return f"There is no parameter {name!r}."
    message = first["msg"].removeprefix("Value error, ")
    return f"Parameter {name!r}: {message[:1].lower()}{message[1:].rstrip('.')}, got {first['input']!r:.80}."
