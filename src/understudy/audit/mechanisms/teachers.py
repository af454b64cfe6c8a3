"""Attacks on SeqPATE: one more record turns the answers of its teacher round, in all questions.

Shards, groups and answers are the real ones. What a teacher learns and computes is scripted: what it says follows from
whether the unit's texts are in its shard.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.audit.mechanisms.claims import EpsilonClaim
from understudy.audit.mechanisms.sums import Measured, Row, SumAttack, corpus
from understudy.methods.public import PublicFacts
from understudy.methods.seq_pate.answers import Questions, TeacherAnswers
from understudy.methods.seq_pate.plan import SeqPATEParameters, mechanisms
from understudy.methods.seq_pate.teachers import Faculty, Group, Recipe, Teachers
from understudy.models.training import Shapes, TokenRow
from understudy.privacy.accountant import Composition
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import Query
from understudy.privacy.mechanisms import Sensitivity
from understudy.privacy.noise import NoiseKind
from understudy.privacy.unit import Unit

COUNT, GROUP = 5, 4
"""Teachers, and how many of them go through one pass: the last group is filled up."""
CANDIDATES = (1, 2)
TURNED = "turned"
"""A text that holds it turns its teacher's answers round."""
_SURE = 200.0
_OTHERS = tuple(Row(f"another note, of number {number}", owner=f"owner {number}") for number in range(4))
_MINE = tuple(Row(f"{TURNED} by note {number}", owner="Ann") for number in range(3))


class _Script(threading.local):
    """What the teachers of the present pass say, ``Float32[G, 1]``: 1 for odd tokens, -1 for even ones."""

    says: Any = None

    def below(self, tokens: Any) -> Any:
        import torch

        return torch.zeros((*tokens.shape, 1))

    def above(self, tokens: Any, states: Any) -> Any:
        return states + self.says[:, :, None].expand(len(tokens), tokens.shape[1], 1)

    @staticmethod
    def of(tokens: Any) -> Any:
        """A head."""
        return lambda states: _SURE * states * (2 * (tokens % 2) - 1)


class _Readings:
    """The form of the texts: one token, which tells whether a text turns its teacher."""

    tokens = 1
    instructions = SimpleNamespace(prompts=[(0,)])

    @staticmethod
    def shapes() -> Shapes:
        return Shapes(prompt=1, target=1, rows=1)

    @staticmethod
    def row(text: str, _label: int) -> TokenRow:
        return TokenRow((0,), np.array([1 if TURNED in text else 2], dtype=np.int32))


@dataclass(frozen=True, eq=False, repr=False)
class ScriptedFaculty(Faculty):
    """Teachers who do not learn: one says 1 if a text that turns it is in its shard, -1 otherwise."""

    def train(self, shards: Sequence[Sequence[TokenRow]]) -> NDArray[np.float32]:
        return np.array([[1 if any(1 in row.target for row in shard) else -1] for shard in shards], dtype=np.float32)

    @contextmanager
    def active(self, weights: NDArray[np.float32]) -> Iterator[None]:
        import torch

        self.trunk.says = torch.from_numpy(weights)  # type: ignore[attr-defined]
        yield


def faculty() -> ScriptedFaculty:
    """Of teachers who read one text each, or as many as an owner has."""
    script: Any = _Script()
    lora: Any = SimpleNamespace(causal=SimpleNamespace(device="cpu", head=script))
    readings: Any = _Readings()
    return ScriptedFaculty(lora, script, readings, Recipe(steps=8, batch=1, rate=0.1, group=GROUP))


@dataclass(frozen=True)
class Groups:
    """All teachers, as they were trained."""

    groups: Sequence[Group]

    def batches(self) -> Iterator[Group]:
        yield from self.groups


def trained(rows: Sequence[Row], unit: Unit, kind: type[Teachers] = Teachers) -> Groups:
    """The teachers of these records, each of whom is given its shard by the real code."""
    with tempfile.TemporaryDirectory() as folder:
        return Groups(list(kind(faculty(), COUNT, corpus(rows, unit), Path(folder)).batches()))


class Remembered(Query[Group]):
    """A query that asks each group of teachers once: the same few come again and again."""

    def __init__(self, query: TeacherAnswers) -> None:
        self.query = query
        self._of = cache(self._asked)

    @property
    def sensitivity(self) -> Sensitivity:
        return self.query.sensitivity

    @property
    def shape(self) -> tuple[int, ...]:
        return self.query.shape

    def of_batch(self, batch: Group) -> NDArray[np.int64]:
        return self._of(batch)

    def _asked(self, batch: Group) -> NDArray[np.int64]:
        return self.query.of_batch(batch)


def questions(count: int, candidates: Sequence[int] = CANDIDATES) -> Questions:
    """So many, all about one place, where the unit's teacher says the first candidate and all others the second."""
    zeros = np.zeros(count, dtype=np.int32)
    row = TokenRow((0,), np.array([1], dtype=np.int32))
    return Questions([row], zeros, zeros, np.tile(np.array(candidates, dtype=np.int32), (count, 1)))


def seq_pate(
    budget: Budget,
    *,
    queries: int,
    rounds: int = 1,
    noise: NoiseKind = "gaussian",
    answers: Literal["probabilities", "votes"] = "probabilities",
    unit: Unit | None = None,
) -> SumAttack:
    """All rounds with the noise of SeqPATE's own plan.

    Args:
        queries: in all rounds.
        unit: a record, or an owner of three.
    """
    unit = unit or Unit()
    parameters = SeqPATEParameters(
        declared_records=2 * COUNT,
        teachers=COUNT,
        queries=queries,
        rounds=rounds,
        candidates=len(CANDIDATES),
        noise=noise,
        answers=answers,
    )
    sums = []
    for mechanism in mechanisms(parameters, budget, PublicFacts(unit)).values():
        asked = questions(mechanism.shape[0] or 0)
        sums.append(Measured(mechanism, Remembered(TeacherAnswers(faculty(), asked, answers))))
    mine = _MINE if unit.kind == "owner" else _MINE[:1]
    return SumAttack(
        sums,
        trained(_OTHERS, unit),
        trained([*mine, *_OTHERS], unit),
        EpsilonClaim(
            Composition(tuple(each.mechanism.event for each in sums)),
            float(budget.delta) if noise == "gaussian" else 0.0,
        ),
    )
