"""Attacks on noisy sums: the best test, which knows both exact sums, on the real mechanism's answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic

import numpy as np

from understudy.audit.bounds import Floats
from understudy.audit.mechanisms.promise import Promise
from understudy.privacy.events import Event
from understudy.privacy.mechanisms import Data, NoisySum
from understudy.privacy.noise import NoiseSource, SystemNoise
from understudy.privacy.plan import Charge, Receipt


def paid(name: str, event: Event) -> Receipt:
    """A receipt for one charge. There is no ledger here: the data are invented."""
    return Receipt("audit", (Charge(name, event, {}, "to be audited"),))


@dataclass(frozen=True)
class SumAttack(Generic[Data]):
    """Was the unit in the data of these sums, all of which are released?

    The score is the log-likelihood ratio of the answers, for the noise that the mechanisms say they add (Neyman and
    Pearson 1933: no test is better).

    Args:
        mechanisms: one or more sums of the same data, each with its noise.
        absent: the data without the unit.
        present: the data with it.
        promise: of all that is released.
        source: of noise.
    """

    mechanisms: Sequence[NoisySum[Data]]
    absent: Data
    present: Data
    promise: Promise
    source: NoiseSource = field(default_factory=SystemNoise)

    def scores(self, runs: int, *, present: bool) -> Floats:
        return np.asarray(sum(self._scores(mechanism, runs, present) for mechanism in self.mechanisms))

    def _scores(self, mechanism: NoisySum[Data], runs: int, present: bool) -> Floats:
        query, data = mechanism.query, self.present if present else self.absent
        without, with_unit = query.evaluate(self.absent).ravel(), query.evaluate(self.present).ravel()
        moved = without != with_unit
        name, event = query.name, mechanism.event
        answers = np.array(
            [mechanism.run(data, receipt=paid(name, event), source=self.source).ravel()[moved] for _ in range(runs)]
        )
        noise = (answers * query.grid - without[moved]) / mechanism.scale
        shift = (with_unit - without)[moved] / mechanism.scale
        if mechanism.noise == "laplace":
            return np.asarray((np.abs(noise) - np.abs(noise - shift)).sum(axis=1))
        return np.asarray(noise @ shift - shift @ shift / 2)
