"""A prompt in tokens: what all rows of a batch begin with, each row's own tokens, and what all end with.

    prefix | before, text, after | suffix

The public row is the same without the middle. Where a row is cut, and how long a row may be, are functions of public
parameters and of the row alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from understudy.errors import ConfigError, ModelError
from understudy.models.types import Message
from understudy.prompts.predicting import PredictionPrompt

_PLACE = "\u2042the private texts\u2042"


class PromptModel(Protocol):
    """What of a causal model makes tokens of a prompt."""

    @property
    def begin(self) -> list[int]:
        """The token that every document begins with, or nothing."""
        ...

    @property
    def has_chat_template(self) -> bool: ...

    def encode(self, text: str) -> list[int]:
        """Tokens of ``text``; special ones only where the text spells them."""
        ...

    def render(self, messages: Sequence[Message]) -> str:
        """The messages in the model's own chat form, up to where its answer begins."""
        ...


class ShownText(Protocol):
    """What of a prompt says how a text is shown in it."""

    def shown(self, text: str) -> str: ...


@dataclass(frozen=True)
class PromptTokens:
    """A prompt in tokens.

    Args:
        prefix: what every row begins with, the token that begins a document included.
        before: what comes before each private text.
        lead: white space that is made into tokens together with the text.
        after: what comes after each private text.
        suffix: what every row ends with.
    """

    prefix: tuple[int, ...]
    before: tuple[int, ...]
    lead: str
    after: tuple[int, ...]
    suffix: tuple[int, ...]

    def encode(self, text: str, *, prompt: ShownText, model: PromptModel) -> list[int]:
        """A private text in tokens, as ``row`` takes it."""
        return model.encode(self.lead + prompt.shown(text))

    def row(self, *texts: Sequence[int]) -> list[int]:
        """The own tokens of a row that shows ``texts``."""
        return [token for text in texts for token in (*self.before, *text, *self.after)]

    def public_row(self) -> list[int]:
        """The own tokens of the public row: none."""
        return self.row()

    def width(self, most: int, *, texts: int = 1) -> int:
        """Own tokens of the longest row: of so many texts of ``most`` tokens each."""
        return texts * (len(self.before) + most + len(self.after))

    def most_fitting(self, window: int, *, new_tokens: int, texts: int = 1) -> int:
        """The most tokens that each of ``texts`` private texts may have, where ``new_tokens`` fit in the window too.

        Raises:
            ConfigError: the window leaves no room for any.
        """
        room = window - len(self.prefix) - len(self.suffix) - new_tokens
        most = room // texts - len(self.before) - len(self.after)
        if most < 1:
            raise ConfigError(
                f"The prompt and {new_tokens} new tokens leave no room for a private text in the model's window "
                f"of {window} tokens.",
                "Show fewer or shorter public examples, ask for shorter texts, or name a model with a larger window.",
            )
        return most


def cut(tokens: Sequence[int], most: int) -> tuple[list[int], bool]:
    """The first ``most`` tokens, and whether there were more."""
    return list(tokens[:most]), len(tokens) > most


def prompt_tokens(prompt: PredictionPrompt, model: PromptModel) -> PromptTokens:
    """``prompt`` in the tokens of ``model``: of a chat in the model's own form, of a document as it stands.

    Raises:
        ConfigError: the prompt is a chat, and the model has no chat template.
        ModelError: the chat template does not show the user's turn once, as it stands.
    """
    if prompt.chat:
        head, tail = _chat(prompt, model)
        begin: list[int] = []  # the template writes it
    else:
        head, tail, begin = prompt.before, prompt.after, list(model.begin)
    first, last = prompt.block
    before = first.rstrip()
    return PromptTokens(
        prefix=(*begin, *model.encode(head)),
        before=tuple(model.encode(before)),
        lead=first[len(before) :],
        after=tuple(model.encode(last)),
        suffix=tuple(model.encode(tail + answer_start(prompt))),
    )


def answer_start(prompt: PredictionPrompt) -> str:
    """What is written for the model at the beginning of its answer."""
    return f"{prompt.cue} {prompt.opening}" if prompt.cue and prompt.opening else prompt.cue + prompt.opening


def _chat(prompt: PredictionPrompt, model: PromptModel) -> tuple[str, str]:
    """The chat in the model's own form, before and after the place of the private texts."""
    if not model.has_chat_template:
        raise ConfigError("The model has no chat template.", "Use the prompt form 'completion', or name a chat model.")
    messages = [Message("system", prompt.system)] if prompt.system else []
    rendered = model.render([*messages, Message("user", f"{prompt.before}{_PLACE}{prompt.after}")])
    head, *tails = rendered.split(_PLACE)
    if len(tails) != 1:
        raise ModelError(
            "The model's chat template does not show a user's turn once, as it stands.",
            "Use the prompt form 'completion', or name another model.",
        )
    return head, tails[0]
