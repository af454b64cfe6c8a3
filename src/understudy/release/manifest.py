"""The form of ``release.json``: what a Release says of itself, every field of the type and in the range that it has."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from understudy.statement.form import MethodName, StatementForm
from understudy.untrusted import Form

FORMAT = "understudy-release"
FORMAT_VERSION = 2
"""1 had untyped charges and noise checks."""
_Label = str | bool | int | float


class _Schema(Form):
    text: str
    label: str | None
    labels: list[_Label]
    record_columns: list[str]


_Number = int | float


class _Fact(Form):
    name: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")]
    value: str | _Number | list[_Number]
    title: str


class _Facts(Form):
    entries: Annotated[list[_Fact], Field(max_length=200)]
    warnings: Annotated[list[str], Field(max_length=20)]


class _Manifest(Form):
    method: MethodName
    parameters: dict[str, Any]
    schema_: _Schema = Field(alias="schema")
    statement: StatementForm
    noise_check: _Facts
    sha256: dict[str, str]


def check_manifest(fields: dict[str, Any]) -> None:
    """That every field is there and of its type.

    Raises:
        ValueError: one is not.
    """
    known = _Manifest.model_validate(fields)
    if known.statement.method != known.method:
        raise ValueError("the statement is of another method")
    labels = known.schema_.labels
    distinct = {(isinstance(label, bool), label) for label in labels}
    if len(distinct) != len(labels) or (labels and not known.schema_.label):
        raise ValueError("the labels are not a label set")
