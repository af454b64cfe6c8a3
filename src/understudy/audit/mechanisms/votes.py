"""Attacks on the votes of Aug-PE: of records, of owners, of secrets, in one round and in all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from understudy.audit.mechanisms.noisy_sums import Measured, SumAttack
from understudy.audit.mechanisms.promise import EpsilonPromise, PosteriorPromise, Promise
from understudy.audit.mechanisms.secret_promise import secret_budget
from understudy.evolution.embeddings import Block, integer_vectors
from understudy.methods.aug_pe.parameters import AugPEParameters
from understudy.methods.aug_pe.plan import mechanisms, records_per_unit
from understudy.methods.aug_pe.votes import VoteHistogram
from understudy.methods.public import PublicFacts
from understudy.privacy.accountant import Composition
from understudy.privacy.guarantee import Budget
from understudy.privacy.secrets.budget import SecretBudget
from understudy.privacy.unit import Unit

OWNER = Unit("owner", 3)
NEAREST = 2
_CANDIDATES = np.repeat(integer_vectors(np.eye(2, dtype=np.float32)), 2, axis=0)
_LABELS = np.array([0, 1, 0, 1], dtype=np.int32)


@dataclass(frozen=True)
class Embeddings:
    """Records in memory: where each lies, its label, whose it is."""

    places: Sequence[int]
    labels: Sequence[int]
    units: Sequence[int]

    def batches(self) -> Iterator[Block]:
        yield Block(
            integer_vectors(np.eye(2, dtype=np.float32)[list(self.places)]),
            np.array(self.labels, dtype=np.int32),
            np.array(self.units, dtype=np.int64),
        )


def votes(unit: Unit) -> VoteHistogram:
    """The real query: two labels with two candidates each; every record votes for both of its label."""
    return VoteHistogram(_CANDIDATES, _LABELS, unit, NEAREST)


def _added(unit: Unit) -> Embeddings:
    """Two records of others, and the worst unit: one record, an owner's in both labels, or a secret's, all alike."""
    mine = {"record": [0], "owner": [0, 1, 1], "secret": [0, 0, 0]}[unit.kind]
    return Embeddings([0, 1] + [0] * len(mine), [0, 1, *mine], [0, 1] + [2] * len(mine))


def aug_pe(rounds: int, unit: Unit, budget: Budget) -> SumAttack:
    """The votes of ``rounds`` rounds with the noise of Aug-PE's own plan. All rounds have the same candidates."""
    spend: Budget | SecretBudget = secret_budget(budget) if unit.kind == "secret" else budget
    parameters = AugPEParameters(rounds=rounds, nearest=NEAREST)
    planned = mechanisms(parameters, spend, PublicFacts(unit), vocabulary_size=None).values()
    sums = [Measured(mechanism, votes(unit), records_per_unit(unit)) for mechanism in planned]
    return SumAttack(sums, Embeddings([0, 1], [0, 1], [0, 1]), _added(unit), _promise(sums, spend))


def _promise(sums: Sequence[Measured], spend: Budget | SecretBudget) -> Promise:
    events = tuple(each.mechanism.event for each in sums)
    if isinstance(spend, SecretBudget):
        return PosteriorPromise(events, float(spend.prior))
    return EpsilonPromise(Composition(events), float(spend.delta))
