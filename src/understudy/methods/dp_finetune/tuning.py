"""What is made and tried before the charge: the prompts, and the model that will learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from understudy.base.errors import PrivacyError
from understudy.methods.dp_finetune.plan import DPFinetuneParameters, memory_of, work
from understudy.methods.shared.decoding.prompting import LabelPrompts
from understudy.methods.shared.decoding.tuned import TunedModel, build_instructions
from understudy.methods.tuned.model import model_to_tune
from understudy.models.causal import CausalModel
from understudy.models.machine import fits_memory, halved_to_fit, worker_count
from understudy.models.training import measure_cost, require_separate_gradients
from understudy.privacy.facts import Facts
from understudy.privacy.gradients import DPSGD
from understudy.text.prompts.template import Prompts

_ROWS = {"cpu": 8, "cuda": 32}
_EXPECTED_SHARE = 0.5  # of the most tokens of a text, where its length is not known


@dataclass(frozen=True)
class Ready:
    """What is made before anything is charged: the prompts, and the model that will learn."""

    asked: LabelPrompts
    tuned: TunedModel
    rows: int
    """Texts whose gradients are computed at once: of a trial as many as fit into memory."""


def ready(
    parameters: DPFinetuneParameters,
    prompts: Prompts,
    model: CausalModel,
    *,
    label_names: Sequence[str],
    record_columns: Sequence[str],
) -> Ready:
    """All that could fail though public facts tell it: prompts, targets, memory, and rows that change one another.

    Raises:
        ConfigError: prompts or records are not as they should be, a LoRA target is missing, or memory is short.
        PrivacyError: the gradient of a text changes with the texts beside it on this device.
    """
    asked = build_instructions(parameters, prompts, model, label_names=label_names, record_columns=record_columns)
    tuned = model_to_tune(parameters, asked, model, label_names)
    return Ready(asked, tuned, _ROWS[model.device])


def try_out(found: Ready, mechanism: DPSGD, parameters: DPFinetuneParameters) -> tuple[Ready, Facts]:
    """Try that rows are separate, and measure a step on public text; what training will take.

    Returns:
        ``found`` with as many rows at once as fit into memory, and the measures.

    Raises:
        PrivacyError: the gradient of a text changes with the texts beside it on this device, even of one at a time.
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
        return tried(1)  # beside which there is no other


def _tried(found: Ready, mechanism: DPSGD, parameters: DPFinetuneParameters) -> tuple[Ready, Facts]:
    """Raises what says that memory is short, if it is."""
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
    return found, work(
        mechanism,
        batch,
        numbers=trainable.size,
        model_bytes=model_bytes,
        cost=cost,
        workers=min(workers, max(1, round(batch / found.rows))),
        rows=found.rows,
    )
