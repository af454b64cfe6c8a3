"""Utility by language models: whether a model tuned on texts, or released with them, predicts real texts, and whether a
model that is shown a few of them labels real texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ModelError
from understudy.base.lazy import special
from understudy.evaluate.metrics.intervals import bootstrap
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import REAL, SYNTHETIC, Metric, MetricValue, metric_named
from understudy.methods.shared.decoding.tuned import TunedModel
from understudy.models import catalog
from understudy.models.causal import CausalModel
from understudy.models.machine import single_threaded_inference, worker_pool
from understudy.models.shared_prefix import Contexts
from understudy.models.training import (
    AdamW,
    Block,
    LearningRate,
    TokenRow,
    Weights,
    losses_of,
    target_logits,
    token_losses,
)

UNTUNED = "untuned"
_BATCH = 8
_WEIGHT_DECAY = 0.01
"""The default of torch's AdamW."""
_MOST_NATS = 69.0  # per token

PERPLEXITY = metric_named("language_model_perplexity")
ACCURACY = metric_named("language_model_accuracy")
BITS = metric_named("language_model_bits")


def rows_of(causal: CausalModel, texts: Sequence[str], *, tokens: int) -> list[TokenRow]:
    """Return the texts' first ``tokens`` tokens each, at most the model's window, after one that begins a text.

    That one is the tokenizer's beginning-of-sequence token, without it its end-of-sequence token; without either a
    text's first token is not a target. Texts that leave no target are left out.
    """
    start = causal.begin or sorted(causal.ends)[:1]
    most = min(tokens, causal.window - len(start))
    cut = [causal.encode(text)[:most] for text in texts]
    split = [(start, each) if start else (each[:1], each[1:]) for each in cut]
    return [TokenRow(prompt, np.array(target, dtype=np.int32)) for prompt, target in split if target]


@dataclass(frozen=True, eq=False)
class Scores:
    """A model's predictions of N texts.

    Args:
        surprise: each text's negative log-likelihood in nats, ``Float64[N]``.
        right: how many of its tokens had the highest probability of all, ``Int64[N]``.
        tokens: how many there are, ``Int64[N]``.
    """

    surprise: NDArray[np.float64]
    right: NDArray[np.int64]
    tokens: NDArray[np.int64]

    def perplexity(self, rows: NDArray[np.int64]) -> float:
        """Return the perplexity of the texts at ``rows``."""
        return float(np.exp(self.surprise[rows].sum() / self.tokens[rows].sum()))


def score(causal: CausalModel, network: Any, rows: Sequence[TokenRow]) -> Scores:
    """Let the model predict every target token of ``rows`` from the tokens before it. Return its scores."""
    surprise, right = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    tokens = np.array([len(row.target) for row in rows], dtype=np.int64)
    by_length = np.argsort(tokens, kind="stable")
    with single_threaded_inference():
        for first in range(0, len(rows), _BATCH):
            numbers = by_length[first : first + _BATCH]
            block = Block.around([rows[number] for number in numbers], device=causal.device)
            logits = target_logits(causal, network, block)
            surprise[numbers] = losses_of(logits, block).double().sum(1).cpu().numpy()
            right[numbers] = ((logits.argmax(-1) == block.targets) & block.wanted).sum(1).cpu().numpy()
    return Scores(surprise, right, tokens)


@dataclass(frozen=True)
class Recipe:
    """How a model is tuned: AdamW, its rate falling to 0 in a line, gradients clipped to norm 1.

    Args:
        epochs: how often each text is seen.
        blocks: how many of the model's last blocks learn.
    """

    texts: int = 200
    tokens: int = 64
    epochs: int = 2
    blocks: int = 6
    batch: int = 8
    rate: float = 3e-4


