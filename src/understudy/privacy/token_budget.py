"""What a budget buys of private tokens: how many, how hard to clip for how many, and whether to test for public ones.

Nothing here reads data: all are functions of the parameters of :class:`~understudy.privacy.tokens.PrivateTokens`.
"""

from __future__ import annotations

import math

from understudy.errors import ConfigError
from understudy.privacy.accountant import zcdp_within
from understudy.privacy.guarantee import Budget
from understudy.privacy.tokens import PrivateTokens, TokenTest


def tokens_within(
    budget: Budget, *, clip: float, batch_size: int, temperature: float, test: TokenTest | None = None
) -> int:
    """The most private tokens a batch may draw within ``budget``; 0 if not even one.

    Args:
        budget: delta must be greater than 0.
        clip: c or C, as all other arguments of :class:`~understudy.privacy.tokens.PrivateTokens`.
        batch_size: s.
        temperature: tau.
        test: with one, a batch runs it once more than it draws private tokens.

    Returns:
        r, the largest with r rho_token + (r + 1) rho_run within the rho that ``budget`` allows.

    Raises:
        ConfigError: if delta is 0, or a parameter out of its range.
    """
    one = PrivateTokens(clip, batch_size, temperature, 1, test)
    allowed = zcdp_within(budget)
    tokens = math.floor((allowed - one.rho_run) / (one.rho_token + one.rho_run))
    while tokens > 0 and PrivateTokens(clip, batch_size, temperature, tokens, test).rho > allowed:
        tokens -= 1  # rounding, at the edge
    return max(tokens, 0)


def clip_for(
    budget: Budget, tokens: int, *, batch_size: int, temperature: float, test: TokenTest | None = None
) -> float:
    """The largest clip range at which ``tokens`` private tokens a batch are within ``budget``.

    Args:
        budget: delta must be greater than 0.
        tokens: r, 1 or more.
        batch_size: s, as all other arguments of :class:`~understudy.privacy.tokens.PrivateTokens`.
        temperature: tau.
        test: with one, its ``tokens`` + 1 runs are paid for first.

    Raises:
        ConfigError: if the test alone costs more than the budget, delta is 0, or a parameter is out of its range.
    """
    allowed = zcdp_within(budget)
    tests = PrivateTokens(1.0, batch_size, temperature, tokens, test)
    left = allowed - tests.runs * tests.rho_run
    if left <= 0:
        raise ConfigError(
            f"Testing for public tokens {tests.runs:,} times costs more than the budget {budget}.",
            "Test with more noise, draw fewer private tokens, declare larger batches, or leave the test out.",
        )
    clip = batch_size * temperature * math.sqrt(2 * left / tokens)
    while PrivateTokens(clip, batch_size, temperature, tokens, test).rho > allowed:
        clip *= 1 - 1e-12
    return clip


def cost_of_test(*, clip: float, temperature: float, noise: float) -> float:
    """rho of one run of the test over rho of one private token: 4 tau^2 / (c^2 sigma^2).

    >>> [round(cost_of_test(clip=10, temperature=2, noise=noise), 1) for noise in (0.1, 0.2, 0.3)]
    [16.0, 4.0, 1.8]
    """
    return (2 * temperature / (clip * noise)) ** 2


def break_even(*, clip: float, temperature: float, noise: float) -> float:
    """The share of private tokens below which the test buys more text than it costs, in (0, 1).

    With the test on, a private token costs 1 + :func:`cost_of_test` times as much, and there are as many fewer; all
    tokens together are more if fewer than this share of them are private. (The one run more than private tokens is
    left out: it matters where a batch draws only a few.)

    >>> round(break_even(clip=10, temperature=2, noise=0.2), 6)
    0.2
    """
    return 1 / (1 + cost_of_test(clip=clip, temperature=temperature, noise=noise))
