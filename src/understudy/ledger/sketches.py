"""What a table looks like, in a few keyed hashes of its lines: enough to tell that another table is much the same.

The *bottom-k sketch* of a set (Broder 1997; Cohen and Kaplan 2007) is the k smallest of its elements' hashes: a uniform
sample, taken alike from every set. So of two sets A and B, the hashes up to where both sketches reach are a sample of
the union that shows of each element whether it is in A, in B or in both; the share of A's part that is in B estimates
|A and B| / |A|. Of the smaller set this is the containment, which is never below the Jaccard similarity: it stays 1
when a table has grown to ten times its size, or was cut to a tenth.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from understudy.ledger.damage import damaged

_BYTES = 8
_LEAST_SHARED = 3
"""Fewer lines in common say nothing: two tables may both hold "n/a"."""


@dataclass(frozen=True)
class Sketch:
    """Keyed hashes of a table's distinct lines: the lowest of them, in order.

    Args:
        hashes: at most :attr:`SIZE` increasing 64-bit numbers; fewer only if the table has no more.
    """

    SIZE = 512

    hashes: tuple[int, ...] = field(repr=False)

    def is_near(self, other: Sketch) -> bool:
        """Whether the smaller of the two tables has more than half of its lines from the other, as estimated.

        With 512 hashes the standard error is at most 0.03 for tables of one size, and 0.1 where one is twenty times
        the other. Where one is more than some hundred times the other, too few hashes are left to tell.
        """
        reach = min(self._reach, other._reach)
        mine = {each for each in self.hashes if each <= reach}
        theirs = {each for each in other.hashes if each <= reach}
        shared = len(mine & theirs)
        return shared >= _LEAST_SHARED and 2 * shared > min(len(mine), len(theirs))

    def merged(self, other: Sketch) -> Sketch:
        """The sketch of both tables together."""
        return Sketch(tuple(sorted({*self.hashes, *other.hashes})[: self.SIZE]))

    def to_text(self) -> str:
        return base64.b64encode(b"".join(each.to_bytes(_BYTES) for each in self.hashes)).decode()

    @classmethod
    def from_text(cls, text: str) -> Sketch:
        """The inverse of :meth:`to_text`.

        Raises:
            LedgerError: if it is none.
            ValueError, TypeError: likewise.
        """
        packed = base64.b64decode(text, validate=True)
        hashes = tuple(int.from_bytes(packed[at : at + _BYTES]) for at in range(0, len(packed), _BYTES))
        if len(packed) % _BYTES or len(hashes) > cls.SIZE or list(hashes) != sorted(set(hashes)):
            raise damaged()
        return cls(hashes)

    @property
    def _reach(self) -> int:
        """The highest hash up to which every hash of the table is known."""
        return self.hashes[-1] if len(self.hashes) == self.SIZE else (1 << (8 * _BYTES)) - 1
