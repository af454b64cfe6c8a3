"""SecPE, before a private record is read: how records are drawn, how much noise the sums get, and what that buys.

    clusters     per label and public cluster: noisy size and noisy residual sum over drawn records
                 (clusters-1 .. clusters-T where several fresh releases are asked for)

With private incidence all of it follows from the declared rate rho and the declared cap m. With public incidence it is
a function of the incidence file: weights by linear program, from them each record's rate, from these each secret's
Poisson-binomial.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ConfigError, PrivacyError
from understudy.evolution.loop import candidates_per_round, require_few
from understudy.methods.base import PublicFacts
from understudy.methods.sec_pe.clusters import GRID
from understudy.methods.sec_pe.parameters import SecPEParameters
from understudy.methods.sec_pe.stricter import Stricter
from understudy.privacy.events import Inclusion, MixtureEvent
from understudy.privacy.mechanisms import LARGEST_SCALE, SMALLEST_SIGMA, require_releasable
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.secrets.budget import SecretBudget
from understudy.privacy.secrets.composition import calibrate
from understudy.privacy.secrets.weights import grouped_inclusion, inclusion_probabilities, largest_weights
from understudy.privacy.unit import Unit

if TYPE_CHECKING:
    from scipy.sparse import csr_array

NAME = "sec-pe"
INCIDENCE_SHA256, STRICTER = "incidence_sha256", "stricter"
_ONE_THAT_IS_DRAWN: tuple[Inclusion, ...] = (((1.0, 1),),)
"""A rare record would need hardly any noise: the few that are drawn could be given away. So whoever is drawn keeps to
(p, r) by itself."""


@dataclass(frozen=True)
class Drawing:
    """How records are drawn.

    Args:
        rates: the rate of every record, or ``Float64[n]``, one a record in the corpus's order.
        inclusion: what that means for each secret.
        free: ``Bool[n]``: which records hold no secret, where that is public.
        sha256: of the incidence, where that is public.
    """

    rates: float | NDArray[np.float64]
    inclusion: tuple[Inclusion, ...]
    free: NDArray[np.bool_] | None = None
    sha256: str | None = None


def release_names(parameters: SecPEParameters) -> list[str]:
    """The charges, in order."""
    if parameters.releases == 1:
        return ["clusters"]
    return [f"clusters-{number + 1}" for number in range(parameters.releases)]


def private_drawing(parameters: SecPEParameters, unit: Unit) -> Drawing:
    """One rate for all records; at most m of them hold one secret, so K ~ Binomial(m, rho) dominates."""
    rate = float(parameters.inclusion)
    return Drawing(rate, (((rate, unit.max_records),),))


def public_drawing(
    parameters: SecPEParameters, incidence: csr_array, free: NDArray[np.bool_], unit: Unit, *, sha256: str
) -> Drawing:
    """Each record's rate by linear program: the largest weights with at most ``secret_weight`` on any one secret.

    Args:
        incidence: ``Float64[records, secrets]``, 0/1.
        free: ``Bool[records]``: which records hold no secret.
        sha256: of the incidence.

    Raises:
        ConfigError: if a secret is in more records than declared, or no secret is in any.
    """
    most = int(incidence.sum(axis=0).max()) if incidence.shape[1] else 0
    if most == 0:
        raise ConfigError("The incidence file holds no secret.", "Make it with the detectors or files that find some.")
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
    weights = largest_weights(incidence, np.full(incidence.shape[1], parameters.secret_weight))
    rates = inclusion_probabilities(weights, expected=parameters.expected_sample)
    return Drawing(rates, grouped_inclusion(rates, incidence), free, sha256)


def make_plan(
    parameters: SecPEParameters,
    budget: SecretBudget,
    facts: PublicFacts,
    drawing: Drawing,
    *,
    stricter: Stricter = (),
) -> Plan:
    """The plan of a release.

    Args:
        stricter: promises to some secrets beyond the one to all, by the secret's number (public incidence).

    Raises:
        ConfigError: if the unit is no secret, there are too many clusters or candidates, or the noise does not fit
            its grid.
    """
    require_few(parameters, facts.labels)
    require_releasable("clusters", facts.labels * parameters.clusters, cure="Lower clusters.")
    promises = [(budget, drawing.inclusion), *((own, (drawing.inclusion[number],)) for number, own in stricter)]
    multiplier = max(
        _noise_multiplier(promise, secrets, parameters.releases)
        for promise, held in promises
        for secrets in (held, _ONE_THAT_IS_DRAWN)
    )
    if not SMALLEST_SIGMA <= multiplier * GRID <= LARGEST_SCALE:
        raise ConfigError(
            "This secret budget is out of range: its noise does not fit the integer grid.",
            "Choose a prior and a posterior that are nearer to each other, or further apart.",
        )
    event = MixtureEvent(multiplier, drawing.inclusion)
    known = {
        "noise": "gaussian",
        "noise_multiplier": multiplier,
        "incidence": parameters.incidence,
        **({} if drawing.sha256 is None else {INCIDENCE_SHA256: drawing.sha256}),
        **({STRICTER: [[number, *own.to_json().values()] for number, own in stricter]} if stricter else {}),
    }
    why = f"noisy sizes and centres of {parameters.clusters} public clusters for each of {facts.labels} label(s)"
    charges = tuple(Charge(name, event, known, why) for name in release_names(parameters))
    try:
        return Plan(NAME, facts.unit, budget, charges, _forecast(parameters, budget, facts, drawing, multiplier))
    except PrivacyError as error:
        raise ConfigError(f"This budget cannot be planned for. {error.problem}", error.cure) from None


def promised(plan: Plan) -> Stricter:
    """The stricter promises that a plan was made for."""
    return [
        (int(number), SecretBudget.from_json({"prior": prior, "posterior": posterior}))
        for number, prior, posterior in plan.charges[0].parameters.get(STRICTER, ())
    ]


def require_planned(sha256: str | None, plan: Plan) -> None:
    """See that the incidence is the one that was planned with.

    Raises:
        ConfigError: if its file changed since.
    """
    if sha256 != plan.charges[0].parameters.get(INCIDENCE_SHA256):
        raise ConfigError(
            "The incidence file changed while the run was reading it.", "Put the one back that the run began with."
        )


@lru_cache(maxsize=1024)
def _noise_multiplier(budget: SecretBudget, inclusion: tuple[Inclusion, ...], releases: int) -> float:
    """A run is planned more than once, and several releases take seconds to calibrate."""
    return calibrate(budget, inclusion, releases=releases)


def _forecast(
    parameters: SecPEParameters, budget: SecretBudget, facts: PublicFacts, drawing: Drawing, multiplier: float
) -> dict[str, Any]:
    """Noise against signal, beside Aug-PE's for the same secrets: all of a secret's m records, in every round."""
    releases = parameters.releases
    noise = multiplier / math.sqrt(parameters.size_share) / math.sqrt(releases)
    candidates = max(candidates_per_round(parameters, facts.labels).candidates)
    other = facts.unit.max_records * math.sqrt(parameters.rounds) / budget.mu
    forecast: dict[str, Any] = {
        "noise on the size of a cluster (std, records)": noise,
        "aug-pe, for the same secrets: noise on the votes of a candidate (std, votes)": other,
    }
    if isinstance(drawing.rates, float):
        if facts.expected_records is None:
            return forecast
        known, records, drawn = "as declared", facts.expected_records, drawing.rates * facts.expected_records
    else:
        known, records, drawn = "of the incidence file", len(drawing.rates), float(drawing.rates.sum())
    gain = (drawn / noise) / (records / other)
    return {
        **forecast,
        f"records ({known})": records,
        "records drawn (expected)": drawn,
        "signal / noise of a cluster of mean size": drawn / (parameters.clusters * facts.labels) / noise,
        "aug-pe, for the same secrets: signal / noise of a candidate with the mean number of votes": (
            records / candidates / other
        ),
        "sec-pe's signal / noise over aug-pe's, at equal numbers of clusters and candidates": gain,
    }