def tune(weights: Weights, rows: Sequence[TokenRow], recipe: Recipe, *, seed: int) -> None:
    """Tune a model's last blocks to predict ``rows``, at least one.

    Without dropout, and with the learning weights in float32 whatever the network computes in, so that the outcome
    depends on nothing but the arguments and the device.
    """
    causal, generator = weights.causal, np.random.default_rng(seed)
    batches = [
        [rows[number] for number in order[first : first + recipe.batch]]
        for order in (generator.permutation(len(rows)) for _ in range(recipe.epochs))
        for first in range(0, len(rows), recipe.batch)
    ]
    rate = LearningRate(recipe.rate, len(batches))
    optimizer = AdamW(weights.start(), rate, device=causal.device, weight_decay=_WEIGHT_DECAY)
    for batch in batches:
        block = Block.around(batch, device=causal.device)
        gradient = weights.gradient(partial(_loss, weights, block))
        optimizer.step(gradient / gradient.norm().clamp(min=1.0))
        weights.load(optimizer.weights)


def _loss(weights: Weights, block: Block) -> Any:
    return token_losses(weights.causal, weights.network, block).sum() / block.counts.sum()


def measure_language_model(
    train_real: Sample | None,
    test_real: Sample,
    synthetic: Mapping[str, Sample],
    *,
    model: str = "builtin",
    device: str | None = None,
    recipe: Recipe | None = None,
    test_texts: int = 200,
    seed: int = 0,
) -> tuple[MetricValue, ...]:
    """Return perplexity, next-token accuracy and bits per character of a small language model on real test texts.

    Tuned on each synthetic table, as it is (``untuned``), and tuned on as many real texts (``real``). The model reads
    private text, so it is one on this machine. Intervals: bootstrap over the test texts; the tuning is done once.

    Args:
        train_real: real texts that are not among the test texts; None for no values of ``real``.
        recipe: how it is tuned; default :class:`Recipe`'s.
    """
    recipe = recipe or Recipe()
    causal, copying = catalog.load_causal(model, device=device), Lock()
    test = rows_of(causal, test_real.at_most(test_texts, seed=seed).texts, tokens=recipe.tokens)
    tables = {name: each.at_most(recipe.texts, seed=seed) for name, each in synthetic.items()}
    if train_real is not None:
        most = max((len(each) for each in tables.values()), default=recipe.texts)
        tables[REAL] = train_real.at_most(most, seed=seed)

    characters = np.array([len(causal.decode(row.target.tolist())) for row in test], dtype=np.int64)
    statistics: Statistics = {
        PERPLEXITY: Scores.perplexity,
        ACCURACY: lambda scores, rows: float(scores.right[rows].sum() / scores.tokens[rows].sum()),
        BITS: lambda scores, rows: float((scores.surprise / np.log(2))[rows].sum() / characters[rows].sum()),
    }

    def values(name: str) -> list[MetricValue]:
        found, note = None, "no test text has a target token"
        if test and name == UNTUNED:
            found, note = score(causal, causal.network, test), "not tuned"
        elif test:
            rows, note = rows_of(causal, tables[name].texts, tokens=recipe.tokens), "there is no text to tune on"
            if rows:
                with copying:
                    weights = Weights(causal, blocks=recipe.blocks)
                tune(weights, rows, recipe, seed=seed)
                found = score(causal, weights.network, test)
                note = f"tuned on {len(rows)} texts of at most {recipe.tokens} tokens"
        return _values(statistics, found, name, model=model, note=note, seed=seed)

    with worker_pool(causal.device) as pool:
        return tuple(measured for each in pool.map(values, (UNTUNED, *tables)) for measured in each)


Statistics = Mapping[Metric, Callable[[Scores, NDArray[np.int64]], float]]
"""Computes each metric from a model's scores of the texts at some rows."""


def _values(
    statistics: Statistics, scores: Scores | None, name: str, *, model: str, note: str, seed: int
) -> list[MetricValue]:
    """Return the values of all texts, with bootstrap intervals; None, with ``note``, without scores."""
    if scores is not None and not (scores.surprise <= _MOST_NATS * scores.tokens).all():  # overflow, or NaN
        scores, note = None, "the model's perplexity is not finite"
    settings, found = {"model": model}, []
    for metric, statistic in statistics.items():
        value, interval = None, None
        if scores is not None:
            of_rows, count = partial(statistic, scores), len(scores.tokens)
            value, interval = of_rows(np.arange(count)), bootstrap(of_rows, count, seed=seed, over="the test texts")
        found.append(MetricValue(metric, value, name, interval, settings, note))
    return found


