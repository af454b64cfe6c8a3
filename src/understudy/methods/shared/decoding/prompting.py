"""Prompts and private texts as token rows: each label's prompt, how a text ends, and whether a text is a record."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from understudy.base.errors import ConfigError, ModelError
from understudy.base.parameters import Parameters, public_file
from understudy.methods.shared.decoding.ending import Ending
from understudy.methods.shared.decoding.structured import (
    SCHEMA,
    Fault,
    JSONSchema,
    RecordCheck,
    TextCheck,
    text_check,
)
from understudy.models.causal import CausalModel
from understudy.models.shared_prefix import Contexts
from understudy.models.types import Message
from understudy.schema.columns import Column, in_words
from understudy.text.prompts.predicting import PredictionPrompt, Shape
from understudy.text.prompts.template import Prompts
from understudy.text.writing import public_name


class TextParameters(Parameters):
    """Prompts that show private texts, and texts decoded from them."""

    prompt_form: Literal["completion", "chat"] = "completion"
    """How the model is asked: ``completion`` as a document to continue, ``chat`` in its own chat form."""
    private_text_tokens: int = Field(128, ge=1, le=1_000_000)
    """Private texts are cut to this many tokens. All prompts are padded to it, so more costs time."""
    unfinished: Literal["drop", "keep"] = "drop"
    """What to do with a text that did not end within its tokens."""
    json_schema: str | None = public_file(None)
    """For records: a public JSON Schema file that they must fit, and that the prompt shows."""


_PLACE = "\u2042the private texts\u2042"


@dataclass(frozen=True)
class PromptTokens:
    """A prompt as tokens."""

    prefix: tuple[int, ...]  # the beginning of every row, including the token that begins a document
    before: tuple[int, ...]  # comes before each private text
    lead: str  # white space that is tokenised together with the text
    after: tuple[int, ...]  # comes after each private text
    suffix: tuple[int, ...]  # the end of every row

    def encode(self, text: str, *, prompt: PredictionPrompt, model: CausalModel) -> list[int]:
        """Return a private text as tokens, in the form that ``row`` takes."""
        return model.encode(self.lead + prompt.shown(text))

    def row(self, *texts: Sequence[int]) -> list[int]:
        """Return the tokens of a row that shows ``texts``, without the shared prefix and suffix."""
        return [token for text in texts for token in (*self.before, *text, *self.after)]

    def width(self, most: int, *, texts: int = 1) -> int:
        """Return the number of tokens of the longest row (without prefix and suffix) that shows ``texts`` texts of
        ``most`` tokens each."""
        return texts * (len(self.before) + most + len(self.after))

    def most_fitting(self, window: int, *, new_tokens: int, texts: int = 1) -> int:
        """Return the largest number of tokens of each of ``texts`` private texts if ``new_tokens`` are to fit in the
        window too. Raises ConfigError if the window leaves no room."""
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
    """Return the first ``most`` tokens, and whether there were more."""
    return list(tokens[:most]), len(tokens) > most


def prompt_tokens(prompt: PredictionPrompt, model: CausalModel) -> PromptTokens:
    """Return ``prompt`` in the tokens of ``model``: a chat in the model's own form, a document unchanged.

    Raises:
        ConfigError: the prompt is a chat, and the model has no chat template.
        ModelError: the chat template does not show the user's turn once and unchanged.
    """
    head, tail, begin = prompt.before, prompt.after, list(model.begin)
    if prompt.chat:
        (head, tail), begin = _chat(prompt, model), []  # the template writes the beginning
    first, last = prompt.block
    before = first.rstrip()
    return PromptTokens(
        prefix=(*begin, *model.encode(head)),
        before=tuple(model.encode(before)),
        lead=first[len(before) :],
        after=tuple(model.encode(last)),
        suffix=tuple(model.encode(tail + " ".join(filter(None, (prompt.cue, prompt.opening))))),
    )


def _chat(prompt: PredictionPrompt, model: CausalModel) -> tuple[str, str]:
    if not model.has_chat_template:
        raise ConfigError("The model has no chat template.", "Use the prompt form 'completion', or name a chat model.")
    messages = [Message("system", prompt.system)] if prompt.system else []
    rendered = model.render([*messages, Message("user", f"{prompt.before}{_PLACE}{prompt.after}")])
    head, *tails = rendered.split(_PLACE)
    if len(tails) != 1:
        raise ModelError(
            "The model's chat template does not show a user's turn once and unchanged.",
            "Use the prompt form 'completion', or name another model.",
        )
    return head, tails[0]


@dataclass(frozen=True)
class LabelPrompt:
    """The prompt for texts of one label, in words and in the model's tokens. Public.

    ``most`` is the number of tokens to which a private text is cut. ``row_tokens`` is the largest number of tokens of
    the typed columns' values after which the model writes a text; 0 without typed columns.
    """

    prompt: PredictionPrompt
    tokens: PromptTokens
    ending: Ending
    most: int
    model: CausalModel
    row_tokens: int = 0

    def behind(self, row: str) -> list[int]:
        """Return the tokens of ``row``, the typed columns' values in words, after which the model writes a text: at
        most ``row_tokens``, in the form in which they precede private texts. Empty if ``row`` is."""
        return cut(self.model.encode(f"{self.tokens.lead}{row}\n"), self.row_tokens)[0] if row else []

    def private(self, text: str) -> tuple[list[int], bool]:
        """Return a private text in tokens, and whether it had to be cut. A function of this text alone."""
        return cut(self.tokens.encode(text, prompt=self.prompt, model=self.model), self.most)

    def contexts(
        self,
        texts: Iterable[Sequence[int]],
        *,
        rows_at_once: int,
        candidates: int | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Contexts:
        """Load one prompt without a private text, and one for each of ``texts``, into the model; return them as
        contexts to decode from. All shapes are functions of public parameters.

        The other arguments are as in :meth:`understudy.models.causal.CausalModel.contexts`.
        """
        return self.model.contexts(
            [[], *(self.tokens.row(text) for text in texts)],
            prefix=self.tokens.prefix,
            width=self.tokens.width(self.most),
            suffix=self.tokens.suffix,
            tokens=self.row_tokens + self.ending.most_tokens + 1,
            rows_at_once=rows_at_once,
            candidates=candidates,
            check=check,
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the numbers of tokens of the prefix, of the longest row and of the suffix."""
        return len(self.tokens.prefix), self.tokens.width(self.most), len(self.tokens.suffix)

    @property
    def length(self) -> int:
        """Return the total number of tokens, if the prompt shows the longest text and the answer is as long."""
        return sum(self.shape) + self.row_tokens + self.ending.most_tokens + 1


