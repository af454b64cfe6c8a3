"""The result of an audit of a whole run: a lower bound on epsilon from many canaries, and the promise.

The limit on right guesses of a private run's coins is in :mod:`understudy.evaluate.metrics.guesses`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.base.lazy import stats
from understudy.evaluate.metrics.guesses import lower_bound, p_value
from understudy.evaluate.metrics.intervals import LEVEL, bootstrap
from understudy.evaluate.metrics.results import read_result, result_json, write_result
from understudy.evaluate.metrics.value import Count, Interval, Number, Share
from understudy.privacy.search import last_number

MOST_CANARIES = 100_000


@dataclass(frozen=True)
class GuessRule:
    """How many canaries are guessed, fixed before the run: those with the highest scores as ``present``, those with the
    lowest as ``absent``."""

    name: str
    present: int
    absent: int

    @property
    def guesses(self) -> int:
        return self.present + self.absent

    def correct(self, scores: NDArray[np.float64], planted: NDArray[np.bool_]) -> int:
        """Return how many guesses are right. Ties are broken by the canaries' order, independent of the coins."""
        order = np.argsort(-scores, kind="stable")
        absent = order[len(order) - self.absent :]
        return int(planted[order[: self.present]].sum() + (~planted[absent]).sum())


def guess_rules(canaries: int) -> tuple[GuessRule, ...]:
    """Return the rules that every attack is tried with; the bound is corrected for their number.

    - nearly all: perfect scores make perfect guesses, since the number planted is within five standard deviations of
      one half (but for one chance in a million);
    - the surest half and the surest tenth: for scores that identify some canaries clearly, and others not;
    - the highest twentieth only: for outputs that repeat a few canaries and reveal nothing of the others.
    """
    most = max(1, math.floor(canaries / 2 - 2.5 * math.sqrt(canaries)))
    quarter, few = max(1, canaries // 4), max(1, canaries // 20)
    return (
        GuessRule("nearly all", most, most),
        GuessRule("surest half", quarter, quarter),
        GuessRule("surest tenth", few, few),
        GuessRule("highest twentieth", few, 0),
    )


def largest_bound(rules: Sequence[GuessRule], *, canaries: int, delta: float, confidence: float) -> float:
    """Return the bound on epsilon if every guess were right: no audit with this many canaries can show more."""
    return max(
        lower_bound(rule.guesses, rule.guesses, canaries=canaries, delta=delta, confidence=confidence) for rule in rules
    )


def canaries_needed(epsilon: float, *, delta: float, confidence: float) -> int | None:
    """Return the fewest canaries whose :func:`largest_bound` exceeds ``epsilon``; None if above
    :data:`MOST_CANARIES`."""

    def enough(canaries: int) -> bool:
        return any(
            p_value(rule.guesses, rule.guesses, canaries=canaries, epsilon=epsilon, delta=delta) < 1 - confidence
            for rule in guess_rules(canaries)
        )

    low, high = 1, 64
    while not enough(high):
        if high == MOST_CANARIES:
            return None
        low, high = high, min(2 * high, MOST_CANARIES)
    return last_number(enough, holds_at=high, fails_at=low)


Verdict = Literal["consistent", "VIOLATION"]
FALSE_POSITIVES = 0.01
_SEED = 0


@dataclass(frozen=True)
class Guesses:
    """The guesses of one rule from one attack's scores, and the bound on epsilon that they give."""

    rule: GuessRule
    correct: Count
    epsilon: Number


@dataclass(frozen=True)
class Attack:
    """One attack on the run, of :data:`understudy.audit.running.ATTACKS`.

    Args:
        auc: chance that a planted canary scores above one that was not planted (a tie counts one half).
        true_positives: share of planted canaries above a threshold that at most 1 % of the other canaries exceed.
        true_positives_interval: Clopper-Pearson, the threshold taken as given.
    """

    name: str
    auc: Number
    auc_interval: Interval
    true_positives: Number
    true_positives_interval: Interval
    guesses: tuple[Guesses, ...]

    @property
    def epsilon(self) -> float:
        return max((each.epsilon for each in self.guesses), default=0.0)


@dataclass(frozen=True)
class GroupBound:
    """The result on a group of the canaries, which does not depend on the coins.

    A promise holds for every record, so for each group too; an attack may do better on one than on all.

    Args:
        attack: the strongest one, by ``epsilon``.
        largest_bound: the bound if all guesses had been right.
    """

    name: str
    canaries: Count
    attack: str
    auc: Number
    epsilon: Number
    largest_bound: Number


@dataclass(frozen=True)
class RunAudit:
    """The audit of one run.

    Args:
        unit: the privacy unit in words; each canary is one unit.
        private: False if noise was off or seeded: then the promise is that of the same run with noise.
        confidence: of ``bound``, over all attacks and rules together.
        largest_bound: the bound if all guesses had been right: the power of the test.
        canaries_needed: how many canaries could show a violation of this promise; None if 100,000 could not.
        groups: bounds by group, which hold jointly with ``confidence``, separately from ``bound``.
    """

    method: str
    unit: str
    epsilon: Number
    delta: Number
    private: bool
    canaries: Count
    planted: Count
    synthetic_texts: Count
    confidence: Share
    attacks: tuple[Attack, ...]
    largest_bound: Number
    canaries_needed: Count | None
    seconds: Number
    settings: Mapping[str, Any]
    groups: tuple[GroupBound, ...] = ()

    @property
    def bound(self) -> float:
        """Return the lower bound on the run's epsilon, at the stated confidence."""
        return max((attack.epsilon for attack in self.attacks), default=0.0)

    @property
    def largest_found(self) -> float:
        """Return the largest of the bounds, overall and by group."""
        return max(self.bound, *(each.epsilon for each in self.groups), 0.0)

    @property
    def verdict(self) -> Verdict:
        return "VIOLATION" if self.largest_found > self.epsilon else "consistent"

    def to_json(self) -> dict[str, Any]:
        return {**result_json(self), "bound": self.bound, "verdict": self.verdict}

    def save(self, path: Path) -> None:
        """Write it, readable by its owner only: it is computed on private data, and no epsilon covers it."""
        write_result(path, self.to_json())

    @property
    def remark(self) -> str:
        """Return the meaning of the verdict, in a sentence or two."""
        if self.verdict == "VIOLATION":
            return "The run leaks more than is promised."
        if self.largest_bound <= self.epsilon:
            wanted = "" if self.canaries_needed is None else f" ({self.canaries_needed} would be enough)"
            return f"So few canaries could not have shown a violation{wanted}. A low bound is not a proof."
        return "A low bound is not a proof: another attack may find more."


def load_audit(path: Path) -> RunAudit:
    """Read what :meth:`RunAudit.save` wrote. Raises ConfigError if it cannot be read, or is of another version."""
    return read_result(path, RunAudit, made_by="audit run")


def judge(
    name: str,
    scores: NDArray[np.float64],
    planted: NDArray[np.bool_],
    rules: tuple[GuessRule, ...],
    *,
    delta: float,
    confidence: float,
) -> Attack:
    """Compute the bound on epsilon and other figures from one attack's scores."""
    guesses = _guesses(scores, planted, rules, delta=delta, confidence=confidence)
    rate, interval = true_positive_rate(scores, planted)
    area = bootstrap(
        lambda rows: area_under_curve(scores[rows], planted[rows]), len(scores), seed=_SEED, over="the canaries"
    )
    return Attack(name, area_under_curve(scores, planted), area, rate, interval, guesses)


def _guesses(
    scores: NDArray[np.float64],
    planted: NDArray[np.bool_],
    rules: tuple[GuessRule, ...],
    *,
    delta: float,
    confidence: float,
) -> tuple[Guesses, ...]:
    found = []
    for rule in rules:
        correct = rule.correct(scores, planted)
        bound = lower_bound(correct, rule.guesses, canaries=len(scores), delta=delta, confidence=confidence)
        found.append(Guesses(rule, correct, bound))
    return tuple(found)


def judge_groups(
    scores: Mapping[str, NDArray[np.float64]],
    planted: NDArray[np.bool_],
    groups: Mapping[str, NDArray[np.bool_]],
    *,
    delta: float,
    confidence: float,
) -> tuple[GroupBound, ...]:
    """Return the attacks' results on each group, with ``confidence`` in all these bounds together (Bonferroni).

    The theorem is applied to the canaries of a group, given the coins of the others.

    Args:
        groups: by name ``Bool[m]``; they must not depend on the coins, nor on the run's output.
    """
    found = []
    for name, chosen in groups.items():
        count = int(chosen.sum())
        rules = guess_rules(count)
        single = 1 - (1 - confidence) / (len(scores) * len(rules) * len(groups))
        bounds = {
            attack: max(
                each.epsilon
                for each in _guesses(values[chosen], planted[chosen], rules, delta=delta, confidence=single)
            )
            for attack, values in scores.items()
        }
        areas = {attack: area_under_curve(values[chosen], planted[chosen]) for attack, values in scores.items()}
        attack = max(bounds, key=lambda each: (bounds[each], areas[each]))
        power = largest_bound(rules, canaries=count, delta=delta, confidence=single)
        found.append(GroupBound(name, count, attack, areas[attack], bounds[attack], power))
    return tuple(found)


def area_under_curve(scores: NDArray[np.float64], planted: NDArray[np.bool_]) -> float:
    """Return the chance that a planted canary scores above another; 0.5 if there are none of one kind.

    Source: Hanley and McNeil 1982: the Mann-Whitney statistic over the number of pairs.
    """
    present, absent = int(planted.sum()), int((~planted).sum())
    if not present or not absent:
        return 0.5
    ranks = float(stats.rankdata(scores)[planted].sum())
    return (ranks - present * (present + 1) / 2) / (present * absent)


def true_positive_rate(scores: NDArray[np.float64], planted: NDArray[np.bool_]) -> tuple[float, Interval]:
    """Return the share of the planted canaries above the lowest threshold that at most 1 % of the others exceed."""
    absent = np.sort(scores[~planted])[::-1]
    allowed = int(FALSE_POSITIVES * len(absent))
    threshold = absent[allowed] if len(absent) else -np.inf
    trials, found = int(planted.sum()), int((scores[planted] > threshold).sum())
    if trials == 0:
        return 0.0, Interval(0.0, 1.0, "nothing planted")
    ends = stats.binomtest(found, trials).proportion_ci(LEVEL, method="exact")
    return found / trials, Interval(float(ends.low), float(ends.high), f"Clopper-Pearson, {trials} planted")
