"""Private prediction, before a private record is read: what a token costs, and how many the budget buys.

tokens       up to r private tokens for every batch; batches are disjoint, so that one charge pays for all of them
"""

from __future__ import annotations

from typing import Any

from understudy.errors import ConfigError, PrivacyError
from understudy.methods.base import PublicFacts
from understudy.methods.private_prediction.parameters import MOST_BATCHES, PrivatePredictionParameters, Settled
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.token_budget import break_even, clip_for, cost_of_test, tokens_within
from understudy.privacy.tokens import PrivateTokens, TokenTest

NAME = "private-prediction"
_LEAST_CLIP = 0.3
TOKENS = "tokens"


def part_name(label: int, batch: int, number: int) -> str:
    """The part of the charge that an example is: ``number`` counts the examples of a batch, from 0."""
    return f"{TOKENS}/{label}/{batch}/{number}"


def mechanism_of(parameters: PrivatePredictionParameters, budget: Budget) -> PrivateTokens:
    """The mechanism, its open numbers (clip range or tokens) the best that ``budget`` buys.

    Raises:
        ConfigError: if the budget buys not one private token, or less than what is asked for.
    """
    if budget.delta == 0:
        raise ConfigError("Private prediction needs a delta: its accounting is by zCDP.", "Give a delta such as 1e-6.")
    try:
        return _solved(parameters, budget)
    except PrivacyError as error:
        raise ConfigError(
            f"This budget is out of range for these parameters. {error.problem}",
            "Choose an epsilon nearer to 1, or batch size, clip range and temperature nearer to the defaults.",
        ) from None


def _solved(parameters: PrivatePredictionParameters, budget: Budget) -> PrivateTokens:
    settled = parameters.settled
    test = TokenTest(parameters.threshold, parameters.threshold_noise) if parameters.sparse_vector else None
    given: dict[str, Any] = {"batch_size": settled.batch_size, "temperature": settled.temperature, "test": test}
    clip_range, tokens = settled.clip_range, settled.tokens
    if clip_range is None:
        assert tokens is not None, "settled leaves one open at most"
        clip_range = clip_for(budget, tokens, **given)
    affordable = tokens_within(budget, clip=clip_range, **given)
    if affordable < (tokens or 1):
        raise ConfigError(
            f"The budget {budget} buys {affordable} private tokens a batch, and {tokens or 1} are asked for.",
            "Declare larger batches (--batch-size), clip to a smaller range (--clip-range), draw at a higher "
            "--temperature, draw fewer tokens, or leave the sparse vector out.",
        )
    return PrivateTokens(TOKENS, clip_range, tokens=tokens or affordable, **given)


def make_plan(parameters: PrivatePredictionParameters, budget: Budget, facts: PublicFacts) -> Plan:
    """The plan of a release.

    Raises:
        ConfigError: as :func:`mechanism_of`, or there are too many batches.
    """
    if (batches := facts.labels * (parameters.batches or 1)) > MOST_BATCHES:
        raise ConfigError(
            f"{batches:.3g} batches of all labels together are asked for, and {MOST_BATCHES:.0e} are the most.",
            "Declare fewer --batches or fewer labels.",
        )
    mechanism = mechanism_of(parameters, budget)
    charge = Charge(
        TOKENS,
        mechanism.event,
        {
            "clip": parameters.clip,
            "clip range": mechanism.clip,
            "batch size": mechanism.batch_size,
            "temperature": mechanism.temperature,
            "private tokens a batch": mechanism.tokens,
            **(
                {}
                if mechanism.test is None
                else {"threshold": mechanism.test.threshold, "threshold noise": mechanism.test.noise}
            ),
        },
        f"up to {mechanism.tokens} private tokens for each of any number of disjoint batches",
    )
    return Plan(NAME, facts.unit, budget, (charge,), _forecast(parameters, mechanism, budget, facts))


