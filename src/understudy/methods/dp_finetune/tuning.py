"""What is made and tried before the charge: the prompts, and the model that will learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from understudy.base.errors import ConfigError, ModelError
from understudy.methods.dp_finetune.plan import DPFinetuneParameters, memory_of, work
from understudy.methods.shared.decoding.prompting import LabelPrompts
from understudy.methods.shared.decoding.tuned import TunedModel, build_instructions
from understudy.methods.tuned.model import model_to_tune
from understudy.models.causal import CausalModel
from understudy.models.machine import is_out_of_memory, require_memory, worker_count
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
    """Whose gradients are computed at once."""


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
    return Ready(asked, tuned, parameters.rows_at_once or _ROWS[model.device])


def try_out(found: Ready, mechanism: DPSGD, parameters: DPFinetuneParameters) -> Facts:
    """Try that rows are separate, and measure a step on public text; what training will take.

    Raises:
        PrivacyError: the gradient of a text changes with the texts beside it on this device.
        ConfigError: the texts whose gradients are computed at once do not fit into memory.
    """
    trainable, model = found.tuned.trainable, found.tuned.causal
    expected = round(parameters.private_text_tokens * _EXPECTED_SHARE)
    model_bytes = sum(weight.nbytes for weight in model.network.parameters())
    workers, cure = worker_count(model.device), "Compute fewer texts at once (--rows-at-once), or cut them shorter."
    trainable.load(trainable.start())
    try:
        one = measure_cost(trainable, found.tuned.shapes(1), target=found.tuned.tokens)
        if model.device == "cpu":
            most = model_bytes + memory_of(trainable.size, workers=workers, rows=found.rows, cost=one)
            require_memory(most, what=f"The gradients of {found.rows} texts at once", cure=cure)
        shapes = found.tuned.shapes(found.rows)
        require_separate_gradients(trainable, shapes)
        cost = measure_cost(trainable, shapes, target=expected)
    except Exception as error:
        if isinstance(error, ConfigError | ModelError) or not is_out_of_memory(error):
            raise
        raise ConfigError(f"The gradients of {found.rows} texts at once do not fit into memory.", cure) from None
    batch = mechanism.rate * parameters.declared
    return work(
        mechanism,
        batch,
        numbers=trainable.size,
        model_bytes=model_bytes,
        cost=cost,
        workers=min(workers, max(1, round(batch / found.rows))),
        rows=found.rows,
    )
