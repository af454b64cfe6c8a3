"""Are the synthetic texts good examples? A language model that is shown a few of them labels real texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ConfigError
from understudy.metrics.intervals import bootstrap
from understudy.metrics.sample import Sample
from understudy.metrics.utility.answers import CONTENT_FREE, Questions, answer_scores, calibrated
from understudy.metrics.value import Figure, Metric

NO_SHOTS = "no shots"

IN_CONTEXT_ACCURACY = Metric(
    "in_context_accuracy",
    "In-context accuracy",
    "utility",
    "The share of real test texts to which a language model gives their label after n labelled texts of the table, "
    "drawn evenly over the labels; 0 to 1. A label's score is the probability of all its tokens, divided by the one "
    "it has after texts without content (contextual calibration); the mean over several draws of shots.",
    "Zhao et al. 2021, section 5; Tang et al. 2024, section 4",
    "higher",
)


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
) -> tuple[Figure, ...]:
    """In-context accuracy with n shots from each pool, and without shots (of ``no shots``) where 0 is among ``shots``.

    The model reads private text, so it is one on this machine. Intervals: bootstrap over the draws of shots and the
    test texts, each by itself (Owen 2007). All pools meet the same test texts.

    Args:
        test_real: real test texts with labels.
        pools: where shots come from, by name (``synthetic``, ``real``, ...); a pool's other labels are left out.
        label_names: all labels, as they are to be written.
        model: ``builtin``, ``hf:ORG/NAME`` or ``hf:./FOLDER``.
        device: ``"cpu"`` or ``"cuda"``; default CUDA where there is one.
        shots: how many texts a prompt shows, each 0 or more.
        repetitions: how many draws of shots, at least 1.
        test_texts: most test texts, drawn at random.
        tokens: most tokens of each text.
        seed: of all draws.

    Raises:
        ConfigError: a number is too small, or a test text has a label that is not among ``label_names``.
        ModelError: the model is none on this machine, or cannot be loaded.
    """
    from understudy.models.catalog import load_causal
    from understudy.models.machine import worker_pool

    if min(repetitions, test_texts, tokens) < 1 or min(shots, default=0) < 0:
        raise ConfigError(
            "In-context accuracy needs a repetition, a test text, a token a text, and 0 or more shots.",
            "Give larger numbers, or leave them out.",
        )
    if test_real.labels is not None and not set(test_real.labels) <= set(label_names):
        raise ConfigError(
            "A test text has a label that is not among the labels' names.",
            "Name all labels, as they are written in the table.",
        )
    cells = [(name, count) for count in sorted(set(shots)) for name in (pools if count else (NO_SHOTS,))]
    if test_real.labels is None or len(test_real) == 0 or len(set(label_names)) < 2:
        note = "it takes test texts with labels, and two labels or more"
        return tuple(_without(name, count, model, note) for name, count in cells)
    causal = load_causal(model, device=device)
    frame = Questions(causal, tuple(dict.fromkeys(label_names)), tokens)
    test = test_real.at_most(test_texts, seed=seed)
    questions = [frame.question(text) for text in (*CONTENT_FREE, *test.texts)]
    answers = [frame.answer(label) for label in frame.labels]
    true = np.array([frame.labels.index(label) for label in test.labels or ()])
    room = causal.window - max(map(len, questions)) - max(map(len, answers))

    def right(prompt: Sequence[int]) -> NDArray[np.bool_]:
        """Which test texts get their label."""
        scores = answer_scores(causal, prompt, questions, answers)
        chances = calibrated(scores[len(CONTENT_FREE) :], scores[: len(CONTENT_FREE)])
        return np.asarray(chances.argmax(axis=1) == true)

    def figure(name: str, count: int) -> Figure:
        pool = _labelled(pools.get(name), frame.labels)
        if len(pool) < count:
            return _without(name, count, model, f"the table has fewer than {count} texts with a known label")
        prompts = [
            frame.shots(drawn.texts, drawn.labels or ())
            for drawn in (_draw(pool, count, seed=(seed, turn)) for turn in range(repetitions if count else 1))
        ]
        if max(map(len, prompts)) > room:
            note = f"{count} texts and a question do not fit the model's window of {causal.window} tokens"
            return _without(name, count, model, note)
        return _figure(name, count, np.stack(list(workers.map(right, prompts))), model=model, seed=seed)

    with worker_pool(causal.device) as workers:
        return tuple(figure(name, count) for name, count in cells)


def _labelled(pool: Sample | None, labels: Sequence[str]) -> Sample:
    """The pool's texts with one of the labels."""
    if pool is None or pool.labels is None:
        return Sample((), ())
    return pool.take([row for row, label in enumerate(pool.labels) if label in labels])


def _draw(pool: Sample, count: int, *, seed: Sequence[int]) -> Sample:
    """``count`` of the pool's texts in random order, as evenly over its labels as they allow."""
    generator = np.random.default_rng(seed)
    shuffled = pool.take(generator.permutation(len(pool)))
    seen: Counter[str] = Counter()
    turns = []  # 0 for the first text of each label, 1 for the second
    for label in shuffled.labels or ():
        turns.append(seen[label])
        seen[label] += 1
    return shuffled.take(generator.permutation(np.argsort(turns, kind="stable")[:count]))


def _figure(name: str, count: int, right: NDArray[np.bool_], *, model: str, seed: int) -> Figure:
    """The figure of ``right``, ``Bool[draws, test texts]``."""
    draws, texts = right.shape
    generator = np.random.default_rng(seed)

    def accuracy(columns: NDArray[np.int64]) -> float:
        return float(right[generator.integers(draws, size=draws)][:, columns].mean())

    over = "the draws of shots and the test texts" if draws > 1 else "the test texts"
    interval = bootstrap(accuracy, texts, seed=seed, over=over)
    return Figure(IN_CONTEXT_ACCURACY, float(right.mean()), name, interval, {"shots": count, "model": model})


def _without(name: str, count: int, model: str, note: str) -> Figure:
    return Figure(IN_CONTEXT_ACCURACY, None, name, settings={"shots": count, "model": model}, note=note)
