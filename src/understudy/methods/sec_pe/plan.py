"""SecPE, before a private record is read: how records are sampled, and how much noise the sums get.

    clusters     per label and public cluster: noisy size and noisy residual sum over sampled records
                 (clusters-1 .. clusters-T where several fresh releases are asked for)

With private incidence, everything follows from the declared rate rho and the declared cap m. With public incidence, it
is a function of the incidence file: a linear program gives the weights, these give each record's rate, and the rates
give each secret's Poisson-binomial.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from understudy.base.display import plural
from understudy.base.errors import ConfigError, PrivacyError
from understudy.base.files import UnreadableText, cannot_read, read_lines
from understudy.base.parameters import Parameters, public_file
from understudy.methods.facts import PublicFacts
from understudy.methods.shared.evolution.parameters import EvolvingParameters, candidates_per_round
from understudy.methods.shared.evolution.variation import keywords_of_labels
from understudy.methods.shared.evolution.voting import Distance
from understudy.privacy.events import Inclusion
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import SecretBudget
from understudy.privacy.mechanisms import SampledSum, Sensitivity, Shape
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.secrets.composition import calibrate
from understudy.privacy.unit import Unit
from understudy.privacy.verdict import CLEAR, Verdict
from understudy.text.prompts.evolving import EvolutionPrompts

if TYPE_CHECKING:
    from scipy.sparse import csr_array


_OF_INCIDENCE = {
    "private": ("inclusion",),
    "public": ("incidence_file", "secret_budgets", "records_without_secrets_are_public"),
}


class FreeParameters(EvolvingParameters):
    """How texts evolve against the released centres: post-processing, free; may change at every ``generate``."""

    distance: Distance = "centred"
    """How a centre's nearest candidate is found: ``centred`` (cosine about the mean of a label's candidates),
    ``cosine`` or ``l2``."""


class ReleaseParameters(Parameters):
    """What SecPE releases, and from which public texts its clusters come."""

    incidence: Literal["private", "public"] = "private"
    """Whether the public knows which record contains which secret. ``private``: that is protected too."""
    incidence_file: str | None = public_file(None)
    """Public incidence: the file made by ``understudy secrets incidence``. Giving it declares it public."""
    inclusion: float = Field(1.0, gt=0, le=1)
    """Private incidence: probability with which each record is sampled (rho). Less than 1 never helps."""
    secret_budgets: str | None = public_file(None)
    """A CSV file ``number,prior,posterior`` with stricter promises for some secrets; public incidence only."""
    releases: int = Field(1, ge=1, le=100)
    """Fresh releases of the same sums, which are averaged. More than one helps only if ``inclusion`` is below 1."""
    public_corpus: str | None = public_file(None)
    """A public table of similar texts. The private records are counted in its clusters."""
    public_corpus_is_public: bool = False
    """Confirms that the public corpus was not made from private data."""
    public_text: str = "text"
    """The public corpus's text column."""
    public_label: str | None = None
    """The public corpus's label column, with the same labels. Default: one set of clusters for all labels."""
    records_without_secrets_are_public: bool = False
    """Public incidence: use the records without secrets as the public corpus. They get no protection at all."""
    clusters: int = Field(100, ge=1, le=1_000_000)
    """Clusters of each label (K)."""


class SecPEParameters(ReleaseParameters, FreeParameters):
    """All parameters of SecPE."""

    @model_validator(mode="after")
    def _incidence_fits(self) -> Self:
        if self.incidence == "public" and self.incidence_file is None:
            raise ValueError("public incidence needs an incidence_file")
        other = "public" if self.incidence == "private" else "private"
        for name in _OF_INCIDENCE[other]:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} belongs to {other} incidence")
        return self

    @model_validator(mode="after")
    def _one_public_corpus(self) -> Self:
        if self.records_without_secrets_are_public and self.public_corpus is not None:
            raise ValueError("there are two public corpora: a file, and the records without secrets")
        if self.public_label is not None and self.public_corpus is None:
            raise ValueError("public_label is a column of the public corpus, and there is none")
        if self.public_corpus is not None and not self.public_corpus_is_public:
            raise ValueError(
                "a public corpus must not be made from the private data; if it is public, set public_corpus_is_public"
            )
        return self


