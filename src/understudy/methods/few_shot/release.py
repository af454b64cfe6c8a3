"""Few-shot, the only code that reads private records.

Tang et al. 2024, *Privacy-preserving in-context learning with differentially private few-shot generation*
(arXiv:2309.11765, Algorithms 1 and 2), cut at the privacy boundary:

    for each label:                                                    a record lies in one: one charge for all labels
        while there are fewer than ``exemplars``, and paid tokens are left:
            decode an exemplar token by token, each from a fresh sample  charge "tokens", sampler.py
            store it, have it sealed, then use it                        part "tokens/LABEL/NUMBER"
    return the exemplars

Guarantee:
    Unit: a record; or an owner, of whose records one is used, chosen by a keyed hash over all labels together. Sample,
    noise and cost are one :class:`~understudy.privacy.subsampled.SubsampledTokens` of T = ``tokens`` tokens a label; a
    unit lies in one label, so that all labels together cost as much as one (parallel composition). What a token takes
    of the private records is stated in :class:`~understudy.methods.few_shot.sampler.TokenSampler`.
    Tokens are counted over what is sealed: an exemplar that a crash lost is decoded again, since nobody saw it, and no
    sealed one is decoded twice. A label without records runs like any other.
"""

from __future__ import annotations

import threading
from functools import partial

import numpy as np

from understudy.corpus.bounding import BoundedCorpus
from understudy.decoding.prompting import LabelPrompt, LabelPrompts
from understudy.decoding.workers import Stop, at_once, run_together
from understudy.methods.base import Released, ReleaseTools
from understudy.methods.few_shot.collected import Exemplar, read_exemplar, released
from understudy.methods.few_shot.parameters import FewShotParameters
from understudy.methods.few_shot.plan import TOKENS, part_name
from understudy.methods.few_shot.private_texts import PrivateTexts, read_private_texts
from understudy.methods.few_shot.prompts import build_exemplar_prompts
from understudy.methods.few_shot.sampler import TokenSampler
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import Arrays
from understudy.privacy.subsampled import LabelTokens, PaidSubsampledTokens, SubsampledTokens


def release(parameters: FewShotParameters, corpus: BoundedCorpus, plan: Plan, *, tools: ReleaseTools) -> Released:
    """Decode each label's exemplars, as many as are asked for and paid for."""
    model, prompts = tools.model, tools.prompts
    assert model is not None, "the run loads what a method needs"
    assert prompts is not None, "and prompts"
    asked = build_exemplar_prompts(
        parameters, prompts, model, label_names=tools.labels.names, record_columns=tools.record_columns
    )
    decoder = _Decoder(parameters, corpus, plan.mechanism(TOKENS), tools.open(TOKENS), asked, tools)
    rows, tokens = decoder.block
    most = min(at_once(model, repeatable=decoder.paid.repeatable, rows=rows, tokens=tokens), tools.labels.size)
    tasks = [partial(decoder.exemplars, label) for label in range(tools.labels.size)]
    found = run_together(tasks, device=model.device, most=most, stop=decoder.stop)
    return released(parameters, asked, [exemplar for each in found for exemplar in each], tools)


class _Decoder:
    """Exemplars, each decoded and sealed once; each label in one thread."""

    def __init__(
        self,
        parameters: FewShotParameters,
        corpus: BoundedCorpus,
        mechanism: SubsampledTokens,
        paid: PaidSubsampledTokens,
        asked: LabelPrompts,
        tools: ReleaseTools,
    ) -> None:
        self.stop = Stop()
        self.paid = paid
        self._parameters = parameters
        self._corpus = corpus
        self._asked = asked
        self._tools = tools
        self._mechanism = mechanism
        self._samplers = [self._sampler(label) for label in asked.labels]
        self._reading = threading.Lock()
        self._read: PrivateTexts | None = None
        self._left: dict[int, LabelTokens] = {}

    @property
    def block(self) -> tuple[int, int]:
        """Rows of the block that gives a token, and tokens of a row."""
        longest = max(len(sampler.prompt.prefix) + sampler.width for sampler in self._samplers)
        return self._mechanism.subsets + 1, longest

    def exemplars(self, label: int) -> list[Exemplar]:
        """The sealed exemplars of a label, and new ones while tokens are left."""
        found: list[Exemplar] = []
        spent, wanted = 0, self._parameters.exemplars
        where = f" of {self._tools.labels.names[label]}" if self._tools.labels.names else ""
        while len(found) < wanted and spent < self._mechanism.tokens:
            kept = self._tools.seal(part_name(label, len(found)), partial(self._decode, label, spent))
            found.append(read_exemplar(label, kept.arrays, self._asked))
            spent += found[-1].noisy
            self._tools.say(f"Exemplar {len(found)} of {wanted}{where}: {found[-1].noisy} noisy tokens.")
        return found

    def _decode(self, label: int, spent: int) -> Arrays:
        """A new exemplar of ``label``, whose sealed ones hold ``spent`` noisy tokens."""
        texts = self._private_texts()
        if label not in self._left:
            self._left[label] = self.paid.label(label, spent=spent)
        decoded = self._samplers[label].exemplar(texts.of_label[label], self._left[label], self.stop.check)
        return {
            "tokens": np.array(decoded.tokens, dtype=np.int32),
            "noisy": np.array(decoded.noisy, dtype=np.bool_),
            "finished": np.array(decoded.text.ended not in (None, "length")),
        }

    def _private_texts(self) -> PrivateTexts:
        """Read once, for all labels, where a new exemplar is due. The pass ends before anything is decoded."""
        with self._reading:
            if self._read is None:
                self._read = read_private_texts(
                    self._corpus,
                    lambda text, label: self._asked.labels[label].private(text),
                    labels=self._tools.labels.size,
                )
                longest = [label.most for label in self._asked.labels]
                self._tools.note({"private texts cut": self._read.cut, "to tokens": longest})
            return self._read

    def _sampler(self, label: LabelPrompt) -> TokenSampler:
        return TokenSampler(
            self._mechanism,
            label.model,
            label.tokens,
            label.ending,
            self._parameters.examples_per_subset,
            label.most,
            self._parameters.candidates,
        )
