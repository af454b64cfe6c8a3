"""Define the base of every parameter model: frozen, strict about names, and with understudy's error."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from understudy.base.errors import ConfigError, did_you_mean
from understudy.base.listed import comma_separated

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

_ONE_OR_SEVERAL = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})


def _one_or_several(value: object) -> object:
    if isinstance(value, (str, os.PathLike)):
        value = (value,)
    if not isinstance(value, (list, tuple)):
        raise ValueError("expected a string, or several")
    return tuple(os.fspath(each) if isinstance(each, os.PathLike) else each for each in value)


OneOrSeveral = Annotated[tuple[str, ...], BeforeValidator(_one_or_several), _ONE_OR_SEVERAL]
"""Strings; a single one need not be in a list."""
CommaSeparated = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda v: _one_or_several(tuple(comma_separated(v)) if isinstance(v, str) else v)),
    _ONE_OR_SEVERAL,
]
"""Strings; one string may contain several, separated by commas."""


_Group = TypeVar("_Group", bound="Parameters")

_T = TypeVar("_T")
_NO_FLAG = object()
Ablation = Annotated[_T, _NO_FLAG]
"""A setting of YAML and Python that is not a flag: variants of a method are compared by files or code."""

_FREE = object()
Free = Annotated[_T, _FREE]
"""A setting that only affects the written texts. Noisy values depend on it only through texts that are in a Release or
are voted on, so a resumed run may change it without a charge."""


def kinds_of(field: FieldInfo) -> list[Any]:
    """Return the types that a field's value may have, other than None."""
    union = get_origin(field.annotation) in (Union, UnionType)
    return [kind for kind in (get_args(field.annotation) if union else (field.annotation,)) if kind is not NoneType]


def is_free(field: FieldInfo) -> bool:
    return _FREE in field.metadata


LISTED = "docs/configuration.md and the method's own page list the parameters, and so does `--help`."

LARGEST = 2**53
"""Up to here whole numbers are also exact as floats, and fit into the integers of arrays."""


def public_file(default: Any) -> Any:
    """Make a field that names a public file: a resumed run detects changes by its content."""
    return Field(default, json_schema_extra={"format": "path"})


def private_file() -> Any:
    """Make a field that names a private file, or None: its name is not in any Release."""
    return Field(None, json_schema_extra={"format": "private-path"})


class Parameters(BaseModel):
    """A pydantic model whose construction raises :class:`~understudy.base.errors.ConfigError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**{n: os.fspath(v) if isinstance(v, os.PathLike) else v for n, v in values.items()})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            near = type(self).model_fields if first["type"] == "extra_forbidden" else ()
            raise ConfigError(
                _problem(error), did_you_mean("".join(map(str, first["loc"][-1:])), near, LISTED)
            ) from None

    @field_validator("*", mode="before")
    @classmethod
    def _plain_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Check that a number is not a boolean, and not so large that arithmetic with it would fail."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        kinds = {annotation, *get_args(annotation)}
        if isinstance(value, bool) and bool not in kinds and kinds & {int, float}:
            raise ValueError("expected a number")
        if isinstance(value, int) and abs(value) > LARGEST:
            raise ValueError(f"expected a number of at most {LARGEST}")
        return value

    @classmethod
    def flags(cls) -> dict[str, FieldInfo]:
        """Return the fields that are flags of the command line."""
        return {name: field for name, field in cls.model_fields.items() if _NO_FLAG not in field.metadata}

    def part(self, group: type[_Group], **others: Any) -> _Group:
        """Return the fields of one group as a model of that group. Keyword arguments replace or add values."""
        return group(**{name: getattr(self, name) for name in group.model_fields if name not in others}, **others)

    @classmethod
    def files(cls, *, private: bool = False) -> tuple[str, ...]:
        """Return the fields that name public files, or private ones."""
        extra = {"format": "private-path" if private else "path"}
        return tuple(name for name, field in cls.model_fields.items() if field.json_schema_extra == extra)

    @property
    def file_hashes(self) -> dict[str, str]:
        """Return the SHA-256 of every public file that a field names."""
        named = {name: value for name in self.files() if isinstance(value := getattr(self, name), str)}
        files = {name: Path(value) for name, value in named.items() if os.path.isfile(value)}  # noqa: PTH113 - no error
        return {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}


def _problem(error: ValidationError) -> str:
    errors = error.errors(include_url=False)
    field = errors[0]["loc"][:1]
    first = max((each for each in errors if each["loc"][:1] == field), key=lambda each: len(_places(each)))
    name = ".".join(map(str, (*field, *_places(first)))) or "parameters"
    if first["type"] == "extra_forbidden":
        return f"There is no parameter {name!r}."
    forms = dict.fromkeys(each["msg"] for each in errors if each["input"] is first["input"])  # those of a union
    others = (form.removeprefix("Input should be ") for form in list(forms)[1:] if form.startswith("Input should be "))
    message = " or ".join([first["msg"].removeprefix("Value error, "), *others]).replace("valid tuple", "list")
    message = message[:1].lower() + message[1:].rstrip(".")
    if not first["loc"]:
        return f"The parameters contradict each other: {message}."
    if first["type"] == "missing":
        return f"The parameter {name!r} is missing."
    return f"Parameter {name!r}: {message}, got {_shown(first['input'])}."


def _places(error: ErrorDetails) -> list[int]:
    """Return the index in a list of the problem. After a field, pydantic also names the types of a union."""
    return [part for part in error["loc"] if isinstance(part, int)]


def _shown(value: object) -> str:
    """Return a single value in words; for anything else the type, since a table or its rows may be private."""
    if value is None or isinstance(value, (str, int, float)):
        try:
            return f"{value!r:.80}"
        except ValueError:
            return "a number of thousands of digits"
    return f"an object of the type {type(value).__name__}"
