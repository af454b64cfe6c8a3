"""Numbers of budgets: exactly as typed, in ASCII digits, within a public range, and refused at once elsewhere."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.base.errors import ConfigError
from understudy.privacy.exact import as_typed, exact
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.run.settings import RunConfig, read_config

NO_NUMBERS = [
    "six", "", "nan", "inf", "-Infinity", "\u0661", "\uff11", "1_0", "0x10", "1e", "e5", ".", "1/0", "1/-3", "1 2",
    "--1", "9" * 5000, "1e999999999", "1e1234", "0." + "1" * 100, "1/" + "9" * 100, True, None, [1], float("nan"),
    float("inf"), 10**5000, 1j,
]  # fmt: skip
OUTSIDE = ["0", "-1", "1e400", "1e-400", "1e6", "100000.0000001", "9e-10", 1e-300, 10**40, "-0.0", Decimal("1e-400")]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: repr(type(value)))
def test_what_is_no_number_in_ascii_digits_is_one_error(value: object) -> None:
    of_delta = [] if value is None else [lambda: Budget(1, value)]  # type: ignore[arg-type]  # None: by the expected size
    for make in (lambda: Budget(value, "1e-6"), *of_delta, lambda: SecretBudget(value, "0.1")):  # type: ignore[arg-type]
        with pytest.raises(ConfigError) as caught:
            make()
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", OUTSIDE, ids=lambda value: f"{type(value).__name__} {str(value)[:9]}")
def test_an_epsilon_outside_the_range_is_one_error_that_names_the_range(value: object) -> None:
    with pytest.raises(ConfigError, match="Expected epsilon of 1e-09 to 100000"):
        Budget(value, "1e-6")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["1", "0.51", "1e-15", "1e-400", "-1e-6", "0.99999999999999999999"])
def test_a_delta_outside_the_range_is_one_error_that_names_the_range(value: str) -> None:
    with pytest.raises(ConfigError, match=r"Expected delta of 0, or 1e-14 to 0\.5, got"):
        Budget(1, value)


@pytest.mark.parametrize(
    ("prior", "posterior"), [("0", "0.1"), ("1e-101", "0.1"), ("0.1", "1"), ("0.1", "0.9999999999"), ("0.2", "0.2")]
)
def test_chances_of_a_secret_outside_the_range_are_one_error(prior: str, posterior: str) -> None:
    with pytest.raises(ConfigError, match="Expected secret_"):
        SecretBudget(prior, posterior)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("0.1", "1/10"),
        (0.1, "1/10"),
        (np.float32(0.1), "1/10"),
        (np.int64(3), "3"),
        (Decimal("0.1000000000000000000001"), "1000000000000000000001/10000000000000000000000"),
        (Fraction(1, 3), "1/3"),
        ("1/3", "1/3"),
        (" +3 ", "3"),
        ("1.e1", "10"),
        (".5", "1/2"),
        ("1E-6", "1/1000000"),
    ],
)
def test_a_number_is_kept_exactly_as_it_was_typed_whatever_its_type(value: object, number: str) -> None:
    assert Budget(value, 0).epsilon == Fraction(number)  # type: ignore[arg-type]
    assert RunConfig(epsilon=value, delta="0").budget == Budget(Fraction(number), 0)


def test_a_configuration_takes_no_truth_value_or_list_for_a_number() -> None:
    for value in (True, [1], {"a": 1}, 1j):
        with pytest.raises(ConfigError, match="epsilon"):
            RunConfig(epsilon=value, delta="1e-6").budget  # noqa: B018


@pytest.mark.parametrize("line", ["epsilon: " + "9" * 5000, "epsilon: 2020-99-99", "[" * 20_000])
def test_a_configuration_whose_values_cannot_be_read_is_one_error(tmp_path: Path, line: str) -> None:
    (tmp_path / "run.yaml").write_text(line, "utf-8")
    with pytest.raises(ConfigError, match="Cannot read the configuration"):
        read_config(tmp_path / "run.yaml")


@given(st.fractions(min_value=Fraction("1e-9"), max_value=10_000))
def test_a_stored_number_is_read_back_as_it_was(number: Fraction) -> None:
    assert exact(str(number)) == number
    assert Budget.from_json({"epsilon": str(number), "delta": "0"}).epsilon == number


def test_a_stored_number_outside_the_range_of_today_can_still_be_read() -> None:
    old = Budget.from_json({"epsilon": "1/" + "1" + "0" * 400, "delta": "1e-30"})
    assert old.epsilon == Fraction("1e-400")
    assert str(old) == "(epsilon=1e-400, delta=1e-30)"
    for text in ("1e999999999", "", "1/0", "-", "9" * 2001, None, 3):
        with pytest.raises(ValueError, match="not spell a number"):
            exact(text)  # type: ignore[arg-type]


@given(st.decimals(min_value="1e-14", max_value=10_000, allow_nan=False, places=14))
def test_a_number_is_shown_in_full(number: Decimal) -> None:
    shown = as_typed(Fraction(number))
    assert Fraction(shown) == Fraction(number)
    assert shown != "0.0"


@pytest.mark.parametrize("text", ["1e-400", "1.234e-310", "123456789012345678901234567890", "1.00000000000000000001"])
def test_no_number_is_shown_as_another(text: str) -> None:
    assert Fraction(as_typed(Fraction(text))) == Fraction(text)
