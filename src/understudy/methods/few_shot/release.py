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

import threading
from collections.abc import Sequence
from functools import partial

import numpy as np

from understudy.corpus.bounding import BoundedCorpus
from understudy.decoding.prompting import LabelPrompt, LabelPrompts
from understudy.decoding.workers import Stop, at_once, run_together
from understudy.methods.base import Arrays, Released, ReleaseTools
from understudy.methods.few_shot.asking import build_exemplar_prompts
from understudy.methods.few_shot.collected import Exemplar, read_exemplar, released
from understudy.methods.few_shot.drawing import Drawing
from understudy.methods.few_shot.parameters import FewShotParameters
from understudy.methods.few_shot.plan import part_name, planned_mechanism
from understudy.methods.few_shot.private_texts import PrivateTexts, read_private_texts
from understudy.privacy.plan import Plan
from understudy.privacy.subsampled import OpenSubsampledTokens, PaidSubsampledTokens


def release(parameters: FewShotParameters, corpus: BoundedCorpus, plan: Plan, *, tools: ReleaseTools) -> Released:
    """Draw each label's exemplars, as many as are asked for and paid for."""
    assert tools.model is not None, "the run loads one where needs_private_model says so"
    assert tools.prompts is not None, "and prompts"
    asked = build_exemplar_prompts(
        parameters, tools.prompts, tools.model, label_names=tools.label_names, record_columns=tools.record_columns
    )
    draws = _Draws(parameters, corpus, plan, asked, tools)
    rows, tokens = draws.block
    most = min(at_once(tools.model, tools.noise, rows=rows, tokens=tokens), tools.labels)
    tasks = [partial(draws.exemplars, label) for label in range(tools.labels)]
    found = run_together(tasks, device=tools.model.device, most=most, stop=draws.stop)
    return released(parameters, asked, [exemplar for each in found for exemplar in each], tools)


class _Draws:
    """Exemplars, each paid for, drawn and stored once; each label in one thread."""

    def __init__(
        self, parameters: FewShotParameters, corpus: BoundedCorpus, plan: Plan, asked: LabelPrompts, tools: ReleaseTools
    ) -> None:
        self.stop = Stop()
        self._parameters = parameters
        self._corpus = corpus
        self._asked = asked
        self._tools = tools
        self._mechanism = planned_mechanism(parameters, plan)
        self._drawings = [self._drawing(label) for label in asked.labels]
        self._reading = threading.Lock()
        self._read: tuple[PrivateTexts, PaidSubsampledTokens] | None = None
        self._left: dict[int, OpenSubsampledTokens] = {}

    @property
    def block(self) -> tuple[int, int]:
        """Rows of the block that gives a token, and tokens of a row."""
        longest = max(len(drawing.prompt.prefix) + drawing.width for drawing in self._drawings)
        return self._mechanism.subsets + 1, longest

    def exemplars(self, label: int) -> list[Exemplar]:
        """The stored exemplars of a label, and new ones while tokens are left."""
        found: list[Exemplar] = []
        spent, wanted = 0, self._parameters.exemplars
        where = f" of {self._tools.label_names[label]}" if self._tools.label_names else ""
        while len(found) < wanted and spent < self._mechanism.tokens:
            kept = self._tools.keep(part_name(label, len(found)), partial(self._draw, label, spent))
            found.append(read_exemplar(label, kept, self._asked))
            spent += found[-1].noisy
            self._tools.say(f"Exemplar {len(found)} of {wanted}{where}: {found[-1].noisy} noisy tokens.")
        return found

    def _draw(self, label: int, spent: int) -> Arrays:
        """A new exemplar of ``label``, whose stored ones hold ``spent`` noisy tokens."""
        texts, paid = self._paid_texts()
        if label not in self._left:
            self._left[label] = paid.label(label, spent=spent)
        drawn = self._drawings[label].exemplar(texts.of_label[label], self._left[label], self.stop.check)
        return {
            "tokens": np.array(drawn.tokens, dtype=np.int32),
            "noisy": np.array(drawn.noisy, dtype=np.bool_),
            "finished": np.array(drawn.text.ended not in (None, "length")),
        }

    def _paid_texts(self) -> tuple[PrivateTexts, PaidSubsampledTokens]:
        """Pay, once for all labels; then read. The pass over the records ends before anything is drawn."""
        with self._reading:
            if self._read is None:
                paid = self._mechanism.open(self._tools.receipt, self._tools.noise)
                texts = read_private_texts(self._corpus, self._tokenise, labels=self._tools.labels)
                longest = [label.most for label in self._asked.labels]
                self._tools.diary({"private texts cut": texts.cut, "to tokens": longest})
                self._read = texts, paid
            return self._read

    def _tokenise(self, text: str, label: int) -> tuple[Sequence[int], bool]:
        return self._asked.labels[label].private(text)

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
