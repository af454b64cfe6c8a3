"""Prompt templates as data: one YAML file per document type, user-replaceable (their form: ``docs/prompts.md``)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import cycle
from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator

from understudy.base.errors import ConfigError
from understudy.base.files import MOST_SETTINGS_BYTES, UnreadableText, cannot_read, read_whole
from understudy.base.parameters import Ablation, Free, Parameters, public_file
from understudy.models.types import Message
from understudy.schema.transcript import PLAIN, TOOL, Part, TextForm
from understudy.text.prompts.evolving import EvolutionExample, EvolutionPrompts, fill_in
from understudy.text.prompts.predicting import (
    PredictionExample,
    PredictionPrompt,
    PredictionPrompts,
    Shape,
    shown_examples,
)
from understudy.text.prompts.writer import ANSWERS, SEEDS
from understudy.text.vocabulary.words import kept_phrases

ALL, CATEGORIES = "all", "categories"
DEFAULT_TEMPERATURE = 0.7


class PromptSettings(Parameters):
    """How prompts are filled and asked: the ``settings`` of a prompt file."""

    examples_per_prompt: int = Field(3, ge=0, le=50)
    """How many examples a prompt shows."""
    prompt_terms: int | None = Field(None, ge=1)
    """Put only the first phrases of a seed into the prompt (small models drop terms)."""
    label_in_prompt: bool = False
    """Name the label in the prompt (the label set must be public)."""
    prompt_columns: str | tuple[str, ...] = ALL
    """Columns of its row that a prompt shows: ``all``, ``categories`` (categories and booleans that are not part of the
    label), ``none``, or names, separated by commas."""
    repair: int = Field(0, ge=0, le=8)
    """Times to ask again for a text with the phrases that are missing."""
    top_p: float = Field(0.95, gt=0, le=1)
    """Nucleus sampling of the language model."""


class WritingParameters(Parameters):
    """How a language model turns seeds into texts."""

    document_type: Free[str] = "document"
    """The type of document to write: selects the prompt template of that name, or fills the general one. Name the
    subject, too, which the texts follow: ``music shop review``, not ``product review``."""
    prompt: Free[str | None] = public_file(None)
    """Your own prompt template file (YAML)."""
    samples: Ablation[Free[int | None]] = Field(None, ge=1, le=64)
    """Answers for each text; the best one is kept. Default: 1; 4 with the built-in model (around phrases: two around
    each of two seeds)."""
    llm_temperature: Free[float | None] = Field(None, ge=0, le=100)
    """Sampling temperature of the language model. Default: 0.7; 0.5 if the built-in model writes around phrases."""
    max_tokens: Free[int] = Field(160, ge=1, le=1_000_000)
    """Longest answer in tokens."""
    json_schema: Free[str | None] = public_file(None)
    """A JSON schema file: every text is a JSON object that fits it (methods that prompt with phrases)."""

    def answers(self, *, trained: bool) -> int:
        """Return the number of answers for each text, by default that of the built-in writer if ``trained``."""
        return self.samples or (ANSWERS if trained else 1)

    def around_one_seed(self) -> Self:
        """Return the settings with which the built-in writer gives all answers for a text around one seed."""
        return self if self.samples else self.model_copy(update={"samples": SEEDS * ANSWERS})

    @property
    def asks_itself(self) -> bool:
        """Return whether texts are requested by the user's own prompt or JSON schema, for which the built-in writer was
        not trained."""
        return self.prompt is not None or self.json_schema is not None


GENERAL = "general"
_FORM = "See docs/prompts.md for its form."


class Example(Parameters):
    """A public text, and phrases that it contains."""

    phrases: tuple[str, ...] = ()
    text: str


class PartsExample(Parameters):
    """The parts of a public text: the fields of a row, or the turns of a dialogue of two."""

    phrases: tuple[str, ...]
    parts: tuple[str, ...]


class PromptTemplate(Parameters):
    """A prompt for one document type."""

    document_type: str
    names: tuple[str, ...] = ()
    system: str = ""
    user: str
    user_with_label: str | None = None
    details: str = "Details: {details}."
    as_json: str = "Answer with one JSON object and nothing else. It fits this JSON schema: {schema}"
    as_fields: str = "Write each part on a new line behind its name, in this form:\n{outline}"
    as_dialogue: str = "Write it as a dialogue between {roles}, every turn on a new line, in this form:\n{outline}"
    as_acts: str = "The words in parentheses say what a turn does: {acts}."
    as_calls: str = (
        "Where {caller} needs a tool, it is called with a JSON object on one line, and what it returns is the next "
        "line. The tools: {tools}."
    )
    repair: str = (
        "Rewrite this {document_type} so that it also contains these words: {missing}. "
        "Answer with the text only.\n\n{text}"
    )
    stop: tuple[str, ...] = ()
    settings: PromptSettings = PromptSettings()
    examples_are_public: bool = False
    examples: tuple[Example, ...] = Field(default=())
    rows: tuple[PartsExample, ...] = Field(default=())
    dialogues: tuple[PartsExample, ...] = Field(default=())
    evolution: EvolutionPrompts = EvolutionPrompts()
    prediction: PredictionPrompts = PredictionPrompts()

    @field_validator("examples", mode="before")
    @classmethod
    def _texts_alone(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return [{"text": each} if isinstance(each, str) else each for each in value]

    def messages(
        self,
        phrases: Sequence[str],
        *,
        label: str | None = None,
        examples: Sequence[Example] = (),
        details: str = "",
        schema: str = "",
    ) -> tuple[Message, ...]:
        """Return a chat that asks for a text with ``phrases`` that fits the ``details`` of its row and a JSON
        ``schema``."""
        turns = [Message("system", self._fill(self.system, phrases, label))] if self.system else []
        as_json = f"\n\n{self._fill(self.as_json, (), label, {'schema': schema})}" if schema else ""
        for example in examples:
            turns.append(Message("user", self._ask(example.phrases, None) + as_json))
            turns.append(Message("assistant", example.text))
        asked = self.with_details((Message("user", self._ask(phrases, label)),), details)[0].content
        return (*turns, Message("user", asked + as_json))

    def with_details(self, messages: tuple[Message, ...], details: str) -> tuple[Message, ...]:
        """Return a chat whose last turn begins with the ``details`` of a row, which the text is to fit.

        A small model repeats details that come after the request. Without details, the chat is unchanged.
        """
        if not details:
            return messages
        shown = self._fill(self.details, (), None, {"details": details})
        return (*messages[:-1], Message("user", f"{shown}\n\n{messages[-1].content}"))

    def repair_messages(self, text: str, missing: Sequence[str], phrases: Sequence[str]) -> tuple[Message, ...]:
        """Return the chat that asks for ``text`` again with the ``missing`` phrases."""
        turns = [Message("system", self._fill(self.system, phrases, None))] if self.system else []
        asked = self._fill(self.repair, phrases, None, {"missing": ", ".join(missing), "text": text})
        return (*turns, Message("user", asked))

    @property
    def evolution_examples(self) -> tuple[EvolutionExample, ...]:
        """Return texts to show in prompts that make texts evolve: those made for it, else the others."""
        return self.evolution.examples or tuple(
            EvolutionExample(text=each.text, keyword=next(iter(each.phrases), "")) for each in self.examples
        )

    def evolution_messages(
        self, pattern: str, values: Mapping[str, str], *, turns: Sequence[tuple[Mapping[str, str], str]] = ()
    ) -> tuple[Message, ...]:
        """Return the chat that asks for one text of the evolution by ``pattern`` (one of :class:`EvolutionPrompts`).

        ``values`` fill the placeholders ``label``, ``keyword``, ``style``, ``words`` and ``text``; ``turns`` are
        earlier turns, each with its own values and the answer.
        """
        system = self.system if self.evolution.system is None else self.evolution.system

        def filled(pattern: str, values: Mapping[str, str]) -> str:
            return fill_in(pattern, {"document_type": self.document_type, **values})

        chat = [Message("system", filled(system, values))] if system else []
        for asked, answer in turns:
            chat += [Message("user", filled(pattern, asked)), Message("assistant", answer)]
        return (*chat, Message("user", filled(pattern, values)))

    def prediction_prompt(
        self,
        *,
        chat: bool,
        label: str = "",
        shape: Shape = "text",
        columns: Sequence[str] = (),
        schema: str = "",
        examples: Sequence[PredictionExample] | None = None,
        most_examples: int | None = None,
    ) -> PredictionPrompt:
        """Return the prompt from which a chat or a base model predicts a text, in its pieces. All arguments are public.

        ``columns`` are those of a record, in the order of its keys. ``most_examples`` of the ``examples`` (by default
        the template's own, all of them) are shown first, those of the label before others.
        """
        if examples is None:
            examples = self.prediction_examples(shape, columns)
        system = self.system if self.evolution.system is None else self.evolution.system
        return self.prediction.prompt(
            chat=chat,
            values={"document_type": self.document_type, "label": label, "schema": schema},
            shape=shape,
            columns=columns,
            system=system if shape == "text" else "",  # it asks for running text
            examples=shown_examples(examples, label, most=most_examples),
        )

    def prediction_examples(self, shape: Shape = "text", columns: Sequence[str] = ()) -> Sequence[PredictionExample]:
        """Return the template's public texts or records to show in prompts that predict texts."""
        if shape != "text":
            return self.prediction.record_examples(columns)
        others = tuple(PredictionExample(text=each.text, label=each.label) for each in self.evolution_examples)
        return self.prediction.examples or others

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of all fields."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def _ask(self, phrases: Sequence[str], label: str | None) -> str:
        chosen = self.user_with_label if label is not None and self.user_with_label else self.user
        return self._fill(chosen, phrases, label)

    def _fill(
        self, pattern: str, phrases: Sequence[str], label: str | None, more: Mapping[str, str] | None = None
    ) -> str:
        values = {"document_type": self.document_type, "phrases": ", ".join(phrases), "count": str(len(phrases))}
        values |= {"label": label or "", **(more or {})}
        return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), pattern).strip()


