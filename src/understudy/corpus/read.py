"""read_corpus: from what the user named to a Corpus, its columns checked, its labels typed, ready for many passes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast, get_args

from understudy.base.columns import Column, cross_labels, crossed_columns, declared_columns
from understudy.base.errors import ConfigError, CorpusError
from understudy.base.labels import LABEL_TYPES, Label, LabelType
from understudy.base.transcript import ENDS, TextForm, text_columns
from understudy.corpus import arrow, readers
from understudy.corpus.addresses import parse_address
from understudy.corpus.arrow import ColumnTypes
from understudy.corpus.bad_rows import UNREADABLE, BadRow, BadRowLog
from understudy.corpus.corpus import MAX_BAD_ROWS, Corpus, OnBadRow, OpenTable, Pass
from understudy.corpus.delimited import Quotes, csv_rows
from understudy.corpus.frames import Frame, class_names, is_frame, no_frame, read_frame
from understudy.corpus.labels import declared_labels, output_type, typed_labels, undeclared
from understudy.corpus.readers import Row
from understudy.corpus.schema import Schema
from understudy.corpus.sources import DataFile, check_encoding, describe_file, find_files, remove_spool, spool_stdin

Paths = Sequence[str | os.PathLike[str]]
TableSource = str | os.PathLike[str] | Paths | Sequence[Mapping[str, object]] | Frame
"""What a table is read from."""


@dataclass(frozen=True)
class TextOptions:
    """How CSV and JSON lines are read. ``delimiter`` and ``quotes`` None: by the format."""

    delimiter: str | None
    quotes: Quotes | None
    encoding: str
    max_cell_bytes: int
    formulas_escaped: bool = False

    def __post_init__(self) -> None:
        if self.max_cell_bytes < 1:
            raise ConfigError(f"A limit of {self.max_cell_bytes} bytes per cell leaves no text.", "Use at least 1.")
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise ConfigError(f"{self.delimiter!r} cannot separate cells.", "Use one character, such as ';'.")
        if self.quotes not in (None, *get_args(Quotes)):
            raise ConfigError(f"{self.quotes!r} is no way to read quotes.", f"Use {', '.join(get_args(Quotes))}.")
        check_encoding(self.encoding)


def _open_frame(source: Frame, schema: Schema) -> OpenTable:
    """A table that another library holds, in Arrow's memory."""
    table = read_frame(source, schema.columns)
    schema = _typed(schema, arrow.check_types(table.schema, schema, "The table").label)

    def start() -> Pass:
        return _named(
            "", readers.without_exceptions(arrow.whole(arrow.table_cells(table, schema.columns)), "The table")
        )

    return OpenTable(schema, start, "arrow", sources=[table])


def _open_dicts(rows: Sequence[Mapping[str, object]], schema: Schema) -> OpenTable:
    """A list with a dict per row; a key that is absent is null, but not in all of them."""
    _require_names((row if isinstance(row, Mapping) else () for row in rows), schema)

    def start() -> Pass:
        return _named("", ((n, readers.object_cells(row, schema.columns)) for n, row in enumerate(rows, 1)))

    return OpenTable(_typed(schema, None), start, "dicts", sources=[rows])


def _open_files(
    paths: Paths,
    schema: Schema,
    *,
    format: str | None,  # noqa: A002
    options: TextOptions,
    private_dir: Path | None,
) -> OpenTable:
    """Files by path and pattern, or (``-``) standard input, which is copied first."""
    temporary = None
    if list(paths) == ["-"]:
        stdin = describe_file("-", "standard input", format)
        temporary = spool_stdin(private_dir)
        files: Sequence[DataFile] = [replace(stdin, path=str(temporary))]
    else:
        files = find_files(paths, format=format)
        _check_output(paths, private_dir)
    try:
        label_type = _check_columns(files, schema, options, private_dir)
        return OpenTable(
            _typed(schema, label_type),
            partial(_pass, files, schema, options),
            files[0].format,
            partial(_pieces, files, schema, options),
            temporary,
            sources=files,
            encoding=options.encoding,
        )
    except BaseException:
        if temporary is not None:
            remove_spool(temporary)
        raise


