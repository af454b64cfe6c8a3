"""Open the table that a user named as a Corpus, with its columns checked and its labels typed, for any number of
passes; and read the facts about a table that need no value."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from understudy.base.errors import ConfigError, CorpusError, UnderstudyError
from understudy.base.lazy import arrow_types as t
from understudy.corpus import arrow, readers
from understudy.corpus.arrow import (
    ColumnTypes,
    Frame,
    class_names,
    columns_as_table,
    is_frame,
    not_a_table_error,
    read_frame,
)
from understudy.corpus.bad_rows import UNREADABLE, BadRow, BadRowLog
from understudy.corpus.corpus import Corpus, OpenTable, Pass
from understudy.corpus.normalise import tidy
from understudy.corpus.readers import Row, csv_delimiter, csv_header, csv_rows
from understudy.corpus.schema import Schema
from understudy.corpus.sources import (
    MAX_BAD_ROWS,
    DataFile,
    OnBadRow,
    Quotes,
    Reading,
    describe_file,
    find_files,
    is_texts,
    parse_address,
    remove_spool,
    spool_stdin,
)
from understudy.schema.columns import Column, cross_labels, crossed_columns, declared_columns, parse
from understudy.schema.labels import Label, LabelType, declared_labels, output_type, typed_labels, undeclared
from understudy.schema.layout import FileFormat, Layout, typed_layout
from understudy.schema.transcript import ENDS, TextForm, text_columns

Paths = Sequence[str | os.PathLike[str]]
Texts = Sequence[str | None]
TableSource = str | os.PathLike[str] | Paths | Texts | Sequence[Mapping[str, object]] | Mapping[str, object] | Frame
"""The possible sources of a table."""
_TEXT = "text"
"""The column of texts that are given without a table."""
_LISTS = ("text", "record_columns", "secrets")
"""Settings in which commas separate columns."""


def as_table(source: TableSource, settings: Mapping[str, Any]) -> tuple[TableSource, dict[str, Any]]:
    """Convert a source to a table that can be opened. Return it with the settings of its columns.

    A list of strings that are not files, a Series or an array is one column of texts, ``text`` if it is not named.
    A mapping from names to lists is a table of these columns.
    """
    settings, values = dict(settings), False
    if isinstance(source, Mapping) and source and all(map(_is_column, source.values())):
        source = cast("TableSource", columns_as_table(source))
    if not {"columns", "schema", "features"}.intersection(dir(source)):  # to get them costs, of a lazy frame
        to_list = next((found for name in _TO_LIST if callable(found := getattr(source, name, None))), None)
        if to_list is not None:  # a Series or an array holds no paths
            source = to_list()
            values = isinstance(source, list) and any(isinstance(each, str) for each in source)
    if isinstance(source, Sequence) and not isinstance(source, str) and (values or is_texts(source)):
        named = settings.get("text") or (_TEXT,)
        columns = text_columns(named)
        columns = (named,) if len(columns) > 1 and isinstance(named, str) else columns
        settings["text"] = None if settings.get("record_columns") else columns
        source = [{columns[0]: each} for each in source]
    if isinstance(source, (str, os.PathLike)) or is_frame(source):
        pass
    elif not isinstance(source, Sequence) or isinstance(source, (bytes, bytearray, memoryview)):
        raise not_a_table_error(source)
    elif source and not isinstance(source[0], Mapping) and not all(isinstance(e, (str, os.PathLike)) for e in source):
        raise ConfigError(
            "Expected a list of paths, of texts or of dicts.", "Give paths, texts, or one dict for each row."
        )
    return source, exactly_named(source, settings)


def _is_column(values: object) -> bool:
    return isinstance(values, list | tuple) or getattr(values, "ndim", 0) == 1


_TO_LIST = ("to_pylist", "to_list", "tolist")
"""Methods of columns of pyarrow, of pandas and Polars, and of NumPy."""


def exactly_named(source: object, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings, with column names that contain commas recognised as one column.

    Only the header of a file named itself and the columns of a frame are looked at: the keys of a record are private,
    and in a folder a single record may decide which file comes first.
    """
    listed = {name: str(each) for name in _LISTS if isinstance(each := settings.get(name), str) and "," in each}
    names: Collection[object] = ()
    if not listed:
        return dict(settings)
    paths: Sequence[Any] = source if isinstance(source, (list, tuple)) else [source]
    if paths and all(isinstance(path, (str, os.PathLike)) for path in paths):
        reading = {name: settings[name] for name in ("format", "delimiter", "encoding") if settings.get(name)}
        with suppress(UnderstudyError):  # the table's opening says so
            file = find_files(paths, format=reading.get("format"))[0]
            if file.named and file.format != "jsonl":
                names = [name for name, _ in _header(file, Reading(**reading))]
    else:
        names = next((list(found) for name in _NAMES if (found := getattr(source, name, None)) is not None), ())
    exact = {name: each if each in names else each.strip() for name, each in listed.items()}
    return {**settings, **{name: (each,) for name, each in exact.items() if each in names}}


