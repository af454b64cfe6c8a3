"""The student: writes pseudo-sentences, chooses the questions, and learns. It never sees a private record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.lazy import torch
from understudy.methods.seq_pate.plan import SeqPATEParameters, StudentLoss
from understudy.methods.seq_pate.teachers import Questions
from understudy.methods.shared.decoding.tuned import Sampling, TunedModel
from understudy.models.machine import single_threaded_inference, worker_pool
from understudy.models.training import AdamW, Block, LearningRate, TokenRow, losses_of, target_logits
from understudy.privacy.sealed import Arrays
from understudy.text.prompts.predicting import BLANK_LINE

_BLOCK = 8
_MASS = 0.95
STUDENT_STEPS, STUDENT_BATCH = 16, 16
"""Steps of a round, and pseudo-sentences per step."""
QUERIES_PER_TEXT = 16
"""Positions asked about in one pseudo-sentence, if there are enough pseudo-sentences."""
_HARD_RANK = 1
"""A position is hard if the student finds at least this many tokens likelier than its pseudo-label."""
_KL_WEIGHT = 20.0
"""Weight of the answers (lambda); gradients are clipped to norm 1."""


@dataclass(frozen=True, eq=False)
class PseudoTexts:
    """Pseudo-sentences as tokens: labels and lengths ``Int32[n]``, and tokens ``Int32[sum of lengths]``. Public, or
    written by a student that knows released values only."""

    labels: NDArray[np.int32]
    lengths: NDArray[np.int32]
    tokens: NDArray[np.int32]

    def rows(self, prompts: Sequence[Sequence[int]]) -> list[TokenRow]:
        """Return the texts after the prompts of their labels."""
        parts = np.split(self.tokens, np.cumsum(self.lengths)[:-1])
        return [TokenRow(prompts[label], part) for label, part in zip(self.labels.tolist(), parts, strict=True)]


def project(means: NDArray[np.float64], known: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the distributions nearest to noisy ones (in L2): ``Float64[Q, K]``, over the ``known`` columns.

    A constant is subtracted from all columns, then negative values become 0, so that the rest adds up to 1.
    Setting negatives to 0 and dividing by the sum would leave each column half of its noise.
    """
    masked = np.where(known, means, -np.inf)
    falling = -np.sort(-masked, axis=1)
    totals = np.cumsum(np.where(np.isfinite(falling), falling, 0.0), axis=1)
    counts = np.arange(1, means.shape[1] + 1)
    inside = falling > (totals - 1) / counts
    last = inside.sum(axis=1)
    taken = (totals[np.arange(len(means)), last - 1] - 1) / last
    return np.asarray(np.where(known, np.maximum(means - taken[:, None], 0.0), 0.0))


def shrink(
    means: NDArray[np.float64], prior: NDArray[np.float64], known: NDArray[np.bool_], *, std: float
) -> NDArray[np.float64]:
    """Shrink noisy answers towards the student's own expectation, as far as they are noise: ``Float64[Q, K]``.

    Empirical Bayes, on released values alone: an answer differs from the student's probability p by variance c p (1 -
    p), and has noise of variance ``std``^2; c is estimated from the round's answers' variance beyond their noise. An
    unlikely candidate cannot differ by much, so nearly all of its answer is noise.

    Args:
        means: ``Float64[Q, K]``, sums over the teachers with their noise, by the number of teachers.
        prior: ``Float64[Q, K]``, the student's probabilities of the candidates, adding up to 1.
        known: ``Bool[Q, K]``, which columns are candidates.
        std: of the noise.
    """
    spread = np.where(known, prior * (1 - prior), 0.0)
    beyond = np.sum(np.where(known, (means - prior) ** 2 - std**2, 0.0))
    variance = max(0.0, float(beyond) / max(float(spread.sum()), 1e-12)) * spread
    kept = variance / np.maximum(variance + std**2, 1e-300)
    return np.asarray(prior + kept * (means - prior))


def shares_of(
    means: NDArray[np.float64], questions: Questions, *, std: float, loss: StudentLoss
) -> NDArray[np.float64]:
    """Return the distributions over the candidates that the student learns from noisy answers: ``Float64[Q, K]``. With
    the loss ``top-answer`` all weight is on the likeliest candidate. Other arguments as in :func:`shrink`."""
    known = questions.candidates >= 0
    shrunk = shrink(means, questions.prior.astype(np.float64), known, std=std)
    if loss != "top-answer":
        return project(shrunk, known)
    found: NDArray[np.float64] = np.eye(means.shape[1])[np.where(known, shrunk, -np.inf).argmax(1)]
    return found


