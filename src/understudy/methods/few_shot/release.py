"""Few-shot, the only code that reads private records.

Tang et al. 2024, *Privacy-preserving in-context learning with differentially private few-shot generation*
(arXiv:2309.11765, Algorithms 1 and 2), cut at the privacy boundary:

    for each label:                                                    a record lies in one: one charge for all labels
        while there are fewer than ``exemplars``, and paid tokens are left:
            draw an exemplar token by token, each from a fresh sample   charge "tokens", drawing.py
            store it, then use it
    return the exemplars

Guarantee:
    Unit: a record; or an owner, of whose records one is used, chosen by a keyed hash over all labels together. Sample,
    noise and cost are one :class:`~understudy.privacy.subsampled.SubsampledTokens` of T = ``tokens`` tokens a label; a
    unit lies in one label, so that all labels together cost as much as one (parallel composition). What a token takes
    of the private records is stated in :class:`~understudy.methods.few_shot.drawing.Drawing`.
    Tokens are counted over what is stored: an exemplar that a crash lost is drawn again, since nobody saw it, and no
    stored one is drawn twice. A label without records runs like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from understudy.corpus.bounding import BoundedCorpus
from understudy.generation.prompts import Prompts
from understudy.generation.writing import public_name
from understudy.methods.few_shot.drawing import Drawing
from understudy.methods.few_shot.parameters import FewShotParameters
from understudy.methods.few_shot.plan import SCHEMA, part_name, planned_mechanism
from understudy.methods.few_shot.private_texts import PrivateTexts, read_private_texts
from understudy.methods.protocol import Arrays, Released, ReleaseTools
from understudy.models.causal import CausalModel
from understudy.prediction.ending import Ending
from understudy.prediction.prompting import Asked, LabelPrompt, ask_for_texts
from understudy.prediction.structured import Fault
from understudy.privacy.plan import Plan
from understudy.privacy.subsampled import OpenSubsampledTokens


def release(parameters: FewShotParameters, corpus: BoundedCorpus, plan: Plan, *, tools: ReleaseTools) -> Released:
    """Draw each label's exemplars, as many as are asked for and paid for."""
    assert tools.model is not None, "the run loads one where needs_release_model says so"
    assert tools.prompts is not None, "and prompts"
    asked = _asked(parameters, tools.prompts, tools.model, tools)
    draws = _Draws(parameters, corpus, plan, asked, tools)
    exemplars = [exemplar for label in range(tools.labels) for exemplar in draws.exemplars(label)]
    return _released(parameters, asked, exemplars, tools)


def _asked(parameters: FewShotParameters, prompts: Prompts, model: CausalModel, tools: ReleaseTools) -> Asked:
    """Each label's prompt, with room for the private texts that a subset shows. Before a private record is read."""
    asked = ask_for_texts(
        parameters, prompts, model, label_names=tools.label_names, record_columns=tools.record_columns
    )
    return replace(asked, labels=tuple(_with_room(parameters, each) for each in asked.labels))


def _with_room(parameters: FewShotParameters, label: LabelPrompt) -> LabelPrompt:
    ending = Ending.of(label.prompt, most_tokens=parameters.exemplar_tokens)
    fitting = label.tokens.most_fitting(
        label.model.window, new_tokens=parameters.exemplar_tokens + 1, texts=parameters.examples_per_subset
    )
    return replace(label, ending=ending, most=min(parameters.private_text_tokens, fitting))


@dataclass(frozen=True)
class Exemplar:
    """A stored exemplar.

    Args:
        label: index of its label.
        tokens: noisy tokens that were drawn for it.
        text: a record as the corpus writes it, if it is one.
        finished: it ended by itself.
        whole: it ended by itself, or at the most tokens of an exemplar: not for want of paid ones.
        fault: why it is no record, where it should be one.
    """

    label: int
    tokens: int
    text: str
    finished: bool
    whole: bool
    fault: Fault | None

    def usable(self, *, keep_unfinished: bool) -> bool:
        """Whether prompts show it."""
        return bool(self.text) and self.fault is None and (self.finished or (keep_unfinished and self.whole))


