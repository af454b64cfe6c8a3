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
from understudy.privacy.tokens import BatchTokens, PaidTokens, PrivateTokens, TokenTest, clip_for, tokens_within
from understudy.privacy.unit import Unit

DELTA = 1e-6
TEST = TokenTest(threshold=0.5, noise=0.2)
TOKENS = PrivateTokens(clip=10, batch_size=250, temperature=2, tokens=100)
FAR = 2 * 250 * TokenTest.grid
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


@pytest.mark.parametrize(("noise", "times"), [(0.1, 16), (0.2, 4), (0.3, 1.8)])
def test_a_run_of_the_test_costs_these_times_as_much_as_a_private_token(noise: float, times: float) -> None:
    tested = replace(TOKENS, test=TokenTest(0.5, noise))
    assert tested.rho_run / tested.rho_token == pytest.approx(times, abs=0.03)


def test_one_run_more_than_private_tokens_is_charged() -> None:
    tested = replace(TOKENS, test=TEST)
    assert (TOKENS.runs, tested.runs) == (0, 101)
    assert tested.rho == pytest.approx(100 * (10 / 500) ** 2 / 2 + 101 * 2 / (250 * 0.2) ** 2)
    exact = 100 * (Fraction(TOKENS.grid) / Fraction(TOKENS.scale)) ** 2 / 2
    exact += 101 * (2 * Fraction(TEST.grid) / Fraction(TEST.scale(250))) ** 2 / 2
    assert Fraction(tested.event.rho) >= exact


def test_an_owner_in_several_labels_costs_no_more_than_one_in_one() -> None:
    """Batch l moves by w_l of the sensitivities; the costs are quadratic in them, and the weights sum to 1 at most."""
    tested = replace(TOKENS, test=TEST)
    generator = np.random.default_rng(0)
    for labels in (1, 2, 3, 10):
        rows = generator.integers(1, 4, labels)
        rho = 0.0
        for count in rows.tolist():  # floor(grid / k) steps per row
            moved = count * (TOKENS.grid // int(rows.sum()))
            rho += TOKENS.tokens * (moved / TOKENS.scale) ** 2 / 2
            moved = count * (TEST.grid // int(rows.sum()))
            rho += tested.runs * (2 * moved / TEST.scale(TOKENS.batch_size)) ** 2 / 2
        assert rho <= tested.rho


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


def test_runs_of_the_test_are_counted_when_they_begin_and_end_when_a_private_token_is_due() -> None:
    batch = opened(replace(TOKENS, tokens=1, test=TEST)).batch()
    threshold = round(0.5 * 250 * TEST.grid)
    assert [batch.is_private(0) for _ in range(3)] == [False] * 3
    assert batch.runs_spent == 1
    assert batch.is_private(threshold)
    assert batch.runs_spent == 1
    assert not batch.is_private(threshold - 1)
    assert (batch.runs_spent, batch.can_test) == (2, True), "a run is open"
    assert batch.is_private(FAR)
    assert not batch.can_test
    with pytest.raises(PrivacyError, match="No run of the test"):
        batch.is_private(0)
    batch = opened(TOKENS).batch()
    assert not batch.can_test
    with pytest.raises(PrivacyError, match="No run of the test"):
        batch.is_private(FAR)


def test_a_resumed_batch_continues_after_its_stored_examples_with_a_new_run() -> None:
    batch = opened(replace(TOKENS, test=TEST)).batch(tokens_spent=98, runs_spent=100)
    assert (batch.left, batch.can_test) == (2, True)
    assert not batch.is_private(0)
    assert batch.runs_spent == 101


def test_a_public_token_follows_the_public_softmax_and_costs_nothing() -> None:
    batch = opened(replace(TOKENS, test=TEST), InsecureSeededNoise(0)).batch()
    logits = np.array([0.0, 3.0, -3e38])
    drawn = np.bincount([batch.choose_public(logits, temperature=1.5) for _ in range(4_000)], minlength=3)
    assert drawn[1] / 4_000 == pytest.approx(1 / (1 + math.exp(-2)), abs=0.02)
    assert drawn[2] == batch.tokens_spent == batch.runs_spent == 0


@pytest.mark.parametrize(
    "spent", [{"tokens_spent": 101}, {"tokens_spent": -1}, {"runs_spent": 102}, {"runs_spent": -1}]
)
def test_a_batch_that_has_stored_more_than_was_charged_is_refused(spent: dict[str, int]) -> None:
    with pytest.raises(PrivacyError, match="than were charged"):
        opened(replace(TOKENS, test=TEST)).batch(**spent)  # type: ignore[arg-type]
    with pytest.raises(PrivacyError, match="than were charged"):
        opened(TOKENS).batch(runs_spent=1)


def test_a_named_batch_is_opened_once() -> None:
    tokens = opened(TOKENS)
    tokens.batch("0/1")
    tokens.batch("0/2")
    with pytest.raises(PrivacyError, match="batch 0/1 would be used twice"):
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


def write(batch: BatchTokens, world: np.random.Generator, *, kill: float) -> tuple[int, int] | None:
    """The private tokens and runs of an example of up to TEXT tokens; None if none is left. Killed at any step."""
    before = batch.tokens_spent, batch.runs_spent
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
    return batch.tokens_spent - before[0], batch.runs_spent - before[1]


@pytest.mark.parametrize("test", [None, TEST])
@pytest.mark.parametrize("kill", [0.0, 0.02, 0.2])
def test_killed_at_any_step_a_batch_stores_no_more_than_was_charged(kill: float, test: TokenTest | None) -> None:
    mechanism = replace(TOKENS, tokens=40, test=test)
    world, source = np.random.default_rng(3), InsecureSeededNoise(3)
    for _ in range(20):
        stored: list[tuple[int, int]] = []
        for _ in range(500):
            tokens, runs = (sum(each) for each in zip((0, 0), *stored, strict=True))
            batch = opened(mechanism, source).batch(tokens_spent=tokens, runs_spent=runs)
            try:
                while (example := write(batch, world, kill=kill)) is not None:
                    stored.append(example)
                break
            except Killed:
                pass
        tokens, runs = (sum(each) for each in zip((0, 0), *stored, strict=True))
        assert tokens <= mechanism.tokens
        assert runs <= mechanism.runs
        if kill == 0:
            assert mechanism.tokens - TEXT < tokens


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
