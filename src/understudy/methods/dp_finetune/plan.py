"""DP-SGD fine-tuning, before a private record is read: how many steps with how much noise the budget allows.

labels       noisy label counts, if asked for
training     T noisy sums of clipped gradients, each over its own Poisson sample
"""

from __future__ import annotations

import math
from typing import ClassVar

from pydantic import Field

from understudy.base.errors import ConfigError
from understudy.methods.facts import PublicFacts
from understudy.methods.shared.specs import planned_label_counts
from understudy.methods.tuned.model import LABEL_SHARE, LABELS, DeclaredSize, TunedParameters
from understudy.models.training import Cost, LearningRate
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.events import GaussianEvent
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.gradients import DPSGD, MOST_STEPS
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Charge, Plan, charges_of
from understudy.privacy.subsampled import subsampled_multiplier
from understudy.privacy.verdict import Verdict
from understudy.schema.labels import NOISY, declared_proportions

NAME, YARDSTICK = "dp-finetune", "nonprivate-finetune"
TRAINING = "training"
_BATCH, _STEPS = 256, 10
_CHECKPOINTS = 5
"""How many checkpoints the training stores, from which a killed run resumes."""
_CLIPPING_NORM = 1.0
"""L2 norm to which the gradient of each text is clipped (C)."""
_WARMUP = 0.1
"""Share of the steps over which the learning rate rises."""


class TrainingParameters(DeclaredSize):
    """How the model is trained; the noise is the least that the budget allows."""

    sampling_rate: float | None = Field(None, gt=0, le=1)
    """Probability with which each record is in a step's sample (q). Default: 256 of the declared records on average."""
    steps: int | None = Field(None, ge=1, le=MOST_STEPS)
    """Steps of training (T). Default: 10."""
    learning_rate: float = Field(5e-2, gt=0, le=1)
    """Learning rate of AdamW, at its highest."""


class DPFinetuneParameters(TunedParameters, TrainingParameters):
    """All parameters of DP-SGD fine-tuning."""

    from_writer: ClassVar[bool] = True
    private: ClassVar[bool] = True
    """Whether gradients are clipped and noise is added."""


def make_plan(parameters: DPFinetuneParameters, budget: Budget, facts: PublicFacts, *, name: str = NAME) -> Plan:
    """Return the plan of a release."""
    _ = declared_proportions(parameters.label_sizes, facts.labels.names)  # checks them
    charges = list[Charge]()
    others: tuple[GaussianEvent, ...] = ()
    if parameters.label_sizes == NOISY:
        multiplier = gaussian_split(budget, (LABEL_SHARE, 1 - LABEL_SHARE))[0]
        charges += charges_of({LABELS: planned_label_counts(facts.labels.size)}, (multiplier,))
        others = (GaussianEvent(multiplier),)
    mechanism = solved(parameters, budget, others)
    unit = "one record of each owner" if facts.unit.kind == "owner" else "each record"
    why = (
        f"{mechanism.steps} noisy sums of gradients, each clipped to norm {_CLIPPING_NORM:g}, over Poisson "
        f"samples ({unit} with probability {mechanism.rate:.6g})"
    )
    if not parameters.private:
        why = f"{mechanism.steps} sums of gradients, neither clipped nor noisy: the event is that of {NAME}"
    charges.append(Charge(TRAINING, mechanism, why))
    return Plan(name, facts.unit, budget, tuple(charges), _forecast(parameters, mechanism, facts), (FLOATING_POINT,))


FLOATING_POINT = (
    "The noise on gradients is sampled in floating point (from the operating system's entropy, rounded to the integer "
    "grid of the sums), not by an exact discrete sampler: the guarantee takes these samples as Gaussian."
)


def solved(parameters: TrainingParameters, budget: Budget, others: tuple[GaussianEvent, ...]) -> DPSGD:
    """Return the mechanism: rate, steps and the least noise that keeps within ``budget`` together with ``others``."""
    if budget.delta == 0:
        raise ConfigError("DP-SGD needs a delta: its noise is Gaussian.", "Give a delta such as 1e-6.")
    rate = min(1.0, _BATCH / parameters.declared) if parameters.sampling_rate is None else parameters.sampling_rate
    steps = parameters.steps or _STEPS
    return DPSGD(subsampled_multiplier(budget, rate=rate, count=steps, others=others), rate, steps, _CLIPPING_NORM)


