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
    Checkpoints are sealed parts of the one charge: a run that was killed goes on from the last one, and the steps after
    it, which nobody saw, are sampled anew under the same charge.
    Label counts are a sum of their own (:class:`~understudy.methods.shared.queries.counts.LabelCounts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.columns import Column, in_words
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.base import Released, ReleaseTools, needed
from understudy.methods.dp_finetune.plan import (
    LABELS,
    TRAINING,
    DPFinetuneParameters,
    checkpoint_ends,
    learning_rate,
    part_name,
)
from understudy.methods.dp_finetune.tuning import Ready
from understudy.methods.shared.decoding.tuned import TunedModel
from understudy.methods.shared.queries.gradients import ClippedGradients, SampledRows, plain_sum
from understudy.methods.tuned.counts import label_counts
from understudy.methods.tuned.model import SCHEMA, bounded
from understudy.models.training import AdamW, Shapes, TokenRow
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.gradients import DPSGD, PaidSteps, Steps
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import Arrays

UNPROTECTED = "Gradients were neither clipped nor noisy: this is a yardstick of what privacy costs."


def release(
    parameters: DPFinetuneParameters, corpus: BoundedCorpus, plan: Plan, *, tools: ReleaseTools, private: bool = True
) -> Released:
    """Tune the model; ``private`` is False for the yardstick, which neither clips nor adds noise."""
    found: Ready = tools.prepared
    counts = label_counts(parameters.label_sizes, LABELS, corpus, tools)
    mechanism: DPSGD = plan.mechanism(TRAINING)
    training = Training(
        parameters,
        found.tuned,
        found.tuned.shapes(found.rows),
        mechanism,
        tools.open(TRAINING),
        corpus,
        private,
        tools.columns,
    )
    state: Arrays = {}
    first = 0
    for last in checkpoint_ends(mechanism.steps):
        state = tools.seal(part_name(last), partial(training.between, state, first, last)).arrays
        before = "" if training.reached == last else ", stored before"
        tools.say(f"Step {last} of {mechanism.steps}{before}.")
        tools.progress("steps", last, mechanism.steps)
        first = last
    schema = found.asked.schema
    instructions = found.tuned.instructions
    return Released(
        {**bounded(found.tuned.trainable.named(state["weights"])), **instructions.to_arrays(), **counts},
        public_inputs=found.asked.public_inputs(
            needed(tools.prompts).template.document_type, schema_source="a schema of your own"
        ),
        noise_check=_noise_check(training, state),
        notes=() if private else (UNPROTECTED,),
        strings={**instructions.to_strings(), **({} if schema is None else {SCHEMA: [schema.text]})},
    )


@dataclass(repr=False)
class Training:
    """The training of one model, from checkpoint to checkpoint."""

    parameters: DPFinetuneParameters
    tuned: TunedModel
    shapes: Shapes
    mechanism: DPSGD
    paid: PaidSteps
    corpus: BoundedCorpus
    private: bool
    columns: tuple[Column, ...] = ()
    reached: int = 0
    """The last step that was taken here."""
    _units: PrivateUnits | None = field(default=None)

    @property
    def divisor(self) -> float:
        """The expected batch size: public."""
        return self.mechanism.rate * self.parameters.declared

    def between(self, state: Arrays, first: int, last: int) -> Arrays:
        """The state after step ``last``, from that after step ``first``: the weights, and what AdamW keeps."""
        if self._units is None:
            self._units = read_units(self.corpus, self.tuned, self.columns)
        trainable, steps = self.tuned.trainable, self.paid.between(first, last)
        query = ClippedGradients(trainable, self.shapes, self.mechanism)
        optimizer = AdamW(
            trainable.start(),
            learning_rate(self.parameters, self.mechanism.steps),
            device=self.tuned.causal.device,
        )
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

    def _gradient(self, steps: Steps, query: ClippedGradients, units: PrivateUnits) -> NDArray[np.float64]:
        """The noisy sum of one step."""
        rows = units.shown(np.flatnonzero(steps.sample(len(units))), steps)
        if not self.private:
            steps.without_noise()
            return plain_sum(query, rows)
        return steps.noisy_sum(query, SampledRows(rows))


@dataclass(frozen=True, repr=False)
class PrivateUnits:
    """The rows of every record or owner. Private; its ``repr`` shows nothing. Memory: 4 bytes per token, and about 150
    per text."""

    rows: Sequence[Sequence[TokenRow]]

    def __len__(self) -> int:
        return len(self.rows)

    def shown(self, numbers: NDArray[np.intp], steps: Steps) -> list[TokenRow]:
        """One row of each of the units ``numbers``, at random where there are several."""
        sampled = [self.rows[number] for number in numbers.tolist()]
        chosen = steps.one_of(np.array([len(each) for each in sampled], dtype=np.int64))
        return [each[choice] for each, choice in zip(sampled, chosen.tolist(), strict=True)]


def read_units(corpus: BoundedCorpus, tuned: TunedModel, columns: Sequence[Column] = ()) -> PrivateUnits:
    """One pass over the private records. A text begins with the cells of its row, where there are typed columns."""
    found: dict[int, list[TokenRow]] = {}
    for batch in corpus.batches():
        texts = batch.texts
        if columns and batch.cells is not None and tuned.instructions.shape == "text":
            texts = [
                f"{in_words(columns, cells)}\n{text}" for cells, text in zip(batch.cells.tolist(), texts, strict=True)
            ]
        for text, label, unit in zip(texts, batch.labels.tolist(), batch.units.tolist(), strict=True):
            found.setdefault(unit, []).append(tuned.row(text, label))
    return PrivateUnits(list(found.values()))


def _noise_check(training: Training, state: Mapping[str, NDArray[Any]]) -> Facts:
    """How far the gradients stood above their noise: from what was released, so for free.

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
    warning = (
        "The gradients hardly stand out from their noise, so the model has learnt little. Fewer records than declared "
        "can be why; larger samples (--sampling-rate) help, more records, or fewer numbers that learn."
    )
    return Facts(entries, (warning,) if drowned else ())
