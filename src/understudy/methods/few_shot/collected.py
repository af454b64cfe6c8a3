"""Few-shot's sealed exemplars as a Release: noised and paid for. Reads no private record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from understudy.decoding.prompting import LabelPrompts
from understudy.decoding.structured import Fault
from understudy.methods.base import Released, ReleaseTools
from understudy.methods.few_shot.parameters import FewShotParameters
from understudy.methods.few_shot.plan import SCHEMA
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.sealed import Arrays


@dataclass(frozen=True)
class Exemplar:
    """A sealed exemplar.

    Args:
        label: index of its label.
        noisy: noisy tokens that it took.
        text: a record as the corpus writes it, if it is one.
        finished: it ended by itself.
        whole: it ended by itself, or at the most tokens of an exemplar: not for want of paid ones.
        fault: why it is no record, where it should be one.
    """

    label: int
    noisy: int
    text: str
    finished: bool
    whole: bool
    fault: Fault | None

    def usable(self, *, keep_unfinished: bool) -> bool:
        """Whether prompts show it."""
        return bool(self.text) and self.fault is None and (self.finished or (keep_unfinished and self.whole))


def read_exemplar(label: int, kept: Arrays, asked: LabelPrompts) -> Exemplar:
    """A sealed exemplar from its tokens."""
    prompt, check = asked.labels[label], asked.check
    read = prompt.ending.read(kept["tokens"].tolist(), prompt.model)
    record = read.text if check is None else check(read.text)
    fault = record if isinstance(record, Fault) else None
    text = read.text if isinstance(record, Fault) else record
    finished = bool(kept["finished"])
    return Exemplar(label, int(kept["noisy"].sum()), text, finished, read.ended is not None, fault)


def released(
    parameters: FewShotParameters, asked: LabelPrompts, exemplars: Sequence[Exemplar], tools: ReleaseTools
) -> Released:
    keep_unfinished = parameters.unfinished == "keep"
    usable = [each.usable(keep_unfinished=keep_unfinished) for each in exemplars]
    schema = None if asked.check is None else asked.check.schema
    assert tools.prompts is not None, "a release was made with prompts"
    document_type = tools.prompts.template.document_type
    return Released(
        {
            "label": np.array([each.label for each in exemplars], dtype=np.int32),
            "noisy_tokens": np.array([each.noisy for each in exemplars], dtype=np.int32),
            "finished": np.array([each.finished for each in exemplars], dtype=np.bool_),
            "usable": np.array(usable, dtype=np.bool_),
        },
        public_inputs=asked.public_inputs(document_type, schema_source="a schema of your own"),
        noise_check=_noise_check(parameters, exemplars, usable, tools.labels.size),
        strings={
            "exemplars": [each.text for each in exemplars],
            **({} if schema is None else {SCHEMA: [schema.text]}),
        },
    )


def _noise_check(
    parameters: FewShotParameters, exemplars: Sequence[Exemplar], usable: Sequence[bool], labels: int
) -> Facts:
    """How many exemplars are of use, and what is left. How far they stand above the noise cannot be told afterwards."""
    counts = tuple(
        sum(use for each, use in zip(exemplars, usable, strict=True) if each.label == n) for n in range(labels)
    )
    noisy = tuple(sum(each.noisy for each in exemplars if each.label == label) for label in range(labels))
    entries = [
        Fact("usable_exemplars", counts, "exemplars that prompts can show"),
        Fact("noisy_tokens", noisy, f"noisy tokens, of {parameters.tokens} that are paid for per label"),
    ]
    faults = Counter(str(each.fault) for each in exemplars if each.fault is not None)
    if faults:
        named = ", ".join(f"{name} {count}" for name, count in faults.items())
        entries.append(Fact("exemplars_no_records", named, "exemplars that are no records"))
    warning = (
        "Some labels have no exemplar that a prompt can show: their texts will be asked for without. Spend more "
        "epsilon, give longer exemplars (exemplar_tokens) or keep unfinished ones."
    )
    return Facts(tuple(entries), () if all(counts) else (warning,))
