"""The label set: public, declared, and never empty to count with; and how records are shared out over it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from understudy.errors import ConfigError

UNIFORM, NOISY = "uniform", "noisy"


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


def declared_proportions(text: str, label_names: Sequence[str]) -> tuple[float, ...] | None:
    """The proportions that ``A=3,B=1`` declares, in the order of the labels; None for ``uniform`` and ``noisy``.

    Raises ConfigError if it does not give every declared label, and no other, a number of 0 or more.
    """
    if text in (UNIFORM, NOISY):
        return None
    parts = [part.rpartition("=") for part in text.split(",")]
    try:
        given = {name.strip(): float(number) for name, _, number in parts}
    except ValueError:
        given = {}
    usable = len(given) == len(parts) and all(math.isfinite(n) and n >= 0 for n in given.values())
    if not usable or set(given) != set(label_names) or not 0 < sum(given.values()) < math.inf:
        raise ConfigError(
            f"The label proportions {text!r:.80} do not fit the declared labels.",
            "Give `uniform`, `noisy`, or one number per label: A=3,B=1.",
        )
    return tuple(given[name] for name in label_names)


def in_proportion(total: int, weights: Sequence[float]) -> list[int]:
    """``total`` in proportion to ``weights`` (largest remainder); those below 0, as noisy counts may be, count as 0.

    Where all are 0 the shares are equal.

    >>> in_proportion(10, [5, 3, -1])
    [6, 4, 0]
    """
    positive = [max(0.0, weight) for weight in weights]
    whole = math.fsum(positive)
    exact = [total * weight / whole for weight in positive] if whole > 0 else [total / len(positive)] * len(positive)
    shares = [math.floor(share) for share in exact]
    by_remainder = sorted(range(len(shares)), key=lambda place: (shares[place] - exact[place], place))
    for place in by_remainder[: total - sum(shares)]:
        shares[place] += 1
    return shares
