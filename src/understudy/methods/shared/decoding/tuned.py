"""A model fine-tuned to write texts of a label: its prompts, the rows that it learns from or scores, and sampling."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.base.display import plural
from understudy.base.errors import ConfigError
from understudy.methods.facts import GenerationTools
from understudy.methods.shared.decoding.prompting import LabelPrompts, TextParameters, build_prompts, prompt_tokens
from understudy.methods.shared.decoding.structured import Fault, TextCheck, check_of
from understudy.models.causal import CausalModel
from understudy.models.local import Prompt, batches, request_uniforms
from understudy.models.machine import worker_pool
from understudy.models.training import Shapes, TokenRow, Trainable
from understudy.models.types import Completion
from understudy.release import Release
from understudy.text.prompts.predicting import Shape
from understudy.text.prompts.template import Prompts
from understudy.text.prompts.writer import Brief
from understudy.text.records import SyntheticRecord
from understudy.text.writing import public_name

_AT_ONCE = 4096
_SCORED = 8


@dataclass(frozen=True)
class Instructions:
    """The prompts of each label, in the tokens of one model. Public.

    Args:
        opening: the beginning of every text and end of every prompt: in a record, everything before its first value.
        shape, columns: of a text.
    """

    prompts: tuple[tuple[int, ...], ...]  # of each label, including the beginning of the answer
    opening: str = ""
    lead: str = ""  # white space between a prompt and a text that has no opening
    shape: Shape = "text"
    columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, asked: LabelPrompts) -> Instructions:
        """Return the prompts of ``asked`` without a private text, as instructions."""
        prompts = tuple((*each.tokens.prefix, *each.tokens.suffix) for each in asked.labels)
        first, lead = asked.labels[0].prompt, asked.labels[0].tokens.lead
        return cls(prompts, first.opening, lead, first.shape, first.columns)

    @property
    def longest(self) -> int:
        return max(map(len, self.prompts))

    def target(self, text: str) -> str:
        """Return what follows the prompt if the answer is ``text``. A function of this text alone."""
        shown = text.strip()
        return shown.removeprefix(self.opening) if self.opening else self.lead + shown

    def text(self, answer: str) -> str:
        """Return the whole text: the opening, which the prompt contains, and the model's ``answer``."""
        return (self.opening + answer).strip()

    def to_arrays(self) -> dict[str, NDArray[np.int32]]:
        """Return the prompts, for a Release."""
        return {
            "prompt_tokens": np.array([token for prompt in self.prompts for token in prompt], dtype=np.int32),
            "prompt_lengths": np.array([len(prompt) for prompt in self.prompts], dtype=np.int32),
        }

    @classmethod
    def from_release(
        cls, arrays: Mapping[str, NDArray[Any]], strings: Mapping[str, Sequence[str]], columns: Sequence[str]
    ) -> Instructions:
        """Read the arrays of :meth:`to_arrays`, and the form of the texts. ConfigError if the lengths do not fit."""
        tokens, lengths = arrays["prompt_tokens"].tolist(), arrays["prompt_lengths"].tolist()
        if sum(lengths) != len(tokens) or min(lengths, default=0) < 1:
            raise ConfigError("The prompts of the Release are damaged.", "Ask the sender for a new copy.")
        ahead = iter(tokens)
        opening, lead, shape = strings["form"]
        prompts = tuple(tuple(islice(ahead, length)) for length in lengths)
        return cls(prompts, opening, lead, "json" if shape == "json" else "text", tuple(columns))


def build_instructions(
    parameters: TextParameters,
    prompts: Prompts,
    model: CausalModel,
    *,
    label_names: Sequence[str],
    record_columns: Sequence[str],
) -> LabelPrompts:
    """Build the prompts of :func:`~understudy.methods.shared.decoding.prompting.build_prompts` without examples and
    stop strings: a tuned model knows the form of the texts and ends them by itself, so they may contain blank lines.
    A model with the writer's adapters is asked in the form that they were trained on.
    """
    settings = prompts.template.settings.model_copy(update={"examples_per_prompt": 0})
    plain = replace(prompts, template=prompts.template.model_copy(update={"settings": settings}))
    asked = build_prompts(parameters, plain, model, label_names=label_names, record_columns=record_columns)
    pieces = [replace(each.prompt, stop=()) for each in asked.labels]
    if model.is_writer:
        asks = (Brief(asked.document_type, label=each).messages for each in label_names or [""])
        turns = zip(pieces, map(model.render, asks), strict=True)
        pieces = [replace(each, before=turn, block=("", ""), after="", cue="") for each, turn in turns]
    labels = tuple(
        replace(each, prompt=piece, tokens=prompt_tokens(piece, model))
        for each, piece in zip(asked.labels, pieces, strict=True)
    )
    return replace(asked, labels=labels)


