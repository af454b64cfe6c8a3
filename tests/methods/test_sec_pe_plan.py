"""What sec-pe plans before a private record is read: rates, noise, and the comparison with aug-pe, by hand."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

import understudy as us
from understudy.base.errors import ConfigError
from understudy.methods.facts import PublicFacts
from understudy.methods.sec_pe.plan import SamplingRates, make_plan, public_rates
from understudy.privacy.events import MixtureEvent
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.secrets.composition import calibrate, posterior
from understudy.privacy.unit import Unit
from understudy.schema.labels import LabelSet

BUDGET = us.SecretBudget("1e-4", "1e-3")
MU = 0.628783
PUBLIC = {"public_corpus": "p.csv", "public_corpus_is_public": True}


def method(**parameters: Any) -> us.SecPE:
    return us.SecPE(**PUBLIC, **parameters)


def plan(*, records: int = 5, expected: int | None = None, labels: int = 1, **parameters: Any) -> Plan:
    names = LabelSet(("a", "b") if labels == 2 else ())
    return method(**parameters).plan(BUDGET, PublicFacts(Unit("secret", records), names, expected))


def multiplier(made: Plan) -> float:
    (event,) = {charge.event for charge in made.charges}
    assert isinstance(event, MixtureEvent)
    return event.noise_multiplier


# -- noise ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("records", "rate", "noise"), [(1, 1.0, 1.59037), (5, 1.0, 7.95185), (80, 0.05, 7.68717)])
def test_the_noise_of_one_release_is_that_of_the_design(records: int, rate: float, noise: float) -> None:
    made = plan(records=records, inclusion=rate)
    assert multiplier(made) == pytest.approx(noise, abs=5e-5)
    assert [charge.name for charge in made.charges] == ["clusters"]
    assert made.charges[0].event == MixtureEvent(multiplier(made), (((rate, records),),))
    assert made.total == pytest.approx(1e-3, rel=1e-6)
    assert made.total <= 1e-3
    assert Charge.from_json(json.loads(json.dumps(made.charges[0].to_json()))) == made.charges[0]


@pytest.mark.parametrize("rate", [0.001, 0.3])
def test_a_rare_record_that_is_drawn_keeps_to_the_posterior_by_itself(rate: float) -> None:
    """The bound alone would let it be given away, as it is hardly ever drawn."""
    assert calibrate(BUDGET, [((rate, 1),)]) < 1 / MU
    assert multiplier(plan(records=1, inclusion=rate)) == pytest.approx(1.59037, abs=1e-5)
    several = plan(records=1, inclusion=rate, releases=2)
    assert multiplier(several) == pytest.approx(math.sqrt(2) * 1.59037, abs=1e-4)
    assert posterior([MixtureEvent(multiplier(several), (((1.0, 1),),))] * 2, 1e-4) <= 1e-3


def test_several_releases_have_the_noise_of_their_composition() -> None:
    made = plan(records=80, inclusion=0.05, releases=10)
    assert multiplier(made) == pytest.approx(20.5854, abs=1e-3)
    assert [charge.name for charge in made.charges] == [f"clusters-{number}" for number in range(1, 11)]
    assert made.forecast[OURS] < plan(records=80, inclusion=0.05).forecast[OURS]  # though no more than drawing all
    assert made.total <= 1e-3


# -- public incidence -------------------------------------------------------------------------------------------------


def held(*records: tuple[int, ...], secrets: int) -> tuple[csr_array, NDArray[np.bool_]]:
    matrix = np.array([[float(secret in record) for secret in range(secrets)] for record in records])
    return csr_array(matrix), np.array([not record for record in records])


def drawing(*records: tuple[int, ...], secrets: int, cap: int = 5, **parameters: Any) -> SamplingRates:
    chosen = method(incidence="public", incidence_file="i.parquet", **parameters)
    return public_rates(chosen, *held(*records, secrets=secrets), Unit("secret", cap), sha256="0" * 64)


def test_rates_follow_from_the_incidence_by_linear_program() -> None:
    """Two records of one secret, one of another, one of both, one of none: the last is always drawn."""
    found = drawing((0,), (0,), (1,), (0, 1), (), secrets=2)
    assert found.rates == pytest.approx([0.5, 0.5, 1, 0, 1])
    assert found.inclusion == (((0.5, 2),), ((1.0, 1),))
    assert found.free is not None
    assert found.free.tolist() == [False] * 4 + [True]


def test_an_incidence_that_does_not_fit_what_is_declared_is_refused() -> None:
    with pytest.raises(ConfigError, match="more records than declared"):
        drawing((0,), (0,), (0,), secrets=1, cap=2)
    for records, secrets in (((), ()), 0), (((), ()), 2):
        with pytest.raises(ConfigError, match="contains no secret"):
            drawing(*records, secrets=secrets)


def test_every_secret_keeps_its_own_promise() -> None:
    found = drawing((0,), (0,), (0,), (1,), (), secrets=2)
    facts = PublicFacts(Unit("secret", 3))
    chosen = method(incidence="public", incidence_file="i.parquet")
    plain = multiplier(make_plan(chosen, BUDGET, facts, found))
    strict, loose = us.SecretBudget("1e-4", "2e-4"), us.SecretBudget("1e-3", "0.5")
    for stricter in ([(0, strict)], [(1, strict)], [(0, strict), (1, loose)]):
        made = make_plan(chosen, BUDGET, facts, found, per_secret=stricter)
        assert multiplier(made) > 2 * plain
        for number, own in stricter:
            event = MixtureEvent(multiplier(made), (found.inclusion[number],))
            assert posterior([event], own.prior) <= own.posterior
    assert multiplier(make_plan(chosen, BUDGET, facts, found, per_secret=[(1, loose)])) == plain


# -- the comparison ---------------------------------------------------------------------------------------------------

OURS, THEIRS = "size_noise", "aug_pe_vote_noise"
OUR_SIGNAL, THEIR_SIGNAL, GAIN = "signal_to_noise", "aug_pe_signal_to_noise", "gain_over_aug_pe"


def test_the_forecast_compares_noise_and_signal_with_aug_pe() -> None:
    made = plan(records=5, expected=20_000, labels=2, rounds=10, clusters=50, population=100, variations=7).forecast
    ours, theirs = 5 / MU / math.sqrt(0.8), 5 * math.sqrt(10) / MU
    assert made[OURS] == pytest.approx(ours, rel=1e-5)
    assert made[THEIRS] == pytest.approx(theirs, rel=1e-5)
    assert made["expected_records"] == made["expected_sample"] == 20_000
    assert "records (as declared): 20000" in made.lines()
    assert made[OUR_SIGNAL] == pytest.approx(20_000 / 100 / ours, rel=1e-5)
    assert made[THEIR_SIGNAL] == pytest.approx(20_000 / 1_400 / theirs, rel=1e-5)
    assert made[GAIN] == pytest.approx(math.sqrt(10 * 0.8), rel=1e-5)


def test_with_public_incidence_the_size_is_that_of_the_file() -> None:
    """Where most records hold no secret, secret protection helps most."""
    found = drawing(*[(0,)] * 5, *[()] * 95, secrets=1)
    facts = PublicFacts(Unit("secret", 5))
    made = make_plan(method(incidence="public", incidence_file="i"), BUDGET, facts, found).forecast
    noise = calibrate(BUDGET, [((0.2, 5),)]) / math.sqrt(0.8)
    assert made["expected_records"] == 100
    assert "records (of the incidence file): 100" in made.lines()
    assert made["expected_sample"] == pytest.approx(96)
    assert made[OURS] == pytest.approx(noise, rel=1e-6)
    assert made[GAIN] == pytest.approx(96 / noise / (100 / (5 * math.sqrt(10) / MU)), rel=1e-5)
    assert made[GAIN] > 5


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_another_unit_or_budget_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a budget for one record"):
        method().plan(BUDGET, PublicFacts(Unit("record")))
    with pytest.raises(ConfigError, match="promises secret protection"):
        method().plan(us.Budget(1, "1e-6"), PublicFacts(Unit("secret", 5)))
    with pytest.raises(ConfigError, match="a public corpus, and there is none"):
        us.SecPE().plan(BUDGET, PublicFacts(Unit("secret", 5)))


def test_a_budget_beyond_the_grid_is_refused() -> None:
    near = us.SecretBudget("0.1", "0.10000001")
    with pytest.raises(ConfigError):
        method().plan(near, PublicFacts(Unit("secret", 1000)))