def learning_rate(parameters: TrainingParameters, steps: int) -> LearningRate:
    """Return the learning rate of each of ``steps`` steps."""
    return LearningRate(parameters.learning_rate, steps, round(_WARMUP * steps))


def checkpoint_ends(steps: int) -> list[int]:
    """Return the steps after which the training is stored, evenly spaced; the last is the final step."""
    count = min(steps, _CHECKPOINTS)
    return [steps * (number + 1) // count for number in range(count)]


def _forecast(parameters: DPFinetuneParameters, mechanism: DPSGD, facts: PublicFacts) -> Facts:
    units, batch = f"{facts.unit.kind}s", mechanism.rate * parameters.declared
    entries = [
        Fact("declared_records", parameters.declared, f"{units} (as declared)"),
        Fact("sampling_rate", mechanism.rate, "sampling rate"),
        Fact("expected_batch", batch, f"expected batch size ({units} per step, the fixed divisor)"),
        Fact("steps", mechanism.steps, "steps"),
        Fact("epochs", mechanism.rate * mechanism.steps, f"times that each of the {units} is sampled, on average"),
        Fact("noise_multiplier", mechanism.noise_multiplier, "noise multiplier (clipping norms)"),
        Fact("noise_per_example", mechanism.noise_multiplier / batch, _PER_EXAMPLE),
    ]
    warnings = []
    if batch < _LEAST_BATCH:
        warnings.append(
            f"A step sees {batch:.3g} {units} on average, too few to average out the noise: raise --sampling-rate."
        )
    numbers = _NUMBERS * parameters.lora_rank
    drowned = _noise_to_signal(mechanism.noise_multiplier, mechanism.steps, batch, numbers)
    known = parameters.private and parameters.learns == "lora"
    found = Verdict.of("training", least=drowned) if known else None
    return Facts(tuple(entries), tuple(warnings), found) + facts.rows(parameters.private_text_tokens)


_LEAST_BATCH = 8
_PER_EXAMPLE = "noise on each number of a step's mean gradient (std, clipping norms)"
_NUMBERS = 23_040
"""Numbers that learn in the built-in model per rank of its adapters; a plan assumes the built-in model."""


def _noise_to_signal(noise_multiplier: float, steps: int, batch: float, numbers: int) -> float:
    """Return the noise of T steps, sqrt(T) sqrt(P) sigma / batch, against the largest possible signal: T clipping
    norms, if all gradients point one way."""
    return noise_multiplier * math.sqrt(numbers / steps) / batch


def memory_of(numbers: int, *, workers: int, rows: int, cost: Cost) -> int:
    """Return the bytes of memory that training takes besides the model.

    Per number that learns: 12 for each row of a block (its gradient, and the float64 copy whose norm is taken), 24 for
    each worker (its integer sum and two temporaries), and 64 in all (the noisy sum as it is made, and the optimizer).
    """
    return workers * (rows * (cost.bytes_per_row + 12 * numbers) + 24 * numbers) + 64 * numbers


def work(
    mechanism: DPSGD, batch: float, *, numbers: int, model_bytes: int, cost: Cost, workers: int, rows: int
) -> Facts:
    """Return the time and memory that training takes on this machine, and its noise-to-signal ratio. ``numbers`` values
    learn; ``cost`` was measured on public rows; ``workers`` blocks of ``rows`` are computed at once."""
    drowned = _noise_to_signal(mechanism.noise_multiplier, mechanism.steps, batch, numbers)
    seconds = float(f"{mechanism.steps * batch * cost.seconds / workers:.1g}")
    memory = model_bytes + memory_of(numbers, workers=workers, rows=rows, cost=cost)
    entries = (
        Fact("learning_numbers", numbers, "numbers that learn"),
        Fact("noise_to_signal", drowned, "noise of all steps against the largest signal (norms, all gradients alike)"),
        Fact("training_seconds", seconds, "training on this machine (seconds, about; measured on public text)"),
        Fact("training_gigabytes", memory / 1e9, "memory of the training (GB, about)"),
    )
    return Facts(entries, verdict=Verdict.of("training", least=drowned))
