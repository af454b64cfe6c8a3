"""What a run would cost besides privacy: calls, tokens and money, from public numbers only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from understudy.config import RunConfig
from understudy.methods.registry import make_method, method_class
from understudy.privacy.plan import Plan
from understudy.privacy.secrets.budget import SecretBudget
from understudy.prompts.parameters import WritingParameters
from understudy.prompts.template import load_template
from understudy.run import label_count, make_plan, require_language_model, wanted

_CHARACTERS_PER_TOKEN = 4.0


@dataclass(frozen=True)
class Forecast:
    """A plan, what it comes to, and the language model calls that a run would make."""

    plan: Plan
    calls: Mapping[str, Any]

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
            "generation": dict(self.calls),
        }


def forecast(config: RunConfig) -> Forecast:
    """The forecast of a configured run; it reads no private data.

    Raises:
        ConfigError: if the configuration cannot be run.
    """
    return Forecast(make_plan(config), _calls(config))


def _calls(config: RunConfig) -> dict[str, Any]:
    if method_class(config.method).exports:
        return {}  # the Release holds the texts
    generates = config.records is not None or config.records_per_label is not None
    require_language_model(config, releases=True, generates=generates)
    method, labels = make_method(config.method, config.method_parameters), label_count(config)
    if generates:
        counts = wanted(config, labels)
    elif method.asks_for_candidates:
        counts = [0] * labels  # the release asks by itself
    else:
        return {}
    if config.llm == "none":
        return {"synthetic records": sum(counts), "language model calls": 0}
    writing: WritingParameters = config.part(WritingParameters)
    asks = method.asks(counts, writing, load_template(writing.document_type, file=writing.prompt))
    prompt_tokens = round(asks.characters / _CHARACTERS_PER_TOKEN)
    made: dict[str, Any] = {
        "synthetic records": sum(counts),
        "language model calls (at most)" if asks.most else "language model calls": asks.calls,
        "input tokens (about)": asks.calls * prompt_tokens,
        "output tokens (at most)": asks.calls * writing.max_tokens,
    }
    if config.price_input is not None and config.price_output is not None:
        tokens = (
            made["input tokens (about)"] * config.price_input + made["output tokens (at most)"] * config.price_output
        )
        made["money (at most, in the currency of the prices)"] = tokens / 1e6
    return made
