"""What a run would cost besides privacy: calls, tokens and money, from public numbers only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from understudy.config import RunConfig
from understudy.methods.registry import make_method, method_class
from understudy.privacy.plan import Plan
from understudy.privacy.secrets.budget import SecretBudget
from understudy.prompts.parameters import WritingParameters
from understudy.prompts.template import load_template
from understudy.run.planning import label_count, make_plan, require_language_model, wanted

_CHARACTERS_PER_TOKEN = 4.0


@dataclass(frozen=True)
class CallForecast:
    """What the language model of a run would be asked.

    Args:
        records: synthetic records.
        calls: of the language model; where repairs may be fewer (``at_most``), at most so many.
        input_tokens: at four characters per token.
        output_tokens: at most.
        money: at most, in the currency of the prices; None without prices.
    """

    records: int
    calls: int = 0
    at_most: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    money: float | None = None


@dataclass(frozen=True)
class Forecast:
    """A plan, what it comes to, and what a run would ask of its language model (None: no texts are to be written)."""

    plan: Plan
    calls: CallForecast | None

    @property
    def epsilon(self) -> float | None:
        """Of all charges together at the budget's delta; None where secrets are protected."""
        return None if isinstance(self.plan.budget, SecretBudget) else self.plan.total

    @property
    def posterior(self) -> float | None:
        """The highest posterior of all charges together at the budget's prior; None where no secrets are protected."""
        return self.plan.total if isinstance(self.plan.budget, SecretBudget) else None

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.plan.method,
            "unit": self.plan.unit.to_json(),
            "budget": self.plan.budget.to_json(),
            **({"epsilon": self.epsilon} if self.posterior is None else {"posterior": self.posterior}),
            "charges": [charge.to_json() for charge in self.plan.charges],
            "forecast": dict(self.plan.forecast),
            "generation": None if self.calls is None else asdict(self.calls),
        }


def forecast(config: RunConfig) -> Forecast:
    """The forecast of a configured run; it reads no private data.

    Raises:
        ConfigError: if the configuration cannot be run.
    """
    return Forecast(make_plan(config), _calls(config))


def _calls(config: RunConfig) -> CallForecast | None:
    if method_class(config.method).exports:
        return None  # the Release holds the texts
    generates = config.records is not None or config.records_per_label is not None
    require_language_model(config, releases=True, generates=generates)
    method, labels = make_method(config.method, config.method_parameters), label_count(config)
    if generates:
        counts = wanted(config, labels)
    elif method.asks_for_candidates:
        counts = [0] * labels  # the release asks by itself
    else:
        return None
    if config.llm == "none":
        return CallForecast(sum(counts))
    writing = config.part(WritingParameters)
    asks = method.asks(counts, writing, load_template(writing.document_type, file=writing.prompt))
    tokens_in = asks.calls * round(asks.characters / _CHARACTERS_PER_TOKEN)
    tokens_out = asks.calls * writing.max_tokens
    money = None
    if config.price_input is not None and config.price_output is not None:
        money = (tokens_in * config.price_input + tokens_out * config.price_output) / 1e6
    return CallForecast(sum(counts), asks.calls, asks.most, tokens_in, tokens_out, money)
