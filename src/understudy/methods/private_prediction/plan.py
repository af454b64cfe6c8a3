"""Private prediction, before a private record is read: what a token costs, and how many the budget allows.

tokens       up to r private tokens for every batch; batches are disjoint, so that one charge pays for all of them
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from understudy.base.errors import ConfigError
from understudy.base.parameters import Ablation, Parameters
from understudy.methods.facts import PublicFacts
from understudy.methods.shared.decoding.prompting import TextParameters
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.tokens import PrivateTokens, TokenTest, clip_for, tokens_within
from understudy.privacy.verdict import Verdict

MOST_BATCHES = 1_000_000
"""Largest number of batches, of all labels together: each takes memory for a list, even if empty."""
Clip = Literal["difference", "recenter", "fixed"]
_CLIP_RANGES = {"recenter": 10.0, "fixed": 20.0}
"""For unshifted logits, Amin et al. need twice the range (appendix B.1)."""


class StoppingParameters(Parameters):
    """When a release stops before its tokens are used up."""

    texts_per_batch: int | None = Field(None, ge=1, le=1_000_000)
    """Stop each batch after this many texts; unused tokens stay paid for (``release --continue``)."""


class PrivatePredictionParameters(TextParameters, StoppingParameters):
    """All parameters of private prediction."""

    clip: Clip = "difference"
    """What is clipped: ``difference`` (of log-probabilities, to the public ones), or logits: ``recenter`` (the largest
    at c) or ``fixed`` (as they are)."""
    clip_range: float | None = Field(None, gt=0, le=1e6)
    """c, or C of differences. Default: 10 with ``recenter``, 20 with ``fixed``; with ``difference``, the largest within
    the budget."""
    batch_size: int | None = Field(None, ge=1, le=1_000_000)
    """Private texts in a batch as declared (s): the fixed divisor. Default: 31 with ``difference``, 255 otherwise."""
    batches: int | None = Field(None, ge=1, le=MOST_BATCHES)
    """Batches of each label: a public number, ``expected_records`` / labels / ``batch_size`` if not given."""
    tokens_per_batch: int | None = Field(None, ge=1, le=1_000_000)
    """Private tokens of a batch (r). Default: 256 with ``difference``, otherwise as many as the budget allows."""
    temperature: float | None = Field(None, gt=0, le=1e6)
    """Temperature of sampling (tau). Default: 1 with ``difference``, 2 otherwise."""
    top_k: int = Field(20, ge=0, le=10_000_000)
    """Sample among this many of the likeliest tokens without private text (differences: a few more); 0 for all."""
    sparse_vector: bool = False
    """Test before each token whether the batch predicts nearly the same as the public prompt, and if so take a public
    token for free. Worth its cost only if few tokens are private."""
    threshold: float = Field(0.5, gt=0, le=2)
    """With ``sparse_vector``: distance from the public prediction, in L1, from which a token is private (theta)."""
    threshold_noise: Ablation[float] = Field(0.2, gt=0, le=1e6)
    """With ``sparse_vector``: scale of the Laplace noise on the threshold (sigma); distances get twice that."""
    public_temperature: Ablation[float] = Field(1.5, ge=1e-3, le=1e6)
    """With ``sparse_vector``: temperature at which public tokens are sampled."""

    @property
    def resolved(self) -> ResolvedNumbers:
        """Return the numbers that the mechanism uses: given ones, and defaults that depend on the clipping. Raises
        ConfigError for clipped logits if neither a clip range nor tokens are given."""
        differences = self.clip == "difference"
        tokens = self.tokens_per_batch
        if tokens is None and self.clip_range is None and differences:
            tokens = 256
        return ResolvedNumbers(
            clip_range=_CLIP_RANGES.get(self.clip) if self.clip_range is None else self.clip_range,
            batch_size=self.batch_size or (31 if differences else 255),
            tokens=tokens,
            temperature=self.temperature or (1.0 if differences else 2.0),
        )

    @property
    def declared_batches(self) -> int:
        """Return the number of batches per label. Raises ConfigError if it is not declared."""
        if self.batches is None:
            raise ConfigError(
                "The number of batches is missing.",
                "Declare the size of the corpus with --expected-records N, from which it follows, or --batches N "
                "themselves: from what you know of the corpus and not from counting it.",
            )
        return self.batches


@dataclass(frozen=True)
class ResolvedNumbers:
    """The numbers of the mechanism. The budget decides either the clip range or the number of tokens, if it is left
    open."""

    clip_range: float | None
    batch_size: int
    tokens: int | None
    temperature: float


NAME = "private-prediction"
_FEWEST_PRIVATE = 0.2
"""Smallest share of private tokens that Amin et al. report (section 3.2), in records with a rigid form."""
_TEXT_TOKENS = 50
"""Tokens of a synthetic text in the forecast."""
TOKENS = "tokens"
ROWS = "rows"
"""Key, in a Release, of the typed columns' values that precede each text."""


