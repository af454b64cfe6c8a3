"""What few-shot and private prediction share: prompts, private texts in batches of rows, and worker threads."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from typing import TypeVar

from understudy.corpus.bounding import BoundedBatch, BoundedCorpus
from understudy.methods.base import Preparation, needed
from understudy.methods.shared.decoding.ending import OpenText
from understudy.methods.shared.decoding.prompting import LabelPrompts, TextParameters, build_prompts
from understudy.models.machine import worker_pool
from understudy.schema.columns import Column, in_words

T = TypeVar("T")


def label_prompts(parameters: TextParameters, found: Preparation, columns: Sequence[Column] = ()) -> LabelPrompts:
    """Build each label's prompts (see :func:`~understudy.methods.shared.decoding.prompting.build_prompts`)."""
    prompts, model, names, keys = needed(found.prompts), needed(found.model), found.labels.names, found.record_columns
    return build_prompts(parameters, prompts, model, label_names=names, record_columns=keys, columns=columns)


def with_cells(records: BoundedBatch, columns: Sequence[Column]) -> Sequence[str]:
    """Return each text preceded by the cells of its row, if there are typed columns. Private."""
    if not columns or records.cells is None:
        return records.texts
    rows = zip(records.cells.tolist(), records.texts, strict=True)
    return [f"{in_words(columns, cells)}\n{text}" for cells, text in rows]


@dataclass(repr=False)
class Batch:
    """The token rows of one batch, and in ``shares``, for each row, the number of rows of its owner. Memory: 4 bytes
    per token and about 120 per row. Private; its ``repr`` shows nothing."""

    rows: list[Sequence[int]] = field(default_factory=list)
    shares: list[int] = field(default_factory=list)


@dataclass(repr=False)
class Batches:
    """All batches of all labels, including empty ones. ``cut`` counts the texts that were too long. Private; its
    ``repr`` shows nothing."""

    of_label: list[list[Batch]]
    cut: int = 0


def sort_into_batches(
    corpus: BoundedCorpus,
    tokenise: Callable[[str, int], tuple[list[int], bool]],
    *,
    labels: int,
    batches: int = 1,
    columns: Sequence[Column] = (),
) -> Batches:
    """Read the private records in one pass and sort them into ``batches`` batches per label.

    A record's batch is a keyed 64-bit hash of its owner, or of its own label and text, modulo ``batches``, which is
    public (no batch is favoured by more than batches / 2^64). So adding a record does not move others. ``tokenise``
    takes a text and its label; it returns the row's tokens, and whether the text was cut.
    """
    made = Batches([[Batch() for _ in range(batches)] for _ in range(labels)])
    for records in corpus.batches():
        texts = with_cells(records, columns)
        entries = zip(texts, records.labels.tolist(), records.shares.tolist(), records.hashes(), strict=True)
        for text, label, share, number in entries:
            row, was_cut = tokenise(text, label)
            batch = made.of_label[label][number % batches]
            batch.rows.append(array("i", row))
            batch.shares.append(share)
            made.cut += was_cut
    return made


@dataclass
class Decoded:
    """A text while it is decoded: its tokens, and which of them were chosen with noise."""

    text: OpenText
    tokens: list[int] = field(default_factory=list)
    noisy: list[bool] = field(default_factory=list)

    def take(self, token: int, *, noisy: bool) -> None:
        """Add a token, unless the text has ended."""
        if self.text.ended is None:
            self.tokens.append(token)
            self.noisy.append(noisy)
            self.text.take(token)

    @property
    def whole(self) -> bool:
        """Return whether the text ended by itself; False if its tokens ran out."""
        return self.text.ended not in (None, "length")


class Stop:
    """A signal that stops the worker threads of a run."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def ask(self) -> None:
        self._asked.set()

    def check(self) -> None:
        """Raise if the run is being stopped: an unfinished text is not stored, and is decoded again."""
        if self._asked.is_set():
            raise _Stopped


class _Stopped(Exception):
    """Another thread failed, or the user stopped the run."""


def run_together(
    tasks: Sequence[Callable[[], T]],
    *,
    device: str,
    most: int,
    stop: Stop,
    done: Callable[[T], None] = lambda _result: None,
) -> list[T]:
    """Run ``tasks`` in threads, at most ``most`` at once, and return their results in order. ``done`` is called in this
    thread with each result as it arrives. The first error of a task is raised after the others have ended."""
    pool = worker_pool(device, most=most)
    try:
        running = [pool.submit(task) for task in tasks]
        for finished in as_completed(running):
            done(finished.result())
        return [each.result() for each in running]
    finally:
        stop.ask()
        pool.shutdown(wait=True, cancel_futures=True)
