"""DP-SGD fine-tuning, the private half (Abadi et al. 2016, Algorithm 1).

W = the base model's adapters (or all its weights)
for each of T steps:
    sample    = each record (owner) with probability q                                  fresh for every step
    g_i       = gradient of the mean loss over text i's tokens, clipped to norm C       exact integers
    noisy     = sum of the g_i + N(0, sigma^2 C^2)                                      one step of the charge
    W         = AdamW(W, noisy / (q * declared size))                                   post-processing

Guarantee:
    Unit: a record; or an owner, of whose records (at most k are used, chosen by a keyed hash) a sampled one shows one,
    at random. Sample, noise and cost are one :class:`~understudy.privacy.gradients.DPSGD`; what a text adds to a step
    is stated in :class:`~understudy.methods.shared.queries.gradients.ClippedGradients`. The text decides how many of
    its own tokens are learnt; everything else of a step (shapes, divisor, learning rate, number of steps) is public.
    Checkpoints are sealed parts of the one charge: a run that was killed resumes from the last one, and the steps after
    it, which nobody saw, are sampled again under the same charge.
    Label counts are a separate sum (:class:`~understudy.methods.shared.queries.counts.LabelCounts`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import PrivacyError
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.base import Preparation, Released, ReleaseTools
from understudy.methods.batched_prompts import with_cells
from understudy.methods.dp_finetune.plan import (
    TRAINING,
    DPFinetuneParameters,
    checkpoint_ends,
    learning_rate,
    memory_of,
    work,
)
from understudy.methods.shared.decoding.prompting import LabelPrompts
from understudy.methods.shared.decoding.tuned import TunedModel
from understudy.methods.shared.queries.gradients import ClippedGradients, SampledRows, plain_sum
from understudy.methods.tuned.method import label_counts, model_to_tune, released
from understudy.models.machine import fits_memory, halved_to_fit, worker_count
from understudy.models.training import AdamW, TokenRow, measure_cost, require_separate_gradients
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.gradients import DPSGD, PaidSteps, Steps
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import Arrays
from understudy.privacy.verdict import Verdict
from understudy.schema.columns import Column

UNPROTECTED = "Gradients were neither clipped nor noisy: this is a yardstick of what privacy costs."
_ROWS = {"cpu": 8, "cuda": 32}
_EXPECTED_SHARE = 0.5  # share of a text's largest number of tokens, if its length is not known


@dataclass(frozen=True)
class Ready:
    """The prompts and the model to be tuned, prepared before anything is charged."""

    asked: LabelPrompts
    tuned: TunedModel
    rows: int
    """Number of texts whose gradients are computed at once; in a trial, as many as fit into memory."""


def prepare(parameters: DPFinetuneParameters, corpus: BoundedCorpus, plan: Plan, preparation: Preparation) -> Ready:
    """Load and try out the model before the charge. Raises ConfigError if prompts or records are invalid, and what
    :func:`try_out` raises."""
    asked, tuned = model_to_tune(parameters, preparation)
    found, work = try_out(Ready(asked, tuned, _ROWS[tuned.causal.device]), plan.mechanism(TRAINING), parameters)
    known = [work.verdict.sentence()] if work.verdict and parameters.private else []
    for line in [*plan.forecast.lines(), *(work.lines() if parameters.private else ()), *known]:
        preparation.say(line[:1].upper() + line[1:])
    return found


def try_out(found: Ready, mechanism: DPSGD, parameters: DPFinetuneParameters) -> tuple[Ready, Facts]:
    """Test that rows are independent, and measure on public text what training will take. Return ``found`` with as many
    rows at once as fit into memory, and the measures.

    Raises:
        PrivacyError: a text's gradient changes with the other texts of its block on this device, even one at a time.
        ConfigError: not even one text's gradient fits into memory.
    """

    def tried(most: int) -> tuple[Ready, Facts]:
        return halved_to_fit(
            most,
            lambda rows: _tried(replace(found, rows=rows), mechanism, parameters),
            problem="The gradient of one text does not fit into memory.",
            cure="Cut texts shorter (--private-text-tokens), or let fewer numbers learn (--learns, --lora-rank).",
        )

    try:
        return tried(found.rows)
    except PrivacyError:
        return tried(1)  # the only block


def _tried(found: Ready, mechanism: DPSGD, parameters: DPFinetuneParameters) -> tuple[Ready, Facts]:
    """Time one step of the release on this machine. Raises MemoryError, or torch's error, if memory is short."""
    trainable, model = found.tuned.trainable, found.tuned.causal
    expected = round(parameters.private_text_tokens * _EXPECTED_SHARE)
    model_bytes = sum(weight.nbytes for weight in model.network.parameters())
    workers = worker_count(model.device)
    trainable.load(trainable.start())
    one = measure_cost(trainable, found.tuned.shapes(1), target=found.tuned.tokens)
    if model.device == "cpu":
        most = model_bytes + memory_of(trainable.size, workers=workers, rows=found.rows, cost=one)
        if not fits_memory(most):
            raise MemoryError
    shapes = found.tuned.shapes(found.rows)
    require_separate_gradients(trainable, shapes)
    cost = measure_cost(trainable, shapes, target=expected)
    batch = mechanism.rate * parameters.declared
    at_once, memory = min(workers, max(1, round(batch / found.rows))), {"model_bytes": model_bytes, "rows": found.rows}
    return found, work(mechanism, batch, numbers=trainable.size, cost=cost, workers=at_once, **memory)


