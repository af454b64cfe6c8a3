"""Attacks on models that read private records: tokens of private prediction and few-shot, DP-SGD, SeqPATE.

Models are scripted; the real steps, shards, answers and choices of tokens run on them. DP-SGD: a canary whose gradient
is clipped to the whole clipping norm. SeqPATE: one more record reverses its teacher's answers to all questions; a
teacher's answers depend on whether the unit's texts are in its shard.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.audit.mechanisms.bounds import Claim, Floats
from understudy.audit.mechanisms.sums import (
    InMemory,
    Measured,
    Remembered,
    Row,
    SumAttack,
    corpus,
    ratio_of_sampled,
)
from understudy.base.lazy import torch
from understudy.methods.facts import PublicFacts
from understudy.methods.few_shot.release import deal
from understudy.methods.seq_pate.plan import SeqPATEParameters, planned_sums
from understudy.methods.seq_pate.teachers import Faculty, Questions, Recipe, TeacherAnswers, Teachers
from understudy.methods.shared.decoding.sums import (
    Candidates,
    Clipping,
    TokenSums,
    distance_from_public,
    softmax_sum,
    vote_sum,
)
from understudy.methods.shared.queries.gradients import ClippedGradients, SampledRows
from understudy.models.shared_prefix import Rows
from understudy.models.training import Block, Shapes, TokenRow
from understudy.privacy.events import PureEvent
from understudy.privacy.gradients import DPSGD, Steps
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import Query, exact_sum
from understudy.privacy.noise import NoiseKind, NoiseSource, SystemNoise
from understudy.privacy.subsampled import SubsampledTokens, SubsetNoise, subsampled_multiplier, votes_epsilon
from understudy.privacy.tokens import PrivateTokens, TokenTest, clip_for
from understudy.privacy.unit import Unit

SURE = 99.0
"""A logit so large that others do not count."""
TOKENS = 4
_FIRST, _SECOND = (SURE, 0.0), (0.0, SURE)
"""Logits of a row that predicts the first, or the second, of two tokens. The public row predicts the first."""
_MOST_SHOWN = 4


class ScriptedLogits:
    """Logits ``Float32[rows, K]``, row 0 public, instead of :class:`~understudy.models.shared_prefix.Contexts`."""

    def __init__(self, rows: ArrayLike) -> None:
        self.logits = torch.tensor(np.asarray(rows, dtype=np.float32))

    @property
    def rows_at_once(self) -> int:
        return len(self.logits)

    def __len__(self) -> int:
        return len(self.logits)

    def blocks(self, candidates: Any | None = None) -> Iterator[Rows]:  # noqa: ARG002 - all tokens are candidates
        yield Rows(0, len(self.logits), self.logits)

    @property
    def candidates(self) -> Candidates:
        return Candidates(None, self.logits[0])


@dataclass(frozen=True)
class TokenAttack:
    """Attack on sampled tokens: the score counts tokens of that half of the vocabulary which the unit favours.

    Args:
        others: logits: row 0 public, then the rows of other records of the batch.
        mine: the unit's rows: one for a record.
        claim: of all tokens.
    """

    mechanism: PrivateTokens
    sums: TokenSums
    others: NDArray[np.float64]
    mine: NDArray[np.float64]
    claim: Claim
    source: NoiseSource = field(default_factory=SystemNoise)

    def scores(self, runs: int, *, present: bool) -> Floats:
        utilities = self.utilities(present=present)
        half = len(utilities) // 2
        batches = self.mechanism.open(self.source)
        counts = np.zeros(runs)
        for run in range(runs):
            batch = batches.batch()
            while batch.left:
                counts[run] += batch.choose(utilities) < half
        return counts

    def utilities(self, *, present: bool) -> NDArray[np.int64]:
        rows = np.concatenate([self.others, self.mine]) if present else self.others
        divisors = [1] * (len(self.others) - 1) + [len(self.mine)] * len(self.mine) * present
        scripted: Any = ScriptedLogits(rows)
        return self.sums.over(scripted, scripted.candidates, divisors).utilities(self.mechanism.batch_size)


def private_tokens(
    clipping: Clipping, budget: Budget, *, vocabulary: int = 2, rows: int = 1, batch_size: int = 1
) -> TokenAttack:
    """Return the attack on sampling tokens for a batch, clipped as much as ``budget`` requires.

    Without the unit, the mean favours the second half of the vocabulary by one clip range (because of another record or
    public values); with it, the first half.

    Args:
        vocabulary: tokens, an even number.
        rows: of the unit: if more than one, an owner's.
        batch_size: declared; differences: 1.
    """
    clip = clip_for(budget, TOKENS, batch_size=batch_size, temperature=1.0)
    mechanism = PrivateTokens(clip, batch_size, 1.0, TOKENS)
    first = np.arange(vocabulary) < vocabulary // 2
    favours_second = np.where(first, 0.0, clip)
    others = [np.zeros(vocabulary), favours_second] if clipping != "difference" else [favours_second]
    return TokenAttack(
        mechanism,
        TokenSums(clipping, clip, mechanism.grid),
        np.array(others),
        np.tile(np.where(first, SURE, -SURE), (rows, 1)),
        Claim((mechanism.event,), float(budget.delta)),
    )


@dataclass(frozen=True)
class TestAttack:
    """Attack on the sparse vector: the score is how many tokens are found public before the first private one.

    The unit lowers every distance but the last, and raises the last (Lyu, Su and Li 2017).

    Args:
        early, late: other records of the batch, at each of the ``questions`` before the last, and at the last.
        claim: of one run.
    """

    mechanism: PrivateTokens
    early: int
    late: int
    questions: int
    claim: Claim
    source: NoiseSource = field(default_factory=SystemNoise)

    def scores(self, runs: int, *, present: bool) -> Floats:
        early = self.distance([_SECOND] * self.early + [_FIRST] * present)
        late = self.distance([_SECOND] * (self.late + present))
        batches = self.mechanism.open(self.source)
        found = []
        for _ in range(runs):
            batch = batches.batch()
            found.append(not any(batch.is_private(early) for _ in range(self.questions)) and batch.is_private(late))
        return np.array(found, dtype=np.float64)

    def distance(self, rows: Sequence[Sequence[float]]) -> int:
        """Return the distance of the rows' predictions from the public distribution, computed by the real code."""
        scripted: Any = ScriptedLogits([_FIRST, *rows])
        grid, size, divisors = TokenTest.grid, self.mechanism.batch_size, [1] * len(rows)
        return distance_from_public(scripted, scripted.candidates, grid=grid, batch_size=size, divisors=divisors)


