"""Near duplicates: MinHash to find candidates, edit similarity to confirm them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from understudy.metrics.leakage.figures import share_of_texts
from understudy.metrics.value import Figure, Metric

SIMILAR = (0.8, 0.9)
"""Edit similarities from which on two texts are near duplicates."""

_CONFIRMED = 100
"""Candidates of a text whose similarity is computed: in tables with much boilerplate nearly every text is one."""

_PERMUTATIONS, _BANDS, _ROWS = 128, 32, 4
"""Texts with half of their distinct words in common are found with probability 0.87, with two thirds 0.999."""

NEAR = Metric(
    "near_duplicates",
    "Texts with a near duplicate among the real ones",
    "leakage",
    "The share of texts, in [0, 1], that have a real text of at least the given similarity: 1 minus the insertions "
    "and deletions of characters that turn one into the other, over both lengths. Case and punctuation do not count. "
    f"Compared are the {_CONFIRMED} real texts at most that share most words by MinHash: a text with typing errors in "
    "every other word may be missed.",
    "Broder 1997; Lee et al. 2022, arXiv:2107.06499, section 4.2",
    "lower",
)


def measure_near_duplicates(
    real: Sequence[Sequence[str]], others: Mapping[str, Sequence[Sequence[str]]], *, seed: int
) -> list[Figure]:
    """Shares of texts with a near duplicate in ``real``. Texts without words have none.

    Args:
        real: the words of each real text.
        others: the words of each text, by the name of the table.
        seed: of the permutations.
    """
    index = _Index(real, others, seed)
    figures: list[Figure] = []
    for of, texts in others.items():
        most = np.array([index.most_similar(words) for words in texts])
        figures += [share_of_texts(NEAR, most >= level, of, {"similarity": level}) for level in SIMILAR]
    return figures


class _Index:
    """The distinct real texts, to be asked for what is similar."""

    def __init__(self, real: Sequence[Sequence[str]], others: Mapping[str, Sequence[Sequence[str]]], seed: int) -> None:
        from datasketch import MinHash, MinHashLSH, sha1_hash32

        vocabulary = set(chain.from_iterable(chain(real, *others.values())))
        self._hashes = {word: sha1_hash32(word.encode("utf-8", "surrogatepass")) for word in vocabulary}
        self._empty = MinHash(num_perm=_PERMUTATIONS, seed=seed % 2**32, hashfunc=int)
        self._lsh = MinHashLSH(num_perm=_PERMUTATIONS, params=(_BANDS, _ROWS))
        self._texts = list(dict.fromkeys(" ".join(words) for words in real if words))
        sketches = [self._sketch(text.split(" ")) for text in self._texts]
        for number, sketch in enumerate(sketches):
            self._lsh.insert(number, sketch, check_duplication=False)
        self._hash_values = np.array([sketch.hashvalues for sketch in sketches])
        self._known = set(self._texts)

    def most_similar(self, words: Sequence[str]) -> float:
        """The highest similarity of any candidate, 0 where it is below all of ``SIMILAR``."""
        from rapidfuzz.fuzz import ratio
        from rapidfuzz.process import extractOne

        text = " ".join(words)
        if text in self._known:
            return 1.0
        if not words or not self._texts:
            return 0.0
        sketch = self._sketch(words)
        numbers = np.array(sorted(self._lsh.query(sketch)), dtype=np.int64)
        agreeing = (self._hash_values[numbers] == sketch.hashvalues).sum(axis=1)
        numbers = numbers[np.argsort(-agreeing, kind="stable")[:_CONFIRMED]]
        candidates = (self._texts[number] for number in numbers)
        found = extractOne(text, candidates, scorer=ratio, score_cutoff=100 * min(SIMILAR))
        return 0.0 if found is None else found[1] / 100

    def _sketch(self, words: Sequence[str]) -> Any:
        sketch = self._empty.copy()
        sketch.update_batch([self._hashes[word] for word in set(words)])
        return sketch