def _tops(columns: int, mass: float, logits: Any, _block: Block) -> Any:
    """Return the likeliest tokens and their log-probabilities, ``Float64[R, width, 2, columns]``; -1 beyond
    ``mass``."""
    top = logits.double().log_softmax(2).topk(columns, dim=2)
    before = top.values.exp().cumsum(2) - top.values.exp()
    return torch.stack([top.indices.masked_fill(before >= mass, -1).double(), top.values], dim=2)


@dataclass(frozen=True, eq=False)
class Lessons:
    """The training data of the student: pseudo-sentences, and answers about some of their positions.

    Args:
        questions: for each one a row, the position in it, the candidates, and the answer as a distribution over them.
    """

    rows: Sequence[TokenRow]
    questions: Sequence[tuple[int, int, NDArray[np.int32], NDArray[np.float64]]] = ()

    @cached_property
    def asked(self) -> list[list[tuple[int, NDArray[np.int32], NDArray[np.float64]]]]:
        found: list[list[tuple[int, NDArray[np.int32], NDArray[np.float64]]]] = [[] for _ in self.rows]
        for row, place, tokens, shares in self.questions:
            found[row].append((place, tokens, shares))
        return found


@dataclass(frozen=True, eq=False, repr=False)
class Student:
    """The model that is being tuned."""

    tuned: TunedModel
    parameters: SeqPATEParameters

    def write(self, labels: Sequence[int], *, name: str, seed: int, prefixes: Sequence[str] = ()) -> Arrays:
        """Sample a pseudo-sentence for each label from the loaded model, beginning with the ``prefixes`` in turn, if
        any. ``name`` seeds the texts. Returns the arrays of :class:`PseudoTexts`."""
        sampling = Sampling(seed, 1.0, _MASS, self.tuned.tokens, (BLANK_LINE,))
        keys = [(label, f"{name} {number}") for number, label in enumerate(labels)]
        begun = [prefixes[number % len(prefixes)] if prefixes else "" for number in range(len(keys))]
        answers = self.tuned.sample(keys, sampling=sampling, beginnings=begun)
        targets = [
            self.tuned.row(beginning + answer.text, label, end=answer.finish_reason == "stop").target
            for label, beginning, answer in zip(labels, begun, answers, strict=True)
        ]
        targets = [each if len(each) else np.zeros(1, dtype=np.int32) for each in targets]  # an empty text is token 0
        return {
            "labels": np.array(labels, dtype=np.int32),
            "lengths": np.array([len(each) for each in targets], dtype=np.int32),
            "tokens": np.concatenate([np.zeros(0, dtype=np.int32), *targets]),
        }

    def choose(self, rows: Sequence[TokenRow], count: int, *, seed: int) -> Arrays:
        """Choose ``count`` positions to ask about: the hard ones of a few sentences; if these are too few, the next
        hardest; if there are too few positions, some twice. Returns the arrays of
        :class:`~understudy.methods.seq_pate.teachers.Questions` about ``rows``."""
        parameters = self.parameters
        places = np.array([(row, place) for row, each in enumerate(rows) for place in range(len(each.target))])
        ranks = np.concatenate(list(self._map(rows, self._ranks)))
        easy = ranks < _HARD_RANK if parameters.ask == "hard" else np.zeros(len(ranks), dtype=np.bool_)
        generator = np.random.default_rng(seed)
        at_random = generator.random(len(ranks))
        turn = np.argsort(generator.permutation(len(rows)))[places[:, 0]]
        within = np.empty(len(ranks), dtype=np.int64)
        order = np.lexsort((at_random, easy, places[:, 0]))
        starts = np.cumsum([0, *[len(each.target) for each in rows]])
        within[order] = np.arange(len(ranks)) - starts[places[order, 0]]
        chosen = np.lexsort((turn, np.where(easy, -ranks, within // QUERIES_PER_TEXT), easy))
        chosen = np.sort(np.resize(chosen, count))
        row, place = places[chosen].T.astype(np.int32)
        candidates, prior = self._about(rows, row, place)
        return {"row": row, "place": place, "candidates": candidates, "prior": prior}

    def _about(
        self, rows: Sequence[TokenRow], row: NDArray[np.int32], place: NDArray[np.int32]
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the candidates of each question, ``Int32[Q, K]``, and the student's probabilities of them."""
        parameters, vocabulary = self.parameters, self.tuned.causal.vocabulary
        whole = parameters.candidate_filter == "none"
        columns = vocabulary if whole else min(parameters.candidates, vocabulary)
        mass = _MASS if parameters.candidate_filter == "top-p" else 1.0
        shape = len(row), vocabulary if whole else parameters.candidates
        candidates, prior = np.full(shape, -1, dtype=np.int32), np.zeros(shape, dtype=np.float32)
        asked = np.unique(row)
        of = (lambda logits, _: logits.double().log_softmax(2)) if whole else partial(_tops, columns, mass)
        for number, found in zip(asked.tolist(), self._map([rows[each] for each in asked], of), strict=True):
            here = np.flatnonzero(row == number)
            seen = found[place[here]]
            tokens, logs = (np.arange(vocabulary)[None], seen) if whole else (seen[:, 0], seen[:, 1])
            candidates[here, :columns] = tokens
            prior[here, :columns] = np.where(tokens >= 0, np.exp(logs), 0.0)
        return candidates, prior / prior.sum(axis=1, keepdims=True)

    @staticmethod
    def _ranks(logits: Any, block: Block) -> Any:
        """Return how many tokens are likelier than each target, ``Int64[R, width]``."""
        return (logits > logits.gather(2, block.targets[:, :, None])).sum(2)

    def _map(self, rows: Sequence[TokenRow], of: Callable[[Any, Block], Any]) -> Iterator[NDArray[Any]]:
        """Apply ``of`` to the logits of each row's targets, and yield the results."""

        def one(first: int) -> list[NDArray[Any]]:
            some = rows[first : first + _BLOCK]
            block = Block.around(some, device=self.tuned.causal.device)
            with single_threaded_inference(), self.tuned.active():
                found = of(target_logits(self.tuned.causal, self.tuned.network, block).float(), block).cpu().numpy()
            return [each[: len(row.target)] for each, row in zip(found, some, strict=True)]

        with worker_pool(self.tuned.causal.device) as pool:
            for each in pool.map(one, range(0, len(rows), _BLOCK)):
                yield from each

    def learn(self, lessons: Lessons, weights: NDArray[np.float32], *, steps: int, seed: int) -> Arrays:
        """Train the ``weights`` for ``steps`` steps on the lessons, load them, and return them."""
        parameters, trainable = self.parameters, self.tuned.trainable
        trainable.load(weights)
        optimizer = AdamW(
            weights, LearningRate(parameters.learning_rate, max(1, steps)), device=self.tuned.causal.device
        )
        generator, size, texts = np.random.default_rng(seed), STUDENT_BATCH, len(lessons.rows)
        order = [number for _ in range(-(-steps * size // texts)) for number in generator.permutation(texts).tolist()]
        with worker_pool(self.tuned.causal.device) as pool:
            for step in range(steps):
                batch = order[step * size : (step + 1) * size]
                tokens = sum(len(lessons.rows[number].target) for number in batch)
                parts = [batch[first : first + _BLOCK] for first in range(0, len(batch), _BLOCK)]
                losses = [partial(self._loss, lessons, part) for part in parts]
                gradient = sum(pool.map(trainable.gradient, losses)) / tokens
                optimizer.step(gradient / gradient.norm().clamp(min=1.0))
                trainable.load(optimizer.weights)
        return {"weights": optimizer.weights}

    def _loss(self, lessons: Lessons, numbers: Sequence[int]) -> Any:
        """Return the sum over questions of lambda times the KL divergence from the answer; or the sum over tokens of
        the loss on pseudo-labels; or (``published``) both."""
        causal = self.tuned.causal
        block = Block.around([lessons.rows[number] for number in numbers], device=causal.device)
        logits = target_logits(causal, self.tuned.network, block)
        loss = self.parameters.student_loss
        pseudo = losses_of(logits, block).sum() if loss in ("pseudo-labels", "published") else 0.0 * logits.sum()
        asked = [(row, *each) for row, number in enumerate(numbers) for each in lessons.asked[number]]
        if loss == "pseudo-labels" or not asked:
            return pseudo
        rows, places = [each[0] for each in asked], [each[1] for each in asked]
        tokens = torch.from_numpy(np.array([each[2] for each in asked])).to(causal.device).long()
        shares = torch.from_numpy(np.array([each[3] for each in asked])).to(causal.device).float()
        found = logits[rows, places].float().gather(1, tokens.clamp(min=0)).masked_fill(tokens < 0, -torch.inf)
        found = found.log_softmax(1).masked_fill(tokens < 0, 0.0)  # among the candidates, as teachers answer
        divergence = torch.special.xlogy(shares, shares) - shares * found
        return pseudo + _KL_WEIGHT * divergence.sum()
