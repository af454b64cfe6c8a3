"""Export a run's synthetic table to other formats: chats, a Hugging Face dataset folder, CSV, JSON lines.

Only the shareable folder of the run is read, and nothing is charged.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from understudy.base.display import printable
from understudy.base.errors import ConfigError, StorageError
from understudy.base.files import atomic_file, shared_folder, write_file
from understudy.corpus.write import write_table
from understudy.evaluate.metrics.results import HEADS, ReleasedMetrics, cells_of
from understudy.evaluate.synthetic import Row, SyntheticFile, provenance_of, read_released
from understudy.release import PublicSchema
from understudy.release.statement import NOT_PRIVATE, Statement
from understudy.run.outputs import OutputFolder, read_statement
from understudy.run.table import PROVENANCE, TRANSCRIPT, Like, label_name, text_name, words
from understudy.schema.labels import canonical
from understudy.schema.transcript import ACT, CONTENT, ROLE, TOOL, TOOL_CALL_ID, TOOL_CALLS, TextForm

_FORMATS = ("chat", "huggingface", "csv", "jsonl", "parquet")
DATA_FILE = "data/train-00000-of-00001.parquet"
_ENDS = {"csv": (".csv", ".tsv"), "jsonl": (".jsonl", ".ndjson"), "parquet": (".parquet",)}
_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B")
_MOST_LABELS = 100  # in the card's table


def export_run(
    folder: OutputFolder,
    *,
    to: str,
    output: Path,
    document_type: str | None = None,
    system: str | None = None,
    like: Like = None,
    provenance: bool = False,
) -> None:
    """Write the synthetic table of a run to ``output``.

    Args:
        to: ``chat`` (a file of JSON lines, each with ``messages``), ``huggingface`` (a new folder), ``csv``, ``jsonl``
            or ``parquet`` (a file).
        like: how a ``csv`` or ``jsonl`` file is written, as in :meth:`SyntheticTable.write`.
        provenance: add the provenance of each row as further columns.
        document_type: for chats: the word for a text in their requests; by default that of the run's prompts, or
            ``text`` if there were none.
        system: for chats: the system message that each begins with; it replaces one that a dialogue begins with.
    """
    if to not in _FORMATS:
        raise ConfigError(f"Unknown export format {to!r:.40}.", f"Use {', '.join(_FORMATS)}.")
    if to != "chat" and (document_type is not None or system is not None):
        raise ConfigError("Only chats have a document type and a system message.", "Leave them out, or export to chat.")
    if to not in ("csv", "jsonl") and like is not None:
        raise ConfigError(
            "The option --like is only for CSV and JSON lines.", "Leave it out, or export to csv or jsonl."
        )
    if to in _ENDS and output.suffix.lower() not in _ENDS[to]:
        raise ConfigError(
            f"A {to} file cannot be written as {output.name!r:.80}.",
            f"End its name in {' or '.join(_ENDS[to])}, or export to another format.",
        )
    if to == "chat" and output.suffix not in (".jsonl", ".ndjson"):
        raise ConfigError(f"Chats cannot be written as {output.name!r}.", "End its name in .jsonl.")
    statement, file = read_statement(folder.shareable), SyntheticFile.within(folder.shareable)
    if file is None:
        raise ConfigError(
            f"The folder {folder.root.name} does not contain a synthetic table.", "Make one with `understudy generate`."
        )
    with file.readable("is too large to export.", "Copy the file itself."):
        rows = list(file.rows(typed=None))
        asked_for = str(provenance_of(rows[0]).get("document_type", "")) if rows else ""
    try:
        if to == "chat":
            if not statement.private and "not-private" not in output.name.lower():
                raise ConfigError(
                    f"These texts are {NOT_PRIVATE}, and a file of chats can say so only in its name.",
                    f"Name it not-private-{output.name}.",
                )
            _write_chats(file.schema, rows, output, document_type or asked_for or "text", system)
        elif to in _ENDS:
            file.table(rows).write(output, like=like, provenance=provenance, stamped=not statement.private)
        else:
            _write_dataset(statement, file, rows, output, provenance=provenance)
    except OSError as error:
        raise StorageError(
            f"{output.name!r} cannot be written ({error.strerror}).",
            "Check that its folder exists, is writable and is not full.",
        ) from None


def _write_chats(
    schema: PublicSchema, rows: Sequence[Row], output: Path, document_type: str, system: str | None
) -> None:
    with atomic_file(output) as stream:
        for row in rows:
            messages = _messages(schema.form, row.text) or [
                _message("user", _ask(schema, row, document_type)),
                _message("assistant", row.text),
            ]
            if system is not None:
                messages[: messages[0][ROLE] == "system"] = [_message("system", system)]
            stream.write(json.dumps({"messages": messages}).encode() + b"\n")


def _message(role: str, content: str) -> dict[str, Any]:
    return {ROLE: role, CONTENT: content}


def _messages(form: TextForm, text: str) -> list[dict[str, Any]]:
    """Return a dialogue as a chat; empty for any other text. The role ``assistant``, or else the one declared last,
    is the assistant, who also makes the tool calls; ``system`` stays unchanged, and all others are the user.
    Consecutive turns of one role become one message. Acts are left out."""
    found = list[dict[str, Any]]()
    assistant = "assistant" if "assistant" in form.roles else next(reversed(form.roles), "")
    for turn in form.messages(text) if form.roles else ():
        role = "assistant" if turn[ROLE] == assistant or TOOL_CALLS in turn else turn[ROLE]
        message = {key: value for key, value in turn.items() if key != ACT}
        message[ROLE] = role if role in ("assistant", "system") or TOOL_CALL_ID in turn else "user"
        last = found[-1] if found else {}
        if last.get(ROLE) == message[ROLE] != TOOL and TOOL_CALLS not in last:
            said = [each[CONTENT] for each in (last, message) if each[CONTENT] is not None]
            found[-1] = {**message, CONTENT: "\n".join(said)}
        else:
            found.append(message)
    return found


def _ask(schema: PublicSchema, row: Row, document_type: str) -> str:
    known = {} if row.label in (None, "") else {label_name(schema): row.label}
    known |= {column.name: row.cells.get(column.name) for column in schema.columns}
    lines = [f"{name}: {words(value)}" for name, value in known.items() if value is not None]
    return "\n".join([f"Write one {document_type}.", *lines])


def _write_dataset(
    statement: Statement, file: SyntheticFile, rows: Sequence[Row], output: Path, *, provenance: bool
) -> None:
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"{output.name!r} exists already and is not empty.", "Name a new folder.")
    table, data = file.table(rows), output / DATA_FILE
    table = table.with_own() if provenance else table
    card, stated = _card(statement, file, rows, table.columns), json.dumps(statement.to_json(), indent=1)
    shared_folder(data.parent)
    table.write(data)
    write_table(output / "provenance.parquet", table.own)
    write_file(output / "statement.json", stated)
    write_file(output / "README.md", card)


def _card(statement: Statement, file: SyntheticFile, rows: Sequence[Row], columns: Iterable[str]) -> str:
    """Return the dataset's card: its description, its guarantee, and the metrics that were released with a charge."""
    import yaml

    labels = Counter(canonical(row.label) for row in rows if row.label not in (None, ""))
    released = read_released(file.path.parent)
    stated = map(_plain, statement.to_markdown(labelled=file.schema.label is not None).strip().split("\n"))
    promise = statement.private and (released is None or released.private)
    header = {
        "pretty_name": f"Synthetic stand-in for {statement.dataset}",
        "tags": ["synthetic", "differential-privacy" if promise else "not-private", "understudy"],
        "task_categories": ["text-generation", *(["text-classification"] if labels else [])],
        "size_categories": [_size_category(len(rows))],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": DATA_FILE}]}],
    }
    stand_in = "a private table" if promise else "a table"
    lines = [
        f"---\n{yaml.safe_dump(header, sort_keys=False, allow_unicode=True)}---",
        f"# Synthetic stand-in for {_line(statement.dataset)}",
        *([] if promise else [f"> **{NOT_PRIVATE}.** Texts or metrics were made with the noise off or seeded."]),
        f"Every text here is invented: understudy made {len(rows):,} synthetic records from {stand_in} "
        f"with the method {statement.method}. No "
        "sentence is a fact about anyone.",
        "## Columns",
        "\n".join(_columns(file.schema, columns)),
        *(["## Labels", _table(("label", "records"), list(labels.most_common(_MOST_LABELS)))] if labels else []),
        *_metrics(released),
        "\n".join(f"#{line}" if line.startswith("#") else line for line in stated),
        "`statement.json` is this statement for programs; `provenance.parquet` says what each text was made from.",
    ]
    return "\n\n".join(lines) + "\n"


