"""The costs of a run other than privacy: calls, tokens and money, from public numbers only."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from understudy.base.errors import in_keywords
from understudy.base.plots import bars
from understudy.methods.base import Method
from understudy.models.presets import BATCH_HOURS
from understudy.privacy.events import budget_shares
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import SecretBudget
from understudy.privacy.plan import Plan
from understudy.run.job import Job
from understudy.run.parts import Chat, Texts, Wanted
from understudy.run.settings import RunConfig
from understudy.schema.labels import LabelSet

_CHARACTERS_PER_TOKEN = 4.0


@dataclass(frozen=True, repr=False)
class Forecast:
    """A plan, its total cost, and the language model calls that a run would make."""

    plan: Plan
    calls: Facts

    @property
    def epsilon(self) -> float | None:
        """Return epsilon of all charges together at the budget's delta; None if secrets are protected."""
        return None if isinstance(self.plan.budget, SecretBudget) else self.plan.total

    @property
    def posterior(self) -> float | None:
        """Return the highest posterior of all charges together at the budget's prior; None without secrets."""
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
        }

    def plot(self, axes: Any = None) -> Any:
        """Draw the share of the privacy budget that each release of the run uses, with matplotlib.

        Args:
            axes: a ``matplotlib.axes.Axes`` to draw on. None: those of a new figure.

        Returns:
            The axes.

        Raises ConfigError if matplotlib is not installed.
        """
        charges = self.plan.charges
        shares = budget_shares([charge.event for charge in charges])
        percent = [None if share is None else 100 * share for share in shares]
        title = f"{self.plan.method}: percent of {self.plan.budget} that each release uses"
        return bars([charge.name for charge in charges], {"share": percent}, title=title, axes=axes)

    def __repr__(self) -> str:
        return f"<Plan of {self.plan.method}: {self.plan.budget}, protecting {self.plan.unit.describe()}>"

    def __str__(self) -> str:
        """Return the text that ``understudy plan`` prints."""
        return in_keywords(self.words)

    @property
    def words(self) -> str:
        """Return the forecast in words, with the names of flags."""
        plan = self.plan
        bought = [line for facts in (plan.forecast, self.calls) for line in facts.lines()]
        warned = [line for line in bought if line.startswith("Warning: ")]
        lines = [
            f"Method {plan.method}, budget {plan.budget}, protecting {plan.unit.describe()}.",
            *filter(None, [plan.usefulness, *warned]),
            "",
            "Charges, in order:",
            *(f"  {charge.name}: {charge.why} ({charge.event})" for charge in plan.charges),
            f"  together: {_together(plan)}",
            "",
            "What the budget buys:",
            *(f"  {line}" for line in bought if line not in warned),
        ]
        return "\n".join(lines)


def _together(plan: Plan) -> str:
    if isinstance(plan.budget, SecretBudget):
        return f"posterior {plan.total:.6g} at prior {float(plan.budget.prior):g}"
    return f"epsilon {plan.total:.6g} at delta {float(plan.budget.delta):g}"


def forecast(config: RunConfig) -> Forecast:
    """Return the forecast of a configured run; read no private data, and load no model."""
    job = Job(config)
    plan = job.plan()
    entries = [Fact(name, line, "decided") for name, line in job.decisions(plan).items()]
    warned = (*plan.forecast.warnings, *job.warnings)
    bought = replace(plan.forecast, entries=(*plan.forecast.entries, *entries), warnings=warned)
    recommending = replace(plan, forecast=bought)
    made = math.prod(each.made_each(job.wanted, job.method) for each in job.additions)
    return Forecast(recommending, _calls(job.method, job.wanted, job.chat, job.texts, job.label_set, made))


def _calls(method: Method, wanted: Wanted, chat: Chat, texts: Texts, labels: LabelSet, made: int) -> Facts:
    """Return the calls of a language model if ``made`` texts are written for each wanted text."""
    if method.needs.generation_llm == "never" or not (wanted.said or method.needs.candidates):
        return Facts()  # the Release contains the texts, or none are wanted
    counts = wanted.counts(labels.size) if wanted.said else [0] * labels.size  # the release step makes calls, too
    records = Fact("records", sum(counts), "synthetic records")
    if chat.llm == "none":
        return Facts((records, Fact("calls", 0, "language model calls")))
    counts = [count * made for count in counts]
    parameters = texts.parameters.around_one_seed() if chat.trained else texts.parameters
    estimate = method.estimate_calls(counts, parameters, texts.template)
    tokens_in = estimate.calls * round(estimate.characters / _CHARACTERS_PER_TOKEN)
    tokens_out = estimate.calls * texts.parameters.max_tokens
    entries = [
        records,
        Fact("calls", estimate.calls, f"language model calls{' (at most)' if estimate.most else ''}"),
        Fact("input_tokens", tokens_in, "input tokens (about)"),
        Fact("output_tokens", tokens_out, "output tokens (at most)"),
    ]
    halved = ", halved for batches" if chat.llm_batch else ""
    if chat.price_input is not None and chat.price_output is not None:
        money = (tokens_in * chat.price_input + tokens_out * chat.price_output) / 1e6
        entries.append(Fact("money", money, f"money (at most, in the currency of the prices{halved})"))
    if not chat.llm_batch:
        return Facts(tuple(entries))
    hours, each = chat.in_a_row * BATCH_HOURS, f"at most {BATCH_HOURS} for each in a row"
    entries.append(Fact("batch_hours", hours, f"hours to wait for batches ({each})"))
    return Facts(tuple(entries), () if chat.in_a_row == 1 else (chat.waiting,))
