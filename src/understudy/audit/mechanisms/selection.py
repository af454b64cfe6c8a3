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
from understudy.audit.mechanisms.sums import InMemory, Row, corpus
from understudy.methods.shared.queries.unlisted import UnlistedTerms
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import OpenQuery, select
from understudy.privacy.noise import NoiseSource, SystemNoise
from understudy.privacy.sealed import decode_names
from understudy.privacy.selection import NoisySelection
from understudy.privacy.unit import Unit
from understudy.text.vocabulary.phrases import Unlisted

_KNOWN = ("zorple", "quexil", "vantor")
_LONE = "brindlewick"
_MANY = 400  # others, so that their terms are always shown
Sums = Mapping[str, int]


@dataclass(frozen=True)
class _Summed:
    """A query whose sums are known."""

    most: int
    by_name: Sums

    def sums(self, data: Any) -> Iterator[tuple[list[str], NDArray[np.int64]]]:  # noqa: ARG002
        names = sorted(self.by_name)
        yield names, np.array([self.by_name[name] for name in names], dtype=np.int64)


@dataclass(frozen=True)
class SelectionAttack:
    """Was the unit among those whose names are selected?

    The score is the log-likelihood ratio of what is shown, and with what numbers (Neyman and Pearson 1933); a name that
    only the unit has settles it.

    Args:
        absent, present: exact sums by name without and with the unit.
    """

    mechanism: NoisySelection
    absent: Sums
    present: Sums
    claim: Claim
    source: NoiseSource = field(default_factory=SystemNoise)

    def scores(self, runs: int, *, present: bool) -> Floats:
        query = _Summed(self.mechanism.most, self.present if present else self.absent)
        return np.array([self._score(self._shown(query)) for _ in range(runs)])

    def _shown(self, query: _Summed) -> dict[str, float]:
        found = select(self.mechanism, query, _NO_DATA, source=self.source)
        values = found["value"] * self.mechanism.sensitivity.grid
        return dict(zip(decode_names(found["names"]), values.tolist(), strict=True))

    def _score(self, shown: Mapping[str, float]) -> float:
        from scipy.special import log_ndtr

        score, scale, limit = 0.0, self.mechanism.scale, self.mechanism.threshold
        for name, larger in self.present.items():
            smaller = self.absent.get(name)
            if smaller is None:
                score += _CERTAIN if name in shown else log_ndtr((limit - larger) / scale)
            elif name in shown:
                score += (larger - smaller) * (2 * shown[name] - larger - smaller) / (2 * scale**2)
            else:
                score += log_ndtr((limit - larger) / scale) - log_ndtr((limit - smaller) / scale)
        return float(score)


_CERTAIN = 1e6
_NO_DATA = InMemory(())


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
        query = query_of(Unlisted(["note"], stop_words=frozenset()), most, Path(scratch))
        absent, present = (by_name(query, corpus(rows, unit)) for rows in (others, [*others, *mine]))
    return SelectionAttack(mechanism, absent, present, Claim((mechanism.event,), float(budget.delta)))


def by_name(query: OpenQuery, data: Any) -> dict[str, int]:
    """All exact sums. Private."""
    return {name: int(each) for names, sums in query.sums(data) for name, each in zip(names, sums, strict=True)}
