"""The two APIs that private evolution asks of a language model: new texts, and variations of texts.

Everything in a prompt is public, released, or the model's own answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, ModelError
from understudy.base.files import MOST_SETTINGS_BYTES, UnreadableText, cannot_read, read_lines, read_whole
from understudy.methods.shared.evolution.parameters import EvolutionParameters
from understudy.models.types import ChatModel, Completion, Message
from understudy.release import Release
from understudy.text.prompts.evolving import EvolutionExample, EvolutionPrompts
from understudy.text.writing import Asker, NoText, Writer, tidy

BLANK = "_"
_NAMED = ("keyword", "style", "words")
_WORD = re.compile(r"\w+(?:['’\-]\w+)*")
_TRY = (
    "Check the model with `understudy models check SPEC`; then repeat this command, which continues where it stopped."
)
_WORDS_SPREAD = 20.0
"""Standard deviation of the words that a variation is asked for, about the number of its parent's."""
_SAMPLES = 1_000_000  # of one prompt, at most
_STAGES = 1_000_000


@dataclass(frozen=True)
class Answers:
    """Texts that a language model wrote. Answers that failed, were empty or left blanks are counted, not included."""

    texts: tuple[str, ...]  # one each, never blank
    labels: NDArray[np.int32]  # ``Int32[n]``
    sources: NDArray[np.int64]  # ``Int64[n]``, index of the text that each is a variation of; -1 for new ones
    prompts: tuple[str, ...]  # what was asked for, in short
    failed: NDArray[np.int64]  # ``Int64[labels]``, calls without a text
    problem: str | None = None  # why no call gave a text, if asking again later may give some; else None


def require_text(*asked: Answers) -> None:
    """Raise NoText if no call gave a text, but asking again may give some."""
    problem = next((each.problem for each in asked if each.problem), None)
    if problem is not None and not any(each.texts for each in asked):
        raise NoText(f"The language model wrote no text at all: {problem}.", _TRY)