NAME = "sec-pe"
RESIDUAL_CLIP = 1.0
"""Embeddings are clipped to this distance from their centre (C); unit vectors are at most 2 apart."""
SIZE_SHARE = 0.8
"""Share of a record's squared norm that the sizes get (s); the centres get the rest."""
GRID = 1 << 24
_ONE_THAT_IS_SAMPLED: tuple[Inclusion, ...] = (((1.0, 1),),)
"""A rarely sampled record would need hardly any noise, which could expose the few that are sampled. So each sampled
record keeps to (p, r) by itself."""
_COLUMNS = ("number", "prior", "posterior")


@dataclass(frozen=True)
class ClusterSumsSpec:
    """For each label and cluster, a size and a sum of residuals. A record's vector of both has L2 norm at most 1."""

    labels: int
    clusters: int

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(None, GRID, GRID)

    @property
    def shape(self) -> Shape:
        return (self.labels, self.clusters, None)


PerSecretBudgets = Sequence[tuple[int, SecretBudget]]
"""Maps secrets, by their numbers in the incidence file, to stricter promises than the promise to all secrets."""


@dataclass(frozen=True)
class SamplingRates:
    """The rates at which records are sampled.

    Args:
        rates: the rate of every record, or ``Float64[n]``, one per record in the corpus's order.
    """

    rates: float | NDArray[np.float64]
    inclusion: tuple[Inclusion, ...]  # the resulting rates for each secret
    free: NDArray[np.bool_] | None = None  # ``Bool[n]``: which records contain no secret, if that is public
    sha256: str | None = None  # of the incidence, if that is public


def release_names(parameters: SecPEParameters) -> list[str]:
    """Return the names of the charges, in order."""
    if parameters.releases == 1:
        return ["clusters"]
    return [f"clusters-{number + 1}" for number in range(parameters.releases)]


def private_rates(parameters: SecPEParameters, unit: Unit) -> SamplingRates:
    """Return the same sampling rate rho for all records. At most m records contain a given secret, so the number of
    those that are sampled is at most Binomial(m, rho)."""
    rate = float(parameters.inclusion)
    return SamplingRates(rate, (((rate, unit.max_records),),))


def public_rates(
    parameters: SecPEParameters, incidence: csr_array, free: NDArray[np.bool_], unit: Unit, *, sha256: str
) -> SamplingRates:
    """Compute each record's sampling rate from weights by linear program: the largest ones such that the records of
    each secret weigh at most 1 together.

    ``incidence`` is ``Float64[records, secrets]`` of 0 and 1; ``free`` is defined in :class:`SamplingRates`.

    Raises ConfigError if a secret is in more records than declared, or no secret is in any.
    """
    most = int(incidence.sum(axis=0).max()) if incidence.shape[1] else 0
    if most == 0:
        raise ConfigError(
            "The incidence file contains no secret.",
            "Make it again with `understudy secrets incidence`, with detectors or files that find secrets.",
        )
    if most > unit.max_records:
        raise ConfigError(
            "A secret of the incidence file is in more records than declared.",
            "Declare more with --max-records-per-secret.",
        )
    if parameters.records_without_secrets_are_public and int(free.sum()) < parameters.clusters:
        raise ConfigError(
            f"There are {int(free.sum())} records without secrets, fewer than the {parameters.clusters} clusters.",
            "Lower clusters, or give a public corpus.",
        )
    rates = inclusion_probabilities(largest_weights(incidence))
    return SamplingRates(rates, grouped_inclusion(rates, incidence), free, sha256)


def make_plan(
    parameters: SecPEParameters,
    budget: SecretBudget,
    facts: PublicFacts,
    sampling: SamplingRates,
    *,
    per_secret: PerSecretBudgets = (),
) -> Plan:
    """Return the plan of a release; ``per_secret``: stricter promises to some secrets (public incidence)."""
    keywords_of_labels(parameters, EvolutionPrompts(), ())  # a file that cannot be read is known before any charge
    labels = facts.labels.size
    candidates = candidates_per_round(parameters, labels)
    promises = [(budget, sampling.inclusion), *((own, (sampling.inclusion[number],)) for number, own in per_secret)]
    multiplier = max(
        _noise_multiplier(promise, secrets, parameters.releases)
        for promise, held in promises
        for secrets in (held, _ONE_THAT_IS_SAMPLED)
    )
    query = ClusterSumsSpec(labels, parameters.clusters)
    mechanism = SampledSum(multiplier, sampling.inclusion, query.sensitivity, query.shape, sampling.sha256)
    why = f"noisy sizes and centres of {parameters.clusters} public clusters for each of {plural(labels, 'label')}"
    charges = tuple(Charge(name, mechanism, why, query) for name in release_names(parameters))
    forecast = _forecast(parameters, budget, facts, sampling, multiplier, candidates)
    try:
        return Plan(NAME, facts.unit, budget, charges, forecast, _in_words(per_secret))
    except PrivacyError as error:
        raise ConfigError(f"No release can be planned with this budget. {error.problem}", error.cure) from None


