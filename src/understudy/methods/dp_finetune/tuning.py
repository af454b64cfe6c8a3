"""What of the base model learns, and the tuned model that a Release holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from understudy.decoding.prompting import LabelPrompts
from understudy.decoding.tuned import Instructions, TunedModel, build_instructions
from understudy.errors import ConfigError, ModelError, ReleaseError
from understudy.methods.dp_finetune.plan import DPFinetuneParameters, memory_of, work
from understudy.models.causal import CausalModel
from understudy.models.machine import is_out_of_memory, require_memory, worker_count
from understudy.models.training import LoRA, Trainable, Weights, measure_cost, require_separate_gradients
from understudy.privacy.facts import Facts
from understudy.privacy.gradients import DPSGD
from understudy.prompts.template import Prompts
from understudy.release import Release

MODEL = "private model"
"""The public input that names the base model."""
MOST_NUMBERS = 60_000_000
"""That may learn: a checkpoint holds three arrays of so many, a Release one (240 MB)."""
_ROWS = {"cpu": 8, "cuda": 32}
_EXPECTED_SHARE = 0.5  # of the most tokens of a text, where its length is not known


@dataclass(frozen=True)
class Ready:
    """What is made before anything is charged: the prompts, and the model that will learn."""

    asked: LabelPrompts
    tuned: TunedModel
    rows: int
    """Whose gradients are computed at once."""


def trainable_of(parameters: DPFinetuneParameters, model: CausalModel) -> Trainable:
    """What learns.

    Raises ConfigError if the model lacks a LoRA target, or more numbers would learn than a Release can hold.
    """
    if parameters.learns == "all":
        _require_few(sum(weight.numel() for weight in model.network.parameters()))
        return Weights(model, blocks=None)
    made = LoRA(
        model,
        rank=parameters.lora_rank,
        targets=parameters.lora_targets,
        layers=parameters.lora_layers,
        both=parameters.lora_matrices == "both",
    )
    _require_few(made.size)
    return made


def _require_few(numbers: int) -> None:
    if numbers > MOST_NUMBERS:
        raise ConfigError(
            f"{numbers:,} numbers of the model would learn, and {MOST_NUMBERS:,} are the most.",
            "Adapt fewer layers or with a lower rank (--learns lora, --lora-rank, --lora-layers).",
        )


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
    tuned = TunedModel(
        trainable_of(parameters, model),
        Instructions.of(asked),
        tokens=parameters.private_text_tokens,
        label_names=label_names,
    )
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


def tuned_model(parameters: DPFinetuneParameters, release: Release, base: CausalModel) -> TunedModel:
    """The tuned model of a Release, on its own base model.

    Raises:
        ReleaseError: ``base`` is another model, or the Release does not fit it.
    """
    named = release.statement.public_inputs[MODEL]
    if named["sha256"] != base.fingerprint:
        raise ReleaseError(
            f"The Release was tuned on another base model ({named['source']}) than {base.model_id}.",
            "Name that one with --private-model: its weights and tokenizer must be the very same.",
        )
    instructions = Instructions.from_release(release.arrays, release.strings, release.schema.record_columns)
    names = release.schema.label_set.names
    known = all(token < base.vocabulary for prompt in instructions.prompts for token in prompt)
    if len(instructions.prompts) != release.schema.label_set.size or not known:
        raise ReleaseError(
            "The Release has prompts for other labels, or of another model.", "Get the file again from its maker."
        )
    trainable = trainable_of(parameters, base)
    own = {name: array for name, array in release.arrays.items() if name not in OTHER_ARRAYS}
    trainable.load(trainable.joined(own))
    return TunedModel(trainable, instructions, tokens=parameters.private_text_tokens, label_names=names)


LARGEST_WEIGHT = 1e4
"""Of a Release."""
COUNTS, SCHEMA = "label_counts", "json schema"
OTHER_ARRAYS = frozenset({COUNTS, "prompt_tokens", "prompt_lengths"})
"""Arrays of a Release that are no weights."""
