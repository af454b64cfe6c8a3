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
    noise and cost are one :class:`~understudy.privacy.subsampled.SubsampledTokens` of T = ``tokens`` tokens per label;
    a unit lies in one label, so that all labels together cost as much as one (parallel composition). What a token takes
    of the private records is stated in :class:`~understudy.methods.few_shot.sampler.TokenSampler`.
    Tokens are counted over what is sealed: an exemplar that a crash lost is decoded again, since nobody saw it, and no
    sealed one is decoded twice. A label without records runs like any other.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import bug
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.base import Released, ReleaseTools, needed
from understudy.methods.few_shot.plan import SCHEMA, TOKENS, FewShotParameters, part_name
from understudy.methods.few_shot.sampler import TokenSampler, build_exemplar_prompts
from understudy.methods.shared.decoding.prompting import LabelPrompts
from understudy.methods.shared.decoding.structured import Fault
from understudy.methods.shared.decoding.workers import Stop, at_once, run_together
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import Arrays
from understudy.privacy.subsampled import LabelTokens, PaidSubsampledTokens, SubsampledTokens


def release(parameters: FewShotParameters, corpus: BoundedCorpus, plan: Plan, *, tools: ReleaseTools) -> Released:
    """Decode each label's exemplars, as many as are asked for and paid for."""
    model, prompts = needed(tools.model), needed(tools.prompts)
    asked = build_exemplar_prompts(
        parameters, prompts, model, label_names=tools.labels.names, record_columns=tools.record_columns
    )
    decoder = _Decoder(parameters, corpus, plan.mechanism(TOKENS), tools.open(TOKENS), asked, tools)
    rows, tokens = decoder.block
    most = min(at_once(model, repeatable=decoder.paid.repeatable, rows=rows, tokens=tokens), tools.labels.size)
    tasks = [partial(decoder.exemplars, label) for label in range(tools.labels.size)]
    found = run_together(tasks, device=model.device, most=most, stop=decoder.stop)
    return released(parameters, asked, [exemplar for each in found for exemplar in each], tools)


@dataclass(repr=False)
class _Decoder:
    """Exemplars, each decoded and sealed once; each label in one thread."""

    parameters: FewShotParameters
    corpus: BoundedCorpus
    mechanism: SubsampledTokens
    paid: PaidSubsampledTokens
    asked: LabelPrompts
    tools: ReleaseTools
    stop: Stop = field(default_factory=Stop)
    _reading: threading.Lock = field(default_factory=threading.Lock)
    _read: PrivateTexts | None = None
    _left: dict[int, LabelTokens] = field(default_factory=dict)

    @cached_property
    def _samplers(self) -> list[TokenSampler]:
        shown, candidates = self.parameters.examples_per_subset, self.parameters.candidates
        return [
            TokenSampler(self.mechanism, each.model, each.tokens, each.ending, shown, each.most, candidates)
            for each in self.asked.labels
        ]

    @property
    def block(self) -> tuple[int, int]:
        """Rows of the block that gives a token, and tokens of a row."""
        longest = max(len(sampler.prompt.prefix) + sampler.width for sampler in self._samplers)
        return self.mechanism.subsets + 1, longest

    def exemplars(self, label: int) -> list[Exemplar]:
        """The sealed exemplars of a label, and new ones while tokens are left."""
        found: list[Exemplar] = []
        spent, wanted = 0, self.parameters.exemplars
        where = f" of {self.tools.labels.names[label]}" if self.tools.labels.names else ""
        while len(found) < wanted and spent < self.mechanism.tokens:
            kept = self.tools.seal(part_name(label, len(found)), partial(self._decode, label, spent))
            found.append(read_exemplar(label, kept.arrays, self.asked))
            spent += found[-1].noisy
            self.tools.say(f"Exemplar {len(found)} of {wanted}{where}: {found[-1].noisy} noisy tokens.")
            self.tools.progress(f"exemplars{where}", len(found), wanted)
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
                    self.corpus,
                    lambda text, label: self.asked.labels[label].private(text),
                    labels=self.tools.labels.size,
                )
                longest = [label.most for label in self.asked.labels]
                self.tools.note({"private texts cut": self._read.cut, "to tokens": longest})
            return self._read


@dataclass(repr=False)
class PrivateTexts:
    """One entry per unit: a record, or the one record of an owner that is used. Private; its ``repr`` shows nothing.

    Memory: 4 bytes per token, and about 120 per text.
    """

    of_label: list[list[NDArray[np.int32]]] = field(default_factory=list)
    cut: int = 0


def read_private_texts(
    corpus: BoundedCorpus, tokenise: Callable[[str, int], tuple[Sequence[int], bool]], *, labels: int
) -> PrivateTexts:
    """One pass over the private records.

    Args:
        tokenise: a text and its label into tokens; and whether it had to be cut.

    Raises:
        PrivacyError: if an owner may have more than one record, which would be sampled as if they were strangers.
    """
    if corpus.unit.max_records != 1:
        raise bug(
            f"One {corpus.unit.name} may have {corpus.unit.max_records} records in the sample.",
            "it plans with one record each",
        )
    read = PrivateTexts([[] for _ in range(labels)])
    for batch in corpus.batches():
        for text, label in zip(batch.texts, batch.labels.tolist(), strict=True):
            tokens, was_cut = tokenise(text, label)
            read.of_label[label].append(np.asarray(tokens, dtype=np.int32))
            read.cut += was_cut
    return read


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
    schema = asked.schema
    document_type = needed(tools.prompts).template.document_type
    return Released(
        {
            "label": np.array([each.label for each in exemplars], dtype=np.int32),
            "noisy_tokens": np.array([each.noisy for each in exemplars], dtype=np.int32),
            "finished": np.array([each.finished for each in exemplars], dtype=np.bool_),
            "usable": np.array(usable, dtype=np.bool_),
        },
        public_inputs=asked.public_inputs(document_type, schema_source="a schema of your own"),
        noise_check=_noise_check(parameters, exemplars, usable, tools.labels.size),
        strings={"exemplars": [each.text for each in exemplars], **({} if schema is None else {SCHEMA: [schema.text]})},
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
