"""Define the meaning of the columns of a table of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from understudy.base.errors import ConfigError
from understudy.schema.columns import Column, require_own_names
from understudy.schema.labels import LABEL_TYPES, Label, LabelType, Places
from understudy.schema.transcript import BEGINS, CALLS, ENDS, PLAIN, TURNS, TextForm


@dataclass(frozen=True)
class Schema:
    """The columns of the text, the label, the owner, the secrets and typed values. Public: it contains no row of the
    table.

    Attributes:
        text: the text column, or that of the dialogue; None with ``record_columns`` or the form's fields.
        form: the parts that a text has, if any: several columns, or a dialogue's turns.
        record_columns: columns that together make a JSON record, which is the text; keys in this order.
        label: the label column, if any.
        labels: the label set, each label in the type it has in the output.
        label_type: the type that label cells are read as; None keeps each cell's own (JSON).
        labels_declared: False if the set was read from the data: then it is not protected.
        owner: the column that says whose record a row is, if any.
        secrets: columns that list a row's secrets.
        declared: all typed columns in their order, including identifiers that are made up.
        typed: those of them whose cells are in the batches.
        crossed: others of them, whose cells make up the label; ``labels`` are their combinations.
    """

    text: str | None = None
    record_columns: tuple[str, ...] = ()
    label: str | None = None
    labels: tuple[Label, ...] = ()
    label_type: LabelType | None = None
    labels_declared: bool = True
    owner: str | None = None
    secrets: tuple[str, ...] = ()
    declared: tuple[Column, ...] = ()
    typed: tuple[Column, ...] = ()
    crossed: tuple[Column, ...] = ()
    form: TextForm = PLAIN

    def __post_init__(self) -> None:
        if (self.text is not None) + bool(self.form.fields) + bool(self.record_columns) != 1:
            raise ConfigError(
                "Either a text column or record columns must be named, but not both.",
                "Give --text COLUMN, --text A,B,C for several that are written together, or --record-columns A,B,C to "
                "make JSON records of several columns.",
            )
        if self.form.roles and self.text is None:
            raise ConfigError(
                "Roles are declared without a column of dialogues.", "Name it with --text, or leave --roles out."
            )
        require_told(self.form, self.declared, crossed=self.crossed)
        if self.label is not None and self.label in self.text_columns:
            cure, several = "Name another column with --label", "--text" if self.form else "--record-columns"
            raise ConfigError(
                "The label column is the text itself: private texts would become public labels.",
                f"{cure}." if self.label == self.text else f"{cure}, or leave it out of {several}.",
            )
        if not self.labels_declared and self.label is not None and self.label == self.owner:
            raise ConfigError(
                "The owners cannot be read from the data as public labels.", "Declare the labels with --labels."
            )
        if self.label is None and (self.labels or not self.labels_declared):
            raise ConfigError("There are labels, but no label column.", "Name the column with --label.")
        if self.label_type not in (None, *LABEL_TYPES):
            raise ConfigError(f"The label type {self.label_type!r} is unknown.", f"Use {', '.join(LABEL_TYPES)}.")
        label = None if self.crossed else self.label
        require_own_names((*self.crossed, *self.typed), (*self.text_columns, label, self.owner, *self.secrets))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Return every column that is read, each once."""
        typed = (column.name for column in (*self.crossed, *self.typed) if column.name not in self.form.told)
        label = None if self.crossed else self.label
        names = (*self.text_columns, label, self.owner, *self.secrets, *typed)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Return the columns that the text is made of."""
        return (self.text,) if self.text is not None else self.form.fields or self.record_columns

    @property
    def clamps(self) -> bool:
        """Return whether any column counts values beyond its range as the nearest end."""
        return any(column.clamps for column in (*self.crossed, *self.typed))

    @cached_property
    def label_index(self) -> Places:
        """Return the map from a label to its index in ``labels``."""
        return Places(self.labels)


def require_told(form: TextForm, columns: Sequence[Column], *, crossed: Sequence[Column]) -> None:
    """Raise ConfigError unless typed columns with the names of values computed from a dialogue are declared like these
    values, and none of them is in ``crossed``."""
    told = {column.name: column for column in columns if column.name in form.told}
    for name in (column.name for column in columns if form.roles and column.name not in told):
        kind, dot, of = name.partition(".")
        if dot and kind in (TURNS, CALLS):
            counted, flag = ("turns with an act", "--acts") if kind == TURNS else ("calls of a tool", "--tools")
            raise ConfigError(
                f"The column {name!r:.60} counts {counted}, but {flag} does not declare {of!r:.60}.",
                f"Declare it with {flag}, or rename your own column.",
            )
    for name, column in told.items():
        what, values = {BEGINS: ("roles", form.roles), ENDS: ("acts", form.acts)}.get(name, ("", ()))
        if what and set(column.values) != set(values):
            raise ConfigError(
                f"The column {name!r} is computed from the dialogue, but its declared values are not the {what}.",
                f"Declare it as {name}={'|'.join(values)}. If it is a column of your table, rename that column.",
            )
        if not what and column.kind != "integer":
            raise ConfigError(
                f"The column {name!r} is computed from the dialogue, and is not declared as a whole number.",
                f"Declare it with a range, such as {name}=2..20. If it is a column of your table, rename that column.",
            )
    if both := [column.name for column in crossed if column.name in told]:
        raise ConfigError(
            f"The column {both[0]!r} is computed from the dialogue, and cannot be part of the label.",
            "Keep it as a separate column.",
        )
