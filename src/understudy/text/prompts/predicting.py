"""Prompts from which a model predicts a text token by token, with private texts shown in it.

The field ``prediction`` of a prompt template, described in ``docs/prompts.md``. The general form is that of the papers.
The public prompt is the same prompt without a private text: nothing else in it may depend on one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from understudy.base.parameters import OneOrSeveral, Parameters
from understudy.models.types import Message
from understudy.text.prompts.evolving import fill_in

Shape = Literal["text", "json"]
"""A text's form: any; a JSON record; a JSON record that the model sees and writes as lines ``column: value``."""

BLANK_LINE = "\n\n"
_TEXT = "{text}"
_BLANK_LINES = re.compile(r"(?<![ \t\r])[ \t\r]*+\n\s*\n")  # only from the start of a run of blanks: read once


class PredictionExample(Parameters):
    """A public text that prompts show."""

    text: str
    """The text; of a record, JSON."""
    label: str = ""
    """A label that fits it."""


class RecordExample(Parameters):
    """A public record that prompts show."""

    fields: Mapping[str, Any]
    """Values by column."""
    label: str = ""
    """A label that fits it."""


def _with_one_text(block: str) -> str:
    if block.count(_TEXT) != 1:
        raise ValueError("a block shows {text} once")
    return block


Block = Annotated[str, AfterValidator(_with_one_text)]


class ChatForm(Parameters):
    """The prompt of a chat model: the pieces of the user's turn, and the beginning of the answer."""

    before: str = "Here are texts of type {document_type}[ about {label}]."
    """Comes before the shown texts."""
    block: Block = "Text: {text}"
    """One shown text; blank lines separate the blocks."""
    after: str = "Please give me another one."
    """Comes after the shown texts."""
    cue: str = "Text:"
    """Beginning of the answer; not part of the text."""
    stop: OneOrSeveral = (BLANK_LINE,)
    """Strings that end a text."""


class CompletionForm(ChatForm):
    """The prompt of a base model: a document that it continues."""

    after: str = ""


class ChatRecordsForm(ChatForm):
    """The same as :class:`ChatForm`, for records."""

    before: str = (
        "Here are records of type {document_type}[ about {label}], with the fields {columns}."
        "[ They follow this JSON schema: {schema}]"
    )
    block: Block = "{text}"
    cue: str = ""


class CompletionRecordsForm(ChatRecordsForm):
    """The same as :class:`CompletionForm`, for records."""

    after: str = ""


@dataclass(frozen=True)
class PredictionPrompt:
    """The prompt of one label, in pieces between which private texts are inserted.

    ``before``, any number of private texts each between ``block``'s two halves, ``after``; then the answer begins with
    ``cue`` and ``opening``.
    """

    chat: bool  # the pieces are a chat's turns (system, user, the assistant's beginning), else one document
    system: str
    before: str  # with the public examples
    block: tuple[str, str]
    after: str
    cue: str  # beginning of the answer, not part of the text
    opening: str  # beginning of every text: in a record, everything before its first value
    stop: tuple[str, ...]
    shape: Shape
    columns: tuple[str, ...]
    asks: tuple[str, str]  # asks a chat model, to which no blocks are shown, for a first text and for another one

    def shown(self, text: str) -> str:
        """Return ``text`` as a block of the prompt shows it: without blank lines, if these end a text. Depends on this
        text only."""
        return _shown(text, self.stop)

    def user(self, texts: Sequence[str]) -> str:
        """Return the user's turn, or the document up to the cue, with ``texts`` in blocks."""
        first, last = self.block
        return self.before + "".join(f"{first}{self.shown(text)}{last}" for text in texts) + self.after

    def messages(self, texts: Sequence[str]) -> tuple[Message, ...]:
        """Return a chat that asks any model for another text, with ``texts`` as earlier answers; no public examples.

        If the answer cannot begin with a cue, small models talk about texts that they see in blocks.
        """
        turns = [Message("system", self.system)] if self.system else []
        asks = (self.asks[0], *(self.asks[1] for _ in texts))
        for ask, text in zip(asks, texts, strict=False):
            turns += [Message("user", ask), Message("assistant", self.shown(text))]
        return (*turns, Message("user", asks[-1]))