def token_test(budget: Budget) -> TestAttack:
    """Return the attack on one run of the noisy threshold test for public tokens, which promises a pure epsilon.

    Its two neighbouring inputs are one noise scale below and above the threshold."""
    apart = max(1, round(4 / float(budget.epsilon)))  # records: twice the scale
    size = 4 + apart
    test = TokenTest((size + 1 + apart / 2) / size, 2 / (size * float(budget.epsilon)))
    mechanism = PrivateTokens(1.0, size, 1.0, 1, test)
    claim = Claim((PureEvent(test.epsilon(size)),), 0.0)
    return TestAttack(mechanism, early=1 + apart, late=1, questions=8, claim=claim)


@dataclass(frozen=True)
class SubsetAttack:
    """Attack on few-shot tokens: the score is how often the first of two tokens, which the unit predicts, is chosen.

    A subset predicts the token of the first record that it is dealt, or the second token if it has none. The unit's
    record comes before all others.

    Args:
        others: the tokens of the other records.
        claim: of all tokens.
        deal: assigns records to subsets.
    """

    mechanism: SubsampledTokens
    others: Sequence[tuple[float, float]]
    claim: Claim
    deal: Callable[..., list[NDArray[np.int64]]] = deal
    source: NoiseSource = field(default_factory=SystemNoise)

    def scores(self, runs: int, *, present: bool) -> Floats:
        records = [_FIRST, *self.others] if present else list(self.others)
        counts, sums = np.zeros(runs), cache(self._sums)
        for run in range(runs):
            tokens = self.mechanism.open(self.source).label(0)
            while tokens.left:
                sample = tokens.sample(len(records))
                dealt = self.deal(sample, subsets=self.mechanism.subsets, most=_MOST_SHOWN)
                said = tuple(records[numbers.min()] if len(numbers) else _SECOND for numbers in dealt)
                counts[run] += tokens.choose(sums(said)) == 0
        return counts

    def _sums(self, said: Sequence[tuple[float, float]]) -> NDArray[np.int64]:
        scripted: Any = ScriptedLogits([_SECOND, *said])
        counted = [0, *[1] * len(said)]
        if self.mechanism.noise == "votes":
            return vote_sum(scripted, scripted.candidates, divisors=counted)
        return softmax_sum(scripted, scripted.candidates, grid=self.mechanism.grid, divisors=counted)


