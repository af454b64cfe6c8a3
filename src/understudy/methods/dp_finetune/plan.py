"""DP-SGD fine-tuning, before a private record is read: how many steps with how much noise the budget buys.

labels       noisy label counts, if asked for
training     T noisy sums of clipped gradients, each over a Poisson sample of its own
"""

from __future__ import annotations

import math

from pydantic import Field

from understudy.base.errors import ConfigError
from understudy.base.labels import NOISY, UNIFORM, declared_proportions
from understudy.methods.public import PublicFacts
from understudy.methods.tuned.model import DeclaredSize, TunedParameters
from understudy.models.training import Cost, Decay, LearningRate
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.events import GaussianEvent
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.gradients import DPSGD, MOST_STEPS, Schedule, noise_within, rate_within, steps_within
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import NoisySum, Sensitivity
from understudy.privacy.plan import Charge, Plan

NAME = "dp-finetune"
LABELS, TRAINING = "labels", "training"
_BATCH, _STEPS = 256, 10


class TrainingParameters(DeclaredSize):
    """How the model is trained: with the budget, any two of rate, steps, epochs and noise give the others."""

    sampling_rate: float | None = Field(None, gt=0, le=1)
    """Probability with which each record is in a step's sample (q). Default: 256 of the declared records on average."""
    steps: int | None = Field(None, ge=1, le=MOST_STEPS)
    """Steps of training (T). Default: 10."""
    epochs: float | None = Field(None, gt=0, le=1e6)
    """How often each record is sampled on average (q T), in place of one of these."""
    noise_multiplier: float | None = Field(None, gt=0, le=1e6)
    """Noise of a step in clipping norms (sigma). Default: the least that the budget allows."""
    clipping_norm: float = Field(1.0, ge=1e-6, le=1e6)
    """L2 norm to which the gradient of each text is clipped (C)."""
    learning_rate: float = Field(5e-2, gt=0, le=1)
    """Learning rate of AdamW, at its highest."""
    warmup: float = Field(0.1, ge=0, lt=1)
    """Share of the steps over which the learning rate rises."""
    decay: Decay = "linear"
    """Whether the learning rate then falls to 0 in a line, or stays (``constant``)."""
    weight_decay: float = Field(0.0, ge=0, le=1)
    """Decoupled weight decay of AdamW."""
    checkpoints: int = Field(5, ge=1, le=1000)
    """How many times the training is stored, so that a killed run goes on from there."""
    rows_at_once: int | None = Field(None, ge=1, le=65_536)
    """Texts whose gradients are computed at once. It changes no result. Default: 8, or 32 on a GPU."""


class DPFinetuneParameters(TunedParameters, TrainingParameters):
    """All parameters of DP-SGD fine-tuning."""

    label_sizes: str = UNIFORM
    """How ``--records`` are shared out over labels: ``uniform``, declared proportions ``A=3,B=1``, or ``noisy`` counts
    (they cost)."""
    label_share: float = Field(0.03, gt=0, lt=1)
    """Share of mu^2 that noisy label counts get."""


def make_plan(parameters: DPFinetuneParameters, budget: Budget, facts: PublicFacts, *, name: str = NAME) -> Plan:
    """The plan of a release.

    Raises:
        ConfigError: if the size is not declared, the label proportions do not fit the labels, rate, steps, epochs and
            noise contradict each other or the budget, or the budget is out of range.
    """
    declared_proportions(parameters.label_sizes, facts.labels.names)
    charges = []
    others: tuple[GaussianEvent, ...] = ()
    if parameters.label_sizes == NOISY:
        multiplier = gaussian_split(budget, (parameters.label_share, 1 - parameters.label_share))[0]
        counts = NoisySum("gaussian", multiplier, Sensitivity.of_counts(1), (facts.labels.size,))
        charges.append(Charge(LABELS, counts, f"noisy counts of the records of {facts.labels.size} label(s)"))
        others = (GaussianEvent(multiplier),)
    schedule = solved(parameters, budget, others)
    mechanism = DPSGD(schedule.noise_multiplier, schedule.rate, schedule.steps, parameters.clipping_norm)
    unit = "one record of each owner" if facts.unit.kind == "owner" else "each record"
    why = (
        f"{schedule.steps} noisy sums of gradients, each clipped to norm {parameters.clipping_norm:g}, over Poisson "
        f"samples ({unit} with probability {schedule.rate:.6g})"
    )
    if name != NAME:
        why = f"{schedule.steps} sums of gradients, neither clipped nor noisy: the event is that of {NAME}"
    charges.append(Charge(TRAINING, mechanism, why))
    return Plan(name, facts.unit, budget, tuple(charges), _forecast(parameters, schedule, facts), (FLOATING_POINT,))


FLOATING_POINT = (
    "The noise on gradients is sampled in floating point (from the operating system's entropy, rounded to the integer "
    "grid of the sums), not by an exact discrete sampler: the guarantee takes these samples as Gaussian."
)