def mechanism_of(parameters: PrivatePredictionParameters, budget: Budget) -> PrivateTokens:
    """Return the mechanism; an open number (clip range or tokens) gets the best value that ``budget`` allows."""
    if budget.delta == 0:
        raise ConfigError("Private prediction needs a delta: its accounting is by zCDP.", "Give a delta such as 1e-6.")
    resolved = parameters.resolved
    test = TokenTest(parameters.threshold, parameters.threshold_noise) if parameters.sparse_vector else None
    given: dict[str, Any] = {"batch_size": resolved.batch_size, "temperature": resolved.temperature, "test": test}
    clip_range, tokens = resolved.clip_range, resolved.tokens
    if clip_range is None:
        assert tokens is not None, "at most one is left open"
        clip_range = clip_for(budget, tokens, **given)
    affordable = tokens_within(budget, clip=clip_range, **given)
    if affordable < (tokens or 1):
        raise ConfigError(
            f"The budget {budget} buys {affordable} private tokens per batch, but {tokens or 1} are requested.",
            "Declare larger batches (--batch-size), clip to a smaller range (--clip-range), sample at a higher "
            f"--temperature, {'turn sparse_vector off, ' if test else ''}or ask for fewer tokens.",
        )
    return PrivateTokens(clip_range, tokens=tokens or affordable, **given)


def make_plan(parameters: PrivatePredictionParameters, budget: Budget, facts: PublicFacts) -> Plan:
    """Return the plan of a release. Raises ConfigError as :func:`mechanism_of`, or if there are too many batches."""
    if (batches := facts.labels.size * (parameters.batches or 1)) > MOST_BATCHES:
        raise ConfigError(
            f"{batches:.3g} batches of all labels together are too many; at most {MOST_BATCHES:.0e} are allowed.",
            "Declare fewer --batches or fewer labels.",
        )
    mechanism = mechanism_of(parameters, budget)
    tests = f" and {mechanism.runs} runs of the sparse vector" if mechanism.runs else ""
    why = f"up to {mechanism.tokens} private tokens{tests} for each of any number of disjoint batches"
    forecast = _forecast(parameters, mechanism, budget, facts)
    return Plan(NAME, facts.unit, budget, (Charge(TOKENS, mechanism, why),), forecast)


