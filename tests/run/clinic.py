"""A small private table, a public vocabulary, settings for a quick run, and a chat model without a network."""

from __future__ import annotations

import csv
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from understudy.corpus.write import write_table
from understudy.ledger import Ledger
from understudy.methods.registry import method_class, method_names
from understudy.models.types import ChatRequest, Completion
from understudy.run.outputs import OutputFolder
from understudy.run.settings import RunConfig
from understudy.text.prompts.template import load_template

TERMS = (
    *("chest pain", "heart", "pulse", "oedema", "angina", "stent", "murmur", "ankle"),
    *("skin", "rash", "eczema", "itch", "mole", "scalp", "steroid cream", "fever"),
)
LABELS = ("cardiology", "dermatology")
COLUMNS = ("note", "department", "clinician")


def rows(count: int = 40) -> list[dict[str, str]]:
    """Notes that hold half of the terms each, department by department in turn."""
    made = []
    for number in range(count):
        terms = TERMS[:8] if number % 2 == 0 else TERMS[8:]
        words = [terms[(number // 2 + step) % 8] for step in range(4)]
        made.append(
            {
                "note": f"Seen today: {', '.join(words)}. Number {number}.",
                "department": LABELS[number % 2],
                "clinician": f"dr-{number % 5}",
            }
        )
    return made


def write_csv(path: Path, table: Iterable[Mapping[str, object]], columns: Sequence[str] = COLUMNS) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(table)
    return path


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    """A complete configuration of a run in ``folder``, whose files, the ledger too, are made where they are not there.

    A change to None takes the setting out.
    """
    if not (folder / "notes.csv").exists():
        write_csv(folder / "notes.csv", rows())
    if not (folder / "terms.txt").exists():
        (folder / "terms.txt").write_text("\n".join(TERMS), "utf-8")
    if not (folder / "ledger.sqlite").exists():
        Ledger.create(folder / "ledger.sqlite").close()
    made: dict[str, Any] = {
        "data": str(folder / "notes.csv"),
        "text": "note",
        "label": "department",
        "labels": ",".join(LABELS),
        "epsilon": "3",
        "delta": "1e-6",
        "ledger": str(folder / "ledger.sqlite"),
        "vocabulary": str(folder / "terms.txt"),
        "vocabulary_is_public": True,
        "top_terms": 10,
        "length": 3,
        "llm": "none",
        "records_per_label": 4,
        "output": str(folder / "out"),
        **changes,
    }
    return {name: value for name, value in made.items() if value is not None}


def flags(values: Mapping[str, Any]) -> list[str]:
    """The same on a command line; what is no flag stands in a configuration file beside the output."""
    words = []
    method = values.get("method", "dp-kps")
    groups = (RunConfig, method_class(method).parameters) if method in method_names() else (RunConfig,)
    no_flag = {name for group in groups for name in group.model_fields.keys() - group.flags().keys()}
    if no_flags := {name: value for name, value in values.items() if name in no_flag}:
        file = Path(values["output"]).parent / "no-flags.yaml"
        file.write_text(json.dumps(no_flags), "utf-8")
        words += ["--config", str(file)]
    for name, value in values.items():
        if name in no_flags:
            continue
        flag = name.replace("_", "-")
        words += [f"--{flag}" if value else f"--no-{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return words


def prompt_file(folder: Path, **settings: Any) -> str:
    """A prompt file that changes these settings of the template that there is, or its examples."""
    file, examples = folder / "prompt.yaml", settings.pop("examples", None)
    shown = {} if examples is None else {"examples": examples, "examples_are_public": True}
    file.write_text(json.dumps({**shown, "settings": settings}), "utf-8")
    return str(file)


def in_format(values: Mapping[str, Any], ending: str) -> Path:
    """The table of a finished run in another format in its place, as older versions wrote it."""
    folder = OutputFolder(Path(values["output"]))
    table = pq.read_table(folder.synthetic_file())
    for other in folder.shareable.glob("synthetic.*"):
        other.unlink()
    types = {field.name: field.type for field in table.schema}
    write_table(folder.synthetic_file(ending), table.to_pydict(), types=types)
    return folder.synthetic_file(ending)


class FakeChat:
    """Answers with the phrases it was asked for. ``asked`` holds every request that reached it.

    Args:
        reply: from the request to the answer, where it is to be another.
        told: called with "before" and "after" around each answer.
    """

    model_id = "fake:chat"

    def __init__(
        self, reply: Callable[[ChatRequest], Completion] | None = None, told: Callable[[str], None] = lambda _when: None
    ) -> None:
        self.asked: list[ChatRequest] = []
        self._reply = reply or (lambda request: Completion(f"A note. {request.messages[-1].content}", "stop", 9, 9))
        self._told = told

    async def complete(self, requests: Sequence[ChatRequest]) -> AsyncIterator[tuple[int, Completion]]:
        for index, request in enumerate(requests):
            self._told("before")
            self.asked.append(request)
            completion = self._reply(request)
            self._told("after")
            yield index, completion

    @property
    def keys(self) -> list[str]:
        """The keys of all requests, in order."""
        return [request.key(self.model_id) for request in self.asked]


def prompt_of(phrases: Sequence[str], document_type: str = "document") -> str:
    """The last message that asks for a text with ``phrases``."""
    return load_template(document_type).messages(phrases)[-1].content
