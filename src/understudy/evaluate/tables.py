"""The tables of an evaluation: opened, and read into memory as a random sample."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, CorpusError
from understudy.base.files import disk_faults, require_path
from understudy.base.lazy import quiet_libraries
from understudy.corpus import Corpus, TableSource, read_corpus
from understudy.corpus.bad_rows import BadCell
from understudy.corpus.read import as_table
from understudy.corpus.schema import Schema
from understudy.evaluate.metrics import require_evaluate
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.parameters import EvaluationConfig, EvaluationParameters
from understudy.evaluate.synthetic import SyntheticFile
from understudy.ledger.locking import is_in_use
from understudy.ledger.store import begun_settings
from understudy.methods.registry import load_release
from understudy.methods.shared.evolution.embeddings import embed_texts, private_vectors
from understudy.models.types import Embedder
from understudy.privacy.sealed import SYSTEM
from understudy.release import PublicSchema, Release
from understudy.release.statement import Statement, load_statement
from understudy.run.generating import Result
from understudy.run.outputs import OutputFolder, find_table
from understudy.run.session import remove_leftovers
from understudy.run.table import LABEL, TEXT, text_name
from understudy.schema.columns import Column
from understudy.schema.labels import Label, canonical
from understudy.schema.transcript import PLAIN, TextForm


def read_sample(corpus: Corpus, *, at_most: int, seed: int) -> Sample:
    """Sample at most this many records of a table, each equally likely, in the table's order. One pass.

    Source: Vitter 1985, algorithm R.
    """
    generator = np.random.default_rng(seed)
    kept: list[tuple[int, str, int, list[int]]] = []
    seen = 0
    for batch in corpus.batches():
        for text, label, _, _, own in batch.rows:
            if seen < at_most:
                kept.append((seen, text, label, own or []))
            elif (place := int(generator.integers(seen + 1))) < at_most:
                kept[place] = (seen, text, label, own or [])
            seen += 1
    cells = {column: BadCell(column).value for column in (*corpus.schema.crossed, *corpus.schema.typed)}
    bad = {kind for *_, kind in corpus.noted or ()}
    if outside := [column for column, kind in cells.items() if kind in bad]:
        raise ConfigError(
            f"A synthetic table contains values that its typed column {outside[0].name!r} does not declare.",
            "Declare them with --columns, or fix the table.",
        )
    kept.sort()
    names, columns = [canonical(label) for label in corpus.labels], corpus.schema.typed
    return Sample(
        tuple(text for _, text, _, _ in kept),
        labels=tuple(names[label] for _, _, label, _ in kept) if names else None,
        cells=np.array([own for *_, own in kept], np.int32).reshape(len(kept), len(columns)) if columns else None,
        columns=columns,
        form=corpus.schema.form,
    )


def unit_vectors(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Embed texts. Vectors that are not of length 1 (NaN included) become zero, as in a release: after the charge, a
    private text must not decide whether an evaluation fails."""
    vectors = embed_texts(embedder, list(texts))
    return np.where(private_vectors(vectors).any(axis=1, keepdims=True), vectors, np.float32(0))


class Named(NamedTuple):
    """Candidate names of a table's columns: those of the text, and that of the label or those that form it."""

    texts: tuple[str, ...]
    label: str | None = None
    form: TextForm = PLAIN
    crossed: tuple[Column, ...] = ()


def _named(schema: Schema | PublicSchema) -> Named:
    return Named(schema.text_columns, schema.label, schema.form, schema.crossed)


def _written(file: SyntheticFile) -> Named:
    """Return the names of a synthetic table's columns."""
    schema = file.told
    if schema is None:
        return Named((TEXT,), LABEL)
    texts = schema.form.columns(schema.text) if schema.form else (text_name(schema),)
    return Named(texts, None if schema.topics else schema.label, schema.form, tuple(file.as_written(schema.crossed)))


