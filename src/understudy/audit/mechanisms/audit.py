"""An audit of one mechanism: run it, bound what it loses, compare with what it promises; every mechanism by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

from understudy.audit.mechanisms import sums
from understudy.audit.mechanisms.bounds import Claim, Curve, ErrorLimits, Floats, best_bound, counted, limits
from understudy.audit.mechanisms.sums import OWNER, TERMS, QueryName
from understudy.audit.mechanisms.tokens import few_shot, private_tokens
from understudy.audit.mechanisms.training import dp_sgd, seq_pate
from understudy.base.errors import ConfigError
from understudy.models.machine import require_local
from understudy.privacy.guarantee import Budget
from understudy.privacy.unit import Unit

LEAST_RUNS = 100
LARGEST_EPSILON = 50
NO_VIOLATION, VIOLATION = "no violation found", "VIOLATION"
NO_PROOF = "A low bound is not a proof: it says what this attack found, not what a better one would."


class Attack(Protocol):
    """A mechanism with noise for some budget, and the test of an attacker who knows all but whether a unit is there."""

    @property
    def claim(self) -> Claim: ...

    def scores(self, runs: int, *, present: bool) -> Floats:
        """``Float64[runs]``: run the real mechanism so often and say each time how much it looks like "present"."""
        ...


@dataclass(frozen=True)
class Auditable:
    """A mechanism that can be audited, on its worst ``neighbours``.

    Args:
        attack: the mechanism with the noise that (epsilon, delta) asks for, and the attack on it. A mechanism of pure
            differential privacy leaves delta alone and promises epsilon at 0.
        local: whether it needs torch, of the extra ``local``.
    """

    name: str
    title: str
    neighbours: str
    attack: Callable[[Budget], Attack]
    local: bool = False


@dataclass(frozen=True)
class MechanismAudit:
    """What an audit found.

    Args:
        quantity: what the numbers below are, such as ``epsilon at delta 1e-06``.
        clopper_pearson: lower bound by the best threshold test.
        curve: what else the mechanism promises: a Gaussian trade-off curve (mu), or zCDP (rho); None if neither.
        along_curve: lower bound by way of mu or rho, None without ``curve``. A mu or rho above the promised one refutes
            the promise whatever the true trade-off curve is. The number that it is converted to here is a lower bound
            only if the true curve is Gaussian (for rho: if the loss is that large at all orders).
        ideal: what the better of the bounds would come to, about, if the mechanism spent all that it promises and the
            attack were perfect. What lies between it and ``promised`` is for want of runs.
        ceiling: what it would come to if all runs were told apart: no higher promise can be refuted by so many runs.
        runs: with the unit, and as many without it.
        confidence: the probability that no bound is too high is at least this.
    """

    name: str
    title: str
    neighbours: str
    quantity: str
    promised: float
    clopper_pearson: float
    curve: Curve | None
    along_curve: float | None
    ideal: float
    ceiling: float
    runs: int
    confidence: float

    @property
    def bound(self) -> float:
        return max(self.clopper_pearson, self.along_curve or 0.0)

    @property
    def violated(self) -> bool:
        return self.bound > self.promised

    @property
    def verdict(self) -> str:
        return VIOLATION if self.violated else NO_VIOLATION

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict, "note": NO_PROOF}


def audit_mechanism(
    auditable: Auditable, budget: Budget, *, runs: int = 5000, confidence: float = 0.95
) -> MechanismAudit:
    """Run a mechanism ``runs`` times with and as often without a unit, and bound what it loses.

    Args:
        budget: what the mechanism is to promise.
        confidence: that no bound is too high, in (0, 1).

    Raises ConfigError if there are too few runs, the confidence is out of its range, or the budget does not fit.
    """
    if runs < LEAST_RUNS:
        raise ConfigError(f"{runs} runs tell nothing.", f"Run a mechanism at least {LEAST_RUNS} times.")
    if not 0 < confidence < 1:
        raise ConfigError(f"Expected a confidence in (0, 1), got {confidence}.", "Give one such as 0.95.")
    if budget.epsilon > LARGEST_EPSILON:
        raise ConfigError(
            f"An epsilon of {float(budget.epsilon):g} promises so little that no audit can refute it.",
            f"Audit with an epsilon of {LARGEST_EPSILON} at most.",
        )
    attack = auditable.attack(budget)
    claim = attack.claim
    absent, present = attack.scores(runs, present=False), attack.scores(runs, present=True)
    ways = _ways(claim)
    alpha = (1 - confidence) / len(ways)
    found = [convert(best_bound(absent, present, bound, alpha=alpha)) for bound, convert in ways]
    return MechanismAudit(
        auditable.name,
        auditable.title,
        auditable.neighbours,
        claim.words,
        claim.value,
        found[0],
        claim.curve,
        found[1] if claim.curve else None,
        _expected(claim, counted(runs), np.geomspace(1e-4, 0.9, 30), alpha=alpha),
        max(_at(claim, limits(0, 0, counted(runs), alpha=alpha))),
        runs,
        confidence,
    )


_Way = tuple[Callable[[ErrorLimits], Floats], Callable[[float], float]]


def _ways(claim: Claim) -> list[_Way]:
    return [(claim.bound, float), *([(claim.along_curve, claim.of_curve)] if claim.curve else [])]


def _at(claim: Claim, at: ErrorLimits) -> list[float]:
    return [convert(float(np.max(bound(at)))) for bound, convert in _ways(claim)]


def _expected(claim: Claim, trials: int, false_positive: Floats, *, alpha: float) -> float:
    """The best bound of tests on the promised trade-off curve itself, each with the errors to be expected."""
    false_negative = 1 - np.array([claim.power(float(each)) for each in false_positive])
    return max(_at(claim, limits(trials * false_positive, trials * false_negative, trials, alpha=alpha)))


ALL = "all"
_MANY = 5000  # more than OpenDP chooses from: the other exact sampler
_RECORD = f"one record more, which holds all {len(TERMS)} terms of the vocabulary"
_OWNER = "one owner more, with three records"
_VOTER = "one record more, which votes for the two candidates of its label"
_ROW = "one record more in the batch, which favours half of the vocabulary by all that clipping leaves"
_ROWS = f"{_OWNER} that favour the same tokens"
_SUBSET = "one record more, which makes its subset say another token"
_CANARY = "one record more, whose gradient is clipped"
_SUBSET_HALF, _CANARY_HALF = (f"{each}, where it is sampled (half of the time)" for each in (_SUBSET, _CANARY))
_TURNED = "one record more, which turns its teacher's answers round"
_SECRETS = "three records more, which hold one secret"
_SECRETS_HALF = f"{_SECRETS} and are sampled half of the time"

_BLOCKS = "one record more, which counts in every block"
_COUNT_ALIKE = f"{_OWNER} that count alike"
_VOTE_ALIKE = f"{_SECRETS} and vote alike"
_CERTAIN = "one record more, which holds the secret and is always sampled"
_COORDINATE = "one record more, whose embedding all lies in one coordinate"
_EMBEDDED_ALIKE = f"{_OWNER} of one label whose embeddings are alike"
_HALF = "where it is sampled (half of the time)"
_VALUES = "one record more, of values that no other has"
_LONE = "one record more, which holds terms that many have and terms that nobody else has"
_LONE_OWNER = f"{_OWNER} of different terms that many have"
_CANARIES_HALF = f"{_OWNER} whose gradients are clipped, where it is sampled (half of the time)"
_TURNED_BY_OWNER = f"{_OWNER} in one shard, who turn their teacher's answers round"


def _of(
    name: str, title: str, neighbours: str, attack: Callable[..., Attack], *settings: object, **named: object
) -> Auditable:
    local = attack in (private_tokens, few_shot, dp_sgd, seq_pate)
    return Auditable(name, title, neighbours, partial(attack, *settings, **named), local)


def _sums(name: str, kind: QueryName, title: str, method: str = "dp-kps") -> tuple[Auditable, Auditable]:
    return (
        _of(name, f"{method}: {title}", _RECORD, sums.one_sum, kind, "gaussian"),
        _of(f"{name}-laplace", f"{method}, pure", _RECORD, sums.one_sum, kind, "laplace"),
    )


_ALL: tuple[Auditable, ...] = (
    *_sums("term-counts", "counts", "counts of public terms", "aug-pe"),
    *_sums("vocabulary", "vocabulary", "weighted counts of public terms"),
    *_sums("histogram", "histogram", "the same for each label"),
    *_sums("density", "density", "kernel density of terms"),
    *_sums("sequences", "sequences", "density of sequences"),
    _of("dp-kps", "dp-kps: all that it releases", _RECORD, sums.dp_kps, "gaussian", Unit()),
    _of("dp-kps-owners", "dp-kps: the same for owners", f"{_OWNER} of all terms", sums.dp_kps, "gaussian", OWNER),
    _of("discovered-terms", "dp-kps: terms that no list has", _LONE, sums.discovered, Unit()),
    _of("discovered-terms-owners", "dp-kps: the same of owners", _LONE_OWNER, sums.discovered, OWNER),
    _of("charged-metrics", "evaluate: counts behind charged metrics, pure", _BLOCKS, sums.charged_metrics, Unit()),
    _of("charged-metrics-owners", "evaluate: the same for owners", _COUNT_ALIKE, sums.charged_metrics, OWNER),
    _of("label-counts", "aug-pe: records of each label", "one record more", sums.one_sum, "labels", "gaussian"),
    _of("votes", "aug-pe: votes of one round", _VOTER, sums.aug_pe, 1, Unit()),
    _of("aug-pe", "aug-pe: votes of three rounds", _VOTER, sums.aug_pe, 3, Unit()),
    _of("votes-owners", "aug-pe: votes of owners", f"{_OWNER} in both labels", sums.aug_pe, 1, OWNER),
    _of("votes-secrets", "aug-pe: votes where secrets are protected", _VOTE_ALIKE, sums.aug_pe, 1, Unit("secret", 3)),
    _of("clusters", "sec-pe: sums of public clusters", _CERTAIN, sums.sec_pe, rate=1.0, records=1),
    _of("clusters-sampled", "sec-pe: the same over samples", _SECRETS_HALF, sums.sec_pe, rate=0.5, records=3),
    _of("sec-pe", "sec-pe: two releases", _SECRETS_HALF, sums.sec_pe, rate=0.5, records=3, releases=2),
    _of("guide", "guided-evolution: the guide, also of other methods", _COORDINATE, sums.guide, Unit()),
    _of("guide-owners", "guided-evolution: the guide of owners", _EMBEDDED_ALIKE, sums.guide, OWNER),
    _of("guide-sampled", "a guide of sampled records", f"{_COORDINATE}, {_HALF}", sums.sampled_guide, Unit(), rate=0.5),
    _of(
        "guide-sampled-owners",
        "a guide of sampled owners",
        f"{_EMBEDDED_ALIKE}, {_HALF}",
        sums.sampled_guide,
        OWNER,
        rate=0.5,
    ),
    _of("topics", "topics: votes, sums and sizes", "one record more, in the middle of a topic", sums.topics, Unit()),
    _of("topics-owners", "topics: the same for owners", f"{_OWNER} in the middle of a topic", sums.topics, OWNER),
    _of("columns", "typed columns: histograms, scores and pairs", _VALUES, sums.columns, Unit()),
    _of("columns-owners", "typed columns of owners", f"{_OWNER} of one label and like values", sums.columns, OWNER),
    _of("private-tokens", "private-prediction: clipped logits", _ROW, private_tokens, "recenter"),
    _of("private-tokens-difference", "private-prediction: clipped differences", _ROW, private_tokens, "difference"),
    _of(
        "private-tokens-owners",
        "private-prediction: clipped logits of owners",
        _ROWS,
        private_tokens,
        "recenter",
        rows=3,
    ),
    _of(
        "private-tokens-many",
        f"private-prediction: a vocabulary of {_MANY}",
        _ROW,
        private_tokens,
        "recenter",
        vocabulary=_MANY,
    ),
    _of("subsets", "few-shot: noisy sums", _SUBSET, few_shot, "gaussian", rate=1.0, tokens=2),
    _of("subsets-sampled", "few-shot: noisy sums of samples", _SUBSET_HALF, few_shot, "gaussian", rate=0.5, tokens=1),
    _of("subset-votes", "few-shot: votes of samples", _SUBSET_HALF, few_shot, "votes", rate=0.5, tokens=1),
    _of("dp-sgd", "dp-finetune: clipped gradients of a sample", _CANARY_HALF, dp_sgd, rate=0.5, steps=1),
    _of("dp-sgd-steps", "dp-finetune: three steps", _CANARY_HALF, dp_sgd, rate=0.5, steps=3),
    _of("dp-sgd-everybody", "dp-finetune: steps on all records", _CANARY, dp_sgd, rate=1.0, steps=2),
    _of(
        "dp-sgd-owners",
        "dp-finetune: clipped gradients of sampled owners",
        _CANARIES_HALF,
        dp_sgd,
        rate=0.5,
        steps=1,
        records=3,
    ),
    _of("teacher-answers", "seq-pate: answers of all teachers", _TURNED, seq_pate, queries=4),
    _of("teacher-answers-laplace", "seq-pate: the same, pure", _TURNED, seq_pate, queries=1, noise="laplace"),
    _of("teacher-votes", "seq-pate: votes of all teachers", _TURNED, seq_pate, queries=4, answers="votes"),
    _of("seq-pate", "seq-pate: answers of three rounds", _TURNED, seq_pate, queries=5, rounds=3),
    _of(
        "teacher-answers-owners",
        "seq-pate: answers of teachers of owners",
        _TURNED_BY_OWNER,
        seq_pate,
        queries=4,
        unit=OWNER,
    ),
)
MECHANISMS = {each.name: each for each in _ALL}


def chosen(name: str) -> Sequence[Auditable]:
    """The mechanism of this name; or all of them (without torch, those that do not need it).

    Raises:
        ConfigError: if there is no such mechanism.
        ModelError: if it needs torch, which is not installed.
    """
    if name == ALL:
        return [each for each in MECHANISMS.values() if not each.local or find_spec("torch")]
    if name not in MECHANISMS:
        raise ConfigError(
            f"There is no mechanism {name!r:.80} to audit.", "See `understudy audit mechanism --list`, or say `all`."
        )
    if MECHANISMS[name].local:
        require_local()
    return [MECHANISMS[name]]