class PredictionPrompts(Parameters):
    """Prompts from which a model predicts a text token by token."""

    system: str | None = None
    """The system message for chat models; None: for texts the evolution's, or else the template's own."""
    chat: ChatForm = ChatForm()
    """Texts, shown to a chat model."""
    completion: CompletionForm = CompletionForm()
    """Texts, shown to a base model."""
    chat_records: ChatRecordsForm = ChatRecordsForm()
    """Records, shown to a chat model."""
    completion_records: CompletionRecordsForm = CompletionRecordsForm()
    """Records, shown to a base model."""
    ask: str = "Please give me a text of type {document_type}[ about {label}]. Answer with the text only."
    """Asks any chat model for a text; exemplars are shown as its earlier answers."""
    ask_record: str = (
        "Please give me a record of type {document_type}[ about {label}], with the fields {columns}."
        "[ It follows this JSON schema: {schema}] Answer with the record only."
    )
    """As ``ask``, for a record."""
    again: str = "Please give me another one."
    """Asks for each text after the first."""
    examples: tuple[PredictionExample, ...] = ()
    """Shown in every prompt before the private texts; invented, public."""
    records: tuple[RecordExample, ...] = ()
    """As ``examples``, if texts are records."""

    def record_examples(self, columns: Sequence[str]) -> tuple[PredictionExample, ...]:
        """Return the examples among ``records`` that have all ``columns``, written as the corpus writes records."""
        return tuple(
            PredictionExample(
                text=json.dumps({name: each.fields[name] for name in columns}, ensure_ascii=False), label=each.label
            )
            for each in self.records
            if all(name in each.fields for name in columns)
        )

    def prompt(
        self,
        *,
        chat: bool,
        values: Mapping[str, str],
        shape: Shape = "text",
        columns: Sequence[str] = (),
        system: str = "",
        examples: Sequence[PredictionExample] = (),
    ) -> PredictionPrompt:
        """Return the prompt in its pieces.

        ``values`` are those of ``document_type``, ``label`` and ``schema``, ``columns`` those of a record in the order
        of its keys; ``system`` is used if the prompts do not have their own, and ``examples`` are shown first.
        """
        texts, records = (self.chat, self.chat_records) if chat else (self.completion, self.completion_records)
        form = texts if shape == "text" else records
        named = ", ".join(json.dumps(name, ensure_ascii=False) for name in columns)
        values = {"label": "", "schema": "", **values, "columns": named}
        block = _block(form, values)
        shots = "".join(
            _shown(each.text, form.stop).join(_block(form, {**values, "label": each.label})) for each in examples
        )
        before, after = _fill(form.before, values).strip(), _fill(form.after, values).strip()
        after = BLANK_LINE + after if after else ""
        return PredictionPrompt(
            chat=chat,
            system=fill_in(system if self.system is None else self.system, values) if chat else "",
            before=before + shots if before else shots.removeprefix(BLANK_LINE),
            block=block,
            after=after if chat else after + BLANK_LINE,
            cue=_fill(form.cue, values).strip(),
            opening=record_opening(shape, columns),
            stop=form.stop,
            shape=shape,
            columns=tuple(columns),
            asks=(fill_in(self.ask if shape == "text" else self.ask_record, values), fill_in(self.again, values)),
        )


def record_opening(shape: Shape, columns: Sequence[str]) -> str:
    """Return the beginning of every text of this shape, before the first value.

    >>> record_opening("json", ["title", "year"])
    '{"title":'
    """
    return "{" + json.dumps(columns[0], ensure_ascii=False) + ":" if shape == "json" and columns else ""


def _shown(text: str, stop: Sequence[str]) -> str:
    return _BLANK_LINES.sub("\n", text.strip()) if any(not each.strip() for each in stop) else text.strip()


def _block(form: ChatForm, values: Mapping[str, str]) -> tuple[str, str]:
    """Return the parts before and after a shown text.

    The blank line is before it, not after: tokenizers join white space with the next word.
    """
    first, last = (_fill(part, values) for part in form.block.split(_TEXT))
    return BLANK_LINE + first.lstrip(), last.rstrip()


def shown_examples(
    examples: Sequence[PredictionExample], label: str, *, most: int | None = None
) -> tuple[PredictionExample, ...]:
    """Return the first ``most`` of ``examples``, those of ``label`` before others, in their order."""
    ranked = sorted(range(len(examples)), key=lambda place: examples[place].label.casefold() != label.casefold())
    return tuple(examples[place] for place in sorted(ranked[:most]))


def _fill(pattern: str, values: Mapping[str, str]) -> str:
    """Fill in a pattern like ``fill_in``, but keep the white space around it."""
    first = pattern[: len(pattern) - len(pattern.lstrip())]
    last = pattern[len(pattern.rstrip()) :]
    filled = fill_in(pattern, values)
    return f"{first}{filled}{last}" if filled else first
