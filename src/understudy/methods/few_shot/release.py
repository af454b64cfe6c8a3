"""Few-shot, the only code that reads private records.

Tang et al. 2024, *Privacy-preserving in-context learning with differentially private few-shot generation*
(arXiv:2309.11765, Algorithms 1 and 2), cut at the privacy boundary:

    for each label:                                                    a record is in one: one charge for all labels
        while there are fewer than ``exemplars``, and paid tokens are left:
            decode an exemplar token by token, store it, have it sealed  charge "tokens", part "tokens/LABEL/NUMBER"
    return the exemplars

One exemplar (Algorithm 2), until it ends:

    sample     = each record of the label with probability q, into one of M subsets          fresh for every token
    rows       = one prompt per subset with up to N of its records, and one without any      one block, one shape
    candidates = the K tokens likeliest without private records                              public
    sums       = the rows' probabilities of the candidates, summed over the subsets          integers
    token      = the candidate with the largest noisy sum                                    one token of the charge

Guarantee:
    Unit: a record; or an owner, of whose records one is used, chosen by a keyed hash over all labels together. Sample,
    noise and cost are one :class:`~understudy.privacy.subsampled.SubsampledTokens` of T = ``tokens`` tokens per label;
    a unit is in one label, so that all labels together cost as much as one (parallel composition). What a token takes
    of the private records is stated in :class:`TokenSampler`.
    Tokens are counted over what is sealed: an exemplar that a crash lost is decoded again, since nobody saw it, and no
    sealed one is decoded twice. A label without records runs like any other.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, ModelError, bug
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.base import Preparation, Released, ReleaseTools, needed
from understudy.methods.batched_prompts import Batches, Decoded, Stop, label_prompts, run_together, sort_into_batches
from understudy.methods.few_shot.plan import TOKENS, FewShotParameters
from understudy.methods.shared.decoding.ending import Ending
from understudy.methods.shared.decoding.prompting import LabelPrompt, LabelPrompts, ReadText
from understudy.methods.shared.decoding.sums import Candidates, public_candidates, softmax_sum, vote_sum
from understudy.models.causal import whole_rows
from understudy.models.shared_prefix import Contexts
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import Arrays
from understudy.privacy.subsampled import LabelTokens, PaidSubsampledTokens, Sample, SubsampledTokens


def exemplar_prompts(parameters: FewShotParameters, found: Preparation) -> LabelPrompts:
    """Return the prompts of all labels, with room for the texts of a subset and an exemplar."""
    asked, labels, longest = label_prompts(parameters, found), [], parameters.exemplar_tokens
    for label in asked.labels:
        tokens = label.tokens
        if not tokens.prefix and not tokens.suffix:
            raise ConfigError(
                "The prompt around the private texts is empty.",
                "Add words to it in the prompt file, or leave --prompt out.",
            )
        window, texts = label.model.window, parameters.examples_per_subset
        fitting = tokens.most_fitting(window, new_tokens=longest + 1, texts=texts)
        ending = Ending.of(label.prompt, most_tokens=longest)
        labels.append(replace(label, ending=ending, most=min(parameters.private_text_tokens, fitting)))
    return replace(asked, labels=tuple(labels))


def prepare(parameters: FewShotParameters, corpus: BoundedCorpus, plan: Plan, preparation: Preparation) -> None:
    """Test, before anything is charged, that rows are computed independently on this device."""
    mechanism: SubsampledTokens = plan.mechanism(TOKENS)
    for label in {each.shape: each for each in exemplar_prompts(parameters, preparation).labels}.values():
        sampler = TokenSampler(parameters, mechanism, label)
        sampler.contexts([[]] * mechanism.subsets, []).public_logits()


def release(parameters: FewShotParameters, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
    """Decode ``exemplars`` exemplars of each label, or fewer if the paid tokens are used up before."""
    if corpus.unit.max_records != 1:
        raise bug(
            f"One {corpus.unit.name} may have {corpus.unit.max_records} records in the sample.",
            "its plan must allow one record per owner",
        )
    model, asked, mechanism = needed(tools.model), exemplar_prompts(parameters, tools), plan.mechanism(TOKENS)
    samplers = [TokenSampler(parameters, mechanism, each) for each in asked.labels]
    decoder = _Decoder(corpus, tools.open(TOKENS), asked, samplers, tools)
    longest = max(len(each.label.tokens.prefix) + each.width for each in samplers)
    in_flight = 1 if decoder.paid.repeatable else model.batches_in_flight(mechanism.subsets + 1, longest)
    tasks = [partial(decoder.exemplars, label, parameters.exemplars) for label in range(tools.labels.size)]
    most = min(in_flight, tools.labels.size)
    found = run_together(tasks, device=model.device, most=most, stop=decoder.stop)
    return released(parameters, asked, [exemplar for each in found for exemplar in each], tools)


@dataclass(repr=False)
class _Decoder:
    """Exemplars, each decoded and sealed once; each label in one thread."""

    corpus: BoundedCorpus
    paid: PaidSubsampledTokens
    asked: LabelPrompts
    samplers: Sequence[TokenSampler]
    tools: ReleaseTools
    stop: Stop = field(default_factory=Stop)
    _reading: threading.Lock = field(default_factory=threading.Lock)
    _left: dict[int, LabelTokens] = field(default_factory=dict)

    def exemplars(self, label: int, wanted: int) -> list[Exemplar]:
        """Return the sealed exemplars of a label, and new ones while tokens are left."""
        found: list[Exemplar] = []
        spent = 0
        where = f" of {self.tools.labels.names[label]}" if self.tools.labels.names else ""
        while len(found) < wanted and spent < self.samplers[label].mechanism.tokens:
            kept = self.tools.seal(f"{TOKENS}/{label}/{len(found)}", partial(self._decode, label, spent)).arrays
            read = self.asked.read(label, kept["tokens"].tolist())
            found.append(Exemplar(label, int(kept["noisy"].sum()), bool(kept["finished"]), read))
            spent += found[-1].noisy
            self.tools.say(f"Exemplar {len(found)} of {wanted}{where}: {found[-1].noisy} noisy tokens.")
            self.tools.progress(f"exemplars{where}", len(found), wanted)
        return found

    def _decode(self, label: int, spent: int) -> Arrays:
        """Decode a new exemplar of ``label``, whose sealed ones used ``spent`` noisy tokens."""
        with self._reading:  # the pass ends before anything is decoded
            texts = self._private_texts
        if label not in self._left:
            self._left[label] = self.paid.label(label, spent=spent)
        decoded = self.samplers[label].exemplar(texts.of_label[label][0].rows, self._left[label], self.stop.check)
        return {
            "tokens": np.array(decoded.tokens, dtype=np.int32),
            "noisy": np.array(decoded.noisy, dtype=np.bool_),
            "finished": np.array(decoded.whole),
        }

    @cached_property
    def _private_texts(self) -> Batches:
        """Read the texts once, when a new exemplar is needed; one batch per label."""
        read = sort_into_batches(self.corpus, self.asked.private, labels=self.tools.labels.size)
        self.tools.note({"private texts cut": read.cut, "to tokens": [label.most for label in self.asked.labels]})
        return read


def deal(sample: Sample, *, subsets: int, most: int) -> list[NDArray[np.int64]]:
    """Divide the sampled records among ``subsets``; return the indices of each subset's records with the lowest random
    priority, at most ``most``, in that order.

    Each record has its own random numbers, so removing a record changes only one subset.
    """
    included = np.flatnonzero(sample.included)
    included = included[np.argsort(sample.priority[included], kind="stable")]
    return [included[sample.subset[included] == each][:most] for each in range(subsets)]


@dataclass(frozen=True)
class TokenSampler:
    """Decodes the exemplars of one label.

    Guarantee:
        A record changes the row of the one subset that it falls into, and no other: its own random numbers decide which
        row it is in (:func:`deal`), and the rows run in one block of subsets + 1 rows of one width for every token,
        whichever records are sampled (:class:`~understudy.models.shared_prefix.Contexts`). A row adds non-negative
        integers of at most the mechanism's grid in all, or one vote. The candidates come from the public row. So the
        sums move as :class:`~understudy.privacy.subsampled.SubsampledTokens` says; it samples, adds noise and counts.
    """

    parameters: FewShotParameters
    mechanism: SubsampledTokens
    label: LabelPrompt

    @property
    def width(self) -> int:
        """Return the number of tokens in every padded row, a function of public parameters, not of what was decoded."""
        tokens = self.label.tokens
        texts = tokens.width(self.label.most, texts=self.parameters.examples_per_subset)
        return 1 + texts + len(tokens.suffix) + self.label.ending.most_tokens

    def exemplar(
        self, records: Sequence[Sequence[int]], paid: LabelTokens, check: Callable[[], None] = lambda: None
    ) -> Decoded:
        """Decode an exemplar from the label's private texts (as tokens, at most ``label.most`` each) until it ends or
        no paid token is left. ``check`` raises if the run is being stopped."""
        decoded = Decoded(self.label.ending.open(self.label.model))
        while decoded.text.ended is None:
            if certain := self.label.model.encode(decoded.text.next):
                for token in certain:
                    decoded.take(token, noisy=False)
                continue
            if not paid.left:
                break
            check()
            dealt = deal(  # a fresh sample
                paid.sample(len(records)), subsets=self.mechanism.subsets, most=self.parameters.examples_per_subset
            )
            shown = [[records[number] for number in numbers.tolist()] for numbers in dealt]
            contexts = self.contexts(shown, decoded.tokens)
            try:
                public = contexts.public_logits()
            except ModelError:
                if not decoded.tokens:
                    raise
                paid.skip()
                break  # this too is a result of paid tokens: it is stored, not decoded again
            candidates = public_candidates(public, count=self.parameters.candidates)
            decoded.take(candidates.token(paid.choose(self.sums(contexts, candidates))), noisy=True)
        return decoded

    def sums(self, contexts: Contexts, candidates: Candidates) -> NDArray[np.int64]:
        """Return the sum over the subsets' rows of their answers for each candidate, without the public row:
        ``Int64[K]``."""
        counted = [0, *[1] * (len(contexts) - 1)]
        if self.mechanism.noise == "votes":
            return vote_sum(contexts, candidates, divisors=counted)
        return softmax_sum(contexts, candidates, grid=self.mechanism.grid, divisors=counted)

    def contexts(self, shown: Sequence[Sequence[Sequence[int]]], decoded: Sequence[int]) -> Contexts:
        """Load a row without private texts, and one per subset with its texts, into the model; all end with the
        exemplar so far. Return them as contexts.

        The last token of the prefix is in the rows themselves, so that no row is ever empty.
        """
        tokens = self.label.tokens
        lead, end = tokens.prefix[-1:], (*tokens.suffix, *decoded)
        rows = [[*lead, *tokens.row(*texts), *end] for texts in ([], *shown)]
        return self.label.model.contexts(
            rows,
            prefix=tokens.prefix[:-1],
            width=self.width,
            tokens=0,
            rows_at_once=whole_rows(len(rows)),
            candidates=self.parameters.candidates,
        )


@dataclass(frozen=True)
class Exemplar:
    """A sealed exemplar: its label, the number of noisy tokens it used, whether it ended by itself, and its text."""

    label: int
    noisy: int
    finished: bool
    read: ReadText

    def usable(self, *, keep_unfinished: bool) -> bool:
        """Return whether prompts show it. An exemplar that ran out of paid tokens is never shown."""
        ended = self.finished or (keep_unfinished and self.read.ended)
        return bool(self.read.text) and self.read.fault is None and ended


def released(
    parameters: FewShotParameters, asked: LabelPrompts, exemplars: Sequence[Exemplar], tools: ReleaseTools
) -> Released:
    usable = [each.usable(keep_unfinished=parameters.unfinished == "keep") for each in exemplars]
    return Released(
        {
            "label": np.array([each.label for each in exemplars], dtype=np.int32),
            "noisy_tokens": np.array([each.noisy for each in exemplars], dtype=np.int32),
            "finished": np.array([each.finished for each in exemplars], dtype=np.bool_),
            "usable": np.array(usable, dtype=np.bool_),
        },
        public_inputs=asked.public_inputs(),
        noise_check=_noise_check(parameters, exemplars, usable, tools.labels.size),
        strings={"exemplars": [each.read.text for each in exemplars], **asked.schema_strings},
    )


def _noise_check(
    parameters: FewShotParameters, exemplars: Sequence[Exemplar], usable: Sequence[bool], labels: int
) -> Facts:
    """Return how many exemplars are usable, and how many noisy tokens they took, per label."""
    counts, noisy = [0] * labels, [0] * labels
    for each, use in zip(exemplars, usable, strict=True):
        counts[each.label] += use
        noisy[each.label] += each.noisy
    entries = [
        Fact("usable_exemplars", tuple(counts), "exemplars that prompts can show"),
        Fact("noisy_tokens", tuple(noisy), f"noisy tokens, of {parameters.tokens} that are paid for per label"),
    ]
    faults = Counter(str(each.read.fault) for each in exemplars if each.read.fault is not None)
    if faults:
        named = ", ".join(f"{name} {count}" for name, count in faults.items())
        entries.append(Fact("exemplars_no_records", named, "exemplars that are not valid records"))
    warning = (
        "Some labels have no usable exemplar, so their prompts will show none. Spend more "
        "epsilon, allow longer exemplars (exemplar_tokens), or keep unfinished ones."
    )
    return Facts(tuple(entries), () if all(counts) else (warning,))