@dataclass(frozen=True)
class TextAPI:
    """Asks a language model for new texts and for variations.

    What a prompt names (keyword, style, words, blanks) is sampled before anything is asked, from the seed, the stage
    and the texts alone, so it does not depend on which answers fail. The same call made again, as in a resumed run,
    asks for the same.

    Args:
        keywords: of each label (one entry if there are no labels), public or released; an entry may be empty.

    Raises ModelError if there is no chat model. Both methods raise NoText if all calls failed: then nothing is stored,
    and a resumed run asks again.
    """

    writer: Writer  # the chat model with its template, labels, public examples and settings
    parameters: EvolutionParameters  # how texts evolve
    keywords: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        _ = self.chat

    @property
    def chat(self) -> ChatModel:
        if self.writer.chat is None:
            raise ModelError("Evolution needs a language model.", "Name one with --llm, such as 'builtin'.")
        return self.writer.chat

    def random(self, counts: Sequence[int], *, stage: int) -> Answers:
        """Return new texts, ``counts[label]`` of each label; other arguments as in :meth:`variations`."""
        generator = np.random.default_rng([self.writer.seed, stage])
        labels = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        sources = np.full(len(labels), -1, dtype=np.int64)
        asked = [self._random_prompt(int(label), index, generator) for index, label in enumerate(labels)]
        return self._ask(asked, labels, sources, stage)

    def variations(
        self, texts: Sequence[str], labels: NDArray[np.int32], *, stage: int, details: Sequence[str] = ()
    ) -> Answers:
        """Return one variation of each of ``texts``; a text that occurs twice gets two.

        Args:
            stage: a number from 0 to 999,999; each stage has its own randomness.
            details: for each variation, typed columns' values that it should fit, in words; empty without them.
        """
        generator = np.random.default_rng([self.writer.seed, stage])
        asked = [
            self._variation_prompt(text, int(label), index, generator)
            for index, (text, label) in enumerate(zip(texts, labels, strict=True))
        ]
        if details:
            fitted, template = zip(asked, details, strict=True), self.writer.template
            asked = [(short, template.with_details(chat, row)) for (short, chat), row in fitted]
        return self._ask(asked, labels, np.arange(len(texts), dtype=np.int64), stage)

    def _random_prompt(self, label: int, index: int, generator: np.random.Generator) -> tuple[str, tuple[Message, ...]]:
        words = int(generator.integers(self.parameters.min_words, self.parameters.max_words, endpoint=True))
        turns = [(_about(each, each.text), each.text) for each in self._shown(index)]
        patterns = self.writer.template.evolution.random
        return self._prompt("random", patterns, label, {"words": str(words)}, turns, generator)

    def _variation_prompt(
        self, text: str, label: int, index: int, generator: np.random.Generator
    ) -> tuple[str, tuple[Message, ...]]:
        parameters, prompts = self.parameters, self.writer.template.evolution
        target = round(generator.normal(len(text.split()), _WORDS_SPREAD))
        words = min(max(target, parameters.min_words), parameters.max_words)
        filling = parameters.blank_probability > 0
        turns = [
            ({**_about(each, answer), "text": self._with_blanks(each.text, generator)}, answer)
            for each in self._shown(index)
            if (answer := each.text if filling else each.again)
        ]
        wish = {"words": str(words), "text": self._with_blanks(text, generator)}
        patterns = prompts.fill if filling else prompts.rephrase
        short, messages = self._prompt("variation", patterns, label, wish, turns, generator)
        return f"{short}|blanks:{parameters.blank_probability:g}", messages

    def _with_blanks(self, text: str, generator: np.random.Generator) -> str:
        change = partial(with_blanks, probability=self.parameters.blank_probability, generator=generator)
        return change(text) if self.writer.form is None else self.writer.form.change(text, change)

    def _prompt(
        self,
        kind: str,
        patterns: Sequence[str],
        label: int,
        wish: Mapping[str, str],
        turns: Sequence[tuple[Mapping[str, str], str]],
        generator: np.random.Generator,
    ) -> tuple[str, tuple[Message, ...]]:
        """Return what a prompt asks for, in short and in full: one of the patterns, a keyword and a style, at
        random."""
        number = int(generator.integers(len(patterns)))
        labels = self.writer.labels
        values = {
            "label": labels[label] if labels else "",
            "keyword": _one_of(self.keywords[label], generator),
            "style": _one_of(self.writer.template.evolution.styles, generator),
            **wish,
        }
        shown = turns if labels else [({**asked, "label": ""}, answer) for asked, answer in turns]
        named = [f"{name}:{values[name]}" for name in _NAMED if values[name] and f"{{{name}}}" in patterns[number]]
        which = [f"prompt:{number + 1}"] if len(patterns) > 1 else []
        messages = self.writer.template.evolution_messages(patterns[number], values, turns=shown)
        return "|".join([kind, *which, *named]), messages

    def _shown(self, index: int) -> list[EvolutionExample]:
        """Return the examples of the prompt at ``index``: in turn, so that not all texts resemble the same ones."""
        known = self.writer.template.evolution_examples
        count = min(self.writer.template.settings.examples_per_prompt, len(known))
        return [known[(index * count + offset) % len(known)] for offset in range(count)]

    def _ask(
        self,
        asked: Sequence[tuple[str, tuple[Message, ...]]],
        labels: NDArray[np.int32],
        sources: NDArray[np.int64],
        stage: int,
    ) -> Answers:
        sample = (self.writer.seed * _STAGES + stage) * _SAMPLES
        stop = self.writer.template.stop
        asker = Asker(self.chat, self.writer.progress, expected=len(asked))
        answers = asker.ask([self.writer.request(messages, stop, sample=sample) for _, messages in asked])
        if answers and all(answer.finish_reason == "failed" for answer in answers):
            raise NoText(f"The language model does not answer: {answers[-1].error}.", _TRY)
        texts = ["" if BLANK in text.split() else text for text in map(self._read, answers)]
        kept = np.array([bool(text) for text in texts], dtype=bool)
        return Answers(
            texts=tuple(text for text in texts if text),
            labels=labels[kept],
            sources=sources[kept],
            prompts=tuple(short for (short, _), text in zip(asked, texts, strict=True) if text),
            failed=np.bincount(labels[~kept], minlength=len(self.keywords)).astype(np.int64),
            problem=answers[-1].error if answers and all(answer.error for answer in answers) else None,
        )

    def _read(self, answer: Completion) -> str:
        """Return the text of an answer; empty if it does not have the required form."""
        form, text = self.writer.form, tidy(answer)
        return text if form is None or not text else form.read(replace(answer, text=text)) or ""


