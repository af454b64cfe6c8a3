"""Texts in memory, with their labels, embeddings and typed columns: the input of every metric."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.normalise import fold, pieces
from understudy.schema.columns import Column
from understudy.schema.transcript import BEGINS, CALLS, PLAIN, TURNS, Part, TextForm, turns_of
from understudy.text.vocabulary.words import split_words


@dataclass(frozen=True, eq=False, repr=False)
class Sample:
    """A random part of a table, with labels and embeddings. May be private, so its ``repr`` shows nothing.

    Args:
        transcripts: the texts with the names of their parts, as language models see them.
        labels: canonical label strings, one per text; None for a table without labels.
        embeddings: ``Float32[len(texts), d]`` of unit length; None if not requested.
        cells: ``Int32[len(texts), len(columns)]``, cells of the typed columns; None without such.
        form: the kinds of the texts' parts, if any.
    """

    transcripts: tuple[str, ...]
    labels: tuple[str, ...] | None = None
    embeddings: NDArray[np.float32] | None = None
    cells: NDArray[np.int32] | None = None
    columns: tuple[Column, ...] = ()
    form: TextForm = PLAIN

    def __post_init__(self) -> None:
        if self.labels is not None and len(self.labels) != len(self):
            raise ValueError("expected one label per text")
        if self.embeddings is not None and len(self.embeddings) != len(self):
            raise ValueError("expected one embedding per text")
        if self.cells is not None and self.cells.shape != (len(self), len(self.columns)):
            raise ValueError("expected one cell per text and column")

    def __len__(self) -> int:
        return len(self.transcripts)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Return the texts; of those with parts, the words of the parts, without names."""
        return tuple(map(self.form.contents, self.transcripts)) if self.form else self.transcripts

    @cached_property
    def parts(self) -> tuple[tuple[Part, ...], ...] | None:
        """Return the parts of each text; None if texts have no parts."""
        return tuple(self.form.parse(text) or () for text in self.transcripts) if self.form else None

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> Sample:
        """Return the texts at ``rows``, in that order."""
        places = np.asarray(rows, dtype=np.int64)
        return replace(
            self,
            transcripts=tuple(self.transcripts[row] for row in rows),
            labels=None if self.labels is None else tuple(self.labels[row] for row in rows),
            embeddings=None if self.embeddings is None else self.embeddings[places],
            cells=None if self.cells is None else self.cells[places],
        )

    @property
    def shapes(self) -> Iterator[tuple[str, tuple[str, ...], NDArray[np.int64]]]:
        """Return the shapes of texts that have parts: a title, the names of the values if they are categories, and a
        number (``Int64[n]``) for each text or each such part."""
        texts, parts = self.parts or (), [part for parts in self.parts or () for part in parts]
        if roles := self.form.roles:
            yield TURNS, (), _numbers(len(turns_of(each)) for each in texts)
            yield BEGINS, roles, _numbers(roles.index(each[0].name) for each in texts if each)
        if acts := self.form.acts:
            done = [part.act for part in parts if not part.tool]
            yield "acts", ("none", *acts), _numbers(acts.index(act) + 1 if act else 0 for act in done)
        if tools := self.form.tools:
            yield CALLS, tools, _numbers(tools.index(part.tool) for part in parts if part.calls)
        for name in self.form.names:
            own = [part.content for part in parts if part.name == name and not part.tool]
            yield f"words of {name}", (), _numbers(len(split_words(text)) for text in own)

    def at_most(self, count: int, *, seed: int) -> Sample:
        """Return ``count`` random texts, in their order; all if there are no more."""
        if len(self) <= count:
            return self
        rows = np.sort(np.random.default_rng(seed).choice(len(self), size=count, replace=False))
        return self.take(rows)

    def halves(self, *, seed: int) -> tuple[Sample, Sample]:
        """Split the texts at random into two parts, each in their order."""
        order = np.random.default_rng(seed).permutation(len(self))
        middle = len(self) // 2
        return self.take(np.sort(order[:middle])), self.take(np.sort(order[middle:]))

    @cached_property
    def words(self) -> list[list[str]]:
        """Return the words of each text, as metrics and charts count them."""
        return words_of(self.texts, split_words)

    @cached_property
    def normal_words(self) -> list[list[str]]:
        """Return the words of each text without case and punctuation, as a search for copies compares them."""
        return words_of(self.texts, normal_words)


def _numbers(values: Iterable[int]) -> NDArray[np.int64]:
    return np.array(list(values), dtype=np.int64)


def normal_words(text: str) -> list[str]:
    """Return the words of ``text`` without case and punctuation; for scripts without blanks, the characters.

    >>> normal_words("Don't  PANIC, Zoë: 漢字!")
    ['don', 't', 'panic', 'zoë', '漢', '字']
    """
    return [piece for piece in pieces(fold(text)) if piece[0].isalnum()]


def number_pairs(first: NDArray[np.integer], second: NDArray[np.integer]) -> NDArray[np.int32]:
    """Number pairs of numbers from 0, in the order of the pairs. Uses half the memory of NumPy's unique."""
    keys = first.astype(np.int64) * (int(second.max(initial=0)) + 1) + second
    order = np.argsort(keys)
    keys = keys[order]
    codes = np.zeros(len(keys), dtype=np.int32)
    codes[order[1:]] = np.cumsum(keys[1:] != keys[:-1], dtype=np.int32)
    return codes


def words_of(texts: Sequence[str], split: Callable[[str], list[str]]) -> list[list[str]]:
    """Return the words of each text, by ``split``. Equal words are one object, so that a word takes 8 bytes."""
    return [list(map(sys.intern, split(text))) for text in texts]
