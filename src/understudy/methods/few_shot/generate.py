"""Few-shot, after the privacy boundary: any language model, shown exemplars of a label. Free, any number of times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from understudy.methods.few_shot.plan import EXEMPLARS_PER_PROMPT, SCHEMA
from understudy.methods.public import GenerationTools
from understudy.methods.shared.decoding.structured import Fault, JSONSchema, RecordCheck, TextCheck, TranscriptCheck
from understudy.models.types import ChatRequest, Completion
from understudy.release import PublicSchema, Release
from understudy.text.prompts.predicting import Shape, shown_examples
from understudy.text.writing.records import Row, SyntheticRecord
from understudy.text.writing.writer import Asker, Writer, public_name, tidy

_SAMPLES = 1_000_000


def generate(release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:
    """Ask for ``counts[label]`` texts of each label, each prompt with exemplars of its label in an order of its own,
    and with the row that the text is to fit where there are typed columns.

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
        _draw(tools.seed, label, number, shown[label], EXEMPLARS_PER_PROMPT)
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
        tools.say(
            f"{sum(faults.values())} of {len(wanted)} texts are left out, as their answers are no records ({counted})."
        )


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
    """Asks for texts like the exemplars; ``json_schema`` is the content of the file for records, empty for none."""

    def __init__(self, writer: Writer, schema: PublicSchema, json_schema: str) -> None:
        self._writer = writer
        self._columns = schema.record_columns
        self._json_schema = json_schema
        schema_of = JSONSchema("the Release's schema", content=json_schema.encode()) if json_schema else None
        self._check: TextCheck | None = TranscriptCheck(schema.form) if schema.form else None
        if self._columns:
            self._check = RecordCheck(self._columns, schema_of)

    def records(self, wanted: Sequence[Wanted], exemplars: Sequence[str]) -> Iterator[SyntheticRecord]:
        """One record each, in order; of several samples the first that can be used."""
        chat, samples = self._writer.chat, self._writer.parameters.samples
        assert chat is not None, "a run without one is refused"
        asker = Asker(chat, self._writer.progress, expected=len(wanted) * samples)
        waiting = iter(wanted)
        while some := list(islice(waiting, self._writer.seeds_at_once)):
            rows = [None if self._writer.rows is None else self._writer.rows.take(each.label) for each in some]
            requests = [self.request(each, exemplars, row) for each, row in zip(some, rows, strict=True)]
            answers = iter(asker.ask([request for request in requests for _ in range(samples)]))
            for each, row in zip(some, rows, strict=True):
                record = self._record(each, list(islice(answers, samples)), public_name(chat.model_id))
                yield record if row is None else replace(record, columns=row.values)

    def request(self, wanted: Wanted, exemplars: Sequence[str], row: Row | None) -> ChatRequest:
        """For one answer; without exemplars the prompt shows the template's public examples."""
        writing, template = self._writer.parameters, self._writer.template
        label = self._writer.labels[wanted.label] if self._writer.labels else ""
        shape: Shape = "json" if self._columns else "text"
        prompt = template.prediction_prompt(
            chat=True, label=label, shape=shape, columns=self._columns, schema=self._json_schema, examples=()
        )
        shown = [exemplars[number] for number in wanted.exemplars]
        if not shown:
            public = template.prediction_examples(shape, self._columns)
            shown = [each.text for each in shown_examples(public, label, most=template.settings.examples_per_prompt)]
        return ChatRequest(
            template.with_details(prompt.messages(shown), "" if row is None else row.details),
            max_tokens=writing.max_tokens,
            temperature=writing.llm_temperature,
            top_p=template.settings.top_p,
            stop=prompt.stop if self._check is None else (),
            sample=self._writer.seed * _SAMPLES,
        )

    def _record(self, wanted: Wanted, answers: Sequence[Completion], model: str) -> SyntheticRecord:
        """The first answer that can be used; else none, with what is wrong with the last."""
        text, finish, fault = "", answers[-1].finish_reason, ""
        for answer in answers:
            found = self._text(answer)
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

    def _text(self, answer: Completion) -> str | Fault:
        """The answer as a text; of records, the record without what is said around it."""
        if self._check is None:
            return tidy(answer)
        if answer.blank:
            return ""
        if isinstance(self._check, TranscriptCheck):
            return self._check(answer.text)
        start, end = answer.text.find("{"), answer.text.rfind("}")
        return self._check(answer.text[start : end + 1] if 0 <= start < end else answer.text)