def longest_prompts(
    parameters: EvolutionParameters, release: Release, writer: Writer, *, keywords: Sequence[Sequence[str]] = ()
) -> Iterator[tuple[Message, ...]]:
    """Return the longest prompts for each label and its keywords (default: the public ones), with texts of full
    length."""
    writing, template = writer.parameters, writer.template
    known = sorted(template.evolution_examples, key=lambda each: len(each.text), reverse=True)
    shown = known[: template.settings.examples_per_prompt]
    turns = [({**_about(each, each.text), "text": each.text}, each.text) for each in shown]
    wish = {"style": max(template.evolution.styles, key=len, default=""), "words": str(parameters.max_words)}
    wish["text"] = " ".join([BLANK] * min(parameters.max_words, writing.max_tokens))
    keywords = keywords or keywords_of_labels(parameters, template.evolution, writer.labels)
    for label, about in zip(writer.labels or ("",), keywords, strict=True):
        values = {**wish, "label": label, "keyword": max(about, key=len, default="")}
        for pattern in (*template.evolution.random, *template.evolution.fill, *template.evolution.rephrase):
            yield template.evolution_messages(pattern, values, turns=turns)


def with_blanks(text: str, probability: float, generator: np.random.Generator) -> str:
    """Replace each word of ``text`` by a blank with ``probability``; spaces and punctuation stay."""
    if probability == 0:
        return text
    return _WORD.sub(lambda match: BLANK if generator.random() < probability else match[0], text)


def _about(example: EvolutionExample, answer: str) -> dict[str, str]:
    """Return the request that would precede an example."""
    return {"label": example.label, "keyword": example.keyword, "style": "", "words": str(len(answer.split()))}


def _one_of(choices: Sequence[str], generator: np.random.Generator) -> str:
    return choices[int(generator.integers(len(choices)))] if choices else ""


def keywords_of_labels(
    parameters: EvolutionParameters, prompts: EvolutionPrompts, labels: Sequence[str]
) -> tuple[tuple[str, ...], ...]:
    """Return the keywords of each label (one entry if there are no labels); may be empty. Raises ConfigError if the
    file cannot be read, contains no keyword, or is not declared public."""
    if parameters.keywords is not None:
        if not parameters.keywords_are_public:
            raise ConfigError(
                "Your keywords must not come from the private data.",
                "If they are public, say so with --keywords-are-public.",
            )
        prompts = _read(Path(parameters.keywords))
    return tuple(prompts.keywords_of(label) for label in labels or ("",))


def _read(file: Path) -> EvolutionPrompts:
    from understudy.base.yaml_text import load_yaml

    try:
        if file.suffix in (".yaml", ".yml"):
            found = load_yaml(read_whole(file, most=MOST_SETTINGS_BYTES).decode("utf-8-sig"))
        else:
            found = tuple(line.strip() for line in read_lines(file) if line.strip())
        made = EvolutionPrompts(keywords=found)
    except (ValueError, RecursionError, UnreadableText) as error:
        raise cannot_read(f"The keywords {file.name}", error, "Give a UTF-8 text or YAML file.") from None
    except ConfigError:
        made = EvolutionPrompts()
    if not any(made.keywords.values()):
        raise ConfigError(
            f"{file.name} contains no keywords.", "Write one per line, or YAML with a list of keywords for each label."
        )
    return made