def load_template(document_type: str, *, file: str | Path | None = None, general: bool = False) -> PromptTemplate:
    """Return the template of ``file``, or the shipped one of ``document_type``, or the ``general`` one filled with it.

    A file without a prompt (no ``user``) changes the template that would be used without it. Document types are
    compared without case, hyphens and underscores as spaces. Raises ConfigError if the file cannot be read or is not a
    template.
    """
    if file is not None:
        return _read_template(Path(file), document_type, general=general)
    wanted = _normal(document_type)
    shipped = () if general else resources.files(__package__).joinpath("templates").iterdir()
    for name in sorted(path.name for path in shipped if path.name.endswith(".yaml")):
        fields = _shipped(name)
        if wanted in map(_normal, (fields["document_type"], *fields.get("names", ()))):
            return PromptTemplate(**fields)
    return PromptTemplate(**{**_shipped(f"{GENERAL}.yaml"), "document_type": document_type})


@cache
def _shipped(name: str) -> Mapping[str, Any]:
    return _parse(resources.files(__package__).joinpath("templates", name).read_text("utf-8"), name)


def _normal(document_type: str) -> str:
    return " ".join(re.split(r"[\s_-]+", document_type.lower())).strip()


def _read_template(path: Path, document_type: str, *, general: bool) -> PromptTemplate:
    try:
        fields = _parse(read_whole(path, most=MOST_SETTINGS_BYTES).decode("utf-8"), path.name)
    except (UnreadableText, UnicodeDecodeError) as error:
        raise cannot_read(f"The prompt template {path.name}", error, "Give a UTF-8 YAML file.") from None
    own = fields
    if "user" not in fields:
        named = fields.get("document_type", document_type)
        base = load_template(named if isinstance(named, str) else document_type, general=general)
        others = base.model_dump(exclude_unset=True)
        if "examples" in fields:  # they are shown instead of all others
            others = {name: each for name, each in others.items() if name not in ("rows", "dialogues")}
            for block in {"evolution", "prediction"} & others.keys():
                others[block] = {n: each for n, each in others[block].items() if n not in ("examples", "records")}
        fields = {**others, **fields}
    try:
        template = PromptTemplate(**fields)
    except (ConfigError, TypeError) as error:
        problem = f" ({error.problem.rstrip('.')})" if isinstance(error, ConfigError) else ""
        raise ConfigError(f"{path.name} is not a prompt template{problem}.", _FORM) from None
    blocks = (own, own.get("evolution") or {}, own.get("prediction") or {})
    shows = any(block.get(name) for block in blocks for name in ("examples", "rows", "dialogues", "records"))
    if shows and not template.examples_are_public:
        raise ConfigError(
            f"The examples in {path.name} must not come from the private data: prompts show them.",
            "If they are public, say so in the file with `examples_are_public: true` (docs/prompts.md).",
        )
    return template


