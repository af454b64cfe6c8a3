"""Private tokens: what they cost, that they are counted before each draw, and what a budget buys of them."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, PrivacyError
from understudy.privacy.accountant import Composition, zcdp_within
from understudy.privacy.events import ZCDPEvent
from understudy.privacy.guarantee import ZCDP, Budget
from understudy.privacy.mechanisms import Declared
from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseKind, NoiseSource, SystemNoise
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.tokens import (
    BatchTokens,
    PaidTokens,
    PrivateTokens,
    TokenTest,
    break_even,
    clip_for,
    cost_of_test,
    tokens_within,
)
from understudy.privacy.unit import Unit

DELTA = 1e-6
TEST = TokenTest(threshold=0.5, noise=0.2)
TOKENS = PrivateTokens(clip=10, batch_size=250, temperature=2, tokens=100)
FLAT = np.zeros(3, dtype=np.int64)
FAR = 2 * 250 * PrivateTokens.distance_grid
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


def test_a_test_costs_16_4_and_1_8_times_a_token() -> None:
    for noise, times in ((0.1, 16.0), (0.2, 4.0), (0.3, 1.8)):
        tested = replace(TOKENS, test=TokenTest(0.5, noise))
        assert cost_of_test(clip=10, temperature=2, noise=noise) == pytest.approx(times, abs=0.03)
        assert tested.rho_run / tested.rho_token == pytest.approx(cost_of_test(clip=10, temperature=2, noise=noise))
        assert tested.rho_run == pytest.approx(2 / (250 * noise) ** 2)


def test_one_run_more_than_private_tokens_is_charged() -> None:
    tested = replace(TOKENS, test=TEST)
    assert (TOKENS.runs, tested.runs) == (0, 101)
    assert tested.rho == pytest.approx(100 * (10 / 500) ** 2 / 2 + 101 * 2 / (250 * 0.2) ** 2)
    assert TOKENS.event == ZCDPEvent(TOKENS.rho)


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
    mechanism = PrivateTokens(clip, batch_size, temperature, tokens, TEST)
    assert mechanism.vector is not None
    exact = tokens * (Fraction(mechanism.grid) / Fraction(mechanism.scale)) ** 2 / 2
    exact += (tokens + 1) * (2 * Fraction(mechanism.distance_grid) / Fraction(mechanism.vector.scale)) ** 2 / 2
    assert Fraction(mechanism.event.rho) >= exact
    assert mechanism.event.rho == pytest.approx(float(exact), rel=1e-13)
    stated = tokens * (clip / (batch_size * temperature)) ** 2 / 2 + (tokens + 1) * 2 / (batch_size * TEST.noise) ** 2
    assert mechanism.event.rho == pytest.approx(stated, rel=1e-12)


def test_an_owner_in_several_labels_costs_no_more_than_one_in_one() -> None:
    """Batch l moves by w_l of both sensitivities; the costs are quadratic in them, and the weights sum to 1 at most."""
    tested = replace(TOKENS, test=TEST)
    assert tested.vector is not None
    generator = np.random.default_rng(0)
    for labels in (1, 2, 3, 10):
        rows = generator.integers(1, 4, labels)
        rho = 0.0
        for count in rows.tolist():  # floor(grid / k) steps per row
            moved = count * (tested.grid // int(rows.sum()))
            moved_in_test = count * (tested.distance_grid // int(rows.sum()))
            rho += tested.tokens * (moved / tested.scale) ** 2 / 2
            rho += tested.runs * replace(tested.vector, sensitivity=moved_in_test).rho
        assert rho <= tested.rho


@pytest.mark.parametrize(
    "change", [{"clip": 0}, {"clip": -1}, {"batch_size": 0}, {"temperature": 0}, {"tokens": 0}, {"clip": math.nan}]
)
def test_an_impossible_parameter_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        replace(TOKENS, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(("threshold", "noise"), [(-0.1, 0.2), (2.1, 0.2), (0.5, 0.0), (0.5, -1.0)])
def test_an_impossible_test_is_refused(threshold: float, noise: float) -> None:
    with pytest.raises(ConfigError):
        TokenTest(threshold, noise)


def test_what_does_not_fit_into_64_bits_is_refused() -> None:
    with pytest.raises(ConfigError, match="64-bit"):
        replace(TOKENS, temperature=1e14)
    for change in ({"clip": 1e-7}, {"clip": 1e7}, {"batch_size": 2**20 + 1}):
        with pytest.raises(ConfigError, match="out of range"):
            replace(TOKENS, **change)
    with pytest.raises(ConfigError, match="64-bit"):
        replace(TOKENS, test=TokenTest(0.5, 1e12))


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

    assert stats.chisquare(counts, 8_000 * expected / expected.sum()).pvalue > 1e-6


def test_runs_of_the_test_are_counted_when_they_begin_and_end_with_a_private_token_due() -> None:
    batch = opened(replace(TOKENS, tokens=1, test=TEST)).batch()
    assert (batch.runs_spent, batch.runs_left, batch.can_test) == (0, 2, True)
    near, threshold = 0, round(0.5 * 250 * 2**18)
    assert [batch.is_private(near) for _ in range(3)] == [False, False, False]
    assert (batch.runs_spent, batch.runs_left) == (1, 1)
    assert batch.is_private(threshold)
    assert batch.runs_spent == 1
    assert not batch.is_private(threshold - 1)
    assert (batch.runs_spent, batch.runs_left, batch.can_test) == (2, 0, True)  # a run is open
    assert batch.is_private(FAR)
    assert not batch.can_test
    with pytest.raises(PrivacyError, match="No run of the test"):
        batch.is_private(near)


def test_each_run_of_a_batch_has_a_threshold_of_its_own() -> None:
    class Noted(InsecureNoNoise):
        asked: list[float] = []  # noqa: RUF012

        def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
            self.asked.append(scale / (250 * 2**18 * 0.2))
            return super().draw(kind, scale=scale, size=size)

    batch = opened(replace(TOKENS, test=TEST), Noted()).batch()
    assert [batch.is_private(distance) for distance in (0, FAR, 0)] == [False, True, False]
    assert Noted.asked == pytest.approx([1, 2, 2, 1, 2])


def test_without_a_test_there_is_nothing_to_ask() -> None:
    batch = opened(TOKENS).batch()
    assert not batch.can_test
    with pytest.raises(PrivacyError, match="No run of the test"):
        batch.is_private(FAR)


def test_a_resumed_batch_goes_on_where_its_stored_examples_ended() -> None:
    mechanism = replace(TOKENS, test=TEST)
    batch = opened(mechanism).batch(tokens_spent=98, runs_spent=100)
    assert (batch.left, batch.runs_left, batch.can_test) == (2, 1, True)
    assert not batch.is_private(0)  # the run that was open is gone: this one is new, and counts
    assert batch.runs_left == 0


@pytest.mark.parametrize(
    "spent", [{"tokens_spent": 101}, {"tokens_spent": -1}, {"runs_spent": 102}, {"runs_spent": -1}]
)
def test_a_batch_that_has_stored_more_than_was_charged_is_refused(spent: dict[str, int]) -> None:
    with pytest.raises(PrivacyError, match="than were charged"):
        opened(replace(TOKENS, test=TEST)).batch(**spent)  # type: ignore[arg-type]


def test_a_named_batch_is_opened_once() -> None:
    tokens = opened(TOKENS)
    tokens.batch("0/1")
    tokens.batch("0/2")
    with pytest.raises(PrivacyError, match="batch 0/1 is counted twice"):
        tokens.batch("0/1")


def test_batches_in_threads_count_for_themselves() -> None:
    tokens = opened(replace(TOKENS, tokens=200, test=TEST), SystemNoise())
    batches = [tokens.batch(str(number)) for number in range(4)]

    def work(batch: BatchTokens) -> None:
        while batch.left and batch.can_test:
            if batch.is_private(FAR):
                batch.choose(FLAT)

    threads = [threading.Thread(target=work, args=(batch,)) for batch in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [batch.left for batch in batches] == [0] * 4
    assert all(200 <= batch.runs_spent <= 201 for batch in batches)


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


@dataclass(frozen=True)
class Example:
    """What is stored of an example."""

    tokens: int
    runs: int
    open_run: bool


class Killed(Exception):
    pass


def write(batch: BatchTokens, world: np.random.Generator, *, kill: float) -> Example | None:
    """An example of up to TEXT tokens; None if none is left to draw where one is due. Killed at any step."""
    tokens, runs = batch.tokens_spent, batch.runs_spent
    for _ in range(TEXT):
        if world.random() < kill:
            raise Killed
        private = not batch.can_test or batch.is_private(int(world.integers(0, FAR)))
        if world.random() < kill:
            raise Killed
        if private and not batch.left:
            return None
        if private:
            batch.choose(FLAT)
    return Example(batch.tokens_spent - tokens, batch.runs_spent - runs, batch._is_open)


@pytest.mark.parametrize("kill", [0.0, 0.02, 0.2])
def test_killed_at_any_step_a_batch_stores_no_more_tokens_and_runs_than_were_charged(kill: float) -> None:
    mechanism = replace(TOKENS, tokens=40, test=TEST)
    world, source = np.random.default_rng(3), InsecureSeededNoise(3)
    for _ in range(20):
        stored: list[Example] = []
        for _ in range(500):
            spent = {
                "tokens_spent": sum(example.tokens for example in stored),
                "runs_spent": sum(example.runs for example in stored),
            }
            batch = opened(mechanism, source).batch(**spent)
            assert not batch._is_open
            try:
                while (example := write(batch, world, kill=kill)) is not None:
                    stored.append(example)
                break
            except Killed:
                pass
        assert sum(example.tokens for example in stored) <= mechanism.tokens
        assert sum(example.runs for example in stored) <= mechanism.runs
        if kill == 0:  # each private token ended a run, and what was left over at most one
            assert mechanism.tokens - TEXT < sum(example.tokens for example in stored)


# -- what a budget buys -----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(budget=budgets, batch_size=st.integers(10, 3000), temperature=st.floats(0.5, 3), tested=st.booleans())
def test_the_tokens_within_a_budget_never_overshoot_and_one_more_would(
    budget: Budget, batch_size: int, temperature: float, tested: bool
) -> None:
    numbers = {"clip": 10.0, "batch_size": batch_size, "temperature": temperature, "test": TEST if tested else None}
    tokens = tokens_within(budget, **numbers)  # type: ignore[arg-type]
    if tokens:
        event = PrivateTokens(tokens=tokens, **numbers).event  # type: ignore[arg-type]
        Plan("method", Unit(), budget, (Charge("tokens", Declared(event), "to test"),))  # checks that it is within
    more = PrivateTokens(tokens=tokens + 1, **numbers)  # type: ignore[arg-type]
    assert more.rho * (1 + 2e-9) > zcdp_within(budget)


@settings(max_examples=60, deadline=None)
@given(budget=budgets, tokens=st.integers(1, 10_000), batch_size=st.integers(1, 3000), tested=st.booleans())
def test_the_clip_for_a_number_of_tokens_never_overshoots_and_wastes_nothing(
    budget: Budget, tokens: int, batch_size: int, tested: bool
) -> None:
    test = TEST if tested else None
    if test and (tokens + 1) * 2 / (batch_size * test.noise) ** 2 >= zcdp_within(budget) * 0.99:
        return
    clip = clip_for(budget, tokens, batch_size=batch_size, temperature=1.5, test=test)
    mechanism = PrivateTokens(clip, batch_size, 1.5, tokens, test)
    Plan("method", Unit(), budget, (Charge("tokens", mechanism, "to test"),))
    assert mechanism.rho == pytest.approx(zcdp_within(budget), rel=1e-9)
    found = tokens_within(budget, clip=clip, batch_size=batch_size, temperature=1.5, test=test)
    assert found in (tokens, tokens - 1)


def test_the_rho_within_a_budget_is_the_inverse_of_its_epsilon() -> None:
    for epsilon in (0.01, 0.9, 3.0, 50.0):
        rho = zcdp_within(Budget(epsilon, "1e-6"))
        assert ZCDP(rho).epsilon(DELTA) <= epsilon
        assert ZCDP(rho).epsilon(DELTA) == pytest.approx(epsilon, rel=1e-7)


def test_a_budget_too_small_buys_no_token_and_a_test_dearer_than_the_budget_is_an_error() -> None:
    assert tokens_within(Budget(0.01, "1e-6"), clip=10, batch_size=3, temperature=1) == 0
    assert tokens_within(Budget(1, "1e-6"), clip=10, batch_size=3, temperature=1, test=TEST) == 0
    with pytest.raises(ConfigError, match="costs more than the budget"):
        clip_for(Budget(1, "1e-6"), 1000, batch_size=7, temperature=1, test=TEST)


def test_tokens_without_a_delta_are_one_clear_error() -> None:
    with pytest.raises(ConfigError, match="delta = 0"):
        tokens_within(Budget(1, 0), clip=10, batch_size=255, temperature=2)


@pytest.mark.parametrize("noise", [0.1, 0.2, 0.3])
def test_below_the_break_even_share_of_private_tokens_the_test_buys_more_text(noise: float) -> None:
    budget, numbers = Budget(3, "1e-6"), {"clip": 10.0, "batch_size": 2047, "temperature": 2.0}
    without = tokens_within(budget, **numbers)  # type: ignore[arg-type]
    tested = tokens_within(budget, **numbers, test=TokenTest(0.5, noise))  # type: ignore[arg-type]
    share = break_even(clip=10, temperature=2, noise=noise)
    assert tested / (share * 0.99) > without > tested / (share * 1.01)