def recommended_batches(expected_records: int, labels: int, batch_size: int) -> int:
    """Return the number of batches per label with ``batch_size`` texts on average, at least 1."""
    return max(1, expected_records // (labels * batch_size))


def fitted(parameters: PrivatePredictionParameters, expected_records: int, labels: int) -> dict[str, int]:
    """Return the number of batches if it is not given."""
    if parameters.batches is not None:
        return {}
    found = recommended_batches(expected_records, labels, parameters.resolved.batch_size)
    return {"batches": min(found, MOST_BATCHES // labels)}


def _forecast(
    parameters: PrivatePredictionParameters, mechanism: PrivateTokens, budget: Budget, facts: PublicFacts
) -> Facts:
    labels, size = facts.labels.size, mechanism.batch_size
    entries = [
        Fact("batch_size", size, "batch size (declared)"),
        Fact("clip_range", mechanism.clip, "clip range (nats)"),
        Fact("log_odds_per_record", mechanism.log_odds, "one record moves the log-odds of a token by at most"),
        Fact("tokens_per_batch", mechanism.tokens, "private tokens per batch"),
        Fact("texts_per_batch", mechanism.tokens / _TEXT_TOKENS, f"texts of {_TEXT_TOKENS} tokens, per batch"),
    ]
    tests, warnings = _test_costs(mechanism)
    batches = parameters.batches
    if facts.expected_records is not None:
        fitting = recommended_batches(facts.expected_records, labels, size)
        batches = batches or fitting
        mean = facts.expected_records / (labels * batches)
        entries += [
            Fact("recommended_batches", fitting, "batches per label, recommended for the declared corpus size"),
            Fact("texts_in_a_batch", mean, "texts in a batch, on average"),
        ]
        if not 0.5 <= mean / size <= 1.5:
            warnings.append(
                f"Batches hold {mean:.3g} texts on average, not the {size} by which their sums are divided: declare "
                "other --batches or another --batch-size."
            )
    if batches is not None:
        rows, texts = labels * batches * (size + 1), batches * mechanism.tokens / _TEXT_TOKENS
        read = rows * parameters.private_text_tokens
        entries += [
            Fact("batches", batches, "batches per label"),
            Fact("texts_per_label", texts, f"texts of {_TEXT_TOKENS} {'private ' if tests else ''}tokens per label"),
            Fact("private_model_tokens", read, "private model: tokens of private texts that it reads, at most"),
            Fact("private_model_work", rows * mechanism.tokens, "private model: private tokens times rows"),
        ]
    entries += tests + _other_sizes(parameters, mechanism, budget, facts)
    found = verdict(mechanism, labels, batches, facts.expected_records) if parameters.clip == "difference" else None
    return Facts(tuple(entries), tuple(warnings), found) + facts.rows(parameters.private_text_tokens)


def _test_costs(mechanism: PrivateTokens) -> tuple[list[Fact], list[str]]:
    """Return what the test for public tokens costs, and a warning if it costs more than it saves."""
    if mechanism.test is None:
        return [], []
    times = 1 + mechanism.rho_run / mechanism.rho_token
    facts = [
        Fact("sparse_vector_cost", times, "sparse vector: a private token costs, times"),
        Fact("sparse_vector_break_even", 1 / times, "sparse vector: helps if the share of private tokens is below"),
    ]
    if round(1 / times, 3) > _FEWEST_PRIVATE:
        return facts, []
    best = round(100 * _FEWEST_PRIVATE)
    return facts, [
        f"The sparse vector costs too much: each private token costs {times:.3g} times as much, so it helps only "
        f"if under {100 / times:.2g} % of the tokens are private, and its authors saw {best} % at best. "
        "Turn sparse_vector off, unless you want to compare."
    ]


def verdict(mechanism: PrivateTokens, labels: int, batches: int | None, records: int | None) -> Verdict:
    """Return the verdict, by how far a batch's texts can move a token's logit: less if they are fewer than the
    divisor."""
    texts = 0.0 if batches is None or records is None else batches * mechanism.batch_size / mechanism.clip
    return Verdict.of("predictions", texts=texts, least=1 / mechanism.clip, labels=labels, records=records)


def _other_sizes(
    parameters: PrivatePredictionParameters, mechanism: PrivateTokens, budget: Budget, facts: PublicFacts
) -> list[Fact]:
    """Return what other batch sizes would achieve with the same corpus, so that the user can choose one."""
    if facts.expected_records is None:
        return []
    shown = []
    for size in sorted({mechanism.batch_size // 4, mechanism.batch_size // 2, mechanism.batch_size * 2} - {0}):
        try:
            bought = mechanism_of(parameters.model_copy(update={"batch_size": size}), budget)
        except ConfigError:
            said = "nothing"
        else:
            batches = recommended_batches(facts.expected_records, facts.labels.size, size)
            texts = batches * bought.tokens / _TEXT_TOKENS
            what = f"{bought.tokens} private tokens each"
            if parameters.resolved.clip_range is None:
                what = f"clip range {bought.clip:.3g}"
            said = f"{batches} batches per label, {what}, {texts:.0f} texts per label"
        shown.append(Fact(f"with_batches_of_{size}", said, f"with batches of {size} instead"))
    return shown
