"""Plan the ordered charges of a run before a private record is read, and keep their receipt."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from understudy.base.errors import ConfigError, PrivacyError, bug
from understudy.base.untrusted import members, read_form
from understudy.privacy.accountant import Composition, Spending, gaussian_split, pure_split
from understudy.privacy.events import Event, GaussianEvent, event_from_json, event_to_json
from understudy.privacy.facts import Facts
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.mechanisms import Declared, Mechanism, NoisySum, QuerySpec, SampledSum, SubsampledSum
from understudy.privacy.noise import NoiseKind
from understudy.privacy.sealed import NoiseOrigin, Seal, charge_of
from understudy.privacy.unit import Unit


@dataclass(frozen=True)
class Charge:
    """One release that a run will make, and its purpose.

    Args:
        query: the spec of the sum (a :class:`~understudy.privacy.mechanisms.QuerySpec`; several by name if one charge
            pays for several sums), from which the release builds its query. It is not stored.

    >>> from understudy.privacy.mechanisms import Sensitivity
    >>> Charge("words", NoisySum("laplace", 2.0, Sensitivity.of_counts(1), (10,)), "counts of words").event
    PureEvent(epsilon=0.5)
    """

    name: str
    mechanism: Mechanism
    why: str
    query: Any = field(default=None, compare=False, repr=False)

    @property
    def event(self) -> Event:
        return self.mechanism.event

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "event": event_to_json(self.event),
            "mechanism": mechanism_to_json(self.mechanism),
            "why": self.why,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Charge:
        """Read what :meth:`to_json` made. Raises ValueError if the event is not that of the mechanism."""
        mechanism = mechanism_from_json(fields["mechanism"], event_from_json(fields["event"]))
        return cls(fields["name"], mechanism, fields["why"])


def terms(charges: Iterable[Mapping[str, Any]]) -> Any:
    """Return what charges, as JSON fields, must have in common to be the same: everything but their explanations."""
    return _plain([{name: value for name, value in charge.items() if name != "why"} for charge in charges])


def charges_of(
    sums: Mapping[str, tuple[QuerySpec, str]],
    multipliers: Iterable[float],
    *,
    noise: NoiseKind = "gaussian",
    unit: Unit | None = None,
) -> tuple[Charge, ...]:
    """Return the charges of noisy sums, each with the sensitivity and the shape that its query states.

    Args:
        sums: the query and the purpose of each, by the charge's name.
        multipliers: noise multiplier of each, in the same order.
        unit: what is protected; a secret may be in ``max_records`` records, which multiplies the sensitivity.
    """
    charges, times = list[Charge](), (unit or Unit()).vectors
    for (name, (query, why)), multiplier in zip(sums.items(), multipliers, strict=True):
        mechanism = NoisySum(noise, multiplier, query.sensitivity.times(times), query.shape)
        charges.append(Charge(name, mechanism, why, query))
    return tuple(charges)


def noise_multipliers(
    budget: Budget | SecretBudget, shares: Sequence[float], noise: NoiseKind = "gaussian"
) -> Sequence[float]:
    """Return the noise multipliers of sums that together spend the budget.

    Shares (of any scale) divide mu^2, or epsilon for Laplace noise. Raises ConfigError if the noise does not fit."""
    if isinstance(budget, SecretBudget):
        from understudy.privacy.secrets.composition import secret_split

        return secret_split(budget, shares)
    if noise == "gaussian":
        return gaussian_split(budget, shares)
    return tuple(1 / epsilon for epsilon in pure_split(budget, shares))


def require_budget_of(unit: Unit, budget: Budget | SecretBudget) -> None:
    """Check that the budget is of the kind that the unit needs: a prior and a posterior for secrets, and only for them.

    Raises ConfigError if it is not.
    """
    if (unit.kind == "secret") != isinstance(budget, SecretBudget):
        raise ConfigError(
            f"The budget {budget} is not a budget for one {unit.name}.",
            "Secrets take a prior and a posterior (--secret-prior, --secret-posterior); "
            "records and owners take an epsilon and a delta.",
        )


@dataclass(frozen=True)
class Plan:
    """The releases and costs of a run. A function of public parameters only.

    Args:
        budget: the amount that the run may spend, and that is booked in the ledger.
        charges: the releases, in order.
        forecast: the expected result (noise against expected signal, tokens).
        notes: remarks for the statement.

    Raises:
        PrivacyError: if the charges compose to more than the budget, or two share a name.
        ConfigError: if the budget is of a kind that the unit does not have.

    >>> from understudy.privacy.mechanisms import Sensitivity
    >>> charge = Charge("words", NoisySum("laplace", 0.5, Sensitivity.of_counts(1), (10,)), "counts of words")
    >>> Plan("word-bags", Unit(), Budget(2, 0), (charge,)).total
    2.0
    """

    method: str
    unit: Unit
    budget: Budget | SecretBudget
    charges: tuple[Charge, ...]
    forecast: Facts = field(default_factory=Facts)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len({charge.name for charge in self.charges}) != len(self.charges):
            raise PrivacyError("Two charges of a plan share a name.", "Name every release of a method differently.")
        if any(charge.name != charge_of(charge.name) for charge in self.charges):
            raise PrivacyError(
                "A charge has a slash in its name.",
                "Choose a name without a slash, which separates a charge from its parts.",
            )
        require_budget_of(self.unit, self.budget)
        limit = self.budget.posterior if isinstance(self.budget, SecretBudget) else self.budget.epsilon
        if self.total > float(limit):
            raise bug(
                f"The plan's charges compose to more than its budget {self.budget}.",
                "its calibration and its events disagree",
            )

    @property
    def usefulness(self) -> str:
        """Return the verdict in a sentence; empty if there is none."""
        return self.forecast.verdict.sentence(unit=self.unit.kind) if self.forecast.verdict else ""

    def mechanism(self, name: str) -> Any:
        return next(charge.mechanism for charge in self.charges if charge.name == name)

    @cached_property
    def queries(self) -> dict[str, Any]:
        """Return the specs of all sums, by the name of the charge, or of the sum if one charge pays for several."""
        found = dict[str, Any]()
        for charge in self.charges:
            found |= charge.query if isinstance(charge.query, dict) else {charge.name: charge.query}
        return found

    def query(self, name: str) -> Any:
        """Return the planned spec of this name, from which the query is built."""
        return self.queries[name]

    @cached_property
    def composition(self) -> Composition:
        return Composition(tuple(charge.event for charge in self.charges))

    @property
    def total(self) -> float:
        """Return the total cost of all charges: epsilon at the budget's delta, or the highest posterior at its
        prior."""
        if isinstance(self.budget, SecretBudget):
            return self.posterior(float(self.budget.prior))
        return self.composition.epsilon(float(self.budget.delta))

    def posterior(self, prior: float) -> float:
        """Return an upper bound on how often a test detects a secret if it has false alarms at the rate ``prior``."""
        from understudy.privacy.secrets.composition import posterior

        return posterior(self.composition.events, prior)

    @property
    def spending(self) -> Spending:
        return Spending(self.budget, self.composition.events)


class Receipt:
    """Proof that the ledger has recorded a run's charges; each pays for one value in this process.

    Only a ledger makes a receipt that seals private values, after its entry is written and synced. A run that was
    killed after its charge and before it stored the noisy value gets a new receipt for the same entry. That one pays
    for sampling the noise again, since nobody saw the first value.

    Args:
        ledger_id: empty if nothing is charged, in which case nothing is private.
        charge_number: of the run's entry in the ledger.

    >>> from understudy.privacy.mechanisms import Sensitivity
    >>> charge = Charge("words", NoisySum("laplace", 0.5, Sensitivity.of_counts(1), (10,)), "counts of words")
    >>> receipt = Receipt("run", Plan("word-bags", Unit(), Budget(2, 0), (charge,)))
    >>> receipt.pay("words").kind
    'noisy-sum'
    """

    def __init__(self, run_id: str, plan: Plan, *, ledger_id: str = "", charge_number: int = 0) -> None:
        self._plan = plan
        self._unused = {charge.name: charge.mechanism for charge in plan.charges}
        self._about = {"run_id": run_id, "ledger_id": ledger_id, "charge_number": charge_number}

    def pay(self, name: str) -> Any:
        """Use up the charge ``name`` and return its mechanism.

        Raises PrivacyError if no such charge is recorded, or it was used before.
        """
        if name not in self._unused:
            raise PrivacyError(
                f"The release {name!r} has no unused charge in the ledger.",
                "Charge the plan before the release, and make each of its releases only once.",
            )
        return self._unused.pop(name)

    def seal(self, name: str, *, noise: NoiseOrigin, rows: str) -> Seal:
        """Return the seal of the noisy value ``name``, or of a part of it.

        It is the proof that one of the charges pays for the value, which cannot be stored without.

        Raises PrivacyError if no charge pays for it.
        """
        charge = next((charge for charge in self._plan.charges if charge.name == charge_of(name)), None)
        if charge is None:
            raise PrivacyError(f"No charge of the plan pays for {name!r}.", "Name the value after its charge.")
        return Seal(name, charge.event, self._plan.unit, noise, rows=rows, **self._about)  # type: ignore[arg-type]


def mechanism_to_json(mechanism: Mechanism) -> dict[str, Any]:
    fields = {} if isinstance(mechanism, Declared) else asdict(mechanism)  # type: ignore[call-overload]
    return {"kind": mechanism.kind, **fields}


def mechanism_from_json(fields: dict[str, Any], event: Event) -> Mechanism:
    """Read what :func:`mechanism_to_json` made, from fields that are not trusted.

    Raises:
        ValueError: if the kind is unknown, a field is missing or has the wrong type, or its event is not ``event``.
        ConfigError: if a number is out of its range.

    >>> mechanism_from_json({"kind": "declared"}, GaussianEvent(2.0))
    Declared(event=GaussianEvent(noise_multiplier=2.0))
    """
    named = dict(fields)
    kind = named.pop("kind", None)
    if _any_boolean(fields):  # true is not 1
        raise ValueError("a mechanism's fields are not booleans")
    if kind == Declared.kind:
        if named:
            raise ValueError("a declared mechanism has no numbers")
        return Declared(event)
    if not isinstance(kind, str) or kind not in _mechanisms():
        raise ValueError("a mechanism is of an unknown kind")
    made: Mechanism = read_form(_mechanisms()[kind], named, strict=False)  # whole floats count
    if _plain(mechanism_to_json(made)) != _plain(fields):
        raise ValueError("a mechanism has unknown or missing fields")
    if made.event != event:
        raise ValueError("a charge's event is not that of its mechanism")
    return made


def _any_boolean(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_any_boolean, members(value)))
    return isinstance(value, bool)


def _plain(fields: Any) -> Any:
    return json.loads(json.dumps(fields))


def _mechanisms() -> dict[str, Any]:
    from understudy.privacy.gradients import DPSGD
    from understudy.privacy.sample import SubsampledSums
    from understudy.privacy.selection import NoisySelection
    from understudy.privacy.subsampled import SubsampledTokens
    from understudy.privacy.tokens import PrivateTokens

    sums = (NoisySum, SampledSum, SubsampledSum, SubsampledSums)
    return {made.kind: made for made in (*sums, NoisySelection, PrivateTokens, SubsampledTokens, DPSGD)}


@dataclass(frozen=True)
class AddedCharges:
    """Charges of Gaussian noise, and the forecast of their results."""

    charges: tuple[Charge, ...]
    forecast: Facts


def plan_beside(
    plan_method: Callable[[Budget], Plan],
    budget: Budget | SecretBudget,
    plan_addition: Callable[[Sequence[float]], AddedCharges],
    *,
    shares: Sequence[float],
    what: str,
) -> Plan:
    """Plan an addition (such as a guide) with part of ``budget`` and the method with the rest. Return one plan, with
    the method's charges first.

    The addition gets ``shares`` of mu^2, the squared parameter of the Gaussian mechanism that spends the whole budget.
    The method plans with the epsilon that the rest of mu^2 has at the budget's delta. For methods of Gaussian noise the
    sum spends the budget to the last digit. For others the composition is computed and the method's epsilon is
    searched for, so that together they spend about all of the budget and no more.

    Args:
        plan_addition: returns its charges, given a noise multiplier for each of ``shares``.
        what: the name of the addition and of its flags.

    Raises ConfigError if the budget protects secrets or has no delta, or nothing is left for the method.
    """
    if isinstance(budget, SecretBudget):
        raise ConfigError(
            f"The noise of the {what} protects records or owners, not secrets.",
            f"Leave --{what} out, or give --epsilon and --delta.",
        )
    if budget.delta == 0:
        raise ConfigError(
            f"The noise of the {what} is Gaussian, which needs a delta.",
            f"Give a delta such as 1e-6, or leave --{what} out.",
        )
    *multipliers, rest = gaussian_split(budget, (*shares, 1 - math.fsum(shares)))
    added = plan_addition(multipliers)
    names = {charge.name for charge in added.charges}
    limit, delta = float(budget.epsilon), float(budget.delta)
    best: Plan | None = None
    low, high = 0.0, limit
    epsilon = min(Composition((GaussianEvent(rest),)).epsilon(delta), limit)
    for _ in range(_TRIES):
        if epsilon < _LEAST_EPSILON:
            break
        try:
            plan = plan_method(Budget(_digits(epsilon), budget.delta))
        except ConfigError:
            if best is None:
                raise
            break
        if names.intersection(each.name for each in plan.charges):
            raise ConfigError(f"The method {plan.method} releases a {what} by itself.", f"Leave --{what} out.")
        total = Composition(tuple(each.event for each in (*plan.charges, *added.charges))).epsilon(delta)
        if total <= limit:
            best, low = plan, epsilon
        else:
            high = epsilon
        if total <= limit and (total >= _ENOUGH * limit or high - low <= (1 - _ENOUGH) * high):
            break
        guess = 0.999 * epsilon * limit / total if total else high
        epsilon = guess if low < guess < high else (low + high) / 2
    if best is None:
        raise ConfigError(
            f"The {what} would leave no budget for the method.",
            f"Give a larger --epsilon, or leave --{what} out.",
        )
    return replace(
        best,
        budget=budget,
        charges=(*best.charges, *added.charges),
        forecast=best.forecast + added.forecast,
    )


_ENOUGH = 0.98
"""Share of the budget at which the search stops."""
_TRIES = 20
_LEAST_EPSILON = 1e-9  # of any budget


def _digits(epsilon: float) -> Fraction:
    """Round down to a millionth of its size, in digits that a person can read."""
    step = Fraction(10) ** (math.floor(math.log10(epsilon)) - 6)
    return math.floor(Fraction(epsilon) / step) * step