def _size_category(records: int) -> str:
    """Return a dataset's size as Hugging Face names it.

    >>> _size_category(999), _size_category(1000), _size_category(10_000_000)
    ('n<1K', '1K<n<10K', '10M<n<100M')
    """
    return _SIZES[max(len(str(records)) - len("999"), 0)]


def _columns(schema: PublicSchema, columns: Iterable[str]) -> list[str]:
    known = {text_name(schema): "the synthetic text", label_name(schema): "its label"}
    form, owner = schema.form, schema.owner
    known |= dict.fromkeys(form.columns(schema.text), "turns" if form.roles else "a text") if form else {}
    known |= {TRANSCRIPT: "the whole text in one column"} if form else {}
    known |= {each.name: f"a typed column ({each.kind})" for each in schema.columns}
    known |= {} if owner is None else {owner.name: "an invented owner"}
    known[PROVENANCE] = "JSON: the Release that the text was made from, and which parts of it"
    return [f"- `{_line(name)}`: {known.get(name, '')}" for name in columns]


def _metrics(released: ReleasedMetrics | None) -> list[str]:
    if released is None:
        return []
    cost = f"Computed on the real texts and released with noise, for {released.budget} in addition to the above."
    if not released.private:
        cost = f"**{NOT_PRIVATE}**: computed on the real texts with the noise off or seeded."
    return ["## Metrics", cost, _table(HEADS[:3], [cells_of(each)[:3] for each in released.values])]


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(_line(str(cell)).replace('|', chr(92) + '|') for cell in row)} |" for row in lines)


def _line(text: str) -> str:
    return " ".join(_plain(text).replace("`", "'").split())


def _plain(text: str) -> str:
    """Return the text without HTML, and without links or images that a viewer would fetch."""
    return printable(text).replace("<", "&lt;").replace("](", "] (").replace("![", "! [")
