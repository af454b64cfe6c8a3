"""The teachers' answers to the questions of one round: the one sum over private records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.base.lazy import torch
from understudy.methods.seq_pate.plan import answer_sensitivity
from understudy.methods.seq_pate.teachers import Faculty, Group
from understudy.models.machine import single_threaded_inference, worker_pool
from understudy.models.training import TokenRow
from understudy.privacy.measurement import Query
from understudy.privacy.mechanisms import COUNT_GRID, Sensitivity

_SHORT = 1 - 2**-20
"""More than rounding adds to the sum of an answer, however many candidates it has. (In float32 it would add 3e-4 where
a likely token stands among 150,000 unlikely ones.)"""


@dataclass(frozen=True, eq=False)
class Questions:
    """Positions in pseudo-sentences, and the tokens that an answer is about. Public, or made from released values.

    Args:
        prior: ``Float32[Q, K]``, the student's probabilities of them when it asked, adding up to 1.
    """

    rows: Sequence[TokenRow]  # the pseudo-sentences
    row: NDArray[np.int32]  # ``Int32[Q]``, the pseudo-sentence of each question
    place: NDArray[np.int32]  # ``Int32[Q]``, the target asked for
    candidates: NDArray[np.int32]  # ``Int32[Q, K]``; -1 fills up
    prior: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))


@dataclass(frozen=True, eq=False, repr=False)
class TeacherAnswers(Query[Group]):
    """For each question, the sum of all teachers' answers: distributions over the question's candidates.

    Guarantee:
        Unit: a record, or an owner, whose records are all in one shard.
        Sensitivity: a teacher's answers are a function of its own shard and of public or released values alone
            (:mod:`understudy.methods.seq_pate.teachers`), so adding or removing a unit changes the answers of one
            teacher from a to a'; there are as many teachers with it as without it. Each answer is integers of 0 or more
            that add up to at most G = COUNT_GRID: probabilities of the candidates, shortened by 2^-20 and rounded
            down, or G for the first choice. So |a_q - a'_q|_2^2 <= |a_q|^2 + |a'_q|^2 <= 2 G^2 and
            |a_q - a'_q|_1 <= 2 G for each of the Q questions: sqrt(2 Q) G in L2 and 2 Q G in L1 for all of them.
            A number that is none counts as 0.
        Source: Tian et al. 2022 (SeqPATE), with the noise on the sum.
    """

    faculty: Faculty
    questions: Questions
    kind: Literal["probabilities", "votes"] = "probabilities"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.questions.candidates.shape

    @property
    def sensitivity(self) -> Sensitivity:
        return answer_sensitivity(len(self.questions.candidates))

    def of_batch(self, batch: Group) -> NDArray[np.int64]:
        found = np.zeros(self.shape, dtype=np.int64)

        def answer(sentence: Sentence) -> None:
            with single_threaded_inference(), self.faculty.active(batch.weights):
                size = len(batch.weights)
                above = self.faculty.trunk.above(sentence.tokens.expand(size, -1), sentence.states.expand(size, -1, -1))
                read = above[:, sentence.places]
                found[sentence.asked] = self._of(read, self.questions.candidates[sentence.asked], batch.real)

        with worker_pool(self.faculty.lora.causal.device) as pool:
            list(pool.map(answer, self._sentences))
        return found

    def _of(self, read: Any, candidates: NDArray[np.int32], real: int) -> NDArray[np.int64]:
        """The first ``real`` teachers' answers, ``Int64[q, K]``, from the states ``Float[G, q, H]`` that the head
        reads."""
        found = np.zeros(candidates.shape, dtype=np.int64)
        for number, columns in enumerate(candidates):
            asked = columns >= 0
            tokens = torch.from_numpy(columns[asked]).to(read.device).long()
            logits = self.faculty.head.of(tokens)(read[:, number]).double()
            if self.kind == "votes":
                shares = torch.nn.functional.one_hot(logits.argmax(1), len(tokens)).double()
            else:
                shares = logits.softmax(1) * _SHORT
            whole = (shares.nan_to_num(nan=0.0) * COUNT_GRID).floor().long()
            found[number, asked] = whole[:real].sum(0).cpu().numpy()
        return found

    @cached_property
    def _sentences(self) -> list[Sentence]:
        """Each asked sentence up to the last question about it, in the shortest shape that holds that."""
        found = []
        for number in np.unique(self.questions.row).tolist():
            asked = np.flatnonzero(self.questions.row == number)
            place, row = self.questions.place[asked], self.questions.rows[number]
            row = TokenRow(row.prompt, row.target[: int(place.max()) + 1])
            block = self.faculty.block([row], width=self.faculty.shapes.width_of(row))
            tokens = block.tokens[:, :-1]
            with single_threaded_inference():
                states = self.faculty.trunk.below(tokens)
            found.append(Sentence(tokens, states, (len(row.prompt) - 1 + place).tolist(), asked))
        return found


@dataclass(frozen=True, eq=False)
class Sentence:
    """A pseudo-sentence about which teachers are asked."""

    tokens: Any  # ``Int64[1, L]``
    states: Any  # of the trunk, ``Float[1, L, H]``
    places: list[int]  # of the states that the head reads
    asked: NDArray[np.intp]  # the numbers of its questions