class _Draws:
    """Exemplars, each paid for, drawn and stored once. The private texts are read when the first one is drawn."""

    def __init__(
        self, parameters: FewShotParameters, corpus: BoundedCorpus, plan: Plan, asked: Asked, tools: ReleaseTools
    ) -> None:
        self._parameters = parameters
        self._corpus = corpus
        self._asked = asked
        self._tools = tools
        self._mechanism = planned_mechanism(parameters, plan)
        self._drawings = [self._drawing(label) for label in asked.labels]

    def exemplars(self, label: int) -> list[Exemplar]:
        """The stored exemplars of a label, and new ones while tokens are left."""
        found: list[Exemplar] = []
        spent, wanted = 0, self._parameters.exemplars
        where = f" of {self._tools.label_names[label]}" if self._tools.label_names else ""
        while len(found) < wanted and spent < self._mechanism.tokens:
            kept = self._tools.keep(part_name(label, len(found)), partial(self._draw, label, spent))
            found.append(self._read(label, kept["tokens"].tolist()))
            spent += found[-1].tokens
            self._tools.say(f"Exemplar {len(found)} of {wanted}{where}: {found[-1].tokens} tokens.")
        return found

    def _draw(self, label: int, spent: int) -> Arrays:
        """A new exemplar of ``label``, whose stored ones hold ``spent`` tokens."""
        texts = self._paid_texts.of_label[label]
        paid = OpenSubsampledTokens(self._mechanism, self._tools.noise, spent=spent)
        tokens, text = self._drawings[label].exemplar(texts, paid)
        return {"tokens": np.array(tokens, dtype=np.int32), "finished": np.array(_finished(text.ended))}

    @cached_property
    def _paid_texts(self) -> PrivateTexts:
        """Pay, once for all labels; then read. The pass over the records ends before anything is drawn."""
        self._tools.receipt.pay(self._mechanism.name, self._mechanism.event)
        texts = read_private_texts(
            self._corpus, lambda text, label: self._asked.labels[label].private(text), labels=self._tools.labels
        )
        longest = [label.most for label in self._asked.labels]
        self._tools.diary({"private texts cut": texts.cut, "tokens each may have, by label": longest})
        return texts

    def _drawing(self, label: LabelPrompt) -> Drawing:
        return Drawing(
            self._mechanism,
            label.model,
            label.tokens,
            label.ending,
            self._parameters.examples_per_subset,
            label.most,
            self._parameters.candidates,
            self._tools.noise,
        )

    def _read(self, label: int, tokens: Sequence[int]) -> Exemplar:
        prompt, check = self._asked.labels[label], self._asked.check
        read = prompt.ending.read(tokens, prompt.model)
        record = read.text if check is None else check(read.text)
        fault = record if isinstance(record, Fault) else None
        text = read.text if isinstance(record, Fault) else record
        return Exemplar(label, len(tokens), text, _finished(read.ended), read.ended is not None, fault)


def _finished(ended: str | None) -> bool:
    return ended not in (None, "length")


def _released(
    parameters: FewShotParameters, asked: Asked, exemplars: Sequence[Exemplar], tools: ReleaseTools
) -> Released:
    keep_unfinished = parameters.unfinished == "keep"
    usable = [each.usable(keep_unfinished=keep_unfinished) for each in exemplars]
    schema = None if asked.check is None else asked.check.schema
    return Released(
        {
            "label": np.array([each.label for each in exemplars], dtype=np.int32),
            "tokens": np.array([each.tokens for each in exemplars], dtype=np.int32),
            "finished": np.array([each.finished for each in exemplars], dtype=np.bool_),
            "usable": np.array(usable, dtype=np.bool_),
        },
        public_inputs=_public_inputs(asked, tools),
        noise_check=_noise_check(parameters, exemplars, usable, tools.labels),
        strings={
            "exemplars": [each.text for each in exemplars],
            **({} if schema is None else {SCHEMA: [schema.text]}),
        },
    )


def _public_inputs(asked: Asked, tools: ReleaseTools) -> dict[str, dict[str, str]]:
    """What was fixed before a private record was read, for the statement."""
    assert tools.model is not None
    assert tools.prompts is not None
    found = {
        "release model": {"source": public_name(tools.model.model_id), "sha256": tools.model.fingerprint},
        "prompts": {"source": f"for a {tools.prompts.template.document_type}", "sha256": asked.sha256},
    }
    if asked.schema_sha256 is not None:
        found["JSON schema"] = {"source": "a schema of your own", "sha256": asked.schema_sha256}
    return found


def _noise_check(
    parameters: FewShotParameters, exemplars: Sequence[Exemplar], usable: Sequence[bool], labels: int
) -> dict[str, Any]:
    """How many exemplars are of use, and what is left. How far they stand above the noise cannot be told afterwards."""
    counts = [sum(use for each, use in zip(exemplars, usable, strict=True) if each.label == n) for n in range(labels)]
    drawn = [sum(each.tokens for each in exemplars if each.label == label) for label in range(labels)]
    check: dict[str, Any] = {
        "exemplars that prompts can show": counts,
        f"noisy tokens drawn, of {parameters.tokens} that are paid for each label": drawn,
    }
    faults = Counter(str(each.fault) for each in exemplars if each.fault is not None)
    if faults:
        check["exemplars that are no records"] = ", ".join(f"{name} {count}" for name, count in faults.items())
    if not all(counts):
        check["warning"] = (
            "Some labels have no exemplar that a prompt can show: their texts will be asked for without. Spend more "
            "epsilon, give longer exemplars (exemplar_tokens) or keep unfinished ones."
        )
    return check