_NAMES = ("column_names", "columns")
"""Attributes of frames: of Arrow and Datasets, and of pandas, Polars and DuckDB."""


def _open_frame(source: Frame, schema: Schema) -> OpenTable:
    table = read_frame(source, schema.columns)
    types = arrow.check_types(table.schema, schema, "The table", arrow.frame_dtypes(source))
    schema = _typed(schema, types.label)

    def rows() -> Pass:
        return _named(
            "", readers.without_exceptions(arrow.whole(arrow.table_cells(table, schema.columns)), "The table")
        )

    return OpenTable(
        schema, rows, "arrow", sources=[table], layout=lambda: arrow.frame_layout(source, table, _dates(schema))
    )


def _open_dicts(dicts: Sequence[Mapping[str, object]], schema: Schema) -> OpenTable:
    """Open a list with a dict per row. A key that is absent in some rows is null there; absent in all it is an
    error."""
    _require_columns((row if isinstance(row, Mapping) else () for row in dicts), schema)

    def rows() -> Pass:
        return _named("", ((n, readers.object_cells(row, schema.columns)) for n, row in enumerate(dicts, 1)))

    return OpenTable(_typed(schema, None), rows, "dicts", sources=[dicts])


def _open_files(paths: Paths, schema: Schema, reading: Reading) -> OpenTable:
    temporary = None
    if list(paths) == ["-"]:
        stdin = describe_file("-", "standard input", reading.format)
        temporary = spool_stdin(reading.private_dir)
        found: Sequence[DataFile] = [replace(stdin, path=str(temporary), named=True)]
    else:
        found = find_files(paths, format=reading.format)
        for path in (
            Path(each).expanduser() for each in paths
        ):  # else the next run would take results for private data
            private = reading.private_dir
            if private is not None and path.is_dir() and private.resolve().is_relative_to(path.resolve()):
                raise ConfigError(
                    f"The results would be written into the folder {str(path)!r}, which is read as private data.",
                    "Name an --output elsewhere, or the data by a pattern.",
                )
    files = _Files(found, schema, reading)
    try:
        schema = _typed(schema, files.label_type())
    except BaseException:
        if temporary is not None:
            remove_spool(temporary)
        raise
    layout = partial(_declared_layout, found[0].format, reading)
    if len(paths) == 1 and found[0].named:  # in a folder, a single record may decide which files there are
        layout = partial(_layout, found[0], schema, reading)
    return OpenTable(schema, files.rows, found[0].format, files.pieces, temporary, found, reading.encoding, layout)


def _dates(schema: Schema) -> set[str]:
    return {column.name for column in schema.declared if column.kind in ("date", "datetime")}


def _layout(file: DataFile, schema: Schema, reading: Reading) -> Layout:
    """Return the layout of a file. JSON lines have no header, and the order of a line's keys is private."""
    if file.format == "parquet":
        types = arrow.parquet_schema(file)
        dtypes, known = arrow.stated(arrow.pandas_dtypes(types), types, _dates(schema))
        return replace(typed_layout(known, dtypes, format="parquet"), columns=tuple(arrow.column_names(types)))
    plain = _declared_layout(file.format, reading)
    names: list[str] = []
    if file.format != "jsonl":
        plain = replace(plain, delimiter=csv_delimiter(file, reading))
        _, header = next(readers.without_exceptions(csv_header(file, reading), file.shown))
        names = [] if isinstance(header, CorpusError) else readers.as_asked(cast("Any", header), schema.columns)
    return replace(plain, columns=tuple(dict.fromkeys(names)))