RELEASED_PERPLEXITY = metric_named("released_model_perplexity")
_TRAINED_ON = "the test texts are of the real table, on which the model was tuned: give others with --holdout"


def measure_released_model(
    test: Sample,
    tuned: TunedModel,
    *,
    tokens: int = 128,
    test_texts: int = 200,
    seed: int = 0,
    trained_on: bool = False,
) -> tuple[MetricValue, ...]:
    """Return the perplexity of a released model on real test texts, and that of its base model (``untuned``).

    Both get the same instructions. Intervals: bootstrap over the test texts, the same resamples for both.

    Args:
        test: real texts, with the labels that the model knows if it knows any.
        trained_on: whether the model was tuned on these very texts; a note then says so.
    """
    chosen = test.at_most(test_texts, seed=seed)
    rows = [replace(row, target=row.target[:tokens]) for row in tuned.rows(chosen.transcripts, chosen.labels)]

    def values(name: str) -> list[MetricValue]:
        found, note = None, "no test text has a known label and a token"
        if rows and name == UNTUNED:
            found, note = score(tuned.causal, tuned.causal.network, rows), "not tuned"
        elif rows:
            with tuned.active():
                found, note = score(tuned.causal, tuned.network, rows), _TRAINED_ON if trained_on else ""
        model = tuned.causal.model_id
        return _values({RELEASED_PERPLEXITY: Scores.perplexity}, found, name, model=model, note=note, seed=seed)

    with worker_pool(tuned.causal.device) as pool:
        return tuple(measured for each in pool.map(values, (SYNTHETIC, UNTUNED)) for measured in each)


NO_SHOTS = "no shots"

IN_CONTEXT_ACCURACY = metric_named("in_context_accuracy")

CONTENT_FREE = ("N/A", "", "[MASK]")
"""Texts without content, so that a model's answers to them are its bias. Source: Zhao et al. 2021, section 5."""

_ROWS = 32


@dataclass(frozen=True)
class Questions:
    """Builds the prompts of in-context learning, in a model's tokens.

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
        """Return the tokens of a label as an answer, including the blank line after it, so that no answer is a prefix
        of another."""
        return self.model.encode(f" {label}\n\n")

    def question(self, text: str) -> list[int]:
        """Return the tokens of a text and of the cue for its label."""
        cut = self.model.encode(" ".join(text.split()))[: self.tokens]
        return [*self.model.encode("Text: "), *cut, *self.model.encode("\nLabel:")]

    def shots(self, texts: Sequence[str], labels: Sequence[str]) -> list[int]:
        """Return the beginning of a prompt: the names of the labels, then texts with their labels."""
        found = [*self.model.begin, *self.model.encode(f"Each text is one of: {', '.join(self.labels)}.\n\n")]
        for text, label in zip(texts, labels, strict=True):
            found += [*self.question(text), *self.answer(label)]
        return found


def answer_scores(
    model: CausalModel, shots: Sequence[int], questions: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Return the log-probability of each answer, all of its tokens in turn, after ``shots`` and each question.

    The shots are read once for 32 questions. Lengths are not evened out: these are the probabilities of the answers.

    Args:
        shots, questions, answers: in the model's tokens, not empty (but ``shots`` may be); together they fit its
            window.

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
            f"The logits of {model.model_id} after a prompt are not finite.",
            "Name another model for the metrics (hf:ORG/NAME).",
        )
    return scores


def calibrated(scores: NDArray[np.float64], content_free: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return label probabilities with contextual calibration: ``W p`` scaled to sum to 1, ``W = diag(p_cf)^-1``.

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
    """Measure in-context accuracy with n shots from each pool, and without shots if 0 is among ``shots``.

    The model reads private text, so it is one on this machine. Intervals: bootstrap over the samples of shots and the
    test texts, each by itself (Owen 2007). All pools have the same test texts.

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
    """Return ``count`` of the pool's texts in random order, as evenly over the labels as possible."""
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