def release(parameters: DPFinetuneParameters, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
    """Tune the model. The baseline without privacy neither clips nor adds noise."""
    found: Ready = tools.prepared
    counts = label_counts(parameters, corpus, plan, tools)
    mechanism: DPSGD = plan.mechanism(TRAINING)
    training = Training(parameters, found, mechanism, tools.open(TRAINING), corpus, parameters.private, tools.columns)
    state: Arrays = {}
    first = 0
    for last in checkpoint_ends(mechanism.steps):
        state = tools.seal(f"{TRAINING}/{last}", partial(training.between, state, first, last)).arrays
        before = "" if training.reached == last else ", stored before"
        tools.say(f"Step {last} of {mechanism.steps}{before}.")
        tools.progress("steps", last, mechanism.steps)
        first = last
    check, notes = _noise_check(training, state), () if parameters.private else (UNPROTECTED,)
    return released(found.asked, found.tuned, state["weights"], counts, check, notes=notes)


@dataclass(repr=False)
class Training:
    """The training of one model between checkpoints."""

    parameters: DPFinetuneParameters
    found: Ready
    mechanism: DPSGD
    paid: PaidSteps
    corpus: BoundedCorpus
    private: bool
    columns: tuple[Column, ...] = ()
    reached: int = 0
    """Number of the last step that was taken here."""
    _units: list[list[TokenRow]] | None = None

    @property
    def divisor(self) -> float:
        """Return the expected batch size, which is public."""
        return self.mechanism.rate * self.parameters.declared

    def between(self, state: Arrays, first: int, last: int) -> Arrays:
        """Return the state after step ``last``, from that after step ``first``: the weights, and AdamW's state."""
        tuned = self.found.tuned
        if self._units is None:
            self._units = read_units(self.corpus, tuned, self.columns)
        trainable, steps = tuned.trainable, self.paid.between(first, last)
        query = ClippedGradients(trainable, tuned.shapes(self.found.rows), self.mechanism)
        rates = learning_rate(self.parameters, self.mechanism.steps)
        optimizer = AdamW(trainable.start(), rates, device=tuned.causal.device)
        if state:
            optimizer.restore(state)
        squares = []
        for _ in range(last - first):
            trainable.load(optimizer.weights)
            gradient = self._gradient(steps, query, self._units) / self.divisor
            squares.append(float(gradient @ gradient))
            optimizer.step(gradient)
        self.reached = last
        before = state.get("squares", np.zeros(0))
        return {**optimizer.state(), "squares": np.concatenate([before, squares])}

    def _gradient(self, steps: Steps, query: ClippedGradients, units: list[list[TokenRow]]) -> NDArray[np.float64]:
        sampled = np.flatnonzero(steps.sample(len(units))).tolist()
        rows = shown([units[number] for number in sampled], steps)
        if not self.private:
            steps.without_noise()
            return plain_sum(query, rows)
        return steps.noisy_sum(query, SampledRows(rows))


def shown(sampled: Sequence[Sequence[TokenRow]], steps: Steps) -> list[TokenRow]:
    """Choose one row of each sampled unit, at random if it has several."""
    chosen = steps.one_of(np.array([len(each) for each in sampled], dtype=np.int64))
    return [each[choice] for each, choice in zip(sampled, chosen.tolist(), strict=True)]


def read_units(corpus: BoundedCorpus, tuned: TunedModel, columns: Sequence[Column] = ()) -> list[list[TokenRow]]:
    """Read the token rows of every record or owner in one pass. Memory: 4 bytes per token and 150 per text. With typed
    columns, a text begins with the cells of its row. Private."""
    found: dict[int, list[TokenRow]] = {}
    for batch in corpus.batches():
        texts = with_cells(batch, columns if tuned.instructions.shape == "text" else ())
        for text, label, unit in zip(texts, batch.labels.tolist(), batch.units.tolist(), strict=True):
            found.setdefault(unit, []).append(tuned.row(text, label))
    return list(found.values())


def _noise_check(training: Training, state: Mapping[str, NDArray[Any]]) -> Facts:
    """Return the gradients' signal to noise, from released values only and thus free.

    The square of a noisy mean gradient is that of the mean gradient plus that of its noise, P times its variance.
    """
    mechanism, squares = training.mechanism, state["squares"]
    numbers = len(state["weights"])
    variance = (mechanism.noise_multiplier * mechanism.clipping_norm / training.divisor) ** 2 * training.paid.noisy
    signal = float(np.sqrt(max(0.0, float(squares.mean()) - numbers * variance))) / mechanism.clipping_norm
    noise = float(np.sqrt(numbers * variance)) / mechanism.clipping_norm
    unsure = float(np.sqrt(np.sqrt(2 * numbers / len(squares)) * variance)) / mechanism.clipping_norm
    entries = (
        Fact("mean_gradient", signal, "norm of a step's mean clipped gradient, estimated (clipping norms)"),
        Fact("gradient_noise", noise, "norm of the noise on it (clipping norms)"),
    )
    drowned = training.paid.noisy and signal < 2 * unsure
    known = Verdict.of("training", least=noise / math.sqrt(mechanism.steps))
    return Facts(entries, verdict=Verdict("noise", "training") if drowned else known)
