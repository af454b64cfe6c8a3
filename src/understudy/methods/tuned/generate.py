"""Texts sampled from a tuned model, after the privacy boundary: free, any number of times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from understudy.methods.public import GenerationTools
from understudy.methods.shared.decoding.structured import Fault, TextCheck, check_of
from understudy.methods.shared.decoding.tuned import Sampling, TunedModel
from understudy.methods.tuned.model import TunedParameters
from understudy.models.types import Completion
from understudy.release import Release
from understudy.text.writing import SyntheticRecord, public_name

_AT_ONCE = 4096
_TRIES = 4


def generate(
    parameters: TunedParameters,
    release: Release,
    counts: Sequence[int],
    *,
    tuned: TunedModel,
    tools: GenerationTools,
    knows_rows: bool = False,
) -> Iterator[SyntheticRecord]:
    """``counts[label]`` texts of each label, sampled from the tuned model on its prompt.

    A text that cannot be used (not a record where one is wanted, empty, or not ended within its tokens) is sampled
    again, four times in all; then it is left out, and its record says why.

    Args:
        knows_rows: the model has learnt texts that begin with the cells of their row.
    """
    writing, top_p = tools.writer.parameters, tools.writer.template.settings.top_p
    sampling = Sampling(tools.seed, writing.llm_temperature, top_p, writing.max_tokens)
    texts = Texts(tuned, sampling, check_of(release), drop_unfinished=parameters.unfinished == "drop")
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
        tools.say(f"{sum(faults.values())} of {len(wanted)} texts are left out ({counted}).")


@dataclass(frozen=True)
class Text:
    """A text that was sampled: empty where it cannot be used, with the ``fault`` that is why."""

    text: str
    tries: int
    finish: str
    fault: str = ""


@dataclass(frozen=True)
class Texts:
    """Samples texts until they can be used.

    Args:
        check: of records and transcripts.
        drop_unfinished: whether a text that did not end by itself can be used.
    """

    tuned: TunedModel
    sampling: Sampling
    check: TextCheck | None
    drop_unfinished: bool

    def of(self, wanted: Sequence[tuple[int, int]], beginnings: Sequence[str]) -> list[Text]:
        """One text per label and number, in order, behind its beginning, which is not part of it."""
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