@dataclass(frozen=True)
class ReadText:
    """A text converted from its tokens; ``fault`` says why it is unusable, None if it can be used."""

    text: str  # a valid record as the corpus writes records; any other text unchanged
    ended: bool  # whether it ended: by itself, or at the largest number of tokens
    fault: Fault | None  # why it does not have the required form


@dataclass(frozen=True)
class LabelPrompts:
    """The prompts of all labels, in their order, for texts of the ``document_type``.

    ``check`` says whether a text has the form that it must have; None if any text will do.
    """

    labels: tuple[LabelPrompt, ...]
    check: TextCheck | None = None
    document_type: str = ""

    def private(self, text: str, label: int) -> tuple[list[int], bool]:
        """Return a private text of this label as tokens, and whether it had to be cut."""
        return self.labels[label].private(text)

    def read(self, label: int, tokens: Sequence[int]) -> ReadText:
        """Convert decoded ``tokens`` to the text of ``label``, and check its form."""
        prompt = self.labels[label]
        read = prompt.ending.read(tokens, prompt.model)
        checked = read.text if self.check is None else self.check(read.text)
        if isinstance(checked, Fault):
            return ReadText(read.text, read.ended is not None, checked)
        return ReadText(checked, read.ended is not None, None)

    @property
    def schema(self) -> JSONSchema | None:
        """Return the JSON schema of the records, if there is one."""
        return self.check.schema if isinstance(self.check, RecordCheck) else None

    @property
    def schema_strings(self) -> dict[str, list[str]]:
        """Return the JSON schema as a Release stores it."""
        return {} if self.schema is None else {SCHEMA: [self.schema.text]}

    def public_inputs(self, schema_source: str = "your own schema") -> dict[str, dict[str, str]]:
        """Return the public inputs for the statement: the prompts with their examples, and the schema."""
        model = self.labels[0].model
        prompts = hashlib.sha256(repr([each.prompt for each in self.labels]).encode()).hexdigest()
        found = {
            "private model": {"source": public_name(model.model_id), "sha256": model.fingerprint},
            "prompts": {"source": f"for a {self.document_type}", "sha256": prompts},
        }
        if self.schema is not None:
            found["JSON schema"] = {"source": schema_source, "sha256": self.schema.sha256}
        return found


def build_prompts(
    parameters: TextParameters,
    prompts: Prompts,
    model: CausalModel,
    *,
    label_names: Sequence[str],
    record_columns: Sequence[str],
    columns: Sequence[Column] = (),
) -> LabelPrompts:
    """Build each label's prompt from public parameters. Raises ConfigError if the JSON schema does not fit the records,
    or the model's window has no room for a private text.

    Args:
        label_names: empty without labels; there is one prompt then.
        record_columns: keys, if every text is a JSON record; else empty.
        columns: typed columns whose values precede each text in words; empty without them.
    """
    if parameters.json_schema is not None and not record_columns:
        raise ConfigError(
            "A JSON schema is given, but the texts are not records.",
            "Name the columns that form a record with --record-columns, or leave --json-schema out.",
        )
    schema = None if parameters.json_schema is None else JSONSchema(parameters.json_schema)
    if schema is not None and (missing := schema.required - set(record_columns)):
        raise ConfigError(
            f"The JSON schema requires {', '.join(sorted(missing))}, which are not among the record columns.",
            "Add them to --record-columns, or no longer require them in the schema.",
        )
    shape: Shape = "json" if record_columns else "text"
    row_tokens = 0
    if columns:  # room for any row in words, about: the longest cell of each, and the punctuation between
        cells = ([model.encode(f" {in_words([each], [cell])};") for cell in range(each.size)] for each in columns)
        row_tokens = 2 + sum(max(map(len, each)) for each in cells)
    made = []
    for label in label_names or [""]:
        prompt = prompts.template.prediction_prompt(
            chat=parameters.prompt_form == "chat",
            label=label,
            shape=shape,
            columns=record_columns,
            schema="" if schema is None else schema.text,
            most_examples=prompts.template.settings.examples_per_prompt,
        )
        tokens = prompt_tokens(prompt, model)
        fitting = tokens.most_fitting(model.window, new_tokens=row_tokens + prompts.parameters.max_tokens + 1)
        ending = Ending.of(prompt, most_tokens=prompts.parameters.max_tokens)
        most = min(parameters.private_text_tokens, fitting)
        made.append(LabelPrompt(prompt, tokens, ending, most, model, row_tokens))
    return LabelPrompts(tuple(made), text_check(prompts.form, record_columns, schema), prompts.template.document_type)
