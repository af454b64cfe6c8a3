"""Tables of texts into memory: a random sample of each, with embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from understudy.corpus import Corpus, canonical, read_corpus
from understudy.errors import CorpusError
from understudy.metrics.sample import Sample


def read_sample(corpus: Corpus, *, at_most: int, seed: int) -> Sample:
    """At most so many records of a table, each equally likely, in the table's order. One pass.

    Source: Vitter 1985, algorithm R.
    """
    generator = np.random.default_rng(seed)
    kept: list[tuple[int, str, int]] = []
    seen = 0
    for batch in corpus.batches():
        for text, label in zip(batch.texts, batch.labels.tolist(), strict=True):
            if seen < at_most:
                kept.append((seen, text, label))
            elif (place := int(generator.integers(seen + 1))) < at_most:
                kept[place] = (seen, text, label)
            seen += 1
    kept.sort()
    names = [canonical(label) for label in corpus.labels]
    return Sample(tuple(text for _, text, _ in kept), tuple(names[label] for *_, label in kept) if names else None)


def open_table(path: Path, columns: Sequence[tuple[str, str | None]]) -> Corpus:
    """A table of which it is not known how its columns are called.

    Args:
        path: CSV, TSV, JSONL or Parquet.
        columns: text and label columns to try, in turn.

    Raises:
        CorpusError: if the table has none of them, or cannot be read.
    """
    problems: list[CorpusError] = []
    empty: list[Corpus] = []
    for text, label in columns:
        try:
            found = read_corpus(
                path,
                text=text,
                label=label,
                labels_from_data=label is not None,
                on_bad_row="skip",
                formulas_escaped=True,  # of ours they are; in another's CSV at most an apostrophe is lost
            )
        except CorpusError as error:
            problems.append(error)
            continue
        if next(found.batches(1), None) is not None:
            return found
        empty.append(found)  # of JSON lines nobody knows which keys are there
    if empty:
        return empty[0]
    raise problems[0]
