"""Few-shot, after the privacy boundary: any language model, shown exemplars of a label. Free, any number of times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from understudy.generation.asking import Asker
from understudy.generation.predicting import PredictionPrompt
from understudy.generation.records import SyntheticRecord
from understudy.generation.tidying import tidy
from understudy.generation.writing import Writer, public_name
from understudy.methods.few_shot.parameters import FewShotParameters
from understudy.methods.few_shot.plan import SCHEMA
from understudy.methods.protocol import GenerationTools
from understudy.models.types import ChatRequest, Completion, Message
from understudy.prediction.structured import Fault, JSONSchema, RecordCheck
from understudy.release import PublicSchema, Release

_AT_ONCE = 1024
_SAMPLES = 1_000_000


def generate(
    parameters: FewShotParameters, release: Release, counts: Sequence[int], *, tools: GenerationTools
) -> Iterator[SyntheticRecord]:
    """Ask for ``counts[label]`` texts of each label, each prompt with exemplars of its label in an order of its own.

    A label without a usable exemplar is asked for with the template's public examples alone. Of records, an answer
    that is none is kept apart: a record without text that says in its provenance what is wrong.
    """
    writer, names = tools.writer, [str(label) for label in release.schema.labels]
    shown = usable_exemplars(release, len(counts))
    for label, (count, exemplars) in enumerate(zip(counts, shown, strict=True)):
        if count and not exemplars:
            which = f"Of {names[label]} there" if names else "There"
            tools.say(f"{which} is no exemplar that a prompt can show: texts are asked for without (zero-shot).")
    prompts = Prompting(writer, release.schema, release.strings.get(SCHEMA, ("",))[0])
    wanted = [
        _draw(tools.seed, label, number, shown[label], parameters.exemplars_per_prompt)
        for label, count in enumerate(counts)
        for number in range(count)
    ]
    faults: Counter[str] = Counter()
    for record in prompts.records(wanted, release.strings["exemplars"]):
        if "fault" in record.provenance:
            faults[record.provenance["fault"]] += 1
        yield record
    if faults:
        counted = ", ".join(f"{name} {count}" for name, count in faults.items())
        tools.say(f"{sum(faults.values())} of {len(wanted)} answers are no records and left out ({counted}).")


def usable_exemplars(release: Release, labels: int) -> list[list[int]]:
    """For each label the numbers of the exemplars that prompts may show."""
    found: list[list[int]] = [[] for _ in range(labels)]
    for number, (label, usable) in enumerate(
        zip(release.arrays["label"].tolist(), release.arrays["usable"].tolist(), strict=True)
    ):
        if usable:
            found[label].append(number)
    return found


@dataclass(frozen=True)
class Wanted:
    """A text that is to be asked for, and the exemplars that its prompt shows, in this order."""

    label: int
    exemplars: tuple[int, ...]


def _draw(seed: int, label: int, number: int, exemplars: Sequence[int], most: int) -> Wanted:
    order = np.random.default_rng([seed, label, number]).permutation(len(exemplars))[:most]
    return Wanted(label, tuple(exemplars[place] for place in order.tolist()))


class Prompting:
    """Asks for texts like the exemplars.

    Args:
        writer: the chat model with its template and settings.
        schema: of the synthetic table.
        json_schema: of records, the file's content; empty for none.
    """

    def __init__(self, writer: Writer, schema: PublicSchema, json_schema: str) -> None:
        self._writer = writer
        self._columns = schema.record_columns
        self._json_schema = json_schema
        self._check: RecordCheck | None = None
        if self._columns:
            self._check = RecordCheck(self._columns, _schema(json_schema))

    def records(self, wanted: Sequence[Wanted], exemplars: Sequence[str]) -> Iterator[SyntheticRecord]:
        """One record each, in order; of several samples the first that can be used."""
        chat, samples = self._writer.chat, self._writer.parameters.samples
        assert chat is not None, "a run without one is refused"
        asker = Asker(chat, self._writer.progress, expected=len(wanted) * samples)
        waiting = iter(wanted)
        while some := list(islice(waiting, _AT_ONCE)):
            prompts = [self._prompt(each) for each in some]
            requests = [
                self._request(prompt, prompt.messages([exemplars[number] for number in each.exemplars]))
                for each, prompt in zip(some, prompts, strict=True)
            ]
            answers = iter(asker.ask([request for request in requests for _ in range(samples)]))
            for each, prompt in zip(some, prompts, strict=True):
                yield self._record(each, prompt, list(islice(answers, samples)), public_name(chat.model_id))

    def _prompt(self, wanted: Wanted) -> PredictionPrompt:
        """In words; with public examples only where there is no exemplar."""
        labels = self._writer.labels
        return self._writer.template.prediction_prompt(
            chat=True,
            label=labels[wanted.label] if labels else "",
            shape="json" if self._columns else "text",
            columns=self._columns,
            schema=self._json_schema,
            examples=() if wanted.exemplars else None,
            most_examples=self._writer.parameters.examples_per_prompt,
        )

    def _request(self, prompt: PredictionPrompt, messages: tuple[Message, ...]) -> ChatRequest:
        writing = self._writer.parameters
        return ChatRequest(
            messages,
            max_tokens=writing.max_tokens,
            temperature=writing.llm_temperature,
            top_p=writing.top_p,
            stop=() if self._columns else prompt.stop,
            sample=self._writer.seed * _SAMPLES,
        )

    def _record(
        self, wanted: Wanted, prompt: PredictionPrompt, answers: Sequence[Completion], model: str
    ) -> SyntheticRecord:
        """The first answer that can be used; else none, with what is wrong with the last."""
        text, finish, fault = "", answers[-1].finish_reason, ""
        for answer in answers:
            found = self._text(prompt, answer)
            if isinstance(found, Fault):
                fault = str(found)
            elif found:
                text, finish, fault = found, answer.finish_reason, ""
                break
        provenance = {
            "exemplars": list(wanted.exemplars),
            "prompt": self._writer.template.sha256[:12],
            "model": model,
            "finish": finish,
            **({"fault": fault} if fault else {}),
        }
        return SyntheticRecord(text, wanted.label, provenance)

    def _text(self, prompt: PredictionPrompt, answer: Completion) -> str | Fault:
        """The answer without what introduces or surrounds the text; of records, the record."""
        if self._check is None:
            first = prompt.block[0].strip()
            return tidy(answer).removeprefix(first).strip() if first else tidy(answer)
        if not answer.text.strip():
            return ""
        start, end = answer.text.find("{"), answer.text.rfind("}")
        return self._check(answer.text[start : end + 1] if 0 <= start < end else answer.text)


def _schema(content: str) -> JSONSchema | None:
    return JSONSchema("the Release's schema", content=content.encode()) if content else None
