"""The label set: public, declared, and never empty to count with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LabelSet:
    """The declared labels' canonical strings, in their order; none for a table without labels.

    >>> LabelSet().size, LabelSet(("cardiology", "other")).size
    (1, 2)
    """

    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Into how many groups records fall: one per label, and one where there are no labels."""
        return max(1, len(self.names))

    @property
    def titles(self) -> tuple[str, ...]:
        """A name for each of the groups."""
        return self.names or ("all",)
