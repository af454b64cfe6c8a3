"""The statement: nothing rounded down, nothing promised where nothing holds, the same after a round trip."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.privacy.accountant import Composition, gaussian_split, pure_split
from understudy.privacy.events import Event, GaussianEvent, PureEvent
from understudy.privacy.guarantee import GDP, Budget
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.unit import Unit
from understudy.statement import NOT_PRIVATE, Statement
from understudy.statement.epsilon import DELTAS, NOT_COVERED
from understudy.statement.rounding import round_up

PUBLIC = {"vocabulary": {"source": "built-in", "sha256": "ab" * 32}, "prompt": {"source": "general"}}


def statement(*events: Event, budget: Budget, private: bool = True, **options: Any) -> Statement:
    charges = tuple(
        Charge(f"release {number}", event, {"noise_multiplier": 1.25}, "noisy counts")
        for number, event in enumerate(events)
    )
    return Statement.of(
        Plan("dp-kps", options.pop("unit", Unit()), budget, charges),
        public_inputs=PUBLIC,
        labels_declared=options.pop("labels_declared", True),
        dataset="clinic",
        private=private,
        **options,
    )


def gaussian(epsilon: float = 6, delta: str = "1e-6", **options: Any) -> Statement:
    budget = Budget(epsilon, delta)
    return statement(*map(GaussianEvent, gaussian_split(budget, [1, 4])), budget=budget, **options)


def laplace(epsilon: float = 3, **options: Any) -> Statement:
    budget = Budget(epsilon, 0)
    return statement(*map(PureEvent, pure_split(budget, [1, 4])), budget=budget, **options)


@pytest.mark.parametrize(
    "made",
    [
        gaussian(),
        laplace(),
        gaussian(private=False),
        gaussian(unit=Unit("owner", 5), labels_declared=False, notes=("One.", "Two.")),
    ],
)
def test_a_statement_survives_json(made: Statement) -> None:
    again = Statement.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made
    assert again.to_json() == made.to_json()
    assert again.to_markdown() == made.to_markdown()


def test_epsilon_is_stated_at_the_booked_delta_and_at_several_others() -> None:
    made = gaussian(6, "3e-7")
    assert sorted(made.epsilon_at) == sorted([*DELTAS, 3e-7])
    assert made.epsilon_at[3e-7] <= 6
    assert made.epsilon_at[3e-7] == pytest.approx(6, rel=1e-6)
    mu = math.sqrt(sum(2 * charge.event.rho for charge in made.charges))
    for delta, epsilon in made.epsilon_at.items():
        assert epsilon == pytest.approx(GDP(mu).epsilon(delta), rel=1e-6)
        assert epsilon >= GDP(mu).epsilon(delta)
        assert f"| {delta:g} | {round_up(epsilon)} |" in made.to_markdown()
    assert list(made.epsilon_at.values()) == sorted(made.epsilon_at.values())


def test_a_pure_statement_has_one_epsilon_at_every_delta_0_included() -> None:
    made = laplace(3)
    pure = Composition(tuple(charge.event for charge in made.charges)).pure_epsilon
    assert made.epsilon_at[0.0] == pure <= 3
    assert max(made.epsilon_at.values()) <= pure
    assert "(3, 0)-differential privacy" in made.to_markdown()
    assert ", plus" not in made.to_markdown()


@given(st.floats(1e-9, 1e12))
def test_a_rounded_epsilon_is_never_less_than_the_value(epsilon: float) -> None:
    assert epsilon <= float(round_up(epsilon)) <= epsilon * 1.0011


@pytest.mark.parametrize(
    ("epsilon", "text"), [(0, "0"), (0.1, "0.1"), (6, "6"), (5.99991, "6"), (1.00001, "1.001"), (12345.6, "12350")]
)
def test_a_rounded_epsilon_has_four_digits(epsilon: float, text: str) -> None:
    assert round_up(epsilon) == text


@pytest.mark.parametrize(("epsilon", "odds"), [(1, "2.719"), (6, "403.5"), (100, "2.689e+43"), (800, "e^800")])
def test_the_promise_names_the_odds_and_never_understates_them(epsilon: float, odds: str) -> None:
    made = laplace(epsilon)
    assert (
        f"is at most {odds} times that without the unit; and without the unit at most {odds} times that with it: ("
        in (made.to_markdown())
    )


def test_a_run_without_noise_is_stamped_and_promises_nothing() -> None:
    made = gaussian(private=False)
    text = made.to_markdown()
    assert f"**{NOT_PRIVATE}.**" in text
    assert text.index(NOT_PRIVATE) < text.index("epsilon")
    for promise in ("Protected:", "times that without the unit", "-differential privacy", "Booked in the ledger"):
        assert promise in gaussian().to_markdown()
        assert promise not in text
    assert made.to_json()["stamp"] == NOT_PRIVATE
    assert made.to_json()["private"] is False
    assert gaussian().to_json()["stamp"] == ""
    assert NOT_PRIVATE not in gaussian().to_markdown()


def test_the_statement_for_people_says_what_was_protected_released_public_and_not_covered() -> None:
    text = gaussian(unit=Unit("owner", 5), notes=("A remark.",)).to_markdown()
    assert "one owner: all of its records, of which at most 5 are used" in text
    assert "**release 0**: noisy counts (Gaussian noise, noise multiplier" in text
    assert "dataset `clinic`: (epsilon=6, delta=1e-06)" in text
    assert f"- vocabulary: built-in (SHA-256 `{'ab' * 32}`)" in text
    assert "- prompt: general\n" in text
    assert "- label set: declared\n" in text
    assert "- A remark." in text
    for item in NOT_COVERED:
        assert item in text


def test_a_label_set_read_from_the_data_is_said_to_be_unprotected() -> None:
    made = gaussian(labels_declared=False)
    assert "read from the data: not protected" in made.to_markdown()
    assert made.to_json()["label_set"] == "read from the data, not protected"


def test_the_statement_for_machines_is_plain_json_without_infinities() -> None:
    for made in (gaussian(), laplace(), gaussian(0.01, "1e-12")):
        json.dumps(made.to_json(), allow_nan=False)


def test_a_statement_written_before_secrets_were_known_is_still_read() -> None:
    made = gaussian()
    fields = made.to_json()
    assert fields.pop("posterior_at") == []
    assert Statement.from_json(fields) == made
