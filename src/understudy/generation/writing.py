"""The prompting loop: seeds in, texts out, the best of several answers kept.

Phrases are released values and examples are public, so nothing here touches private data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from understudy.errors import ConfigError
from understudy.generation.parameters import WritingParameters
from understudy.generation.records import Seed, SyntheticRecord
from understudy.generation.template import Example, PromptTemplate
from understudy.models.collect import collect
from understudy.models.types import ChatModel, ChatRequest, Completion, Message
from understudy.vocabulary.words import split_words

_SEEDS_AT_ONCE = 1024
_SEPARATOR = ", "


@dataclass(frozen=True)
class Writer:
    """Writes texts with a chat model, or, without one, the phrases themselves.

    Args:
        chat: None writes each seed's phrases joined by ", ".
        template: of the document type.
        parameters: how to write.
        labels: the label set as strings, for prompts that name the label.
        examples: public examples; the template's own if there are none.
        seed: first number of the samples, so that another seed asks for other answers.
        progress: told the number of answers as they come in.
    """

    chat: ChatModel | None
    template: PromptTemplate
    parameters: WritingParameters
    labels: Sequence[str] = ()
    examples: Sequence[Example] = ()
    seed: int = 0
    progress: Callable[[int], None] | None = None

    @property
    def calls_per_seed(self) -> int:
        """Language model calls for one seed, repairs left out."""
        return 0 if self.chat is None else self.parameters.samples

    def write(self, seeds: Sequence[Seed]) -> Iterator[SyntheticRecord]:
        """One record a seed, in the order of the seeds."""
        if self.chat is None:
            for seed in seeds:
                yield SyntheticRecord(_SEPARATOR.join(seed.phrases), seed.label, {"phrases": list(seed.phrases)})
            return
        for start in range(0, len(seeds), _SEEDS_AT_ONCE):
            yield from self._write(self.chat, seeds[start : start + _SEEDS_AT_ONCE], start)

    def _write(self, chat: ChatModel, seeds: Sequence[Seed], first: int) -> Iterator[SyntheticRecord]:
        asked = [seed.phrases[: self.parameters.prompt_terms] for seed in seeds]
        samples = self.parameters.samples
        requests = [
            self._request(self._messages(phrases, seed, first + index), sample)
            for index, (seed, phrases) in enumerate(zip(seeds, asked, strict=True))
            for sample in range(samples)
        ]
        answers = collect(chat, requests, progress=self.progress)
        best = [
            max(answers[index * samples : (index + 1) * samples], key=lambda answer: rank(answer, phrases))
            for index, phrases in enumerate(asked)
        ]
        for attempt in range(self.parameters.repair):
            best = self._repair(chat, best, asked, attempt)
        for seed, phrases, answer in zip(seeds, asked, best, strict=True):
            kept = kept_phrases(answer.text, phrases)
            provenance = {
                "phrases": list(phrases),
                "kept": list(kept),
                "prompt": self.template.sha256[:12],
                "model": chat.model_id,
                "finish": answer.finish_reason,
            }
            yield SyntheticRecord(answer.text.strip(), seed.label, provenance)

    def _messages(self, phrases: Sequence[str], seed: Seed, index: int) -> tuple[Message, ...]:
        shown = list(self.examples or self.template.examples)
        count = min(self.parameters.examples_per_prompt, len(shown))
        turn = [shown[(index * count + offset) % len(shown)] for offset in range(count)]
        label = self.labels[seed.label] if self.parameters.label_in_prompt and self.labels else None
        return self.template.messages(phrases, label=label, examples=turn)

    def _request(self, messages: tuple[Message, ...], sample: int) -> ChatRequest:
        return ChatRequest(
            messages,
            max_tokens=self.parameters.max_tokens,
            temperature=self.parameters.llm_temperature,
            top_p=self.parameters.top_p,
            stop=self.template.stop,
            sample=self.seed * 1_000_000 + sample,
        )

    def _repair(
        self, chat: ChatModel, texts: Sequence[Completion], asked: Sequence[Sequence[str]], attempt: int
    ) -> list[Completion]:
        """Ask again where phrases are missing; keep whichever answer has more."""
        missing = [
            [phrase for phrase in phrases if phrase not in kept_phrases(answer.text, phrases)]
            for answer, phrases in zip(texts, asked, strict=True)
        ]
        broken = [index for index, lacking in enumerate(missing) if lacking and texts[index].text]
        requests = [
            self._request(
                self.template.repair_messages(texts[index].text, missing[index], asked[index]), 1000 + attempt
            )
            for index in broken
        ]
        best = list(texts)
        for index, answer in zip(broken, collect(chat, requests, progress=self.progress), strict=True):
            best[index] = max(best[index], answer, key=lambda candidate, i=index: rank(candidate, asked[i]))  # type: ignore[misc]
        return best


def kept_phrases(text: str, phrases: Sequence[str]) -> tuple[str, ...]:
    """The phrases whose words stand in a row in ``text``, in the sense of :func:`split_words`."""
    words = f" {' '.join(split_words(text))} "
    return tuple(phrase for phrase in phrases if f" {' '.join(split_words(phrase))} " in words)


def rank(answer: Completion, phrases: Sequence[str]) -> tuple[bool, float, bool]:
    """Answers with text before those without, then by phrases kept, then complete ones before cut ones."""
    kept = len(kept_phrases(answer.text, phrases)) / max(len(phrases), 1)
    return bool(answer.text.strip()), kept, answer.finish_reason == "stop"


def load_examples(file: str | Path, known: Sequence[str], *, count: int) -> list[Example]:
    """Public example texts: one a line, or JSONL with ``text`` and optionally ``phrases``.

    Texts without phrases are given up to ``count`` of the ``known`` phrases that they hold; texts that hold none
    are left out.

    Raises:
        ConfigError: if the file cannot be read or holds no usable example.
    """
    path = Path(file)
    try:
        lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
        rows = [json.loads(line) for line in lines] if path.suffix in (".jsonl", ".ndjson") else lines
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The examples {path.name} cannot be read ({type(error).__name__}).", "Give a UTF-8 text or JSONL file."
        ) from None
    examples = []
    for row in rows:
        fields = row if isinstance(row, dict) else {"text": row}
        text = str(fields.get("text", "")).strip()
        phrases = tuple(fields.get("phrases", ())) or kept_phrases(text, known)[:count]
        if text and phrases:
            examples.append(Example(text=text, phrases=tuple(map(str, phrases))))
    if not examples:
        raise ConfigError(
            f"The examples {path.name} hold no text with a phrase of the Release.",
            "Give JSONL lines with `text` and `phrases`.",
        )
    return examples
