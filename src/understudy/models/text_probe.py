"""Tries that a text's vector is the same bit for bit, whatever texts are embedded beside it or were before it.

One record's vote or cluster has a bound only if it cannot change another record's vector. Whatever an embedder is, it
is tried through the one door by which private texts go in, on the machine at hand, before anything is charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ModelError
from understudy.models.types import Embedder

_LONGEST = 512  # words, where an embedder does not say at how many tokens it cuts
_BATCH_TOKENS = 2048  # likewise
_WORDS = ("the", "of", "and", "to", "in", "a", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not")
_ODD = (
    "",
    " \n\t ",
    "?!" * 40,
    "a" * 2000,
    "3.14159 -- 2,718 (no. 7)\n" * 12,
    "\N{LATIN SMALL LETTER E WITH ACUTE}\N{COMBINING DIAERESIS} \N{OHM SIGN} \N{GRINNING FACE}" * 9,
    "\N{CJK UNIFIED IDEOGRAPH-6587}\N{CJK UNIFIED IDEOGRAPH-672C}" * 60,
)


def require_text_invariance(embedder: Embedder) -> None:
    """Try with random public texts of all lengths that none changes another's vector by a bit.

    Some texts alone, short ones first, so that a state which long ones leave behind is seen; then all together, as
    many of each length as about fill a batch; then twice in another order with half of them in exchange for others,
    once in another thread; then those alone again. About 60 batches: 23 seconds of processor time for the built-in
    embedder without AVX-512, 5 % of what ten thousand notes take.

    Raises:
        ModelError: a vector changes, or there is not one vector per text.
    """
    draw = np.random.default_rng(0)
    longest, batch = getattr(embedder, "longest", _LONGEST), getattr(embedder, "batch_tokens", _BATCH_TOKENS)
    lengths = _lengths(longest)

    def some(length: int) -> str:
        return " ".join(draw.choice(_WORDS, size=length))

    lonely = [some(length) for length in lengths[::3]]
    crowd = [some(length) for length in lengths for _ in range(max(2, 2 * batch // (3 * (length + 2))))]
    texts = [*lonely, *crowd, *_ODD]

    def alone() -> NDArray[np.float32]:
        return np.concatenate([_vectors(embedder, [text]) for text in lonely])

    def require_same_beside_others(kept: NDArray[np.intp]) -> None:
        others = [some(int(length)) for length in draw.choice(lengths, size=len(lengths))]
        order = draw.permutation(len(kept) + len(others))
        beside = [*(texts[place] for place in kept), *others]
        vectors = _vectors(embedder, [beside[place] for place in order])
        _require_same(embedder, vectors[np.argsort(order)[: len(kept)]], together[kept])

    first = alone()
    together = _vectors(embedder, texts)
    _require_same(embedder, first, together[: len(lonely)])
    halves = np.array_split(draw.permutation(len(texts)), 2)
    require_same_beside_others(halves[0])
    with ThreadPoolExecutor(1) as other_thread:
        other_thread.submit(require_same_beside_others, halves[1]).result()
    _require_same(embedder, first, alone())


def _lengths(longest: int) -> list[int]:
    """In words: 1, 2, 3, 4, 6, 8, 12, ..., and beyond where texts are cut."""
    steps = {2**power * part // 2 for power in range(longest.bit_length()) for part in (2, 3)}
    return sorted({length for length in steps if length <= longest} | {longest + longest // 2})


def _vectors(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    vectors = np.ascontiguousarray(embedder.embed(texts), dtype=np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise ModelError(f"The embedder {embedder.model_id!r} does not answer with one vector a text.", "Use another.")
    return vectors


def _require_same(embedder: Embedder, first: NDArray[np.float32], second: NDArray[np.float32]) -> None:
    """See that the bits are the same, those of what is no number too."""
    if first.shape != second.shape or first.tobytes() != second.tobytes():
        raise ModelError(
            f"The vector that the embedder {embedder.model_id!r} gives a text changes with the texts beside it, so the "
            "influence of one record would have no bound.",
            "Use another embedder, such as 'builtin', or another machine.",
        )
