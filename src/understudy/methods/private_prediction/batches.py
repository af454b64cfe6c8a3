"""Private texts sorted into disjoint batches, by keyed hashes of their units and never by where they stand."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from understudy.corpus.bounding import BoundedCorpus

Tokenise = Callable[[str, int], tuple[list[int], bool]]
"""A text and its label into the own tokens of its row; and whether it had to be cut."""


@dataclass(repr=False)
class Batch:
    """The rows of one batch: own tokens, and of how many rows of the same unit each is one. Private."""

    rows: list[Sequence[int]] = field(default_factory=list)
    shares: list[int] = field(default_factory=list)


@dataclass(repr=False)
class Batches:
    """Every batch of every label, empty ones too; ``cut`` texts were too long. Private."""

    of_label: list[list[Batch]]
    cut: int = 0


def sort_into_batches(corpus: BoundedCorpus, tokenise: Tokenise, *, labels: int, batches: int) -> Batches:
    """One pass over the private records.

    A record's batch within its label is the keyed hash of its owner, or of its own label and text, modulo the public
    number of batches (64 bits: no batch is favoured by more than batches / 2^64). Adding a record moves no other.

    Args:
        labels: size of the label set.
        batches: of each label; public.
    """
    made = Batches([[Batch() for _ in range(batches)] for _ in range(labels)])
    for records in corpus.batches():
        entries = zip(records.texts, records.labels.tolist(), records.shares.tolist(), records.hashes(), strict=True)
        for text, label, share, number in entries:
            row, was_cut = tokenise(text, label)
            batch = made.of_label[label][number % batches]
            batch.rows.append(array("i", row))  # a quarter of a list's memory, or less
            batch.shares.append(share)
            made.cut += was_cut
    return made