def _parse(text: str, name: str) -> Mapping[str, Any]:
    from understudy.base.yaml_text import load_yaml

    with suppress(UnreadableText):
        if isinstance(fields := load_yaml(text), dict):
            return fields
    raise ConfigError(f"{name} is not a prompt template.", _FORM)


@dataclass(frozen=True)
class Prompts:
    """A loaded and checked prompt template. All of it is public."""

    parameters: WritingParameters
    template: PromptTemplate  # asks for texts of the form
    form: TextForm = PLAIN


def with_phrases(examples: Sequence[Example], known: Sequence[str], *, count: int) -> list[Example]:
    """Return the examples; those without phrases get up to ``count`` of the ``known`` ones that they contain, and are
    left out if they contain none.

    Raises ConfigError if there are examples, but none is left.
    """
    made = [
        Example(text=example.text.strip(), phrases=example.phrases or kept_phrases(example.text, known)[:count])
        for example in examples
    ]
    useful = [example for example in made if example.text and example.phrases]
    if examples and not useful:
        raise ConfigError(
            "No example in the prompt file contains a phrase of the Release.",
            "List the `phrases` of each example in the file.",
        )
    return useful


_SYSTEM = "system"  # the role of a chat's instructions, not of a turn


def in_form(template: PromptTemplate, form: TextForm) -> PromptTemplate:
    """Return the template changed to ask for texts of this form (fields, dialogues), with examples in it; unchanged for
    plain texts.

    Names are public, and a template is data: so all methods ask alike, and the hash of the prompts covers the form.
    """
    if not form:
        return template
    wish = _wish(template, form)
    evolution, prediction = template.evolution, template.prediction
    examples = _examples(template, form)
    shown = tuple(EvolutionExample(text=each.text, keyword=each.phrases[0]) for each in examples if each.phrases)
    forms = {
        name: own.model_copy(update={"before": _asking(own.before, wish), "block": "{text}", "cue": ""})
        for name, own in (("chat", prediction.chat), ("completion", prediction.completion))
    }
    return template.model_copy(
        update={
            "user": _asking(template.user, wish),
            "user_with_label": template.user_with_label and _asking(template.user_with_label, wish),
            "repair": _asking(template.repair, wish),
            "stop": (),
            "examples": examples,
            "evolution": evolution.model_copy(
                update={
                    **{
                        name: tuple(_asking(pattern, wish) for pattern in getattr(evolution, name))
                        for name in ("random", "fill", "rephrase")
                    },
                    "examples": shown,
                }
            ),
            "prediction": prediction.model_copy(update={**forms, "ask": _asking(prediction.ask, wish), "examples": ()}),
        }
    )