def _check_columns(
    files: Sequence[DataFile], schema: Schema, options: TextOptions, private_dir: Path | None
) -> LabelType | None:
    """Check that every file begins as it should; return the label column's type, None where each cell has its own."""
    _check_partitions(files, schema)
    looks: list[ColumnTypes] = []
    for file in files:
        try:
            looks.append(_first_look(file, schema, options))
        except CorpusError:
            with BadRowLog(private_dir) as log:
                log.note(file.path, None, UNREADABLE)
            raise
    if len({types.label for types in looks}) > 1 and schema.label_type is None:
        raise ConfigError(
            "The label column has different types in different files.",
            "Write it with one type in all files, or give read_corpus (in Python) a label_type.",
        )
    if len({types.owner for types in looks}) > 1:
        raise ConfigError(
            "The owner column has different types in different files, so that one owner could count as two.",
            "Write it with one type in all files, best as strings.",
        )
    if files[0].format == "jsonl":
        _require_names(_names_of_lines(files, options), schema, set(dict(files[0].partitions)))
    return looks[0].label


def _names_of_lines(files: Sequence[DataFile], options: TextOptions) -> Iterator[Sequence[object]]:
    for file in files:
        rows = readers.names_of_lines(file, encoding=options.encoding, max_cell_bytes=options.max_cell_bytes)
        for _, names in readers.without_exceptions(rows, file.shown):
            if isinstance(names, BadRow | CorpusError):  # the pass says so, in its place
                return
            yield names


def _require_names(names: Iterable[Iterable[object]], schema: Schema, elsewhere: Collection[str] = ()) -> None:
    """See that each column stands in some row of a table whose rows name their own; else CorpusError."""
    wanted = [column for column in schema.columns if column not in elsewhere]
    if (missing := readers.absent(names, wanted)) is not None:
        cure = "Check the name; where only some rows lack it, it is missing there."
        if schema.form.roles and missing == ENDS:
            cure = "To derive it from the dialogues, declare their acts with --acts."
        raise CorpusError(f"No row has the column {missing!r}.", cure)


def _check_output(paths: Paths, private_dir: Path | None) -> None:
    """Check that nothing will be written into a folder that is read: the next run would take it for private data."""
    for path in (Path(each).expanduser() for each in paths):
        if private_dir is not None and path.is_dir() and private_dir.resolve().is_relative_to(path.resolve()):
            raise ConfigError(
                f"The results would lie in the folder {str(path)!r}, which is read as private data.",
                "Name an --output elsewhere, or the data by a pattern.",
            )


def _check_partitions(files: Sequence[DataFile], schema: Schema) -> None:
    """Check, by paths alone, that the columns in the names of folders are the same for all files."""
    in_folders = [set(dict(file.partitions)).intersection(schema.columns) for file in files]
    if any(columns != in_folders[0] for columns in in_folders):
        raise ConfigError(
            "A column that is asked for stands in the names of some files' folders, and not of others'.",
            "Give all files folders named COLUMN=VALUE, in the same place below the folder or pattern.",
        )
    if in_folders[0].issuperset(schema.columns):
        raise ConfigError(
            "All columns asked for stand in the names of folders, and none in the files.",
            "Name a column that the files hold.",
        )


def _first_look(file: DataFile, schema: Schema, options: TextOptions) -> ColumnTypes:
    if file.format == "parquet":
        types = arrow.with_strings(arrow.parquet_schema(file), dict(file.partitions))
        return arrow.check_types(types, schema, file.shown)
    _, first = next(_file_rows(file, schema, options), (0, None))
    if isinstance(first, CorpusError):
        raise first
    strings = set(dict(file.partitions)) if file.format == "jsonl" else set(schema.columns)
    return ColumnTypes(*("string" if column in strings else None for column in (schema.label, schema.owner)))