class TunedModel:
    """A model with its tuned part and the instructions it was tuned on.

    Args:
        trainable: loaded with the tuned weights, or about to be.
        tokens: largest number of tokens of a text that it learns from.
        label_names: of the instructions, in order; empty for a table without labels.

    Raises ConfigError: prompts and texts do not fit the model's window together.
    """

    def __init__(
        self, trainable: Trainable, instructions: Instructions, *, tokens: int, label_names: Sequence[str] = ()
    ) -> None:
        self.trainable = trainable
        self.instructions = instructions
        self.tokens = tokens
        self._labels = {name: number for number, name in enumerate(label_names)}
        window = self.causal.window
        if max((token for prompt in instructions.prompts for token in prompt), default=0) >= self.causal.vocabulary:
            raise ConfigError(
                "The prompt has tokens that the model does not know.", "Reword it (--document-type, --prompt)."
            )
        if not instructions.longest or self.shapes(1).longest > window:
            raise ConfigError(
                f"A prompt and a text of {tokens} tokens do not fit the model's window of {window} tokens.",
                "Cut texts shorter (--private-text-tokens), or name a model with a larger window.",
            )

    @property
    def causal(self) -> CausalModel:
        return self.trainable.causal

    @property
    def network(self) -> Any:
        return self.trainable.network

    def active(self) -> Any:
        """Return a context in which the model computes with its tuned part (see
        :meth:`~understudy.models.training.LoRA.active`)."""
        return self.trainable.active()

    def shapes(self, rows: int = _SCORED) -> Shapes:
        """Return the shapes in which rows are computed, ``rows`` at a time."""
        return Shapes(self.instructions.longest, self.tokens + 1, rows)

    def row(self, text: str, label: int, *, end: bool = True) -> TokenRow:
        """Return a text after its label's prompt: its first tokens and, if it was not cut, the token that ends a text.

        A function of this text and label alone. Tokens that the tokenizer has and the model lacks are left out.
        """
        known, last = self.causal.vocabulary, self.causal.end
        tokens = [token for token in self.causal.encode(self.instructions.target(text)) if token < known]
        target = tokens[: self.tokens]
        if end and len(tokens) <= self.tokens and last is not None and last < known:
            target = [*target, last]
        return TokenRow(self.instructions.prompts[label], np.array(target, dtype=np.int32))

    def rows(self, texts: Sequence[str], labels: Sequence[str] | None) -> list[TokenRow]:
        """Return rows to score, without the token that ends a text. Texts of unknown labels are left out."""
        numbers = [0] * len(texts) if not self._labels else [self._labels.get(each, -1) for each in labels or ()]
        found = [self.row(text, label, end=False) for text, label in zip(texts, numbers, strict=False) if label >= 0]
        return [row for row in found if len(row.target)]

    def sample(
        self, keys: Sequence[tuple[int, str]], *, sampling: Sampling, beginnings: Sequence[str] | None = None
    ) -> Iterator[Completion]:
        """Sample one text per key. A key is a label and a string that, with the seed, decides the randomness. Each text
        continues its beginning, which includes any final line break."""
        decoder, device = self.causal.decoder(self.network), self.causal.device
        stop = threading.Event()

        def answer(batch: Sequence[tuple[int, Prompt]]) -> list[Completion]:
            with self.active():
                return decoder.answer([prompt for _, prompt in batch], cancelled=stop)

        for first in range(0, len(keys), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            begun = [""] * len(keys[some]) if beginnings is None else beginnings[some]
            prompts = [
                self._prompt(label, key, sampling, beginning)
                for (label, key), beginning in zip(keys[some], begun, strict=True)
            ]
            groups = list(batches(prompts, device))
            found: dict[int, Completion] = {}
            with worker_pool(device) as pool:
                try:
                    for batch, answers in zip(groups, pool.map(answer, groups), strict=True):
                        found |= {index: each for (index, _), each in zip(batch, answers, strict=True)}
                except BaseException:
                    stop.set()
                    pool.shutdown(cancel_futures=True)
                    raise
            yield from (found[index] for index in range(len(prompts)))

    def _prompt(self, label: int, key: str, sampling: Sampling, beginning: str) -> Prompt:
        tokens = list(self.instructions.prompts[label])
        if beginning:
            begun = self.instructions.target(beginning) + "\n" * beginning.endswith("\n")  # as it was learnt
            tokens += self.causal.encode(begun)[: self.tokens]
        most = max(1, min(sampling.max_tokens, self.causal.window - len(tokens)))
        uniforms = request_uniforms(sampling.seed, f"{label} {key}", count=most)
        return Prompt(tokens, sampling.temperature, sampling.top_p, sampling.stop, uniforms)


@dataclass(frozen=True)
class Sampling:
    """Settings by which texts are sampled: public, and free to change."""

    seed: int
    temperature: float
    top_p: float
    max_tokens: int
    stop: tuple[str, ...] = ()


_TRIES = 4


def generate(
    unfinished: Literal["drop", "keep"],
    release: Release,
    counts: Sequence[int],
    *,
    tuned: TunedModel,
    tools: GenerationTools,
    knows_rows: bool = False,
) -> Iterator[SyntheticRecord]:
    """Sample ``counts[label]`` texts of each label from the tuned model; yield a record for each.

    A text that cannot be used (empty, unfinished if ``unfinished`` is ``drop``, or not of the required form) is sampled
    again, four times in total; after that its record has no text and names the fault. ``knows_rows``: the model learnt
    texts that begin with the cells of their typed columns.
    """
    writing, top_p = tools.writer.parameters, tools.writer.template.settings.top_p
    sampling = Sampling(tools.seed, tools.writer.temperature, top_p, writing.max_tokens)
    texts = Texts(tuned, sampling, check_of(release), unfinished == "drop")
    wanted = [(label, number) for label, count in enumerate(counts) for number in range(count)]
    rows = tools.writer.rows if knows_rows else None
    model, faults, done = public_name(tuned.causal.model_id), Counter[str](), 0
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]
        taken = [None if rows is None else rows.take(label) for label, _ in some]
        beginnings = [f"{row.cells}\n" if row and row.cells else "" for row in taken]
        for (label, number), row, text in zip(some, taken, texts.of(some, beginnings), strict=True):
            known = {"model": model, "sample": number, "tries": text.tries, "finish": text.finish}
            if text.fault:
                faults[text.fault] += 1
                known["fault"] = text.fault
            yield SyntheticRecord(text.text, label, known, None if row is None else row.values)
        done += len(some)
        tools.progress("texts", done, len(wanted))
    if faults:
        counted = ", ".join(f"{name} {count}" for name, count in faults.items())
        tools.say(f"{sum(faults.values())} of {plural(len(wanted), 'text')} are left out ({counted}).")


