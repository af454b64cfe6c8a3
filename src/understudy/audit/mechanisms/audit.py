"""An audit of one mechanism: run it, bound its loss, compare with its promise; every mechanism by name."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import resources
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

from understudy.audit.mechanisms import models, sums
from understudy.audit.mechanisms.bounds import Claim, Curve, ErrorLimits, Floats, best_bound, counted, limits
from understudy.audit.mechanisms.sums import OWNER
from understudy.base.display import plural
from understudy.base.errors import ConfigError
from understudy.models.machine import require_local
from understudy.privacy.guarantee import Budget
from understudy.privacy.unit import Unit

LEAST_RUNS = 100
LARGEST_EPSILON = 50
NO_VIOLATION, VIOLATION = "no violation found", "VIOLATION"
NO_PROOF = "A low bound is not a proof: it shows only what this attack found, and a better one may find more."


class Attack(Protocol):
    """A mechanism, with noise for a given budget, and an attack on it by someone who knows all data except whether one
    unit is included."""

    @property
    def claim(self) -> Claim: ...

    def scores(self, runs: int, *, present: bool) -> Floats:
        """Run the real mechanism ``runs`` times; return, as ``Float64[runs]``, how much each looks like "present"."""
        ...


@dataclass(frozen=True)
class Auditable:
    """A mechanism that can be audited, on the pair of neighbouring data sets (``neighbours``) that it distinguishes
    best.

    Args:
        attack: builds the attack for a given (epsilon, delta): the mechanism with the noise that this budget requires,
            and the test that scores its outputs. For pure differential privacy it ignores delta.
        local: whether it needs torch, of the extra ``local``.
    """

    name: str
    title: str
    neighbours: str
    attack: Callable[[Budget], Attack]
    local: bool = False


@dataclass(frozen=True)
class MechanismAudit:
    """The result of an audit.

    Args:
        quantity: the meaning of the numbers below, such as ``epsilon at delta 1e-06``.
        clopper_pearson: lower bound by the best threshold test.
        curve: an additional promise of the mechanism: a Gaussian trade-off curve (mu), or zCDP (rho); None if neither.
        along_curve: lower bound through mu or rho, None without ``curve``. A mu or rho above the promised one refutes
            the promise whatever the true trade-off curve is. The number that it is converted to here is a lower bound
            only if the true curve is Gaussian (for rho: if the loss is that large at all orders).
        ideal: the approximate better bound if the mechanism spent its whole promise and the attack were perfect. Its
            distance from ``promised`` is due to the limited number of runs.
        ceiling: the bound if all runs were classified correctly: this number of runs cannot refute a higher promise.
        runs: number of runs with the unit, and also of those without it.
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
    """Run a mechanism ``runs`` times with a unit and ``runs`` times without it. Return lower bounds on its privacy
    loss.

    Args:
        budget: the promise of the mechanism.
        confidence: the probability, in (0, 1), with which no bound is too high.

    Raises ConfigError if there are too few runs, the confidence is out of its range, or the budget does not fit.
    """
    if runs < LEAST_RUNS:
        raise ConfigError(
            f"{plural(runs, 'run')} are too few for an audit.", f"Run a mechanism at least {LEAST_RUNS} times."
        )
    if not 0 < confidence < 1:
        raise ConfigError(f"Expected a confidence in (0, 1), got {confidence}.", "Give one such as 0.95.")
    if budget.epsilon > LARGEST_EPSILON:
        raise ConfigError(
            f"An epsilon of {float(budget.epsilon):g} promises so little that no audit can refute it.",
            f"Audit with an epsilon of at most {LARGEST_EPSILON}.",
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
    """Return the best bound of tests on the promised trade-off curve itself, each with its expected errors."""
    false_negative = 1 - np.array([claim.power(float(each)) for each in false_positive])
    return max(_at(claim, limits(trials * false_positive, trials * false_negative, trials, alpha=alpha)))


ALL = "all"
_MANY = 5000  # more than OpenDP chooses from: the other exact sampler
_SUMS: tuple[sums.QueryName, ...] = ("vocabulary", "histogram", "density", "prefixes")
_BY_UNIT: dict[str, partial[Any]] = {
    "dp-kps": partial(sums.dp_kps, "gaussian"),
    "dp-kde": partial(sums.dp_kde, "gaussian"),
    "discovered-terms": partial(sums.discovered),
    "charged-metrics": partial(sums.charged_metrics),
    "votes": partial(sums.aug_pe, 1),
    "guide": partial(sums.guide),
    "guide-sampled": partial(sums.sampled_guide, rate=0.5),
    "topics": partial(sums.topics),
    "topics-sampled": partial(sums.sampled_topics, rate=0.5),
    "columns": partial(sums.columns),
}
_ATTACKS: dict[str, partial[Any]] = {
    "term-counts": partial(sums.one_sum, "counts", "gaussian"),
    "term-counts-laplace": partial(sums.one_sum, "counts", "laplace"),
    **{name: partial(sums.one_sum, name, "gaussian") for name in _SUMS},
    **{f"{name}-laplace": partial(sums.one_sum, name, "laplace") for name in _SUMS},
    **{name: partial(attack, Unit()) for name, attack in _BY_UNIT.items()},
    **{f"{name}-owners": partial(attack, OWNER) for name, attack in _BY_UNIT.items()},
    "label-counts": partial(sums.one_sum, "labels", "gaussian"),
    "aug-pe": partial(sums.aug_pe, 3, Unit()),
    "votes-secrets": partial(sums.aug_pe, 1, Unit("secret", 3)),
    "clusters": partial(sums.sec_pe, rate=1.0, records=1),
    "clusters-sampled": partial(sums.sec_pe, rate=0.5, records=3),
    "sec-pe": partial(sums.sec_pe, rate=0.5, records=3, releases=2),
    "private-tokens": partial(models.private_tokens, "recenter"),
    "private-tokens-fixed": partial(models.private_tokens, "fixed"),
    "private-tokens-difference": partial(models.private_tokens, "difference"),
    "private-tokens-owners": partial(models.private_tokens, "recenter", rows=3),
    "private-tokens-many": partial(models.private_tokens, "recenter", vocabulary=_MANY),
    "token-test": partial(models.token_test),
    "subsets": partial(models.few_shot, "gaussian", rate=1.0, tokens=2),
    "subsets-sampled": partial(models.few_shot, "gaussian", rate=0.5, tokens=1),
    "subset-votes": partial(models.few_shot, "votes", rate=0.5, tokens=1),
    "dp-sgd": partial(models.dp_sgd, rate=0.5, steps=1),
    "dp-sgd-steps": partial(models.dp_sgd, rate=0.5, steps=3),
    "dp-sgd-everybody": partial(models.dp_sgd, rate=1.0, steps=2),
    "dp-sgd-owners": partial(models.dp_sgd, rate=0.5, steps=1, records=3),
    "teacher-answers": partial(models.seq_pate, queries=4),
    "teacher-answers-laplace": partial(models.seq_pate, queries=1, noise="laplace"),
    "teacher-votes": partial(models.seq_pate, queries=4, answers="votes"),
    "seq-pate": partial(models.seq_pate, queries=5, rounds=3),
    "teacher-answers-owners": partial(models.seq_pate, queries=4, unit=OWNER),
}
_WORDS = tomllib.loads(resources.files(__package__).joinpath("audits.toml").read_text("utf-8"))
MECHANISMS = {
    name: Auditable(name, title, neighbours, _ATTACKS[name], local=_ATTACKS[name].func.__module__ == models.__name__)
    for name, (title, neighbours) in _WORDS.items()
}


def chosen(name: str) -> Sequence[Auditable]:
    """Return the auditable mechanism of this name, or all for ``all`` (without torch, those that do not need it).

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