def _wish(template: PromptTemplate, form: TextForm) -> str:
    if form.fields:
        return template.as_fields.replace("{outline}", "\n".join(f"{name}: ..." for name in form.fields))
    *others, last = form.roles
    roles = f"{', '.join(others)} and {last}" if others else last
    outline = form.render(_dialogue(form, form.roles, ["..."] * len(form.roles), asked="...", answer="..."))
    wishes = [template.as_dialogue.replace("{roles}", roles).replace("{outline}", outline)]
    if form.acts:
        wishes.append(template.as_acts.replace("{acts}", ", ".join(form.acts)))
    if form.tools:
        wishes.append(template.as_calls.replace("{caller}", last).replace("{tools}", ", ".join(form.tools)))
    return "\n".join(wishes)


def _asking(pattern: str, wish: str) -> str:
    """Return the pattern with the wish at its end, or before the text that it shows."""
    asks, shows, rest = pattern.partition("\n\n{text}")
    return f"{asks} {wish}{shows}{rest}"


def _examples(template: PromptTemplate, form: TextForm) -> tuple[Example, ...]:
    """Return the template's examples that can be shown in this form."""
    made = []
    for each in template.rows if form.fields else template.dialogues:
        if len(each.parts) >= len(form.fields) and each.parts:
            if form.fields:
                parts = list(map(Part, form.fields, each.parts))
            else:
                speakers = [role for role in form.roles if role != _SYSTEM] or form.roles
                parts = _dialogue(form, speakers, each.parts, asked=", ".join(each.phrases), answer="found")
            made.append(Example(phrases=each.phrases, text=form.render(parts)))
    return tuple(made)


def _dialogue(form: TextForm, speakers: Sequence[str], said: Sequence[str], *, asked: str, answer: str) -> list[Part]:
    """Return turns of the ``speakers``, with the acts in turn; before the last role first speaks, it calls a tool."""
    names, acts, caller = cycle(speakers), cycle(form.acts or ("",)), form.roles[-1]
    parts = [Part(next(names), content, next(acts)) for content in said]
    if form.tools:
        tool = form.tools[0]
        call = Part(caller, json.dumps({"query": asked}, ensure_ascii=False), tool=tool)
        place = next((place for place, part in enumerate(parts) if part.name == caller), len(parts))
        parts[place:place] = [call, Part(TOOL, answer, tool=tool)]
    return parts