def open_table(source: TableSource, columns: Sequence[Named], typed: Sequence[Column] = (), **reading: Any) -> Corpus:
    """Open a table whose column names are unknown: try each of ``columns`` in turn.

    Args:
        columns: to try, in turn.
        reading: the format of a text file.
    """
    found = _open_texts(source, columns, **reading)
    if not typed:
        return found
    try:
        table = _open(source, _named(found.schema), found.schema.labels, typed, **reading)
    except CorpusError as error:
        raise CorpusError(error.problem, "Declare columns that every table has (--columns).") from None
    table.noted = []
    return table


def _open_texts(source: TableSource, columns: Sequence[Named], **reading: Any) -> Corpus:
    empty, problem = None, None
    for named in columns:
        try:
            found = _open(source, named, **reading)
        except CorpusError as error:
            problem = problem or error
            continue
        if next(found.batches(1), None) is not None:
            return found
        empty = found if empty is None else empty  # the keys of JSON lines are unknown
    if empty is None:
        assert problem is not None, "no columns to try"
        raise problem
    return empty


def _open(
    source: TableSource, named: Named, labels: Sequence[Label] = (), columns: Sequence[Column] = (), **reading: Any
) -> Corpus:
    return read_corpus(
        source,
        text=named.texts,
        roles=named.form.roles,
        acts=named.form.acts,
        tools=named.form.tools,
        label=named.label,
        labels=None if named.crossed else labels or None,
        labels_from_data=named.label is not None and not labels and not named.crossed,
        columns=(*named.crossed, *columns) or None,
        **reading,
        on_bad_row="skip",
        formulas_escaped=True,  # ours are; another's CSV loses at most an apostrophe
    )


Table = Corpus | Result | TableSource
"""An open table, the result of a run, or anything that :func:`understudy.read_corpus` opens."""


@dataclass(frozen=True)
class Made:
    """The synthetic table of an evaluation, and what its output folder says about it.

    Args:
        file: the table's, in an output folder.
        sha256: of its content when it was opened; None if the report could not compute it either.
        release: the one in the folder; None if there is none, or several.
    """

    table: Corpus
    folder: OutputFolder | None = None
    schema: PublicSchema | None = None
    statement: Statement | None = None
    file: SyntheticFile | None = None
    sha256: str | None = None
    release: Release | None = None

    @property
    def changed(self) -> bool:
        """Return whether the table is no longer the one that was opened."""
        return self.file is not None and _sha256(self.file) != self.sha256


def open_synthetic(source: Table, config: EvaluationConfig, *, declared: Schema | None = None) -> Made:
    """Open the synthetic table of an evaluation, with the typed columns of the real table.

    Args:
        declared: of the real table, if that is open.
    """
    if isinstance(source, Corpus):
        return Made(source)
    if isinstance(source, Result) and source.folder is None:
        made, whole = source.release, completed(config, source.release.schema, source.statement)
        opened = _open_made(source.to_arrow(), whole, declared, SyntheticFile(made.schema))
        return Made(opened, schema=made.schema, statement=source.statement, release=made)
    source = _of_result(source)
    if not isinstance(source, (str, os.PathLike)):
        return Made(_open_made(source, config, declared))
    path = Path(require_path(source))
    if not path.is_dir():
        file = SyntheticFile.at(path) if path == find_table(path.parent) else None
        return Made(_open_made(path, config, declared, file if file and file.told else None))
    folder = OutputFolder(path)
    file = SyntheticFile.within(folder.shareable)
    if file is None:
        raise ConfigError(
            f"The folder {path.name} contains no synthetic table.",
            "Give an output folder of `understudy run` or a table.",
        )
    releases = sorted(folder.shareable.glob("*.release"))
    release = load_release(releases[0]) if len(releases) == 1 else None
    stated = folder.shareable / "statement.json"
    statement = release.statement if release is not None else load_statement(stated) if stated.exists() else None
    known = None if statement is None else file.told  # a baseline's schema is not the real table's
    digest, whole = _sha256(file), completed(config, known, statement)
    return Made(_open_made(file.path, whole, declared, file), folder, known, statement, file, digest, release)