@dataclass(frozen=True)
class Text:
    """A sampled text; empty if unusable, with the reason in ``fault``."""

    text: str
    tries: int
    finish: str
    fault: str = ""


@dataclass(frozen=True)
class Texts:
    """Samples texts repeatedly until they are usable."""

    tuned: TunedModel
    sampling: Sampling
    check: TextCheck | None  # of records and transcripts
    drop_unfinished: bool  # whether a text that did not end by itself can be used

    def of(self, wanted: Sequence[tuple[int, int]], beginnings: Sequence[str]) -> list[Text]:
        """Return one text for each (label, number), in order, continuing its beginning, which is not part of it."""
        found: dict[int, Text] = {}
        for tries in range(1, _TRIES + 1):
            open_ = [place for place in range(len(wanted)) if place not in found or found[place].fault]
            keys = [(wanted[place][0], f"{wanted[place][1]} {tries}") for place in open_]
            begun = [beginnings[place] for place in open_]
            answers = self.tuned.sample(keys, sampling=self.sampling, beginnings=begun)
            for place, answer in zip(open_, answers, strict=True):
                found[place] = self._text(answer, tries)
        return [found[place] for place in range(len(wanted))]

    def _text(self, answer: Completion, tries: int) -> Text:
        text = self.tuned.instructions.text(answer.text)
        fault = ""
        if answer.finish_reason == "length" and self.drop_unfinished:
            fault = "unfinished"
        elif not answer.text.strip():
            fault = "empty"
        elif self.check is not None:
            record = self.check(text)
            text, fault = (text, str(record)) if isinstance(record, Fault) else (record, "")
        return Text("" if fault else text, tries, answer.finish_reason, fault)