def recommended_batches(expected_records: int, labels: int, batch_size: int) -> int:
    """Batches of each label that hold ``batch_size`` texts on average, 1 at least."""
    return max(1, expected_records // (labels * batch_size))


def _forecast(
    parameters: PrivatePredictionParameters, mechanism: PrivateTokens, budget: Budget, facts: PublicFacts
) -> dict[str, Any]:
    forecast: dict[str, Any] = {
        "batch size (declared)": mechanism.batch_size,
        "clip range": mechanism.clip,
        "one record moves the log-odds of a token by at most": 2
        * mechanism.clip
        / (mechanism.batch_size * mechanism.temperature),
        "private tokens a batch": mechanism.tokens,
        f"texts of {parameters.text_tokens} tokens (--text-tokens), of a batch": mechanism.tokens
        / parameters.text_tokens,
    }
    if mechanism.clip < _LEAST_CLIP:
        forecast["warning: clip range"] = (
            f"below {_LEAST_CLIP} nats hardly anything of the private texts comes through: spend more epsilon, declare "
            "larger batches, or draw fewer private tokens"
        )
    batches = parameters.batches
    if facts.expected_records is not None:
        fitting = recommended_batches(facts.expected_records, facts.labels, mechanism.batch_size)
        forecast["batches of each label, recommended for the declared corpus size"] = fitting
        batches = batches or fitting
        size = facts.expected_records / (facts.labels * batches)
        forecast["texts in a batch, on average"] = size
        if not 0.5 <= size / mechanism.batch_size <= 1.5:
            forecast["warning: sizes"] = (
                f"batches hold {size:.3g} texts on average, not the {mechanism.batch_size} by which their sums are "
                "divided: declare other --batches or another --batch-size"
            )
    if batches is not None:
        forecast["batches of each label"] = batches
        texts = batches * mechanism.tokens / parameters.text_tokens
        forecast[f"texts of {parameters.text_tokens} tokens, of each label, every token private"] = texts
        rows = facts.labels * batches * (mechanism.batch_size + 1)
        forecast["private model: tokens of private texts that it reads, at most"] = (
            rows * parameters.private_text_tokens
        )
        forecast["private model: private tokens times rows"] = rows * mechanism.tokens
    return {**forecast, **_sparse_vector(mechanism), **_other_sizes(parameters, mechanism, budget, facts)}


def _sparse_vector(mechanism: PrivateTokens) -> dict[str, Any]:
    """What the test for public tokens costs and when it pays, whether it is on or not."""
    noise = 0.2 if mechanism.test is None else mechanism.test.noise
    numbers = {"clip": mechanism.clip, "temperature": mechanism.temperature, "noise": noise}
    share = break_even(**numbers)
    asked = mechanism.test is not None
    return {
        f"sparse vector{'' if asked else ' (off; at noise 0.2)'}: a private token costs, times": 1
        + cost_of_test(**numbers),
        "sparse vector pays where the share of private tokens is below": share,
        "sparse vector, recommended": (
            "only where the model without private text writes most of each text already (forms, set phrases)"
            if share > 0.05
            else "no: next to no text has so few private tokens"
        ),
    }


def _other_sizes(
    parameters: PrivatePredictionParameters, mechanism: PrivateTokens, budget: Budget, facts: PublicFacts
) -> dict[str, Any]:
    """What other batch sizes would buy of the same corpus, so that one can be chosen."""
    if facts.expected_records is None:
        return {}
    chosen = parameters.settled
    shown = {}
    for size in sorted({mechanism.batch_size // 4, mechanism.batch_size // 2, mechanism.batch_size * 2}):
        if size < 1:
            continue
        other = parameters.model_copy(update={"batch_size": size})
        try:
            bought = mechanism_of(other, budget)
        except ConfigError:
            shown[f"with batches of {size} instead"] = "nothing"
            continue
        batches = recommended_batches(facts.expected_records, facts.labels, size)
        texts = batches * bought.tokens / parameters.text_tokens
        shown[f"with batches of {size} instead"] = (
            f"{batches} batches of each label, {_bought(bought, chosen)}, {texts:.0f} texts of each label"
        )
    return shown


def _bought(mechanism: PrivateTokens, chosen: Settled) -> str:
    if chosen.clip_range is None:
        return f"clip range {mechanism.clip:.3g}"
    return f"{mechanism.tokens} private tokens each"