@lru_cache(maxsize=1024)
def _noise_multiplier(budget: SecretBudget, inclusion: tuple[Inclusion, ...], releases: int) -> float:
    """Return the noise multiplier. Cached, because a run is planned more than once and calibration takes seconds."""
    return calibrate(budget, inclusion, releases=releases)


def _forecast(
    parameters: SecPEParameters,
    budget: SecretBudget,
    facts: PublicFacts,
    sampling: SamplingRates,
    multiplier: float,
    candidates: int,
) -> Facts:
    """Return the signal to noise, and for comparison that of Aug-PE, where all m records of a secret vote in every
    round."""
    labels = facts.labels.size
    noise = multiplier / math.sqrt(SIZE_SHARE) / math.sqrt(parameters.releases)
    other = facts.unit.max_records * math.sqrt(parameters.rounds) / budget.mu
    same = "aug-pe, for the same secrets"
    entries = [
        Fact("size_noise", noise, "noise on the size of a cluster (std, records)"),
        Fact("aug_pe_vote_noise", other, f"{same}: noise on the votes for a candidate (std, votes)"),
    ]
    if isinstance(sampling.rates, float):
        if facts.expected_records is None:
            return Facts(tuple(entries), verdict=verdict(noise / sampling.rates, labels, None))
        known, records, sampled = "as declared", facts.expected_records, sampling.rates * facts.expected_records
    else:
        known, records, sampled = "of the incidence file", len(sampling.rates), float(sampling.rates.sum())
    mean_size = sampled / (parameters.clusters * labels)
    entries += [
        Fact("expected_records", records, f"records ({known})"),
        Fact("expected_sample", sampled, "records sampled (expected)"),
        Fact("signal_to_noise", mean_size / noise, "signal to noise of a cluster of mean size"),
        Fact("aug_pe_signal_to_noise", records / candidates / other, f"{same}: {_MEAN_CANDIDATE}"),
        Fact("gain_over_aug_pe", (sampled / noise) / (records / other), _GAIN),
    ]
    return Facts(tuple(entries), verdict=verdict(noise * records / max(sampled, 1e-9), labels, records))


def verdict(noise: float, labels: int, records: float | None) -> Verdict:
    """Return the verdict, by how many of a label's texts a cluster needs so that its size exceeds the ``noise`` on
    it."""
    return Verdict.of("topics", texts=CLEAR * noise, labels=labels, records=records)


_MEAN_CANDIDATE = "signal to noise of a candidate with the mean number of votes"
_GAIN = "sec-pe's signal to noise over aug-pe's, at equal numbers of clusters and candidates"


def read_per_secret_budgets(file: str | None, secrets: int) -> PerSecretBudgets:
    """Read the promises of a public CSV file ``number,prior,posterior``; empty without a file. Raises ConfigError if it
    cannot be read, names a secret beyond the incidence file's ``secrets``, or names one twice."""
    if file is None:
        return []
    name = Path(file).name
    try:
        rows = list(csv.DictReader(read_lines(Path(file))))
        found = [(_number(row["number"]), SecretBudget(row["prior"], row["posterior"])) for row in rows]
    except (csv.Error, KeyError, TypeError, ValueError, UnreadableText) as error:
        cure = f"Give a CSV file with the columns {', '.join(_COLUMNS)}."
        raise cannot_read(f"The secret budgets {name}", error, cure) from None
    numbers = [number for number, _ in found]
    if len(set(numbers)) < len(numbers) or not all(0 <= number < secrets for number in numbers):
        raise ConfigError(
            f"The file of secret budgets {name} lists a secret twice, or one that the incidence file does not have.",
            "Give each secret's number, as in the incidence file, at most once.",
        )
    return found


def _number(text: str) -> int:
    """Parse a secret's number: ASCII digits, and not thousands of them."""
    if not re.fullmatch("[0-9]{1,12}", text.strip()):
        raise ValueError
    return int(text)