def few_shot(noise: SubsetNoise, budget: Budget, *, rate: float, tokens: int) -> SubsetAttack:
    """Return the attack on tokens chosen by two subsets, with the noise that ``budget`` requires; other records predict
    the second token."""
    pure = noise == "votes"
    if pure:
        budget = Budget(budget.epsilon, 0)
        strength = votes_epsilon(budget, rate=rate, count=tokens)
    else:
        strength = subsampled_multiplier(budget, rate=rate, count=tokens)
    mechanism = SubsampledTokens(noise, 2, strength, rate, tokens)
    return SubsetAttack(mechanism, [_SECOND] * 2, Claim((mechanism.event,), float(budget.delta)))


CANARY, OPPOSITE, OTHER = 1, 2, 3
"""Tokens by which a record defines its gradient."""
_HUGE = 1e6
_TABLE = ((0, 0, 0, 0), (_HUGE, 0, _HUGE, 0), (-_HUGE / 10, 0, -_HUGE / 10, 0), (0, _HUGE, 0, 0.5))
_SHAPES = Shapes(prompt=1, target=1, rows=2)
_CLIPPING_NORM = 0.7


class LinearModel:
    """A model whose loss for token t is weights . table[t]; it replaces :class:`~understudy.models.training.LoRA` in an
    audit.

    Args:
        table: ``Float[tokens, P]``, the gradient of each token's loss.
    """

    def __init__(self, table: ArrayLike) -> None:
        self.table = torch.tensor(np.asarray(table, dtype=np.float32))
        self.causal = SimpleNamespace(device="cpu")

    @property
    def size(self) -> int:
        return int(self.table.shape[1])

    def gradients(self, block: Block) -> Any:
        """Return the gradient of each row's mean loss, ``Float32[R, P]``."""
        each = self.table[block.tokens.gather(1, block.places)] * block.wanted[:, :, None]
        return each.sum(1) / block.counts.clamp(min=1)[:, None]


@dataclass(frozen=True)
class GradientAttack:
    """Attack on DP-SGD: was the canary among the units whose clipped gradients were summed?

    The score is the log-likelihood ratio along the direction in which the canary moves a sum, summed over steps. If
    units are sampled, the others must not move sums in that direction, or their coins would blur it.

    Args:
        others: the records of each other unit, as tokens.
        canary: its records, as tokens: of an owner, one is used at random.
        claim: of all steps.
    """

    mechanism: DPSGD
    query: Query[Sequence[TokenRow]]
    others: Sequence[Sequence[int]]
    canary: Sequence[int]
    claim: Claim
    source: NoiseSource = field(default_factory=SystemNoise)

    def scores(self, runs: int, *, present: bool) -> Floats:
        grid, scale = self.mechanism.grid, self.mechanism.noise_multiplier * self.mechanism.grid
        firsts = [unit[0] for unit in self.others]
        without = self._exact(firsts)
        moved = (self._exact([*firsts, self.canary[0]]) - without) / scale
        length = float(np.linalg.norm(moved))
        units = [*self.others, self.canary] if present else self.others
        query: Any = Remembered(self.query, key=lambda rows: tuple(int(row.target[0]) for row in rows))
        answers = np.array([self._answers(query, units) for _ in range(runs)])
        centred = (answers * grid - self.mechanism.rate * without) / scale
        rate = self.mechanism.rate
        return np.asarray(ratio_of_sampled(centred @ moved / length, length, (1 - rate, rate)).sum(axis=1))

    def _exact(self, tokens: Sequence[int]) -> Floats:
        return exact_sum(self.query, _sampled(tokens)).astype(np.float64)

    def _answers(self, query: Query[Sequence[TokenRow]], units: Sequence[Sequence[int]]) -> list[Floats]:
        steps = self.mechanism.open(self.source).between(0, self.mechanism.steps)
        return [steps.noisy_sum(query, _sampled(_shown(steps, units))) for _ in range(steps.left)]


