"""The highest bound of many secrets: never less than that of each, hardly more, and few compositions."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.privacy.secrets.bounds import blow_up, poisson_binomial
from understudy.privacy.secrets.many import Laws, highest, worse_than_all


def some_secrets(seed: int, count: int, releases: int = 2) -> list[Laws]:
    rng = np.random.default_rng(seed)

    def law() -> np.ndarray:
        return poisson_binomial(((float(rng.uniform(0.01, 1)), int(rng.integers(0, 9))),))

    return [tuple(law() for _ in range(releases)) for _ in range(count)]


def risk(laws: Laws) -> float:
    return sum(blow_up(1e-3, 4.0, law) for law in laws)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30))
def test_the_law_above_a_group_is_above_each_of_it(seed: int, count: int) -> None:
    secrets = some_secrets(seed, count)
    for release, above in enumerate(worse_than_all(secrets)):
        assert above.min() >= 0
        assert above.sum() == 1 or abs(above.sum() - 1) < 1e-12
        for laws in secrets:
            own = np.cumsum(laws[release][::-1])[::-1]
            assert np.all(np.cumsum(above[::-1])[::-1][: len(own)] >= own - 1e-15)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 200))
def test_the_highest_bound_is_no_less_than_each_and_found_in_few_steps(seed: int, count: int) -> None:
    secrets = sorted(some_secrets(seed, count), key=risk, reverse=True)
    asked: list[Laws] = []
    found = highest(secrets, lambda laws: asked.append(laws) or risk(laws))  # type: ignore[func-returns-value]
    most = max(map(risk, secrets), default=0.0)
    assert most * (1 - 1e-12) <= found <= most * 1.3
    assert len(asked) <= 34


def test_one_secret_and_like_secrets_are_exact() -> None:
    (alone,) = some_secrets(5, 1)
    assert highest([alone], risk) == risk(alone)
    assert highest([alone] * 7, risk) <= risk(alone) * (1 + 1e-9)


def test_secrets_out_of_order_cost_steps_and_never_safety() -> None:
    secrets = sorted(some_secrets(6, 100), key=risk)
    assert highest(secrets, risk) >= risk(secrets[-1])
