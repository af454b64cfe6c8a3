"""A language model as a classifier: which label would it write after a text, given texts with their labels?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ModelError

if TYPE_CHECKING:
    from understudy.models.causal import CausalModel

CONTENT_FREE = ("N/A", "", "[MASK]")
"""Texts that say nothing, so that what a model answers to them is its bias. Source: Zhao et al. 2021, section 5."""

_ROWS = 32


@dataclass(frozen=True)
class Questions:
    """The frame of a prompt, in a model's tokens.

    A prompt is a line that names the labels, then ``Text: ...``, ``Label: ...`` for each shot and for the text in
    question. Each piece is tokenised by itself, so a label has the same tokens in a shot and as an answer.

    Args:
        model: whose tokens.
        labels: what a text can be, two or more.
        tokens: most tokens of a text, from its beginning; line breaks in it become blanks.
    """

    model: CausalModel
    labels: tuple[str, ...]
    tokens: int

    def answer(self, label: str) -> list[int]:
        """The label as it is written, up to the next text, so that no answer begins another."""
        return self.model.encode(f" {label}\n\n")

    def question(self, text: str) -> list[int]:
        """The text, up to where its label comes."""
        cut = self.model.encode(" ".join(text.split()))[: self.tokens]
        return [*self.model.encode("Text: "), *cut, *self.model.encode("\nLabel:")]

    def shots(self, texts: Sequence[str], labels: Sequence[str]) -> list[int]:
        """What a prompt begins with."""
        found = [*self.model.begin, *self.model.encode(f"Each text is one of: {', '.join(self.labels)}.\n\n")]
        for text, label in zip(texts, labels, strict=True):
            found += [*self.question(text), *self.answer(label)]
        return found


def answer_scores(
    model: CausalModel, shots: Sequence[int], questions: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """The log-probability of each answer, all of its tokens in turn, after ``shots`` and each question.

    The shots are read once for 32 questions. Lengths are not evened out: these are the probabilities of the answers.

    Args:
        model: reads and answers.
        shots, questions, answers: in its tokens; no question and no answer is empty, and together they fit its window.

    Returns:
        ``Float64[len(questions), len(answers)]``.

    Raises:
        ModelError: one of them is not finite.
    """
    from understudy.models.contexts import Contexts
    from understudy.models.machine import single_threaded_inference

    scores = np.zeros((len(questions), len(answers)))
    by_length = sorted(range(len(questions)), key=lambda number: len(questions[number]))
    for first in range(0, len(questions), _ROWS):
        numbers = by_length[first : first + _ROWS]
        rows = [questions[number] for number in numbers]
        contexts = Contexts(
            model,
            rows,
            prefix=shots,
            width=max(map(len, rows)),
            suffix=(),
            tokens=max(map(len, answers)) - 1,
            rows_at_once=len(rows),
        )
        for place, answer in enumerate(answers):
            for number, token in enumerate(answer):
                if number:
                    contexts.step(answer[number - 1])
                with single_threaded_inference():
                    chances = next(contexts.blocks()).logits.float().log_softmax(-1)[:, token]
                scores[numbers, place] += chances.double().cpu().numpy()
            contexts.rewind()
    if not np.isfinite(scores).all():
        raise ModelError(
            f"The logits of {model.model_id} after a prompt are not finite.", "Measure with another model."
        )
    return scores


def calibrated(scores: NDArray[np.float64], content_free: NDArray[np.float64]) -> NDArray[np.float64]:
    """Contextual calibration: ``W p`` scaled to sum to 1, with ``W = diag(p_cf)^-1`` and no offset.

    ``p`` is the labels' probabilities after a text, ``p_cf`` those after texts without content (each scaled to sum to
    1, then their mean). The softmax that the paper puts around ``W p`` changes no order and is left out.

    Args:
        scores: log-probabilities ``Float64[N, L]``.
        content_free: those after the texts without content, ``Float64[K, L]``.

    Returns:
        ``Float64[N, L]``, each row in [0, 1] with sum 1.

    Source: Zhao et al. 2021, section 5.
    """
    from scipy.special import logsumexp, softmax

    bias = logsumexp(content_free - logsumexp(content_free, axis=1, keepdims=True), axis=0) - np.log(len(content_free))
    found: NDArray[np.float64] = softmax(scores - bias, axis=1)
    return found