def _open_made(
    source: TableSource, config: EvaluationConfig, declared: Schema | None, file: SyntheticFile | None = None
) -> Corpus:
    """Open a synthetic table.

    Args:
        file: its file and schema, if we wrote it; else its columns have the names of the real one's.
    """
    if declared is None:
        own = Named(config.text_columns, config.label, config.form, config.crossed)
        typed = list(config.typed_columns)
    else:
        own, typed = _named(declared), list(declared.typed)
    if file is None:
        typed, reading = [column.plain for column in typed], {}
        named = [*([own] if own.texts else []), Named(own.texts if own.form else (TEXT,), LABEL, own.form)]
    else:
        typed, reading, named = file.as_written(typed), file.reading, [_written(file)]
    return open_table(source, [*named, named[-1]._replace(label=None, crossed=())], typed, **reading)


def _sha256(file: SyntheticFile) -> str | None:
    """Return the hash of a synthetic table's content; None if the report cannot read it."""
    try:
        return file.sha256()
    except Exception:  # a damaged table fails in many ways
        return None


def _of_result(source: Result | TableSource) -> TableSource:
    """Return the output folder of a result, or its table if it has none."""
    if not isinstance(source, Result):
        return source
    return source.to_arrow() if source.folder is None else source.folder.root


def open_beside(source: Table, made: Made) -> Corpus:
    """Open another table, with the typed columns of the synthetic one if it has them."""
    if isinstance(source, Corpus):
        return source
    source, file = _of_result(source), None
    if isinstance(source, (str, os.PathLike)):
        source = Path(require_path(source))
        file = SyntheticFile.within(OutputFolder(source).shareable)
    named: list[Named] = []
    if made.table.schema.form or (file is None and made.schema is not None):
        own = _named(made.table.schema if made.schema is None else made.schema)
        named = [own, own._replace(label=None, crossed=())]
        if own.form:
            named.insert(0, own._replace(label=LABEL))
    columns = [*([_written(file)] if file and file.told else []), Named((TEXT,), LABEL), *named, Named((TEXT,))]
    opened, reading = (source, {}) if file is None else (file.path, file.reading)
    try:
        return open_table(opened, columns, made.table.schema.typed, **reading)
    except CorpusError:
        return open_table(opened, columns, **reading)


@dataclass(frozen=True)
class Comparison:
    """The tables that a real one is compared with, and the settings.

    Args:
        config: completed by what the folder of the synthetic table says.
        others: ``holdout`` and ``recipient``: paths, tables in memory, or None.
        beside: paths or tables in memory, by name.
        folder: where the results are kept, if anywhere.
    """

    config: EvaluationConfig
    made: Made
    others: Mapping[str, Any]
    beside: Mapping[str, Any]
    folder: OutputFolder | None


def _apart(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Mapping[str, Any]]:
    """Separate tables from settings: return the settings, with a name in place of each table in memory, and the
    tables."""
    settings = dict(options)
    others = {name: settings.get(name) for name in ("holdout", "recipient")}
    for name, table in others.items():
        if table is not None and not isinstance(table, (str, os.PathLike)):
            settings[name] = f"the {name}"
    beside = settings.get("beside", ())
    if isinstance(beside, Mapping):
        settings["beside"] = [f"{name}=table" for name in beside]
        return settings, others, beside
    pairs = (each.partition("=") for each in EvaluationParameters(beside=beside).beside)
    return settings, others, {name: path for name, _, path in pairs}


