"""Are the texts good examples? A language model that is shown a few of them labels real texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ModelError
from understudy.base.lazy import special
from understudy.evaluate.metrics.intervals import bootstrap
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import Metric, MetricValue
from understudy.models import catalog
from understudy.models.causal import CausalModel
from understudy.models.contexts import Contexts
from understudy.models.machine import single_threaded_inference, worker_pool

NO_SHOTS = "no shots"

IN_CONTEXT_ACCURACY = Metric(
    "utility",
    "in_context_accuracy",
    "In-context accuracy",
    "The share of real test texts to which a language model gives their label after n labelled texts of the table, "
    "sampled evenly over the labels; 0 to 1. A label's score is the probability of all its tokens, divided by the one "
    "it has after texts without content (contextual calibration); the mean over several samples of shots.",
    "Zhao et al. 2021, section 5; Tang et al. 2024, section 4",
    "higher",
)

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
        shots, questions, answers: in its tokens; no question and no answer is empty, and together they fit its window.

    Returns:
        ``Float64[len(questions), len(answers)]``.
    """
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
    scaled = content_free - special.logsumexp(content_free, axis=1, keepdims=True)
    bias = special.logsumexp(scaled, axis=0) - np.log(len(content_free))
    found: NDArray[np.float64] = special.softmax(scores - bias, axis=1)
    return found


def measure_in_context(
    test_real: Sample,
    pools: Mapping[str, Sample],
    *,
    label_names: Sequence[str],
    model: str = "builtin",
    device: str | None = None,
    shots: Sequence[int] = (0, 4, 8),
    repetitions: int = 4,
    test_texts: int = 100,
    tokens: int = 64,
    seed: int = 0,
) -> tuple[MetricValue, ...]:
    """In-context accuracy with n shots from each pool, and without shots (of ``no shots``) where 0 is among ``shots``.

    The model reads private text, so it is one on this machine. Intervals: bootstrap over the samples of shots and the
    test texts, each by itself (Owen 2007). All pools meet the same test texts.

    Args:
        pools: where shots come from, by name (``synthetic``, ``real``, ...); a pool's other labels are left out.
        label_names: all labels, as they are to be written.
        shots: how many texts a prompt shows, each 0 or more.
    """
    cells = [(name, count) for count in sorted(set(shots)) for name in (pools if count else (NO_SHOTS,))]
    if test_real.labels is None or len(test_real) == 0 or len(set(label_names)) < 2:
        note = "it takes test texts with labels, and two labels or more"
        return tuple(_without(name, count, model, note) for name, count in cells)
    causal = catalog.load_causal(model, device=device)
    frame = Questions(causal, tuple(dict.fromkeys(label_names)), tokens)
    test = test_real.at_most(test_texts, seed=seed)
    questions = [frame.question(text) for text in (*CONTENT_FREE, *test.texts)]
    answers = [frame.answer(label) for label in frame.labels]
    true = np.array([frame.labels.index(label) for label in test.labels or ()])
    room = causal.window - max(map(len, questions)) - max(map(len, answers))

    def right(prompt: Sequence[int]) -> NDArray[np.bool_]:
        scores = answer_scores(causal, prompt, questions, answers)
        chances = calibrated(scores[len(CONTENT_FREE) :], scores[: len(CONTENT_FREE)])
        return np.asarray(chances.argmax(axis=1) == true)

    def measured(name: str, count: int) -> MetricValue:
        pool = pools[name] if count else Sample((), ())
        rows = [row for row, label in enumerate(pool.labels or ()) if label in frame.labels]
        if len(rows) < count:
            return _without(name, count, model, f"the table has fewer than {count} texts with a known label")
        chosen = [_choose(pool.take(rows), count, seed=(seed, turn)) for turn in range(repetitions if count else 1)]
        prompts = [frame.shots(each.texts, each.labels or ()) for each in chosen]
        if max(map(len, prompts)) > room:
            note = f"{count} texts and a question do not fit the model's window of {causal.window} tokens"
            return _without(name, count, model, note)
        return _value(name, count, np.stack(list(workers.map(right, prompts))), model=model, seed=seed)

    with worker_pool(causal.device) as workers:
        return tuple(measured(name, count) for name, count in cells)


def _choose(pool: Sample, count: int, *, seed: Sequence[int]) -> Sample:
    """``count`` of the pool's texts in random order, as evenly over its labels as they allow."""
    generator = np.random.default_rng(seed)
    shuffled = pool.take(generator.permutation(len(pool)))
    seen: Counter[str] = Counter()
    turns = []  # 0 for the first text of each label, 1 for the second
    for label in shuffled.labels or ():
        turns.append(seen[label])
        seen[label] += 1
    return shuffled.take(generator.permutation(np.argsort(turns, kind="stable")[:count]))


def _value(name: str, count: int, right: NDArray[np.bool_], *, model: str, seed: int) -> MetricValue:
    repetitions, texts = right.shape
    generator = np.random.default_rng(seed)

    def accuracy(columns: NDArray[np.int64]) -> float:
        return float(right[generator.integers(repetitions, size=repetitions)][:, columns].mean())

    over = "the samples of shots and the test texts" if repetitions > 1 else "the test texts"
    interval = bootstrap(accuracy, texts, seed=seed, over=over)
    return MetricValue(IN_CONTEXT_ACCURACY, float(right.mean()), name, interval, {"shots": count, "model": model})


def _without(name: str, count: int, model: str, note: str) -> MetricValue:
    return MetricValue(IN_CONTEXT_ACCURACY, None, name, settings={"shots": count, "model": model}, note=note)
