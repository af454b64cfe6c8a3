"""The form of a statement as JSON, which may come from anybody: every field of its type and in its range."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from understudy.base.errors import ConfigError, UnderstudyError
from understudy.base.untrusted import Form, parse_json, read_json
from understudy.privacy.accountant import Composition
from understudy.privacy.events import GaussianEvent, MixtureEvent, PureEvent, ZCDPEvent
from understudy.privacy.guarantee import Budget, SecretBudget, normal_quantile, phi_bar
from understudy.privacy.plan import Charge
from understudy.release.statement import FALSE_ALARMS, Sealed, Statement

_DIGITS = 300  # a float holds a number of so many
_SMALLEST, _LARGEST = 1e-100, 1e30  # squares and reciprocals of numbers between them do not overflow
_MOST_RELEASES = 10**9
_SUBSAMPLED = (1e-9, 1e6)  # what a distribution of privacy losses is computed for in little time
_MOST_SUBSAMPLED = 10**6
_LEAST_SUBSAMPLED_NOISE = 0.01
_MOST_RECORDS = 10**6  # of one secret; none is planned for more
_LARGEST_EXPONENT = 700  # of a float
_ROUNDING = 1e-6  # of another machine's, relative

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Exact = Annotated[str, Field(pattern=rf"^[0-9]{{1,{_DIGITS}}}(/[0-9]{{1,{_DIGITS}}})?$")]
MethodName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]
"""It becomes the name of a file."""


def _in_range(event: dict[str, Any]) -> dict[str, Any]:
    values = list(event.values())
    while values:
        value = values.pop()
        if isinstance(value, list):
            values.extend(value)
        elif isinstance(value, int | float) and value and not _SMALLEST <= abs(value) <= _LARGEST:
            raise ValueError("a number of an event is out of range")
    count = event.get("count", 0)
    if not isinstance(count, int | float) or count > _MOST_RELEASES:
        raise ValueError("an event is repeated too often")
    if "inclusion" in event and any(
        not 0 <= records <= _MOST_RECORDS for secret in event["inclusion"] for _, records in secret
    ):
        raise ValueError("an event is about too many records")
    if "rate" in event:
        numbers = [value for name, value in event.items() if name != "count" and isinstance(value, int | float)]
        within = all(_SUBSAMPLED[0] <= number <= _SUBSAMPLED[1] for number in numbers)
        noise = event.get("noise_multiplier", 1.0)
        if not within or count > _MOST_SUBSAMPLED or noise < _LEAST_SUBSAMPLED_NOISE:
            raise ValueError("a subsampled event is out of range")
    return event


class ChargeForm(Form):
    name: str
    event: Annotated[dict[str, Any], AfterValidator(_in_range)]
    mechanism: dict[str, Any]
    why: str

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        """The mechanism is one, in its own range, and its event the charge's."""
        try:
            Charge.from_json(self.model_dump())
        except UnderstudyError as error:
            raise ValueError(error.problem) from None
        return self


class _Sealed(Form):
    noise: Literal["system", "seeded", "none"]
    run_id: Annotated[str, Field(pattern=r"^[0-9a-f]{0,32}$")]
    ledger_id: Annotated[str, Field(pattern=r"^[0-9a-f]{0,32}$")]
    charge_number: Count


class _Unit(Form):
    kind: Literal["record", "owner", "secret"]
    max_records: Count
    column: str | None = None
    recognised_by: str | None = None


class _Input(Form):
    source: str
    sha256: str | None = None


class _Epsilon(Form):
    delta: float
    epsilon: float


class _Posterior(Form):
    prior: float
    posterior: float


class StatementForm(Form):
    method: MethodName
    dataset: str
    unit: _Unit
    budget: dict[str, Exact]
    charges: Annotated[list[ChargeForm], Field(min_length=1)]
    public_inputs: dict[str, _Input]
    labels_declared: bool
    private: bool
    sealed: _Sealed | None
    epsilon_at_delta: Annotated[list[_Epsilon], Field(max_length=20)]  # each is computed again
    posterior_at: list[_Posterior]
    power_at_1_percent_false_alarms: Annotated[float, Field(ge=0, le=1 + 1e-9)]
    notes: list[str]
    trusted: list[str]

    @model_validator(mode="after")
    def _private_if_sealed_so(self) -> Self:
        if self.private != (self.sealed is not None and Sealed(**self.sealed.model_dump()).private):
            raise ValueError("whether it is private is not what its seal says")
        return self