def _shown(steps: Steps, units: Sequence[Sequence[int]]) -> list[int]:
    sampled = [unit for unit, included in zip(units, steps.sample(len(units)), strict=True) if included]
    places = steps.one_of(np.array([len(unit) for unit in sampled], dtype=np.int64))
    return [unit[place] for unit, place in zip(sampled, places, strict=True)]


def _sampled(tokens: Sequence[int]) -> SampledRows:
    return SampledRows(list(map(_row, tokens)))


@cache
def _row(token: int) -> TokenRow:
    return TokenRow([0], np.array([token], dtype=np.int32))


def dp_sgd(budget: Budget, *, rate: float, steps: int, records: int = 1) -> GradientAttack:
    """Return the attack on steps with the noise that ``budget`` requires; several ``records`` belong to one owner and
    have equal gradients."""
    mechanism = DPSGD(subsampled_multiplier(budget, rate=rate, count=steps), rate, steps, _CLIPPING_NORM)
    linear: Any = LinearModel(_TABLE)
    return GradientAttack(
        mechanism,
        ClippedGradients(linear, _SHAPES, mechanism),
        [[OTHER]] * 2,
        [CANARY] * records,
        Claim((mechanism.event,), float(budget.delta)),
    )


COUNT, GROUP = 5, 4
"""Teachers, and how many of them go through one pass: the last group is filled up."""
CANDIDATES = (1, 2)
TURNED = "turned"
"""A text with it reverses its teacher's answers."""
_SURE = 200.0
_OTHERS = tuple(Row(f"another note, of number {number}", owner=f"owner {number}") for number in range(4))
_MINE = tuple(Row(f"{TURNED} by note {number}", owner="Ann") for number in range(3))


class _Script(threading.local):
    """The answers of the current pass's teachers, ``Float32[G, 1]``: 1 for odd tokens, -1 for even ones."""

    says: Any = None

    def below(self, tokens: Any) -> Any:
        return torch.zeros((*tokens.shape, 1))

    def above(self, tokens: Any, states: Any) -> Any:
        return states + self.says[:, :, None].expand(len(tokens), tokens.shape[1], 1)

    @staticmethod
    def of(tokens: Any) -> Any:
        return lambda states: _SURE * states * (2 * (tokens % 2) - 1)


class _Readings:
    """The form of the texts: one token, which says whether a text reverses its teacher."""

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
    """Teachers that do not learn: a teacher answers 1 if its shard has a text that reverses it, and -1 otherwise."""

    def train(self, shards: Sequence[Sequence[TokenRow]]) -> NDArray[np.float32]:
        return np.array([[1 if any(1 in row.target for row in shard) else -1] for shard in shards], dtype=np.float32)

    @contextmanager
    def active(self, weights: NDArray[np.float32]) -> Iterator[None]:
        self.trunk.says = torch.from_numpy(weights)  # type: ignore[attr-defined]
        yield


def faculty() -> ScriptedFaculty:
    script: Any = _Script()
    lora: Any = SimpleNamespace(causal=SimpleNamespace(device="cpu", head=script))
    readings: Any = _Readings()
    return ScriptedFaculty(lora, script, readings, Recipe(steps=8, batch=1, rate=0.1, group=GROUP))


def trained(rows: Sequence[Row], unit: Unit, kind: type[Teachers] = Teachers) -> InMemory:
    """Return these records as batches for teachers; the real code assigns each record to a shard."""
    with tempfile.TemporaryDirectory() as folder:
        return InMemory(list(kind(faculty(), COUNT, corpus(rows, unit), Path(folder)).batches()))


def questions(count: int, candidates: Sequence[int] = CANDIDATES) -> Questions:
    """Return ``count`` questions about the same position, with these candidate tokens.

    The teacher with the unit answers the first candidate; all others answer the second.
    """
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
    """Return the attack on all rounds of SeqPATE, with ``queries`` in total and its plan's noise; an owner has three
    records."""
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
    for charge in planned_sums(parameters, budget, PublicFacts(unit)):
        query = TeacherAnswers(charge.query, faculty(), questions(charge.query.questions), answers)
        sums.append(Measured(charge.mechanism, query))  # type: ignore[arg-type]
    mine = _MINE if unit.kind == "owner" else _MINE[:1]
    delta = float(budget.delta) if noise == "gaussian" else 0.0
    claim = Claim(tuple(each.mechanism.event for each in sums), delta)
    return SumAttack(sums, trained(_OTHERS, unit), trained([*mine, *_OTHERS], unit), claim)
