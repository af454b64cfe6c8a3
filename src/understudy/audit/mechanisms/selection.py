"""An attack on the selection of names that nobody listed: which are shown, and with what numbers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.audit.mechanisms.bounds import Claim, Floats
from understudy.audit.mechanisms.sums import Row, corpus
from understudy.methods.shared.queries.unlisted import UnlistedTerms
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import OpenQuery, select
from understudy.privacy.noise import NoiseSource, SystemNoise
from understudy.privacy.sealed import decode_names
from understudy.privacy.selection import NoisySelection
from understudy.privacy.unit import Unit

_KNOWN = ("zorple", "quexil", "vantor")
_LONE = "brindlewick"
_MANY = 400  # others, so that their terms are always shown
Sums = Mapping[str, int]


@dataclass(frozen=True)
class SelectionAttack:
    """Was the unit among those whose names are selected?

    The score is the log-likelihood ratio of the numbers that are shown (Neyman and Pearson 1933), of names that are
    always shown; a name that only the unit has settles it.

    Args:
        absent, present: exact sums by name without and with the unit.
    """

    mechanism: NoisySelection
    absent: Sums
    present: Sums
    claim: Claim
    source: NoiseSource = field(default_factory=SystemNoise)

    @property
    def most(self) -> int:
        return self.mechanism.most

    def sums(self, data: Sums) -> Iterator[tuple[list[str], NDArray[np.int64]]]:
        yield sorted(data), np.array([data[name] for name in sorted(data)], dtype=np.int64)

    def scores(self, runs: int, *, present: bool) -> Floats:
        data: Any = self.present if present else self.absent
        return np.array([self._score(select(self.mechanism, self, data, source=self.source)) for _ in range(runs)])

    def _score(self, found: Mapping[str, NDArray[Any]]) -> float:
        score = 0.0
        for name, value in zip(decode_names(found["names"]), found["value"].tolist(), strict=True):
            if name not in self.absent:
                return _CERTAIN
            shift = self.present[name] - self.absent[name]
            middle = (self.present[name] + self.absent[name]) / 2
            score += shift * (value * self.mechanism.sensitivity.grid - middle) / self.mechanism.scale**2
        return score


_CERTAIN = 1e6


def discovered(
    unit: Unit, budget: Budget, *, query_of: Callable[..., OpenQuery] = UnlistedTerms, most: int = len(_KNOWN) + 1
) -> SelectionAttack:
    """The real query with the noise and the threshold that ``budget`` asks for, a tenth of delta for lone names."""
    lone = budget.delta / 10
    multiplier = gaussian_split(Budget.of(budget.epsilon, budget.delta - lone), [1.0])[0]
    mechanism = NoisySelection(multiplier, float(lone), most)
    others = [Row(". ".join(_KNOWN), owner=f"somebody {number}") for number in range(_MANY)]
    mine = [Row(". ".join([*_KNOWN, _LONE]))]
    if unit.kind == "owner":
        mine = [Row(name, owner="Ann") for name in _KNOWN]
    with tempfile.TemporaryDirectory() as scratch:
        query = query_of(frozenset(), frozenset(), most, Path(scratch))
        absent, present = (by_name(query, corpus(rows, unit)) for rows in (others, [*others, *mine]))
    return SelectionAttack(mechanism, absent, present, Claim((mechanism.event,), float(budget.delta)))


def by_name(query: OpenQuery, data: Any) -> dict[str, int]:
    """All exact sums. Private."""
    return {name: int(each) for names, sums in query.sums(data) for name, each in zip(names, sums, strict=True)}
