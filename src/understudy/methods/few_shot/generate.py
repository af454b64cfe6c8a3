"""Few-shot, after the privacy boundary: show a label's exemplars to any language model. Repeatable, costs no
privacy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from understudy.base.display import plural
from understudy.methods.facts import CallEstimate, GenerationTools
from understudy.methods.few_shot.plan import EXEMPLARS_PER_PROMPT, FewShotParameters
from understudy.methods.shared.decoding.structured import (
    Fault,
    JSONSchema,
    RecordCheck,
    TextCheck,
    TranscriptCheck,
    check_of,
    text_check,
)
from understudy.models.types import ChatRequest, Completion, Message
from understudy.release import Release
from understudy.text.prompts.predicting import Shape, shown_examples
from understudy.text.prompts.template import PromptTemplate, WritingParameters
from understudy.text.records import Row, SyntheticRecord
from understudy.text.writing import Asker, Writer, public_name, tidy

_CHARACTERS_PER_TOKEN = 4


def generate(
    _parameters: FewShotParameters, release: Release, counts: Sequence[int], *, tools: GenerationTools
) -> Iterator[SyntheticRecord]:
    """Ask a language model for ``counts[label]`` texts of each label. Each prompt shows exemplars of its label in
    random order and, if there are typed columns, the row that the text should fit.

    The prompts of a label without a usable exemplar have only the template's public examples. If records are wanted, an
    answer that is not a valid one becomes a record without text, whose provenance names the fault.
    """
    writer, names = tools.writer, [str(label) for label in release.schema.labels]
    shown = usable_exemplars(release, len(counts))
    for label, (count, exemplars) in enumerate(zip(counts, shown, strict=True)):
        if count and not exemplars:
            which = f"For {names[label]} there is" if names else "There is"
            tools.say(f"{which} no usable exemplar: prompts have none (zero-shot).")
    prompts = Prompting(writer, check_of(release))
    wanted = []
    for label, count in enumerate(counts):
        for number in range(count):
            order = np.random.default_rng([tools.seed, label, number]).permutation(len(shown[label]))
            chosen = tuple(shown[label][place] for place in order[:EXEMPLARS_PER_PROMPT].tolist())
            wanted.append(Wanted(label, chosen))
    faults: Counter[str] = Counter()
    for record in prompts.records(wanted, release.strings["exemplars"]):
        if "fault" in record.provenance:
            faults[record.provenance["fault"]] += 1
        yield record
    if faults:
        counted = ", ".join(f"{name} {count}" for name, count in faults.items())
        left = f"{sum(faults.values())} of {plural(len(wanted), 'text')} are left out"
        tools.say(f"{left}, because their answers are invalid ({counted}).")


def longest_prompts(parameters: FewShotParameters, release: Release, writer: Writer) -> Iterator[tuple[Message, ...]]:
    """Return the longest prompts without exemplars, since these are not public."""
    schema = None if parameters.json_schema is None else JSONSchema(parameters.json_schema)
    prompts = Prompting(writer, text_check(release.schema.form, release.schema.record_columns, schema))
    for label in range(release.schema.label_set.size):
        yield prompts.request(Wanted(label, ()), (), None).messages


def estimate_calls(
    parameters: FewShotParameters, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate
) -> CallEstimate:
    shown = ["x" * (_CHARACTERS_PER_TOKEN * parameters.exemplar_tokens)]
    messages = template.prediction_prompt(chat=True, examples=()).messages(
        shown * min(EXEMPLARS_PER_PROMPT, parameters.exemplars)
    )
    return CallEstimate(sum(counts) * (writing.samples or 1), sum(len(message.content) for message in messages))


def usable_exemplars(release: Release, labels: int) -> list[list[int]]:
    """Return, for each label, the numbers of the exemplars that prompts may show."""
    of_label, usable = release.arrays["label"], release.arrays["usable"]
    return [np.flatnonzero((of_label == label) & usable).tolist() for label in range(labels)]


@dataclass(frozen=True)
class Wanted:
    """A requested text, and the exemplars that its prompt shows in this order."""

    label: int
    exemplars: tuple[int, ...]


@dataclass(frozen=True)
class Prompting:
    """Asks a language model for texts like the exemplars; ``check`` validates the answers."""

    writer: Writer
    check: TextCheck | None

    def records(self, wanted: Sequence[Wanted], exemplars: Sequence[str]) -> Iterator[SyntheticRecord]:
        """Return one record per request, in order; of several samples, the first usable one."""
        chat, samples = self.writer.chat, self.writer.calls_per_seed
        assert chat is not None, "a run without one is refused"
        asker = Asker(chat, self.writer.progress, expected=len(wanted) * samples)
        waiting, most = iter(wanted), self.writer.seeds_trial or self.writer.seeds_at_once
        while some := list(islice(waiting, most)):
            rows = [None if self.writer.rows is None else self.writer.rows.take(each.label) for each in some]
            requests = [self.request(each, exemplars, row) for each, row in zip(some, rows, strict=True)]
            repeated = [request for request in requests for _ in range(samples)]
            given = asker.ask(repeated)
            if most < min(self.writer.seeds_at_once, len(wanted)):
                self.writer.end_if_useless(asker, given, [()] * len(given), repeated)
            most, answers = self.writer.seeds_at_once, iter(given)
            for each, row in zip(some, rows, strict=True):
                record = self._record(each, list(islice(answers, samples)), public_name(chat.model_id))
                yield record if row is None else replace(record, columns=row.values)

    def request(self, wanted: Wanted, exemplars: Sequence[str], row: Row | None) -> ChatRequest:
        """Return the prompt for one answer; without exemplars it shows the template's public examples."""
        template = self.writer.template
        label = self.writer.labels[wanted.label] if self.writer.labels else ""
        columns: tuple[str, ...] = ()
        schema = ""
        if isinstance(self.check, RecordCheck):
            columns, schema = self.check.columns, "" if self.check.schema is None else self.check.schema.text
        shape: Shape = "json" if columns else "text"
        prompt = template.prediction_prompt(
            chat=True, label=label, shape=shape, columns=columns, schema=schema, examples=()
        )
        shown = [exemplars[number] for number in wanted.exemplars]
        if not shown:
            public = template.prediction_examples(shape, columns)
            shown = [each.text for each in shown_examples(public, label, most=template.settings.examples_per_prompt)]
        messages = template.with_details(prompt.messages(shown), "" if row is None else row.details)
        return self.writer.request(messages, prompt.stop if self.check is None else ())

    def _record(self, wanted: Wanted, answers: Sequence[Completion], model: str) -> SyntheticRecord:
        """Return the first usable answer; if there is none, what is wrong with the last."""
        text, finish, fault = "", answers[-1].finish_reason, ""
        for answer in answers:
            found = self._text(answer)
            if found and not isinstance(found, Fault):
                text, finish, fault = found, answer.finish_reason, ""
                break
            fault = str(found) or fault
        provenance = {
            "exemplars": list(wanted.exemplars),
            "prompt": self.writer.template.sha256[:12],
            "model": model,
            "finish": finish,
            **({"fault": fault} if fault else {}),
        }
        return SyntheticRecord(text, wanted.label, provenance)

    def _text(self, answer: Completion) -> str | Fault:
        """Return the answer as a text; if a record is wanted, the record without the words around it."""
        if self.check is None:
            return tidy(answer)
        if answer.blank:
            return ""
        if isinstance(self.check, TranscriptCheck):
            return self.check(answer.text)
        start, end = answer.text.find("{"), answer.text.rfind("}")
        return self.check(answer.text[start : end + 1] if 0 <= start < end else answer.text)