def _typed(schema: Schema, data_type: LabelType | None) -> Schema:
    label_type = output_type(schema.labels, schema.label_type, data_type)
    return replace(schema, label_type=label_type, labels=typed_labels(schema.labels, label_type))


def _pass(files: Sequence[DataFile], schema: Schema, options: TextOptions) -> Pass:
    for file in files:
        yield from _named(file.path, _file_rows(file, schema, options))


_FEWEST_ROWS, _MOST_ROWS = 1 << 7, 1 << 15  # of a piece of a Parquet file


def _pieces(
    files: Sequence[DataFile], schema: Schema, options: TextOptions, wanted: int
) -> Sequence[Callable[[], Pass]]:
    """A pass for every file, or, of Parquet files, for every so many rows."""
    if files[0].format != "parquet":
        return [partial(_pass, [file], schema, options) for file in files]
    try:
        counts = [arrow.count_rows(file) for file in files]
    except (OSError, ValueError):  # which the pass says in words
        return ()
    at_once = min(max(-(-sum(counts) // wanted), _FEWEST_ROWS), _MOST_ROWS)
    return [
        partial(_pass_of_rows, file, range(first, min(first + at_once, count)), schema, options)
        for file, count in zip(files, counts, strict=True)
        for first in range(0, count, at_once)
    ]


def _pass_of_rows(file: DataFile, rows: range, schema: Schema, options: TextOptions) -> Pass:
    return _named(file.path, _file_rows(file, schema, options, only=rows))


def _named(name: str, rows: Iterator[Row]) -> Pass:
    return ((name, row) for row in rows)


def _file_rows(file: DataFile, schema: Schema, options: TextOptions, *, only: range | None = None) -> Iterator[Row]:
    """All rows of a file, or of a Parquet file ``only`` these, counted from 0."""
    columns = tuple(column for column in schema.columns if column not in dict(file.partitions))
    limit = options.max_cell_bytes
    if file.format == "parquet":
        rows = arrow.whole(arrow.parquet_cells(file, columns, rows=only))
    elif file.format == "jsonl":
        rows = readers.jsonl_rows(file, columns, encoding=options.encoding, max_cell_bytes=limit)
    else:
        tabs = file.format == "tsv"
        rows = csv_rows(
            file,
            columns,
            delimiter=options.delimiter or ("\t" if tabs else ","),
            quotes=options.quotes or ("none" if tabs else "multiline"),
            encoding=options.encoding,
            max_cell_bytes=limit,
            formulas_escaped=options.formulas_escaped and not tabs,
        )
    rows = readers.without_exceptions(rows, file.shown)
    return rows if columns == schema.columns else _with_partitions(rows, dict(file.partitions), schema.columns)


def _with_partitions(
    rows: Iterator[Row], partitions: Mapping[str, str | None], columns: Sequence[str]
) -> Iterator[Row]:
    """The rows of a file with the columns that stand in the names of its folders, which count before the file's."""
    for number, cells in rows:
        if isinstance(cells, BadRow | CorpusError):
            yield number, cells
        else:
            stored = iter(cells)
            yield number, [partitions[name] if name in partitions else next(stored) for name in columns]


def read_corpus(
    source: TableSource,
    *,
    text: str | Sequence[str] | None = None,
    roles: str | Sequence[str] = (),
    acts: str | Sequence[str] = (),
    tools: str | Sequence[str] = (),
    record_columns: Sequence[str] | None = None,
    label: str | None = None,
    labels: str | Iterable[Label] | None = None,
    labels_from_data: bool = False,
    label_type: LabelType | None = None,
    owner: str | None = None,
    secrets: str | Sequence[str] | None = None,
    columns: str | Mapping[str, object] | Sequence[Column] | None = None,
    format: str | None = None,  # noqa: A002
    delimiter: str | None = None,
    quotes: Quotes | None = None,
    encoding: str = "utf-8",
    on_bad_row: OnBadRow | None = None,
    max_bad_rows: float | None = None,
    max_cell_bytes: int = 1_048_576,
    formulas_escaped: bool = False,
    private_dir: str | os.PathLike[str] | None = None,
) -> Corpus:
    """Open a table of texts.

    Args:
        source: a file, a folder (all files of one format below it), a glob pattern, an address (``s3://``, ``gs://``,
            ``abfs://``) of any of these, or a list of those; ``-`` for standard input; a frame of pandas, Polars,
            DuckDB or pyarrow, or whatever else has ``__arrow_c_stream__``; a ``datasets.Dataset``, whose
            ``ClassLabel`` columns are read as their names; or a list of dicts, one per row.
        text: the column of the texts; or several that are written together, as ``"a,b"`` or a list. Exactly one of this
            and ``record_columns`` is given.
        roles: those who speak, where the text column holds dialogues: lists of ``{"role": ..., "content": ...}``, or
            strings of JSON.
        acts: what turns may do, where they have an ``act``.
        tools: those that turns may call, where they have ``tool_calls`` as chat formats do.
        record_columns: columns that are made into a JSON record, which is then the text.
        label: the column of the labels; or a typed column, or several as ``A*B``, whose combinations are the labels.
        labels: the label set: the labels, or ``"a,b,c"``, or ``"@FILE"``. Needed with ``label``.
        labels_from_data: read the label set from the data instead, in a pass of its own. It is then not protected.
        label_type: what label cells are read as: ``string``, ``int``, ``float`` or ``bool``. By default a Parquet
            column's own type, strings in CSV, and in JSON the type of the declared labels.
        owner: the column that says whose record a row is.
        secrets: the column or columns that list a row's secrets: lists of strings, or strings joined by ``;``.
        columns: typed columns beside the text, each with its domain: a mapping, ``@FILE`` or the short form, as
            :func:`understudy.base.columns.declared_columns` reads them.
        format: ``csv``, ``tsv``, ``jsonl`` or ``parquet`` (``csv.gz``: compressed). By default by the file's name.
        delimiter: what separates a CSV file's cells; by default a comma, or a tab in TSV. It is never guessed.
        quotes: ``multiline``: cells in quotes may hold line breaks (RFC 4180; the default for CSV); an unescaped quote
            can then merge rows unnoticed. ``line``: cells in quotes end on their line, so that a row whose quotes do
            not pair up is a bad row and changes no other. ``none``: a quote is a character (the default for TSV).
        encoding: the encoding of CSV and JSON lines: UTF-8, or one in which a row cannot change those behind it.
        on_bad_row: ``error`` ends at a bad row; ``skip`` leaves it out, by a look at that row alone. Default: ``skip``
            where ``max_bad_rows`` is given and above 0.
        max_bad_rows: the share of all rows, 0 to 1, that may be skipped: a run of more is refused before its charge.
            Default: 0.05.
        max_cell_bytes: a row with a longer cell (in UTF-8) is bad. At least 1.
        formulas_escaped: in CSV, take away the apostrophe that :func:`understudy.corpus.write_table` puts before what a
            spreadsheet would run.
        private_dir: the folder (made with mode 0700) for standard input and for the numbers of bad rows.

    Raises:
        ConfigError: the parameters contradict each other, or ``source`` is something else.
        CorpusError: a file is not there, or cannot be read, or lacks a column. With ``labels_from_data`` bad rows too.
    """
    declared = () if columns is None else declared_columns(columns)
    crossed = crossed_columns(label, declared)
    if crossed:
        labels, label_type = _cross(crossed, labels, labels_from_data), "string"
    _check_choices(label, labels, labels_from_data, label_type, on_bad_row, source, declared)
    options = TextOptions(delimiter, quotes, encoding, max_cell_bytes, formulas_escaped)
    texts = text_columns(text)
    schema = Schema(
        text=texts[0] if len(texts) == 1 else None,
        form=TextForm(texts if len(texts) > 1 else (), *map(text_columns, (roles, acts, tools))),
        record_columns=tuple(record_columns or ()),
        label=label,
        labels=declared_labels(labels) if labels is not None else (),
        label_type=label_type,
        labels_declared=not labels_from_data,
        owner=owner,
        secrets=(secrets,) if isinstance(secrets, str) else tuple(secrets or ()),
        declared=declared,
        typed=tuple(column for column in declared if column not in crossed and not column.made_up),
        crossed=crossed,
    )
    folder = Path(private_dir) if private_dir is not None else None
    if isinstance(source, (str, os.PathLike)):
        table = _open_files([source], schema, format=format, options=options, private_dir=folder)
    elif is_frame(source):
        table = _open_frame(source, schema)
    elif not isinstance(source, Sequence) or isinstance(source, (bytes, bytearray, memoryview)):
        raise no_frame(source)
    elif not source or isinstance(source[0], Mapping):
        table = _open_dicts(cast("Sequence[Mapping[str, object]]", source), schema)
    elif all(isinstance(each, (str, os.PathLike)) for each in source):
        table = _open_files(cast("Paths", source), schema, format=format, options=options, private_dir=folder)
    else:
        raise ConfigError(
            "The list that is to be a table holds neither paths alone nor a dict per row.",
            "Give paths, or one dict for each row.",
        )
    corpus = Corpus(
        table,
        on_bad_row=on_bad_row or ("skip" if max_bad_rows else "error"),
        max_bad_rows=MAX_BAD_ROWS if max_bad_rows is None else max_bad_rows,
        max_cell_bytes=max_cell_bytes,
        private_dir=folder,
        name=proposed_name(source) if isinstance(source, (str, os.PathLike)) else None,
    )
    if labels_from_data:
        corpus.observe_labels()
    return corpus


def _cross(crossed: Sequence[Column], labels: str | Iterable[Label] | None, from_data: bool) -> tuple[Label, ...]:
    """The label set of crossed columns, which nothing else declares; else ConfigError."""
    found = cross_labels(crossed)
    if from_data or (labels is not None and (isinstance(labels, str) or tuple(labels) != found)):
        raise ConfigError(
            "The label is made of typed columns, and its labels are declared a second time.",
            "Leave --labels and --labels-from-data out: the columns' own values are the labels.",
        )
    return found


def proposed_name(path: str | os.PathLike[str]) -> str | None:
    """The stem of one file or folder, as a name for its dataset; None for standard input and patterns."""
    shown = os.fspath(path) if parse_address(os.fspath(path)) is None else os.fspath(path).partition("?")[0]
    name = Path(shown).name
    if name == "-" or any(character in shown for character in "*?["):
        return None
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name.split(".")[0]).strip("-.") or None


def _check_choices(
    label: str | None,
    labels: object,
    labels_from_data: bool,
    label_type: str | None,
    on_bad_row: str | None,
    source: object,
    declared: Sequence[Column],
) -> None:
    if labels is not None and labels_from_data:
        raise ConfigError("Labels are declared and to be read from the data.", "Choose one of the two.")
    if label is None and (labels is not None or labels_from_data):
        raise ConfigError("There are labels, but no label column.", "Name the column with --label.")
    if label is not None and labels is None and not labels_from_data:
        if class_names(source, label) is not None:
            raise ConfigError(
                f"The label set of the column {label!r} is not declared.",
                "If its class names are public, and were not read from the data (as class_encode_column reads them), "
                f"declare them: labels=dataset.features[{label!r}].names.",
            )
        raise undeclared(label, declared)
    if label_type is not None and label_type not in LABEL_TYPES:
        raise ConfigError(f"The label type {label_type!r} is unknown.", f"Use {', '.join(LABEL_TYPES)}.")
    if on_bad_row not in (None, "error", "skip"):
        raise ConfigError(f"{on_bad_row!r} is no way to treat a bad row.", "Use error or skip.")
