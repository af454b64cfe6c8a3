"""Each label's prompt, with room for the private texts that a subset shows. Before a private record is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from understudy.decoding.ending import Ending
from understudy.decoding.prompting import LabelPrompt, LabelPrompts, build_prompts
from understudy.decoding.rows import PromptTokens
from understudy.errors import ConfigError
from understudy.methods.few_shot.parameters import FewShotParameters
from understudy.models.causal import CausalModel, whole_rows
from understudy.prompts.template import Prompts


def build_exemplar_prompts(
    parameters: FewShotParameters,
    prompts: Prompts,
    model: CausalModel,
    *,
    label_names: Sequence[str],
    record_columns: Sequence[str],
) -> LabelPrompts:
    """The prompts of all labels.

    Raises:
        ConfigError: as :func:`~understudy.decoding.prompting.build_prompts`, or the prompt without private texts is
            empty.
    """
    asked = build_prompts(parameters, prompts, model, label_names=label_names, record_columns=record_columns)
    return replace(asked, labels=tuple(_with_room(parameters, each) for each in asked.labels))


def exemplar_width(prompt: PromptTokens, ending: Ending, *, most: int, most_shown: int) -> int:
    """Tokens to which every row is padded, whatever was drawn before: a function of public parameters."""
    return 1 + prompt.width(most, texts=most_shown) + len(prompt.suffix) + ending.most_tokens


def try_rows(parameters: FewShotParameters, asked: LabelPrompts) -> None:
    """Try, before anything is charged, what is promised of rows on this device.

    Raises:
        PrivacyError: rows change one another's logits.
        ModelError: the public logits are not finite.
    """
    rows = parameters.subsets + 1
    for label in {each.shape: each for each in asked.labels}.values():
        prefix, suffix = label.tokens.prefix, label.tokens.suffix
        label.model.contexts(
            [[*prefix[-1:], *suffix]] * rows,
            prefix=prefix[:-1],
            width=exemplar_width(
                label.tokens, label.ending, most=label.most, most_shown=parameters.examples_per_subset
            ),
            tokens=0,
            rows_at_once=whole_rows(rows),
            candidates=parameters.candidates,
        ).public_logits()


def _with_room(parameters: FewShotParameters, label: LabelPrompt) -> LabelPrompt:
    if not label.tokens.prefix and not label.tokens.suffix:
        raise ConfigError("The prompt for private texts is empty but for these texts.", "Write something around them.")
    ending = Ending.of(label.prompt, most_tokens=parameters.exemplar_tokens)
    fitting = label.tokens.most_fitting(
        label.model.window, new_tokens=parameters.exemplar_tokens + 1, texts=parameters.examples_per_subset
    )
    return replace(label, ending=ending, most=min(parameters.private_text_tokens, fitting))
