"""How many texts of each label a population holds: equal, declared, or in proportion to a noisy count."""

from __future__ import annotations

import math
from collections.abc import Sequence

from understudy.errors import ConfigError

UNIFORM, NOISY = "uniform", "noisy"


def declared_proportions(text: str, label_names: Sequence[str]) -> tuple[float, ...] | None:
    """The proportions that ``A=3,B=1`` declares, in the order of the labels; None for ``uniform`` and ``noisy``.

    Raises:
        ConfigError: if it does not give every declared label, and no other, a number of 0 or more.
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
