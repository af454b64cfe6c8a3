"""What a run would cost besides privacy: calls, tokens and money, from public numbers only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from understudy.base.errors import ModelError
from understudy.base.notebook import bullets, card, paragraph, table
from understudy.methods.base import Method, Preparation
from understudy.methods.registry import make_method, method_class
from understudy.methods.shared.guide.plan import GUIDE, recommendation
from understudy.models.presets import BATCH_DISCOUNT, BATCH_HOURS
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.plan import Plan
from understudy.privacy.secrets.budget import SecretBudget
from understudy.run.generating import load_private_model_of, template_of
from understudy.run.guiding import candidates
from understudy.run.planning import (
    batches_in_a_row,
    declared_label_set,
    make_plan,
    require_batches,
    require_language_model,
    waiting_in_a_row,
    wanted,
    weak_promises,
)
from understudy.run.settings import RunConfig
from understudy.text.prompts.parameters import WritingParameters
from understudy.text.prompts.template import Prompts

_CHARACTERS_PER_TOKEN = 4.0


@dataclass(frozen=True)
class Forecast:
    """A plan, what it comes to, and the language model calls that a run would make."""

    plan: Plan
    calls: Facts
    work: Facts = field(default_factory=Facts)
    """What the release would take on this machine, of methods that train."""

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
            "forecast": self.plan.forecast.to_json(),
            "generation": self.calls.to_json(),
            "work": self.work.to_json(),
        }

    def _repr_html_(self) -> str:
        protected = f"Budget {self.plan.budget}, protecting {self.plan.unit.describe()}. No private record was read."
        charges = [(charge.name, charge.why, charge.event) for charge in self.plan.charges]
        buys = [line for facts in (self.plan.forecast, self.work, self.calls) for line in facts.lines()]
        return card(
            f"Plan of {self.plan.method}",
            paragraph(protected),
            table(("charge", "for", "event"), charges),
            paragraph("What the budget buys:"),
            bullets(buys),
        )


def forecast(config: RunConfig, *, measured: bool = True) -> Forecast:
    """The forecast of a configured run; it reads no private data.

    Args:
        measured: whether methods that train are measured on this machine, which loads their model and takes a while.

    Raises:
        ConfigError: if the configuration cannot be run.
    """
    plan = make_plan(config)
    return Forecast(_with_recommendations(config, plan), _calls(config), _work(config, plan) if measured else Facts())


def _with_recommendations(config: RunConfig, plan: Plan) -> Plan:
    """The plan with settings that public facts speak for, and a warning of one that they speak against."""
    entries = [*_recommended_guide(config, plan), *_recommended_stop_words(config)]
    warned = (*plan.forecast.warnings, *weak_promises(config, plan.budget))
    return replace(plan, forecast=Facts((*plan.forecast.entries, *entries), warned))


def _recommended_guide(config: RunConfig, plan: Plan) -> tuple[Fact, ...]:
    """The share that a guide should have, of runs without one."""
    budget, expected = plan.budget, config.expected_records
    if expected is None or isinstance(budget, SecretBudget) or not budget.delta:
        return ()
    if any(charge.name == GUIDE for charge in plan.charges):
        return ()
    return recommendation(budget, labels=declared_label_set(config).size, expected_records=expected).entries


def _recommended_stop_words(config: RunConfig) -> tuple[Fact, ...]:
    """``none`` for questions, which "who", "when" and "how many" tell apart, where a method would leave them out."""
    own = make_method(config.method, config.method_parameters).dump()
    if "question" not in config.document_type.lower() or own.get("stop_words", "none") is not None:
        return ()
    return (Fact("recommended_stop_words", "none", "recommended for questions (--stop-words)"),)


def _work(config: RunConfig, plan: Plan) -> Facts:
    """Measured with the model loaded, where it is on this machine; nothing of methods that do not train."""
    method = make_method(config.method, config.method_parameters)
    if type(method).forecast_work is Method.forecast_work:
        return Facts()
    writing = config.part(WritingParameters)
    template = template_of(writing, config.form)
    try:
        model = load_private_model_of(config)
    except ModelError as error:
        return Facts((), (f"Time and memory of the training are not measured. {error.problem}",))
    preparation = Preparation(
        labels=declared_label_set(config),
        seed=config.seed,
        model=model,
        prompts=Prompts(writing, template, form=config.form),
        record_columns=tuple(config.record_columns),
    )
    return method.forecast_work(plan, preparation)


def _calls(config: RunConfig) -> Facts:
    if method_class(config.method).needs.generation_llm == "never":
        return Facts()  # the Release holds the texts
    generates = config.records is not None or config.records_per_label is not None
    require_language_model(config, releases=True, generates=generates)
    method, labels = make_method(config.method, config.method_parameters), declared_label_set(config).size
    if generates:
        counts = wanted(config, labels)
    elif method.needs.candidates:
        counts = [0] * labels  # the release asks by itself
    else:
        return Facts()
    records = Fact("records", sum(counts), "synthetic records")
    times = candidates(config, method)
    counts = [count * times for count in counts]
    if config.llm == "none":
        return Facts((records, Fact("calls", 0, "language model calls")))
    writing = config.part(WritingParameters)
    template = template_of(writing, config.form)
    estimate = method.estimate_calls(counts, writing, template)
    tokens_in = estimate.calls * round(estimate.characters / _CHARACTERS_PER_TOKEN)
    tokens_out = estimate.calls * writing.max_tokens
    require_batches(config)
    entries = [
        records,
        Fact("calls", estimate.calls, f"language model calls{' (at most)' if estimate.most else ''}"),
        Fact("input_tokens", tokens_in, "input tokens (about)"),
        Fact("output_tokens", tokens_out, "output tokens (at most)"),
    ]
    if config.price_input is not None and config.price_output is not None:
        money = (tokens_in * config.price_input + tokens_out * config.price_output) / 1e6
        title = "money (at most, in the currency of the prices)"
        if config.llm_batch:
            money, title = (
                BATCH_DISCOUNT * money,
                "money (at most, in the currency of the prices, halved for batches)",
            )
        entries.append(Fact("money", money, title))
    if not config.llm_batch:
        return Facts(tuple(entries))
    row = batches_in_a_row(config)
    entries.append(
        Fact("batch_hours", row * BATCH_HOURS, f"hours to wait for batches (at most {BATCH_HOURS} for each in a row)")
    )
    return Facts(tuple(entries), () if row == 1 else (waiting_in_a_row(row),))
