"""One exemplar, decoded token by token (Tang et al. 2024, Algorithm 2).

until the exemplar ends:
    sample     = each record of the label with probability q, into one of M subsets          fresh for every token
    rows       = one prompt a subset with up to N of its records, and one without any        one block, one shape
    candidates = the K tokens likeliest without private records                              public
    sums       = the rows' probabilities of the candidates, summed over the subsets          integers
    token      = the candidate with the largest noisy sum                                    one token of the charge
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, ModelError
from understudy.methods.few_shot.plan import FewShotParameters
from understudy.methods.shared.decoding.ending import Ending, OpenText
from understudy.methods.shared.decoding.prompting import LabelPrompt, LabelPrompts, PromptTokens, build_prompts
from understudy.methods.shared.decoding.sums import Candidates, public_candidates, softmax_sum, vote_sum
from understudy.models.causal import CausalModel, whole_rows
from understudy.models.contexts import Contexts
from understudy.privacy.subsampled import LabelTokens, Sample, SubsampledTokens
from understudy.text.prompts.template import Prompts


def build_exemplar_prompts(
    parameters: FewShotParameters,
    prompts: Prompts,
    model: CausalModel,
    *,
    label_names: Sequence[str],
    record_columns: Sequence[str],
) -> LabelPrompts:
    """The prompts of all labels.

    Raises ConfigError: as :func:`~understudy.methods.shared.decoding.prompting.build_prompts`, or the prompt without
    private texts is empty.
    """
    asked = build_prompts(parameters, prompts, model, label_names=label_names, record_columns=record_columns)
    return replace(asked, labels=tuple(_with_room(parameters, each) for each in asked.labels))


def exemplar_width(prompt: PromptTokens, ending: Ending, *, most: int, most_shown: int) -> int:
    """Tokens to which every row is padded, whatever was decoded before: a function of public parameters."""
    return 1 + prompt.width(most, texts=most_shown) + len(prompt.suffix) + ending.most_tokens


def try_rows(parameters: FewShotParameters, asked: LabelPrompts) -> None:
    """Try, before anything is charged, what is promised of rows on this device.

    Raises:
        PrivacyError: rows change one another's logits.
        ModelError: the public logits are not finite.
    """
    rows = parameters.subsets + 1
    for label in {each.shape: each for each in asked.labels}.values():
        prefix, suffix = label.tokens.prefix, label.tokens.suffix
        label.model.contexts(
            [[*prefix[-1:], *suffix]] * rows,
            prefix=prefix[:-1],
            width=exemplar_width(
                label.tokens, label.ending, most=label.most, most_shown=parameters.examples_per_subset
            ),
            tokens=0,
            rows_at_once=whole_rows(rows),
            candidates=parameters.candidates,
        ).public_logits()


def _with_room(parameters: FewShotParameters, label: LabelPrompt) -> LabelPrompt:
    if not label.tokens.prefix and not label.tokens.suffix:
        raise ConfigError("The prompt for private texts is empty but for these texts.", "Write something around them.")
    ending = Ending.of(label.prompt, most_tokens=parameters.exemplar_tokens)
    fitting = label.tokens.most_fitting(
        label.model.window, new_tokens=parameters.exemplar_tokens + 1, texts=parameters.examples_per_subset
    )
    return replace(label, ending=ending, most=min(parameters.private_text_tokens, fitting))


def deal(sample: Sample, *, subsets: int, most: int) -> list[NDArray[np.int64]]:
    """For each subset the records that it shows: its ``most`` included ones of lowest priority, in that order.

    Each record has coins of its own. Taking one away, with its coins, leaves all subsets but one as they were.
    """
    included = np.flatnonzero(sample.included)
    included = included[np.argsort(sample.priority[included], kind="stable")]
    return [included[sample.subset[included] == each][:most] for each in range(subsets)]


@dataclass
class DecodedExemplar:
    """An exemplar as it grows: its tokens, and which of them are noisy."""

    text: OpenText
    tokens: list[int] = field(default_factory=list)
    noisy: list[bool] = field(default_factory=list)

    def take(self, token: int, *, noisy: bool) -> None:
        """Add a token; one that is not noisy falls away where the exemplar has ended."""
        if self.text.ended is None:
            self.tokens.append(token)
            self.noisy.append(noisy)
            self.text.take(token)


@dataclass(frozen=True)
class TokenSampler:
    """How the exemplars of one label are decoded.

    Guarantee:
        A record changes the row of the one subset that it falls into, and no other: rows are dealt out by coins of
        their own (:func:`deal`), and run in one block of subsets + 1 rows of one width for every token, whoever is
        sampled (:class:`~understudy.models.contexts.Contexts`). A row adds non-negative integers of at most the
        mechanism's grid in all, or one vote. The candidates come of the public row. So the sums move as
        :class:`~understudy.privacy.subsampled.SubsampledTokens` says; it samples, adds the noise and counts.

    Args:
        most_shown: N, records that a subset shows.
        most: tokens of a shown record at most.
        candidates: K.
    """

    mechanism: SubsampledTokens
    model: CausalModel
    prompt: PromptTokens
    ending: Ending
    most_shown: int
    most: int
    candidates: int

    @property
    def width(self) -> int:
        return exemplar_width(self.prompt, self.ending, most=self.most, most_shown=self.most_shown)

    def exemplar(
        self, records: Sequence[NDArray[np.int32]], paid: LabelTokens, check: Callable[[], None] = lambda: None
    ) -> DecodedExemplar:
        """Decode tokens until the exemplar ends, or no paid one is left.

        Args:
            records: the label's private texts in tokens, ``most`` at most each.
            check: called before each token; it raises where the run is being stopped.
        """
        decoded = DecodedExemplar(self.ending.open(self.model))
        while decoded.text.ended is None:
            if certain := self.model.encode(decoded.text.next):
                for token in certain:
                    decoded.take(token, noisy=False)
                continue
            if not paid.left:
                break
            check()
            contexts = self._contexts(self._shown(records, paid), decoded.tokens)
            try:
                public = contexts.public_logits()
            except ModelError:
                if not decoded.tokens:
                    raise
                paid.skip()
                break  # this too is an outcome of tokens that were paid for: stored, not decoded again
            candidates = public_candidates(public, count=self.candidates)
            decoded.take(candidates.token(paid.choose(self.sums(contexts, candidates))), noisy=True)
        return decoded

    def sums(self, contexts: Contexts, candidates: Candidates) -> NDArray[np.int64]:
        """``Int64[K]``: what the subsets say together, the public row left out."""
        counted = [0, *[1] * (len(contexts) - 1)]
        if self.mechanism.noise == "votes":
            return vote_sum(contexts, candidates, divisors=counted)
        return softmax_sum(contexts, candidates, grid=self.mechanism.grid, divisors=counted)

    def _shown(self, records: Sequence[NDArray[np.int32]], paid: LabelTokens) -> list[list[NDArray[np.int32]]]:
        """A fresh sample: the records that each subset shows."""
        dealt = deal(paid.sample(len(records)), subsets=self.mechanism.subsets, most=self.most_shown)
        return [[records[number] for number in numbers.tolist()] for numbers in dealt]

    def _contexts(self, shown: Sequence[Sequence[NDArray[np.int32]]], decoded: Sequence[int]) -> Contexts:
        """The public row and one per subset, each with the exemplar so far at its end.

        The last token of the prefix stands in the rows themselves, so that no row is ever empty.
        """
        lead, end = self.prompt.prefix[-1:], (*self.prompt.suffix, *decoded)
        rows = [[*lead, *self.prompt.row(*(text.tolist() for text in texts)), *end] for texts in ([], *shown)]
        return self.model.contexts(
            rows,
            prefix=self.prompt.prefix[:-1],
            width=self.width,
            tokens=0,
            rows_at_once=whole_rows(len(rows)),
            candidates=self.candidates,
        )
