"""Are the texts good for tuning a language model, and has a released one learnt from the private texts? Such a model
predicts real texts, and so does the one that it was tuned from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.metrics.intervals import bootstrap
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import REAL, SYNTHETIC, Metric, MetricValue
from understudy.methods.shared.decoding.tuned import TunedModel
from understudy.models import catalog
from understudy.models.causal import CausalModel
from understudy.models.machine import single_threaded_inference, worker_pool
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

_metric = partial(Metric, "utility")

UNTUNED = "untuned"
_BATCH = 8
_WEIGHT_DECAY = 0.01
"""As torch's AdamW has it."""
_MOST_NATS = 69.0  # per token
_HOW = (
    "A causal language model whose last blocks are tuned on the table's texts predicts real test texts, each token "
    "from those before it in its text, the first from the tokenizer's token for the beginning (or else the end) of a "
    "text; texts are cut, padding is left out."
)
_SOURCE = "Xie et al. 2024 (Aug-PE), section 4; Radford et al. 2019 for the untuned model's"

PERPLEXITY = _metric(
    "language_model_perplexity",
    "Perplexity of a tuned language model",
    f"{_HOW} exp of the mean negative log-likelihood per token over all test texts; from 1 (certain) on, the size of "
    "the vocabulary for a model that knows nothing.",
    _SOURCE,
    "lower",
)
ACCURACY = _metric(
    "language_model_accuracy",
    "Next-token accuracy of a tuned language model",
    f"{_HOW} The share of tokens to which it gives the highest probability of all; 0 to 1.",
    _SOURCE,
    "higher",
)
BITS = _metric(
    "language_model_bits",
    "Bits per character of a tuned language model",
    f"{_HOW} The negative log-likelihood in bits of all test texts by their characters; from 0 on, comparable between "
    "models of different vocabularies.",
    _SOURCE,
    "lower",
)


def rows_of(causal: CausalModel, texts: Sequence[str], *, tokens: int) -> list[TokenRow]:
    """The texts' first ``tokens`` tokens each, or as many as the model's window holds, after one that begins a text.

    That one is the tokenizer's beginning-of-sequence token, without it its end-of-sequence token; without either a
    text's first token is no target. Texts that leave no target are left out.
    """
    start = causal.begin or sorted(causal.ends)[:1]
    most = min(tokens, causal.window - len(start))
    cut = [causal.encode(text)[:most] for text in texts]
    split = [(start, each) if start else (each[:1], each[1:]) for each in cut]
    return [TokenRow(prompt, np.array(target, dtype=np.int32)) for prompt, target in split if target]


@dataclass(frozen=True, eq=False)
class Scores:
    """What a model made of N texts.

    Args:
        surprise: each text's negative log-likelihood in nats, ``Float64[N]``.
        right: how many of its tokens had the highest probability of all, ``Int64[N]``.
        tokens: how many there are, ``Int64[N]``.
    """

    surprise: NDArray[np.float64]
    right: NDArray[np.int64]
    tokens: NDArray[np.int64]

    def perplexity(self, rows: NDArray[np.int64]) -> float:
        """Of the texts at ``rows``."""
        return float(np.exp(self.surprise[rows].sum() / self.tokens[rows].sum()))


def score(causal: CausalModel, network: Any, rows: Sequence[TokenRow]) -> Scores:
    """Predict every target of ``rows`` from the tokens before it, by the model's own network or one made of it."""
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
    """Perplexity, next-token accuracy and bits per character of a small language model on real test texts.

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
"""How each metric comes of a model's scores of the texts at some rows."""


def _values(
    statistics: Statistics, scores: Scores | None, name: str, *, model: str, note: str, seed: int
) -> list[MetricValue]:
    """Those of all texts, with bootstrap intervals; none, and ``note``, without scores."""
    if scores is not None and not (scores.surprise <= _MOST_NATS * scores.tokens).all():  # more than is held, or NaN
        scores, note = None, "the model's perplexity is not finite"
    settings, found = {"model": model}, []
    for metric, statistic in statistics.items():
        value, interval = None, None
        if scores is not None:
            of_rows, count = partial(statistic, scores), len(scores.tokens)
            value, interval = of_rows(np.arange(count)), bootstrap(of_rows, count, seed=seed, over="the test texts")
        found.append(MetricValue(metric, value, name, interval, settings, note))
    return found


RELEASED_PERPLEXITY = _metric(
    "released_model_perplexity",
    "Perplexity of the released language model",
    "The language model that the Release holds predicts real test texts, each token from the instruction that asks for "
    "a text of its label and from the tokens before it; texts are cut, and instructions and the token that ends a text "
    "are not predicted. exp of the mean negative log-likelihood per token over all test texts; from 1 (certain) on.",
    "Jelinek et al. 1977; Tian et al. 2022 (SeqPATE) for tuned models",
    "lower",
)
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
    """Perplexity of a released model on real test texts, beside that of its base model (``untuned``).

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
