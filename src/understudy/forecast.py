"""What a run would cost besides privacy: calls, tokens and money, from public numbers only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from understudy.config import RunConfig
from understudy.generation.parameters import WritingParameters
from understudy.generation.template import load_template
from understudy.privacy.plan import Plan
from understudy.privacy.secrets.budget import SecretBudget
from understudy.run import label_count, make_plan, wanted

_CHARACTERS_PER_TOKEN = 4.0
_A_PHRASE = "keyphrase"


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
    if config.records is None and config.records_per_label is None:
        return {}
    records = sum(wanted(config, label_count(config)))
    writing: WritingParameters = config.part(WritingParameters)
    if config.llm == "none":
        return {"synthetic records": records, "language model calls": 0}
    template = load_template(writing.document_type, file=writing.prompt)
    length = int(config.method_parameters.get("length", 10))
    phrases = [_A_PHRASE] * min(length, writing.prompt_terms or length)
    messages = template.messages(phrases, examples=template.examples[: writing.examples_per_prompt])
    prompt_tokens = round(sum(len(message.content) for message in messages) / _CHARACTERS_PER_TOKEN)
    calls = records * (writing.samples + writing.repair)
    made: dict[str, Any] = {
        "synthetic records": records,
        "language model calls (at most)" if writing.repair else "language model calls": calls,
        "input tokens (about)": calls * prompt_tokens,
        "output tokens (at most)": calls * writing.max_tokens,
    }
    if config.price_input is not None and config.price_output is not None:
        tokens = (
            made["input tokens (about)"] * config.price_input + made["output tokens (at most)"] * config.price_output
        )
        made["money (at most, in the currency of the prices)"] = tokens / 1e6
    return made
