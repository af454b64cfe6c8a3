"""The private texts of each label in tokens, held in memory: every token has a new sample of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedCorpus
from understudy.errors import PrivacyError

Tokenise = Callable[[str, int], tuple[Sequence[int], bool]]
"""A text and its label into tokens; and whether it had to be cut."""


@dataclass(repr=False)
class PrivateTexts:
    """One entry per unit: a record, or the one record of an owner that is used. Private; its ``repr`` shows nothing.

    Memory: 4 bytes per token, and about 120 per text.
    """

    of_label: list[list[NDArray[np.int32]]] = field(default_factory=list)
    cut: int = 0


def read_private_texts(corpus: BoundedCorpus, tokenise: Tokenise, *, labels: int) -> PrivateTexts:
    """One pass over the private records.

    Raises:
        PrivacyError: if an owner may have more than one record, which would be sampled as if they were strangers.
    """
    if corpus.unit.max_records != 1:
        raise PrivacyError(
            f"One {corpus.unit.name} may have {corpus.unit.max_records} records in the sample.",
            "This is a fault of the method: it plans with one record each.",
        )
    read = PrivateTexts([[] for _ in range(labels)])
    for batch in corpus.batches():
        for text, label in zip(batch.texts, batch.labels.tolist(), strict=True):
            tokens, was_cut = tokenise(text, label)
            read.of_label[label].append(np.asarray(tokens, dtype=np.int32))
            read.cut += was_cut
    return read
