"""Attacks on noisy sums: the best test, which knows both exact sums, on the real mechanism's answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from understudy.audit.bounds import Floats
from understudy.audit.mechanisms.promise import Promise
from understudy.privacy.measurement import Batches, Query, exact_sum, measure
from understudy.privacy.mechanisms import NoisySum
from understudy.privacy.noise import NoiseSource, SystemNoise


@dataclass(frozen=True)
class Measured:
    """A query with the mechanism that was planned for it, and how many of its vectors one unit adds."""

    mechanism: NoisySum
    query: Query[Any]
    records_per_unit: int = 1


@dataclass(frozen=True)
class SumAttack:
    """Was the unit in the data of these sums, all of which are released?

    The score is the log-likelihood ratio of the answers, for the noise that the mechanisms say they add (Neyman and
    Pearson 1933: no test is better).

    Args:
        sums: one or more sums of the same data, each with its noise.
        absent: the data without the unit.
        present: the data with it.
        promise: of all that is released.
        source: of noise.
    """

    sums: Sequence[Measured]
    absent: Batches[Any]
    present: Batches[Any]
    promise: Promise
    source: NoiseSource = field(default_factory=SystemNoise)

    def scores(self, runs: int, *, present: bool) -> Floats:
        return np.asarray(sum(self._scores(each, runs, present) for each in self.sums))

    def _scores(self, each: Measured, runs: int, present: bool) -> Floats:
        mechanism, query, data = each.mechanism, each.query, self.present if present else self.absent
        without, with_unit = exact_sum(query, self.absent).ravel(), exact_sum(query, self.present).ravel()
        moved = without != with_unit
        answers = np.array([self._answer(each, data).ravel()[moved] for _ in range(runs)])
        noise = (answers * mechanism.sensitivity.grid - without[moved]) / mechanism.scale
        shift = (with_unit - without)[moved] / mechanism.scale
        if mechanism.noise == "laplace":
            return np.asarray((np.abs(noise) - np.abs(noise - shift)).sum(axis=1))
        return np.asarray(noise @ shift - shift @ shift / 2)

    def _answer(self, each: Measured, data: Batches[Any]) -> Floats:
        return measure(each.mechanism, each.query, data, source=self.source, records_per_unit=each.records_per_unit)