@contextmanager
def opened(real: Table, synthetic: Table, options: Mapping[str, Any]) -> Iterator[tuple[Corpus, Comparison]]:
    """Open the real table and the synthetic one, with the same columns. Reads no private text."""
    require_evaluate()
    settings, others, beside = _apart(options)
    if not isinstance(real, Corpus | Result):
        settings = {name: value for name, value in as_table(real, settings)[1].items() if name in settings}
    config = EvaluationConfig(**settings)
    with quiet_libraries(), ExitStack() as stack:
        output = OutputFolder(Path(config.output)) if config.output else None
        declared = real.schema if isinstance(real, Corpus) else None
        made = open_synthetic(synthetic, config, declared=declared)
        if declared is None:
            config = completed(as_the_run_read(config, made.folder), made.schema, made.statement)
        folder = output or made.folder
        if folder is not None:
            stack.enter_context(disk_faults(folder.root))
            others_own = made.folder is None or made.folder.root.resolve() != folder.root.resolve()
            if others_own and (folder.shareable / "statement.json").exists():
                raise ConfigError(
                    f"Folder {folder.root.name} contains another run: the metrics would be next to its statement.",
                    "Evaluate that folder, or use another --output.",
                )
        if output is not None and not is_in_use(output.private):
            remove_leftovers(output.private)
        if isinstance(real, Corpus):
            corpus = real
        else:
            corpus = stack.enter_context(_open_real(real, config, None if output is None else output.private))
        if corpus.schema.form != made.table.schema.form:
            raise ConfigError(
                "The texts of the real and the synthetic table have different parts.",
                "Name the same text columns (--text), roles, acts and tools (--roles, --acts, --tools) for both.",
            )
        if corpus.schema.typed != made.table.schema.typed:
            raise ConfigError(
                "The real table and the synthetic one were opened with different typed columns.",
                "Open both with the same columns (columns=...), or both without.",
            )
        yield corpus, Comparison(config, made, others, beside, folder)


_OF_READING = ("format", "delimiter", "quotes", "encoding")


def as_the_run_read(config: EvaluationConfig, folder: OutputFolder | None) -> EvaluationConfig:
    """Return the configuration, completed by the folder's run with how its table is written; unchanged if that run's
    private half is not here."""
    begun = {} if folder is None else begun_settings(folder.private, SYSTEM)
    return _with_defaults(config, {name: begun[name] for name in _OF_READING if begun.get(name)})


def _with_defaults(config: EvaluationConfig, values: Mapping[str, Any]) -> EvaluationConfig:
    return config.model_copy(update={k: v for k, v in values.items() if k not in config.model_fields_set})


def completed(config: EvaluationConfig, schema: PublicSchema | None, statement: Statement | None) -> EvaluationConfig:
    """Return the configuration with the output folder's columns, if not given. If the table's text columns differ, only
    the labels of a label with the same name are used."""
    if schema is None:
        return config
    told = {name: tuple(value) if isinstance(value, list) else value for name, value in schema.texts.items()}
    if schema.label is not None and not schema.topics:
        told["label"] = schema.label
    if schema.columns:
        told["columns"] = {column.name: column.to_json() for column in schema.columns}
    if statement is not None and statement.unit.kind == "owner" and config.owner is None:
        told |= {"owner": statement.unit.column, "max_records_per_owner": statement.unit.max_records}
    own = config.record_columns or config.text_columns or None
    if own in (None, told.get("record_columns" if config.record_columns else "text")):
        config = _with_defaults(config, told)
    undeclared = not (config.labels or config.labels_from_data)
    if undeclared and schema.labels and config.label is not None and config.label == schema.label:
        config = config.model_copy(update={"labels": schema.labels})
    return config


def _open_real(real: Result | TableSource, config: EvaluationConfig, private: Path | None) -> Corpus:
    if isinstance(real, Result):
        raise ConfigError(
            "The first table is the output of a run, not a real table.",
            "Give the real table first and the synthetic one second.",
        )
    real, reading = as_table(real, config.reading)
    if reading["text"] is None and not config.record_columns:
        raise ConfigError("No text column given for the real table.", "Name it with --text.")
    return read_corpus(real, **reading, private_dir=private)


def reopened(corpus: Corpus, source: Corpus | TableSource, config: EvaluationConfig) -> Corpus:
    """Return another table, read with the columns of the real one but without owners."""
    if isinstance(source, Corpus):
        return source
    schema = corpus.schema
    fields = config.reading | {
        "text": None if schema.record_columns else schema.text_columns,
        **{"roles": (), "acts": (), "tools": (), **schema.form.settings},
        "record_columns": schema.record_columns,
        "label": schema.label,
        "labels": schema.labels or None,
        "labels_from_data": schema.label is not None and not schema.labels,
        "columns": schema.declared or None,
        "owner": None,
    }
    return read_corpus(source, **fields)
