"""read_corpus: from what the user named to a Corpus whose columns are known to be there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from understudy.corpus.corpus import Corpus, OnBadRow
from understudy.corpus.delimited import Quotes
from understudy.corpus.labels import LABEL_TYPES, Label, LabelType, declared_labels
from understudy.corpus.opening import Paths, TextOptions, is_arrow_table, open_arrow, open_dicts, open_files
from understudy.corpus.schema import Schema
from understudy.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa


def read_corpus(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Sequence[Mapping[str, object]] | pa.Table,
    *,
    text: str | None = None,
    record_columns: Sequence[str] | None = None,
    label: str | None = None,
    labels: str | Iterable[Label] | None = None,
    labels_from_data: bool = False,
    label_type: LabelType | None = None,
    owner: str | None = None,
    secrets: str | Sequence[str] | None = None,
    format: str | None = None,  # noqa: A002
    delimiter: str | None = None,
    quotes: Quotes | None = None,
    encoding: str = "utf-8",
    on_bad_row: OnBadRow = "error",
    max_cell_bytes: int = 1_048_576,
    formulas_escaped: bool = False,
    private_dir: str | os.PathLike[str] | None = None,
) -> Corpus:
    """Open a table of texts.

    Args:
        source: a path, a glob pattern, or a list of those; ``-`` for standard input; a ``pyarrow.Table``; or a list of
            dicts, one a row.
        text: the column of the texts. Exactly one of this and ``record_columns`` is given.
        record_columns: columns that are made into a JSON record, which is then the text.
        label: the column of the labels.
        labels: the label set: the labels, or ``"a,b,c"``, or ``"@FILE"``. Needed with ``label``.
        labels_from_data: read the label set from the data instead, in a pass of its own. It is then not protected.
        label_type: what label cells are read as: ``string``, ``int``, ``float`` or ``bool``. By default a Parquet
            column's own type, strings in CSV, and in JSON the type of the declared labels.
        owner: the column that says whose record a row is.
        secrets: the column or columns that list a row's secrets: lists of strings, or strings joined by ``;``.
        format: ``csv``, ``tsv``, ``jsonl`` or ``parquet`` (``csv.gz``: compressed). By default by the file's name.
        delimiter: what separates a CSV file's cells; by default a comma, or a tab in TSV. It is never guessed.
        quotes: ``multiline``: cells in quotes may hold line breaks (RFC 4180; the default for CSV); an unescaped quote
            can then merge rows unnoticed. ``line``: cells in quotes end on their line, so that a row whose quotes do
            not pair up is a bad row and changes no other. ``none``: a quote is a character (the default for TSV).
        encoding: the encoding of CSV and JSON lines: UTF-8, or one in which a row cannot change those behind it.
        on_bad_row: ``error`` ends at a bad row; ``skip`` leaves it out, by a look at that row alone.
        max_cell_bytes: a row with a longer cell (in UTF-8) is bad. At least 1.
        formulas_escaped: in CSV, take away the apostrophe that :func:`understudy.corpus.write_table` puts before what a
            spreadsheet would run.
        private_dir: the folder (made with mode 0700) for standard input and for the numbers of bad rows.

    Raises:
        ConfigError: the parameters cannot be meant so, or ``source`` is something else, such as a data frame.
        CorpusError: a file is not there, or cannot be read, or lacks a column. With ``labels_from_data`` bad rows too.
    """
    _check_choices(label, labels, labels_from_data, label_type, on_bad_row)
    options = TextOptions(delimiter, quotes, encoding, max_cell_bytes, formulas_escaped)
    schema = Schema(
        text=text,
        record_columns=tuple(record_columns or ()),
        label=label,
        labels=declared_labels(labels) if labels is not None else (),
        label_type=label_type,
        labels_declared=not labels_from_data,
        owner=owner,
        secrets=(secrets,) if isinstance(secrets, str) else tuple(secrets or ()),
    )
    folder = Path(private_dir) if private_dir is not None else None
    if is_arrow_table(source):
        table = open_arrow(source, schema)
    elif isinstance(source, (str, os.PathLike)):
        table = open_files([source], schema, format=format, options=options, private_dir=folder)
    elif not isinstance(source, Sequence) or isinstance(source, (bytes, bytearray, memoryview)):
        raise no_table(source)
    elif not source or isinstance(source[0], Mapping):
        table = open_dicts(cast("Sequence[Mapping[str, object]]", source), schema)
    elif all(isinstance(each, (str, os.PathLike)) for each in source):
        table = open_files(cast("Paths", source), schema, format=format, options=options, private_dir=folder)
    else:
        raise ConfigError(
            "The list that is to be a table holds neither paths alone nor a dict per row.",
            "Give paths, or one dict for each row.",
        )
    corpus = Corpus(
        table,
        on_bad_row=on_bad_row,
        max_cell_bytes=max_cell_bytes,
        private_dir=folder,
        name=proposed_name(source) if isinstance(source, (str, os.PathLike)) else None,
    )
    if labels_from_data:
        corpus.observe_labels()
    return corpus


def no_table(source: object) -> ConfigError:
    """The error for what is no table that can be read: a data frame of pandas or Polars, a Dataset, None."""
    return ConfigError(
        f"No table can be read from an object of the type {type(source).__name__}.",
        "Write it to a Parquet file, and give the file's path.",
    )


def proposed_name(path: str | os.PathLike[str]) -> str | None:
    """The stem of one file, as a name for its dataset; None for standard input and patterns."""
    name = Path(path).name
    if name == "-" or any(character in str(path) for character in "*?["):
        return None
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name.split(".")[0]).strip("-.") or None


def _check_choices(
    label: str | None, labels: object, labels_from_data: bool, label_type: str | None, on_bad_row: str
) -> None:
    if labels is not None and labels_from_data:
        raise ConfigError("Labels are declared and to be read from the data.", "Choose one of the two.")
    if label is None and (labels is not None or labels_from_data):
        raise ConfigError("There are labels, but no label column.", "Name the column with --label.")
    if label is not None and labels is None and not labels_from_data:
        raise ConfigError(
            f"The label set of the column {label!r} is not declared.",
            "Declare it with --labels A,B,C or --labels @FILE, or accept with --labels-from-data that the set read "
            "from the data is not protected.",
        )
    if label_type is not None and label_type not in LABEL_TYPES:
        raise ConfigError(f"The label type {label_type!r} is unknown.", f"Use {', '.join(LABEL_TYPES)}.")
    if on_bad_row not in ("error", "skip"):
        raise ConfigError(f"{on_bad_row!r} is no way to treat a bad row.", "Use error or skip.")