def solved(parameters: TrainingParameters, budget: Budget, others: tuple[GaussianEvent, ...]) -> Schedule:
    """Rate, steps and noise that spend ``budget`` beside ``others``: what is not given follows from what is.

    Raises ConfigError if there is no such schedule, or too much is given.
    """
    if budget.delta == 0:
        raise ConfigError("DP-SGD needs a delta: its noise is Gaussian.", "Give a delta such as 1e-6.")
    rate, steps, epochs = parameters.sampling_rate, parameters.steps, parameters.epochs
    noise = parameters.noise_multiplier
    if None not in (rate, steps, epochs):
        raise ConfigError(
            "Sampling rate, steps and epochs are all given, and two of them give the third.", "Leave one out."
        )
    if rate is None and sum(each is not None for each in (steps, epochs, noise)) < 2:
        rate = min(1.0, _BATCH / parameters.declared)
    if steps is None and epochs is None and noise is None:
        steps = _STEPS
    if epochs is not None and rate is not None:
        steps = max(1, round(epochs / rate))
    elif epochs is not None and steps is not None:
        rate = epochs / steps
    if steps is not None and steps > MOST_STEPS:
        raise ConfigError(f"{steps} steps are asked for, and {MOST_STEPS} are the most.", "Sample more per step.")
    if rate is not None and rate > 1:
        raise ConfigError(
            f"{epochs:g} epochs in {steps} steps would sample each record with probability {rate:g}.",
            "Give fewer --epochs or more --steps.",
        )
    found: Schedule | None
    if noise is None:
        assert rate is not None, "it has a default where it is not solved for"
        assert steps is not None, "likewise"
        return noise_within(budget, rate=rate, steps=steps, others=others)
    if rate is not None and steps is not None:
        found = Schedule(noise, rate, steps)
        least = noise_within(budget, rate=rate, steps=steps, others=others).noise_multiplier
        if noise < least:
            raise ConfigError(
                f"With noise multiplier {noise:g}, {steps} steps at rate {rate:g} cost more than {budget}.",
                f"The least that does not is {least:.4g}: leave --noise-multiplier out, or one of the others.",
            )
        return found
    if rate is not None:
        found = steps_within(budget, rate=rate, noise_multiplier=noise, others=others)
    else:
        found = rate_within(budget, noise_multiplier=noise, steps=steps, epochs=epochs, others=others)
    if found is None:
        raise ConfigError(
            f"With noise multiplier {noise:g} not one step keeps within {budget}.",
            "Give more noise, or leave --noise-multiplier out.",
        )
    return found


def learning_rate(parameters: TrainingParameters, steps: int) -> LearningRate:
    """Of each of ``steps`` steps."""
    return LearningRate(parameters.learning_rate, steps, round(parameters.warmup * steps), parameters.decay)


def checkpoint_ends(steps: int, checkpoints: int) -> list[int]:
    """After which steps the training is stored: as evenly as may be, the last one at the end."""
    count = min(steps, checkpoints)
    return [steps * (number + 1) // count for number in range(count)]


def part_name(last: int) -> str:
    """The part of the charge that is the training up to step ``last``."""
    return f"{TRAINING}/{last}"


def _forecast(parameters: DPFinetuneParameters, schedule: Schedule, facts: PublicFacts) -> Facts:
    units, batch = f"{facts.unit.kind}s", schedule.rate * parameters.declared
    entries = [
        Fact("declared_records", parameters.declared, f"{units} (as declared)"),
        Fact("sampling_rate", schedule.rate, "sampling rate"),
        Fact("expected_batch", batch, f"expected batch size ({units} per step, the fixed divisor)"),
        Fact("steps", schedule.steps, "steps"),
        Fact("epochs", schedule.epochs, f"times that each of the {units} is sampled, on average"),
        Fact("noise_multiplier", schedule.noise_multiplier, "noise multiplier (clipping norms)"),
        Fact(
            "noise_per_example",
            schedule.noise_multiplier / batch,
            "noise on each number of a step's mean gradient (std, clipping norms)",
        ),
    ]
    warnings = []
    if batch < _LEAST_BATCH:
        warnings.append(
            f"A step sees {batch:.3g} {units} on average, and the noise is made for one: declare a higher "
            "--sampling-rate."
        )
    return Facts(tuple(entries), tuple(warnings)) + facts.rows(parameters.private_text_tokens)


_LEAST_BATCH = 8


def memory_of(numbers: int, *, workers: int, rows: int, cost: Cost) -> int:
    """Bytes that training takes besides the model: what backward passes keep, rows' gradients, sums and optimizer."""
    return workers * (rows * (cost.bytes_per_row + 12 * numbers) + 24 * numbers) + 64 * numbers


def work(
    mechanism: DPSGD, batch: float, *, numbers: int, model_bytes: int, cost: Cost, workers: int, rows: int
) -> Facts:
    """What training costs on this machine, and how far its signal stands above the noise, once the model is known.

    Args:
        batch: expected.
        numbers: that learn (P).
        model_bytes: of the weights in memory.
        cost: measured on public rows.
        workers: blocks computed at once.
        rows: of a block.

    The signal is at most one clipping norm per step, if all gradients point one way; the noise of T steps grows with
    sqrt(T) sqrt(P) sigma / batch.
    """
    drowned = mechanism.noise_multiplier * math.sqrt(numbers / mechanism.steps) / batch
    seconds = mechanism.steps * batch * cost.seconds / workers
    memory = model_bytes + memory_of(numbers, workers=workers, rows=rows, cost=cost)
    seconds = float(f"{seconds:.1g}")
    entries = (
        Fact("learning_numbers", numbers, "numbers that learn"),
        Fact("noise_to_signal", drowned, "noise of all steps against the largest signal (norms, all gradients alike)"),
        Fact("training_seconds", seconds, "training on this machine (seconds, about; measured on public text)"),
        Fact("training_gigabytes", memory / 1e9, "memory of the training (GB, about)"),
    )
    warning = (
        "At the declared size the noise of training outweighs the largest signal there can be: the model will hardly "
        "learn. Let fewer numbers learn (--lora-rank, --lora-targets, --lora-layers), sample more records per step "
        "(--sampling-rate), or spend more epsilon."
    )
    return Facts(entries, (warning,) if drowned > 1 else ())