def _in_words(per_secret: PerSecretBudgets) -> tuple[str, ...]:
    """Return a sentence per promise for the statement, with the secrets by number."""
    by_promise: dict[SecretBudget, list[int]] = {}
    for number, own in per_secret:
        by_promise.setdefault(own, []).append(number)
    return tuple(
        f"{own} also holds for each of these secrets, by their numbers in the incidence file: "
        f"{', '.join(map(str, sorted(numbers)))}."
        for own, numbers in by_promise.items()
    )


_DIGITS = 4  # of a rate


def largest_weights(incidence: csr_array) -> NDArray[np.float64]:
    """Return the weights of records with the largest sum such that no secret's records weigh more than 1 together.

    Maximise sum_i w_i, subject to sum over the records i that contain secret j of w_i <= 1, and 0 <= w_i <= 1.
    ``incidence`` is ``[n, secrets]``, sparse: record i contains secret j where it is not 0.

    Returns:
        ``Float64[n]``. Records with the same secrets have the same weight, records without secrets have 1. The sum
        of a secret exceeds 1 by no more than rounding in doubles.

    Raises ConfigError if the solver gives up.
    """
    from scipy.optimize import linprog

    weights, held = np.ones(incidence.shape[0]), _in_order(incidence)
    if not held.nnz:
        return weights
    kind_of, first = _kinds(held)
    records = np.bincount(kind_of[kind_of >= 0]).astype(np.float64)
    kinds, bounds = held[first], np.column_stack([np.zeros(len(first)), records])
    # interior points: the dual simplex takes ten times as long if records contain ten secrets
    most = np.ones(incidence.shape[1])
    solved = linprog(-np.ones(len(first)), A_ub=kinds.T, b_ub=most, bounds=bounds, method="highs-ipm")
    if not solved.success:
        raise ConfigError("The linear program of the weights was not solved.", "Use a smaller incidence file.")
    totals = np.clip(solved.x, 0, records)
    shrink = 1 / np.maximum(kinds.T @ totals, 1)  # the solver is exact up to 1e-7
    totals *= np.minimum.reduceat(shrink[kinds.indices], kinds.indptr[:-1])
    weights[kind_of >= 0] = (totals / records)[kind_of[kind_of >= 0]]
    return weights


def inclusion_probabilities(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each record's sampling rate rho_i = min(1, V w_i / sum w).

    V is sum(w) / max(w), so that the heaviest records are always sampled. (The printed 1 / max(w) samples about one
    record of the whole corpus.)
    """
    most = float(np.max(weights, initial=0)) or 1.0
    return np.asarray(np.minimum(1, weights * (1 / most)), dtype=np.float64)


def grouped_inclusion(rates: NDArray[np.float64], incidence: csr_array) -> tuple[Inclusion, ...]:
    """Return, for each secret, the sampling rates of its records, as
    :class:`~understudy.privacy.events.MixtureEvent` takes them.

    Rates are rounded up to 4 digits, so that equal ones can be counted: a higher rate only makes the neighbours easier
    to distinguish, so the stated cost is never too small. The result is in the order of the columns, with an empty
    entry for a secret that cannot be sampled.
    """
    by_secret = _in_order(incidence).tocsc()
    different, which = np.unique(np.asarray(rates, dtype=np.float64), return_inverse=True)
    up = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    rounded = np.array([float(up.create_decimal(repr(float(rate)))) for rate in different])[which]
    groups = []
    for start, end in zip(by_secret.indptr[:-1], by_secret.indptr[1:], strict=True):
        drawn = rounded[by_secret.indices[start:end]]
        found, counts = np.unique(drawn[drawn > 0], return_counts=True)
        groups.append(tuple((float(r), int(c)) for r, c in zip(found[::-1], counts[::-1], strict=True)))
    return tuple(groups)


def _in_order(incidence: csr_array) -> csr_array:
    """Return a copy by rows, each pair once, in the order of the columns."""
    from scipy.sparse import csr_array

    held = csr_array(incidence, copy=True)
    held.sum_duplicates()
    held.eliminate_zeros()
    held.data = np.ones(held.nnz)
    return held


def _kinds(held: csr_array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group records with the same secrets, at least one. Return each record's group or -1, and each group's first
    record."""
    kinds: dict[bytes, int] = {}
    kind_of, first = np.full(held.shape[0], -1), []
    for record in np.flatnonzero(np.diff(held.indptr)):
        key = held.indices[held.indptr[record] : held.indptr[record + 1]].tobytes()
        if key not in kinds:
            kinds[key] = len(kinds)
            first.append(record)
        kind_of[record] = kinds[key]
    return kind_of, np.array(first)