def _declared_layout(format: FileFormat, reading: Reading) -> Layout:  # noqa: A002
    """Return the layout that is declared for files of this format, without any header or schema of theirs."""
    delimiter = reading.delimiter or ("\t" if format == "tsv" else ",")
    quotes = reading.quotes or ("none" if format == "tsv" else "multiline")
    return Layout((), format, delimiter, reading.encoding, quotes)


_FEWEST_ROWS, _MOST_ROWS = 1 << 7, 1 << 15  # of a piece of a Parquet file


@dataclass(frozen=True)
class _Files:
    files: Sequence[DataFile]
    schema: Schema
    reading: Reading

    def rows(self, only: range | None = None) -> Pass:
        for file in self.files:
            yield from _named(file.path, self._rows(file, only=only))

    def pieces(self, wanted: int) -> Sequence[Callable[[], Pass]]:
        """Return the passes that together read all rows: one per file or, for Parquet, one per block of rows."""
        if self.files[0].format != "parquet":
            return [replace(self, files=[file]).rows for file in self.files]
        try:
            counts = [arrow.count_rows(file) for file in self.files]
        except (OSError, ValueError):  # the pass reports it
            return ()
        at_once = min(max(-(-sum(counts) // wanted), _FEWEST_ROWS), _MOST_ROWS)
        return [
            partial(replace(self, files=[file]).rows, range(first, min(first + at_once, count)))
            for file, count in zip(self.files, counts, strict=True)
            for first in range(0, count, at_once)
        ]

    def _rows(self, file: DataFile, *, only: range | None = None) -> Iterator[Row]:
        """Yield the rows of a file. ``only`` limits a Parquet file to these rows, counted from 0."""
        partitions = dict(file.partitions)
        columns = tuple(column for column in self.schema.columns if column not in partitions)
        if file.format == "parquet":
            rows = arrow.whole(arrow.parquet_cells(file, columns, rows=only))
        else:
            read = readers.jsonl_rows if file.format == "jsonl" else csv_rows
            rows = read(file, columns, self.reading)
        for number, cells in readers.without_exceptions(rows, file.shown):
            if partitions and not isinstance(cells, BadRow | CorpusError):  # a folder's name counts before the file
                stored = iter(cells)
                yield number, [partitions[n] if n in partitions else next(stored) for n in self.schema.columns]
            else:
                yield number, cells

    def label_type(self) -> LabelType | None:
        """Check the first rows of every file. Return the label column's type; None if each cell has its own."""
        in_folders = [set(dict(file.partitions)).intersection(self.schema.columns) for file in self.files]
        if any(columns != in_folders[0] for columns in in_folders):
            raise ConfigError(
                "Some files are in folders named COLUMN=VALUE, but others are not.",
                "Give all files folders named COLUMN=VALUE, in the same place below the folder or pattern.",
            )
        if in_folders[0].issuperset(self.schema.columns):
            raise ConfigError(
                "All requested columns are in the names of folders, but none is in the files.",
                "Name a column that is in the files.",
            )
        looks: list[ColumnTypes] = []
        for file in self.files:
            try:
                looks.append(self._first_look(file))
            except CorpusError:
                with BadRowLog(self.reading.private_dir) as log:
                    log.note(file.path, None, UNREADABLE)
                raise
        if len({types.label for types in looks}) > 1 and self.schema.label_type is None:
            raise ConfigError(
                "The label column has different types in different files.",
                "Write it with one type in all files, or give read_corpus (in Python) a label_type.",
            )
        if len({types.owner for types in looks}) > 1:
            raise ConfigError(
                "The owner column has different types in different files, so that one owner could count as two.",
                "Write it with one type in all files, best as strings.",
            )
        if self.files[0].format == "jsonl":
            _require_columns(self._keys_of_lines(), self.schema, dict(self.files[0].partitions))
        return looks[0].label

    def _first_look(self, file: DataFile) -> ColumnTypes:
        schema, partitions = self.schema, dict(file.partitions)
        if file.format == "parquet":
            types = arrow.with_strings(found := arrow.parquet_schema(file), partitions)
            return arrow.check_types(types, schema, file.shown, arrow.pandas_dtypes(found))
        _, first = next(self._rows(file), (0, None))
        if isinstance(first, CorpusError):
            raise first
        strings = partitions if file.format == "jsonl" else schema.columns
        return ColumnTypes(*("string" if column in strings else None for column in (schema.label, schema.owner)))

    def _keys_of_lines(self) -> Iterator[Iterable[object]]:
        for file in self.files:
            for _, value in readers.without_exceptions(readers.json_lines(file, self.reading), file.shown):
                if isinstance(value, CorpusError):  # the pass reports it, in its place
                    return
                if isinstance(value, Mapping):
                    yield value


def _require_columns(rows: Iterable[Iterable[object]], schema: Schema, elsewhere: Collection[str] = ()) -> None:
    """Raise CorpusError unless each column of ``schema`` occurs in some row, in a table whose rows name their columns
    themselves. Reads only until all columns are found: in most tables one row."""
    waiting = [column for column in schema.columns if column not in elsewhere]
    empty = True
    for names in rows:
        empty, waiting = False, [column for column in waiting if column not in names]
        if not waiting:
            return
    if waiting and not empty:
        cure = "Check the name; where only some rows lack it, it is missing there."
        if schema.form.roles and waiting[0] == ENDS:
            cure = "To derive it from the dialogues, declare their acts with --acts."
        raise CorpusError(f"No row has the column {waiting[0]!r}.", cure)


def _typed(schema: Schema, data_type: LabelType | None) -> Schema:
    label_type = output_type(schema.labels, schema.label_type, data_type)
    return replace(schema, label_type=label_type, labels=typed_labels(schema.labels, label_type))


def _named(name: str, rows: Iterator[Row]) -> Pass:
    return ((name, row) for row in rows)


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
    formats: str | Mapping[str, object] | None = None,
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
            DuckDB or pyarrow, or anything else with ``__arrow_c_stream__``; a ``datasets.Dataset``, whose
            ``ClassLabel`` columns are read as their names; a list of dicts, one per row; a mapping from columns to
            lists; or a list of texts (a Series or array too), which are then the one column. Strings that all name
            files, or have a table's ending and no blank, are paths.
        text: the column of the texts (default: ``text``, if only texts are given); or several that are written
            together, as ``"a,b"`` or a list. Exactly one of this and ``record_columns`` is given.
        roles: the speakers, if the text column contains dialogues: lists of ``{"role": ..., "content": ...}``, or
            strings of JSON.
        acts: the possible acts of turns, if they have an ``act``.
        tools: the tools that turns may call, if they have ``tool_calls`` as in chat formats.
        record_columns: columns that are made into a JSON record, which is then the text.
        label: the column of the labels; or a typed column, or several as ``A*B``, whose combinations are the labels.
        labels: the label set: the labels, or ``"a,b,c"``, or ``"@FILE"``. Needed with ``label``.
        labels_from_data: read the label set from the data instead, in a separate pass. It is then not protected.
        label_type: the type of label cells: ``string``, ``int``, ``float`` or ``bool``. By default a Parquet
            column's own type, strings in CSV, and in JSON the type of the declared labels.
        owner: the column that says whose record a row is.
        secrets: the column or columns that list a row's secrets: lists of strings, or strings joined by ``;``.
        columns: typed columns in addition to the text, each with its domain: a mapping, ``@FILE`` or the short form, as
            :func:`understudy.schema.columns.declared_columns` reads them.
        formats: how CSV and JSON lines write the dates, numbers, booleans and missing values of ``columns``: ``de``, or
            a mapping such as ``{"date": "%d.%m.%Y", "number": "1.234,56", "boolean": "ja|nein", "missing": ["-"]}``.
        format: ``csv``, ``tsv``, ``jsonl`` or ``parquet`` (``csv.gz``: compressed). By default by the file's name.
        delimiter: of a CSV file's cells; by default a comma, or a tab in TSV. It is never guessed.
        quotes: ``multiline``: quoted cells may contain line breaks (RFC 4180; the default for CSV); an unescaped quote
            can then merge rows unnoticed. ``line``: cells in quotes end on their line, so that a row whose quotes do
            not pair up is a bad row and changes no other. ``none``: a quote is a character (the default for TSV).
        encoding: the encoding of CSV and JSON lines: UTF-8, or one in which a row cannot change later rows.
        on_bad_row: ``error`` ends at a bad row; ``skip`` leaves it out, judged by that row only. Default: ``skip``
            if ``max_bad_rows`` is given and above 0.
        max_bad_rows: the share of all rows, 0 to 1, that may be skipped: a run of more is refused before its charge.
            Default: 0.05.
        max_cell_bytes: a row with a longer cell (in UTF-8) is bad. At least 1.
        formulas_escaped: in CSV, remove the apostrophe that :func:`understudy.corpus.write_table` puts before cells
            that a spreadsheet would run.
        private_dir: the folder (made with mode 0700) for standard input and for the numbers of bad rows.

    Raises:
        ConfigError: the parameters contradict each other, or ``source`` is something else.
        CorpusError: a file is missing, cannot be read, or lacks a column. With ``labels_from_data`` also for bad rows.

    >>> read_corpus([{"note": "a sore knee"}, {"note": "a warm hand"}], text="note")
    Corpus(format='dicts', text='note', labels_declared=True, on_bad_row='error')
    """
    reading_of_names = {"format": format, "delimiter": delimiter, "encoding": encoding}
    source, named = as_table(source, {"text": text, "record_columns": record_columns, **reading_of_names})
    declared = () if columns is None else declared_columns(columns, formats)
    crossed = crossed_columns(label, declared)
    if crossed:
        found, label_type = cross_labels(crossed), "string"
        if labels_from_data or (labels is not None and (isinstance(labels, str) or tuple(labels) != found)):
            raise ConfigError(
                "The label is made of typed columns, but its labels are declared as well.",
                "Leave --labels and --labels-from-data out: the columns' own values are the labels.",
            )
        labels = found
    if labels is not None and labels_from_data:
        raise ConfigError("Labels are declared, but are also to be read from the data.", "Choose one of the two.")
    if label is not None and labels is None and not labels_from_data:
        if class_names(source, label) is None:
            raise undeclared(label, [column.name for column in declared])
        raise ConfigError(
            f"The label set of the column {label!r} is not declared.",
            "If its class names are public, and were not read from the data (as class_encode_column reads them), "
            f"declare them: labels=dataset.features[{label!r}].names.",
        )
    texts = text_columns(named["text"])
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
    reading = Reading(
        format=format,
        delimiter=delimiter,
        quotes=quotes,
        encoding=encoding,
        on_bad_row=on_bad_row or ("skip" if max_bad_rows else "error"),
        max_bad_rows=MAX_BAD_ROWS if max_bad_rows is None else max_bad_rows,
        max_cell_bytes=max_cell_bytes,
        formulas_escaped=formulas_escaped,
        private_dir=None if private_dir is None else Path(private_dir),
    )
    return open_corpus(source, schema, reading)


def open_corpus(source: TableSource, schema: Schema, reading: Reading) -> Corpus:
    """Open a table of texts as :func:`read_corpus` does."""
    name = None
    if isinstance(source, (str, os.PathLike)):
        table, name = _open_files([source], schema, reading), proposed_name(source)
    elif is_frame(source):
        table = _open_frame(source, schema)
    elif not source or isinstance(cast("Sequence[object]", source)[0], Mapping):
        table = _open_dicts(cast("Sequence[Mapping[str, object]]", source), schema)
    else:
        table = _open_files(cast("Paths", source), schema, reading)
    corpus = Corpus(table, reading, name=name)
    if not schema.labels_declared:
        corpus.observe_labels()
    return corpus


def proposed_name(path: str | os.PathLike[str]) -> str | None:
    """Return the stem of one file or folder, as a name for its dataset; None for standard input and patterns."""
    shown = os.fsdecode(path)
    shown = shown if parse_address(shown) is None else shown.partition("?")[0]
    name = Path(shown).name
    if name == "-" or any(character in shown for character in "*?["):
        return None
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name.split(".")[0]).strip("-.") or None


_MARKS = ";\t|"
"""Other delimiters that are common in files called CSV."""
_LONGEST_NAME = 60
_IN_VALUES = re.compile(r"@|://|\bwww\.|\b[0-9]{4}-?W[0-9]{2}|\b[0-9]{1,4}([-./])[0-9]{1,2}\1[0-9]{1,4}\b")
"""Parts of addresses and dates."""
Kind = Literal["text", "boolean", "integer", "number", "date", "datetime", "dialogue"]


def read_header(
    source: str | os.PathLike[str] | Paths,
    *,
    format: str | None = None,  # noqa: A002
    delimiter: str | None = None,
    encoding: str = "utf-8",
) -> list[tuple[str, Kind | None]]:
    """Return each column's name and, if the file declares one, its kind.

    Of CSV and TSV the header row is read, of JSON lines the keys of the first line, of Parquet the schema.

    Raises ConfigError or CorpusError if the table cannot be found or has no header.
    """
    file = find_files([source] if isinstance(source, (str, os.PathLike)) else source, format=format)[0]
    return _header(file, Reading(format=format, delimiter=delimiter, encoding=encoding))


def _header(file: DataFile, reading: Reading) -> list[tuple[str, Kind | None]]:
    if file.format == "parquet":
        return [(field.name, _kind(field.type)) for field in arrow.parquet_schema(file)]
    if file.format == "jsonl":
        _, names = next(readers.without_exceptions(readers.json_lines(file, reading), file.shown), (0, None))
        if not isinstance(names, Mapping | CorpusError):
            names = CorpusError(
                f"The first line of {file.shown!r} is not a JSON object.", "Give one JSON object per line."
            )
    else:
        _, names = next(readers.without_exceptions(csv_header(file, reading), file.shown))
    if isinstance(names, CorpusError):
        raise names
    names = list(cast("Iterable[object]", names))
    if error := readers.undecoded(names, file.shown, reading.encoding):
        raise error
    mark = next((each for each in _MARKS if each in str(names[0])), "") if len(names) == 1 else ""
    if file.format == "csv" and reading.delimiter is None and mark:
        raise CorpusError(
            f"The header of {file.shown!r} is one column: its cells seem to be separated by another character.",
            f"Name it: --delimiter {mark!r}."
            if mark != "\t"
            else "Name it with --delimiter (a tab), or say --format tsv.",
        )
    return [(str(name), None) for name in names]


def require_header(sources: Sequence[str], columns: Iterable[str], reading: Reading) -> None:
    """Check that the header of a table's first file, which is public, has these columns; CorpusError otherwise. JSON
    lines have no header: each line names its columns."""
    file = find_files(sources, format=reading.format)[0]
    if file.format == "jsonl":
        return
    columns = list(columns)
    names = readers.as_asked([name for name, _ in _header(file, reading)], columns)
    names += [name for name, _ in file.partitions]
    if error := readers.header_error(names, columns, file.shown, encoding=reading.encoding):
        raise error


def is_value(name: str) -> bool:
    """Return whether a header cell looks like a value instead of a column's name: it has no letter, is long, or is a
    number, a date or an address."""
    if len(name) > _LONGEST_NAME or not any(map(str.isalpha, name)) or _IN_VALUES.search(name):
        return True
    plain = tidy(name).replace("_", "")
    return parse(plain, "number") is not None or parse(plain, "datetime") is not None


def _kind(arrow_type: object) -> Kind | None:
    kinds: list[tuple[Kind, object]] = [
        *(("text", test) for test in (t.is_string, t.is_large_string, t.is_string_view)),
        *(("boolean", t.is_boolean), ("integer", t.is_integer), ("number", t.is_floating), ("number", t.is_decimal)),
        *(("date", t.is_date), ("datetime", t.is_timestamp), ("dialogue", arrow.is_dialogue)),
    ]
    return next((kind for kind, test in kinds if test(arrow_type)), None)  # type: ignore[operator]
