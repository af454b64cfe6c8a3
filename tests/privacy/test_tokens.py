"""Private tokens: what they cost, that they are counted before each draw, and what a budget buys of them."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.base.errors import ConfigError, PrivacyError
from understudy.privacy.accountant import Composition, zcdp_within
from understudy.privacy.guarantee import ZCDP, Budget
from understudy.privacy.mechanisms import Declared
from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseSource, SystemNoise
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.tokens import (
    BatchTokens,
    PaidTokens,
    PrivateTokens,
    TokenTest,
    clip_for,
    tokens_within,
)
from understudy.privacy.unit import Unit

DELTA = 1e-6
TEST = TokenTest(threshold=0.5, noise=0.2)
TOKENS = PrivateTokens(clip=10, batch_size=250, temperature=2, tokens=100)
FLAT = np.zeros(3, dtype=np.int64)
budgets = st.builds(Budget, st.floats(0.01, 100), st.floats(1e-12, 1e-2))


def opened(mechanism: PrivateTokens, source: NoiseSource | None = None) -> PaidTokens:
    return mechanism.open(source or InsecureNoNoise())


# -- what they cost ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "tight", "simple"), [(100, 0.90, 1.07), (1000, 3.13, 3.52)])
def test_epsilon_of_many_private_tokens(tokens: int, tight: float, simple: float) -> None:
    mechanism = replace(TOKENS, tokens=tokens)
    assert Composition((mechanism.event,)).epsilon(DELTA) == pytest.approx(tight, abs=0.005)
    rho = mechanism.rho
    assert rho + math.sqrt(4 * rho * math.log(1 / DELTA)) == pytest.approx(simple, abs=0.005)


@pytest.mark.parametrize(
    ("batch_size", "temperature", "tokens"),
    [(255, 2.0, 126), (511, 2.0, 508), (1023, 2.0, 2039), (2047, 2.0, 8164), (255, 1.5, 71)],
)
def test_private_tokens_a_batch_at_epsilon_1(batch_size: int, temperature: float, tokens: int) -> None:
    numbers = {"clip": 10.0, "batch_size": batch_size, "temperature": temperature}
    assert tokens_within(Budget(1, "1e-6"), **numbers) == tokens  # type: ignore[arg-type]


@settings(max_examples=300)
@given(
    clip=st.floats(0.01, 100),
    batch_size=st.integers(1, 5000),
    temperature=st.floats(0.1, 10),
    tokens=st.integers(1, 99),
)
def test_the_charge_is_never_below_what_the_scales_in_use_cost(
    clip: float, batch_size: int, temperature: float, tokens: int
) -> None:
    mechanism = PrivateTokens(clip, batch_size, temperature, tokens)
    exact = tokens * (Fraction(mechanism.grid) / Fraction(mechanism.scale)) ** 2 / 2
    assert Fraction(mechanism.event.rho) >= exact
    assert mechanism.event.rho == pytest.approx(float(exact), rel=1e-13)
    assert mechanism.event.rho == pytest.approx(tokens * (clip / (batch_size * temperature)) ** 2 / 2, rel=1e-12)


def test_an_older_charge_with_a_sparse_vector_is_read_at_what_it_cost_and_pays_for_nothing_more() -> None:
    """Its event must be that of its mechanism, to the last bit: a run of the test was 2 / (s sigma), pure."""
    tested = replace(TOKENS, test=TEST)
    assert tested.event.rho == 0.10079999999999963
    assert tested.rho == pytest.approx(100 * (10 / 500) ** 2 / 2 + 101 * 2 / (250 * 0.2) ** 2)
    with pytest.raises(AssertionError):
        opened(tested)


def test_an_owner_in_several_labels_costs_no_more_than_one_in_one() -> None:
    """Batch l moves by w_l of the sensitivity; the cost is quadratic in it, and the weights sum to 1 at most."""
    generator = np.random.default_rng(0)
    for labels in (1, 2, 3, 10):
        rows = generator.integers(1, 4, labels)
        rho = 0.0
        for count in rows.tolist():  # floor(grid / k) steps per row
            moved = count * (TOKENS.grid // int(rows.sum()))
            rho += TOKENS.tokens * (moved / TOKENS.scale) ** 2 / 2
        assert rho <= TOKENS.rho


@pytest.mark.parametrize(
    "change", [{"clip": 0}, {"clip": -1}, {"batch_size": 0}, {"temperature": 0}, {"tokens": 0}, {"clip": math.nan}]
)
def test_an_impossible_parameter_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        replace(TOKENS, **change)  # type: ignore[arg-type]


def test_what_does_not_fit_into_64_bits_is_refused() -> None:
    with pytest.raises(ConfigError, match="64-bit"):
        replace(TOKENS, temperature=1e14)
    for change in ({"clip": 1e-7}, {"clip": 1e7}, {"batch_size": 2**20 + 1}):
        with pytest.raises(ConfigError, match="out of range"):
            replace(TOKENS, **change)


# -- paying and counting ----------------------------------------------------------------------------------------------


def test_private_tokens_are_counted_before_each_draw() -> None:
    batch = opened(replace(TOKENS, tokens=2)).batch()
    assert [batch.choose(FLAT) in range(3) for _ in range(2)] == [True, True]
    assert (batch.tokens_spent, batch.left) == (2, 0)
    with pytest.raises(PrivacyError, match="No private token is left"):
        batch.choose(FLAT)


@pytest.mark.slow
def test_a_draw_is_the_softmax_of_the_mean_over_the_temperature() -> None:
    """In grid units: utilities are a sum over the batch, in steps of clip / grid."""
    mechanism = PrivateTokens(clip=2.0, batch_size=5, temperature=1.5, tokens=10_000)
    sums = np.array([2.0, -2.0, 7.0])
    batch = opened(mechanism, SystemNoise()).batch()
    utilities = np.rint(sums / mechanism.clip * mechanism.grid).astype(np.int64)
    counts = np.bincount([batch.choose(utilities) for _ in range(8_000)], minlength=3)
    expected = np.exp(sums / 5 / 1.5)
    from scipy import stats

    assert stats.chisquare(counts, 8_000 * expected / expected.sum()).pvalue > 1e-12


@pytest.mark.parametrize("spent", [101, -1])
def test_a_batch_that_has_stored_more_than_was_charged_is_refused(spent: int) -> None:
    with pytest.raises(PrivacyError, match="than were charged"):
        opened(TOKENS).batch(tokens_spent=spent)


def test_a_named_batch_is_opened_once() -> None:
    tokens = opened(TOKENS)
    tokens.batch("0/1")
    tokens.batch("0/2")
    with pytest.raises(PrivacyError, match="batch 0/1 is counted twice"):
        tokens.batch("0/1")


def test_batches_in_threads_count_for_themselves() -> None:
    tokens = opened(replace(TOKENS, tokens=200), SystemNoise())
    batches = [tokens.batch(str(number)) for number in range(4)]

    def work(batch: BatchTokens) -> None:
        while batch.left:
            batch.choose(FLAT)

    threads = [threading.Thread(target=work, args=(batch,)) for batch in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [batch.left for batch in batches] == [0] * 4


# -- whole texts: the printed loop, ours, and crashes -----------------------------------------------------------------

TEXT = 7  # tokens per text


def printed_loop(batch: BatchTokens) -> Iterator[int]:
    """As printed: the count of private tokens is looked at between texts only. Yields what each text spent."""
    mechanism, spent = batch._mechanism, 0
    while spent < mechanism.tokens:
        drawn = [batch._source.choose(FLAT, scale=mechanism.scale) for _ in range(TEXT)]
        spent += len(drawn)
        yield len(drawn)


def our_loop(batch: BatchTokens) -> Iterator[int]:
    """The count is looked at before each draw."""
    while batch.left:
        before = batch.tokens_spent
        for _ in range(TEXT):
            if not batch.left:
                break
            batch.choose(FLAT)
        yield batch.tokens_spent - before


@pytest.mark.parametrize("tokens", [1, 6, 7, 8, 100])
def test_the_printed_loop_spends_more_than_was_charged_and_ours_never_does(tokens: int) -> None:
    mechanism = replace(TOKENS, tokens=tokens)
    assert sum(our_loop(opened(mechanism).batch())) == tokens
    printed = sum(printed_loop(opened(mechanism).batch())) * mechanism.rho_token
    assert (printed > mechanism.event.rho) == (tokens % TEXT != 0)


class Killed(Exception):
    pass


def write(batch: BatchTokens, world: np.random.Generator, *, kill: float) -> int | None:
    """The tokens of an example, up to TEXT; None if none is left. Killed at any step."""
    before = batch.tokens_spent
    for _ in range(TEXT):
        if world.random() < kill:
            raise Killed
        if not batch.left:
            return None
        batch.choose(FLAT)
    return batch.tokens_spent - before


@pytest.mark.parametrize("kill", [0.0, 0.02, 0.2])
def test_killed_at_any_step_a_batch_stores_no_more_tokens_than_were_charged(kill: float) -> None:
    mechanism = replace(TOKENS, tokens=40)
    world, source = np.random.default_rng(3), InsecureSeededNoise(3)
    for _ in range(20):
        stored: list[int] = []
        for _ in range(500):
            batch = opened(mechanism, source).batch(tokens_spent=sum(stored))
            try:
                while (example := write(batch, world, kill=kill)) is not None:
                    stored.append(example)
                break
            except Killed:
                pass
        assert sum(stored) <= mechanism.tokens
        if kill == 0:
            assert mechanism.tokens - TEXT < sum(stored)


# -- what a budget buys -----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(budget=budgets, batch_size=st.integers(10, 3000), temperature=st.floats(0.5, 3))
def test_the_tokens_within_a_budget_never_overshoot_and_one_more_would(
    budget: Budget, batch_size: int, temperature: float
) -> None:
    numbers = {"clip": 10.0, "batch_size": batch_size, "temperature": temperature}
    tokens = tokens_within(budget, **numbers)  # type: ignore[arg-type]
    if tokens:
        event = PrivateTokens(tokens=tokens, **numbers).event  # type: ignore[arg-type]
        Plan("method", Unit(), budget, (Charge("tokens", Declared(event), "to test"),))  # checks that it is within
    more = PrivateTokens(tokens=tokens + 1, **numbers)  # type: ignore[arg-type]
    assert more.rho * (1 + 2e-9) > zcdp_within(budget)


@settings(max_examples=60, deadline=None)
@given(budget=budgets, tokens=st.integers(1, 10_000), batch_size=st.integers(1, 3000))
def test_the_clip_for_a_number_of_tokens_never_overshoots_and_wastes_nothing(
    budget: Budget, tokens: int, batch_size: int
) -> None:
    clip = clip_for(budget, tokens, batch_size=batch_size, temperature=1.5)
    mechanism = PrivateTokens(clip, batch_size, 1.5, tokens)
    Plan("method", Unit(), budget, (Charge("tokens", mechanism, "to test"),))
    assert mechanism.rho == pytest.approx(zcdp_within(budget), rel=1e-9)
    found = tokens_within(budget, clip=clip, batch_size=batch_size, temperature=1.5)
    assert found in (tokens, tokens - 1)


def test_the_rho_within_a_budget_is_the_inverse_of_its_epsilon() -> None:
    for epsilon in (0.01, 0.9, 3.0, 50.0):
        rho = zcdp_within(Budget(epsilon, "1e-6"))
        assert ZCDP(rho).epsilon(DELTA) <= epsilon
        assert ZCDP(rho).epsilon(DELTA) == pytest.approx(epsilon, rel=1e-7)


def test_a_budget_too_small_buys_no_token() -> None:
    assert tokens_within(Budget(0.01, "1e-6"), clip=10, batch_size=3, temperature=1) == 0


def test_tokens_without_a_delta_are_one_clear_error() -> None:
    with pytest.raises(ConfigError, match="delta = 0"):
        tokens_within(Budget(1, 0), clip=10, batch_size=255, temperature=2)
