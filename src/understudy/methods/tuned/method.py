"""Base for methods whose Release is a tuned model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ReleaseError
from understudy.base.parameters import Parameters
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.additions.registry import complete
from understudy.methods.base import Method, Needs, Preparation, Released, ReleaseTools, needed
from understudy.methods.facts import GenerationTools
from understudy.methods.release_schema import Contents, Held
from understudy.methods.shared.decoding.prompting import LabelPrompts
from understudy.methods.shared.decoding.structured import SCHEMA
from understudy.methods.shared.decoding.tuned import Instructions, TunedModel, build_instructions, generate
from understudy.methods.tuned.model import (
    COUNTS,
    LABELS,
    LARGEST_WEIGHT,
    MODEL,
    PROMPTS,
    DeclaredSize,
    SamplingParameters,
    TunedParameters,
    trainable_of,
)
from understudy.models.causal import CausalModel
from understudy.privacy.facts import Facts
from understudy.privacy.plan import Plan
from understudy.release import Release
from understudy.schema.labels import NOISY, UNIFORM, declared_proportions
from understudy.text.records import SyntheticRecord


class TunedMethod(Method):
    """A method that tunes a local model, from which any number of texts are then sampled. Inherit this and
    :class:`~understudy.methods.tuned.model.TunedParameters`."""

    generation_parameters: ClassVar[type[Parameters]] = SamplingParameters
    needs: ClassVar[Needs] = Needs(private_model=True, generation_model=True, generation_llm="never")
    no_weights: ClassVar[frozenset[str]] = frozenset({COUNTS})
    """Arrays of the Release that do not belong to the tuned model."""
    learns_rows: ClassVar[bool] = False
    """Whether texts begin with the cells of their row in training, if there are typed columns."""

    @property
    def _tuned(self) -> TunedParameters:
        assert isinstance(self, TunedParameters)
        return self

    def fitted(self, expected_records: int, labels: int) -> dict[str, Any]:
        """Return the declared size, from ``expected_records``, if it is not given."""
        known = not isinstance(self, DeclaredSize) or self.declared_records is not None
        return {} if known else {"declared_records": expected_records}

    def generate(self, release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:
        tuned = self.tuned_model(release, needed(tools.model))
        knows_rows = self.learns_rows and bool(release.schema.columns) and tuned.instructions.shape == "text"
        return generate(self._tuned.unfinished, release, counts, tuned=tuned, tools=tools, knows_rows=knows_rows)

    def label_weights(self, release: Release) -> Sequence[float] | None:
        return release.arrays[COUNTS].tolist() if COUNTS in release.arrays else None

    @property
    def counts_labels(self) -> bool:
        return self._tuned.label_sizes != UNIFORM

    def label_counts(self, release: Release) -> tuple[Sequence[float], float] | None:
        """Return the noisy number of records of each label, or declared proportions (without noise)."""
        weights = self.label_weights(release)
        return None if weights is None else (weights, release.statement.noise_multiplier(LABELS) or 0.0)

    def tuned_model(self, release: Release, base: CausalModel) -> TunedModel:
        """Return the tuned model. Raises ReleaseError if ``base`` is not its base model, or does not fit."""
        named = release.statement.public_inputs[MODEL]
        if not base.becomes(named["sha256"]):
            raise ReleaseError(
                f"The Release was tuned on another base model ({named['source']}) than {base.model_id}.",
                "Name that base model with --private-model: weights and tokenizer must be identical.",
            )
        instructions = Instructions.from_release(release.arrays, release.strings, release.schema.record_columns)
        labels, tokens = release.schema.label_set, self._tuned.private_text_tokens
        known = all(token < base.vocabulary for prompt in instructions.prompts for token in prompt)
        if len(instructions.prompts) != labels.size or not known:
            raise ReleaseError(
                "The Release was changed: its prompts do not fit its labels or its base model.",
                "Ask the sender for a new copy.",
            )
        trainable = trainable_of(self._tuned, base)
        trainable.load(trainable.joined(tuned_weights(release, self.no_weights)))
        return TunedModel(trainable, instructions, tokens=tokens, label_names=labels.names)

    def held(self, release: Release, charges: Mapping[str, str], counts: str, arrays: Mapping[str, Held]) -> Contents:
        """Describe the content of a Release: the tuned weights, the prompts in tokens, label counts (unless labels have
        equal shares), and the method's own ``arrays``.

        Args:
            charges: as in a :class:`~understudy.methods.release_schema.Contents`, without that of noisy label counts.
            counts: kind of the event of noisy label counts.
        """
        sizes = self._tuned.label_sizes
        found = {
            name: Held("float32", tuple(f"{name} {at}" for at in range(array.ndim)), -LARGEST_WEIGHT, LARGEST_WEIGHT)
            for name, array in tuned_weights(release, self.no_weights).items()
        }
        found["prompt_tokens"] = Held("int32", ("tokens",), 0, 2**31 - 1)
        found["prompt_lengths"] = Held("int32", (release.schema.label_set.size,), 1, 2**20)
        found |= arrays
        if sizes != UNIFORM:
            found[COUNTS] = Held("float64", (release.schema.label_set.size,))
        charges = {**({LABELS: counts} if sizes == NOISY else {}), **charges}
        strings: dict[str, int | None] = {"form": 3}
        if release.schema.record_columns and SCHEMA in release.strings:
            strings[SCHEMA] = 1
        return Contents(charges, found, strings, public_inputs=(MODEL,))


def model_to_tune(parameters: TunedParameters, found: Preparation) -> tuple[LabelPrompts, TunedModel]:
    """Return the prompts, and the base model with the part that will be tuned."""
    model, names, prompts = needed(found.model), found.labels.names, needed(found.prompts)
    special = parameters.prompt_form == "chat" or prompts.form or found.record_columns or prompts.parameters.asks_itself
    if parameters.from_writer and not special:  # texts in the form that the writer was trained on
        model.add_writer()
    asked = build_instructions(parameters, prompts, model, label_names=names, record_columns=found.record_columns)
    trainable, instructions = trainable_of(parameters, model), Instructions.of(asked)
    return asked, TunedModel(trainable, instructions, tokens=parameters.private_text_tokens, label_names=names)


def label_counts(
    parameters: TunedParameters, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools
) -> dict[str, NDArray[np.float64]]:
    """Return the label counts that the Release stores: noisy ones (a charge), declared proportions, or none for equal
    shares."""
    from understudy.methods.shared.queries.counts import LabelCounts  # only here: it reads private records

    if parameters.label_sizes == NOISY:
        return {COUNTS: tools.measure(LABELS, LabelCounts(plan.query(LABELS)), corpus).value}
    declared = declared_proportions(parameters.label_sizes, tools.labels.names)
    return {} if declared is None else {COUNTS: np.array(declared)}


def released(
    asked: LabelPrompts,
    tuned: TunedModel,
    weights: NDArray[np.float32],
    arrays: Mapping[str, NDArray[Any]],
    noise_check: Facts,
    **others: Any,
) -> Released:
    """Return the content of a Release: the model tuned to ``weights``, and the other ``arrays``.

    Weights are clipped so that they can be read again: only far too high a learning rate exceeds the limit.
    """
    bounded = {
        name: np.nan_to_num(each, nan=0.0).clip(-LARGEST_WEIGHT, LARGEST_WEIGHT)
        for name, each in tuned.trainable.named(weights).items()
    }
    public = asked.public_inputs()
    if tuned.causal.is_writer:
        public[MODEL]["source"] += ", with adapters that understudy trained on public texts"
    instructions = tuned.instructions
    return Released(
        {**bounded, **instructions.to_arrays(), **arrays},
        public_inputs=public,
        noise_check=noise_check,
        strings={"form": [instructions.opening, instructions.lead, instructions.shape], **asked.schema_strings},
        **others,
    )


def tuned_weights(release: Release, others: Collection[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays of the tuned model: all that are not among the method's ``others`` nor an addition's."""
    beside = complete(Contents({}, {}), release).arrays
    return {name: each for name, each in release.arrays.items() if name not in {*PROMPTS, *beside, *others}}
