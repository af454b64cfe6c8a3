"""Write the privacy statement: what is protected, how strongly, at what cost, and what is not covered."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainValidator, TypeAdapter

from understudy.base.errors import ConfigError, UnderstudyError
from understudy.base.untrusted import Form, parse_json, read_form, read_json
from understudy.privacy.accountant import Composition
from understudy.privacy.events import (
    GaussianEvent,
    MixtureEvent,
    PureEvent,
    SubsampledGaussianEvent,
    SubsampledPureEvent,
    ZCDPEvent,
)
from understudy.privacy.exact import as_typed, in_a_hundred, round_up
from understudy.privacy.guarantee import GDP, Budget, SecretBudget
from understudy.privacy.mechanisms import NEARER, SampledSum
from understudy.privacy.plan import Charge, Plan, require_budget_of, terms
from understudy.privacy.sealed import SYSTEM, NoiseOrigin, Seal, charge_of, moved_store
from understudy.privacy.secrets.composition import in_parts, posterior
from understudy.privacy.unit import Unit
from understudy.privacy.verdict import Verdict

_DIGITS = 300  # a float can represent numbers of this length
_SMALLEST, _LARGEST = 1e-100, 1e30  # squares and reciprocals of numbers between them do not overflow
_MOST_RELEASES = 10**9
_SUBSAMPLED = (1e-9, 1e6)  # for which privacy loss distributions are computed quickly
_MOST_SUBSAMPLED = 10**6
_LEAST_SUBSAMPLED_NOISE = 0.01
_MOST_RECORDS = 10**6  # of one secret; no plan has more
_MOST_FIGURES = 20  # each is computed again
_ROUNDING = 1e-6  # relative, on another machine

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Exact = Annotated[str, Field(pattern=rf"^[0-9]{{1,{_DIGITS}}}(/[0-9]{{1,{_DIGITS}}})?$")]
MethodName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]
"""It becomes the name of a file."""
_RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{0,32}$")]


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


class _ChargeFields(Form):
    name: str
    event: Annotated[dict[str, Any], AfterValidator(_in_range)]
    mechanism: dict[str, Any]
    why: str


_EXACT = TypeAdapter(dict[str, Exact])


def read_charge(fields: Any) -> Charge:
    """Read a charge from JSON; ValueError if a number is out of range or its event is not that of its mechanism."""
    try:
        return Charge.from_json(_ChargeFields.model_validate(fields).model_dump())
    except UnderstudyError as error:
        raise ValueError(error.problem) from None


def read_budget(fields: Any) -> Budget | SecretBudget:
    exact = _EXACT.validate_python(fields, strict=True)
    return SecretBudget.from_json(exact) if "prior" in exact else Budget.from_json(exact)


def _pairs(first: str, second: str) -> BeforeValidator:
    def read(entries: Any) -> dict[Any, Any]:
        if not isinstance(entries, list):
            raise ValueError("not a list of pairs")
        return {entry[first]: entry[second] for entry in entries}

    return BeforeValidator(read)


FALSE_ALARMS = 0.01
DELTAS = (1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
PRIORS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
_LARGEST_EXPONENT = 700.0

NOT_PRIVATE = "NOT PRIVATE"
_NO_PROMISE = (
    f"> **{NOT_PRIVATE}.** The noise of this run was switched off or seeded. No guarantee holds; nothing was booked. "
    "The figures below are those of a run with noise."
)
_PUBLIC_INCIDENCE = (
    "**This run treats as public which records contain which secret.** The weights and the noise depend on it. The "
    "guarantee therefore hides what a secret is and what its records say, but not which records those are. Records "
    "that contain no secret are not protected at all: their epsilon is infinite."
)

# Limits of every guarantee, whatever is protected.
_UNPROTECTED = "**read from the data: not protected**"
_POPULATION = (
    "Facts about the table as a whole, such as the share of its records with a property. They hold with or without any "
    "one person's records, and the synthetic texts are meant to show them."
)
_SELECTION = (
    "Choosing parameters, a run or a method by looking at results on the private data, unless that was charged too."
)
_ENDING = "Whether a run ended in an error (such as too many unusable rows), and how long it took."
_LANGUAGE_MODEL = "What a language model learned from its own training data."


@dataclass(frozen=True)
class Sealed:
    """The public fields that the seals of all noisy values of a run share, such as the run and the noise; see
    :class:`Seal`."""

    noise: NoiseOrigin
    run_id: _RunId
    ledger_id: _RunId
    charge_number: Count
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    @classmethod
    def of(cls, seal: Seal) -> Sealed:
        return cls(seal.noise, seal.run_id, seal.ledger_id, seal.charge_number)

    @property
    def private(self) -> bool:
        """Return whether the values are private, as :attr:`Seal.private`."""
        return self.noise == SYSTEM and bool(self.ledger_id) and self.charge_number > 0


@dataclass(frozen=True)
class EpsilonPromise:
    """``(epsilon, delta)``-differential privacy, with epsilon at several deltas and the power of a test."""

    budget: Budget
    epsilon_at: Mapping[float, float]
    power: float
    one: str = "record"
    neighbours: ClassVar[str] = "add or remove one unit"
    not_covered: ClassVar[tuple[str, ...]] = (
        _POPULATION,
        "Other runs on the same data: their budgets add up (see the ledger).",
        _SELECTION,
        "Groups: for k people (or records) together epsilon is k times as large, and delta grows faster.",
        _ENDING,
        _LANGUAGE_MODEL,
    )

    def words(self) -> str:
        epsilon, delta = as_typed(self.budget.epsilon), as_typed(self.budget.delta)
        exponent = float(self.budget.epsilon)
        odds = round_up(math.exp(exponent)) if exponent < _LARGEST_EXPONENT else f"e^{epsilon}"
        more = f", plus {delta}" if self.budget.delta else ""
        one = self.one
        return (
            f"Adding or removing any one {one} changes the probability of any result by at most a factor of {odds}"
            f"{more}. A result is anything that the Release, or a text made from it, can show. In exact terms: the "
            f"probability of any result with the {one} is at most {odds} times the probability without it{more}, and "
            f"the reverse. This is ({epsilon}, {delta})-differential privacy for adding or removing one {one}.\n\n"
            f"An attacker who wrongly accuses 1 in 100 absent {one}s can identify at most "
            f"{in_a_hundred(self.power)} in 100 present ones, whatever else they know."
        )

    def table(self) -> list[str]:
        rows = (f"| {delta:g} | {round_up(epsilon)} |" for delta, epsilon in self.epsilon_at.items())
        return ["| at delta | epsilon |", "|---|---|", *rows]


def epsilon_at(plan: Plan) -> dict[float, float]:
    """Return epsilon at the booked delta and at several others; infinite ones are left out."""
    deltas = {*([float(plan.budget.delta)] if isinstance(plan.budget, Budget) else []), *DELTAS}
    values = {delta: plan.composition.epsilon(delta) for delta in sorted(deltas, reverse=True)}
    return {delta: epsilon for delta, epsilon in values.items() if math.isfinite(epsilon)}


@dataclass(frozen=True)
class SecretPromise:
    """``(p, r)``-secret protection (Wang et al. 2025), with the posterior at several priors and the power of a test.

    Args:
        max_records: most records that contain one secret (m).
        power: of a test for one secret that is wrong about 1 absent secret in 100.
        public_incidence: True if it is public which record contains which secret.
    """

    budget: SecretBudget
    max_records: int
    posterior_at: Mapping[float, float]
    power: float
    public_incidence: bool
    neighbours: ClassVar[str] = "remove all records that contain one secret"
    not_covered: ClassVar[tuple[str, ...]] = (
        "Everything that is not a secret: the rest of a record, and who wrote it.",
        "Related secrets: two secrets in one text, or a secret that reveals another, are each protected alone.",
        "Paraphrases of a secret, and spellings that were not recognised: the record counts as not containing it.",
        "Groups: several secrets together are protected more weakly than each of them.",
        "Other runs on the same data: together they reach a higher posterior (the ledger composes them; posteriors do "
        "not add up), and a run that recognises other secrets protects only those.",
        _POPULATION,
        _SELECTION,
        _ENDING,
        _LANGUAGE_MODEL,
    )

    def words(self) -> str:
        prior, posterior = as_typed(self.budget.prior), as_typed(self.budget.posterior)
        times = round_up(float(self.budget.posterior / self.budget.prior))
        paragraphs = [
            f"An attacker who guesses a secret correctly with a probability of at most {prior} (the prior, p) before "
            f"seeing the Release or a text made from it guesses it correctly with a probability of at most {posterior} "
            f"(the posterior, r) afterwards, whatever else they know. For a prior of exactly p this is a factor of "
            f"{times}; the table shows other priors.",
            f"In exact terms: a test for one given secret that reports it with probability {prior} when it is absent "
            f"reports it with probability at most {posterior} when it is present, where absent means that all records "
            "that contain the secret are removed. The probabilities are over the noise: they bound how often an "
            "attacker is right, not how certain one lucky sample of the noise can make them.",
            "An attacker who wrongly reports 1 in 100 absent secrets can identify at most "
            f"{in_a_hundred(self.power)} in 100 present ones.",
            "**This is not differential privacy of a record or of an owner.** It implies no epsilon and no delta for "
            "them, and it guarantees nothing about text that is not a secret. It holds for each secret that occurs in "
            f"at most {self.max_records} {'record' if self.max_records == 1 else 'records'}; for a secret that occurs "
            "in more, because it was not recognised there, the posterior can be higher. This statement refers to "
            "secrets by number only.",
        ]
        return "\n\n".join(paragraphs + [_PUBLIC_INCIDENCE] * self.public_incidence)

    def table(self) -> list[str]:
        rows = (f"| {prior:g} | {round_up(posterior)} |" for prior, posterior in self.posterior_at.items())
        return ["| prior | highest posterior |", "|---|---|", *rows]


def posterior_at(plan: Plan) -> dict[float, float]:
    """Return the highest posterior at the booked prior and at several others."""
    priors = {*([float(plan.budget.prior)] if isinstance(plan.budget, SecretBudget) else []), *PRIORS}
    return {prior: plan.posterior(prior) for prior in sorted(priors)}


def public_incidence(charges: tuple[Charge, ...]) -> bool:
    return any(isinstance(each.mechanism, SampledSum) and each.mechanism.incidence is not None for each in charges)


@dataclass(frozen=True)
class Statement:
    """The privacy statement that accompanies a Release and every synthetic table made from it.

    Args:
        budget: the amount booked in the ledger.
        charges: every release made, with its event.
        public_inputs: name -> {"source": ..., "sha256": ...} of everything fixed before private data was read.
        labels_declared: False if the label set was read from the data.
        labels_found: whether the labels are topics that the run found, with noise.
        sealed: the common fields of the seals of its values; None before there are any.
        epsilon_at: epsilon at the booked delta and at several others; infinite ones are left out. Empty for secrets.
        power: largest true-positive rate of a test for one unit's presence that is wrong about 1 absent unit in 100.
        notes: further remarks of the method, one sentence each.
        posterior_at: the highest posterior at the booked prior and at several others; empty without secrets.
        trusted: who else read private texts with the user's permission, one sentence each.
        verdict: how useful the release is, by its values if they show it; None before there are any.
        table: the result of the checks of the texts that were made; empty before there are any.
    """

    method: MethodName
    unit: Annotated[Unit, PlainValidator(Unit.from_json)]
    budget: Annotated[Budget | SecretBudget, PlainValidator(read_budget)]
    charges: Annotated[tuple[Annotated[Charge, PlainValidator(read_charge)], ...], Field(min_length=1)]
    public_inputs: Mapping[str, Mapping[str, Any]]
    labels_declared: bool
    dataset: str
    sealed: Sealed | None
    epsilon_at: Annotated[
        Mapping[float, float],
        _pairs("delta", "epsilon"),
        Field(alias="epsilon_at_delta", max_length=_MOST_FIGURES),
    ]
    power: Annotated[float, Field(alias="power_at_1_percent_false_alarms", ge=0, le=1 + 1e-9)]
    notes: tuple[str, ...] = ()
    posterior_at: Annotated[Mapping[float, float], _pairs("prior", "posterior"), Field(max_length=_MOST_FIGURES)] = (
        field(default_factory=dict)
    )
    trusted: tuple[str, ...] = ()
    verdict: Verdict | None = None
    labels_found: bool = False
    table: Annotated[str, Field(max_length=10_000)] = ""

    @classmethod
    def of(
        cls,
        plan: Plan,
        *,
        public_inputs: Mapping[str, Mapping[str, str]],
        labels_declared: bool,
        dataset: str,
        notes: tuple[str, ...] = (),
        trusted: tuple[str, ...] = (),
        labels_found: bool = False,
    ) -> Statement:
        secret = isinstance(plan.budget, SecretBudget)
        return cls(
            plan.method,
            plan.unit,
            plan.budget,
            plan.charges,
            public_inputs,
            labels_declared,
            dataset,
            None,
            {} if secret else epsilon_at(plan),
            plan.posterior(FALSE_ALARMS) if secret else plan.composition.power(FALSE_ALARMS),
            (*plan.notes, *notes),
            posterior_at(plan) if secret else {},
            trusted,
            labels_found=labels_found,
        )

    def with_seals(self, seals: Sequence[Seal]) -> Statement:
        """Return the statement with the common fields of the seals of its values.

        Raises PrivacyError if a charge has no value, or a value is of a different run, unit or charge.
        """
        events = {charge.name: charge.event for charge in self.charges}
        shared = {Sealed.of(seal) for seal in seals}
        if (
            len(shared) != 1
            or {charge_of(seal.name) for seal in seals} != set(events)
            or any(seal.unit != self.unit or seal.event != events[charge_of(seal.name)] for seal in seals)
        ):
            raise moved_store("The stored noisy values do not match the charges of the plan.")
        return replace(self, sealed=shared.pop())

    def is_of(
        self, unit: Unit | None, budget: Budget | SecretBudget | None, charges: Iterable[Mapping[str, Any]]
    ) -> bool:
        """Return whether the statement has the unit, budget and charges (as JSON fields) that a run kept, or that the
        ledger booked for it. Explanations of charges may differ."""
        own = terms(charge.to_json() for charge in self.charges)
        return (self.unit, self.budget) == (unit, budget) and own == terms(charges)

    @property
    def private(self) -> bool:
        """Return whether the guarantee holds: a property of the values. An unsealed statement guarantees nothing."""
        return self.sealed is not None and self.sealed.private

    @property
    def promise(self) -> EpsilonPromise | SecretPromise:
        if isinstance(self.budget, SecretBudget):
            return SecretPromise(
                self.budget, self.unit.max_records, self.posterior_at, self.power, public_incidence(self.charges)
            )
        return EpsilonPromise(self.budget, self.epsilon_at, self.power, self.unit.kind)

    def noise_multiplier(self, charge: str) -> float | None:
        """Return the multiplier of a charge's Gaussian or Laplace noise; 0 without noise, None without the charge."""
        event = next((each.event for each in self.charges if each.name == charge), None)
        if event is not None and (self.sealed is None or self.sealed.noise == "none"):
            return 0.0
        if isinstance(event, GaussianEvent | SubsampledGaussianEvent | MixtureEvent):
            return event.noise_multiplier
        return 1 / event.epsilon if isinstance(event, PureEvent) else None

    @property
    def _sampled(self) -> bool:
        """Return whether sampling the units makes epsilon smaller than the budget's."""
        if isinstance(self.budget, SecretBudget):
            return False
        sampled = any(isinstance(charge.event, SubsampledGaussianEvent) for charge in self.charges)
        return sampled and self.epsilon_at.get(float(self.budget.delta), math.inf) < 0.9 * float(self.budget.epsilon)

    @property
    def usefulness(self) -> str:
        """Return the verdict in a sentence; empty if there is none."""
        return self.verdict.sentence(spent=True, unit=self.unit.kind) if self.verdict else ""

    @property
    def _label_set(self) -> str:
        if self.labels_found:
            return "topics that the run found with noise, from its budget; which record has which is not released"
        return "declared, public" if self.labels_declared else "read from the data, not protected"

    def to_json(self) -> dict[str, Any]:
        return {
            "private": self.private,
            "sealed": None if self.sealed is None else asdict(self.sealed),
            "stamp": "" if self.private else NOT_PRIVATE,
            "method": self.method,
            "dataset": self.dataset,
            "unit": self.unit.to_json(),
            "protects": self.unit.describe(),
            "neighbours": self.promise.neighbours,
            "budget": self.budget.to_json(),
            "epsilon_at_delta": [{"delta": d, "epsilon": e} for d, e in self.epsilon_at.items()],
            "posterior_at": [{"prior": p, "posterior": r} for p, r in self.posterior_at.items()],
            "power_at_1_percent_false_alarms": self.power,
            "charges": [charge.to_json() for charge in self.charges],
            "public_inputs": {name: dict(entry) for name, entry in self.public_inputs.items()},
            "label_set": self._label_set,
            "labels_declared": self.labels_declared,
            **({"labels_found": True} if self.labels_found else {}),
            "notes": list(self.notes),
            "trusted": list(self.trusted),
            "not_covered": list(self.promise.not_covered),
            **({"verdict": asdict(self.verdict)} if self.verdict else {}),
            **({"table": self.table} if self.table else {}),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Statement:
        """Read what :meth:`to_json` made. The fields are not trusted.

        Raises ValueError or ConfigError if a field is missing, has the wrong type or is out of its range; Overstated if
        the stated guarantee is stronger than its charges imply.
        """
        if not {"notes", "posterior_at", "trusted"} <= fields.keys():
            raise ValueError("a field is missing")
        found = read_form(cls, fields)
        if found.unit.max_records >= 1 << 63:
            raise ValueError("a unit has too many records")
        require_budget_of(found.unit, found.budget)
        for entry in found.public_inputs.values():
            if not (isinstance(entry.get("source"), str) and isinstance(entry.get("sha256"), str | None)):
                raise ValueError("a public input has no source, or an invalid hash")
        if found.labels_found and not found.labels_declared:
            raise ValueError("labels cannot be both found with noise and read from the data")
        if fields["private"] is not found.private:
            raise ValueError("its `private` field contradicts its seal")
        require_consistent(found)
        return found

    def to_markdown(self, *, labelled: bool = True) -> str:
        """Return the statement for people; ``labelled``: whether the table has labels."""
        protects = "It protects" if self.private else "It does not protect"
        booked = f"Booked in the ledger of dataset `{self.dataset}`: {self.budget}. " if self.private else ""
        spent = ""
        if booked and self._sampled:
            epsilon = round_up(self.epsilon_at[float(self.budget.delta)])  # type: ignore[union-attr]
            spent = f": {self.budget} was booked, and epsilon {epsilon} at that delta was spent"
            booked += "The releases cost less, as the table shows, because nobody knows who is in the sample. "
        labels = "" if self.labels_declared else " **The label set is not covered: it was read from the data.**"
        lines = [
            "# Privacy statement",
            "",
            f"Method **{self.method}**{spent}. {protects} **{self.unit.describe()}**.",
            "",
            *([f"Usefulness: **{self.usefulness}**", ""] if self.usefulness else []),
            *([f"Table: {_line(self.table)}", ""] if self.table else []),
            self.promise.words() + labels if self.private else _NO_PROMISE,
            "",
            *self.promise.table(),
            "",
            "## What was released, and what it cost",
            "",
            *(f"- **{charge.name}**: {_line(charge.why)} ({charge.event})." for charge in self.charges),
            "",
            f"{booked}Anything made from the values listed here, by a language model or otherwise, costs nothing more.",
            "",
            "## Public inputs, fixed before any private record was read",
            "",
            *(
                f"- {_line(name)}: {_line(entry['source'])}"
                + (f" (SHA-256 `{entry['sha256']}`)" if entry.get("sha256") else "")
                for name, entry in self.public_inputs.items()
            ),
            *(
                [f"- label set: {'declared' if self.labels_declared else _UNPROTECTED}"]
                if labelled and not self.labels_found
                else []
            ),
            "",
            *([f"The labels are {self._label_set}.", ""] if self.labels_found else []),
            *(["## Notes", "", *(f"- {_line(note)}" for note in self.notes), ""] if self.notes else []),
            *(["## Who is trusted", "", *(f"- {_line(each)}" for each in self.trusted), ""] if self.trusted else []),
            "## What is not covered",
            "",
            *(f"- {item}" for item in self.promise.not_covered),
            "",
        ]
        return "\n".join(lines)


def _line(text: str) -> str:
    """Join the text into one line, so that text in a Release cannot make headings."""
    return " ".join(text.split())


def require_readable_charges(charges: Sequence[Charge]) -> None:
    """Check that a statement with the charges of a plan can be read again.

    Raises ConfigError if a number is out of the range that is read.
    """
    try:
        for charge in charges:
            read_charge(parse_json(json.dumps(charge.to_json()).encode()))
    except ValueError:
        raise ConfigError(
            "This budget is out of range for these parameters: a Release with such a charge could not be loaded.",
            NEARER,
        ) from None


class Overstated(Exception):
    """The stated guarantee is stronger than its charges imply. No ValueError, which pydantic would wrap."""


def require_consistent(statement: Statement) -> None:
    """Check that the stated guarantee is not stronger than its charges imply, as far as that is quickly computed.

    Composing all charges is slow. Those that compose in closed form are checked together, and each of the others alone;
    for secrets, each of the charges' :func:`~understudy.privacy.secrets.composition.in_parts`. zCDP charges imply no
    power of a test, so theirs is not checked.

    Raises Overstated if it is stronger.
    """
    composition = Composition(tuple(charge.event for charge in statement.charges))
    if isinstance(statement.budget, SecretBudget):
        _require_consistent_secrets(statement, statement.budget, composition)
        return
    if any(isinstance(event, MixtureEvent) for event in composition.events):
        raise Overstated("a charge is for secrets, but the statement does not protect secrets")
    pure = [event.epsilon for event in composition.events if isinstance(event, PureEvent)]
    pure += [event.each for event in composition.events if isinstance(event, SubsampledPureEvent)]
    least = max(pure, default=0.0)
    zcdp = any(isinstance(event, ZCDPEvent) for event in composition.events)
    gaussians = Composition(tuple(event for event in composition.events if isinstance(event, GaussianEvent)))
    samples = [event for event in composition.events if isinstance(event, SubsampledGaussianEvent)]
    closed = composition if zcdp else gaussians
    figures = [(float(statement.budget.delta), float(statement.budget.epsilon)), *statement.epsilon_at.items()]
    for delta, epsilon in figures:
        if (closed if delta else composition).epsilon(delta) > epsilon * (1 + _ROUNDING):
            raise Overstated("the charges compose to more than the statement says")
        sampled = max((sampled_at(event, epsilon) for event in samples), default=0.0)
        if _pure_at(least, delta) > epsilon * (1 + _ROUNDING) or sampled > delta * (1 + _ROUNDING):
            raise Overstated("one charge alone costs more than the statement says")
    powers = [gaussians.power(FALSE_ALARMS), _pure_power(least), *map(sampled_power, samples)]
    if max(powers) > statement.power * (1 + _ROUNDING):
        raise Overstated("the charges allow a better test than the statement says")


def _require_consistent_secrets(statement: Statement, budget: SecretBudget, composition: Composition) -> None:
    """Check the posteriors, the power, and ``max_records`` against the inclusion of sampled records.

    ``max_records`` cannot be checked without sampling, as a charge's sensitivity is that of all records of a secret
    together, nor with public incidence, where no secret may be in as many records.
    """
    if not all(0 < prior <= stated <= 1 for prior, stated in statement.posterior_at.items()):
        raise Overstated("a posterior is not a probability, or below its prior")
    if composition.failure or not all(isinstance(each, GaussianEvent | MixtureEvent) for each in composition.events):
        raise Overstated("a charge gives no guarantee for secrets")
    least = 1 if public_incidence(statement.charges) else statement.unit.max_records
    for event in {each for each in composition.events if isinstance(each, MixtureEvent)}:
        if max((sum(records for _, records in secret) for secret in event.inclusion), default=0) < least:
            raise Overstated("a secret may be in more records than a charge allows for")
    own, test = (float(budget.prior), float(budget.posterior)), (FALSE_ALARMS, statement.power)
    for part in in_parts(composition.events):
        for prior, stated in [*statement.posterior_at.items(), own, test]:
            if posterior(part, prior) > stated * (1 + _ROUNDING):
                raise Overstated("the charges compose to more than the statement says")


def sampled_at(event: SubsampledGaussianEvent, epsilon: float) -> float:
    """Return delta at ``epsilon`` of one of the event's releases, a lower bound on that of all: with the unit against
    without it, amplified as in Balle, Barthe and Gaboardi 2018, Theorem 2."""
    epsilon *= 1 + _ROUNDING
    if epsilon > _LARGEST_EXPONENT:
        return 0.0
    return event.rate * GDP(1 / event.noise_multiplier).delta(math.log1p(math.expm1(epsilon) / event.rate))


def sampled_power(event: SubsampledGaussianEvent) -> float:
    """Return the power of a test with FALSE_ALARMS on one of the event's releases, over whether the unit is sampled."""
    sampled = Composition((GaussianEvent(event.noise_multiplier),)).power(FALSE_ALARMS)
    return (1 - event.rate) * FALSE_ALARMS + event.rate * sampled


def _pure_at(epsilon: float, delta: float) -> float:
    """Return epsilon at ``delta`` of one pure charge as it is accounted: by randomised response, which dominates it."""
    if epsilon > _LARGEST_EXPONENT:
        return epsilon + math.log1p(-delta) if delta < 1 else 0.0
    rest = math.exp(epsilon) - delta * (1 + math.exp(epsilon))
    return max(0.0, math.log(rest)) if rest > 0 else 0.0


def _pure_power(epsilon: float) -> float:
    """Return the power of a test with FALSE_ALARMS on randomised response."""
    epsilon = min(epsilon, _LARGEST_EXPONENT)
    return min(math.exp(epsilon) * FALSE_ALARMS, 1 - math.exp(-epsilon) * (1 - FALSE_ALARMS))


def load_statement(path: Path) -> Statement:
    """Return the statement in ``statement.json``. ConfigError if it cannot be read."""
    try:
        return Statement.from_json(read_json(path))
    except Exception:  # an untrusted file fails in many ways
        raise ConfigError(
            f"{path.name} cannot be read: it is damaged or is not a privacy statement.",
            "Restore it: `understudy show` prints the statement in the Release.",
        ) from None