def require_readable_charges(charges: Sequence[Charge]) -> None:
    """That a statement can name the charges of a plan.

    Raises:
        ConfigError: a number is out of the range that is read again.
    """
    try:
        for charge in charges:
            ChargeForm.model_validate(parse_json(json.dumps(charge.to_json()).encode()))
    except ValueError:
        raise ConfigError(
            "This budget is out of range for these parameters: no Release with such a charge could be read again.",
            "Choose an epsilon nearer to 1 (to see results without noise there is --insecure-no-noise).",
        ) from None


def require_consistent(statement: Statement) -> None:
    """That the figures are no better than the charges, where these compose in closed form: anything else takes long.

    Raises:
        ValueError: one is.
    """
    composition = Composition(tuple(charge.event for charge in statement.charges))
    if isinstance(statement.budget, SecretBudget):
        _require_consistent_secrets(statement, composition)
        return
    if any(isinstance(event, MixtureEvent) for event in composition.events):
        raise ValueError("a charge is about secrets, and none are protected")
    least = max((event.epsilon for event in composition.events if isinstance(event, PureEvent)), default=0.0)
    zcdp = any(isinstance(event, ZCDPEvent) for event in composition.events)
    closed = composition.mu is not None or zcdp
    figures = [(float(statement.budget.delta), float(statement.budget.epsilon)), *statement.epsilon_at.items()]
    for delta, epsilon in figures:
        if (closed or delta == 0) and composition.epsilon(delta) > epsilon * (1 + _ROUNDING):
            raise ValueError("the charges compose to more than the statement says")
        if _pure_at(least, delta) > epsilon * (1 + _ROUNDING):
            raise ValueError("one charge alone costs more than the statement says")
    if composition.mu is not None and composition.power(FALSE_ALARMS) > statement.power * (1 + _ROUNDING):
        raise ValueError("the charges allow a better test than the statement says")


def _pure_at(epsilon: float, delta: float) -> float:
    """Epsilon at ``delta`` of one pure charge as it is accounted for: by randomised response, which dominates it."""
    if epsilon > _LARGEST_EXPONENT:
        return epsilon + math.log1p(-delta) if delta < 1 else 0.0
    rest = math.exp(epsilon) - delta * (1 + math.exp(epsilon))
    return max(0.0, math.log(rest)) if rest > 0 else 0.0


def _require_consistent_secrets(statement: Statement, composition: Composition) -> None:
    for prior, posterior in statement.posterior_at.items():
        if not 0 < prior <= posterior <= 1:
            raise ValueError("a posterior is none, or below its prior")
    if not all(isinstance(event, GaussianEvent | MixtureEvent) for event in composition.events):
        raise ValueError("a charge promises nothing for secrets")
    if composition.mu is None:
        return
    for prior, posterior in [*statement.posterior_at.items(), _stated(statement.budget)]:
        least = phi_bar(-normal_quantile(prior) - composition.mu)
        if least > posterior * (1 + _ROUNDING):
            raise ValueError("the charges compose to more than the statement says")


def _stated(budget: Budget | SecretBudget) -> tuple[float, float]:
    assert isinstance(budget, SecretBudget)
    return float(budget.prior), float(budget.posterior)


def load_statement(path: Path) -> Statement:
    """The statement in ``statement.json``.

    Raises:
        ConfigError: it cannot be read, or is none.
    """
    try:
        fields = read_json(path)
        StatementForm.model_validate(fields)
        statement = Statement.from_json(fields)
        require_consistent(statement)
        return statement
    except Exception:  # a stranger's file fails in many ways
        raise ConfigError(
            f"{path.name} cannot be read: it is damaged or is no privacy statement.",
            "Get it again: `understudy show` prints the statement that is in the Release.",
        ) from None
